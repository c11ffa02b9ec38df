"""The commands of the course: release, collect, grade, feedback, marks, guide, check. `make` calls them; see TEACHING.md."""

import argparse
import sys
from pathlib import Path

from course.check import check_all
from course.gradebook import marks, release
from course.guide import sheet
from course.questions import assignments, load_assignment
from course.teacher import collect, feedback, grade
from plm.files import write_atomically


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m course", description=__doc__)
    parser.add_argument("command", choices=["release", "collect", "grade", "feedback", "marks", "guide", "check"])
    parser.add_argument("assignment", nargs="*", help="beginnings of names, such as 03; all when left out")
    parser.add_argument(
        "--except", dest="left_out", nargs="*", default=[], help="beginnings of names that are left out"
    )
    parser.add_argument("--classroom", type=Path, default=Path("classroom"))
    parser.add_argument("--submissions", type=Path, help="holds one folder for each student")
    parser.add_argument(
        "--archive", type=Path, default=Path(), help="holds a file STUDENT_ASSIGNMENT.ipynb for each student"
    )
    parser.add_argument("--isolation", default="auto", choices=["auto", "bwrap", "namespaces", "limits"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--patience", type=float, default=1.0, help="waiting time on a busy machine, as a factor")
    parser.add_argument("--fresh", action="store_true", help="draw new hidden inputs and grade all anew")
    options = parser.parse_args(arguments)
    classroom = options.classroom.resolve()
    submissions = options.submissions or classroom / "submitted"
    chosen = [load_assignment(name) for name in options.assignment or assignments()]
    left_out = [load_assignment(name).name for name in options.left_out]
    chosen = [assignment for assignment in chosen if assignment.name not in left_out]
    how = (options.isolation, options.jobs, options.patience)
    if options.command == "check":
        return check_all(chosen, *how)
    for assignment in chosen:
        if options.command == "release":
            print(f"written: {release(assignment, classroom)}")
        elif options.command == "collect":
            print(f"collected: {collect(assignment, classroom, options.archive)}")
        elif options.command == "grade":
            grade(assignment, classroom, submissions, *how, options.fresh)
        elif options.command == "feedback":
            feedback(assignment, classroom)
            print(f"written: {classroom / 'feedback'}/STUDENT/{assignment.name}/{assignment.name}.html")
        elif options.command == "guide":
            text = sheet(assignment)
            print(f"written: {write_atomically(classroom / 'guide' / f'{assignment.name}.md', text)}")
        else:
            print("\n".join(f"written: {path}" for path in marks(assignment, classroom)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
