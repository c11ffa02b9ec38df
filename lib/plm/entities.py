"""Names in sentences as one label per token (IOBES), back to names, and how well they are found: strict entity F1.

B begins a name, I continues it, E ends it, S is a name of one token, O is none. Thirteen labels for PER, LOC and ORG.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Span = tuple[int, int, str]  # start, end (exclusive), type


class EntityScore(NamedTuple):
    """precision: share of the found names that are right; recall: share of the right ones that were found; f1: both at once."""

    precision: float
    recall: float
    f1: float


def labels_of(types: Sequence[str]) -> list[str]:
    """All labels: O first, then B, I, E, S of each type."""
    return ["O", *(f"{place}-{kind}" for kind in types for place in "BIES")]


def to_iobes(n: int, spans: Iterable[Span]) -> list[str]:
    """One label for each of n tokens. Names may neither overlap nor leave the sentence."""
    labels = ["O"] * n
    for start, end, kind in spans:
        if not 0 <= start < end <= n:
            raise ValueError(f"the name {(start, end, kind)} does not lie in a sentence of {n} tokens")
        if any(label != "O" for label in labels[start:end]):
            raise ValueError(f"the name {(start, end, kind)} overlaps another one")
        if end - start == 1:
            labels[start] = f"S-{kind}"
        else:
            labels[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 2), f"E-{kind}"]
    return labels


def from_iobes(labels: Sequence[str]) -> list[Span]:
    """The names that labels spell out in full: S, or B, any I, E, all of one type. Anything else is no name."""
    found, start, kind = [], None, ""
    for i, label in enumerate(labels):
        place, _, this = label.partition("-")
        if place not in tuple("OBIES") or (place == "O") == bool(this):
            raise ValueError(f"label {i} is {label!r}; expected O, or B-, I-, E- or S- and a type")
        if place == "S":
            found.append((i, i + 1, this))
        if place == "E" and start is not None and this == kind:
            found.append((start, i + 1, this))
        if place == "B":
            start, kind = i, this
        elif place != "I" or this != kind:
            start = None
    return found


def entity_f1(gold: Sequence[Iterable[Span]], found: Sequence[Iterable[Span]], kind: str | None = None) -> EntityScore:
    """Strict: a name counts if start, end and type are right. kind: only names of this type.

    With no name to be found all is 0, and a warning says so: that score says nothing about the tagger.
    """
    if len(gold) != len(found):
        raise ValueError(f"{len(gold)} sentences have names to be found, {len(found)} have names that were")
    right = n_found = n_gold = 0
    for wanted, got in zip(gold, found):
        a, b = ({span for span in spans if kind in (None, span[2])} for spans in (wanted, got))
        right, n_gold, n_found = right + len(a & b), n_gold + len(a), n_found + len(b)
    if n_gold == 0:
        warnings.warn("there is no name to be found here: precision, recall and F1 are 0 by agreement", stacklevel=2)
    precision, recall = right / max(1, n_found), right / max(1, n_gold)
    return EntityScore(precision, recall, 2 * right / max(1, n_found + n_gold))
