"""From an assignment's source to notebooks, and from a student's notebook to the cells that are run for each question.

The source is a MyST notebook like a chapter. Tags say what a code cell is: `setup` (run before every question), `given` (run
before the answer of its question), `data` (run by the grader, not where student code runs), `show` (for the reader only),
`answer:q1`, `check:q1`; a Markdown cell may be `written:w1`. A question's section is everything after the check of the one
before it, up to its own check.
"""

import json
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode

from course.questions import Assignment

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
KINDS = ("setup", "given", "data", "show", "answer", "check", "written")
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
WRITE_HERE = "YOUR ANSWER HERE"
LARGEST = 20 << 20  # bytes of a notebook that is read
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


class SourceError(ValueError):
    """An assignment's source that breaks a rule of AUTHORING.md."""


def kind_of(cell: NotebookNode) -> tuple[str, str]:
    """The kind of an authored cell and the question it names: ("answer", "q1"), ("setup", ""), ("text", "")."""
    found = [tag.partition(":") for tag in cell.metadata.get("tags", []) if tag.partition(":")[0] in KINDS]
    if len(found) > 1:
        raise SourceError(f"a cell has two of the tags {', '.join(KINDS)}: {cell.source[:60]!r}")
    if not found:
        if cell.cell_type == "code":
            raise SourceError(f"a code cell needs one of the tags {', '.join(KINDS)}: {cell.source[:60]!r}")
        return "text", ""
    return found[0][0], found[0][2]


def read_source(assignment: Assignment) -> NotebookNode:
    """The authored notebook with solutions: fixed cell ids, nbgrader's metadata, each cell's section. Checks the rules."""
    nb = jupytext.reads((assignment.folder / "assignment.md").read_text(encoding="utf-8"), fmt="md:myst")
    nb.metadata = NotebookNode(kernelspec=KERNEL, course={"assignment": assignment.name})
    nb.nbformat, nb.nbformat_minor = 4, 5
    points = {q.id: q.points for q in assignment.questions} | {w.id: w.points for w in assignment.written}
    order = [q.id for q in assignment.questions]
    seen: dict[str, list[str]] = {"answer": [], "check": [], "written": []}
    for number, cell in enumerate(nb.cells):
        kind, name = kind_of(cell)
        cell.id = f"{assignment.name[:2]}-{number:03d}-{kind}"
        left = [q for q in order if q not in seen["check"]]
        section = "setup" if kind == "setup" else left[0] if left else "end"
        if kind in seen:
            if name not in points or name in seen[kind]:
                raise SourceError(f"{kind}:{name} stands twice, or grading.py does not know it")
            seen[kind].append(name)
        if kind in ("answer", "check") and name != section:
            raise SourceError(f"{kind}:{name} stands in the section of {section}")
        if kind == "answer" and (BEGIN not in cell.source or END not in cell.source):
            raise SourceError(f"answer:{name} has no {BEGIN} … {END}")
        cell.metadata.course = {"kind": kind, "section": section}
        _nbgrader(cell, kind, name, points.get(name, 0))
    missing = set(order) - set(seen["answer"]) | set(order) - set(seen["check"])
    missing |= {w.id for w in assignment.written} - set(seen["written"])
    if missing:
        raise SourceError(f"{assignment.name}: no answer, check or written cell for {', '.join(sorted(missing))}")
    return nb


def _nbgrader(cell: NotebookNode, kind: str, name: str, points: float) -> None:
    marks = {"schema_version": 3, "task": False, "cell_type": cell.cell_type}
    if kind == "answer":
        marks |= {"grade": False, "solution": True, "locked": False, "grade_id": f"{name}-answer"}
    elif kind == "check":
        marks |= {"grade": True, "solution": False, "locked": True, "grade_id": name, "points": points}
    elif kind == "written":
        marks |= {"grade": True, "solution": True, "locked": False, "grade_id": name, "points": points}
    elif cell.cell_type == "code":
        marks |= {"grade": False, "solution": False, "locked": True, "grade_id": cell.id}
    else:
        return
    cell.metadata.nbgrader = marks


def released(nb: NotebookNode) -> NotebookNode:
    """What students get: solutions replaced by a stub, as nbgrader does it (a test compares the two)."""
    nb = nbformat.from_dict(json.loads(json.dumps(nb)))
    for cell in nb.cells:
        kind = cell.metadata.course["kind"]
        if kind == "answer":
            cell.source = without_solution(cell.source)
        elif kind == "written":
            cell.source = WRITE_HERE
    return nb


def without_solution(source: str) -> str:
    """A cell's source with each marked region replaced by the stub, at its indentation."""
    lines: list[str] = []
    inside = False
    for line in source.split("\n"):
        if line.strip() == BEGIN:
            inside, indent = True, line[: len(line) - len(line.lstrip())]
            lines += [indent + text for text in STUB.split("\n")]
        elif line.strip() == END:
            inside = False
        elif not inside:
            lines.append(line)
    return "\n".join(lines)


def reference_names(nb: NotebookNode) -> dict[str, Any]:
    """What the author's own cells define: setup, given, data and answers, in order. Only for the grader's side."""
    names: dict[str, Any] = {"__name__": "reference"}
    for cell in nb.cells:
        if cell.metadata.course["kind"] in ("setup", "given", "data", "answer"):
            exec(compile(cell.source, f"<{cell.id}>", "exec"), names)
    return names


@dataclass
class Submitted:
    """A student's notebook, sorted: the cells by section, the written answers, and what was odd about it."""

    cells: dict[str, list[dict[str, str]]] = field(default_factory=dict)  # section: {"source", "kind"} in order
    answers: dict[str, str] = field(default_factory=dict)  # question: its answer cell's source; of several, joined
    written: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def sort_cells(nb: NotebookNode, release: NotebookNode) -> Submitted:
    """Take from a student's notebook what is the student's; everything locked comes from the release.

    A cell of the student's own belongs to the section in which it stands, and runs with it. Where an answer cell stands twice,
    both run, in order: as in Jupyter, what is defined later counts.
    """
    sections = {cell.id: cell.metadata.course["section"] for cell in release.cells}
    by_grade = {c.metadata.nbgrader.grade_id: c for c in release.cells if "nbgrader" in c.metadata}
    found, section, twice = Submitted(), "setup", set()
    for cell in release.cells:
        if cell.metadata.course["kind"] in ("setup", "given"):
            place = found.cells.setdefault(cell.metadata.course["section"], [])
            place.append({"source": cell.source, "kind": "given"})
    for cell in nb.cells:
        grade_id = str(cell.get("metadata", {}).get("nbgrader", {}).get("grade_id", ""))
        known = by_grade.get(grade_id)
        section = known.metadata.course["section"] if known else sections.get(cell.get("id", ""), section)
        kind = known.metadata.course["kind"] if known else "text" if cell.get("id") in sections else "own"
        source = str(cell.get("source", ""))
        if kind == "written":
            found.written[grade_id] = source
        elif kind == "answer" and cell.cell_type == "code":
            name = grade_id.removesuffix("-answer")
            twice |= {name} & set(found.answers)
            found.answers[name] = "\n\n".join([*([found.answers[name]] if name in found.answers else []), source])
            found.cells.setdefault(section, []).append({"source": source, "kind": "answer"})
        elif kind == "own" and cell.cell_type == "code" and source.strip():
            found.cells.setdefault(section, []).append({"source": source, "kind": "own"})
    for name in sorted(twice):
        found.notes.append(f"The answer cell of {name} stands more than once. All were run, the last one counts.")
    return found


def fingerprint(found: Submitted, release: NotebookNode) -> str:
    """The same for two students whose answers are the same but for spaces; "" when nothing was answered."""
    stubs = {squeeze(c.source) for c in release.cells if c.metadata.course["kind"] == "answer"}
    texts = {name: squeeze(source) for name, source in found.answers.items()}
    if all(text in stubs for text in texts.values()):
        return ""
    return sha256(json.dumps(sorted(texts.items())).encode()).hexdigest()[:16]


def squeeze(source: str) -> str:
    """Without what does not matter to Python or to a reader: comments' lines, blank lines, spaces at the ends."""
    lines = (line.rstrip() for line in source.split("\n"))
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def find_notebook(folder: Path, name: str) -> tuple[Path | None, str]:
    """The notebook of a submission, and its status: graded, renamed, missing, or ambiguous (then none is taken)."""
    files = sorted(folder.rglob("*.ipynb")) if folder.is_dir() else []
    # A link could lead to the solutions.
    files = [p for p in files if p.is_file() and not p.is_symlink() and ".ipynb_checkpoints" not in p.parts]
    exact = [p for p in files if p.name == f"{name}.ipynb"]
    if len(exact) == 1:
        return exact[0], "graded"
    if len(files) == 1:
        return files[0], "renamed"
    return None, "ambiguous" if files else "missing"


def read_submission(path: Path, release: NotebookNode) -> tuple[NotebookNode | None, str]:
    """A student's notebook, and "" or why it cannot be graded: `corrupt` or `other assignment`."""
    try:
        if path.stat().st_size > LARGEST:
            return None, "corrupt"
        nb = nbformat.from_dict(json.loads(path.read_text(encoding="utf-8-sig")))
        if nb.nbformat != 4 or not all(
            isinstance(c.source, str | list) and isinstance(c.metadata, dict) for c in nb.cells
        ):
            return None, "corrupt"
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return None, "corrupt"
    for cell in nb.cells:
        cell.source = "".join(cell.source) if isinstance(cell.source, list) else cell.source
    ours = release.metadata.course["assignment"]
    name = nb.metadata.get("course", {}).get("assignment")
    if name is None:  # an editor that drops metadata: go by the answer cells
        answers = {c.metadata.nbgrader.grade_id for c in release.cells if c.metadata.course["kind"] == "answer"}
        found = {str(c.metadata.get("nbgrader", {}).get("grade_id", "")) for c in nb.cells}
        name = ours if answers & found else ""
    return (nb, "") if name == ours else (None, "other assignment")
