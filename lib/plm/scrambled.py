"""Is it a sentence? Clauses of a newspaper, half of them with their characters in disorder."""

import re
from functools import cache
from typing import NamedTuple

import numpy as np

from plm.chinese import PARTS, news

SHORTEST, LONGEST = 6, 20  # characters of a clause
N_MOVED = 4  # at least so many characters change places
_CLAUSE = re.compile(r"[\u4e00-\u9fff]+")


class Judged(NamedTuple):
    """label: 1 = as it was printed, 0 = in disorder."""

    text: str
    label: int


@cache
def clauses(part: str) -> tuple[str, ...]:
    """The stretches of Chinese characters between two marks, each once and in one part only, in the order of the paper."""
    if part not in PARTS:
        raise ValueError(f"there is no part {part!r}; there are {', '.join(PARTS)}")
    found = (c for article in news(part) for s in article.sentences for c in _CLAUSE.findall(s.text))
    known = {c for other in PARTS[: PARTS.index(part)] for c in clauses(other)}
    return tuple(dict.fromkeys(c for c in found if c not in known and _fits(c)))


def _fits(clause: str) -> bool:
    return SHORTEST <= len(clause) <= LONGEST and len(set(clause)) > N_MOVED


def scramble(text: str, rng: np.random.Generator) -> str:
    """The text with a stretch of at least N_MOVED characters in another order: never the same text."""
    if len(set(text)) < 2:
        raise ValueError(f"{text!r} has no other order")
    while True:
        n = int(rng.integers(min(N_MOVED, len(text)), len(text) + 1))
        start = int(rng.integers(len(text) - n + 1))
        moved = "".join(text[start + i] for i in rng.permutation(n))
        if moved != text[start : start + n]:
            return text[:start] + moved + text[start + n :]


def judged_clauses(part: str, n: int, seed: int = 0) -> list[Judged]:
    """n clauses, every second one in disorder; no clause twice, not even once in each way."""
    pool = clauses(part)
    if not 2 <= n <= len(pool):
        raise ValueError(f"{part} has {len(pool)} clauses, and at least 2 are needed; asked for {n}")
    rng = np.random.default_rng([seed, *f"scrambled {part}".encode()])
    chosen = [pool[i] for i in rng.choice(len(pool), n, replace=False)]
    return [Judged(text, 1) if i % 2 else Judged(scramble(text, rng), 0) for i, text in enumerate(chosen)]
