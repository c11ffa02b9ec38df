"""Submissions that are damaged, renamed, copied or incomplete, made from an assignment's solution, with what each has to get."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode

from course.fakes import Fake, answered, handful, hijacked, left_out, notebook_of
from course.notebook import LARGEST
from course.questions import Assignment

Cells = dict[str, NotebookNode]  # by grade_id
Change = Callable[
    [NotebookNode, Cells, str], None
]  # of a right notebook: (notebook, its cells, the question that suffers)


def _another(nb: NotebookNode, cells: Cells, target: str) -> None:
    nb.metadata.course.assignment = "99_another"


def _nothing_known(nb: NotebookNode, cells: Cells, target: str) -> None:
    nb.metadata = NotebookNode()
    for cell in nb.cells:
        cell.metadata = NotebookNode()


def _deleted(nb: NotebookNode, cells: Cells, target: str) -> None:
    nb.cells.remove(cells[f"{target}-answer"])


def _now_text(nb: NotebookNode, cells: Cells, target: str) -> None:
    cell = cells[f"{target}-answer"]
    nb.cells[nb.cells.index(cell)] = nbformat.v4.new_markdown_cell(cell.source, id=cell.id, metadata=cell.metadata)


def _empty_answer(nb: NotebookNode, cells: Cells, target: str) -> None:
    cells[f"{target}-answer"].source = ""


def _raises(nb: NotebookNode, cells: Cells, target: str) -> None:
    cell = cells[f"{target}-answer"]
    cell.source = hijacked(cell.source, "raise KeyError('a word')")


def _imports(nb: NotebookNode, cells: Cells, target: str) -> None:
    cell = cells[f"{target}-answer"]
    cell.source = "import a_package_of_mine\n\n" + cell.source


def _no_checks(nb: NotebookNode, cells: Cells, target: str) -> None:
    nb.cells = [c for c in nb.cells if not c.metadata.get("nbgrader", {}).get("grade") or c.cell_type != "code"]


def _twice(nb: NotebookNode, cells: Cells, target: str, wrong: int) -> None:
    cell = cells[f"{target}-answer"]
    copy = nbformat.from_dict(json.loads(json.dumps(cell)) | {"id": "copy-of-answer"})
    nb.cells.insert(nb.cells.index(cell) + 1, copy)
    (cell, copy)[wrong].source = hijacked(cell.source, "return 'wrong'")


def _own_check(nb: NotebookNode, cells: Cells, target: str) -> None:
    nb.cells.insert(3, nbformat.from_dict(json.loads(json.dumps(cells[target])) | {"id": "copy-of-check"}))
    cells[target].source = "score = 100"
    cells[target].metadata.nbgrader.points = 100


def _helper(nb: NotebookNode, cells: Cells, target: str) -> None:
    cell = cells[f"{target}-answer"]
    helper = "%matplotlib inline\n!ls\nHELPER = 1\nprint(undefined_name)"
    nb.cells.insert(nb.cells.index(cell), nbformat.v4.new_code_cell(helper))
    cell.source = "assert HELPER == 1\n" + cell.source


def _no_ids(nb: NotebookNode, cells: Cells, target: str) -> None:
    for cell in nb.cells:
        del cell["id"]
    nb.nbformat_minor = 4


class Damage(NamedTuple):
    """What was done to a right notebook, the status that its question gets, and words that the student has to read."""

    change: Change
    state: str
    says: str = ""


CHANGES: dict[str, Damage] = {
    "deleted-answer": Damage(_deleted, "no answer cell", "not in the notebook"),
    "answer-turned-into-text": Damage(_now_text, "no answer cell", "no code cell any more"),
    "emptied-answer": Damage(_empty_answer, "error", "is not defined"),
    "raises": Damage(_raises, "error", "KeyError: 'a word'"),
    "imports-what-is-not-there": Damage(_imports, "error", "No module named 'a_package_of_mine'"),
    "answer-twice-right-last": Damage(partial(_twice, wrong=0), "right"),
    "answer-twice-wrong-last": Damage(partial(_twice, wrong=1), "wrong or error"),
    "check-copied-and-changed": Damage(_own_check, "right"),
    "deleted-checks": Damage(_no_checks, "right"),
    "helper-cell": Damage(_helper, "right"),
    "no-cell-ids": Damage(_no_ids, "right"),
}
# Right notebooks that do not say which assignment they are.
STRANGERS: dict[str, Change] = {"other-assignment": _another, "nothing-known-of-it": _nothing_known}
# Files that are no notebook, from the text of a right one.
UNREADABLE: dict[str, Callable[[str], str | bytes]] = {
    "empty-file": lambda text: "",
    "cut-off": lambda text: text[:3000],
    "no-notebook": lambda text: "My dog ate it.",
    "no-text": lambda text: b"\x80\x02\xff\xfe" + text.encode("utf-16"),
    "null": lambda text: "null",
    "cells-that-are-none": lambda text: '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [3, null]}',
    "brackets-without-end": lambda text: "[" * 100_000,
    "huge": lambda text: text + " " * LARGEST,
}
# Where a right notebook lies, and the submission's status.
PLACES = {
    "missing": "missing",
    "renamed": "renamed",
    "two-copies": "ambiguous",
    "copied": "graded",
    "linked": "missing",
    "linked-folder": "missing",
}


def place(name: str, folder: Path, file: str, text: str) -> None:
    """Hand in a right notebook (or none) in this way: `folder` is the student's, `file` what it should be called."""
    folder.mkdir(parents=True)
    files = {"renamed": [file.replace(".ipynb", " (1).ipynb")], "two-copies": ["final.ipynb", "final2.ipynb"]}
    for each in files.get(name, [file] if name == "copied" else []):
        (folder / each).write_text(text, encoding="utf-8")
    if name.startswith("linked"):
        elsewhere = folder.parents[1] / "not-theirs" / name
        elsewhere.mkdir(parents=True, exist_ok=True)
        (elsewhere / file).write_text(text, encoding="utf-8")
        if name == "linked":
            os.symlink(elsewhere / file, folder / file)
        else:
            os.symlink(elsewhere, folder / file.removesuffix(".ipynb"))


def broken(assignment: Assignment, source: NotebookNode, folder: Path) -> list[Fake]:
    """Write the broken submissions of an assignment's fake class into `folder`; returns what each has to get."""
    target, rest = answered(assignment)[0], left_out(assignment)
    less, nothing = dict.fromkeys(rest, 0.0), {q.id: 0.0 for q in assignment.questions}
    text = nbformat.writes(notebook_of(source, Fake("good", less, answers=rest)))
    file, fakes = f"{assignment.name}.ipynb", []
    for name in handful([*PLACES, *UNREADABLE, *STRANGERS, *CHANGES], assignment):
        if name in PLACES:
            place(name, folder / name, file, text)
            marks = less if name in ("renamed", "copied") else nothing
            fakes.append(Fake(name, marks, status=PLACES[name], kind="broken"))
            continue
        if name in UNREADABLE:
            content = UNREADABLE[name](text)
            fakes.append(Fake(name, nothing, status="corrupt", kind="broken"))
        else:
            nb = nbformat.reads(text, as_version=4)
            cells = {c.metadata.nbgrader.grade_id: c for c in nb.cells if "nbgrader" in c.metadata}
            if name in STRANGERS:
                STRANGERS[name](nb, cells, target)
                fakes.append(Fake(name, nothing, status="other assignment", kind="broken"))
            else:
                change, state, says = CHANGES[name]
                change(nb, cells, target)
                marks = less if state == "right" else {**less, target: 0}
                fakes.append(Fake(name, marks, states={target: state}, says={target: says}, kind="broken"))
            content = nbformat.writes(nb)
        (folder / name).mkdir(parents=True)
        (folder / name / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    return fakes
