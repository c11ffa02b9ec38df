"""The neural probabilistic language model of Bengio et al. (2003): predict the next word from the vectors of the last few."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from plm.evaluate import modes, restore
from plm.ngram import END_ID, START_ID, windows


@dataclass(frozen=True)
class NNLMConfig:
    """Sizes of an NNLM. The defaults are those of the book's small live runs."""

    vocab_size: int  # V: rows of Q and of U; nearly all parameters and all the work grow with it
    context: int = 4  # words the model sees, n - 1 in the language of n-grams; one more adds d_emb columns to H
    d_emb: int = 64  # length of a word vector; 30 to 100 in the paper
    d_hidden: int = 128  # tanh units; each one costs V output weights
    direct: bool = (
        False  # W, from the word vectors straight to the output: learns faster, for V * context * d_emb weights
    )
    dropout: float = 0.0  # younger than the paper; without it this model learns a million words by heart
    start_id: int = START_ID  # <s>, the padding on the left, shown but never predicted
    end_id: int = END_ID  # </s>, predicted after the last word of a sentence

    def __post_init__(self) -> None:
        for name in ("vocab_size", "context", "d_emb", "d_hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is a probability below 1, not {self.dropout}")
        for name in ("start_id", "end_id"):
            if not 0 <= getattr(self, name) < self.vocab_size:
                raise ValueError(f"{name}={getattr(self, name)} is outside a vocabulary of {self.vocab_size}")


class NNLM(nn.Module):
    """Next-word model: logits = b + U tanh(d + H x) [+ W x], where x strings together the rows of Q of the last words.

    Parameters carry the letters of the paper (which calls Q "C"): Q (V, d_emb), H (d_hidden, context * d_emb),
    d (d_hidden,), U (V, d_hidden), b (V,), W (V, context * d_emb) or None.
    Bengio et al. 2003, eq. 1.
    """

    def __init__(self, config: NNLMConfig):
        super().__init__()
        self.config = config
        d_x = config.context * config.d_emb
        self.Q = nn.Parameter(torch.randn(config.vocab_size, config.d_emb) * 0.1)
        self.H = nn.Parameter(torch.empty(config.d_hidden, d_x).uniform_(-1, 1) / d_x**0.5)
        self.d = nn.Parameter(torch.zeros(config.d_hidden))
        # Zero output weights: before any training the model is its bias b, a unigram model once `start_from_counts` ran.
        self.U = nn.Parameter(torch.zeros(config.vocab_size, config.d_hidden))
        self.b = nn.Parameter(torch.zeros(config.vocab_size))
        self.W = nn.Parameter(torch.zeros(config.vocab_size, d_x)) if config.direct else None
        self.drop = nn.Dropout(config.dropout)

    def forward(self, contexts: Tensor) -> Tensor:
        """contexts: (B, context) int64, oldest word first. Returns logits (B, V): no softmax, cross entropy has its own."""
        x, h = self.hidden(contexts)
        logits = F.linear(h, self.U, self.b)
        return logits if self.W is None else logits + F.linear(x, self.W)

    def hidden(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """The word vectors in a row, x (B, context * d_emb), and the tanh units, h (B, d_hidden)."""
        self._check(contexts)
        x = self.drop(F.embedding(contexts, self.Q).flatten(1))
        return x, self.drop(torch.tanh(F.linear(x, self.H, self.d)))

    def _check(self, contexts: Tensor) -> None:
        n = self.config.context
        if contexts.ndim != 2 or contexts.shape[1] != n:
            raise ValueError(f"contexts must be (B, {n}), one row of ids per prediction; got {tuple(contexts.shape)}")
        self._check_ids(contexts)

    def _check_ids(self, ids: Tensor) -> None:
        last = self.config.vocab_size - 1
        if ids.dtype != torch.int64:
            raise TypeError(f"word ids must be int64, not {ids.dtype}")
        if ids.numel() and not (ids.min() >= 0 and ids.max() <= last):
            raise IndexError(f"word ids must lie in 0 … {last}; got {ids.min().item()} … {ids.max().item()}")

    @torch.no_grad()
    def start_from_counts(self, targets: Tensor) -> "NNLM":
        """Set the output bias to the log frequency of each word among `targets` (add-one), the best guess without context."""
        self._check_ids(targets)
        counts = torch.bincount(targets, minlength=self.config.vocab_size) + 1.0
        self.b.copy_((counts / counts.sum()).log())
        return self

    @torch.no_grad()
    def token_log_probs(self, sentences: Sequence[Sequence[int]], batch_size: int = 1024) -> NDArray[np.float64]:
        """Natural log probability of every word and every </s>, in text order, float64 (N,). Dropout is off."""
        contexts, targets = context_windows(sentences, self.config.context, self.config.start_id, self.config.end_id)
        parts = [
            -F.cross_entropy(self._without_dropout(x), y.to(self.Q.device), reduction="none").cpu().double()
            for x, y in zip(contexts.split(batch_size), targets.split(batch_size), strict=True)
        ]
        return torch.cat(parts).numpy()

    @torch.no_grad()
    def distribution(self, context: Sequence[int] = ()) -> NDArray[np.float64]:
        """P(next word | the words so far), float64 (V,). Only the last `context` ids count; `<s>` fills up on the left."""
        n = self.config.context
        ids = ([self.config.start_id] * n + [int(i) for i in context])[-n:]
        logits = self._without_dropout(torch.tensor([ids]))[0]
        return logits.cpu().double().softmax(-1).numpy()  # float64 exists on every CPU, not on every device

    def _without_dropout(self, contexts: Tensor) -> Tensor:
        found = modes(self)
        self.eval()
        try:
            return self(contexts.to(self.Q.device))
        finally:
            restore(found)


def context_windows(
    sentences: Sequence[Sequence[int]], context: int, start_id: int = START_ID, end_id: int = END_ID
) -> tuple[Tensor, Tensor]:
    """Every (context, next word) pair of the sentences, in text order; no window crosses a sentence boundary.

    sentences: lists of word ids without <s> and </s>. Returns contexts (N, context), oldest word first, and targets (N,),
    int64, with N = number of words + number of sentences: </s> is predicted, <s> only pads. ValueError without a sentence.
    """
    if context < 1:
        raise ValueError(f"a context holds at least one word, not {context}")
    if len(sentences) == 0:
        raise ValueError("there is no sentence to take windows from")
    if isinstance(sentences[0], int | np.integer):
        raise TypeError("sentences are lists of lists of ids; for one sentence write [sentence]")
    grams = torch.from_numpy(windows(sentences, context + 1, start_id, end_id).astype(np.int64))
    return grams[:, :-1], grams[:, -1]
