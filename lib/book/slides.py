"""Slides of a chapter, made from its notebook: headings, questions, equations, figures and what cells printed.

python -m book.slides            # all chapters -> build/slides/NAME.slides.html
python -m book.slides 04         # those whose file name starts so

One file each, which needs no network: pictures and the program that sets formulas are in it.
"""

import argparse
import html
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from nbformat import NotebookNode

from book.repository import ROOT
from plm.files import write_atomically

CHAPTERS, TARGET = ROOT / "chapters", ROOT / "build" / "slides"
STATIC = Path(__file__).parent / "static"
LINES = 18  # of code or output on a slide; what is longer is cut, and says so
WIDTH = 96  # characters of an output's line
SILENT = {"setup", "hide-input", "solution"}  # cells whose code is not shown
_EQUATION = re.compile(r"\$\$\s*(.+?)\s*\$\$(?: *\((eq-[\w-]+)\))?", re.DOTALL)
_ROLE = re.compile(r"\{(\w+)(?::\w+)?\}`([^`]*)`")


@dataclass(frozen=True)
class Slide:
    """What stands on a slide: the heading it belongs to, and its content as HTML. kind: for its looks."""

    heading: str
    body: str
    kind: str


def plain(text: str) -> str:
    """Markdown without the roles of MyST: terms keep their words, references to papers and places go."""

    def word(match: re.Match[str]) -> str:
        role, content = match.groups()
        return content.partition(" <")[0] if role in ("term", "ref", "doc") and "-" not in content else ""

    return re.sub(r" +([.,;:)])", r"\1", _ROLE.sub(word, text)).replace("()", "")


def to_html(text: str) -> str:
    """Markdown as HTML; formulas stay as they are, for MathJax."""
    return str(markdown2html_mistune(plain(text)))


def title_slide(source: str) -> Slide:
    """The chapter's title and what its header promises."""
    heading = source.lstrip("# ").partition("\n")[0]
    promised = re.search(r"\*\*You build\*\* (.+?)\n\n", source, re.DOTALL)
    text = re.sub(r"\s+", " ", promised[1]) if promised else ""
    return Slide(heading, to_html(f"You build {text}") if text else "", "title")


def markdown_slides(source: str, heading: str) -> Iterator[Slide]:
    """Of running text: a slide per heading, per labelled equation, and one for a question that ends it."""
    for line in re.findall(r"^#{2,3} .+$", source, re.MULTILINE):
        heading = plain(line.lstrip("# "))
        yield Slide(heading, "", "section" if line.startswith("## ") else "part")
    for formula, label in _EQUATION.findall(source):
        if label:
            yield Slide(heading, f"<div class='formula'>$${html.escape(formula, quote=False)}$$</div>", "equation")
    if question := last_question(source):
        yield Slide(heading, to_html(question), "question")


def last_question(source: str) -> str:
    """What the text asks before the next cell runs: its last paragraph's last sentence, if that is a question."""
    paragraphs = [p for p in source.strip().split("\n\n") if p and not p.startswith(("#", ":::", "$$"))]
    sentences = re.split(r"(?<=[.?:])\s+", paragraphs[-1]) if paragraphs else [""]
    return sentences[-1] if sentences[-1].endswith("?") else ""


def code_slides(cell: NotebookNode, heading: str) -> Iterator[Slide]:
    """Of a cell: its code where it is the point, and each picture or printed text."""
    tags = set(cell.metadata.get("tags", []))
    if tags & {"setup", "solution"}:
        return
    taught = any(tag.startswith("lib-") for tag in tags)
    printed = "".join(out.text for out in cell.get("outputs", []) if out.output_type == "stream")
    fits = (cell.source + printed).count("\n") < LINES
    code = f"<pre class='code'>{cut(cell.source)}</pre>" if not tags & SILENT and (taught or fits) else ""
    values = [out.data for out in cell.get("outputs", []) if "data" in out]
    printed += "".join(v["text/plain"] for v in values if not {"image/png", "text/html"} & v.keys())
    if printed.strip():
        body = f"<pre class='output'>{cut(printed.rstrip())}</pre>"
        yield Slide(heading, code + body, "output")
    elif code and taught and not values:
        yield Slide(heading, code, "code")
    image = cell.metadata.get("mystnb", {})
    for value in values:
        if "image/png" in value:
            alt = html.escape(str(image.get("image", {}).get("alt", "")), quote=True)
            caption = to_html(str(image.get("figure", {}).get("caption", "")))
            data = "".join(value["image/png"].split())
            yield Slide(heading, f"<img alt='{alt}' src='data:image/png;base64,{data}'>{caption}", "figure")


def cut(text: str) -> str:
    """Escaped, and no longer or wider than a slide; what is missing is marked."""
    lines = text.split("\n")
    kept = [line if len(line) <= WIDTH else line[: WIDTH - 1] + "…" for line in lines[:LINES]]
    return html.escape("\n".join([*kept, "…"] if len(lines) > LINES else kept))


def slides_of(nb: NotebookNode) -> list[Slide]:
    """All slides of a chapter, up to its exercises."""
    found = [title_slide(nb.cells[0].source)]
    heading = found[0].heading
    for cell in nb.cells[1:]:
        if cell.cell_type == "code":
            found += code_slides(cell, heading)
            continue
        text, _, exercises = cell.source.partition("## Exercises")
        found += markdown_slides(text, heading)
        headings = re.findall(r"^#{2,3} (.+)$", text, re.MULTILINE)
        heading = plain(headings[-1]) if headings else heading
        if "What we saw" in text:
            found += summary(text, heading)
        if exercises:
            break
    return found


def summary(text: str, heading: str) -> Iterator[Slide]:
    """The last section's paragraphs, one on a slide."""
    after = text.partition("What we saw")[2].partition("\n")[2]
    for paragraph in after.strip().split("\n\n"):
        if paragraph and not paragraph.startswith(("#", ":::", "$$")):
            yield Slide(heading, to_html(paragraph), "text")


def mathjax() -> str:
    """The program that sets formulas, whole: with pictures of the letters in it, it needs no fonts."""
    spec = importlib.util.find_spec("sphinx-mathjax-offline")
    if spec is None or spec.origin is None:
        raise SystemExit("slides need the package sphinx-mathjax-offline, which is in requirements.lock")
    text = (Path(spec.origin).parent / "static" / "mathjax" / "tex-svg.js").read_text(encoding="utf-8")
    return text.replace("</script", "<\\/script")


def page(slides: list[Slide]) -> str:
    """One HTML file."""
    sections = [
        f"<section class='{s.kind}' aria-label='slide {n} of {len(slides)}'>"
        f"<h{1 if s.kind in ('title', 'section', 'part') else 2}>{html.escape(s.heading, quote=False)}"
        f"</h{1 if s.kind in ('title', 'section', 'part') else 2}>{s.body}</section>"
        for n, s in enumerate(slides, 1)
    ]
    style, script = ((STATIC / f"slides.{end}").read_text(encoding="utf-8") for end in ("css", "js"))
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f"<html lang='en'><head><meta charset='utf-8'><title>{html.escape(slides[0].heading)}</title>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<style>{style}</style></head><body>",
            *sections,
            "<footer>space or → goes on, ← back, f fills the screen <span id='place'></span></footer>",
            f"<script>{script}</script><script>{mathjax()}</script></body></html>\n",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m book.slides", description="Make slides from chapters.")
    parser.add_argument("chapters", nargs="*", help="beginnings of file names, such as 04; all chapters when left out")
    parser.add_argument("--target", type=Path, default=TARGET)
    options = parser.parse_args(arguments)
    found = [p for p in sorted(CHAPTERS.glob("[0-9]*.ipynb")) if p.name.startswith(tuple(options.chapters) or "")]
    if not found:
        raise SystemExit(f"no chapter starts with {' or '.join(options.chapters)}")
    for path in found:
        slides = slides_of(nbformat.read(path, as_version=4))
        target = options.target / f"{path.stem}.slides.html"
        write_atomically(target, page(slides))
        print(f"{target}: {len(slides)} slides")
    return 0


if __name__ == "__main__":
    sys.exit(main())
