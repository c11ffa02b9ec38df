"""Sentences of film reviews as telegrams: the small words are left out, and somebody has to write them in again.

Training sentences come from reviews that no language model of the book has read, and no sentence is in two parts.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from plm.data import review_sentences
from plm.pair_data import PRETRAINING_WORDS

PARTS = ("train", "dev", "test")
SHORTEST, LONGEST = 6, 20  # words of a sentence, marks counted
# Left out: articles, pronouns, prepositions, conjunctions, auxiliaries, marks. Not "not" and "no": they turn a sentence round.
_SMALL = (
    "a an the this that these those i you he she it we they me him her us them my your his its our their who whom whose "
    "which what there here of in on at by for with from to into onto as about than over after before through during "
    "and or but if because so while when where how though although is are was were be been being am 's 're 've 'll 'd "
    "'m do does did have has had having will would can could may might must should shall just very too also then "
    ". , ; : ! ? - -- ( ) \" ' ..."
)
SMALL = frozenset(_SMALL.split())


class Telegram(NamedTuple):
    """words: the sentence; kept: what the telegram has of it."""

    kept: list[str]
    words: list[str]


def shorten(words: list[str]) -> list[str]:
    """The words of a telegram."""
    if isinstance(words, str):
        raise TypeError("words are a list of strings, not one string: plm.tokenize.words(text) makes it")
    return [word for word in words if word not in SMALL]


@cache
def _pool(part: str) -> tuple[Telegram, ...]:
    documents = review_sentences(f"imdb_{part}")
    if part == "train":
        sizes = np.cumsum([sum(map(len, document)) for document in documents])
        documents = documents[int(np.searchsorted(sizes, PRETRAINING_WORDS)) + 1 :]
    found = {tuple(s): Telegram(shorten(s), s) for document in documents for s in document if _fits(s)}
    if part != "train":
        seen = {tuple(t.words) for other in PARTS[: PARTS.index(part)] for t in _pool(other)}
        found = {words: telegram for words, telegram in found.items() if words not in seen}
    return tuple(found.values())


def _fits(words: list[str]) -> bool:
    kept = shorten(words)
    return SHORTEST <= len(words) <= LONGEST and words[-1] in ".!?" and 3 <= len(kept) < len(words) - 1


def telegrams(part: str, n: int, seed: int = 0) -> list[Telegram]:
    """n sentences of a part with their telegrams, drawn without doubles."""
    if part not in PARTS:
        raise ValueError(f"part is one of {', '.join(PARTS)}, not {part!r}")
    pool = _pool(part)
    if not 1 <= n <= len(pool):
        raise ValueError(f"{part} has {len(pool)} telegrams; asked for {n}")
    rng = np.random.default_rng([seed, *f"telegrams {part}".encode()])
    return [pool[i] for i in rng.choice(len(pool), n, replace=False)]
