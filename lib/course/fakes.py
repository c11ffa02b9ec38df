"""The fake class: submissions whose marks are known, so that the grading itself is tested.

Each assignment declares its typical wrong answers in `fake_class.py`. Hostile and broken submissions are the same everywhere and
are made here from the reference solution; in them only quick questions are answered.
"""

import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent

import nbformat
from nbformat import NotebookNode

from course.batch import Result, grade_class
from course.notebook import read_source, released
from course.questions import Assignment, load_module

QUICK = 10  # seconds: questions that have more are left out of hostile and broken submissions

# Bodies of a function that answers the first question, and the status that each has to get there.
HOSTILE: dict[str, tuple[str, str]] = {
    "always-equal": (
        "class Yes(int):\n    __eq__ = lambda *_: True\n    __hash__ = int.__hash__\nreturn Yes(3)",
        "error",
    ),
    "endless": ("while True: pass", "time"),
    "endless-and-deaf": ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", "time"),
    "ends-python": ("import os\nos._exit(0)", "died"),
    "too-much-memory": ("return bytearray(64 << 30)", "error"),
    "too-deep": ("return {name}(*args, **kwargs)", "error"),
    "crashes": ("import ctypes\nctypes.string_at(0)", "died"),
    "prints-for-ever": ("while True: print('x' * 1000)", "output"),
    "returns-too-much": ("import numpy\nreturn numpy.zeros(12_000_000)", "output"),
    "leaves": ("import sys\nsys.exit()", "error"),
    "asks": ("return input('the answer, please')", "error"),
    "forks": ("import os\nwhile True: os.fork()", "error"),
    "returns-code": ("return lambda: 1", "error"),
    "returns-objects": ("import numpy\nreturn numpy.array([lambda: 1], dtype=object)", "error"),
    "reads-what-it-was-given": ("return In[-1]", "error"),
    "forges": ("import os, sys\nos.write(int(sys.argv[1]), b'\\x05' + bytes(7) + b'right')\nos._exit(0)", "unreadable"),
    "kills": ("import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(os.getppid(), signal.SIGKILL)", "error"),
}
# Code before the function, which then answers nothing: what a shared interpreter would fall for.
HOSTILE_CELLS: dict[str, tuple[str, str]] = {
    "removes-asserts": (
        "import ast\nclass Out(ast.NodeTransformer):\n    visit_Assert = lambda self, node: ast.Pass()\n"
        "get_ipython().ast_transformers.append(Out())",
        "wrong",
    ),
    "patches": (
        "import builtins, numpy\nnumpy.allclose = numpy.array_equal = numpy.isclose = lambda *a, **k: True\n"
        "builtins.all = builtins.any = builtins.isinstance = lambda *a: True",
        "died",
    ),
    "shadows": ("score = points = 100\nprint = exec = len = None", "wrong"),
    "ends-python-at-once": ("import os\nos._exit(1)", "died"),
    "exits-at-once": ("raise SystemExit", "wrong"),
    "does-not-parse": ("def (:", "error"),
}


@dataclass(frozen=True)
class Fake:
    """A submission: the reference solution with other answers in some questions, and what it has to get.

    answers: question -> the whole cell; edits: question -> (old, new), replaced in the solution. marks: question -> points, where
    they are not full. why: what the student has not understood, for the teacher's guide. states: question -> status.
    """

    name: str
    marks: dict[str, float]
    why: str = ""
    answers: dict[str, str] = field(default_factory=dict)
    edits: dict[str, tuple[str, str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    status: str = "graded"


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
    """The reference, an empty submission, and the assignment's typical wrong answers."""
    empty = {q.id: "" for q in assignment.questions}
    fakes = [
        Fake("reference", {}),
        Fake("empty", dict.fromkeys(empty, 0), answers=empty, states=dict.fromkeys(empty, "untouched")),
    ]
    path = assignment.folder / "fake_class.py"
    return [*fakes, *load_module(path).FAKES]


def hostile(assignment: Assignment, source: NotebookNode) -> list[Fake]:
    """Submissions that want to break or to cheat the grader, in the first question; the other quick ones are right."""
    first = assignment.questions[0].id
    solution = next(
        c.source for c in source.cells if c.metadata.get("nbgrader", {}).get("grade_id") == f"{first}-answer"
    )
    found = re.search(r"^def (\w+)", solution, re.MULTILINE)
    assert found, f"the answer of {first} defines no function"
    name, fakes = found[1], []
    slow = {q.id: "" for q in assignment.questions if q.cpu > QUICK}
    for kind, (body, state) in HOSTILE.items():
        code = f"def {name}(*args, **kwargs):\n" + indent(body.replace("{name}", name), "    ")
        fakes.append(
            Fake(kind, {**dict.fromkeys(slow, 0), first: 0}, answers={**slow, first: code}, states={first: state})
        )
    for kind, (before, state) in HOSTILE_CELLS.items():
        code = f"def {name}(*args, **kwargs):\n    return None\n\n{before}"
        fakes.append(
            Fake(kind, {**dict.fromkeys(slow, 0), first: 0}, answers={**slow, first: code}, states={first: state})
        )
    return fakes


def broken(assignment: Assignment, source: NotebookNode, folder: Path) -> dict[str, Fake]:
    """Write submissions that are damaged, renamed, copied or incomplete into `folder`; returns what each has to get."""
    questions = [q.id for q in assignment.questions]
    first, slow = questions[0], {q.id: "" for q in assignment.questions if q.cpu > QUICK}
    less, nothing = dict.fromkeys(slow, 0.0), dict.fromkeys(questions, 0.0)
    good = notebook_of(source, Fake("good", less, answers=slow))
    usual_name = f"{assignment.name}.ipynb"
    expected: dict[str, Fake] = {}

    def hand_in(
        name: str, marks: dict[str, float], text: str | NotebookNode | None, file: str = usual_name, **more: object
    ) -> Path:
        path = folder / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(text if isinstance(text, str) else nbformat.writes(text), encoding="utf-8")
        expected[name] = Fake(name, marks, **more)  # type: ignore[arg-type]
        return path

    def altered() -> tuple[NotebookNode, dict[str, NotebookNode]]:
        nb = nbformat.from_dict(json.loads(json.dumps(good)))
        return nb, {c.metadata.nbgrader.grade_id: c for c in nb.cells if "nbgrader" in c.metadata}

    hand_in("missing", nothing, None, status="missing")
    hand_in("cut-off", nothing, nbformat.writes(good)[:3000], status="corrupt")
    hand_in("no-notebook", nothing, "My dog ate it.", status="corrupt")
    hand_in("null", nothing, "null", status="corrupt")
    hand_in("renamed", less, good, file=f"{assignment.name} (1).ipynb", status="renamed")
    hand_in("two-copies", nothing, good, file="final.ipynb", status="ambiguous")
    hand_in("two-copies", nothing, good, file="final2.ipynb", status="ambiguous")
    hand_in("copied", less, good)
    path = hand_in("linked", nothing, None, status="missing")
    (folder / "linked" / "solution.ipynb.txt").write_text(nbformat.writes(good), encoding="utf-8")
    os.symlink(folder / "linked" / "solution.ipynb.txt", path)

    (folder / "linked-folder").mkdir()
    os.symlink(folder / "copied", folder / "linked-folder" / assignment.name)
    expected["linked-folder"] = Fake("linked-folder", nothing, status="missing")

    nb, _ = altered()
    nb.metadata.course.assignment = "99_another"
    hand_in("other-assignment", nothing, nb, status="other assignment")
    nb, cells = altered()
    nb.cells.remove(cells[f"{first}-answer"])
    hand_in("deleted-answer", {**less, first: 0}, nb, states={first: "no answer cell"})
    nb, cells = altered()
    wrong = nbformat.from_dict(json.loads(json.dumps(cells[f"{first}-answer"])) | {"id": "copy-of-answer"})
    wrong.source = re.sub(
        r"(?m)^(def \w+\().*$", r"\1*_, **__): return 'wrong'\n\ndef unused():", wrong.source, count=1
    )
    nb.cells.insert(nb.cells.index(cells[f"{first}-answer"]), wrong)
    hand_in("answer-twice-right-last", less, nb)
    nb = nbformat.from_dict(json.loads(json.dumps(nb)))
    places = [k for k, c in enumerate(nb.cells) if c.metadata.get("nbgrader", {}).get("grade_id") == f"{first}-answer"]
    nb.cells[places[0]].source, nb.cells[places[1]].source = nb.cells[places[1]].source, nb.cells[places[0]].source
    hand_in("answer-twice-wrong-last", {**less, first: 0}, nb)
    nb, cells = altered()
    nb.cells.insert(3, nbformat.from_dict(json.loads(json.dumps(cells[first])) | {"id": "copy-of-check"}))
    cells[first].source = "score = 100"
    cells[first].metadata.nbgrader.points = 100
    hand_in("check-copied-and-changed", less, nb)
    nb, cells = altered()
    at = nb.cells.index(cells[f"{first}-answer"])
    helper = "%matplotlib inline\n!ls\nHELPER = 1\nprint(undefined_name)"
    nb.cells.insert(at, nbformat.v4.new_code_cell(helper))
    cells[f"{first}-answer"].source = "assert HELPER == 1\n" + cells[f"{first}-answer"].source
    hand_in("helper-cell", less, nb)
    nb, _ = altered()
    for cell in nb.cells:
        del cell["id"]
    nb.nbformat_minor = 4
    hand_in("no-cell-ids", less, nb)
    return expected


def compare(assignment: Assignment, fakes: list[Fake], results: list[Result]) -> list[str]:
    """What is not as declared."""
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
            state = fake.states.get(question.id, verdict["status"])
            if verdict["status"] != state:
                faults.append(
                    f"{fake.name}, {question.id}: status {verdict['status']!r}, not {state!r}. {verdict['note']}"
                )
    return faults


def check_assignment(
    assignment: Assignment, isolation: str = "auto", patience: float = 1, jobs: int = 2, everything: bool = False
) -> list[str]:
    """Grade the fake class of an assignment in a classroom of its own; returns what is not as declared."""
    source = read_source(assignment)
    with tempfile.TemporaryDirectory() as folder:
        submissions = Path(folder) / "submissions"
        fakes = usual(assignment) + (hostile(assignment, source) if everything else [])
        for fake in fakes:
            path = submissions / fake.name / f"{assignment.name}.ipynb"
            path.parent.mkdir(parents=True)
            path.write_text(nbformat.writes(notebook_of(source, fake)), encoding="utf-8")
        if everything:
            fakes += broken(assignment, source, submissions).values()
        results = grade_class(assignment, submissions, Path(folder) / "classroom", None, isolation, jobs, patience)
        shutil.rmtree(submissions)
    return compare(assignment, fakes, results)
