"""What BERT is given to guess: pairs of passages, true or random neighbours, with some tokens hidden.

Devlin et al. 2019, sec. 3.1. A batch holds rows of one length, full to the last token, so nothing is computed for padding.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plm.bert import IGNORED, IS_NEXT, NOT_NEXT

LEAST = 8  # neither passage of a pair is shorter, as far as its sentences allow
SHORTER = "choose shorter rows (--length) or make documents of more text (--boundary file)"


@dataclass(frozen=True)
class MaskingConfig:
    """Which tokens are to be guessed, and what is shown in their place."""

    rate: float = 0.15  # of all tokens but the special ones
    mask: float = 0.8  # of those: shown as [MASK]
    random: float = 0.1  # of those: shown as another piece; the rest is shown as it is

    def __post_init__(self) -> None:
        for name in ("rate", "mask", "random"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share between 0 and 1, not {getattr(self, name)}")
        if self.mask + self.random > 1:
            raise ValueError(f"mask + random = {self.mask + self.random} is more than all chosen tokens")


class Masked(NamedTuple):
    """Ids with gaps."""

    ids: NDArray[np.int64]  # (B, T)
    positions: NDArray[np.int64]  # (N,) places in ids.flatten(), ascending
    targets: NDArray[np.int64]  # (N,) what stood there


def mask_tokens(
    ids: NDArray[np.int64],
    config: MaskingConfig,
    rng: np.random.Generator,
    vocab_size: int,
    mask_id: int,
    special_ids: Sequence[int],
) -> Masked:
    """Choose tokens to be guessed, each with probability `rate`, and hide them; special tokens are neither chosen nor put in.

    One number decides what a chosen token becomes, so the three shares cannot overwrite one another. At least one token of the
    batch is chosen if there is one that is not special: a mean over nothing would be NaN.
    """
    ids = np.asarray(ids)
    if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"ids must be (B, T) integers; got {ids.shape} {ids.dtype}")
    special = np.zeros(vocab_size, bool)
    special[list(special_ids)] = True
    if not special[mask_id]:
        raise ValueError(f"[MASK], id {mask_id}, must be among the special ids {sorted(special_ids)}")
    ordinary = np.flatnonzero(~special)
    can = ~special[ids]
    chosen = can & (rng.random(ids.shape, dtype=np.float32) < config.rate)
    if not chosen.any() and can.any() and config.rate > 0:
        chosen.flat[rng.choice(np.flatnonzero(can))] = True
    positions = np.flatnonzero(chosen)
    targets = ids.flat[positions].astype(np.int64)
    fate = rng.random(len(positions), dtype=np.float32)
    drawn = ordinary[rng.integers(len(ordinary), size=len(positions))]
    shown = np.where(fate < config.mask, mask_id, np.where(fate < config.mask + config.random, drawn, targets))
    hidden = ids.astype(np.int64, copy=True)
    hidden.flat[positions] = shown
    return Masked(hidden, positions, targets)


class Documents(NamedTuple):
    """A text as one long row of ids, cut into sentences and documents."""

    ids: NDArray[np.int32]  # (N,)
    sentences: NDArray[np.int64]  # (S + 1,) where each sentence starts; the last number is N
    documents: NDArray[np.int64]  # (D + 1,) where each document starts; the last number is N

    @classmethod
    def build(cls, documents: Sequence[Sequence[Sequence[int]]]) -> "Documents":
        """From documents of sentences of ids. Empty sentences and documents are left out."""
        documents = [kept for kept in ([s for s in d if len(s)] for d in documents) if kept]
        if not documents:
            raise ValueError("there is not a single sentence")
        lengths = np.array([len(s) for d in documents for s in d])
        sentences = np.concatenate([[0], lengths.cumsum()])
        firsts = np.concatenate([[0], np.cumsum([len(d) for d in documents])])
        ids = np.concatenate([np.asarray(s, np.int32) for d in documents for s in d])
        return cls(ids, sentences, sentences[firsts])


def read_documents(text: str) -> list[list[str]]:
    """BERT's file format: a sentence a line, an empty line between documents. One-sentence documents throughout are refused."""
    documents = [[line for line in part.split("\n") if line.strip()] for part in text.split("\n\n")]
    documents = [d for d in documents if d]
    if not documents:
        raise ValueError("there is not a single sentence")
    check_documents([len(d) for d in documents])
    return documents


def check_documents(sentences: Sequence[int]) -> None:
    """Refuse documents without a second sentence: they have no true next one, so every label would be NotNext."""
    single = sum(n < 2 for n in sentences)
    if single == len(sentences):
        raise ValueError(
            f"all {single} documents have one sentence, so none has a next one: is there an empty line between sentences?"
        )
    if single > len(sentences) / 2:
        warnings.warn(f"{single} of {len(sentences)} documents have one sentence and make no pairs", stacklevel=3)


class Pairs:
    """Draws batches of passages A and B from documents: half of the time B goes on where A ends, else it is from elsewhere.

    A row is [CLS] A [SEP] B [SEP] and exactly T tokens long. A ends with a sentence, B begins with one; a random B comes from
    another document and is never the first sentence of one (no true B is, and the model would learn to spot openings).
    """

    def __init__(self, documents: Documents, cls_id: int, sep_id: int):
        self.documents, self.cls_id, self.sep_id = documents, cls_id, sep_id
        starts, ends = documents.sentences[:-1], documents.documents[1:]
        self.owner = (
            np.searchsorted(documents.documents, starts, side="right") - 1
        )  # (S,) the document of each sentence
        check_documents(np.bincount(self.owner).tolist())
        self.left = ends[self.owner] - starts  # (S,) tokens from here to the end of the document
        self.opens = np.isin(starts, documents.documents[:-1])

    def draw(self, B: int, T: int, rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
        """ "ids" (B, T), "segments" (B, T), "is_next" (B,)."""
        room = T - 3
        if room < 2 * LEAST:
            raise ValueError(f"{T} tokens are too few for two passages: give at least {2 * LEAST + 3}")
        can_start = np.flatnonzero(self.left >= room)
        elsewhere = np.flatnonzero((self.left >= room - LEAST) & ~self.opens)
        if not len(can_start) or not len(elsewhere):
            raise ValueError(f"no document is long enough to fill a row of {T} tokens: {SHORTER}")
        found: list[tuple[NDArray, ...]] = []
        missing = B
        for _ in range(1000):
            first, cut = self._first(can_start, 2 * missing + 8, room, rng)
            next_ = rng.random(len(first)) < 0.5
            other = elsewhere[rng.integers(len(elsewhere), size=len(first))]
            for _ in range(20):  # draw again where the same document came: leaving it out would favour true neighbours
                same = self.owner[other] == self.owner[first]
                other[same] = elsewhere[rng.integers(len(elsewhere), size=int(same.sum()))]
            ok = next_ | (self.owner[other] != self.owner[first])
            second = np.where(next_, self.documents.sentences[:-1][first] + cut, self.documents.sentences[:-1][other])
            part = [a[ok][:missing] for a in (self.documents.sentences[:-1][first], cut, second, next_)]
            found.append(tuple(part))
            missing -= len(part[0])
            if not missing:
                break
        else:
            raise ValueError(
                f"hardly any document can be cut into two passages of {T} tokens at the end of a sentence: {SHORTER}"
            )
        return self._rows(T, *(np.concatenate(parts) for parts in zip(*found)))

    def _first(self, can: NDArray, n: int, room: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
        """Sentences where passage A starts, and its length: up to the end of the sentence at a random middle place."""
        sentences = self.documents.sentences
        first = can[rng.integers(len(can), size=n)]
        wish = sentences[first] + rng.integers(room // 4, 3 * room // 4, size=n)
        after = np.searchsorted(sentences, wish)  # the first sentence that starts at the wish or behind it
        too_far = sentences[after] - sentences[first] > room - LEAST
        cut = sentences[after - too_far] - sentences[first]
        ok = cut >= LEAST
        return first[ok], cut[ok]

    def _rows(self, T: int, a: NDArray, cut: NDArray, b: NDArray, is_next: NDArray) -> dict[str, NDArray[np.int64]]:
        t = np.arange(T)
        in_b = t > cut[:, None] + 1
        source = np.where(in_b, b[:, None] + t - cut[:, None] - 2, a[:, None] + t - 1)
        ids = self.documents.ids[source.clip(0, len(self.documents.ids) - 1)].astype(np.int64)
        ids[:, 0], ids[:, -1] = self.cls_id, self.sep_id
        ids[np.arange(len(a)), cut + 1] = self.sep_id
        return {"ids": ids, "segments": in_b.astype(np.int64), "is_next": np.where(is_next, IS_NEXT, NOT_NEXT)}


class Singles:
    """Draws batches of single passages of one length, [CLS] A [SEP]: for documents of one sentence. They have no NSP label."""

    def __init__(self, documents: Documents, cls_id: int, sep_id: int, longest: int):
        self.documents, self.cls_id, self.sep_id = documents, cls_id, sep_id
        self.starts = documents.documents[:-1]
        lengths = np.minimum(np.diff(documents.documents), longest - 2)
        self.of_length = {int(n): np.flatnonzero(lengths == n) for n in np.unique(lengths)}
        self.share = np.array([n * len(rows) for n, rows in self.of_length.items()], float)  # a token is a token
        self.share /= self.share.sum()

    def draw(self, tokens: int, rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
        """About `tokens` tokens, in rows of one length."""
        n = list(self.of_length)[rng.choice(len(self.share), p=self.share)]
        rows = self.of_length[n][rng.integers(len(self.of_length[n]), size=max(1, tokens // (n + 2)))]
        ids = np.full((len(rows), n + 2), self.sep_id, np.int64)
        ids[:, 0] = self.cls_id
        ids[:, 1:-1] = self.documents.ids[self.starts[rows][:, None] + np.arange(n)]
        return {"ids": ids, "segments": np.zeros_like(ids), "is_next": np.full(len(rows), IGNORED)}


class PretrainingBatches:
    """An endless stream of batches for `BertForPretraining.loss`. Its state is one JSON value, so a run can go on where it was.

    lengths: the row lengths T, one drawn per batch with the probabilities `shares`; a batch has about `tokens` tokens, whatever
    T is. singles: documents of one sentence, drawn with probability `single_share`.
    """

    def __init__(
        self,
        documents: Documents,
        vocabulary: Any,
        masking: MaskingConfig,
        *,
        tokens: int = 2048,
        lengths: Sequence[int] = (64,),
        shares: Sequence[float] | None = None,
        singles: Documents | None = None,
        single_share: float = 0.0,
        seed: int = 0,
    ):
        self.vocabulary, self.masking, self.tokens = vocabulary, masking, tokens
        self.lengths, self.shares, self.single_share = list(lengths), shares, single_share
        self.pairs = Pairs(documents, vocabulary.cls_id, vocabulary.sep_id)
        self.singles = None
        if singles is not None:
            self.singles = Singles(singles, vocabulary.cls_id, vocabulary.sep_id, max(lengths))
        self.rng = np.random.default_rng(seed)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        while True:
            yield self.next()

    def next(self) -> dict[str, Tensor]:
        """One batch: "ids" (with gaps), "segments" (B, T), "positions" and "targets" (N,), "is_next" (B,)."""
        if self.singles is not None and self.rng.random() < self.single_share:
            rows = self.singles.draw(self.tokens, self.rng)
        else:
            T = self.lengths[self.rng.choice(len(self.lengths), p=self.shares)]
            rows = self.pairs.draw(max(1, self.tokens // T), T, self.rng)
        v = self.vocabulary
        masked = mask_tokens(rows["ids"], self.masking, self.rng, len(v), v.mask_id, v.special_ids)
        return {name: torch.from_numpy(value) for name, value in (rows | masked._asdict()).items()}

    @property
    def state(self) -> dict[str, Any]:
        """The place in the stream."""
        return dict(self.rng.bit_generator.state)

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.rng.bit_generator.state = state
