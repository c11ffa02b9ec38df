"""How long a class takes to grade, and that a batch which is killed in the middle loses nothing and does nothing twice.

    python benchmarks/grading.py                                  # six students, about a minute
    python benchmarks/grading.py --students 60 --assignment 03    # a class: at most half an hour on two free cores

Three of four students hand in everything (the reference), the others make the mistakes of the assignment's fake class in turn.
The batch is killed (SIGKILL, the batch alone) when a third of the results are there, and started again with the same command.
The minutes are those of both runs, with PyTorch's and Python's starts, the gradebook and the tables.
"""

import argparse
import csv
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "lib"))

from course.check import declared  # noqa: E402
from course.fakes import Fake, notebook_of, usual  # noqa: E402
from course.gradebook import release  # noqa: E402
from course.notebook import read_source  # noqa: E402
from course.questions import Assignment, load_assignment  # noqa: E402

GRADED = re.compile(r"^  (\S+): (\w[\w ]*), ([\d.]+)")  # the line that a batch prints for each student it has graded


def hand_in(assignment: Assignment, n: int, folder: Path) -> dict[str, Fake]:
    """Write the submissions of a class of `n`; returns each student's."""
    source = read_source(assignment)
    reference, *others = usual(assignment)
    wrong = [fake for fake in others if fake.kind == "wrong"]
    everybody = {}
    for k in range(n):
        fake = wrong[k // 4 % len(wrong)] if k % 4 == 3 else reference
        path = folder / f"student-{k:03d}" / f"{assignment.name}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(nbformat.writes(notebook_of(source, fake)), encoding="utf-8")
        everybody[path.parent.name] = fake
    return everybody


def results(classroom: Path, assignment: Assignment) -> dict[str, int]:
    """The students whose results are there, and when each was written."""
    folder = classroom / "grading" / assignment.name / "results"
    return {path.stem: path.stat().st_mtime_ns for path in folder.glob("*.json")}


def batch(assignment: Assignment, submissions: Path, classroom: Path, options: argparse.Namespace) -> list[str]:
    """The command that a teacher gives."""
    command = [sys.executable, "-m", "course", "grade", assignment.name, "--classroom", str(classroom)]
    command += ["--submissions", str(submissions), "--jobs", str(options.jobs)]
    return [*command, "--patience", str(options.patience)]


def killed(command: list[str], classroom: Path, assignment: Assignment, enough: int) -> None:
    """Start the batch and kill it, and nothing else, once `enough` results are there."""
    env = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as process:
        while len(results(classroom, assignment)) < enough and process.poll() is None:
            time.sleep(0.05)
        process.kill()


def resumed(command: list[str]) -> dict[str, float]:
    """Run the batch to its end; returns the students that it has graded, and their points."""
    env = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    out = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    return {m[1]: float(m[3]) for line in out.splitlines() if (m := GRADED.match(line))}


def faults(
    wanted: dict[str, float], before: dict[str, int], after: dict[str, int], again: list[str], table: dict[str, float]
) -> list[str]:
    """Who was graded twice, or lost, or has other points than declared.

    before, after: the results at the kill and at the end; again: whom the second batch graded; table: the marks.
    """
    found = [f"graded twice: {s}" for s in sorted(before) if s in again or after.get(s) != before[s]]
    found += [f"lost: {s}" for s in sorted(wanted) if s not in after or s not in table]
    found += [f"{s}: {table[s]:g} points, not {wanted[s]:g}" for s in sorted(table) if table[s] != wanted.get(s)]
    return found


def main() -> int:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=6)
    parser.add_argument("--assignment", default="07")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--patience", type=float, default=1.0)
    options = parser.parse_args()
    assignment = load_assignment(options.assignment)
    with tempfile.TemporaryDirectory() as folder:
        submissions, classroom = Path(folder) / "handed-in", Path(folder) / "classroom"
        everybody = hand_in(assignment, options.students, submissions)
        release(assignment, classroom)
        command = batch(assignment, submissions, classroom, options)
        started = time.monotonic()
        killed(command, classroom, assignment, max(1, options.students // 3))
        before, middle = results(classroom, assignment), time.monotonic()
        again = resumed(command)
        ended = time.monotonic()
        after = results(classroom, assignment)
        with open(classroom / "marks" / f"{assignment.name}.csv", encoding="utf-8", newline="") as file:
            table = {row["student"]: float(row["score"]) for row in csv.DictReader(file)}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    wanted = {student: declared(assignment, fake) for student, fake in everybody.items()}
    complete = sum(fake.kind == "good" for fake in everybody.values())
    print(f"{assignment.name}: {len(everybody)} submissions, {complete} of them complete, {options.jobs} at a time")
    print(f"  until the kill   {(middle - started) / 60:6.1f} minutes, {len(before)} results")
    print(f"  after the kill   {(ended - middle) / 60:6.1f} minutes, {len(again)} results")
    print(f"  together         {(ended - started) / 60:6.1f} minutes")
    print(f"  computing time   {(used.ru_utime + used.ru_stime) / 60:6.1f} minutes, without what was killed")
    wrong = faults(wanted, before, after, list(again), table)
    print("\n".join(wrong) or "  nobody was graded twice, nobody was lost, all marks are as declared")
    return int(bool(wrong) or len(before) + len(again) != len(everybody))


if __name__ == "__main__":
    sys.exit(main())
