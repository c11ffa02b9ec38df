"""A teacher's way: release, grade, mark by hand, feedback, tables; a batch that is ended and goes on; one that meets a fault."""

import contextlib
import csv
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from course import batch, fakes, pages
from course.__main__ import main
from course.batch import grade_class
from course.gradebook import marks, open_gradebook, plain, record, release, table
from course.guide import sheet
from course.notebook import SourceError, kind_of, read_source, released, sort_cells, without_solution
from course.questions import assignments, load_assignment
from course.submission import unpack_cases
from course.surroundings import LIBRARY

SLOW = {"q6": ""}  # its training takes most of the time, and is tested elsewhere


@pytest.fixture(scope="module")
def assignment():
    return load_assignment("03")


@pytest.fixture(scope="module")
def submissions(assignment, tmp_path_factory):
    """Four students: right, wrong, empty, cut off."""
    folder, source = tmp_path_factory.mktemp("handed-in"), read_source(assignment)
    for name, answers in (
        ("ada", {}),
        ("bob", {"q1": "def step(x, h, c, w): return h, c"}),
        ("cy", dict.fromkeys(("q1", "q2", "q3", "q4", "q5"), "")),
    ):
        nb = fakes.notebook_of(source, fakes.Fake(name, {}, answers={**SLOW, **answers}))
        for cell in nb.cells:
            if name == "ada" and cell.metadata.get("nbgrader", {}).get("grade_id") == "w1":
                cell.source = "Because *h* is zero. <script>alert('ada')</script>"
        (folder / name).mkdir()
        (folder / name / f"{assignment.name}.ipynb").write_text(nbformat.writes(nb), encoding="utf-8")
    (folder / "dan").mkdir()
    (folder / "dan" / f"{assignment.name}.ipynb").write_text('{"cells": [', encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def classroom(assignment, submissions, tmp_path_factory):
    """Released, graded; w1 of ada then marked by hand; feedback made."""
    folder = tmp_path_factory.mktemp("classroom")
    (folder / "students.txt").write_text("ada\neve\n")
    options = ["--classroom", str(folder), "--patience", "4"]
    assert main(["release", "03", *options]) == 0
    assert main(["grade", "03", *options, "--submissions", str(submissions)]) == 0
    with open_gradebook(folder) as book:
        grade = book.find_grade("w1", assignment.name, assignment.name, "ada")
        assert grade.needs_manual_grade
        grade.manual_score, grade.needs_manual_grade = 4.0, False
        book.db.commit()
    assert main(["feedback", "03", *options]) == 0
    return folder


def rows(classroom, assignment, end=""):
    with open(classroom / "marks" / f"{assignment.name}{end}.csv", encoding="utf-8", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def test_the_release_holds_no_solution_and_is_what_we_think_it_is(assignment, classroom):
    text = (classroom / "release" / assignment.name / f"{assignment.name}.ipynb").read_text(encoding="utf-8")
    nb, ours = nbformat.reads(text, as_version=4), released(read_source(assignment))
    assert [c.source for c in nb.cells] == [c.source for c in ours.cells]
    assert "SOLUTION" not in text
    assert "While nobody asks, the output gate" not in text
    assert text.count("raise NotImplementedError") == len(assignment.questions)
    assert sorted(p.name for p in (classroom / "release" / assignment.name).iterdir()) == [f"{assignment.name}.ipynb"]


def test_marks_and_states(assignment, classroom):
    table_ = rows(classroom, assignment)
    assert {name: row["status"] for name, row in table_.items()} == {
        "ada": "graded",
        "bob": "graded",
        "cy": "graded",
        "dan": "corrupt",
        "eve": "missing",
    }
    quick = sum(q.points for q in assignment.questions if q.id != "q6")
    assert float(table_["ada"]["score"]) == quick + 4
    assert float(table_["bob"]["score"]) < quick - 10
    assert {float(table_[name]["score"]) for name in ("cy", "dan", "eve")} == {0.0}
    assert (table_["cy"]["q1_status"], table_["bob"]["q1_status"]) == ("untouched", "wrong")
    assert all(row["waits_for_marking"] == "" for row in table_.values())  # f10: nobody has to mark what is not there
    assert float(rows(classroom, assignment, "-lms")["ada"]["grade"]) == quick + 4


def test_f06_feedback_pages_hold_no_hidden_test_and_no_foreign_html(assignment, classroom):
    for name in ("ada", "bob", "cy", "dan", "eve"):
        page = (classroom / "feedback" / name / assignment.name / f"{assignment.name}.html").read_text(encoding="utf-8")
        assert "<script>alert" not in page
        assert "grading.py" not in page
        assert not re.search(r"outputs_of|has_shapes|some_lengths|holes_before", page)
    bob = (classroom / "feedback" / "bob" / assignment.name / f"{assignment.name}.html").read_text(encoding="utf-8")
    assert "Gates stand in the order" in bob
    assert "Status: corrupt" in re.sub(
        r"<[^>]+>",
        "",
        (classroom / "feedback" / "dan" / assignment.name / f"{assignment.name}.html").read_text(encoding="utf-8"),
    )


def test_a_second_batch_makes_nothing_anew_and_keeps_marks_given_by_hand(assignment, submissions, classroom, capsys):
    files = sorted((classroom / "grading" / assignment.name / "results").glob("*.json"))
    before = [(p.name, p.stat().st_mtime_ns) for p in files]
    main(["grade", "03", "--classroom", str(classroom), "--submissions", str(submissions)])
    assert [(p.name, p.stat().st_mtime_ns) for p in files] == before
    assert "ada:" not in capsys.readouterr().out
    assert float(rows(classroom, assignment)["ada"]["w1"]) == 4


def test_hidden_inputs_come_from_a_secret_seed(assignment, classroom, tmp_path):
    folder = classroom / "grading" / assignment.name
    assert folder.stat().st_mode & 0o077 == 0
    drawn = unpack_cases((folder / "cases.bin").read_bytes())
    batch.prepare(tmp_path, assignment, fresh=True)
    again = unpack_cases((tmp_path / "cases.bin").read_bytes())
    one, other = drawn["q1"][0][0].inputs["x"], again["q1"][0][0].inputs["x"]
    assert one.shape != other.shape or (one != other).any()


def graders_of(classroom):
    """Processes that grade for this classroom."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            if "course.submission" in words and any(str(classroom) in word for word in words):
                found.append(path.parent.name)
    return found


def test_a_batch_that_is_killed_goes_on(assignment, submissions, tmp_path):
    command = [
        sys.executable,
        "-m",
        "course",
        "grade",
        "03",
        "--classroom",
        str(tmp_path),
        "--submissions",
        str(submissions),
    ]
    env = os.environ | {"PYTHONPATH": str(LIBRARY)}
    (tmp_path / "release" / assignment.name).mkdir(parents=True)
    process = subprocess.Popen([*command, "--jobs", "1"], env=env, stdout=subprocess.DEVNULL)
    results = tmp_path / "grading" / assignment.name / "results"
    deadline = time.monotonic() + 300
    while not list(results.glob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.kill()  # the batch alone: what it has started has to end by itself
    process.wait()
    deadline = time.monotonic() + 60
    while (left := graders_of(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    done = {p.name: p.stat().st_mtime_ns for p in results.glob("*.json")}
    assert 1 <= len(done) < 4
    graded = grade_class(assignment, submissions, tmp_path, patience=4)
    assert {r["student"]: r["status"] for r in graded} == {
        "ada": "graded",
        "bob": "graded",
        "cy": "graded",
        "dan": "corrupt",
    }
    assert {name: (results / name).stat().st_mtime_ns for name in done} == done


def test_a_fault_of_the_grader_stops_nobody_else_and_blames_nobody(assignment, submissions, tmp_path, monkeypatch):
    real = subprocess.run

    def sometimes(command, **options):
        if "bob" in command:
            return subprocess.CompletedProcess(command, 1, "", "MemoryError: no room")
        return real(command, **options)

    monkeypatch.setattr(batch.subprocess, "run", sometimes)
    results = {r["student"]: r for r in grade_class(assignment, submissions, tmp_path, patience=4)}
    assert results["bob"]["status"] == "grader error"
    assert "no room" in results["bob"]["error"]
    assert results["ada"]["score"] > 0
    release(assignment, tmp_path)
    record(assignment, list(results.values()), batch.students(submissions, assignment, []), tmp_path)
    everything, _ = marks(assignment, tmp_path)
    assert rows(tmp_path, assignment)["bob"]["status"] == "grader error"  # in the tables, not lost from them
    assert everything.read_text(encoding="utf-8").count("grader error") > 1
    monkeypatch.undo()
    again = {r["student"]: r for r in grade_class(assignment, submissions, tmp_path, patience=4)}
    assert again["bob"]["status"] == "graded"
    assert again["ada"] == results["ada"]


def test_tables_are_safe_for_spreadsheets_and_text_for_pages():
    text = table([{"student": "=1+1", "score": -3, "note": ""}])
    assert text == "student,score,note\n'=1+1,-3,\n"
    assert "<" not in plain("<img src=x> *a*")
    assert "*" not in plain("*a*")


@pytest.mark.parametrize("name", assignments())
def test_sources_keep_the_rules(name):
    assignment = load_assignment(name)
    nb = read_source(assignment)
    assert assignment.points == 100
    assert sum(w.points for w in assignment.written) == (40 if name.startswith("08") else 10)  # 08 ends in a report
    for cell in nb.cells:
        if cell.cell_type == "code":
            assert max(map(len, cell.source.split("\n"))) <= 84, cell.source
        else:
            assert ":::" not in cell.source, "students' JupyterLab shows no MyST"
            assert "{doc}" not in cell.source
    for question in assignment.questions:
        for part in question.parts:
            assert part.hint.endswith((".", "?")), part.hint
    assert len(fakes.usual(assignment)) >= 10


def test_solutions_are_cut_out_at_their_indentation():
    source = "def f():\n    '''Doc.'''\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION\n\nx = 2"
    assert (
        without_solution(source)
        == "def f():\n    '''Doc.'''\n    # YOUR CODE HERE\n    raise NotImplementedError()\n\nx = 2"
    )


def test_a_code_cell_without_a_tag_is_refused():
    with pytest.raises(SourceError, match="needs one of the tags"):
        kind_of(nbformat.v4.new_code_cell("1 + 1"))


def test_cells_of_a_student_belong_to_the_question_in_which_they_stand(assignment):
    release = released(read_source(assignment))
    nb = nbformat.from_dict(json.loads(json.dumps(release)))
    at = next(k for k, c in enumerate(nb.cells) if c.get("metadata", {}).get("nbgrader", {}).get("grade_id") == "q2")
    nb.cells.insert(at, nbformat.v4.new_code_cell("helper = 2"))
    nb.cells.append(nbformat.v4.new_code_cell("extension = 3"))
    found = sort_cells(nb, release)
    own = {s: [c["source"] for c in cells if c["kind"] == "own"] for s, cells in found.cells.items()}
    assert own["q2"] == ["helper = 2"]
    assert own["end"] == ["extension = 3"]  # not run: no question is there
    assert own["q1"] == []


def test_marks_can_be_written_again(assignment, classroom):
    everything, short = marks(assignment, classroom)
    assert everything.name == "03_recurrent.csv"
    assert short.name == "03_recurrent-lms.csv"


def test_pages_of_the_book_are_the_released_assignments_and_hold_no_solution():
    assert pages.faults() == []
    for name in assignments():
        text = (pages.PAGES / f"{name}.md").read_text(encoding="utf-8")
        assert "SOLUTION" not in text
        assert text.count("raise NotImplementedError") >= len(load_assignment(name).questions)


@pytest.mark.parametrize("name", assignments())
def test_the_teachers_sheet_says_all(name):
    assignment = load_assignment(name)
    text = sheet(assignment)
    for question in assignment.questions:
        assert all(part.hint in text for part in question.parts)
    assert text.count("```python") == len(assignment.questions)
    assert "costs ." not in text
