"""Grades one submission, in a process of its own: `python -m course.submission`. Its result is one JSON file."""

import argparse
import ctypes
import json
import os
import signal
import sys
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from course.judge import grade_question
from course.notebook import (
    LARGEST,
    WRITE_HERE,
    find_notebook,
    fingerprint,
    read_source,
    read_submission,
    released,
    sort_cells,
)
from course.questions import Assignment, Case, load_assignment
from course.values import decode, encode
from plm.files import write_atomically

NOTES = {
    "missing": "No notebook was handed in.",
    "ambiguous": "Several notebooks were handed in and none is called {name}.ipynb, so none was graded: {files}.",
    "corrupt": "{files} could not be read as a notebook. It may have been cut off on its way; please hand it in again.",
    "other assignment": "{files} is the notebook of another assignment, or has lost its answer cells.",
    "renamed": "The notebook was expected as {name}.ipynb and came as {files}. It was graded all the same.",
}


def pack_cases(cases: dict[str, list[list[Case]]]) -> bytes:
    """The drawn cases as bytes, for the processes that grade."""
    return encode({q: [[asdict(one) for one in part] for part in parts] for q, parts in cases.items()})


def unpack_cases(data: bytes, tensors: bool = False) -> dict[str, list[list[Case]]]:
    """The drawn cases again. tensors: inputs that were tensors are tensors; what judges compare is arrays in any case."""
    plain = decode(data)
    cases = {q: [[Case(**one) for one in part] for part in parts] for q, parts in plain.items()}
    for q, parts in decode(data, tensors=True).items() if tensors else ():
        for drawn, given in zip(cases[q], parts):
            for one, other in zip(drawn, given):
                one.inputs = other["inputs"]
    return cases


def key_of(assignment: Assignment, folder: Path, seed: str) -> str:
    """Changes when the submission, the assignment or the seed does: a result with the same key need not be made again."""
    digest = sha256(seed.encode())
    for path in sorted([*assignment.folder.rglob("*.*"), *folder.rglob("*.ipynb")]):
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts:
            size = path.stat().st_size
            digest.update(f"{path.name} {size} ".encode() + (path.read_bytes() if size <= LARGEST else b""))
    return digest.hexdigest()[:16]


def grade(
    assignment: Assignment,
    release: NotebookNode,
    folder: Path,
    cases: dict[str, list[list[Case]]],
    kind: str,
    patience: float = 1,
) -> dict[str, Any]:
    """Everything that is to be said of a submission: its status, each question's verdict, what waits for a person."""
    path, status = find_notebook(folder, assignment.name)
    nb = None
    if path is not None:
        nb, trouble = read_submission(path, release)
        status = trouble or status
    files = ", ".join(sorted(p.name for p in folder.rglob("*.ipynb"))) if folder.is_dir() else ""
    result: dict[str, Any] = {
        "assignment": assignment.name,
        "student": "",
        "status": status,
        "notes": [],
        "questions": {},
    }
    if status in NOTES:
        result["notes"].append(NOTES[status].format(name=assignment.name, files=files))
    result |= {
        "written": {w.id: "missing" for w in assignment.written},
        "fingerprint": "",
        "file": path.name if path else "",
    }
    if nb is not None:
        stubs = {c.metadata.nbgrader.grade_id: c.source for c in release.cells if c.metadata.course["kind"] == "answer"}
        found = sort_cells(nb, release)
        result["notes"] += found.notes
        result["fingerprint"] = fingerprint(found, release)
        for question in assignment.questions:
            stub = stubs[f"{question.id}-answer"]
            verdict = grade_question(assignment, question, found, stub, cases[question.id], kind, patience)
            result["questions"][question.id] = verdict.as_dict()
        for item in assignment.written:
            text = found.written.get(item.id, "").strip()
            result["written"][item.id] = "empty" if text in ("", WRITE_HERE) else "to mark"
    result["score"] = round(sum(v["score"] for v in result["questions"].values()), 2)
    result["points"] = sum(q.points for q in assignment.questions)
    return result


def end_with(batch: int) -> None:
    """Let the kernel end this process as soon as the batch that started it has gone, however it went: the next batch will
    grade this submission anew, and nobody should do so twice. prctl(2), on Linux only.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != batch:  # it went before it could be asked
            sys.exit(1)


def main(arguments: list[str] | None = None) -> int:
    """Command line, used by `course.batch`."""
    parser = argparse.ArgumentParser(prog="python -m course.submission", description=__doc__)
    for name in ("assignment", "student", "folder", "cases", "key", "out", "isolation"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--patience", type=float, default=1.0)
    parser.add_argument("--batch", type=int, required=True, help="process id of the batch, with which this one ends")
    options = parser.parse_args(arguments)
    end_with(options.batch)
    assignment = load_assignment(options.assignment)
    release = released(read_source(assignment))
    cases = unpack_cases(Path(options.cases).read_bytes(), any(q.tensors for q in assignment.questions))
    result = grade(assignment, release, Path(options.folder), cases, options.isolation, options.patience)
    write_atomically(
        Path(options.out), json.dumps(result | {"student": options.student, "key": options.key}, indent=1) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
