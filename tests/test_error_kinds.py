"""Mistakes go to the right heap, each to one."""

import pytest

from plm.error_kinds import ANSWER_ERRORS, PAIR_KINDS, answer_error, asked, name_errors, pair_kind
from plm.fact_data import LANGUAGES, Question, fact_questions, facts, statement_pairs
from plm.question_answering import Answer, Found


@pytest.mark.parametrize(
    ("wanted", "found", "kinds"),
    [
        ([(0, 2, "PER")], [(0, 2, "PER")], []),
        ([(0, 2, "PER")], [(0, 2, "LOC")], ["wrong type"]),
        ([(0, 2, "PER")], [(0, 1, "PER")], ["wrong border"]),
        ([(0, 2, "PER")], [(0, 1, "LOC")], ["wrong border"]),
        ([(0, 4, "PER")], [(0, 1, "PER"), (2, 4, "PER")], ["wrong border"]),
        ([(0, 2, "PER")], [], ["missed"]),
        ([], [(0, 2, "PER")], ["invented"]),
        ([(0, 2, "PER")], [(2, 4, "PER")], ["missed", "invented"]),
        ([(0, 1, "LOC"), (1, 2, "LOC")], [(0, 2, "LOC")], ["wrong border", "wrong border"]),
    ],
)
def test_names(wanted, found, kinds):
    assert [e.kind for e in name_errors(wanted, found)] == kinds


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_question_is_understood(language):
    for question in fact_questions("train", 80, language, size=2):
        name, kind = asked(question, language)
        assert facts(language)[name][kind] == question.answers[0].text
    with pytest.raises(ValueError, match="no question of"):
        asked(Question("0", "how warm is it?", "", ()), language)


def test_answers():
    known = facts("en")
    text = "people in japan pay with the yen. the capital of japan is tokyo. bern is the capital of switzerland."
    assert known["japan"] == {"capital": "tokyo", "currency": "yen", "language": "japanese"}
    question = Question("0", "what is the capital of japan?", text, (Answer("tokyo", text.index("tokyo")),))
    cases = {
        "tokyo": None,
        "": "says there is none",
        "japan is tokyo": "wrong border",
        "bern": "another country",
        "yen": "another fact",
        "people": "something else",
    }
    for found, kind in cases.items():
        assert answer_error(question, Found(found, text.find(found), 0.0)) == kind
        assert kind is None or kind in ANSWER_ERRORS
    silent = question._replace(answers=())
    assert answer_error(silent, Found("", 0, 0.0)) is None
    assert answer_error(silent, Found("bern", 64, 0.0)) == "answers though there is none"


@pytest.mark.parametrize("language", LANGUAGES)
def test_pairs(language):
    pairs = statement_pairs("train", 120, language)
    kinds = [pair_kind(pair, language) for pair in pairs]
    assert set(kinds) == set(PAIR_KINDS)
    assert all(kind.startswith(("follows", "contradicts", "neutral")[int(p.label)]) for kind, p in zip(kinds, pairs))
