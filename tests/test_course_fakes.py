"""How the fake classes are made, dealt out and compared; without grading, which `test_course_grading.py` does."""

import ast
import csv
import importlib.util
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from course import check
from course.__main__ import main
from course.attacks import IN_A_CELL, IN_A_FUNCTION, hostile
from course.check import (
    Checked,
    check_all,
    check_assignment,
    compare_tables,
    declared,
    hidden_lines,
    page_faults,
    table,
)
from course.damage import CHANGES, PLACES, STRANGERS, UNREADABLE, broken
from course.fakes import WHOLE, Fake, answered, handful, hijacked, left_out, usual
from course.notebook import find_notebook, read_source, read_submission, reference_names, released
from course.questions import ASSIGNMENTS, assignments, load_assignment
from course.sandbox import Limits, Request, run

KINDS = [*IN_A_FUNCTION, *IN_A_CELL, *PLACES, *UNREADABLE, *STRANGERS, *CHANGES]


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """For each assignment: the assignment, its source, where the broken submissions lie, hostile and broken fakes."""
    found = {}
    for name in assignments():
        assignment, folder = load_assignment(name), tmp_path_factory.mktemp(name)
        source = read_source(assignment)
        found[name] = assignment, source, folder, hostile(assignment, source), broken(assignment, source, folder / "in")
    return found


def test_one_assignment_has_every_kind_and_the_others_share_them(classes):
    names = {a: [f.name for f in attacks + damages] for a, (_, _, _, attacks, damages) in classes.items()}
    assert sorted(names[WHOLE]) == sorted(KINDS)
    dealt = sorted(n for a, some in names.items() if a != WHOLE for n in some)
    assert dealt == sorted(KINDS)
    for name, (_, _, _, attacks, damages) in classes.items():
        assert len(attacks) >= 3, name
        assert len(damages) >= 3, name


def test_handful_deals_in_turn():
    names = [str(k) for k in range(10)]
    first = next(a for a in assignments() if a != WHOLE)
    assert handful(names, load_assignment(first)) == ["0", "7"]
    assert handful(names, load_assignment(WHOLE)) == names


def test_an_attack_changes_its_own_question_only(classes):
    for assignment, _, _, attacks, _ in classes.values():
        target, *others = answered(assignment)
        assert others, "somebody has to keep points"
        for fake in attacks:
            assert set(fake.answers) == {target, *left_out(assignment)}
            assert {q for q, points in fake.marks.items() if points == 0} == set(fake.answers)
            assert declared(assignment, fake) == sum(assignment.question(q).points for q in others)
            if fake.name != "does-not-parse":
                ast.parse(fake.answers[target])


def test_damaged_files_are_what_they_are_called(classes):
    assignment, source, folder, _, damages = classes[WHOLE]
    release = released(source)
    for fake in damages:
        path, status = find_notebook(folder / "in" / fake.name, assignment.name)
        if path is not None:
            status = read_submission(path, release)[1] or status
        assert status == fake.status, fake.name


@pytest.mark.parametrize("name", assignments())
def test_each_question_is_answered_wrongly_by_somebody(name):
    assignment = load_assignment(name)
    typical = [f for f in usual(assignment) if f.kind == "wrong"]
    assert len(typical) >= 8
    assert all(f.why for f in typical)
    lost = {q for f in typical for q, points in f.marks.items() if points < assignment.question(q).points}
    assert lost == {q.id for q in assignment.questions}


def test_hijacked_takes_every_name_of_an_answer():
    code = hijacked("def f(x):\n    return x\n\nclass G:\n    pass\n\nH = 3", "return '{name}'")
    names: dict = {}
    exec(code, names)
    assert (names["f"](1, y=2), names["G"]()) == ("f", "G")
    assert "H" not in names


@pytest.mark.parametrize("granted", [False, True])
def test_f06_who_copies_the_solution_would_have_it_if_it_were_there(classes, granted):
    """The attack has teeth: with the file in the sandbox the answer is right, so its failure in the fake class says something."""
    assignment, source, _, attacks, _ = classes[WHOLE]
    thief = next(f for f in attacks if f.name == "copies-the-solution")
    rng = np.random.default_rng(0)
    w = {
        "x": rng.normal(size=(8, 3)),
        "h": rng.normal(size=(8, 2)),
        "b": rng.normal(size=8),
        "peep": rng.normal(size=(3, 2)),
    }
    inputs = {"x": rng.normal(size=(4, 3)), "h": rng.normal(size=(4, 2)), "c": rng.normal(size=(4, 2)), "w": w}
    reads = (str(assignment.folder / "assignment.md"),) if granted else ()
    request = Request(
        [{"source": thief.answers["q1"]}],
        [{"name": "step", "inputs": inputs}],
        reads=reads,
        limits=Limits(cpu=20, wall=300),
    )
    frame = next(f for f in run(request).frames if "call" in f)
    if granted:
        want = reference_names(source)["step"](**inputs)
        np.testing.assert_allclose(frame["value"][0], want[0])
    else:
        assert frame["error"]["type"] == "FileNotFoundError"


@pytest.fixture
def tables(tmp_path):
    """A classroom whose tables give `ada` full points and `bob` one too many."""
    assignment = load_assignment(WHOLE)
    fakes = [Fake("ada", {}), Fake("bob", {q.id: 0 for q in assignment.questions})]
    (tmp_path / "marks").mkdir()
    for end, column in (("", "score"), ("-lms", "grade")):
        with open(tmp_path / "marks" / f"{assignment.name}{end}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([["student", column], ["ada", declared(assignment, fakes[0])], ["bob", 1]])
    return assignment, fakes, tmp_path


def test_tables_are_compared(tables):
    assignment, fakes, classroom = tables
    assert compare_tables(assignment, fakes[:1], classroom) == [
        f"bob: {assignment.name}{end}.csv says 1.0, declared is None" for end in ("", "-lms")
    ]
    assert len(compare_tables(assignment, fakes, classroom)) == 2
    assert "carl" in compare_tables(assignment, [*fakes, Fake("carl", {})], classroom)[-1]


def test_pages_are_compared(tmp_path):
    assignment, fake = load_assignment(WHOLE), Fake("ada", {}, status="renamed")
    path = tmp_path / "feedback" / "ada" / assignment.name / f"{assignment.name}.html"
    assert page_faults(assignment, fake, tmp_path) == ["ada: no feedback page"]
    path.parent.mkdir(parents=True)
    path.write_text("<p><b>Status: renamed.</b></p>", encoding="utf-8")
    assert page_faults(assignment, fake, tmp_path) == []
    hidden = next(
        line.strip()
        for line in (assignment.folder / "grading.py").read_text(encoding="utf-8").splitlines()
        if line.startswith("def ")
    )
    path.write_text(f"<p>Status: graded.</p><pre>{hidden.replace('(', '<i>(</i>')}</pre>", encoding="utf-8")
    assert len(page_faults(assignment, fake, tmp_path)) == 2
    assert hidden_lines(assignment, "nothing of it") == []


def test_the_table_says_what_was_declared_where_it_differs():
    assignment = load_assignment(WHOLE)
    questions = {q.id: {"score": q.points} for q in assignment.questions}
    result = {"questions": questions, "score": 90, "status": "graded"}
    checked = Checked(assignment, [Fake("ada", {}), Fake("bob", {"q1": 3}, status="renamed")])
    checked.results = {"ada": result, "bob": result}
    _, ada, bob = table(checked).splitlines()
    assert "NOT" not in ada
    assert f"{assignment.questions[0].points:g} NOT 3" in bob
    assert "graded NOT renamed" in bob


def test_what_stops_one_assignment_stops_no_other(monkeypatch, capsys):
    def stops(assignment, classroom):
        raise SystemExit("nbgrader is ill")

    monkeypatch.setattr(check, "release", stops)
    assert check_all([load_assignment("03"), load_assignment("07")]) == 1
    said = capsys.readouterr().out
    assert said.count("the check stopped: SystemExit: nbgrader is ill") == 2


def test_a_check_without_faults_ends_well_and_leaves_out_what_it_is_told(monkeypatch, capsys):
    seen = []

    def well(assignment, *_, **__):
        seen.append(assignment.name)
        return Checked(assignment)

    monkeypatch.setattr(check, "check_assignment", well)
    assert main(["check", "--except", WHOLE[:2]]) == 0
    assert seen == [name for name in assignments() if name != WHOLE]
    assert all(f"== {name}" in capsys.readouterr().out for name in seen[-1:])


def test_the_class_hands_in_as_an_archive_and_in_folders_of_both_kinds(tmp_path):
    assignment, archive = load_assignment("07"), tmp_path / "all.zip"
    fakes = [f.name for f in check.hand_in(assignment, tmp_path / "in", archive=archive) if f.kind != "broken"]
    with zipfile.ZipFile(archive) as file:
        packed = {name.removesuffix("_07_bert.ipynb") for name in file.namelist()}
    flat = {p.parent.name for p in (tmp_path / "in").glob("*/07_bert.ipynb")}
    deep = {p.parents[1].name for p in (tmp_path / "in").glob("*/07_bert/07_bert.ipynb")}
    assert packed == set(fakes[1::2])
    assert {"reference"} < flat & set(fakes)
    assert deep & set(fakes)
    assert set(fakes) <= packed | flat | deep
    assert not packed & (flat | deep)


def test_who_collects_nothing_is_told(tmp_path):
    with pytest.raises(SystemExit, match="ARCHIVE is a zip file"):
        main(["collect", "07", "--classroom", str(tmp_path), "--archive", str(tmp_path / "none.zip")])


def test_without_isolation_nothing_hostile_is_run(monkeypatch, tmp_path):
    monkeypatch.setattr(check, "release", lambda assignment, classroom: SimpleNamespace(read_text=lambda encoding: ""))
    monkeypatch.setattr(check, "collect", lambda *_: tmp_path)
    monkeypatch.setattr(check, "grade", lambda *_, **__: [])
    monkeypatch.setattr(check, "feedback", lambda *_: None)
    checked = check_assignment(load_assignment(WHOLE), tmp_path, isolation="limits")
    assert "hostile" not in {f.kind for f in checked.fakes}
    assert {"good", "empty", "wrong", "broken"} == {f.kind for f in checked.fakes}
    assert checked.notes == ["Without isolation no hostile submission was tried."]
    assert len(checked.faults) == 1  # nobody was graded


def load_benchmark():
    path = Path(__file__).parents[1] / "benchmarks" / "grading.py"
    spec = importlib.util.spec_from_file_location("grading_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_benchmark_notices_who_is_graded_twice_or_lost():
    faults = load_benchmark().faults
    wanted, table_ = {"a": 90.0, "b": 0.0}, {"a": 90.0, "b": 0.0}
    assert faults(wanted, {"a": 1}, {"a": 1, "b": 2}, ["b"], table_) == []
    assert faults(wanted, {"a": 1}, {"a": 3, "b": 2}, ["b"], table_) == ["graded twice: a"]
    assert faults(wanted, {"a": 1}, {"a": 1, "b": 2}, ["a", "b"], table_) == ["graded twice: a"]
    assert faults(wanted, {"a": 1}, {"a": 1}, [], table_) == ["lost: b"]
    assert faults(wanted, {}, {"a": 1, "b": 2}, ["a", "b"], {"a": 89.0, "b": 0.0}) == ["a: 89 points, not 90"]


def test_the_benchmark_reads_what_a_batch_says_and_makes_a_mixed_class(tmp_path):
    benchmark = load_benchmark()
    assert benchmark.GRADED.match("  student-001: other assignment, 0").groups() == (
        "student-001",
        "other assignment",
        "0",
    )
    assert not benchmark.GRADED.match("07_bert: 4 students, 2 at a time, isolation: bwrap")
    everybody = benchmark.hand_in(load_assignment("07"), 9, tmp_path)
    assert [f.kind for f in everybody.values()].count("wrong") == 2
    assert len(list(tmp_path.glob("*/07_bert.ipynb"))) == 9


@pytest.mark.parametrize("number", ["1", "4", "5"])
def test_what_the_teachers_guide_quotes_is_what_the_checks_print(number):
    text = (ASSIGNMENTS / "TEACHING.md").read_text(encoding="utf-8")
    section = re.split(r"\n##+ ", text.split(f"\n### Assignment {number}: ")[1])[0]
    folder = load_assignment(f"0{number}").folder
    printed = "".join((folder / name).read_text(encoding="utf-8") for name in ("assignment.md", "grading.py"))
    printed = re.sub(r'"\s*\n\s*f?"', "", printed)  # texts go on from line to line
    first = [row.split("|")[1] for row in section.splitlines() if row.startswith("| ")][1:]
    quoted = [piece.strip() for cell in first for quote in re.findall(r"\*(.+?)\*", cell) for piece in quote.split("…")]
    assert len(quoted) >= 9
    assert [piece for piece in quoted if piece and piece not in printed] == []
