"""Slides of a chapter: one file without a network, with the chapter's figures, equations and questions, and no solution."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from book import slides
from book.cells import ROOT


@pytest.fixture(scope="module")
def chapter():
    return nbformat.read(ROOT / "chapters" / "04_word2vec.ipynb", as_version=4)


@pytest.fixture(scope="module")
def made(chapter):
    return slides.slides_of(chapter)


def test_every_figure_and_labelled_equation_is_there_once(chapter, made):
    lesson = []
    for cell in chapter.cells:
        lesson.append(cell)
        if "## Exercises" in cell.source:
            break
    figures = sum("image/png" in out.get("data", {}) for c in lesson for out in c.get("outputs", []))
    equations = sum(len(re.findall(r"\$\$ \(eq-", c.source)) for c in lesson if c.cell_type == "markdown")
    kinds = [slide.kind for slide in made]
    assert kinds.count("figure") == figures > 3
    assert kinds.count("equation") == equations > 3
    assert all("alt='" in slide.body and "alt=''" not in slide.body for slide in made if slide.kind == "figure")


def test_headings_come_in_order_and_exercises_stay_away(chapter, made):
    headings = [
        line[3:]
        for c in chapter.cells
        if c.cell_type == "markdown"
        for line in c.source.split("\n")
        if line[:3] == "## "
    ]
    shown = [slide.heading for slide in made if slide.kind == "section"]
    assert shown == [slides.plain(h) for h in headings[: headings.index("Exercises")]]
    assert made[0].kind == "title"
    assert "What moves?" not in "".join(slide.body for slide in made)  # its first exercise


def test_a_question_stands_before_the_output_that_answers_it(made):
    asked = [k for k, slide in enumerate(made) if slide.kind == "question"]
    assert asked
    assert all("?" in made[k].body and "class='output'" not in made[k].body for k in asked)


def test_the_page_needs_no_network_and_shows_no_myst(made):
    page = slides.page(made)
    own = page.partition("window.MathJax")[0]
    assert not re.search(r"(src|href)=['\"](?!data:)", own)
    assert "@import" not in own
    assert not re.search(r"\{(term|cite|ref|numref|doc|eq)[:`}]", own)
    assert page.count("<section ") == len(made)
    assert page.count("</script") == 2


def test_long_outputs_are_cut_and_say_so():
    cell = new_code_cell("x = 1", outputs=[new_output("stream", text="a line\n" * 50)])
    (slide,) = slides.code_slides(cell, "")
    assert slide.body.count("a line") == slides.LINES
    assert slide.body.rstrip().endswith("…</pre>")
    assert slides.cut("<b>") == "&lt;b&gt;"


def test_code_of_figures_and_of_solutions_is_not_shown():
    shown = new_output("stream", text="7")
    for tag, slides_made in (("hide-input", 1), ("solution", 0), ("setup", 0)):
        cell = new_code_cell("secret = 7", metadata={"tags": [tag]}, outputs=[shown])
        found = list(slides.code_slides(cell, ""))
        assert len(found) == slides_made
        assert all("secret" not in slide.body for slide in found)


def test_an_unknown_chapter_is_refused():
    with pytest.raises(SystemExit, match="no chapter"):
        slides.main(["99"])
    assert slides.last_question(new_markdown_cell("One. Which is it?").source) == "Which is it?"
    assert slides.last_question("Which is it? This one.") == ""
