"""Assignments as pages of the book: what students get, without solutions, as Markdown that is not executed.

python -m course.pages             # writes assignments/pages/NAME.md
python -m course.pages --check     # do the pages still say what the sources say?
"""

import sys
from pathlib import Path

from course.notebook import read_source, released
from course.questions import ASSIGNMENTS, Assignment, assignments, load_assignment
from plm.files import write_atomically

PAGES = ASSIGNMENTS / "pages"
FOLDED = {"setup": "imports", "given": "given", "data": "the data for the checks", "show": "figures and tables"}


def page(assignment: Assignment) -> str:
    """The released notebook as Markdown; helper cells are folded."""
    pieces = []
    for cell in released(read_source(assignment)).cells:
        kind = cell.metadata.course["kind"]
        if kind == "written":
            pieces.append("*Your answer here.*")
        elif cell.cell_type == "markdown":
            pieces.append(cell.source)
        elif kind in FOLDED:
            pieces.append(f":::{{dropdown}} Code: {FOLDED[kind]}\n```python\n{cell.source}\n```\n:::")
        else:
            pieces.append(f"```python\n{cell.source}\n```")
    title, *rest = pieces
    note = (
        f"*This page shows the assignment. To work on it, take the notebook that `make release A={assignment.name[:2]}` "
        "makes, or that your teacher gives you; {doc}`../STUDENTS` says how.*"
    )
    head, _, after = title.partition("\n")
    return "\n\n".join([head, note, *([after.strip()] if after.strip() else []), *rest]) + "\n"


def faults() -> list[str]:
    """Pages that are missing, left over or not what the sources say."""
    wanted = {f"{name}.md": page(load_assignment(name)) for name in assignments()}
    found = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    return [
        f"assignments/pages/{name}: run `make assignment-pages`"
        for name in sorted({*wanted, *found})
        if wanted.get(name) != found.get(name)
    ]


def main(arguments: list[str]) -> int:
    """Command line; returns the exit code."""
    if "--check" in arguments:
        print("\n".join(found := faults()) or "all agree")
        return int(bool(found))
    names = assignments()
    for path in PAGES.glob("*.md"):
        if path.stem not in names:
            path.unlink()
    for name in names:
        print(f"written: {write_atomically(Path(PAGES / f'{name}.md'), page(load_assignment(name)))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
