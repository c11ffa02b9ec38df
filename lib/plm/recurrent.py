"""A language model around any recurrent layer: RNN, LSTM or GRU. The whole past of the sentence, not a window of it."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from plm.evaluate import modes, restore
from plm.ngram import END_ID, START_ID
from plm.recurrent_text import IGNORED, Sentences, bigrams, pad_sentences, text_stream
from plm.recurrent_text import SentenceBatches as SentenceBatches  # for training, also found here
from plm.recurrent_text import TextLanes as TextLanes

LAYERS = {"rnn": ("plm.rnn", "RNN"), "gru": ("plm.lstm", "GRU"), "lstm": ("plm.lstm", "LSTM")}
State = Any  # a tensor (layers, B, d_hidden), or the LSTM's pair of such tensors


@dataclass(frozen=True)
class RecurrentLMConfig:
    """Sizes of a recurrent language model."""

    vocab_size: int  # V
    kind: str = "rnn"  # which layer: rnn, gru or lstm
    d_emb: int = 200  # length of a word vector
    d_hidden: int = 200  # numbers in the state: all that the model can know of the past
    n_layers: int = 1
    dropout: float = 0.0  # on the word vectors, between layers, and before the output
    tied: bool = True  # one table for input and output words (Press and Wolf 2017); halves the parameters
    start_id: int = START_ID  # <s>: fed before the first word of a sentence, never predicted
    end_id: int = END_ID  # </s>: predicted after the last word, never fed (the next input is <s>)

    def __post_init__(self) -> None:
        if self.kind not in LAYERS:
            raise ValueError(f"kind is one of {', '.join(LAYERS)}, not {self.kind!r}")
        for name in ("vocab_size", "d_emb", "d_hidden", "n_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is a probability below 1, not {self.dropout}")
        for name in ("start_id", "end_id"):
            if not 0 <= getattr(self, name) < self.vocab_size:
                raise ValueError(f"{name}={getattr(self, name)} is outside a vocabulary of {self.vocab_size}")


def recurrent_layer(kind: str, d_in: int, d_hidden: int, n_layers: int = 1, dropout: float = 0.0) -> nn.Module:
    """A layer with `forward(x (B, T, D), state=None, lengths=None) -> (outputs (B, T, H), state)`."""
    if kind not in LAYERS:
        raise ValueError(f"kind is one of {', '.join(LAYERS)}, not {kind!r}")
    module, name = LAYERS[kind]  # imported when asked for: chapter 5 does not need the LSTM of chapter 6
    layer: nn.Module = getattr(importlib.import_module(module), name)(
        d_in, d_hidden, n_layers=n_layers, dropout=dropout
    )
    return layer


class RecurrentLM(nn.Module):
    """Next-word model: word vectors -> recurrent layer -> a score for every word, at every step of the text.

    With `tied` the output's table is the input's, behind a projection to its width if d_hidden is another one.
    Elman 1990; Mikolov et al. 2010; Press and Wolf 2017.
    """

    def __init__(self, config: RecurrentLMConfig, layer: nn.Module | None = None):
        super().__init__()
        self.config = c = config
        self.embedding = nn.Embedding(c.vocab_size, c.d_emb)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.drop = nn.Dropout(c.dropout)
        self.layer = layer or recurrent_layer(c.kind, c.d_emb, c.d_hidden, c.n_layers, c.dropout)
        width = c.d_emb if c.tied else c.d_hidden
        self.project = nn.Linear(c.d_hidden, width, bias=False) if width != c.d_hidden else nn.Identity()
        self.output = nn.Linear(width, c.vocab_size)
        nn.init.zeros_(self.output.bias)
        if c.tied:
            self.output.weight = self.embedding.weight
        else:
            nn.init.zeros_(self.output.weight)  # untrained, the model is its bias

    def hidden(self, ids: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """ids: (B, T) int64. Returns what the output table is multiplied with, (B, T, width), and the state after the last id."""
        self._check(ids)
        outputs, state = self.layer(self.drop(self.embedding(ids)), state, lengths)
        return self.drop(self.project(outputs)), state

    def forward(self, ids: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """ids: (B, T) int64. Returns logits (B, T, V) for the word after each id, and the state after the last."""
        h, state = self.hidden(ids, state, lengths)
        return self.output(h), state

    def _check(self, ids: Tensor) -> None:
        last = self.config.vocab_size - 1
        if ids.dtype != torch.int64 or ids.ndim != 2:
            raise TypeError(f"ids must be (B, T) int64; got {tuple(ids.shape)} {ids.dtype}")
        if ids.numel() and not (ids.min() >= 0 and ids.max() <= last):
            raise IndexError(f"ids must lie in 0 … {last}; got {ids.min().item()} … {ids.max().item()}")

    @torch.no_grad()
    def start_from_counts(self, targets: Tensor) -> "RecurrentLM":
        """Set the output bias to the log frequency of each word among `targets` (add-one), the best guess without context."""
        counts = torch.bincount(targets.flatten(), minlength=self.config.vocab_size) + 1.0
        self.output.bias.copy_((counts / counts.sum()).log())
        return self

    @torch.no_grad()
    def token_log_probs(
        self, sentences: Sentences, carry: bool = False, batch_size: int = 64, chunk: int = 256
    ) -> NDArray[np.float64]:
        """Natural log probability of every word and every </s>, in text order, float64 (N,). Dropout is off.

        carry=False: each sentence starts from a state of zeros, so that it is judged by itself, as by an n-gram model.
        carry=True: the sentences are one text, and the state at the end of one is the start of the next.
        """
        found = modes(self)
        self.eval()
        try:
            return self._carried(sentences, chunk) if carry else self._one_by_one(sentences, batch_size)
        finally:
            restore(found)

    def _one_by_one(self, sentences: Sentences, batch_size: int) -> NDArray[np.float64]:
        bigrams(sentences, self.config.start_id, self.config.end_id)  # what is wrong is named before any work
        order = sorted(
            range(len(sentences)), key=lambda i: len(sentences[i])
        )  # little padding; put back in order below
        found: list[Tensor] = [torch.empty(0)] * len(order)
        for i in range(0, len(order), batch_size):
            rows = order[i : i + batch_size]
            inputs, targets, lengths = self._to_device(
                *pad_sentences([sentences[j] for j in rows], self.config.start_id, self.config.end_id)
            )
            log_probs = _log_probs(self(inputs, None, lengths)[0], targets)
            for j, row, n in zip(rows, log_probs.cpu().double(), lengths.tolist()):
                found[j] = row[:n]
        return torch.cat(found).numpy()

    def _carried(self, sentences: Sentences, chunk: int) -> NDArray[np.float64]:
        inputs, targets = self._to_device(*text_stream(sentences, self.config.start_id, self.config.end_id))
        state, found = None, []
        for x, y in zip(inputs.split(chunk), targets.split(chunk)):
            logits, state = self(x[None], state)
            found.append(_log_probs(logits, y[None])[0].cpu().double())
        return torch.cat(found).numpy()

    def _to_device(self, *tensors: Tensor) -> list[Tensor]:
        return [tensor.to(self.embedding.weight.device) for tensor in tensors]

    @torch.no_grad()
    def distribution(self, context: Sequence[int] = ()) -> NDArray[np.float64]:
        """P(next word | the sentence so far, all of it), float64 (V,). `context` is given without <s>."""
        found = modes(self)
        self.eval()
        try:
            ids = torch.tensor([[self.config.start_id, *(int(i) for i in context)]])
            h, _ = self.hidden(*self._to_device(ids))
            return self.output(h[0, -1]).cpu().double().softmax(-1).numpy()
        finally:
            restore(found)


def _log_probs(logits: Tensor, targets: Tensor) -> Tensor:
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # half precision would round each of them
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORED)
    return -loss.view(targets.shape)


@torch.no_grad()
def generate(
    model: RecurrentLM, n: int, prompt: Sequence[int] = (), temperature: float = 1.0, seed: int | None = None
) -> list[int]:
    """Draw up to `n` ids after `prompt`, one at a time, each fed back as the next input; </s> ends the text (not returned).

    temperature: logits are divided by it; below 1 the likely words become likelier, and 0 always takes the likeliest.
    <s> is never drawn. Without a seed the draws come from torch's global generator. Returns the new ids.
    """
    if n < 0 or temperature < 0:
        raise ValueError(f"n and temperature must be at least 0; got {n} and {temperature}")
    config, found, device = model.config, modes(model), model.embedding.weight.device
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    model.eval()
    try:
        ids, state, new = torch.tensor([[config.start_id, *prompt]]), None, []
        for _ in range(n):
            h, state = model.hidden(ids.to(device), state)
            logits = model.output(h[0, -1]).cpu()
            logits[config.start_id] = -torch.inf
            if temperature < 1e-6:  # dividing by almost nothing would overflow
                word = int(logits.argmax())
            else:
                word = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))
            if word == config.end_id:
                break
            new.append(word)
            ids = torch.tensor([[word]])
        return new
    finally:
        restore(found)


def detach(state: State) -> State:
    """The numbers of a state without the graph behind them: where truncated back-propagation stops."""
    return tuple(map(detach, state)) if isinstance(state, tuple) else None if state is None else state.detach()
