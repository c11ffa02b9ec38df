"""What a teacher does with a class: who is in it, what it hands in, marks, feedback. The commands and their check call this."""

import shutil
from collections.abc import Callable
from pathlib import Path

from course.batch import Result, grade_class, students
from course.gradebook import marks, nbgrader, record, release
from course.questions import Assignment


def roster(classroom: Path) -> list[str]:
    """The students of `classroom/students.txt`, one id a line, if there is such a file."""
    path = classroom / "students.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line.split(",")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def collect(assignment: Assignment, classroom: Path, archive: Path) -> Path:
    """Let nbgrader unpack an archive of files STUDENT_ASSIGNMENT.ipynb into the classroom's `submitted`; returns that."""
    if not archive.is_file():
        raise SystemExit(f"{archive} is no file: ARCHIVE is a zip file with a notebook for each student")
    target = classroom / "downloaded" / assignment.name / "archive"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    shutil.copy(archive, target)
    nbgrader(classroom, "zip_collect", assignment.name, "--force")
    return classroom / "submitted"


def grade(
    assignment: Assignment,
    classroom: Path,
    submissions: Path,
    isolation: str = "auto",
    jobs: int = 2,
    patience: float = 1,
    fresh: bool = False,
    say: Callable[[str], None] = print,
) -> list[Result]:
    """Grade, and put the marks where nbgrader and the teacher find them."""
    if not submissions.is_dir():
        raise SystemExit(
            f"there is no folder {submissions}: SUBMISSIONS is a folder that holds one folder for each student"
        )
    if not (classroom / "release" / assignment.name).is_dir():
        release(assignment, classroom)
    names = roster(classroom)
    results = grade_class(assignment, submissions, classroom, names, isolation, jobs, patience, fresh, say)
    record(assignment, results, students(submissions, assignment, names), classroom)
    for path in marks(assignment, classroom):
        say(f"written: {path}")
    return results


def feedback(assignment: Assignment, classroom: Path) -> None:
    """nbgrader's feedback pages, with what a person has marked meanwhile."""
    shutil.rmtree(classroom / "feedback" / assignment.name, ignore_errors=True)
    nbgrader(classroom, "generate_feedback", assignment.name, "--force")
    marks(assignment, classroom)
