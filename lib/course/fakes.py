"""The fake class: submissions whose marks are known, so that the grading itself is tested.

Each assignment declares its typical wrong answers in `fake_class.py`. The reference, an empty submission, the hostile
(`attacks.py`) and the broken ones (`damage.py`) are made from its solution, so nobody keeps them by hand.
"""

import ast
import json
from dataclasses import dataclass, field
from textwrap import indent

import nbformat
from nbformat import NotebookNode

from course.notebook import read_source, released
from course.questions import Assignment, assignments, load_module

QUICK = 10  # seconds: questions that have more are left out of hostile and broken submissions
WHOLE = "03_recurrent"  # the assignment whose fake class has every hostile and every broken submission


@dataclass(frozen=True)
class Fake:
    """A submission: the reference solution with other answers in some questions, and what it has to get.

    answers: question -> the whole cell; edits: question -> (old, new), replaced in the solution. marks: question -> points, where
    they are not full. why: what the student has not understood, for the teacher's guide. states: question -> status, of several
    "one or other". says: question -> words that its feedback has to hold. kind: good, empty, wrong, hostile or broken.
    """

    name: str
    marks: dict[str, float]
    why: str = ""
    answers: dict[str, str] = field(default_factory=dict)
    edits: dict[str, tuple[str, str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    says: dict[str, str] = field(default_factory=dict)
    status: str = "graded"
    kind: str = "wrong"


def notebook_of(source: NotebookNode, fake: Fake) -> NotebookNode:
    """The notebook that this student hands in."""
    nb, stubs = nbformat.from_dict(json.loads(json.dumps(source))), released(source)
    for cell, stub in zip(nb.cells, stubs.cells):
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "").removesuffix("-answer")
        if cell.metadata.course["kind"] == "written":
            cell.source = stub.source
        elif cell.metadata.course["kind"] == "answer":
            if name in fake.edits:
                old, new = fake.edits[name]
                if cell.source.count(old) != 1:
                    raise ValueError(f"{fake.name}: {old!r} is not once in the solution of {name}")
                cell.source = cell.source.replace(old, new)
            cell.source = fake.answers.get(name, cell.source) or stub.source
    return nb


def usual(assignment: Assignment) -> list[Fake]:
    """The reference, what is empty in two ways (points only for what was done), and the assignment's typical wrong answers."""
    empty, source = {q.id: "" for q in assignment.questions}, read_source(assignment)
    fakes = [
        Fake("reference", {}, kind="good"),
        Fake(
            "empty",
            dict.fromkeys(empty, 0),
            answers=empty,
            states=dict.fromkeys(empty, "untouched"),
            says=dict.fromkeys(empty, "Not answered"),
            kind="empty",
        ),
        Fake(
            "returns-nothing",
            dict.fromkeys(empty, 0),
            answers={q: hijacked(solution(source, q), "return None") for q in empty},
            kind="empty",
        ),
    ]
    path = assignment.folder / "fake_class.py"
    return [*fakes, *load_module(path).FAKES]


def answered(assignment: Assignment) -> list[str]:
    """The questions that hostile and broken submissions answer: the quick ones, or the two that may take the least time.

    The first is the one that is attacked; the others have to keep their points.
    """
    quick = [q.id for q in assignment.questions if q.cpu <= QUICK]
    return quick if len(quick) > 1 else [q.id for q in sorted(assignment.questions, key=lambda q: q.cpu)[:2]]


def left_out(assignment: Assignment) -> dict[str, str]:
    """The other questions, as answers of a fake: nothing was written there."""
    return {q.id: "" for q in assignment.questions if q.id not in answered(assignment)}


def solution(source: NotebookNode, question: str) -> str:
    """The reference's answer cell."""
    return next(
        str(c.source) for c in source.cells if c.metadata.get("nbgrader", {}).get("grade_id") == f"{question}-answer"
    )


def hijacked(code: str, body: str) -> str:
    """Every function and class of `code` replaced by a function with this body, whatever it is called with."""
    names = [n.name for n in ast.parse(code).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return "\n\n".join(
        f"def {name}(*args, **kwargs):\n" + indent(body.replace("{name}", name), "    ") for name in names
    )


def handful(names: list[str], assignment: Assignment) -> list[str]:
    """Which of these submissions an assignment's fake class has: all of them in one, and dealt out in turn among the others."""
    others = [name for name in assignments() if name != WHOLE]
    return names if assignment.name == WHOLE else names[others.index(assignment.name) :: len(others)]
