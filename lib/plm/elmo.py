"""ELMo: two language models that read a sentence from both ends, and the vectors that each word has in its sentence.

Peters et al. 2018, after Peters et al. 2017 (TagLM). The two directions share the words' vectors and the softmax and nothing
else: neither ever sees what it has to guess.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from plm.characters import CharacterConfig, CharacterEncoder, spell
from plm.evaluate import modes, restore
from plm.lstm import LSTM
from plm.ngram import END_ID, START_ID
from plm.rnn import length_mask
from plm.softmax import WordSampler, sampled_cross_entropy
from plm.train import load_checkpoint, save_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

IGNORED = -100
Sentences = Sequence[Sequence[int]]


@dataclass(frozen=True)
class BiLMConfig:
    """Sizes of a bidirectional language model. ELMo's: V 793,471, d_emb 512, d_hidden 4,096, two layers, characters."""

    vocab_size: int  # V, the words it can predict
    d_emb: int = 128  # width of the word vectors, of every layer's output (a projection), and of the softmax
    d_hidden: int = 256  # units of each LSTM
    n_layers: int = 2  # in each direction
    dropout: float = 0.1  # on what enters each layer, and before the softmax
    tied: bool = False  # one table for input and output words; not with characters
    characters: CharacterConfig | None = None  # word vectors from spellings instead of a table
    start_id: int = START_ID  # <s>: opens a sentence; the last word the backward model guesses
    end_id: int = END_ID  # </s>: closes it; the last word the forward model guesses

    def __post_init__(self) -> None:
        if isinstance(self.characters, dict):  # from JSON
            object.__setattr__(self, "characters", CharacterConfig(**self.characters))
        for name in ("vocab_size", "d_emb", "d_hidden", "n_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is a probability below 1, not {self.dropout}")
        if self.d_emb >= self.d_hidden:
            raise ValueError(f"d_emb={self.d_emb} must be below d_hidden={self.d_hidden}: it is a projection of it")
        if self.tied and self.characters is not None:
            raise ValueError("a character encoder has no table of words that the softmax could share: tied=False")
        for name in ("start_id", "end_id"):
            if not 0 <= getattr(self, name) < self.vocab_size:
                raise ValueError(f"{name}={getattr(self, name)} is outside a vocabulary of {self.vocab_size}")


class BothWays(NamedTuple):
    """One thing per direction."""

    forward: Tensor
    backward: Tensor


def reverse(x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Turn each sentence around within its own length; padding stays behind it. x: (B, T, ...). Its own inverse."""
    if lengths is None:
        return x.flip(1)
    t = torch.arange(x.shape[1], device=x.device)
    last = lengths.to(x.device)[:, None] - 1
    source = torch.where(t <= last, last - t, t)  # (B, T)
    return x[torch.arange(len(x), device=x.device)[:, None], source]


class Direction(nn.Module):
    """One reader: LSTM layers with projected outputs; every layer after the first is added to what it was given."""

    def __init__(self, config: BiLMConfig):
        super().__init__()
        c = config
        self.layers = nn.ModuleList(
            LSTM(c.d_emb, c.d_hidden, proj_size=c.d_emb, forget_bias=1.0) for _ in range(c.n_layers)
        )
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
        """x: (B, T, d_emb). Returns each layer's output, (B, T, d_emb); what stands at t has read x up to t."""
        outputs: list[Tensor] = []
        for layer in self.layers:
            y, _ = layer(self.drop(x), None, lengths)
            x = y + x if outputs else y
            outputs.append(x)
        return outputs


class BiLM(nn.Module):
    """A forward and a backward language model over one table of words (or one character encoder) and one softmax.

    ids: (B, T) int64, each row `<s> words </s>` as `pad` makes them; lengths: (B,) int64, padding beyond them never enters.
    With characters, `spellings` (V_in, longest) has a row for every word that may be read; V_in may exceed vocab_size.
    """

    def __init__(self, config: BiLMConfig, spellings: Tensor | None = None):
        super().__init__()
        self.config = c = config
        self.spellings: Tensor
        if (c.characters is None) != (spellings is None):
            raise ValueError("spellings are needed with config.characters, and only then: plm.characters.spell(words)")
        if c.characters is None:
            self.embedding: nn.Embedding | CharacterEncoder = nn.Embedding(c.vocab_size, c.d_emb)
            nn.init.normal_(self.embedding.weight, std=0.1)
        else:
            self.embedding = CharacterEncoder(c.characters, c.d_emb)
            self.register_buffer("spellings", spellings, persistent=False)
        self.n_readable = c.vocab_size if spellings is None else len(spellings)
        if self.n_readable < c.vocab_size:
            raise ValueError(f"{self.n_readable} spellings are too few for a vocabulary of {c.vocab_size}")
        self.forward_lm, self.backward_lm = Direction(c), Direction(c)
        self.drop = nn.Dropout(c.dropout)
        self.output = nn.Linear(c.d_emb, c.vocab_size)
        nn.init.zeros_(self.output.bias)
        if isinstance(self.embedding, nn.Embedding) and c.tied:
            self.output.weight = self.embedding.weight
        else:
            nn.init.zeros_(self.output.weight)  # untrained, the model is its bias

    @torch.no_grad()
    def start_from_counts(self, counts: Tensor) -> "BiLM":
        """Set the output bias to the log frequency of each word (add-one): counts (V,)."""
        if counts.shape != self.output.bias.shape or bool((counts < 0).any()):
            raise ValueError(f"counts must be {tuple(self.output.bias.shape)}, none below 0; got {tuple(counts.shape)}")
        self.output.bias.copy_((counts + 1.0).div((counts + 1.0).sum()).log())
        return self

    def words(self, ids: Tensor) -> Tensor:
        """The vector of each word without its sentence, (B, T, d_emb)."""
        if self.config.characters is None:
            return self.embedding(ids)
        types, where = ids.unique(return_inverse=True)  # each word of the batch is spelt once
        return F.embedding(where, self.embedding(self.spellings[types]))

    def states(self, ids: Tensor, lengths: Tensor | None = None) -> list[BothWays]:
        """Layer 0 (the word vectors, twice), layer 1, …: each a pair of (B, T, d_emb), both in the order of the text."""
        self._check(ids, lengths)
        x = self.words(ids)
        there = self.forward_lm(x, lengths)
        back = [reverse(h, lengths) for h in self.backward_lm(reverse(x, lengths), lengths)]
        return [BothWays(x, x), *(BothWays(f, b) for f, b in zip(there, back))]

    def forward(self, ids: Tensor, lengths: Tensor | None = None) -> BothWays:
        """Logits (B, T, V) of both directions. At t the forward model guesses word t + 1, the backward model word t - 1."""
        top = self.states(ids, lengths)[-1]
        return BothWays(*(self.output(self.drop(h)) for h in top))

    def loss(self, ids: Tensor, lengths: Tensor | None = None, sampler: WordSampler | None = None) -> BothWays:
        """Mean cross entropy of each direction; their sum is what training minimises. A sampler makes it an estimate."""
        top, losses = self.states(ids, lengths)[-1], list[Tensor]()
        for h, targets in zip((top.forward[:, :-1], top.backward[:, 1:]), self.targets(ids, lengths)):
            h, targets = self.drop(h).flatten(0, 1), targets.flatten()
            if not bool((targets != IGNORED).any()):
                raise ValueError("there is no word to guess: a row needs two ids at least, <s> and </s>")
            if sampler is None:
                losses.append(F.cross_entropy(self.output(h), targets))
            else:
                losses.append(sampled_cross_entropy(h, targets, self.output.weight, self.output.bias, sampler))
        return BothWays(*losses)

    def targets(self, ids: Tensor, lengths: Tensor | None = None) -> BothWays:
        """What is to be guessed: (B, T - 1) each. forward[:, t] is word t + 1, backward[:, t] is word t; padding is -100.

        A word that can be read but not predicted counts as id 0, <unk>.
        """
        targets = ids.where(ids < self.config.vocab_size, 0)
        if lengths is not None:
            targets = targets.where(length_mask(lengths.to(ids.device), ids.shape[1]), IGNORED)
        # The backward model guesses word t from t + 1 on, so where t + 1 is padding there is nothing to guess from.
        return BothWays(targets[:, 1:], targets[:, :-1].where(targets[:, 1:] != IGNORED, IGNORED))

    @torch.no_grad()
    def vectors(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The n_layers + 1 vectors of each word in its sentence, (n_layers + 1, B, T, 2 * d_emb): forward, then backward.

        Runs in evaluation mode, without gradients, and leaves every mode as it was. Padding gets zeros.
        """
        found = modes(self)
        self.eval()
        try:
            layers = torch.stack([torch.cat(pair, -1) for pair in self.states(ids, lengths)])
        finally:
            restore(found)
        if lengths is None:
            return layers
        return layers * length_mask(lengths.to(ids.device), ids.shape[1])[:, :, None]

    @torch.no_grad()
    def token_log_probs(
        self, sentences: Sentences, backward: bool = False, n_words: int | None = None, batch_size: int = 64
    ) -> NDArray[np.float64]:
        """Natural log probability of every guessed word, in text order, float64 (N,); each sentence stands alone.

        Forward: the words and </s>. Backward: <s> and the words. n_words: let the softmax run over the first n_words ids
        only, to compare with a model of that vocabulary.
        """
        if not len(sentences):
            raise ValueError("there is no sentence to judge")
        if batch_size < 1 or (n_words is not None and not 1 <= n_words <= self.config.vocab_size):
            raise ValueError(f"batch_size={batch_size} or n_words={n_words} is below 1 or above what there is")
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        parts: list[Tensor] = [torch.empty(0)] * len(order)
        for rows in (order[i : i + batch_size] for i in range(0, len(order), batch_size)):
            ids, lengths = self.pad([sentences[i] for i in rows])
            found = modes(self)
            self.eval()
            try:
                top, targets = self.states(ids, lengths)[-1], self.targets(ids, lengths)
                h, wanted = (top.backward[:, 1:], targets[1]) if backward else (top.forward[:, :-1], targets[0])
                logits = self.output(h)[..., :n_words].flatten(0, 1)
            finally:
                restore(found)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # half precision would round each
            logs = -F.cross_entropy(logits, wanted.flatten(), reduction="none", ignore_index=IGNORED)
            for i, row, n in zip(rows, logs.view(wanted.shape).cpu().double(), lengths.tolist()):
                parts[i] = row[: n - 1]
        return torch.cat(parts).numpy()

    def pad(self, sentences: Sentences) -> tuple[Tensor, Tensor]:
        """Sentences of ids as a batch: ids (B, T), each row `<s> words </s>` and padding, and lengths (B,), on our device."""
        ids, lengths = pad(sentences, self.config.start_id, self.config.end_id)
        return ids.to(self.output.weight.device), lengths.to(self.output.weight.device)

    def _check(self, ids: Tensor, lengths: Tensor | None) -> None:
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 2:
            raise TypeError("ids must be an int64 tensor (B, T): `pad(sentences)` makes it from lists of ids")
        last = self.n_readable - 1
        if ids.numel() and not (ids.min() >= 0 and ids.max() <= last):
            raise IndexError(f"ids must lie in 0 … {last}; got {ids.min().item()} … {ids.max().item()}")
        if lengths is None:
            return
        if not isinstance(lengths, Tensor) or lengths.shape != (len(ids),) or bool((lengths < 1).any()):
            raise ValueError(f"lengths must be a tensor ({len(ids)},), each at least 1; got {lengths!r}")


def pad(sentences: Sentences, start_id: int = START_ID, end_id: int = END_ID) -> tuple[Tensor, Tensor]:
    """Lists of ids side by side: (B, T) int64, each row `<s> words </s>` and then end_id as padding, and lengths (B,)."""
    if not len(sentences):
        raise ValueError("there is no sentence")
    if any(isinstance(s, str) or any(isinstance(w, str | float) for w in s) for s in sentences):
        raise TypeError("sentences must be lists of ids (int), not strings: vocab.encode(words(text)) makes them")
    lengths = torch.tensor([len(s) + 2 for s in sentences])
    ids = torch.full((len(sentences), int(lengths.max())), end_id)
    for row, s in enumerate(sentences):
        ids[row, : len(s) + 1] = torch.tensor([start_id, *s])
    return ids, lengths


class ScalarMix(nn.Module):
    """One vector from several: gamma * sum_j s_j h_j, s the softmax of a learnt number per layer. Peters et al. 2018, eq. 1."""

    def __init__(self, n_layers: int):
        super().__init__()
        if n_layers < 1:
            raise ValueError(f"a mix needs at least one layer, not {n_layers}")
        self.scores = nn.Parameter(torch.zeros(n_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def weights(self) -> Tensor:
        """The share of each layer, (n_layers,), summing to 1."""
        return self.scores.softmax(0)

    def forward(self, layers: Tensor) -> Tensor:
        """layers: (n_layers, ..., D). Returns (..., D)."""
        if len(layers) != len(self.scores):
            raise ValueError(f"this mix has {len(self.scores)} weights, but got {len(layers)} layers")
        return self.gamma * torch.tensordot(self.weights, layers, dims=1)


def save_bilm(path: str | Path, model: BiLM, vocab: Vocab, half: bool = True) -> Path:
    """Write a biLM with the words it reads, as `load_bilm` wants them; `half` stores float16."""
    if (len(vocab), vocab.specials) != (model.n_readable, LANGUAGE_MODEL_SPECIALS):
        found = f"this vocabulary has {len(vocab)} and opens with {vocab.specials}"
        raise ValueError(f"the model reads {model.n_readable} words that open with {LANGUAGE_MODEL_SPECIALS}; {found}")
    return save_checkpoint(path, model, asdict(model.config) | {"words": vocab.tokens[len(vocab.specials) :]}, half)


def load_bilm(path: str | Path) -> tuple[BiLM, Vocab]:
    """Read (model in evaluation mode, its vocabulary) from a file of `save_bilm`."""
    state, stored = load_checkpoint(path)
    if "words" not in stored:
        raise ValueError(f"{path} holds no words: it was not written by plm.elmo.save_bilm")
    vocab = Vocab(stored.pop("words"), LANGUAGE_MODEL_SPECIALS)
    config = BiLMConfig(**stored)
    spellings = spell(vocab.tokens, config.characters.longest) if config.characters else None
    model = BiLM(config, spellings)
    model.load_state_dict(state)
    return model.eval(), vocab
