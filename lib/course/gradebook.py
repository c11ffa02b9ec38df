"""nbgrader's side: assignments made and released by it, marks in its gradebook, feedback by it; and tables of marks.

Only the step between collecting and the gradebook is ours: nbgrader would run a submission in one kernel, beside its tests.
"""

import csv
import io
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course.batch import Result, grading_folder, mark_copies, read_result
from course.notebook import read_source, read_submission, released, sort_cells
from course.questions import Assignment
from course.surroundings import LIBRARY
from plm.files import write_atomically

CONFIG = """# Made by the first `make release`, then yours to change. nbgrader reads it when it is started in this folder.
import os

c = get_config()
c.CourseDirectory.root = os.path.dirname(os.path.abspath(__file__))
c.CourseDirectory.course_id = "from-one-hot-to-bert"
c.ClearSolutions.code_stub = {"python": "# YOUR CODE HERE\\nraise NotImplementedError()"}
# How files in an archive are called: ada_03_recurrent.ipynb. nbgrader zip_collect --help-all says more.
c.FileNameCollectorPlugin.named_regexp = r"(?:.*/)?(?P<student_id>[^/_]+)_(?P<file_id>[^/]+)"
"""
# nbgrader starts `alembic` by its bare name, so the environment's programs have to be on the path.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
FORMULA = ("=", "+", "-", "@", "\t", "\r")
WORDS = {"right": "right", "partly": "partly right", "wrong": "not right yet", "untouched": "not answered"}


def nbgrader(classroom: Path, *arguments: str) -> None:
    """Run an nbgrader command in the classroom; its messages are shown only when it fails."""
    command = [sys.executable, "-m", "nbgrader", *arguments]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(LIBRARY), os.environ.get("PYTHONPATH", "")]),
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(command, cwd=classroom, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"nbgrader {' '.join(arguments)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def release(assignment: Assignment, classroom: Path) -> Path:
    """Write the source notebook, let nbgrader make the students' version, and return that: no solution, no hidden test."""
    classroom.mkdir(parents=True, exist_ok=True)
    if not (classroom / "nbgrader_config.py").exists():  # a teacher may have changed it
        write_atomically(classroom / "nbgrader_config.py", CONFIG)
    source = read_source(assignment)
    plain = nbformat.from_dict(json.loads(json.dumps(source)))
    for cell in plain.cells:
        if cell.metadata.course["kind"] == "written":
            cell.source = ""  # nbgrader puts its own words there; the model answer stays in the guide
    write_atomically(classroom / "source" / assignment.name / f"{assignment.name}.ipynb", nbformat.writes(plain))
    nbgrader(classroom, "generate_assignment", assignment.name, "--force", "--create")
    return classroom / "release" / assignment.name / f"{assignment.name}.ipynb"


def record(assignment: Assignment, results: list[Result], submissions: dict[str, Path], classroom: Path) -> None:
    """Put marks into nbgrader's gradebook, and for each student a notebook with the verdicts for feedback and marking by hand.

    Scores that a person has given are kept; what waits for a person is flagged, but not where nothing was written.
    """
    release_nb = released(read_source(assignment))
    with open_gradebook(classroom) as book:
        for result in results:
            student = result["student"]
            book.update_or_create_student(student)
            book.update_or_create_submission(assignment.name, student)
            for item in assignment.items:
                grade = book.find_grade(item.id, assignment.name, assignment.name, student)
                state = result["written"].get(item.id, "missing")
                if item.id in result["questions"]:
                    grade.auto_score = result["questions"][item.id]["score"]
                else:
                    grade.auto_score = None if state == "to mark" else 0.0
                grade.needs_manual_grade = state == "to mark" and grade.manual_score is None
            for question in assignment.questions:
                comment = book.find_comment(f"{question.id}-answer", assignment.name, assignment.name, student)
                comment.auto_comment = sentence(result, question.id)
            book.db.commit()
            nb = marked(assignment, release_nb, result, submissions[student])
            target = classroom / "autograded" / student / assignment.name / f"{assignment.name}.ipynb"
            write_atomically(target, nbformat.writes(nb))


def sentence(result: Result, question: str) -> str:
    """A question's verdict in one line."""
    verdict = result["questions"].get(question)
    if verdict is None:
        return f"Not graded: {result['status']}."
    return f"{WORDS.get(verdict['status'], verdict['status'])}: {verdict['score']:g} of {verdict['points']:g} points."


def marked(assignment: Assignment, release_nb: NotebookNode, result: Result, folder: Path) -> NotebookNode:
    """The released notebook with the student's answers in place, and a verdict under each check; without their outputs."""
    nb = nbformat.from_dict(json.loads(json.dumps(release_nb)))
    theirs = None
    if result["file"]:
        path = next((p for p in sorted(folder.rglob(result["file"])) if p.is_file() and not p.is_symlink()), None)
        theirs = read_submission(path, release_nb)[0] if path else None
    found = sort_cells(theirs, release_nb) if theirs is not None else None
    top = "\n\n".join([f"**Status: {result['status']}.**", *(plain(note) for note in result["notes"])])
    for cell in nb.cells:
        kind = cell.metadata.course["kind"]
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if found is not None and kind == "answer":
            cell.source = found.answers.get(grade_id.removesuffix("-answer"), "")
        elif found is not None and kind == "written":
            # Shown to others as a page, so no HTML of the student's own.
            cell.source = found.written.get(grade_id, "").replace("&", "&amp;").replace("<", "&lt;")
        elif kind == "check":
            text = report(result["questions"].get(grade_id), result["status"])
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    nb.cells.insert(0, nbformat.v4.new_markdown_cell(top, id="status"))
    return nb


def plain(text: str) -> str:
    """A student's file name or the like, without meaning to Markdown or HTML."""
    return "".join(f"&#{ord(c)};" if c in "<>&*_`[]()!|#$\\" else c for c in text)


def report(verdict: dict[str, Any] | None, status: str) -> str:
    """What a student reads under a check: each line of the rubric, its points, and what to think about. No hidden test."""
    if verdict is None:
        return f"Not graded: {status}.\n"
    head = WORDS.get(verdict["status"], f"not finished ({verdict['status']})")
    lines = [f"{head}: {verdict['score']:g} of {verdict['points']:g} points"]
    lines += [verdict["note"]] if verdict["note"] else []
    for mark in verdict["marks"]:
        lines.append(f"  {mark['score']:g} of {mark['points']:g}  {mark['title']}")
        lines += [f"          {mark['note']}"] if mark["note"] else []
    return "\n".join(lines) + "\n"


def marks(assignment: Assignment, classroom: Path) -> tuple[Path, Path]:
    """Write `marks/ASSIGNMENT.csv` (everything) and `marks/ASSIGNMENT-lms.csv` (student, grade, comment, for an import)."""
    folder = grading_folder(classroom, assignment) / "results"
    results = mark_copies([r for p in sorted(folder.glob("*.json")) if (r := read_result(p)) is not None])
    rows, short = [], []
    with open_gradebook(classroom) as book:
        for result in results:
            scores, waiting = {}, []
            for item in assignment.items:
                grade = book.find_grade(item.id, assignment.name, assignment.name, result["student"])
                scores[item.id] = grade.score
                waiting += [item.id] if grade.needs_manual_grade else []
            total = round(sum(scores.values()), 2)
            row = {"student": result["student"], "status": result["status"], "score": total}
            row |= {"max_score": assignment.points, "waits_for_marking": " ".join(waiting)}
            row |= {"same_answers_as": " ".join(result["same_as"])} | scores
            for question in assignment.questions:
                row[f"{question.id}_status"] = result["questions"].get(question.id, result)["status"]
            rows.append(row)
            lines = [f"{q.title}: {sentence(result, q.id)}" for q in assignment.questions if result["questions"]]
            comment = "\n".join([f"Status: {result['status']}.", *result["notes"], *lines])
            short.append({"student": result["student"], "grade": total, "comment": comment})
    target = classroom / "marks"
    everything = write_atomically(target / f"{assignment.name}.csv", table(rows))
    return everything, write_atomically(target / f"{assignment.name}-lms.csv", table(short))


def open_gradebook(classroom: Path) -> Any:
    """nbgrader's gradebook of this classroom."""
    from nbgrader.api import Gradebook

    warnings.filterwarnings("ignore", module="nbgrader")  # its queries and SQLAlchemy 2
    return Gradebook(f"sqlite:///{(classroom / 'gradebook.db').resolve()}")


def table(rows: list[dict[str, Any]]) -> str:
    """CSV text. A cell that a spreadsheet would take for a formula gets an apostrophe."""
    out = io.StringIO(newline="")
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            risky = {k: f"'{v}" for k, v in row.items() if isinstance(v, str) and v.startswith(FORMULA)}
            writer.writerow(row | risky)
    return out.getvalue()
