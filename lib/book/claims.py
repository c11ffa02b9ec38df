"""Write the page "Claims checked" from `chapters/claims.yaml`, and check that its values are what the notebooks print.

python -m book.claims            # writes chapters/claims.md
python -m book.claims --check    # prints what is wrong with the claims; nothing is written
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from nbformat import NotebookNode

from book.cells import ROOT, cell_label, code_cells, output_texts, read, tags
from plm.files import write_atomically

FOLDER = ROOT / "chapters"
DATA, PAGE = FOLDER / "claims.yaml", FOLDER / "claims.md"

BADGES = {
    "holds": "success",
    "holds with a condition": "warning",
    "wrong": "danger",
    "could not be tested": "secondary",
}
UNTESTED = "could not be tested"
HEADING = re.compile(r"^(#{1,6})\s+(.*)$", re.MULTILINE)

INTRO = """\
% Written by python -m book.claims from claims.yaml: change that.

# Claims checked

Four articles, by {cite:t}`zhang2018`, {cite:t}`nick2021`, {cite:t}`xiaosu2023` and one unsigned collection
{cite:p}`outofmemory`, tell in Chinese the story that this book tells, and gave it its order and some of its examples. We took
them at their word: statements of theirs that can be checked stand here in our words, each with what a cell of the book
printed, a verdict, and a link to that cell. A test compares every printed line with the notebook (runs of spaces are
shortened). A verdict is about what we trained, which is small. "Could not be tested" means by us, here.
"""


@dataclass(frozen=True)
class Claim:
    """One statement of the articles. `source` maps a key of the bibliography to a place in that article."""

    id: str
    source: dict[str, str]
    claim: str
    chapter: int
    cell: str = ""  # code that occurs in one cell of the chapter only
    value: list[str] = field(default_factory=list)  # pieces of lines that this cell printed
    verdict: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Place:
    """Where a claim was computed: the label of the cell, the heading above it, and the lines that it printed."""

    label: str
    section: str
    lines: list[str]
    tags: list[str]


def load(path: Path = DATA) -> tuple[list[Claim], list[Claim]]:
    """The claims that are checked, and those that wait for their chapter."""
    found: dict[str, list[dict[str, Any]]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    checked, pending = ([Claim(**row) for row in found[part]] for part in ("claims", "pending"))
    return checked, pending


def notebooks_of(chapter: int, folder: Path = FOLDER) -> list[Path]:
    """The notebooks of a chapter: one, or several with a letter behind the number (12a, 12b); none while they are not there."""
    name = re.compile(rf"{chapter:02}[a-z]?_")
    return sorted(path for path in folder.glob(f"{chapter:02}*.ipynb") if name.match(path.name))


@cache
def _notebook(path: Path) -> NotebookNode:
    return read(path)


def title(path: Path) -> str:
    """The title of a notebook."""
    match = next(filter(None, (HEADING.search(cell.source) for cell in _notebook(path).cells)))
    return match[2].strip()


def squeezed(text: str) -> str:
    """A line as it is compared and shown: runs of spaces count as one."""
    return " ".join(text.split())


def places(claim: Claim, paths: list[Path]) -> Iterator[Place]:
    """Every cell of the notebooks that contains the claim's piece of code; there should be one."""
    cells = [(path, nb, n, cell) for path in paths for nb in [_notebook(path)] for n, cell in code_cells(nb)]
    for path, nb, number, cell in cells:
        if claim.cell in cell.source:
            above = "\n".join(c.source for c in nb.cells[: number - 1] if c.cell_type == "markdown")
            section = HEADING.findall(above)[-1][1].strip()
            lines = [squeezed(line) for text in output_texts(cell) for line in text.splitlines()]
            yield Place(cell_label(path, cell), section, lines, tags(cell))


def printed(value: str, lines: list[str]) -> bool:
    """Whether a piece stands in one of the lines, and does not begin or end within a number or a word."""
    piece = re.compile(rf"(?<![\w.,+−-]){re.escape(squeezed(value))}(?![\w%]|[.,]\d)")
    return any(piece.search(line) for line in lines)


def claim_faults(claim: Claim, folder: Path = FOLDER) -> list[str]:
    """What is wrong with one checked claim."""
    faults, paths = [], notebooks_of(claim.chapter, folder)
    if claim.verdict not in BADGES:
        faults.append(f"no verdict {claim.verdict!r}; choose one of {', '.join(BADGES)}")
    if not claim.reason.endswith((".", ")")) or not claim.source:
        faults.append("say where the claim stands, and why the verdict is so, in a sentence")
    if not paths:
        faults.append(f"chapter {claim.chapter} has no notebook yet; move the claim to `pending`")
    elif claim.verdict == UNTESTED:
        if claim.cell or claim.value:
            faults.append("was not tested, but names a cell or a value")
    elif not claim.cell or not claim.value:
        faults.append("name the cell and what it printed")
    else:
        found = list(places(claim, paths))
        if len(found) != 1:
            names = ", ".join(path.name for path in paths)
            faults.append(f"{len(found)} cells of {names} contain {claim.cell!r}; there must be one")
        elif "solution" in found[0].tags:
            faults.append("was computed in a solution, which is folded; a reader who follows the link sees nothing")
        else:
            faults += [
                f"{found[0].label}: did not print {value!r}"
                for value in claim.value
                if not printed(value, found[0].lines)
            ]
    return [f"claim {claim.id}: {fault}" for fault in faults]


def pending_faults(claim: Claim) -> list[str]:
    """A claim that waits has no verdict."""
    early = claim.verdict or claim.value or claim.reason
    return [f"claim {claim.id}: has a verdict; move it from `pending` to `claims`"] if early else []


def faults(path: Path = DATA) -> list[str]:
    """What is wrong with the claims."""
    checked, pending = load(path)
    count = Counter(claim.id for claim in checked + pending)
    found = [f"claim {name}: is there {n} times" for name, n in count.items() if n > 1]
    order = [claim.chapter for claim in checked]
    if order != sorted(order):
        found.append("the claims are not in the order of the chapters")
    return found + [f for c in checked for f in claim_faults(c)] + [f for c in pending for f in pending_faults(c)]


def sources_of(claim: Claim) -> str:
    """Who says so, and under which heading."""
    return "; ".join(f"{{cite:t}}`{key}`, *{place}*" for key, place in claim.source.items())


def card(claim: Claim) -> str:
    """One claim as a card: the claim, what we computed, the verdict with its reason, source and link."""
    footer = f"Said by {sources_of(claim)}."
    values = ""
    if claim.cell:
        place = next(places(claim, notebooks_of(claim.chapter)))
        section, number = re.sub(r"[`*]", "", place.section), place.label.partition("_")[0].lstrip("0")
        footer = f"Computed in {{ref}}`chapter {number}, “{section}” <{place.label}>`. {footer}"
        values = "\\\n".join(f"`{squeezed(value)}`" for value in claim.value) + "\n\n"
    verdict = f"{{bdg-{BADGES[claim.verdict]}}}`{claim.verdict}` {claim.reason}"
    return (
        f"(claim-{claim.id})=\n::::{{card}}\n:class-card: claim\n\n"
        f":::{{card-header}}\n{claim.claim}\n:::\n\n{values}{verdict}\n\n:::{{card-footer}}\n{footer}\n:::\n::::\n"
    )


def summary(checked: list[Claim]) -> str:
    """Verdicts by chapter, as a table."""
    rows = ["| | holds | holds if … | wrong | untested |", "|:--|--:|--:|--:|--:|"]
    for chapter in sorted({claim.chapter for claim in checked}):
        count = Counter(claim.verdict for claim in checked if claim.chapter == chapter)
        paths = notebooks_of(chapter)
        name = ", ".join(f"{{doc}}`{path.stem.partition('_')[0].lstrip('0')} <{path.stem}>`" for path in paths)
        rows.append(f"| {name or chapter} | " + " | ".join(str(count[verdict]) for verdict in BADGES) + " |")
    count = Counter(claim.verdict for claim in checked)
    rows.append("| **all** | " + " | ".join(f"**{count[verdict]}**" for verdict in BADGES) + " |")
    return "\n".join(rows)


def page(path: Path = DATA) -> str:
    """The page's MyST text."""
    checked, _ = load(path)
    parts = [INTRO, f"## {len(checked)} claims\n\n{summary(checked)}\n", "Wrong, in the order of the chapters:\n"]
    parts += [
        "\n".join(
            f"- {{ref}}`{claim.claim.replace('*', '')} <claim-{claim.id}>`"
            for claim in checked
            if claim.verdict == "wrong"
        )
        + "\n"
    ]
    for chapter in sorted({claim.chapter for claim in checked}):
        parts.append(f"## Chapter {chapter}: {', '.join(map(title, notebooks_of(chapter)))}\n")
        parts += [card(claim) for claim in checked if claim.chapter == chapter]
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or with --check say what is wrong; returns how the process should exit."""
    found = faults()
    if arguments[:1] == ["--check"] and not found and page() != PAGE.read_text(encoding="utf-8"):
        found = ["claims.md is not what claims.yaml says; run python -m book.claims"]
    checked, pending = load()
    print("\n".join([f"{len(checked)} claims checked, {len(pending)} wait for a chapter, {len(found)} faults", *found]))
    if not found and not arguments:
        write_atomically(PAGE, page())
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
