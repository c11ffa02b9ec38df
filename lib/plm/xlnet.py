"""XLNet (Yang et al. 2019): a language model that reads a text in any order, so that each word may learn from both sides.

An order is drawn for each row; the words of its last part are guessed one after the other, each from those before it in the
order. Words keep their places: what is shuffled is who may look at whom. Two streams run through the same layers. The content
stream holds what stands at a place, the query stream what is guessed there, and nothing ever looks at a query.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.attention import masked_softmax
from plm.evaluate import modes, restore
from plm.layers import AddNorm, FeedForward, LayerConfig, LayerNorm
from plm.linear_loss import linear_cross_entropy


@dataclass(frozen=True, kw_only=True)
class XLNetConfig(LayerConfig):
    """Sizes of an XLNet. Large, as published: 32,000 pieces, d_model 1024, 16 heads, 24 layers, d_ff 4096, post-norm."""

    vocab_size: int  # V
    d_ff: int = 0  # 0: four times d_model
    norm: str = "post"  # as published; "pre" is for our own models only
    activation: str = "gelu"
    norm_eps: float = 1e-12
    init_std: float = 0.02  # of every matrix, table and vector; the biases of linear layers start at 0
    pad_id: int = 0  # fills up short rows; no other token looks at it
    segments: bool = True  # whether tokens can be told to be of one passage or of two

    def __post_init__(self) -> None:
        if self.d_ff == 0:
            object.__setattr__(self, "d_ff", 4 * self.d_model)
        super().__post_init__()
        if self.vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1, not {self.vocab_size}")
        if self.d_model % 2:
            raise ValueError(f"d_model = {self.d_model} must be even: distances are half sines, half cosines")
        if not 0 <= self.pad_id < self.vocab_size:
            raise ValueError(f"pad_id={self.pad_id} is outside a vocabulary of {self.vocab_size}")
        if not self.init_std > 0:
            raise ValueError(f"init_std is a standard deviation above 0, not {self.init_std}")


class Looks(NamedTuple):
    """Who may look at whom, bool, rows ask, True = may look."""

    content: Tensor  # (B, T, T) what stands before me in the order, and myself
    query: Tensor  # (B, N, T) what stands before me, never myself; one row for each place that is guessed


def permutation_masks(order: Tensor, n_targets: int, joint: bool = True) -> Looks:
    """order: (B, T) int64, each row the places 0 … T - 1 as they are read; the last n_targets of it are guessed.

    The places before them are given: all of these see one another, since none of them is guessed (so the published code). A
    target sees what is given and the targets before it; with joint=False only what is given. Yang et al. 2019, sec. 2.3.
    """
    T = order.shape[1]
    steps = torch.arange(T, device=order.device) - (T - n_targets)  # below 0: given
    steps = steps.clamp(-1, None if joint else 0)
    rank = torch.empty_like(order).scatter_(1, order, steps.expand_as(order))  # (B, T), by place
    content = rank[:, None, :] <= rank[:, :, None]
    query = rank[:, None, :] < rank.gather(1, order[:, T - n_targets :])[:, :, None]
    return Looks(content, query)


def distance_vectors(T: int, d_model: int) -> Tensor:
    """A vector for each distance T, T - 1, …, 1 - T: (2T, d_model) float64, all sines, then all cosines. Dai et al. 2019."""
    w = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.arange(T, -T, -1, dtype=torch.float64)[:, None] * w
    return torch.cat([angles.sin(), angles.cos()], 1)


class Places(NamedTuple):
    """Where the asking tokens stand, and what they may look at."""

    looks: Tensor | None  # bool (B or 1, T_q, T); None: everything
    row: Tensor  # int64 (B or 1, T_q, T): which row of `distance_vectors` belongs to each pair
    apart: Tensor | None  # bool (B, T_q, T): the two are of different passages


class RelativeAttention(nn.Module):
    """Multi-head attention that knows how far away things are, not where they stand. Dai et al. 2019, sec. 3.3.

    score(i, j) = ((q_i + u) k_j + (q_i + v) W_r r_(i - j) + (q_i + s) p) / sqrt(d_head); p is one vector for two tokens of one
    passage and another for two of different passages. The vectors u, v, s say what every query asks for, whatever its word is.
    """

    def __init__(self, config: XLNetConfig):
        super().__init__()
        d, self.n_heads = config.d_model, config.n_heads
        self.w_q, self.w_k, self.w_v, self.w_r, self.w_o = (nn.Linear(d, d, bias=False) for _ in range(5))
        self.ask_content, self.ask_distance = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))  # u and v
        if config.segments:
            self.ask_segment, self.segments = nn.Parameter(torch.empty(d)), nn.Embedding(2, d)  # s; same, different
        self.drop = nn.Dropout(config.dropout)

    def keys(self, memory: Tensor, distances: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values of memory (B, T, d_model), and keys of the distances (2T, d_model); all (…, n_heads, …, d_head)."""
        return self.split(self.w_k(memory)), self.split(self.w_v(memory)), self.split(self.w_r(distances))

    def forward(self, x: Tensor, keys: tuple[Tensor, Tensor, Tensor], places: Places) -> Tensor:
        """x: (B, T_q, d_model) asks. Returns the same shape; a token that may look nowhere gets zeros."""
        q, (k, v, r) = self.w_q(x), keys
        scores = self.compare(q + self.ask_content, k)
        by_distance = self.compare(q + self.ask_distance, r)  # (B, n_heads, T_q, 2T)
        scores = scores + by_distance.gather(-1, places.row[:, None].expand_as(scores))
        if places.apart is not None:
            same, other = self.compare(q + self.ask_segment, self.split(self.segments.weight)).split(1, -1)
            scores = scores + torch.where(places.apart[:, None], other, same)
        looks = None if places.looks is None else places.looks[:, None]
        weights = self.drop(masked_softmax(scores, looks))
        return self.w_o((weights @ v).transpose(1, 2).flatten(2))

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        """q: (B, T_q, d_model); k: (…, n_heads, T_k, d_head). Scaled dot products (B, n_heads, T_q, T_k)."""
        return self.split(q / (q.shape[-1] // self.n_heads) ** 0.5) @ k.transpose(-2, -1)

    def split(self, x: Tensor) -> Tensor:
        """(…, T, d_model) -> (…, n_heads, T, d_head)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(-3, -2)


class TwoStreamLayer(nn.Module):
    """One set of weights, run twice: for the content h, and for the queries g, which look at the content too."""

    def __init__(self, config: XLNetConfig):
        super().__init__()
        self.attention = RelativeAttention(config)
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_feed_forward = AddNorm(config), AddNorm(config)

    def forward(
        self, h: Tensor, g: Tensor | None, distances: Tensor, places: tuple[Places, Places | None]
    ) -> tuple[Tensor, Tensor | None]:
        """h: (B, T, d_model); g: (B, N, d_model) or None. Returns both as they leave the layer. Yang et al. 2019, eq. (h, g)."""
        keys = self.attention.keys(self.around_attention.enter(h), distances)
        content, query = places
        new = None if g is None or query is None else self.stream(g, keys, query)
        return self.stream(h, keys, content), new

    def stream(self, x: Tensor, keys: tuple[Tensor, Tensor, Tensor], places: Places) -> Tensor:
        """One stream through attention and feed-forward layer."""
        x = self.around_attention.leave(x, self.attention(self.around_attention.enter(x), keys, places))
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))


class Streams(NamedTuple):
    """What XLNet returns, after the embedding and after each layer."""

    content: list[Tensor]  # n_layers + 1 tensors (B, T, d_model)
    query: list[Tensor]  # as many (B, N, d_model), in the order of guessing; empty without an order


class XLNet(nn.Module):
    """The table, the layers, and a score for every piece of the vocabulary."""

    def __init__(self, config: XLNetConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.start = nn.Parameter(torch.empty(config.d_model))  # every query is this vector before the first layer
        self.layers = nn.ModuleList(TwoStreamLayer(config) for _ in range(config.n_layers))
        self.norm = LayerNorm(config.d_model, config.norm_eps) if config.norm == "pre" else nn.Identity()
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.drop = nn.Dropout(config.dropout)
        for name, p in self.named_parameters():
            if "norm" not in name and not name.endswith("bias"):  # norms start at 1, biases at 0
                nn.init.normal_(p, std=config.init_std)

    def forward(
        self,
        ids: Tensor,
        *,
        order: Tensor | None = None,
        n_targets: int | None = None,
        joint: bool = True,
        segments: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Streams:
        """ids: (B, T) int64. order, n_targets, joint: as in `permutation_masks`; n_targets left out: all T are guessed.

        Without an order every token sees all others, as a task wants it, and there is no query stream. segments: (B, T) int64,
        the passage of each token. mask: bool (B, T), True at real tokens; left out, all but pad_id are real.
        """
        T = ids.shape[-1] if isinstance(ids, Tensor) and ids.ndim else 0
        n = 0 if order is None else T if n_targets is None else n_targets
        self._check(ids, order, n, segments)
        real = ids != self.config.pad_id if mask is None else mask
        if real.dtype != torch.bool or real.shape != ids.shape:
            raise TypeError(f"mask is bool {tuple(ids.shape)}, as ids; got {tuple(real.shape)} {real.dtype}")
        at = torch.arange(T, device=ids.device)
        row = (T - at[:, None] + at)[None]  # row T - (i - j) of the vectors of the distances T … 1 - T
        apart = None if segments is None else segments[:, :, None] != segments[:, None, :]
        looks = None if bool(real.all()) else real[:, None, :] | torch.eye(T, dtype=torch.bool, device=ids.device)
        query = g = None
        if order is not None:
            masks, targets = permutation_masks(order, n, joint), order[:, T - n :]
            looks = masks.content if looks is None else masks.content & looks
            far = None if apart is None else apart.gather(1, targets[:, :, None].expand(-1, -1, T))
            query = Places(masks.query & real[:, None, :], row[0, targets], far)
            g = self.drop(self.start.expand(len(ids), n, -1))
        h = self.drop(self.embedding(ids))
        distances = self.drop(distance_vectors(T, self.config.d_model).to(h))
        streams = Streams([h], [] if g is None else [g])
        for layer in self.layers:
            h, g = layer(h, g, distances, (Places(looks, row, apart), query))
            for stream, x in zip(streams, (h, g)):
                if x is not None:
                    stream.append(x)
        for stream in filter(None, streams):
            stream[-1] = self.norm(stream[-1])  # does nothing in post-norm
        return streams

    def score(self, g: Tensor) -> Tensor:
        """Logits (…, V) from the states (…, d_model): a dot product with each piece's vector, and a bias."""
        return F.linear(self.drop(g), self.embedding.weight, self.bias)

    def loss(self, batch: dict[str, Tensor], joint: bool = True) -> tuple[Tensor, int]:
        """Summed cross entropy of the guesses, and their number.

        batch: "ids" and "order" (B, T), "targets" (B, N): what stands at the last N places of the order, -100 = not counted.
        """
        targets = batch["targets"]
        g = self(batch["ids"], order=batch["order"], n_targets=targets.shape[1], joint=joint).query[-1]
        total = linear_cross_entropy(self.drop(g).flatten(0, 1), self.embedding.weight, targets.flatten(), self.bias)
        return total, int((targets != -100).sum())

    @torch.no_grad()
    def guess(self, ids: Tensor, order: Tensor, n_targets: int | None = None, joint: bool = True) -> Tensor:
        """Natural log probabilities of every piece at the last n_targets places of the order: (B, N, V). Evaluation mode."""
        found = modes(self)
        self.eval()
        try:
            streams = self(ids, order=order, n_targets=n_targets, joint=joint)
            return self.score(streams.query[-1]).log_softmax(-1)
        finally:
            restore(found)

    def log_probs(self, ids: Tensor, order: Tensor, n_targets: int | None = None, joint: bool = True) -> Tensor:
        """Of the pieces that do stand there, (B, N). Their sum is the log probability of all of them together."""
        guesses = self.guess(ids, order, n_targets, joint)
        there = ids.gather(1, order[:, ids.shape[1] - guesses.shape[1] :])
        return guesses.gather(2, there[:, :, None])[:, :, 0]

    def _check(self, ids: Tensor, order: Tensor | None, n: int, segments: Tensor | None) -> None:
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 2 or 0 in ids.shape:
            kind = f"{tuple(ids.shape)} {ids.dtype}" if isinstance(ids, Tensor) else type(ids).__name__
            raise TypeError(f"ids must be int64 (B, T), B and T at least 1; got {kind}")
        V, T = self.config.vocab_size, ids.shape[1]
        if not (ids.min() >= 0 and ids.max() < V):
            raise IndexError(f"ids must lie in 0 … {V - 1}; got {ids.min().item()} … {ids.max().item()}")
        if order is not None:
            whole = order.shape == ids.shape and order.dtype == torch.int64
            if not whole or not bool((order.sort(1).values == torch.arange(T, device=ids.device)).all()):
                raise ValueError(
                    f"each row of order must hold the places 0 … {T - 1} once each, int64, as ids has them"
                )
            if not 1 <= n <= T:
                raise ValueError(f"n_targets, the places that are guessed, must lie in 1 … {T}; got {n}")
        if segments is not None and not self.config.segments:
            raise ValueError("this model was built with segments=False: it cannot tell passages apart")
        if segments is not None and (segments.shape != ids.shape or segments.dtype != torch.int64):
            raise TypeError(
                f"segments are int64 {tuple(ids.shape)}, as ids; got {tuple(segments.shape)} {segments.dtype}"
            )
