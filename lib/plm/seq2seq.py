"""Encoder and decoder, two LSTMs: one vector between them (2014), or attention over all states of the encoder (2015)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from plm.attention import BahdanauAttention, MultiHeadAttention
from plm.evaluate import modes, restore
from plm.lstm import LSTM
from plm.rnn import check_sizes

ATTENTION = ("none", "additive", "multi-head")
PAD_ID, START_ID, END_ID = 0, 2, 3  # as in plm.translation
State = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Seq2SeqConfig:
    """Sizes of an encoder-decoder."""

    source_size: int  # entries in the vocabulary of the source
    target_size: int
    attention: str = "none"  # "none": one vector for the whole source; "additive" (2015); "multi-head" (2017)
    n_heads: int = 1  # of "multi-head"
    d_emb: int = 64
    d_hidden: int = 128  # of the decoder; each direction of the encoder has half of it
    dropout: float = 0.1  # on word vectors and before the output

    def __post_init__(self) -> None:
        check_sizes(**{n: getattr(self, n) for n in ("source_size", "target_size", "n_heads", "d_emb", "d_hidden")})
        if self.attention not in ATTENTION:
            raise ValueError(f"attention is one of {', '.join(ATTENTION)}, not {self.attention!r}")
        if self.d_hidden % 2:
            raise ValueError(
                f"d_hidden must be even, half of it for each direction of the encoder; got {self.d_hidden}"
            )
        if self.n_heads > 1 and self.attention != "multi-head":
            raise ValueError(f"only multi-head attention has several heads, not {self.attention!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is a probability below 1, not {self.dropout}")


class Memory(NamedTuple):
    """What the encoder hands over: states (B, T_k, d_hidden), mask bool (B, 1, T_k), summary (B, d_hidden), start (h, c).

    h and c are (B, d_hidden): the batch comes first, so that a beam search can pick rows.
    """

    states: Tensor
    mask: Tensor
    summary: Tensor
    start: State


class Decoded(NamedTuple):
    """logits (B, T_q, target_size); weights (B, n_heads, T_q, T_k), None without attention; (h, c) after the last step."""

    logits: Tensor
    weights: Tensor | None
    state: State


class Translated(NamedTuple):
    """ids (B, T_q), each row up to its first </s> and beyond; weights as in `Decoded`."""

    ids: Tensor
    weights: Tensor | None


class Seq2Seq(nn.Module):
    """An LSTM reads the source from both ends, another writes the target; between them one vector, or attention.

    With attention="none" each output is made from the decoder's state and one vector for the whole source, the last states
    of the encoder; with attention, from the decoder's state and an average of all encoder states, weighted anew each time.
    Nothing else differs. Sutskever et al. 2014, Cho et al. 2014; Bahdanau et al. 2015; the order of things (first the
    LSTM, then attention, then a tanh layer) is that of Luong et al. 2015, section 3, without input feeding.
    """

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        self.config = c = config
        self.source_embedding = nn.Embedding(c.source_size, c.d_emb)
        self.target_embedding = nn.Embedding(c.target_size, c.d_emb)
        self.encoder = LSTM(c.d_emb, c.d_hidden // 2, bidirectional=True)
        self.bridge_h, self.bridge_c = nn.Linear(c.d_hidden, c.d_hidden), nn.Linear(c.d_hidden, c.d_hidden)
        self.decoder = LSTM(c.d_emb, c.d_hidden)
        self.attention: nn.Module | None = None
        if c.attention == "additive":
            self.attention = BahdanauAttention(c.d_hidden, c.d_hidden, c.d_hidden // 2)
        elif c.attention == "multi-head":
            self.attention = MultiHeadAttention(c.d_hidden, c.n_heads)
        self.combine = nn.Linear(2 * c.d_hidden, c.d_hidden)
        self.output = nn.Linear(c.d_hidden, c.target_size)
        self.drop = nn.Dropout(c.dropout)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """source (B, T_k), target_in (B, T_q): ids, padded with 0. Returns logits (B, T_q, target_size).

        Teacher forcing: the decoder reads the true translation, one place behind what it should say.
        """
        return self.decode(target_in, self.encode(source)).logits

    def encode(self, source: Tensor) -> Memory:
        """Read the source, ids (B, T_k), padded with 0 at the end; every row has at least one token."""
        _check_ids(source, self.config.source_size, "source")
        mask = source != PAD_ID
        lengths = mask.sum(1)
        if not bool((mask == (torch.arange(source.shape[1], device=source.device) < lengths[:, None])).all()):
            raise ValueError(f"padding (id {PAD_ID}) may stand only at the end of a source")
        if bool((lengths == 0).any()):
            raise ValueError(f"source {int((lengths == 0).nonzero()[0])} holds nothing but padding")
        states, (h, c) = self.encoder(self.drop(self.source_embedding(source)), None, lengths)
        summary = torch.cat([h[0], h[1]], -1)  # the last state of each direction: the whole source has passed it
        start = torch.tanh(self.bridge_h(summary)), self.bridge_c(torch.cat([c[0], c[1]], -1))
        return Memory(states, mask[:, None], summary, start)

    def decode(self, target_in: Tensor, memory: Memory, state: State | None = None) -> Decoded:
        """Read target ids (B, T_q), go on from `state` (or the memory's start), score every next token."""
        _check_ids(target_in, self.config.target_size, "target_in")
        if len(target_in) != len(memory.states):
            raise ValueError(f"each source needs its target: {len(memory.states)} sources, {len(target_in)} targets")
        embedded = self.drop(self.target_embedding(target_in))
        h, c = memory.start if state is None else state
        h, last = self.decoder(embedded, (h[None], c[None]))  # h: (B, T_q, d_hidden)
        weights = None
        if self.attention is None:
            context = memory.summary[:, None].expand_as(h)
        elif isinstance(self.attention, MultiHeadAttention):
            context, weights = self.attention(h, memory.states, memory.mask)
        else:
            context, weights = self.attention(h, memory.states, memory.states, memory.mask)
            weights = weights[:, None]
        combined = torch.tanh(self.combine(torch.cat([context, h], -1)))
        return Decoded(self.output(self.drop(combined)), weights, (last[0][0], last[1][0]))

    def start(self, source: Tensor) -> tuple[Memory, State]:
        """For `plm.decode`: the state before the first token of the target."""
        memory = self.encode(source)
        return memory, memory.start

    def step(self, last: Tensor, state: tuple[Memory, State]) -> tuple[Tensor, tuple[Memory, State]]:
        """For `plm.decode`: last (N,) are the tokens said last. Returns logits (N, target_size) and the state after them."""
        memory, found = state
        decoded = self.decode(last[:, None], memory, found)
        return decoded.logits[:, 0], (memory, decoded.state)

    @torch.no_grad()
    def translate(self, source: Tensor, max_length: int = 70) -> Translated:
        """Greedy: say the likeliest token, feed it back, until </s> or max_length. Dropout is off."""
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1, not {max_length}")
        found = modes(self)
        self.eval()
        try:
            memory, state = self.encode(source), None
            token = torch.full((len(source), 1), START_ID, device=source.device)
            ended = torch.zeros_like(token, dtype=torch.bool)
            steps: list[tuple[Tensor, Tensor | None]] = []
            while len(steps) < max_length and not bool(ended.all()):
                logits, weights, state = self.decode(token, memory, state)
                if logits.isnan().any():
                    raise FloatingPointError("the model's scores are NaN: did its training diverge?")
                token = logits.argmax(-1)
                steps.append((token, weights))
                ended |= token == END_ID
        finally:
            restore(found)
        tokens, maps = zip(*steps)
        return Translated(torch.cat(tokens, 1), None if maps[0] is None else torch.cat(maps, 2))


def _check_ids(ids: Tensor, size: int, name: str) -> None:
    if not isinstance(ids, Tensor):
        raise TypeError(f"{name} must be a tensor of ids (B, T), not {type(ids).__name__}")
    if ids.dtype != torch.int64 or ids.ndim != 2 or ids.numel() == 0:
        raise TypeError(f"{name} must be (B, T) int64 ids, not empty; got {tuple(ids.shape)} {ids.dtype}")
    if not (ids.min() >= 0 and ids.max() < size):
        raise IndexError(f"{name} ids must lie in 0 … {size - 1}; got {ids.min().item()} … {ids.max().item()}")
