"""What stands behind `plm.word2vec.train_word2vec`: vocabulary, chunks, threads, and the loop in PyTorch."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plm.compiled import in_threads
from plm.huffman import HuffmanTree, huffman
from plm.keyed_vectors import KeyedVectors
from plm.progress import progress
from plm.vocab import Vocab
from plm.word2vec import (
    CBOW,
    PAD,
    Gradients,
    SkipGram,
    TwoTables,
    Word2VecConfig,
    hierarchical_gradients,
    negative_sampling_gradients,
    softmax_gradients,
)
from plm.word2vec_text import NegativeSampler, around, flatten, keep_probability

CHUNK = 10_000  # words handed to a thread at a time, whole sentences: some hundredths of a second of work


class Text(NamedTuple):
    """A text ready for training."""

    words: list[str]  # V names, by id
    ids: NDArray[np.int32]  # (N,)
    starts: NDArray[np.int64]  # (S + 1,)
    counts: NDArray[np.int64]  # (V,)


class Chunk(NamedTuple):
    """Sentences first … last - 1, with what is theirs in an epoch: a seed, and learning rates at both ends."""

    first: int
    last: int
    seed: int
    rates: tuple[float, float]


def prepare(sentences: Sequence[Sequence[Any]], config: Word2VecConfig, vocab: Vocab | None = None) -> Text:
    """Vocabulary, ids and counts of `sentences` (of words, or of ids)."""
    if isinstance(sentences, str):
        raise TypeError("sentences are lists of words, not one string: plm.tokenize.words(text) makes them")
    sentences = list(sentences)
    first = next((s[0] for s in sentences if not isinstance(s, int | np.integer) and len(s)), None)
    if isinstance(first, str) and not any(isinstance(s, str) for s in sentences):
        if vocab is None:
            vocab = Vocab.build((w for s in sentences for w in s), config.max_size, config.min_count, specials=())
        sentences = [[vocab.ids[w] for w in s if w in vocab.ids] for s in sentences]
    ids, starts = flatten(sentences)
    if len(ids) == 0:
        raise ValueError(f"no word is left to train on: is the text empty, or min_count={config.min_count} too high?")
    V = int(ids.max()) + 1 if vocab is None else len(vocab)
    if ids.max() >= V:
        raise IndexError(f"id {ids.max()} is outside the vocabulary of {V} words")
    if V < 2:
        raise ValueError("a vocabulary of one word has nothing to tell apart: give more text or a lower min_count")
    words = [str(i) for i in range(V)] if vocab is None else list(vocab.tokens)
    return Text(words, ids, starts, np.bincount(ids, minlength=V))


def train(
    sentences: Sequence[Sequence[Any]], config: Word2VecConfig, backend: str, vocab: Vocab | None
) -> KeyedVectors:
    """See `plm.word2vec.train_word2vec`."""
    if backend not in BACKENDS:
        raise ValueError(f"backend is one of {', '.join(BACKENDS)}, not {backend!r}")
    if config.loss == "softmax" and backend != "torch":
        raise ValueError('the full softmax needs backend="torch": over a large vocabulary no loop makes it fast')
    text = prepare(sentences, config, vocab)
    V = len(text.words)
    tree = huffman(text.counts) if config.loss == "hierarchical" else None
    rng = np.random.default_rng(config.seed)
    Q = ((rng.random((V, config.d_emb)) - 0.5) / config.d_emb).astype(np.float32)
    C = np.zeros((V - 1 if tree else V, config.d_emb), np.float32)
    BACKENDS[backend](text, config, Q, C, tree)
    if not (np.isfinite(Q).all() and np.isfinite(C).all()):
        raise FloatingPointError(f"training diverged, the vectors hold NaN or infinity: lower lr={config.lr}")
    return KeyedVectors(text.words, torch.from_numpy(Q), counts=text.counts, context=torch.from_numpy(C))


def chunks(text: Text, config: Word2VecConfig, size: int = CHUNK) -> Iterator[Chunk]:
    """Every epoch's sentences in portions of about `size` words. Seeds and rates do not depend on who trains which."""
    total = len(text.ids) * config.epochs
    seeds = np.random.default_rng([config.seed, 1])
    edges = np.searchsorted(text.starts, np.arange(0, len(text.ids) + size, size)).clip(max=len(text.starts) - 1)
    edges = np.unique(edges)
    for epoch in range(config.epochs):
        for first, last in pairwise(edges):
            done = epoch * len(text.ids) + text.starts[[first, last]]
            rates = np.maximum(config.rate * (1 - done / total), config.min_lr)
            yield Chunk(int(first), int(last), int(seeds.integers(2**62)), (float(rates[0]), float(rates[1])))


def n_chunks(text: Text, config: Word2VecConfig) -> int:
    """How many `chunks` yields."""
    return sum(1 for _ in chunks(text, config))


# --- compiled ------------------------------------------------------------------------------------------------------


def kernel_arguments(text: Text, config: Word2VecConfig, tree: HuffmanTree | None) -> Callable[..., int]:
    """`train_chunk` of the kernels with all arguments but ids, starts, Q, C, rates, seed and trace filled in."""
    from plm.word2vec_kernels import alias_table, train_chunk

    keep = keep_probability(text.counts / text.counts.sum(), config.sample)
    noise = alias_table(NegativeSampler(text.counts, config.power).probabilities)
    if tree is None:
        paths = (np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64))
    else:
        real = tree.points != PAD
        starts = np.concatenate([[0], tree.lengths.cumsum(0).numpy()]).astype(np.int64)
        paths = (tree.points[real].numpy().astype(np.int32), tree.codes[real].numpy().astype(np.int32), starts)
    K = config.negatives if tree is None else 0
    fixed = (config.architecture == "skip-gram", config.window, (keep * 2.0**32).astype(np.uint64), K, noise, paths)

    def run(ids: Any, starts: Any, Q: Any, C: Any, rates: Any, seed: int, trace: Any) -> int:
        return train_chunk(ids, starts, Q, C, *fixed, rates, seed, trace)

    return run


def train_compiled(text: Text, config: Word2VecConfig, Q: NDArray, C: NDArray, tree: HuffmanTree | None) -> None:
    """Train Q and C in place. With several threads all write into the same tables (Hogwild: Niu et al. 2011)."""
    run = kernel_arguments(text, config, tree)
    no_trace = np.empty((0, 2 * config.window + 1 + config.negatives), np.int32)

    def one(chunk: Chunk) -> int:
        starts = text.starts[chunk.first : chunk.last + 1]
        ids = text.ids[starts[0] : starts[-1]]
        return run(ids, starts - starts[0], Q, C, chunk.rates, chunk.seed, no_trace)

    for _ in progress(
        in_threads(one, chunks(text, config), config.threads), "training word2vec", n_chunks(text, config)
    ):
        pass


# --- PyTorch -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def sgd_step(
    model: TwoTables, inputs: Tensor, targets: Tensor, against: Tensor | HuffmanTree | None = None, lr: float = 0.025
) -> None:
    """One step down the sum of the examples' losses, by the gradients written out in `plm.word2vec`.

    against: negatives (B, K), or the tree of hierarchical softmax, or None for the full softmax.
    """
    h, C = model.hidden(inputs), model.C.data
    if against is None:
        grad_h, grad_C = softmax_gradients(h, C, targets)
        C -= lr * grad_C
    else:
        found: Gradients = (
            hierarchical_gradients(h, C, targets, against)
            if isinstance(against, HuffmanTree)
            else negative_sampling_gradients(h, C, targets, against)
        )
        grad_h = found.h
        C.index_add_(0, found.rows.flatten(), found.C.flatten(0, 1), alpha=-lr)
    if inputs.ndim == 1:
        model.Q.data.index_add_(0, inputs, grad_h, alpha=-lr)
        return
    real = inputs != PAD
    grad_h = grad_h / real.sum(1, keepdim=True)
    example, _ = real.nonzero(as_tuple=True)
    model.Q.data.index_add_(0, inputs[real], grad_h[example], alpha=-lr)


def train_torch(text: Text, config: Word2VecConfig, Q: NDArray, C: NDArray, tree: HuffmanTree | None) -> None:
    """Train Q and C in place, in batches of `batch_size` examples drawn at random from a chunk."""
    model = (SkipGram if config.architecture == "skip-gram" else CBOW)(len(Q), config.d_emb, len(C))
    model.Q.data, model.C.data = torch.from_numpy(Q), torch.from_numpy(C)
    keep = keep_probability(text.counts / text.counts.sum(), config.sample)
    sampler = NegativeSampler(text.counts, config.power, config.seed)
    for chunk in progress(chunks(text, config), "training word2vec", n_chunks(text, config)):
        rng = np.random.default_rng(chunk.seed)
        inputs, targets = _examples(text, chunk, config, keep, rng)
        order = torch.from_numpy(rng.permutation(len(targets)))
        n_batches = math.ceil(len(targets) / config.batch_size)
        against = sampler.sample(len(targets), config.negatives) if config.loss == "negative" else None
        for b, batch in enumerate(order.split(config.batch_size) if n_batches else ()):
            lr = chunk.rates[0] + (chunk.rates[1] - chunk.rates[0]) * b / n_batches
            sgd_step(model, inputs[batch], targets[batch], tree if against is None else against[batch], lr)


def _examples(
    text: Text, chunk: Chunk, config: Word2VecConfig, keep: NDArray, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    starts = text.starts[chunk.first : chunk.last + 1]
    ids = text.ids[starts[0] : starts[-1]]
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    stay = rng.random(len(ids)) < keep[ids]
    words, contexts = around(ids[stay], owner[stay], config.window, rng)
    real = contexts != PAD
    if config.architecture == "cbow":
        some = real.any(1)
        return contexts[some], words[some]
    row, slot = real.nonzero(as_tuple=True)
    return words[row], contexts[row, slot]


BACKENDS: dict[str, Callable[..., None]] = {"numba": train_compiled, "torch": train_torch}
