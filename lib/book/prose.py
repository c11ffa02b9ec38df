"""The prose guard: citations, glossary terms, cross references and the voice of the book.

A page is a Markdown file or the Markdown cells of a notebook. Links to other sites are never fetched: a host that refuses
or limits requests must not fail the build (case E11). Run `python -m book.prose` to check the whole book.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from book.cells import ROOT, cell_label, chapters, code_cells, markdown_cells, read

LINES, ACROSS, ANY_CASE = re.MULTILINE, re.DOTALL, re.IGNORECASE
ROLE = re.compile(r"\{([a-z:]+)\}`([^`]+)`")
SHOWN = re.compile(r".*<([^<>]+)>\s*\Z", ACROSS)  # `shown text <target>`
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
LABEL = re.compile(r"^\(([^()\s]+)\)=\s*$|^:(?:name|label):\s*(\S+)|\$\$\s*\(([^()\s]+)\)|\\label\{([^}]+)\}", LINES)
HEADING = re.compile(r"^#{1,6}\s+(.*)$", LINES)
GLOSSARY = re.compile(r"^(:{3,}|`{3,})\{glossary\}.*?\n(.*?)^\1\s*$", LINES | ACROSS)
BIB_ENTRY = re.compile(
    r"^@(?!comment|string|preamble)\w+\s*\{\s*([^,\s]+)\s*,(.*?)(?=^@|\Z)", LINES | ACROSS | ANY_CASE
)
BIB_SOURCE = re.compile(r"(?:^|,)\s*(doi|url)\s*=\s*[{\"]\s*[^\s}\"]", LINES | ANY_CASE)
EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:|//", ANY_CASE)
LABEL_ROLES = {"ref", "numref", "eq", "prf:ref"}
GENERATED = {"genindex", "search"}

# What an editor leaves behind: a control character (an escape such as \b that a program swallowed), a note to fill in later.
LEFTOVER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]|@@(?:[A-Z_]*@@)?|\b(?:TODO|FIXME|XXX)\b")
EMOJI = "\u2705\u2728\u274c\u2757\u26a0\U0001f300-\U0001faff"
BANNED = re.compile(
    rf"\b(?:simply|obviously|powerful(?:ly)?|revolutionary)\b|[a-z]!(?=\s|$)|[{EMOJI}]", LINES | ANY_CASE
)

# Code between two backticks; code between one, but not a role; formulas, where an escaped dollar is money.
CODE = re.compile(r"(?<!`)``(?!`).*?(?<!`)``(?!`)", LINES | ACROSS)
LITERAL = re.compile(CODE.pattern + r"|(?<![}`])`(?!`)[^`]*`(?!`)|(?<!\\)\$(?:[^$\\]|\\.)*\$", LINES | ACROSS)
# Not our voice: code, formulas, block quotes, and what stands between quotation marks.
FOREIGN = re.compile(LITERAL.pattern + r"|^[ ]*>[^\n]*$|\"[^\"\n]*\"|“[^”]*”", LINES | ACROSS)


def without_code_blocks(text: str) -> str:
    """Blank the lines inside fenced blocks of code; what stands in a directive, or between two, stays."""
    lines: list[str] = []
    fences: list[tuple[str, bool]] = []  # the open ones: the fence, and whether it holds code
    for line in text.split("\n"):
        fence = re.match(r"\s*(`{3,}|~{3,}|:{3,})\s*(.*)$", line)
        inside = bool(fences) and fences[-1][1]
        if fence and fences and not fence[2] and fence[1].startswith(fences[-1][0]):
            inside = fences.pop()[1]
        elif fence and not inside and (fence[2].startswith("{") or fence[1][0] != ":"):
            fences.append((fence[1], not fence[2].startswith("{")))
            inside = fences[-1][1]
        lines.append(" " * len(line) if inside else line)
    return "\n".join(lines)


@dataclass(frozen=True)
class Passage:
    """A stretch of Markdown and where it stands: `where` is "cell 3" in a notebook, "" in a Markdown file."""

    where: str
    text: str


@dataclass(frozen=True)
class Page:
    """One page of the book; `labels` are those given outside its text (figure names in metadata), `cells` those of code cells."""

    path: Path
    passages: list[Passage]
    labels: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n\n".join(passage.text for passage in self.passages)

    def find(self, pattern: re.Pattern[str], ignore: re.Pattern[str] = CODE) -> Iterator[tuple[str, re.Match[str]]]:
        """All matches, each with its place ("ch.ipynb: cell 3, line 1"), in the text without what `ignore` matches."""
        for passage in self.passages:
            text = ignore.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), without_code_blocks(passage.text))
            for match in pattern.finditer(text):
                line = f"line {text.count(chr(10), 0, match.start()) + 1}"
                yield f"{self.path.name}: " + ", ".join(filter(None, [passage.where, line])), match


def load(path: Path) -> Page:
    """Read a Markdown file or a notebook as a page."""
    if path.suffix != ".ipynb":
        return Page(path, [Passage("", path.read_text(encoding="utf-8"))])
    nb = read(path)
    names = (cell.metadata.get("mystnb", {}).get("figure", {}).get("name") for cell in nb.cells)
    passages = [Passage(f"cell {n}", cell.source) for n, cell in markdown_cells(nb)]
    return Page(
        path, passages, [name for name in names if name], [cell_label(path, c) for _, c in code_cells(nb) if "id" in c]
    )


def pages(folder: Path = ROOT / "chapters") -> list[Page]:
    """All pages of the book: its Markdown files and its notebooks."""
    return [load(path) for path in [*sorted(folder.glob("*.md")), *sorted(folder.glob("*.ipynb"))]]


def roles(page: Page) -> Iterator[tuple[str, str, str]]:
    """Every MyST role of a page as (place, role, target): ("cell 3, line 1", "term", "perplexity")."""
    for place, match in page.find(ROLE):
        shown = SHOWN.match(match[2])
        yield place, match[1], shown[1] if shown else match[2]


def bibliography_faults(bib: str, name: str = "references.bib") -> list[str]:
    """Every entry has its own key, and a DOI or URL."""
    entries = BIB_ENTRY.findall(bib)
    twice = [key for key, count in Counter(key for key, _ in entries).items() if count > 1]
    faults = [f"{name}: {key} is there twice; keep one entry" for key in twice]
    return faults + [f"{name}: {key} has no doi and no url; add one" for key, b in entries if not BIB_SOURCE.search(b)]


def citation_faults(page: Page, bib: str) -> list[str]:
    """Every key that is cited is in the bibliography."""
    known = {key for key, _ in BIB_ENTRY.findall(bib)}
    cited = [
        (place, k.strip()) for place, role, keys in roles(page) if role.split(":")[0] == "cite" for k in keys.split(",")
    ]
    return [f"{place}: cites {key!r}; add it to references.bib" for place, key in cited if key not in known]


def glossary_terms(text: str) -> list[str]:
    """The terms of a page's glossaries, in their order and in lower case (Sphinx finds them in any case)."""
    lines = (line for block in GLOSSARY.findall(text) for line in block[1].splitlines())
    # A definition is indented below its term; ` : ` after a term starts a sorting key; `:sorted:` is an option.
    return [line.split(" : ")[0].strip().lower() for line in lines if line.strip() and line[0] not in " \t:"]


def glossary_faults(text: str, name: str = "glossary.md") -> list[str]:
    """No term is defined twice."""
    twice = [term for term, count in Counter(glossary_terms(text)).items() if count > 1]
    return [f"{name}: {term!r} is defined twice; keep one" for term in twice]


def term_faults(page: Page, terms: set[str]) -> list[str]:
    """Every term that is used is in the glossary."""
    used = ((place, " ".join(target.split())) for place, role, target in roles(page) if role == "term")
    return [f"{place}: no term {term!r} in the glossary; add it" for place, term in used if term.lower() not in terms]


def labels(page: Page) -> list[str]:
    """Everything on a page that a reference can point at: labels, figure names, numbered formulas, exercises."""
    return page.labels + [next(filter(None, match.groups())) for _, match in page.find(LABEL)]


def anchors(page: Page) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    titles = (re.sub(r"[`*]", "", match[1]).strip().lower() for _, match in page.find(HEADING))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def label_faults(book: list[Page]) -> list[str]:
    """No two places of the book share a label."""
    given = [(label, page.path.name) for page in book for label in labels(page)]
    count = Counter(label for label, _ in given)
    return [f"{name}: label {x!r} is given {count[x]} times; rename all but one" for x, name in given if count[x] > 1]


def reference_faults(page: Page, book: list[Page]) -> list[str]:
    """Every reference and relative link leads somewhere; links to other sites are taken on trust (case E11)."""
    known = {label for other in book for label in labels(other) + other.cells} | GENERATED
    faults = []
    for place, role, target in roles(page):
        if role in LABEL_ROLES and target not in known:
            faults.append(f"{place}: no label {target!r}; correct the reference or add the label")
        if role == "doc" and not _exists(page, target, book):
            faults.append(f"{place}: no page {target!r}; correct the path")
    for place, match in page.find(LINK, ignore=LITERAL):
        link = match[1]
        file, _, anchor = link.partition("#")
        other = page if not file else next((p for p in book if p.path == page.path.parent / file), None)
        if EXTERNAL.match(link) or link in known:
            continue
        if file and not _exists(page, file, book):
            faults.append(f"{place}: dead link {link!r}; correct the path")
        elif anchor and other and anchor not in anchors(other) | known:
            faults.append(f"{place}: no heading {anchor!r} in {other.path.name}; correct the link")
    return faults


def _exists(page: Page, target: str, book: list[Page]) -> bool:
    path = (ROOT if target.startswith("/") else page.path.parent) / target.lstrip("/")
    return path.exists() or any(path.with_suffix(other.path.suffix) == other.path for other in book)


def voice_faults(page: Page) -> list[str]:
    """No word that praises or belittles, no exclamation mark, no emoji; quotations may have them."""
    return [
        f"{place}: {match[0]!r} is not our voice; rephrase: {_line(match).strip()[:100]}"
        for place, match in page.find(BANNED, ignore=FOREIGN)
    ]


def leftover_faults(page: Page) -> list[str]:
    """No control character and no note of things to do."""
    found = ((place, match) for place, match in page.find(LEFTOVER, ignore=re.compile(r"(?!)")))
    return [f"{place}: {match[0]!r} was left behind; finish the line or remove it" for place, match in found]


def _line(match: re.Match[str]) -> str:
    return match.string[match.string.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0]


def prose_faults(page: Page, book: list[Page], bib: str, terms: set[str]) -> list[str]:
    """All faults of one page, each as "file: cell N, line M: what is wrong; what to do"."""
    faults = citation_faults(page, bib) + term_faults(page, terms) + reference_faults(page, book)
    return faults + voice_faults(page) + leftover_faults(page)


def book_faults(folder: Path = ROOT / "chapters") -> list[str]:
    """All faults of the book's prose."""
    book = pages(folder)
    bib = (folder / "references.bib").read_text(encoding="utf-8")
    glossary = "\n".join(page.text for page in book)
    faults = bibliography_faults(bib) + glossary_faults(glossary) + label_faults(book)
    return faults + [f for page in book for f in prose_faults(page, book, bib, set(glossary_terms(glossary)))]


def main() -> int:
    """Print the faults of the book's prose; return how the process should exit."""
    faults = book_faults()
    print("\n".join([f"{len(pages())} pages, {len(chapters())} of them notebooks, {len(faults)} faults", *faults]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
