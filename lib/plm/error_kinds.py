"""What kind of mistake is it? A score says how many answers are wrong; the kinds say what a model has not understood."""

from collections.abc import Iterable
from typing import NamedTuple

from plm.entities import Span
from plm.fact_data import QUESTIONS, TextPair, facts
from plm.pair_data import CONTRADICTED, ENTAILED, NEUTRAL
from plm.question_answering import Found, Question, exact_match

NAME_ERRORS = ("wrong border", "wrong type", "missed", "invented")
ANSWER_ERRORS = (
    "says there is none",
    "answers though there is none",
    "wrong border",
    "another country",
    "another fact",
    "something else",
)
PAIR_KINDS = ("follows", "contradicts", "neutral: another country", "neutral: another fact")


class NameFault(NamedTuple):
    """A name that was not found as it should be. wanted or found is None where there is none."""

    kind: str  # one of NAME_ERRORS
    wanted: Span | None
    found: Span | None


def name_errors(wanted: Iterable[Span], found: Iterable[Span]) -> list[NameFault]:
    """Why names of a sentence do not count: borders come before the type, as a name with both wrong is mostly cut wrongly."""
    right, got = set(wanted), set(found)
    errors, used = [], set()
    for name in sorted(right - got):
        near = [other for other in sorted(got - right) if other[0] < name[1] and other[1] > name[0]]
        used.update(near)
        same = next((other for other in near if other[:2] == name[:2]), None)
        kind = "wrong type" if same else "wrong border" if near else "missed"
        errors.append(NameFault(kind, name, same or (near[0] if near else None)))
    return errors + [NameFault("invented", None, other) for other in sorted(got - right - used)]


def asked(question: Question, language: str = "en") -> tuple[str, str]:
    """The country and the kind of fact that a question of `plm.fact_data` is about."""
    names = facts(language)
    for name in sorted(names, key=len, reverse=True):
        for kind, templates in QUESTIONS[language].items():
            if any(template.format(x=name) == question.text for template in templates):
                return name, kind
    raise ValueError(f"this is no question of plm.fact_data: {question.text!r}")


def answer_error(question: Question, found: Found, language: str = "en") -> str | None:
    """One of ANSWER_ERRORS, or None if the answer is right."""
    if not question.answers:
        return "answers though there is none" if found.text else None
    if any(exact_match(found.text, wanted.text) for wanted in question.answers):
        return None
    if not found.text:
        return "says there is none"
    end = found.start + len(found.text)
    if any(found.start < a.start + len(a.text) and end > a.start for a in question.answers):
        return "wrong border"
    name, kind = asked(question, language)
    known = facts(language)
    if any(said[kind] == found.text for said in known.values() if kind in said):
        return "another country"
    return "another fact" if found.text in known[name].values() else "something else"


def pair_kind(pair: TextPair, language: str = "en") -> str:
    """One of PAIR_KINDS, for a pair of `plm.fact_data.statement_pairs`."""
    if int(pair.label) in (ENTAILED, CONTRADICTED):
        return PAIR_KINDS[0 if int(pair.label) == ENTAILED else 1]
    assert int(pair.label) == NEUTRAL
    space = " " if language == "en" else ""
    names = sorted(facts(language), key=len, reverse=True)
    first, second = (next(name for name in names if f"{space}{name}" in f"{space}{text}") for text in (pair.a, pair.b))
    return PAIR_KINDS[3 if first == second else 2]
