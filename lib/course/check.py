"""The check of the assignments: author, release, collect, grade and give feedback for the fake class, and compare every mark.

`make check-assignments` calls it. It goes the way of a teacher (`teacher.py`) in a classroom of its own, looks at what the
teacher and the students then hold in their hands, and ends with a table of all marks.
"""

import csv
import html
import re
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from course.attacks import hostile
from course.batch import Result
from course.damage import broken
from course.fakes import Fake, notebook_of, usual
from course.gradebook import release, report
from course.notebook import read_source
from course.questions import Assignment
from course.sandbox import choose
from course.teacher import collect, feedback, grade

LONG = 12  # characters: shorter lines of code say nothing of where they come from


@dataclass
class Checked:
    """An assignment's fake class, what came out, and what is not as declared."""

    assignment: Assignment
    fakes: list[Fake] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


def check_assignment(
    assignment: Assignment,
    classroom: Path,
    isolation: str = "auto",
    jobs: int = 2,
    patience: float = 1,
    say: Callable[[str], None] = print,
) -> Checked:
    """Go the whole way with the fake class of an assignment; what stops on the way is a fault like any other."""
    checked, started = Checked(assignment), time.monotonic()
    try:
        isolation = choose(isolation)
        handed_out = release(assignment, classroom).read_text(encoding="utf-8")
        if "SOLUTION" in handed_out or hidden_lines(assignment, handed_out):
            checked.faults.append("the released notebook holds solutions or hidden tests")
        archive = classroom / "handed-in.zip"
        checked.fakes = hand_in(assignment, classroom / "submitted", isolation != "limits", archive)
        collected = collect(assignment, classroom, archive)
        if isolation == "limits":
            checked.notes.append("Without isolation no hostile submission was tried.")
        results = grade(assignment, classroom, collected, isolation, jobs, patience, say=say)
        checked.results = {r["student"]: r for r in results}
        feedback(assignment, classroom)
        checked.faults += compare(assignment, checked.fakes, results)
        checked.faults += compare_tables(assignment, checked.fakes, classroom)
        checked.faults += [fault for fake in checked.fakes for fault in page_faults(assignment, fake, classroom)]
    except (Exception, SystemExit) as error:
        checked.faults.append(f"the check stopped: {type(error).__name__}: {error}")
    checked.seconds = time.monotonic() - started
    return checked


def hand_in(assignment: Assignment, folder: Path, attacks: bool = True, archive: Path | None = None) -> list[Fake]:
    """Write the whole fake class into `folder`, in each of the two ways in which submissions may lie there; with an archive,
    half of the undamaged ones come in that.
    """
    source = read_source(assignment)
    fakes = usual(assignment) + (hostile(assignment, source) if attacks else [])
    packed = {}
    for k, fake in enumerate(fakes):
        text = nbformat.writes(notebook_of(source, fake))
        if archive is not None and k % 2:
            packed[f"{fake.name}_{assignment.name}.ipynb"] = text
            continue
        path = folder / fake.name / (assignment.name if k % 4 else "") / f"{assignment.name}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    if archive is not None:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for name, text in packed.items():
                file.writestr(name, text)
    return fakes + broken(assignment, source, folder)


def compare(assignment: Assignment, fakes: list[Fake], results: list[Result]) -> list[str]:
    """What the grader says and what is declared: status, points, each question's status and words."""
    by_name, faults = {r["student"]: r for r in results}, []
    for fake in fakes:
        result = by_name[fake.name]
        if result["status"] != fake.status:
            faults.append(
                f"{fake.name}: status {result['status']!r}, declared is {fake.status!r} ({result.get('error', '')})"
            )
        for question in assignment.questions:
            verdict = result["questions"].get(
                question.id, {"score": 0, "status": result["status"], "marks": [], "note": ""}
            )
            want = fake.marks.get(question.id, question.points)
            if verdict["score"] != want:
                lines = [f"{m['title']}: {m['score']:g} of {m['points']:g} {m['note']}" for m in verdict["marks"]]
                faults.append(
                    f"{fake.name}, {question.id}: {verdict['score']:g} points, not {want:g}. {verdict['note']} {lines}"
                )
            states = fake.states.get(question.id, verdict["status"])
            if verdict["status"] not in states.split(" or "):
                faults.append(
                    f"{fake.name}, {question.id}: status {verdict['status']!r}, not {states!r}. {verdict['note']}"
                )
            text = report(result["questions"].get(question.id), result["status"])
            if not re.search(fake.says.get(question.id, ""), text):
                faults.append(f"{fake.name}, {question.id}: nobody says {fake.says[question.id]!r} in {text!r}")
    return faults


def declared(assignment: Assignment, fake: Fake) -> float:
    """The points of all questions together."""
    return sum(fake.marks.get(q.id, q.points) for q in assignment.questions)


def compare_tables(assignment: Assignment, fakes: list[Fake], classroom: Path) -> list[str]:
    """What the teacher's two tables say, and what is declared."""
    faults = []
    for end, column in (("", "score"), ("-lms", "grade")):
        path = classroom / "marks" / f"{assignment.name}{end}.csv"
        with open(path, encoding="utf-8", newline="") as file:
            rows = {row["student"]: float(row[column]) for row in csv.DictReader(file)}
        wanted = {fake.name: declared(assignment, fake) for fake in fakes}
        for name in sorted({*rows, *wanted}):
            if rows.get(name) != wanted.get(name):
                faults.append(f"{name}: {path.name} says {rows.get(name)}, declared is {wanted.get(name)}")
    return faults


def page_faults(assignment: Assignment, fake: Fake, classroom: Path) -> list[str]:
    """What is wrong with a student's feedback page: it is there, says the status, and tells no hidden test."""
    path = classroom / "feedback" / fake.name / assignment.name / f"{assignment.name}.html"
    if not path.exists():
        return [f"{fake.name}: no feedback page"]
    text = html.unescape(re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8")))
    faults = [] if f"Status: {fake.status}" in text else [f"{fake.name}: the page does not say {fake.status!r}"]
    return faults + [f"{fake.name}: the page holds {line!r}" for line in hidden_lines(assignment, text)]


def hidden_lines(assignment: Assignment, text: str) -> list[str]:
    """Lines of code of the hidden tests that stand in `text` and that the assignment's own text does not have."""
    public = (assignment.folder / "assignment.md").read_text(encoding="utf-8")
    lines = {line.strip() for line in (assignment.folder / "grading.py").read_text(encoding="utf-8").splitlines()}
    code = {
        line for line in lines if len(line) > LONG and line.startswith(("return ", "def ", "for ", "assert ", "if "))
    }
    return sorted(line for line in code if line in text and line not in public)


def table(checked: Checked) -> str:
    """All marks of an assignment: a line for each submission, what differs marked with what was declared."""
    questions = checked.assignment.questions
    lines = ["".join([f"{'submission':28}{'kind':9}", *(f"{q.id:>9}" for q in questions), f"{'score':>9}  status"])]
    for fake in checked.fakes:
        result = checked.results.get(fake.name, {"questions": {}, "score": 0, "status": "not graded"})
        cells = []
        for question in questions:
            got = result["questions"].get(question.id, {"score": 0})["score"]
            want = fake.marks.get(question.id, question.points)
            cells.append(f"{got:g}" if got == want else f"{got:g} NOT {want:g}")
        status = result["status"] if result["status"] == fake.status else f"{result['status']} NOT {fake.status}"
        row = [f"{fake.name:28}{fake.kind:9}", *(f"{cell:>9}" for cell in cells), f"{result['score']:>9g}  {status}"]
        lines.append("".join(row))
    return "\n".join(lines)


def check_all(
    chosen: list[Assignment], isolation: str = "auto", jobs: int = 2, patience: float = 1, folder: Path | None = None
) -> int:
    """Check these assignments, each in a classroom of its own; go on after one that fails. Returns the exit code."""
    done = []
    for assignment in chosen:
        with tempfile.TemporaryDirectory(dir=folder) as classroom:
            checked = check_assignment(assignment, Path(classroom), isolation, jobs, patience, say=lambda _: None)
        done.append(checked)
        print("\n".join([f"\n== {assignment.name}", table(checked), *checked.notes]), flush=True)
    print(f"\n{'assignment':28}{'submissions':>12}{'marks':>7}{'faults':>8}{'seconds':>9}")
    for checked in done:
        n = len(checked.fakes)
        counts = f"{n:>12}{n * len(checked.assignment.questions):>7}{len(checked.faults):>8}{checked.seconds:>9.0f}"
        print(f"{checked.assignment.name:28}{counts}")
    for checked in done:
        for fault in checked.faults:
            print(f"{checked.assignment.name}: {fault}")
    return int(any(checked.faults for checked in done))
