"""The fake class of assignment 3, with every kind of cheating and of damage: the whole way, every mark. F02 to F12, K16.

`make check-assignments` does the same for the other assignments, with a handful of kinds each.
"""

import dataclasses

import pytest

from course import attacks, check
from course.fakes import WHOLE, answered
from course.gradebook import report
from course.questions import load_assignment

PATIENCE = 4  # tests may run on a busy machine


@pytest.fixture(scope="module")
def assignment():
    return load_assignment(WHOLE)


@pytest.fixture(scope="module")
def checked(assignment, tmp_path_factory):
    """Authored, released, collected, graded, with feedback."""
    return check.check_assignment(assignment, tmp_path_factory.mktemp("class"), patience=PATIENCE)


@pytest.fixture(scope="module")
def graded(checked):
    """All fakes and their results: (fakes by name, results by name)."""
    assert checked.results, checked.faults
    return {f.name: f for f in checked.fakes}, checked.results


def test_every_mark_is_as_declared(checked):
    assert checked.faults == []
    assert len(checked.fakes) == len(checked.results) >= 65


def test_the_ends_of_the_scale(assignment, graded):
    everyone, results = graded
    automatic = sum(q.points for q in assignment.questions)
    assert results["reference"]["score"] == automatic
    assert results["empty"]["score"] == 0
    assert all(results[name]["score"] < automatic for name, fake in everyone.items() if fake.kind == "wrong")


def test_compare_notices_a_wrong_mark(assignment, graded):
    everyone, results = graded
    wrong = dataclasses.replace(everyone["reference"], marks={"q1": 3})
    faults = check.compare(assignment, [wrong], list(results.values()))
    assert len(faults) == 1
    assert "q1" in faults[0]
    wrong = dataclasses.replace(everyone["raises"], says={"q1": "no such words"})
    assert "no such words" in check.compare(assignment, [wrong], list(results.values()))[0]


@pytest.mark.parametrize("name", [*attacks.IN_A_FUNCTION, *attacks.IN_A_CELL])
def test_each_costs_only_its_own_question(assignment, graded, name):
    """F02 (always equal, asserts removed), F03 (endless), F04 (kernel dies), F06 (In, files), F12 (input)."""
    questions = graded[1][name]["questions"]
    target, *others = answered(assignment)
    assert questions[target]["score"] == 0
    assert others
    assert {q: questions[q]["score"] for q in others} == {q: assignment.question(q).points for q in others}


def test_nothing_is_not_a_value(graded):
    """Where no driver of calls.py stands between, a function that returns None is wrong and no error."""
    states = {name: graded[1][name]["questions"]["q1"]["status"] for name in ("removes-asserts", "shadows")}
    assert set(states.values()) == {"wrong"}


def test_f04_a_needed_cell_that_kills_is_left_out(graded):
    verdict = graded[1]["ends-python-at-once"]["questions"]["q4"]
    assert verdict["status"] == "right"
    assert "left out" in verdict["note"]


def test_k16_each_failure_has_a_reason_a_student_understands(graded):
    """The words are declared with each fake and compared; here: who declares none."""
    everyone = graded[0].values()
    silent = {f.name for f in everyone if f.kind == "hostile" and not any(f.says.values())}
    assert silent == {"speaks-for-the-runner", "kills", "shadows"}  # wrong like any other wrong value, or refused


def test_f07_a_copied_cell_is_graded_by_the_stated_rule(graded):
    for name in ("answer-twice-right-last", "answer-twice-wrong-last"):
        assert any("more than once" in note for note in graded[1][name]["notes"])
    assert graded[1]["answer-twice-right-last"]["questions"]["q1"]["status"] == "right"
    assert graded[1]["answer-twice-wrong-last"]["questions"]["q1"]["score"] == 0
    assert graded[1]["check-copied-and-changed"]["score"] == graded[1]["copied"]["score"]


def test_f09_f10_k16_status_stands_apart_from_the_score(graded):
    results = graded[1]
    names = ("missing", "cut-off", "renamed", "two-copies", "other-assignment", "empty")
    states = [results[name]["status"] for name in names]
    assert states == ["missing", "corrupt", "renamed", "ambiguous", "other assignment", "graded"]
    assert "03_recurrent.ipynb" in results["renamed"]["notes"][0]  # the expected name is said
    assert results["missing"]["written"] == {"w1": "missing", "w2": "missing"}


def test_copies_are_named_and_keep_their_marks(graded):
    result = graded[1]["copied"]
    assert "renamed" in result["same_as"]
    assert result["score"] > 0
    assert graded[1]["empty"]["same_as"] == []


def test_f06_feedback_tells_no_hidden_input(assignment, graded):
    for result in graded[1].values():
        for verdict in result["questions"].values():
            text = report(verdict, result["status"])
            assert check.hidden_lines(assignment, text) == []
            assert len(text) < 6000
