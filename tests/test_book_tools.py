"""book.notebooks and the generated pages: what is committed is what the tools make."""

import re
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from book import dataset_page, lock, model_map, notebooks, repository, site_fixes, sources

SOURCE = """---
kernelspec: {name: python3, display_name: Python 3, language: python}
---
# Title

```{code-cell} ipython3
:tags: [setup]

url = "{{ repository_url }}"
```

+++

A second piece.

```{code-cell} ipython3
assert 1 + 1 == 2
```
"""


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book of one chapter in a folder of its own."""
    monkeypatch.setattr(notebooks, "CHAPTERS", tmp_path)
    monkeypatch.setattr(notebooks, "SOURCES", tmp_path / "src")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "01_one.md").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def test_render_fills_in_the_address_and_keeps_cells_and_tags(book):
    nb = notebooks.render(book / "src" / "01_one.md")
    assert [c.cell_type for c in nb.cells] == ["markdown", "code", "markdown", "code"]
    assert nb.cells[1].source == f'url = "{repository.repository_url()}"'
    assert nb.cells[1].metadata.tags == ["setup"]
    assert nb.metadata.kernelspec["name"] == "python3"
    nbformat.validate(nb)


def test_drafts_are_made_only_when_named(book):
    (book / "src" / "drafts").mkdir()
    draft = book / "src" / "drafts" / "02_two.md"
    draft.write_text(SOURCE, encoding="utf-8")
    assert [path.stem for path in notebooks.sources()] == ["01_one"]
    assert notebooks.sources(["02"]) == [draft]
    with pytest.raises(SystemExit, match="01_one, 02_two"):
        notebooks.sources(["03"])


def test_the_tool_makes_checks_and_notices_drift(book, capsys):
    assert notebooks.main(["--check"]) == 1
    assert notebooks.main(["01"]) == 0
    made = nbformat.read(book / "01_one.ipynb", as_version=4)
    assert [c.execution_count for c in made.cells if c.cell_type == "code"] == [1, 2]
    assert notebooks.main(["--check"]) == 0
    source = book / "src" / "01_one.md"
    source.write_text(SOURCE.replace("1 + 1", "1 + 2 - 1"), encoding="utf-8")
    assert notebooks.main(["--check"]) == 1
    assert "its source differs" in capsys.readouterr().out


def test_a_failing_chapter_leaves_the_good_notebook_alone(book):
    notebooks.main(["01"])
    good = (book / "01_one.ipynb").read_bytes()
    source = book / "src" / "01_one.md"
    source.write_text(SOURCE.replace("== 2", "== 3"), encoding="utf-8")
    with pytest.raises(Exception, match="AssertionError"):
        notebooks.main(["01"])
    assert (book / "01_one.ipynb").read_bytes() == good
    assert list(book.glob("*.partial"))


def test_an_unknown_chapter_is_named_with_those_there_are(book):
    with pytest.raises(SystemExit, match=r"starts with 99; there are: 01_one"):
        notebooks.main(["99"])


def test_cleaning_drops_what_changes_from_run_to_run():
    cell = new_code_cell("x", metadata={"execution": {"iopub.status.busy": "2026"}, "tags": ["setup"]})
    cell.outputs = [
        new_output("stream", name="stdout", text="a"),
        new_output("stream", name="stdout", text="b\n"),
        new_output("display_data", data={notebooks.WIDGET: {"model_id": "1"}, "text/html": "<p>"}),
    ]
    nb = notebooks.merge_streams(notebooks.clean(new_notebook(cells=[cell])))
    assert nb.cells[0].metadata == {"tags": ["setup"]}
    assert nb.cells[0].outputs[0].text == "ab\n"
    assert nb.cells[0].outputs[1].data == {"text/html": "<p>"}
    assert set(nb.metadata) == {"kernelspec", "language_info"}


def test_generated_pages_are_up_to_date():
    assert dataset_page.PATH.read_text(encoding="utf-8") == dataset_page.page(), "run python -m book.dataset_page"
    assert model_map.PATH.read_text(encoding="utf-8") == model_map.draw(), "run python -m book.model_map"


def test_the_address_is_rewritten_wherever_it_must_stand(tmp_path):
    for name in repository.COPIES:
        (tmp_path / name).write_text('Repository = "https://old"\nclone https://old now\n', encoding="utf-8")
    (tmp_path / "_config.yml").write_text("repository:\n  url: https://new/\n", encoding="utf-8")
    assert repository.spread(tmp_path) == "https://new"
    assert all("old" not in (tmp_path / name).read_text(encoding="utf-8") for name in repository.COPIES)
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="Repository"):
        repository.spread(tmp_path)


def test_the_lock_has_exact_public_versions_of_everything_but_ourselves():
    lines = [line for line in lock.lock().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]*==[^+\s]+( ; .+)?", line) for line in lines)
    assert any(line.startswith("torch==") for line in lines)
    assert not any(line.startswith("plm==") for line in lines)


def test_thebe_is_dropped_and_nothing_else():
    def asset(name, body=None):
        return SimpleNamespace(filename=name, attributes={"body": body})

    context = {
        "script_files": [asset("sphinx-thebe.js"), asset("book.js"), asset("", "let thebe = 1")],
        "css_files": ["sphinx-thebe.css", "a.css"],
    }
    site_fixes.repair(None, "p", "t", context, None)
    assert [a.filename for a in context["script_files"]] == ["book.js"]
    assert context["css_files"] == ["a.css"]


def test_sources_are_formatted_cell_by_cell_and_prose_is_left_alone():
    ugly = "x  =  'prose'\n\n```{code-cell} ipython3\n---\ntags: [setup]\n---\n%pip  list\nx  =  'a'\n```\n\n"
    ugly += "```{code-cell} ipython3\n:tags: [solution]\n\nf( x );\n```\n"
    neat = ugly.replace("x  =  'a'", 'x = "a"').replace("f( x );", "f(x);")
    assert sources.format_source(ugly) == neat
    assert sources.format_source(neat) == neat
    with pytest.raises(ValueError, match="cannot format"):
        sources.format_source(ugly.replace("f( x )", "f( x"))


def test_the_edit_button_leads_to_the_source_of_a_chapter_and_of_nothing_else():
    base = "https://github.com/a/b/edit/main/chapters"
    inner = [{"url": f"{base}/03_nnlm.ipynb"}, {"url": f"{base}/glossary.md"}]
    site_fixes.repair(None, "p", "t", {"header_buttons": [{"buttons": inner}, {"type": "javascript"}]}, None)
    assert [button["url"] for button in inner] == [f"{base}/src/03_nnlm.md", f"{base}/glossary.md"]
