"""Grades a class: two submissions at a time, each in a process of its own. What is done stays done when the batch is ended."""

import json
import os
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from course.notebook import read_source, reference_names
from course.questions import Assignment, draw_cases
from course.sandbox import choose
from course.submission import key_of, pack_cases
from course.surroundings import LIBRARY
from plm.files import write_atomically

Result = dict[str, Any]
OURS = "The grader failed, which says nothing about what was handed in. It has to be graded again."


def grading_folder(classroom: Path, assignment: Assignment) -> Path:
    """Where seed, cases and results of an assignment lie. Only its owner can read it."""
    folder = classroom / "grading" / assignment.name
    (folder / "results").mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def prepare(folder: Path, assignment: Assignment, fresh: bool) -> str:
    """The batch's secret seed and its cases; made once, and again when `fresh` or when the assignment has changed."""
    seed_file, cases_file = folder / "seed", folder / "cases.bin"
    if fresh or not seed_file.exists():
        write_atomically(seed_file, secrets.token_hex(16))
    seed = seed_file.read_text(encoding="utf-8").strip()
    made_for = key_of(assignment, folder / "none", seed)
    if not cases_file.exists() or (folder / "cases.key").read_text(encoding="utf-8") != made_for:
        drawn = draw_cases(assignment, seed, reference_names(read_source(assignment)))
        cases_file.write_bytes(pack_cases(drawn))
        write_atomically(folder / "cases.key", made_for)
    return seed


def students(submissions: Path, assignment: Assignment, roster: list[str]) -> dict[str, Path]:
    """Each student's folder: SUBMISSIONS/STUDENT/ASSIGNMENT if there is one, else SUBMISSIONS/STUDENT, be it there or not."""
    found = {p.name: p for p in sorted(submissions.iterdir()) if real_folder(p) and not p.name.startswith(".")}
    for name in [*found, *roster]:
        inner = submissions / name / assignment.name
        found[name] = inner if real_folder(inner) else submissions / name
    return dict(sorted(found.items()))


def real_folder(path: Path) -> bool:
    """Whether this is a folder and no link, which could lead to the solutions."""
    return path.is_dir() and not path.is_symlink()


def grade_class(
    assignment: Assignment,
    submissions: Path,
    classroom: Path,
    roster: list[str] | None = None,
    isolation: str = "auto",
    jobs: int = 2,
    patience: float = 1,
    fresh: bool = False,
    say: Callable[[str], None] = print,
) -> list[Result]:
    """Grade all submissions, skipping those whose result is there already, and return every student's result."""
    isolation = choose(isolation)
    folder = grading_folder(classroom, assignment)
    seed = prepare(folder, assignment, fresh)
    waiting = students(submissions, assignment, roster or [])
    say(f"{assignment.name}: {len(waiting)} students, {jobs} at a time, isolation: {isolation}")

    def one(student: str) -> Result:
        out = folder / "results" / f"{student}.json"
        key = key_of(assignment, waiting[student], seed)
        old = read_result(out)
        if old is not None and old["key"] == key:
            return old
        command = [sys.executable, "-m", "course.submission", "--assignment", assignment.name, "--student", student]
        command += ["--folder", str(waiting[student]), "--cases", str(folder / "cases.bin"), "--key", key]
        command += ["--out", str(out), "--isolation", isolation, "--patience", str(patience)]
        command += ["--batch", str(os.getpid())]
        path = os.pathsep.join([str(LIBRARY), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        out.unlink(missing_ok=True)
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        result = read_result(out)
        if result is None:  # the grader itself failed; nothing is said about the student
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            result = {"assignment": assignment.name, "student": student, "status": "grader error", "error": last}
            result |= {"notes": [OURS], "key": "", "questions": {}, "written": {}, "fingerprint": "", "file": ""}
            result |= {"score": 0, "points": 0}
            write_atomically(out, json.dumps(result, indent=1) + "\n")  # in the tables; without a key it is graded anew
        say(
            f"  {student}: {result['status']}, {result['score']:g}"
            + (f" ({result['error']})" if "error" in result else "")
        )
        return result

    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(one, waiting))
    return mark_copies(results)


def read_result(path: Path) -> Result | None:
    """A result that was written whole, or None."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
    except (OSError, ValueError):
        return None


def mark_copies(results: list[Result]) -> list[Result]:
    """Say of each submission which others have the same answers. The score stays: what it means is for a person to decide."""
    owners = Counter(r["fingerprint"] for r in results if r["fingerprint"])
    for result in results:
        same = [r["student"] for r in results if r["fingerprint"] == result["fingerprint"] and r is not result]
        result["same_as"] = same if owners[result["fingerprint"]] > 1 else []
    return results
