"""The prose guard refuses dangling citations, terms and references and a false voice, and holds for the whole book."""

from pathlib import Path

import pytest

from book.cells import ROOT, chapters
from book.prose import (
    Page,
    Passage,
    bibliography_faults,
    glossary_faults,
    glossary_terms,
    label_faults,
    load,
    pages,
    prose_faults,
    reference_faults,
)

BIB = """@article{bengio2003, title={A {Neural} Model}, doi = {10.1/x},}
@comment{nothing}
@misc{web, title="Page",
  url = "https://example.org"}
"""
GLOSSARY = ":::{glossary}\n:sorted:\nperplexity\n  How unsure.\n\nn-gram\ntrigram : t\n  `n` words.\n:::\n"
OTHER = Page(Path("other.md"), [Passage("", f"(there)=\n# The `title` of it\n$$\nx\n$$ (eq-x)\n{GLOSSARY}")], ["fig-a"])


def faults(text: str) -> list[str]:
    page = Page(Path("ch.ipynb"), [Passage("cell 1", "# Ours"), Passage("cell 2", text)])
    return prose_faults(page, [page, OTHER], BIB, set(glossary_terms(GLOSSARY)))


GOOD = [
    "{cite:t}`bengio2003` and {cite:p}`bengio2003, web`",
    "{term}`Perplexity`, {term}`trigrams <trigram>`, {term}`n-gram`",
    "{ref}`there`, {ref}`here <there>`, {numref}`fig-a`, {eq}`eq-x`, {doc}`other`, {doc}`text <other>`",
    "[](there), [text](other.md), [text](other.md#the-title-of-it), [text](#ours), [a](other)",
    "(new)=\n## Here\n{ref}`new`",
    ":::{exercise} ★ Add\n:label: ex-1\n:::\n{ref}`ex-1`",
    "We write ``{cite:t}`nobody` `` so:\n```\n[text](nowhere.md) {term}`x` simply\n```\nand `[a](b.md)` so. $f[i](x)$",
    '```{note}\n"a powerful film!" is a review, `simply` a word, $n!$ a number, ★ a star\n> obviously quoted\n```',
]
BAD = {
    "{cite:t}`mikolov2013`": "cites 'mikolov2013'",
    "{cite:p}`bengio2003,nothing`": "cites 'nothing'",
    "{term}`entropy`": "no term 'entropy' in the glossary",
    "{term}`the chaos <entropy>`": "no term 'entropy' in the glossary",
    "{ref}`nowhere`": "no label 'nowhere'",
    "{numref}`Figure %s <fig-b>`": "no label 'fig-b'",
    "{eq}`eq-y`": "no label 'eq-y'",
    "{doc}`missing`": "no page 'missing'",
    "[text](missing.md)": "dead link 'missing.md'",
    "![A cat on a mat](missing.png)": "dead link 'missing.png'",
    "[text](other.md#no-such)": "no heading 'no-such' in other.md",
    "[text](#no-such)": "no heading 'no-such' in ch.ipynb",
    "```{note}\nThis is simply\n```": "'simply' is not our voice; rephrase: This is simply",
    "Obviously so": "'Obviously' is not our voice",
    "a powerful idea": "'powerful' is not our voice",
    "$$\n\begin{aligned}\n$$": r"'\x08' was left behind",
    "It reached @@RESULT@@ of": "'@@RESULT@@' was left behind",
    "TODO-RESULTS": "'TODO' was left behind",
    "A revolutionary idea": "'revolutionary' is not our voice",
    "It works!": "'s!' is not our voice",
    "It works \U0001f680": "is not our voice",
}


@pytest.mark.parametrize("text", GOOD)
def test_guard_passes(text):
    assert faults(text) == []


@pytest.mark.parametrize("text", BAD)
def test_guard_refuses(text):
    (found,) = faults("A line before.\n" + text)
    assert BAD[text] in found
    assert found.startswith("ch.ipynb: cell 2, line ")


def test_e11_a_dead_internal_link_fails_and_a_site_that_refuses_does_not():
    (found,) = faults(
        "[dead](gone.md) [refuses](https://localhost:1/x) [mail](mailto:a@example.org) <https://localhost:1>"
    )
    assert "dead link 'gone.md'" in found


def test_guard_refuses_a_bad_bibliography():
    assert bibliography_faults(BIB) == []
    assert "bengio2003 is there twice" in bibliography_faults(BIB + BIB.splitlines()[0])[0]
    assert "x1 has no doi and no url" in bibliography_faults("@book{x1,\n  title = {A url},\n  doi = {},\n}")[0]


def test_guard_refuses_a_term_or_label_given_twice():
    assert glossary_terms(GLOSSARY) == ["perplexity", "n-gram", "trigram"]
    assert glossary_faults(GLOSSARY) == []
    assert "'perplexity' is defined twice" in glossary_faults(GLOSSARY + GLOSSARY)[0]
    assert label_faults([OTHER]) == []
    assert "label 'fig-a' is given 2 times" in "\n".join(label_faults([OTHER, Page(Path("x.md"), [], ["fig-a"])]))


def test_bibliography_and_glossary():
    found = bibliography_faults((ROOT / "chapters/references.bib").read_text(encoding="utf-8"))
    found += glossary_faults((ROOT / "chapters/glossary.md").read_text(encoding="utf-8")) + label_faults(pages())
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", [p.path for p in pages()], ids=lambda path: path.stem)
def test_page(path):
    bib = (ROOT / "chapters/references.bib").read_text(encoding="utf-8")
    terms = glossary_terms((ROOT / "chapters/glossary.md").read_text(encoding="utf-8"))
    found = prose_faults(load(path), pages(), bib, set(terms))
    assert not found, "\n".join(found)


def test_all_chapters_are_pages():
    assert chapters()
    assert {path.name for path in chapters()} < {page.path.name for page in pages()}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_of_the_front_door(name):
    found = reference_faults(load(ROOT / name), pages())
    assert not found, "\n".join(found)


def test_prose_between_two_directives_is_read_and_code_blocks_are_not():
    bad = "{cite:p}`nope1999` {term}`no such term` Obviously."
    text = f"```{{note}}\nx\n```\n\n{bad}\n\n```{{tip}}\ny\n```\n\n```python\n{bad}\n```\n"
    page = Page(Path("p.md"), [Passage("", text)])
    assert len(prose_faults(page, [page], BIB, set())) == 3
    money = Page(Path("p.md"), [Passage("", r"\$5 is obviously too much, \$6 more")])
    assert len(prose_faults(money, [money], BIB, set())) == 1
