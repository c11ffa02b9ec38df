"""What word2vec takes from a text: thinned-out sentences, each word with its neighbours, and words drawn as counter-examples."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

PAD = -1  # no word: a window slot beyond the edge of the sentence, or a negative that is to be left out


def keep_probability(share: ArrayLike, sample: float = 1e-3, formula: str = "code") -> NDArray[np.float64]:
    """The chance that one occurrence of a word stays in the text, for words that make up `share` of it.

    formula "paper": sqrt(sample / share) (Mikolov et al. 2013b, eq. 5); "code": sqrt(sample / share) + sample / share,
    what the authors' C program and gensim do, and we too. Both at most 1. sample=0 keeps everything.
    """
    f = np.asarray(share, dtype=np.float64)
    if f.size and not (f.min() >= 0 and f.max() <= 1):
        raise ValueError("share holds parts of a whole, 0 … 1: divide the counts by their sum")
    if formula not in ("paper", "code"):
        raise ValueError(f'formula is "paper" or "code", not {formula!r}')
    if not 0 <= sample < np.inf:
        raise ValueError(f"sample is a share of the text, 0 or more, not {sample}")
    if sample == 0:
        return np.ones_like(f)
    ratio = sample / np.maximum(f, 1e-300)
    return np.minimum(1, np.sqrt(ratio) + (ratio if formula == "code" else 0))


class NegativeSampler:
    """Draws words by count ** power (Mikolov et al. 2013b: 3/4, found by trial).

    counts: (V,), one per word, in the order of the ids. `probabilities`: (V,) float64.
    """

    def __init__(self, counts: ArrayLike, power: float = 0.75, seed: int = 0):
        if isinstance(counts, Mapping):
            raise TypeError("counts must be a row in the order of the ids: [counts[word] for word in vocab.tokens]")
        weights = np.asarray(counts, dtype=np.float64)
        if weights.ndim != 1 or not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise ValueError("counts must be one row of finite numbers, none negative and not all 0")
        with np.errstate(over="ignore"):  # refused below
            weights = np.where(weights > 0, weights ** power, 0)  # a word that never occurs is never drawn  # fmt: skip
        if not 0 < weights.sum() < np.inf:
            raise ValueError(f"power={power} makes chances of 0, infinity or NaN of these counts: take about 0.75")
        self.probabilities: NDArray[np.float64] = weights / weights.sum()
        self._up_to = self.probabilities.cumsum()
        self._up_to /= self._up_to[-1]
        self._rng = np.random.default_rng(seed)

    def sample(self, *shape: int) -> Tensor:
        """Word ids of the given shape, int64."""
        return torch.from_numpy(np.searchsorted(self._up_to, self._rng.random(shape), side="right"))


# --- examples -------------------------------------------------------------------------------------------------------


def flatten(sentences: Sequence[Sequence[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Sentences of ids in one row, ids (N,) int32, and where each sentence starts, (S + 1,) int64: the last is N.

    Raises TypeError for strings where lists are wanted, which would be taken apart into letters.
    """
    sentences = sentences if isinstance(sentences, str) else list(sentences)
    if any(isinstance(s, str) for s in sentences):
        raise TypeError("sentences must be lists of words or ids, not strings: plm.tokenize.words(text) makes them")
    if any(isinstance(s, int | np.integer) for s in sentences):
        raise TypeError("sentences must be a list of sentences; for one sentence write [sentence]")
    lengths = np.fromiter((len(s) for s in sentences), np.int64, len(sentences))
    try:
        flat = np.array(list(chain.from_iterable(sentences)) or np.empty(0, np.int64))
        flat = flat.astype(np.int64, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise TypeError(f"sentences must be lists of integer ids: {error}") from None
    if len(flat) and (flat.min() < 0 or flat.max() > np.iinfo(np.int32).max):
        raise ValueError(f"ids must lie in 0 … 2^31 - 1; got {flat.min()} … {flat.max()}")
    return flat.astype(np.int32), np.concatenate([[0], lengths.cumsum()])


def neighbours(
    sentences: Sequence[Sequence[int]], window: int, rng: np.random.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Every word with the words around it: words (N,) and contexts (N, 2 * window), left to right, int64.

    Slots beyond the sentence hold PAD. With `rng`, each word draws its own reach from 1 … window, so near words count more
    often than far ones; without it, the reach is always `window`.
    """
    if window < 1:
        raise ValueError(f"a window reaches at least one word far, not {window}")
    ids, starts = flatten(sentences)
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return around(ids, owner, window, rng)


def around(ids: NDArray, owner: NDArray, window: int, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
    """`neighbours` for a text in one row, ids (N,), where owner (N,) says which sentence each word belongs to."""
    N = len(ids)
    offsets = np.array([o for o in range(-window, window + 1) if o])
    reach = np.full(N, window) if rng is None else rng.integers(1, window + 1, N)
    at = np.arange(N)[:, None] + offsets
    inside = (at >= 0) & (at < N) & (abs(offsets) <= reach[:, None])
    at = at.clip(0, max(N - 1, 0))
    inside &= owner[at] == owner[:, None]
    contexts = np.where(inside, ids[at], PAD)
    return torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(contexts.astype(np.int64))


def skipgram_pairs(
    sentences: Sequence[Sequence[int]], window: int, rng: np.random.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Inputs (the centre words) and targets (one neighbour each), both (N,) int64. A one-word sentence gives no pair."""
    words, contexts = neighbours(sentences, window, rng)
    row, slot = (contexts != PAD).nonzero(as_tuple=True)
    return words[row], contexts[row, slot]


def cbow_examples(
    sentences: Sequence[Sequence[int]], window: int, rng: np.random.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Inputs (the neighbours, (N, 2 * window), PAD where there is none) and targets (the word between them, (N,))."""
    words, contexts = neighbours(sentences, window, rng)
    some = (contexts != PAD).any(1)
    return contexts[some], words[some]
