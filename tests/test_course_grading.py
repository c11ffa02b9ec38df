"""The fake class of assignment 3: every mark as declared, every kind of cheating and of damage. Cases F02 to F12, K16."""

import dataclasses

import nbformat
import pytest

from course import fakes
from course.batch import grade_class
from course.gradebook import report
from course.notebook import read_source
from course.questions import load_assignment

PATIENCE = 4  # tests may run on a busy machine


@pytest.fixture(scope="module")
def assignment():
    return load_assignment("03")


@pytest.fixture(scope="module")
def source(assignment):
    return read_source(assignment)


@pytest.fixture(scope="module")
def graded(assignment, source, tmp_path_factory):
    """All fakes and their results: (fakes by name, results by name)."""
    folder = tmp_path_factory.mktemp("class")
    everyone = fakes.usual(assignment) + fakes.hostile(assignment, source)
    for fake in everyone:
        path = folder / "submissions" / fake.name / f"{assignment.name}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(nbformat.writes(fakes.notebook_of(source, fake)), encoding="utf-8")
    everyone += fakes.broken(assignment, source, folder / "submissions").values()
    results = grade_class(assignment, folder / "submissions", folder / "classroom", patience=PATIENCE)
    return {f.name: f for f in everyone}, {r["student"]: r for r in results}


def test_every_mark_is_as_declared(assignment, graded):
    everyone, results = graded
    assert len(everyone) == len(results) >= 45
    assert fakes.compare(assignment, list(everyone.values()), list(results.values())) == []


def test_the_fake_class_is_complete(assignment, graded):
    results = graded[1]
    automatic = sum(q.points for q in assignment.questions)
    assert results["reference"]["score"] == automatic
    assert results["empty"]["score"] == 0
    typical = fakes.load_module(assignment.folder / "fake_class.py").FAKES
    assert len(typical) >= 8
    for fake in typical:
        assert fake.why
        assert results[fake.name]["score"] < automatic
    wrong = {q for fake in typical for q in fake.marks if fake.marks[q] < assignment.question(q).points}
    assert wrong == {q.id for q in assignment.questions}  # each question is answered wrongly by somebody


def test_compare_notices_a_wrong_mark(assignment, graded):
    everyone, results = graded
    wrong = dataclasses.replace(everyone["reference"], marks={"q1": 3})
    faults = fakes.compare(assignment, [wrong], list(results.values()))
    assert len(faults) == 1
    assert "q1" in faults[0]


def others(assignment, result):
    """Points in the quick questions but the first: what nobody else's fault may touch."""
    quick = [q.id for q in assignment.questions[1:] if q.cpu <= fakes.QUICK]
    return sum(result["questions"][q]["score"] for q in quick), sum(assignment.question(q).points for q in quick)


@pytest.mark.parametrize("name", [*fakes.HOSTILE, *fakes.HOSTILE_CELLS])
def test_each_costs_only_its_own_question(assignment, graded, name):
    """F02 (always equal, asserts removed), F03 (endless), F04 (kernel dies), F06 (In), F12 (input)."""
    result = graded[1][name]
    assert result["questions"]["q1"]["score"] == 0
    got, all_points = others(assignment, result)
    assert got == all_points


def test_f04_a_needed_cell_that_kills_is_left_out(graded):
    verdict = graded[1]["ends-python-at-once"]["questions"]["q4"]
    assert verdict["status"] == "right"
    assert "left out" in verdict["note"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("endless", "seconds of computing time"),
        ("ends-python", "os._exit"),
        ("too-much-memory", "more memory"),
        ("too-deep", "calls itself without end"),
        ("prints-for-ever", "printed"),
        ("leaves", "sys.exit"),
        ("asks", "input()"),
        ("always-equal", "no plain value"),
        ("does-not-parse", "SyntaxError"),
        ("empty", "Not answered"),
        ("deleted-answer", "not in the notebook"),
    ],
)
def test_k16_each_failure_has_a_reason_a_student_understands(graded, name, words):
    result = graded[1][name]
    assert words in report(result["questions"]["q1"], result["status"])


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
    hidden = (assignment.folder / "grading.py").read_text(encoding="utf-8")
    lines = {
        line.strip() for line in hidden.splitlines() if line.strip().startswith(("return", "def ", "for ", "assert"))
    }
    for result in graded[1].values():
        for verdict in result["questions"].values():
            text = report(verdict, result["status"])
            assert not [line for line in lines if len(line) > 12 and line in text]
            assert len(text) < 6000
