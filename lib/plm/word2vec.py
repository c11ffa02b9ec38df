"""word2vec (Mikolov et al. 2013): two tables of word vectors, trained to tell a word's real neighbours from other words.

Here are the readable models and losses. `plm.word2vec_text` draws examples from a text; `train_word2vec` trains on it, with the
loop in PyTorch (`plm.word2vec_training`) or the same loop as machine code (`plm.word2vec_kernels`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.huffman import NO_NODE, HuffmanTree, huffman
from plm.keyed_vectors import KeyedVectors
from plm.vocab import Vocab
from plm.word2vec_text import (
    PAD,
    NegativeSampler,
    cbow_examples,
    keep_probability,
    neighbours,
    skipgram_pairs,
)

__all__ = [
    "CBOW", "PAD", "Gradients", "HuffmanTree", "NegativeSampler", "SkipGram", "TwoTables", "Word2VecConfig", "cbow_examples",
    "hierarchical_gradients", "hierarchical_loss", "huffman", "keep_probability", "negative_sampling_gradients",
    "negative_sampling_loss", "neighbours", "skipgram_pairs", "softmax_gradients", "train_word2vec",
]  # fmt: skip


@dataclass(frozen=True)
class Word2VecConfig:
    """How to train. The defaults are those of the C program and of gensim, except where a comment says otherwise."""

    architecture: str = "skip-gram"  # or "cbow": predict the neighbours from the word, or the word from its neighbours
    loss: str = "negative"  # or "hierarchical", or "softmax": all V words for each example, PyTorch only
    d_emb: int = 100  # length of a word vector
    window: int = 5  # neighbours on each side, at most: each word draws its own reach from 1 … window
    negatives: int = 5  # invented neighbours for each real one
    power: float = 0.75  # negatives are drawn by count ** power: rare words more often than they occur
    sample: float = 1e-3  # words more frequent than this share of the text are thinned out; 0 keeps all
    epochs: int = 5  # passes over the text
    lr: float | None = None  # at the start; None: 0.025 for skip-gram, 0.075 for CBOW (whose mean divides the gradient)
    min_lr: float = 1e-4  # at the end: the rate falls in a line over all words
    min_count: int = 5  # rarer words are taken out of the text
    max_size: int | None = None  # keep at most so many words, the most frequent
    seed: int = 0
    threads: int = 1  # more are faster, but write into the same tables at once: two runs then differ
    batch_size: int = 256  # examples per step of the PyTorch loop; the compiled loop steps after each example

    def __post_init__(self) -> None:
        for name, known in (
            ("architecture", ("skip-gram", "cbow")), ("loss", ("negative", "hierarchical", "softmax")),
        ):  # fmt: skip
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}, not {getattr(self, name)!r}")
        for name in ("d_emb", "window", "negatives", "epochs", "min_count", "threads", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.lr is None:
            object.__setattr__(self, "lr", 0.025 if self.architecture == "skip-gram" else 0.075)
        if not 0 <= self.min_lr <= self.rate < float("inf"):
            raise ValueError(f"need 0 <= min_lr <= lr, both finite; got min_lr={self.min_lr} and lr={self.lr}")
        if not 0 <= self.sample <= 1:
            raise ValueError(f"sample is a share of the text, 0 … 1, not {self.sample}")

    @property
    def rate(self) -> float:
        """The learning rate at the start, a number also where `lr` was left open."""
        return float(self.lr or 0)


# --- losses and their gradients, from h, the vector that predicts ---------------------------------------------------


class Gradients(NamedTuple):
    """Of each example's own loss (divide by B for the mean). Row C[rows[i, k]] gets the gradient C[i, k]."""

    h: Tensor  # (B, d)
    rows: Tensor  # (B, n) int64
    C: Tensor  # (B, n, d); zero where a row does not count


def softmax_loss(h: Tensor, C: Tensor, targets: Tensor) -> Tensor:
    """Mean of -log softmax(C h)[target]: every word of the vocabulary takes part in every example."""
    _check_targets(h, targets, len(C))
    return F.cross_entropy(h @ C.T, targets)


def softmax_gradients(h: Tensor, C: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Of the sum of the examples' losses: for h (B, d) and for the whole table C (V, d)."""
    _check_targets(h, targets, len(C))
    error = (h @ C.T).softmax(1)
    error[torch.arange(len(h)), targets] -= 1
    return error @ C, error.T @ h


def _decisions(h: Tensor, targets: Tensor, negatives: Tensor, V: int) -> tuple[Tensor, Tensor, Tensor]:
    """The real word (label 1) and the invented ones (label 0). An invented word that is the real one does not count."""
    _check_targets(h, targets, V)
    check_ids(negatives, 2, V, PAD, "negatives")
    rows = torch.cat([targets[:, None], negatives], 1)
    labels = torch.zeros(rows.shape)
    labels[:, 0] = 1
    counts = (rows != targets[:, None]) & (rows != PAD)
    counts[:, 0] = True
    return rows.clamp(min=0), labels.to(rows.device), counts


def _turns(h: Tensor, C: Tensor, targets: Tensor, tree: HuffmanTree) -> tuple[Tensor, Tensor, Tensor]:
    """The inner nodes on the way to the target. Label 1 is turn 0, as in the C program."""
    _check_targets(h, targets, len(tree.points))
    if len(C) != len(tree.points) - 1:
        raise ValueError(f"C needs one row per inner node, {len(tree.points) - 1}; got {len(C)}")
    points, codes = tree.points.to(targets.device)[targets], tree.codes.to(targets.device)[targets]
    return points.clamp(min=0), (codes == 0).float(), points != NO_NODE


def _logistic_loss(h: Tensor, C: Tensor, rows: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    scores = torch.einsum("bd,bnd->bn", h, F.embedding(rows, C))
    losses = -F.logsigmoid(scores * (2 * labels - 1).to(h.dtype))  # 1 - sigmoid(s) is sigmoid(-s)
    return (losses * counts).sum(1).mean()


def _logistic_gradients(h: Tensor, C: Tensor, rows: Tensor, labels: Tensor, counts: Tensor) -> Gradients:
    chosen = F.embedding(rows, C)
    error = (torch.einsum("bd,bnd->bn", h, chosen).sigmoid() - labels.to(h.dtype)) * counts
    return Gradients(torch.einsum("bn,bnd->bd", error, chosen), rows, error[:, :, None] * h[:, None])


def negative_sampling_loss(h: Tensor, C: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
    """Mean over the examples of -log sigmoid(c_target · h) - sum over the negatives of log sigmoid(-c_negative · h).

    h: (B, d)    C: (V, d)    targets: (B,) int64    negatives: (B, K) int64; those equal to the target, and PAD, do not
    count. Mikolov et al. 2013b, eq. 4.
    """
    return _logistic_loss(h, C, *_decisions(h, targets, negatives, len(C)))


def negative_sampling_gradients(h: Tensor, C: Tensor, targets: Tensor, negatives: Tensor) -> Gradients:
    """Each score's gradient is its error, sigmoid(c · h) - label; c gets the error times h, and h the sum of error times c."""
    return _logistic_gradients(h, C, *_decisions(h, targets, negatives, len(C)))


def hierarchical_loss(h: Tensor, C: Tensor, targets: Tensor, tree: HuffmanTree) -> Tensor:
    """Mean over the examples of -log P(target), a product of one sigmoid per turn on the way through the tree.

    C: (V - 1, d), one vector per inner node. The probabilities of all V words sum to 1. Mikolov et al. 2013b, eq. 3.
    """
    return _logistic_loss(h, C, *_turns(h, C, targets, tree))


def hierarchical_gradients(h: Tensor, C: Tensor, targets: Tensor, tree: HuffmanTree) -> Gradients:
    """As for negative sampling, with the inner nodes on the way in place of words."""
    return _logistic_gradients(h, C, *_turns(h, C, targets, tree))


# --- models ---------------------------------------------------------------------------------------------------------


class TwoTables(nn.Module):
    """What both architectures share: Q (V, d_emb), looked up to predict with, and C (V, d_emb), one row per predicted word.

    With hierarchical softmax, C has V - 1 rows, one per inner node: pass n_outputs=V - 1.
    """

    def __init__(self, vocab_size: int, d_emb: int = 100, n_outputs: int | None = None):
        super().__init__()
        self.Q = nn.Parameter((torch.rand(vocab_size, d_emb) - 0.5) / d_emb)
        self.C = nn.Parameter(torch.zeros(n_outputs or vocab_size, d_emb))  # 0: every prediction starts undecided

    def hidden(self, inputs: Tensor) -> Tensor:
        """The vector that predicts, (B, d_emb)."""
        raise NotImplementedError

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of all words, (B, V)."""
        return self.hidden(inputs) @ self.C.T

    def softmax_loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy over the whole vocabulary."""
        return softmax_loss(self.hidden(inputs), self.C, targets)

    def negative_loss(self, inputs: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
        """One real word against K invented ones, negatives (B, K)."""
        return negative_sampling_loss(self.hidden(inputs), self.C, targets, negatives)

    def hierarchical_loss(self, inputs: Tensor, targets: Tensor, tree: HuffmanTree) -> Tensor:
        """The turns through the tree to the target."""
        return hierarchical_loss(self.hidden(inputs), self.C, targets, tree)


class SkipGram(TwoTables):
    """Predict each neighbour from the word in the middle: inputs (B,), the centre words. Mikolov et al. 2013a, section 3.2."""

    def hidden(self, inputs: Tensor) -> Tensor:
        check_ids(inputs, 1, len(self.Q))
        return F.embedding(inputs, self.Q)


class CBOW(TwoTables):
    """Predict the word in the middle from the mean of its neighbours: inputs (B, 2 * window), PAD where there is none.

    The mean is over the real neighbours only. Mikolov et al. 2013a, section 3.1.
    """

    def hidden(self, inputs: Tensor) -> Tensor:
        check_ids(inputs, 2, len(self.Q), lowest=PAD)
        real = (inputs != PAD)[:, :, None]
        if not real.any(1).all():
            raise ValueError("an example without a single neighbour has no mean: leave one-word sentences out")
        return (F.embedding(inputs.clamp(min=0), self.Q) * real).sum(1) / real.sum(1)


def check_ids(ids: Tensor, ndim: int, V: int, lowest: int = 0, name: str = "inputs") -> None:
    """Refuse ids of another type or shape, or outside the table."""
    if ids.dtype != torch.int64:
        raise TypeError(f"word ids must be int64, not {ids.dtype}")
    if ids.ndim != ndim:
        wanted = "(B,)" if ndim == 1 else "(B, K)" if name == "negatives" else "(B, 2 * window)"
        raise ValueError(f"{name} must be {wanted}; got {tuple(ids.shape)}")
    if ids.numel() and not (ids.min() >= lowest and ids.max() < V):
        raise IndexError(f"word ids must lie in {lowest} … {V - 1}; got {ids.min().item()} … {ids.max().item()}")


def _check_targets(h: Tensor, targets: Tensor, V: int) -> None:
    """A target below 0 would count as the last word, as word 0 or not at all."""
    check_ids(targets, 1, V, name="targets")
    if len(targets) != len(h):
        raise ValueError(f"each example needs one target: h {tuple(h.shape)}, targets {tuple(targets.shape)}")


def train_word2vec(
    sentences: Sequence[Sequence[str]] | Sequence[Sequence[int]],
    config: Word2VecConfig | None = None,
    backend: str = "numba",
    vocab: Vocab | None = None,
) -> KeyedVectors:
    """Train word vectors on sentences of words, or of ids. Returns Q as KeyedVectors, with C as its `context`.

    backend: "numba", the compiled loop, or "torch", the same updates in batches. vocab: which words, in which order; without
    it, words of at least `min_count` occurrences (and at most `max_size` of them), the most frequent first. Words outside it
    are taken out of their sentence. Sentences of ids are taken as they are; without vocab the words are called "0", "1", …
    One thread and one seed give the same vectors in every process. Raises FloatingPointError if training diverged.
    """
    from plm import word2vec_training

    return word2vec_training.train(sentences, config or Word2VecConfig(), backend, vocab)
