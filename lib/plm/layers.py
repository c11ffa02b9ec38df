"""What a Transformer is made of: positions, layer norm, Add & Norm, feed-forward layers, encoder and decoder layers, stacks.

Vaswani et al. 2017, sec. 3. Chapter 9 puts them together for translation; GPT and BERT are stacks of the same encoder layer.
Layers take (B, T, d_model). A mask is bool, True means "may look", and broadcasts to (B, n_heads, T_q, T_k).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.attention import KVCache, Mask, MultiHeadAttention


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by a formula with tanh, as GPT and GPT-2 compute it; it differs from the exact one by up to 5e-4."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": gelu_tanh}


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """Sizes of a stack of Transformer layers. The paper's: d_model 512, 8 heads, d_ff 2048, 6 layers, dropout 0.1, post."""

    d_model: int = 128  # width of every vector between layers; the residual path adds, so it never changes
    n_heads: int = 4  # must divide d_model
    d_ff: int = 512  # hidden width of the feed-forward layer, four times d_model by custom
    n_layers: int = 2  # in each stack
    dropout: float = 0.1  # on each sublayer's output, the attention weights, the hidden layer and the embeddings
    norm: str = "pre"  # "pre": normalise what enters a sublayer; "post": the sum behind it, as the paper does
    activation: str = "relu"  # "relu", "gelu" or "gelu_tanh", between the two matrices of the feed-forward layer
    norm_eps: float = 1e-5  # added to the variance, so that a constant vector does not divide by zero

    def __post_init__(self) -> None:
        for name in ("d_model", "n_heads", "d_ff", "n_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.d_model % self.n_heads:
            raise ValueError(f"{self.n_heads} heads cannot share d_model = {self.d_model} evenly")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is a probability below 1, not {self.dropout}")
        if not self.norm_eps >= 0:
            raise ValueError(f"norm_eps is added to a variance and at least 0, not {self.norm_eps}")
        if self.norm not in ("pre", "post"):
            raise ValueError(f'norm is "pre" or "post", not {self.norm!r}')
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}, not {self.activation!r}")


def sinusoidal_positions(n: int, d_model: int) -> Tensor:
    """A vector for each of the positions 0 … n - 1: (n, d_model) float32, sine and cosine of one frequency side by side.

    PE[pos, 2i] = sin(pos * w_i), PE[pos, 2i + 1] = cos(pos * w_i), w_i = 10000 ** (-2i / d_model). An odd width leaves the
    last cosine out. Vaswani et al. 2017, sec. 3.5.
    """
    if n < 1 or d_model < 1:
        raise ValueError(f"need at least one position and a width of at least 1; got {n} and {d_model}")
    pos = torch.arange(n, dtype=torch.float64)[:, None]
    w = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    pairs = torch.stack([torch.sin(pos * w), torch.cos(pos * w)], dim=-1)  # (n, frequencies, 2)
    return pairs.flatten(1)[:, :d_model].float()


class LayerNorm(nn.Module):
    """Shift and scale each vector to mean 0 and variance 1, then by a learnt weight and bias. Ba et al. 2016.

    The variance is divided by d_model, not by d_model - 1, as in nn.LayerNorm. No batch, no running average: a token is
    normalised by its own numbers, in training as in evaluation.
    """

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., d_model). Returns the same shape."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)  # spelt out in chapter 9


class AddNorm(nn.Module):
    """The paper's Add & Norm around a sublayer: y = sublayer(add_norm.enter(x)); x = add_norm.leave(x, y).

    post-norm: x = norm(x + y), Vaswani et al. 2017. pre-norm: y comes from norm(x), and x + y is left alone, so that an
    unbroken sum runs from the first layer to the last (Xiong et al. 2020). The sum itself: He et al. 2016.
    """

    def __init__(self, config: LayerConfig):
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = LayerNorm(config.d_model, config.norm_eps)
        self.drop = nn.Dropout(config.dropout)

    def enter(self, x: Tensor) -> Tensor:
        """What the sublayer is given."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """The sublayer's output y, added to what came in."""
        x = x + self.drop(y)
        return x if self.pre else self.norm(x)


class FeedForward(nn.Module):
    """FFN(x) = activation(x W_1 + b_1) W_2 + b_2, at each position by itself. Vaswani et al. 2017, eq. 2."""

    def __init__(self, config: LayerConfig):
        super().__init__()
        self.widen = nn.Linear(config.d_model, config.d_ff)
        self.narrow = nn.Linear(config.d_ff, config.d_model)
        self.drop = nn.Dropout(config.dropout)
        self.activation = ACTIVATIONS[config.activation]
        for layer in (self.widen, self.narrow):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, T, d_model). Returns the same shape."""
        return self.narrow(self.drop(self.activation(self.widen(x))))


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward layer, each in Add & Norm. With a causal mask it is the layer of GPT."""

    def __init__(self, config: LayerConfig):
        super().__init__()
        self.attention = MultiHeadAttention(config.d_model, config.n_heads, config.dropout)
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_feed_forward = AddNorm(config), AddNorm(config)

    def forward(self, x: Tensor, mask: Mask = None, cache: KVCache | None = None) -> tuple[Tensor, Tensor | None]:
        """x: (B, T, d_model). mask: as in MultiHeadAttention. cache: keys and values of the positions before x.

        Returns the new vectors, same shape, and the attention weights (B, n_heads, T, T_k), or None if they are not kept.
        """
        y, weights = self.attention(self.around_attention.enter(x), mask=mask, cache=cache)
        x = self.around_attention.leave(x, y)
        y = self.feed_forward(self.around_feed_forward.enter(x))
        return self.around_feed_forward.leave(x, y), weights


class DecoderCache(NamedTuple):
    """What one decoder layer keeps from word to word."""

    own: KVCache  # of the words written so far, one longer at each step
    source: KVCache  # of the encoder's output, filled at the first step and never changed


class DecoderLayer(nn.Module):
    """One masked self-attention, one attention to the source, one feed-forward layer, each in Add & Norm."""

    def __init__(self, config: LayerConfig):
        super().__init__()
        self.attention = MultiHeadAttention(config.d_model, config.n_heads, config.dropout)
        self.cross_attention = MultiHeadAttention(config.d_model, config.n_heads, config.dropout)
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_cross_attention = AddNorm(config), AddNorm(config)
        self.around_feed_forward = AddNorm(config)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask = None,
        memory_mask: Tensor | None = None,
        cache: DecoderCache | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """x: (B, T, d_model) asks; memory: (B, T_source, d_model), the encoder's output, is looked at.

        Returns the new vectors and two kinds of weights: to x itself (B, n_heads, T, T_k), to memory (…, T, T_source).
        """
        own, source = cache or (None, None)
        y, weights = self.attention(self.around_attention.enter(x), mask=mask, cache=own)
        x = self.around_attention.leave(x, y)
        y, cross_weights = self.cross_attention(self.around_cross_attention.enter(x), memory, memory_mask, source)
        x = self.around_cross_attention.leave(x, y)
        y = self.feed_forward(self.around_feed_forward.enter(x))
        return self.around_feed_forward.leave(x, y), weights, cross_weights


class Encoder(nn.Module):
    """A stack of encoder layers. Pre-norm leaves the sum unnormalised, so a last norm follows."""

    def __init__(self, config: LayerConfig):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        self.norm = LayerNorm(config.d_model, config.norm_eps) if config.norm == "pre" else nn.Identity()

    def forward(
        self, x: Tensor, mask: Mask = None, caches: Sequence[KVCache] | None = None
    ) -> tuple[Tensor, list[Tensor | None]]:
        """x: (B, T, d_model); caches: one per layer. Returns the last vectors and each layer's attention weights."""
        all_weights = []
        for layer, cache in _with_caches(self.layers, caches):
            x, weights = layer(x, mask, cache)
            all_weights.append(weights)
        return self.norm(x), all_weights


class Decoder(nn.Module):
    """A stack of decoder layers; each looks at the same memory, with keys and values of its own."""

    def __init__(self, config: LayerConfig):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_layers))
        self.norm = LayerNorm(config.d_model, config.norm_eps) if config.norm == "pre" else nn.Identity()

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask = None,
        memory_mask: Tensor | None = None,
        caches: Sequence[DecoderCache] | None = None,
    ) -> tuple[Tensor, list[Tensor | None], list[Tensor | None]]:
        """x: (B, T, d_model); memory: (B, T_source, d_model). Returns the last vectors and both kinds of weights per layer."""
        all_weights, all_cross_weights = [], []
        for layer, cache in _with_caches(self.layers, caches):
            x, weights, cross_weights = layer(x, memory, mask, memory_mask, cache)
            all_weights.append(weights)
            all_cross_weights.append(cross_weights)
        return self.norm(x), all_weights, all_cross_weights


def _with_caches(layers: nn.ModuleList, caches: Sequence[Any] | None) -> Iterator[tuple[nn.Module, Any]]:
    """Each layer with its cache, or with None."""
    if caches and len(caches) != len(layers):
        raise ValueError(f"need one cache per layer: {len(layers)} layers, {len(caches)} caches")
    return zip(layers, caches or [None] * len(layers))
