"""Attention: an average of values in which each query decides what counts. Masks, several heads, and the additive form of 2015.

Every mask in this module is boolean and True means "may look", as in torch's `scaled_dot_product_attention`.
(`nn.MultiheadAttention` means the opposite.)
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.kv_cache import KVCache

Mask = Tensor | Literal["causal"] | None


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension among the places that `mask` allows; all others get weight 0.

    scores: (..., T_q, T_k). mask: bool, broadcasts to the scores; True means "may look". A row that may look nowhere gets
    the weight 0 everywhere, not NaN, and passes no gradient back.
    """
    if mask is None:
        return scores.softmax(-1)
    check_mask(mask, scores.shape)
    nowhere = ~mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask, -math.inf).masked_fill(nowhere, 0.0)
    return scores.softmax(-1).masked_fill(nowhere, 0.0)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """How much each query looks at each key: softmax(q k^T / sqrt(d_head)), (..., T_q, T_k). See `attend`."""
    check_shapes(q, k)
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)  # scaled first: in half precision q k^T may overflow
    return masked_softmax(scores, mask)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Average the values `v`, weighted by how well each key fits each query.

    q: (..., T_q, d_head)    k: (..., T_k, d_head)    v: (..., T_k, d_value)
    mask: bool, broadcasts to (..., T_q, T_k); True means "may look". Combine masks with `&`.
    Returns the average (..., T_q, d_value) and the weights (..., T_q, T_k), whose rows sum to 1. A query that may look
    nowhere gets zeros, of both, and finite gradients. ValueError for shapes that do not fit, TypeError for other masks.
    Vaswani et al. 2017, eq. 1.
    """
    check_values(k, v)
    weights = attention_weights(q, k, mask)
    return weights @ v, weights


def causal_mask(T_q: int, T_k: int | None = None, device: torch.device | str | None = None) -> Tensor:
    """bool (T_q, T_k), True where key j is not later than query i. With T_k > T_q the queries are the last of T_k positions.

    So it is right for a cache: one query and five keys may look at all five.
    """
    T_k = T_q if T_k is None else T_k
    if not 1 <= T_q <= T_k:
        raise ValueError(f"need 1 <= T_q <= T_k: the queries are the last T_q of T_k positions; got {T_q} and {T_k}")
    return torch.ones(T_q, T_k, dtype=torch.bool, device=device).tril(T_k - T_q)


def padding_mask(ids: Tensor, pad_id: int = 0) -> Tensor:
    """bool (B, 1, T), True where ids (B, T) are not padding: keys that every query may look at.

    Padding is hidden as a key only. A query at a padded place still looks at the true ones (its output is nobody's
    input), so no row is empty. `padding_mask(ids) & causal_mask(T)` is (B, T, T).
    """
    if ids.ndim != 2 or ids.is_floating_point():
        raise ValueError(f"ids must be (B, T) integers; got {tuple(ids.shape)} {ids.dtype}")
    return (ids != pad_id)[:, None, :]


class MultiHeadAttention(nn.Module):
    """Attention n_heads times side by side, each in a subspace of d_model / n_heads numbers, and a matrix that mixes the results.

    d_memory: width of the vectors looked at, if it is not d_model. dropout: on the weights, in training only.
    bias: whether the four projections have one. Vaswani et al. 2017, section 3.2.2.
    Without `keep_weights` the weights are not returned, and torch's fused kernel, which never stores them, may do the work.
    The kernel has a gradient, but no gradient of its gradient.
    """

    def __init__(
        self, d_model: int, n_heads: int, dropout: float = 0.0, bias: bool = True, d_memory: int | None = None
    ):
        super().__init__()
        if n_heads < 1 or d_model < 1 or d_model % n_heads:
            raise ValueError(
                f"d_model must be a multiple of n_heads: {d_model} numbers do not split over {n_heads} heads"
            )
        self.n_heads, self.d_model = n_heads, d_model
        self.keep_weights = True
        d_memory = d_model if d_memory is None else d_memory
        if d_memory < 1:
            raise ValueError(f"d_memory must be at least 1, not {d_memory}")
        self.w_q = nn.Linear(d_model, d_model, bias)
        self.w_k = nn.Linear(d_memory, d_model, bias)
        self.w_v = nn.Linear(d_memory, d_model, bias)
        self.w_o = nn.Linear(d_model, d_model, bias)
        self.drop = nn.Dropout(dropout)
        for layer in (self.w_q, self.w_k, self.w_v, self.w_o):
            nn.init.xavier_uniform_(layer.weight)
            if bias:
                nn.init.zeros_(layer.bias)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Mask = None, cache: KVCache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """x: (B, T_q, d_model) asks. memory: (B, T_k, d_memory) is looked at; left out, x looks at itself.

        mask: bool, (T_q, T_k), (B, T_q or 1, T_k), or (B, n_heads or 1, T_q or 1, T_k); True means "may look". "causal"
        stands for `causal_mask(T_q, T_k)`, which then need not be made.
        cache: for decoding step by step. Without memory the new keys and values are appended, and x looks at all so far
        (T_k counts them); with memory they are computed at the first call and then kept, whatever memory is passed.
        Returns (B, T_q, d_model) and the weights (B, n_heads, T_q, T_k), as they are before dropout, or None.
        """
        check_input(x, self.d_model, "x")
        if memory is not None:
            check_input(memory, self.w_k.in_features, "memory")
        elif self.w_k.in_features != self.d_model:
            raise ValueError(
                f"built for a memory of width {self.w_k.in_features}, x cannot look at itself: pass memory"
            )
        if memory is None:
            q, k, v = self.project(x)
        elif cache is not None and cache.k is not None and cache.v is not None:
            q, k, v = self.split(self.w_q(x)), cache.k, cache.v
            cache = None
        else:
            q, k, v = self.split(self.w_q(x)), self.split(self.w_k(memory)), self.split(self.w_v(memory))
        if cache is not None:
            k, v = cache.extend(k, v)
        if len(k) != len(q):
            raise ValueError(f"x has {len(q)} rows and what it looks at {len(k)}: each row looks at its own")
        if isinstance(mask, Tensor) and mask.ndim == 3:
            mask = mask[:, None]  # the same for all heads
        y, weights = self.average(q, k, v, mask)
        return self.w_o(self.merge(y)), weights

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x (B, T, d_model), each (B, n_heads, T, d_head)."""
        layers = self.w_q, self.w_k, self.w_v
        if x.shape[0] * x.shape[1] < self.d_model:
            q, k, v = (self.split(layer(x)) for layer in layers)
            return q, k, v
        # One large product is faster than three small ones, if there are vectors enough to pay for joining the matrices.
        bias = torch.cat([layer.bias for layer in layers]) if self.w_q.bias is not None else None
        joined = F.linear(x, torch.cat([layer.weight for layer in layers]), bias)
        q, k, v = joined.unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def average(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> tuple[Tensor, Tensor | None]:
        """The heads' averages (B, n_heads, T_q, d_head), and the weights if they are kept. Two ways to the same numbers."""
        T_q, T_k = q.shape[2], k.shape[2]
        square = isinstance(mask, str) and T_q == T_k and not self.keep_weights
        if isinstance(mask, str):
            if mask != "causal":
                raise ValueError(f'a mask is a bool tensor, "causal" or None; got {mask!r}')
            mask = None if square or T_q == 1 else causal_mask(T_q, T_k, q.device)
        if self.keep_weights:
            weights = attention_weights(q, k, mask)
            return self.drop(weights) @ v, weights
        if mask is not None:
            check_mask(mask, torch.Size((len(q), self.n_heads, T_q, T_k)))
        # is_causal counts from the first key, so it is right only when queries and keys are the same positions.
        rate = self.drop.p if self.training else 0.0
        mask = None if mask is None else torch.atleast_2d(mask)  # the kernel takes no less
        return F.scaled_dot_product_attention(q, k, v, mask, dropout_p=rate, is_causal=square), None

    def split(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, n_heads, T, d_head)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def merge(self, heads: Tensor) -> Tensor:
        """(B, n_heads, T, d_head) -> (B, T, d_model), the heads of a position end to end."""
        return heads.transpose(1, 2).flatten(2)

    @torch.no_grad()
    def load_torch(self, theirs: nn.MultiheadAttention) -> "MultiHeadAttention":
        """Copy the weights of torch's module of the same sizes."""
        if (theirs.embed_dim, theirs.num_heads, theirs.kdim) != (self.d_model, self.n_heads, self.w_k.in_features):
            raise ValueError(
                f"torch's module has embed_dim={theirs.embed_dim}, num_heads={theirs.num_heads}, kdim={theirs.kdim}; this "
                f"one has d_model={self.d_model}, n_heads={self.n_heads}, d_memory={self.w_k.in_features}"
            )
        if (theirs.in_proj_bias is None) != (self.w_q.bias is None):
            raise ValueError("one of the two modules has biases and the other has none")
        layers = (self.w_q, self.w_k, self.w_v)
        weights = (
            theirs.in_proj_weight.chunk(3)
            if theirs.in_proj_weight is not None
            else (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
        )
        for layer, weight in zip(layers, weights):
            layer.weight.copy_(weight)
        self.w_o.weight.copy_(theirs.out_proj.weight)
        if theirs.in_proj_bias is not None:
            for layer, bias in zip(layers, theirs.in_proj_bias.chunk(3)):
                layer.bias.copy_(bias)
            self.w_o.bias.copy_(theirs.out_proj.bias)
        return self

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, n_heads={self.n_heads}"


@contextmanager
def keep_weights(model: nn.Module, kept: bool = True) -> Iterator[None]:
    """Inside, every MultiHeadAttention of `model` returns its weights (or none does); afterwards each does what it did."""
    found = [(m, m.keep_weights) for m in model.modules() if isinstance(m, MultiHeadAttention)]
    try:
        for m, _ in found:
            m.keep_weights = kept
        yield
    finally:
        for m, before in found:
            m.keep_weights = before


class BahdanauAttention(nn.Module):
    """Additive attention: the score of a key for a query is w . tanh(W q + U k), a small network of d_hidden units.

    Bahdanau et al. 2015, appendix A.1.2 (their v_a is our w: v is the values here).
    """

    def __init__(self, d_query: int, d_key: int, d_hidden: int):
        super().__init__()
        self.W = nn.Linear(d_query, d_hidden, bias=False)
        self.U = nn.Linear(d_key, d_hidden, bias=False)
        self.w = nn.Linear(d_hidden, 1, bias=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """q: (B, T_q, d_query), k: (B, T_k, d_key), v: (B, T_k, d_value), mask as in `attend`.

        Returns the average (B, T_q, d_value) and the weights (B, T_q, T_k).
        """
        check_input(q, self.W.in_features, "q")
        check_input(k, self.U.in_features, "k")
        check_values(k, v)
        hidden = torch.tanh(self.W(q)[:, :, None] + self.U(k)[:, None])  # (B, T_q, T_k, d_hidden)
        weights = masked_softmax(self.w(hidden).squeeze(-1), mask)
        return weights @ v, weights


def check_mask(mask: Tensor, shape: torch.Size) -> None:
    """Refuse a mask that is not boolean or does not broadcast to the scores."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f'a mask is a bool tensor, True means "may look"; got {kind}')
    try:
        fits = torch.broadcast_shapes(mask.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"a mask of shape {tuple(mask.shape)} does not broadcast to the scores, {tuple(shape)}")


def check_shapes(q: Tensor, k: Tensor) -> None:
    """Refuse queries and keys that have no dot product."""
    if min(q.ndim, k.ndim) < 2 or q.shape[-1] != k.shape[-1] or q.shape[-1] == 0:
        raise ValueError(
            f"q (..., T_q, d_head) and k (..., T_k, d_head) need the same width; got {tuple(q.shape)} and {tuple(k.shape)}"
        )
    if not (q.is_floating_point() and k.is_floating_point()):
        raise TypeError(f"q and k hold vectors, not {q.dtype} and {k.dtype}: look ids up in an embedding first")


def check_values(k: Tensor, v: Tensor) -> None:
    """Refuse values that are not one per key."""
    if v.ndim < 2 or v.shape[-2] != k.shape[-2]:
        raise ValueError(f"each key needs its value: k is {tuple(k.shape)}, v is {tuple(v.shape)}")


def check_input(x: Tensor, width: int, name: str) -> None:
    """Refuse what is not (B, T, width), T at least 1."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor (B, T, {width}), not {type(x).__name__}")
    if x.ndim != 3 or x.shape[2] != width or x.shape[1] == 0:
        raise ValueError(
            f"{name} must be (B, T, {width}), T at least 1; got {tuple(x.shape)} (a single sequence is {name}[None])"
        )
    if not x.is_floating_point():
        raise TypeError(f"{name} holds vectors, not {x.dtype}: look the ids up in an embedding first")
