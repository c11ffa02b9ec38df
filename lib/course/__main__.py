"""The course's commands: release, grade, feedback, marks, guide, check. `make` calls them; assignments/AUTHORING.md says more."""

import argparse
import shutil
import sys
from pathlib import Path

from course.batch import grade_class, students
from course.fakes import check_assignment
from course.gradebook import marks, nbgrader, record, release
from course.guide import sheet
from course.questions import Assignment, assignments, load_assignment
from plm.files import write_atomically


def roster(classroom: Path) -> list[str]:
    """The students of `classroom/students.txt`, one id a line, if there is such a file."""
    path = classroom / "students.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line.split(",")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def do_grade(assignment: Assignment, options: argparse.Namespace) -> None:
    """Grade, and put the marks where nbgrader and the teacher find them."""
    classroom, submissions = options.classroom, options.submissions or options.classroom / "submitted"
    if not submissions.is_dir():
        raise SystemExit(
            f"there is no folder {submissions}: SUBMISSIONS is a folder that holds one folder for each student"
        )
    if not (classroom / "release" / assignment.name).is_dir():
        release(assignment, classroom)
    names = roster(classroom)
    results = grade_class(
        assignment, submissions, classroom, names, options.isolation, options.jobs, options.patience, options.fresh
    )
    record(assignment, results, students(submissions, assignment, names), classroom)
    for path in marks(assignment, classroom):
        print(f"written: {path}")


def do_feedback(assignment: Assignment, classroom: Path) -> None:
    """nbgrader's feedback pages, with what a person has marked meanwhile."""
    shutil.rmtree(classroom / "feedback" / assignment.name, ignore_errors=True)
    nbgrader(classroom, "generate_feedback", assignment.name, "--force")
    marks(assignment, classroom)
    print(f"written: {classroom / 'feedback'}/STUDENT/{assignment.name}/{assignment.name}.html")


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m course", description=__doc__)
    parser.add_argument("command", choices=["release", "grade", "feedback", "marks", "guide", "check"])
    parser.add_argument("assignment", nargs="*", help="beginnings of names, such as 03; all when left out")
    parser.add_argument("--classroom", type=Path, default=Path("classroom"))
    parser.add_argument("--submissions", type=Path, help="holds one folder for each student")
    parser.add_argument("--isolation", default="auto", choices=["auto", "bwrap", "namespaces", "limits"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--patience", type=float, default=1.0, help="waiting time on a busy machine, as a factor")
    parser.add_argument("--fresh", action="store_true", help="draw new hidden inputs and grade all anew")
    options = parser.parse_args(arguments)
    options.classroom = options.classroom.resolve()
    for name in options.assignment or assignments():
        assignment = load_assignment(name)
        if options.command == "release":
            print(f"written: {release(assignment, options.classroom)}")
        elif options.command == "grade":
            do_grade(assignment, options)
        elif options.command == "feedback":
            do_feedback(assignment, options.classroom)
        elif options.command == "guide":
            text = sheet(assignment)
            print(f"written: {write_atomically(options.classroom / 'guide' / f'{assignment.name}.md', text)}")
        elif options.command == "marks":
            print("\n".join(f"written: {path}" for path in marks(assignment, options.classroom)))
        elif faults := check_assignment(assignment, options.isolation, options.patience, options.jobs):
            print("\n".join(faults))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
