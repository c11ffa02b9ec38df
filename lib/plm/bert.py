"""BERT (Devlin et al. 2019): an encoder that reads both sides, pretrained to fill gaps and to tell true neighbours.

The stack is `plm.layers.Encoder` without a causal mask. What is fed in, and which places are hidden, is `plm.masking`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.attention import MultiHeadAttention, causal_mask, keep_weights
from plm.evaluate import modes, restore
from plm.layers import Encoder, LayerConfig, LayerNorm
from plm.linear_loss import linear_cross_entropy

IGNORED = -100
NSP_NAMES = ("IsNext", "NotNext")  # the index is the label, here and in the released weights: 0 is IsNext
IS_NEXT, NOT_NEXT = range(len(NSP_NAMES))


@dataclass(frozen=True, kw_only=True)
class BertConfig(LayerConfig):
    """Sizes of a BERT. Base: d_model 768, 12 heads, 12 layers, 512 positions; large: 1024, 16 heads, 24 layers."""

    vocab_size: int  # V
    n_positions: int = 512  # the longest input: positions are learnt, there is none beyond
    n_segments: int = 2  # passage A and passage B
    d_ff: int = 0  # 0: four times d_model
    norm: str = "post"  # as published; "pre" is for our own models only
    activation: str = "gelu"  # the exact one: the tanh form is off by up to 5e-4, which shows after twelve layers
    norm_eps: float = 1e-12
    init_std: float = 0.02  # of every matrix and table; biases start at 0
    pad_id: int = 0  # fills up short rows on the right; nothing may look at it
    causal: bool = False  # True: each token sees its left side only, which makes it no BERT (an ablation)

    def __post_init__(self) -> None:
        if self.d_ff == 0:
            object.__setattr__(self, "d_ff", 4 * self.d_model)
        super().__post_init__()
        for name in ("vocab_size", "n_positions", "n_segments"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.pad_id < self.vocab_size:
            raise ValueError(f"pad_id={self.pad_id} is outside a vocabulary of {self.vocab_size}")
        if not self.init_std > 0:
            raise ValueError(f"init_std is a standard deviation above 0, not {self.init_std}")


class BertEmbedding(nn.Module):
    """The sum of three vectors per token, of its piece, its place and its passage; then layer norm and dropout."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.n_positions, config.d_model)
        self.segments = nn.Embedding(config.n_segments, config.d_model)
        self.norm = LayerNorm(config.d_model, config.norm_eps)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, segments: Tensor | None = None) -> Tensor:
        """ids, segments: (B, T) int64; without segments all is passage 0. Returns (B, T, d_model)."""
        _check(ids, self.words.num_embeddings, "ids")
        if ids.shape[1] > self.positions.num_embeddings:
            raise ValueError(
                f"{ids.shape[1]} tokens do not fit into {self.positions.num_embeddings} positions: cut the input"
            )
        if segments is None:
            passage = self.segments.weight[0]
        else:
            _check(segments, self.segments.num_embeddings, "segments")
            if segments.shape != ids.shape:
                raise ValueError(
                    f"each token needs its segment: ids {tuple(ids.shape)}, segments {tuple(segments.shape)}"
                )
            passage = self.segments(segments)
        return self.drop(self.norm(self.words(ids) + self.positions.weight[: ids.shape[1]] + passage))


class Encoded(NamedTuple):
    """What Bert returns."""

    states: Tensor  # (B, T, d_model): a vector for each token in its sentence
    pooled: Tensor  # (B, d_model): tanh of a linear layer on the first token, [CLS]


class Bert(nn.Module):
    """Embedding, encoder, pooler."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = config
        self.embedding = BertEmbedding(config)
        self.encoder = Encoder(config)
        self.pooler = nn.Linear(config.d_model, config.d_model)
        self.apply(lambda module: _initialise(module, config.init_std))
        for module in self.encoder.modules():
            if isinstance(module, MultiHeadAttention):
                module.keep_weights = False  # `attention` asks for them

    def forward(self, ids: Tensor, *, segments: Tensor | None = None, mask: Tensor | None = None) -> Encoded:
        """ids: (B, T) int64. segments: (B, T) int64, 0 for passage A, 1 for B. mask: (B, T) bool, True at real tokens.

        Without a mask, tokens other than pad_id are real. Segments and mask are named in the call, because swapping them
        would raise no error. The states at padding are nobody's business.
        """
        x = self.all_states(ids, segments=segments, mask=mask)[-1]
        return Encoded(x, torch.tanh(self.pooler(x[:, 0])))

    def all_states(self, ids: Tensor, *, segments: Tensor | None = None, mask: Tensor | None = None) -> list[Tensor]:
        """What comes out of the embedding and of each layer: n_layers + 1 tensors (B, T, d_model)."""
        return self._read(ids, segments, mask)[0]

    @torch.no_grad()
    def attention(
        self, ids: Tensor, *, segments: Tensor | None = None, mask: Tensor | None = None
    ) -> list[Tensor | None]:
        """Each layer's attention weights, (B, n_heads, T, T), in evaluation mode, from the code that also trains."""
        found = modes(self)
        self.eval()
        try:
            with keep_weights(self):
                return self._read(ids, segments, mask)[1]
        finally:
            restore(found)

    def _read(
        self, ids: Tensor, segments: Tensor | None, mask: Tensor | None
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        x, looks = self.embedding(ids, segments), self.looks(ids, mask)
        states, all_weights = [x], []
        for layer in self.encoder.layers:
            x, weights = layer(x, looks)
            states.append(x)
            all_weights.append(weights)
        states[-1] = self.encoder.norm(x)  # does nothing in post-norm
        return states, all_weights

    def looks(self, ids: Tensor, mask: Tensor | None) -> Tensor | None:
        """What each token may look at, bool (B, 1 or T, T); None if everything."""
        if mask is None:
            mask = ids != self.config.pad_id
        elif mask.dtype != torch.bool or mask.shape != ids.shape:
            raise TypeError(
                f"mask is bool and of the shape of ids, {tuple(ids.shape)}; got {tuple(mask.shape)} {mask.dtype}"
            )
        looks = None if bool(mask.all()) else mask[:, None, :]
        if self.config.causal:
            causal = causal_mask(ids.shape[1], device=ids.device)
            looks = causal[None] if looks is None else looks & causal
        return looks


class MaskedLMHead(nn.Module):
    """A score for each piece of the vocabulary from a state: linear layer, GELU, layer norm, and the word table turned around.

    The table is the embedding's own and is handed in at each call, so it exists once; the head owns one bias per piece.
    """

    def __init__(self, config: BertConfig):
        super().__init__()
        self.transform = nn.Linear(config.d_model, config.d_model)
        self.norm = LayerNorm(config.d_model, config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        _initialise(self.transform, config.init_std)

    def forward(self, h: Tensor, table: Tensor) -> Tensor:
        """h: (..., d_model); table: (V, d_model). Returns logits (..., V)."""
        return F.linear(self.guess(h), table, self.bias)

    def guess(self, h: Tensor) -> Tensor:
        """The vector that is compared with the table's, (..., d_model)."""
        return self.norm(F.gelu(self.transform(h)))


class Guesses(NamedTuple):
    """What BertForPretraining returns."""

    mlm: Tensor  # logits (B, T, V), or (N, V) for the N places asked for
    nsp: Tensor  # logits (B, 2), in the order of NSP_NAMES


class BertForPretraining(nn.Module):
    """BERT with its two pretraining heads: what stands in a gap, and does passage B follow passage A?"""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = config
        self.bert = Bert(config)
        self.mlm = MaskedLMHead(config)
        self.nsp = nn.Linear(config.d_model, len(NSP_NAMES))
        _initialise(self.nsp, config.init_std)

    def forward(
        self,
        ids: Tensor,
        *,
        segments: Tensor | None = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Guesses:
        """As Bert. positions: (N,) int64, places in ids.flatten(): only these go through the decoder, the widest layer."""
        states, pooled = self.bert(ids, segments=segments, mask=mask)
        h = states if positions is None else states.flatten(0, 1)[positions]
        return Guesses(self.mlm(h, self.bert.embedding.words.weight), self.nsp(pooled))

    def loss(self, batch: dict[str, Tensor]) -> dict[str, tuple[Tensor, int]]:
        """Sum and count of each loss; BERT minimises the sum of the two means.

        batch: "ids" and "segments" (B, T), "positions" and "targets" (N,) (see `plm.masking`), "is_next" (B,), 0 = IsNext,
        -100 = not to be counted. Each loss ignores its own -100 and nothing else. A batch without a gap, or without a pair,
        has sum 0 and count 0, and passes back gradients of 0.
        """
        states, pooled = self.bert(batch["ids"], segments=batch["segments"])
        h = self.mlm.guess(states.flatten(0, 1)[batch["positions"]])
        gaps, is_next = batch["targets"], batch["is_next"]
        totals = {
            "mlm": linear_cross_entropy(h, self.bert.embedding.words.weight, gaps, self.mlm.bias),
            "nsp": F.cross_entropy(self.nsp(pooled).float(), is_next, ignore_index=IGNORED, reduction="sum"),
        }
        targets = {"mlm": gaps, "nsp": is_next}
        return {name: (total, int((targets[name] != IGNORED).sum())) for name, total in totals.items()}

    @torch.no_grad()
    def start_from_vectors(self, vectors: Tensor, std: float | None = None) -> "BertForPretraining":
        """Start the word table from pretrained word vectors (V, d_model), centred and scaled to one standard deviation."""
        table = self.bert.embedding.words.weight
        if vectors.shape != table.shape or not bool(torch.isfinite(vectors).all()):
            raise ValueError(f"need finite vectors of shape {tuple(table.shape)}; got {tuple(vectors.shape)}")
        centred = vectors - vectors.mean(0)
        table.copy_(centred * ((std or self.config.init_std) / centred.std()))
        return self

    @torch.no_grad()
    def start_from_counts(self, counts: Tensor) -> "BertForPretraining":
        """Start the decoder's bias at the log frequency of each piece (add-one): counts (V,)."""
        if counts.shape != self.mlm.bias.shape or bool((counts < 0).any()):
            raise ValueError(f"need {len(self.mlm.bias)} counts, none below 0; got {tuple(counts.shape)}")
        self.mlm.bias.copy_(((counts + 1.0) / (counts + 1.0).sum()).log())
        return self

    @torch.no_grad()
    def fill(self, ids: Tensor, mask_id: int, segments: Tensor | None = None) -> Tensor:
        """Probabilities of every piece at every place of `mask_id`: (N, V), places in reading order. Evaluation mode."""
        positions = (ids.flatten() == mask_id).nonzero()[:, 0]
        if not len(positions):
            raise ValueError(f"there is no gap in the input: no token has the id {mask_id} of [MASK]")
        found = modes(self)
        self.eval()
        try:
            return self(ids, segments=segments, positions=positions).mlm.float().softmax(-1)
        finally:
            restore(found)

    @torch.no_grad()
    def next_sentence(self, ids: Tensor, segments: Tensor) -> list[str]:
        """ "IsNext" or "NotNext" for each row. Evaluation mode."""
        found = modes(self)
        self.eval()
        try:
            return [
                NSP_NAMES[i] for i in self(ids, segments=segments, positions=ids.new_zeros(1)).nsp.argmax(1).tolist()
            ]
        finally:
            restore(found)


def pad(rows: Sequence[Sequence[int]], pad_id: int = 0) -> Tensor:
    """Lists of ids as one (B, T) int64 tensor, short rows filled up with pad_id on the right."""
    if not len(rows) or min(map(len, rows)) == 0:
        raise ValueError("need at least one row, and none of them empty: even an empty text has [CLS] and [SEP]")
    ids = torch.full((len(rows), max(map(len, rows))), pad_id)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return ids


def _initialise(module: nn.Module, std: float) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def _check(ids: Tensor, n: int, name: str) -> None:
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 2 or ids.shape[1] == 0:
        kind = f"{tuple(ids.shape)} {ids.dtype}" if isinstance(ids, Tensor) else type(ids).__name__
        raise TypeError(f"{name} must be int64 (B, T), T at least 1; got {kind}")
    if ids.numel() and not (ids.min() >= 0 and ids.max() < n):
        raise IndexError(f"{name} must lie in 0 … {n - 1}; got {ids.min().item()} … {ids.max().item()}")
