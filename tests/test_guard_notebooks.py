"""The notebook guard refuses each fault it knows, passes a good notebook, and holds for every chapter."""

import os
import re
import subprocess
import sys

import nbformat
import pytest
import yaml
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from book import guards
from book.cells import ROOT, chapters, read
from book.guards import drift_faults, notebook_faults, size_faults, unsafe_load_faults
from book.notebooks import SOURCES, render
from book.pictures import WIDGET_STATE, WIDGET_VIEW, html_image_faults

SETUP = "try:\n    import plm\nexcept ImportError:\n    %pip install -q git+https://example.org/book\nimport torch"
HEADER = ":::{admonition} What you will build\n:class: learning-header\nA model.\n:::"
ALT = "Three curves; the fine-tuned one is highest"


def code(source: str, *outputs: NotebookNode, tags: tuple[str, ...] = (), **metadata) -> NotebookNode:
    return new_code_cell(source, outputs=list(outputs), metadata={"tags": list(tags), **metadata})


def shown(text: str = "42", **mimes) -> NotebookNode:
    return new_output("display_data", data={"text/plain": text, **mimes})


def printed(text: str, name: str = "stdout") -> NotebookNode:
    return new_output("stream", name=name, text=text)


def picture(mime: str = "image/png") -> NotebookNode:
    return shown("<Figure size 640x480 with 1 Axes>", **{mime: "aGVsbG8="})


def exercise(number: int) -> list[NotebookNode]:
    return [
        new_markdown_cell(f":::{{exercise}} ★ Add\n:label: ex-{number}\nAdd.\n:::"),
        new_markdown_cell(f":::{{solution-start}} ex-{number}\n:class: dropdown\n:::"),
        code("assert 1 + 1 == 2", tags=("solution",)),
        new_markdown_cell(":::{solution-end}\n:::"),
    ]


def notebook(*cells: NotebookNode) -> NotebookNode:
    """A good chapter with `cells` in its middle, counts filled in."""
    nb = new_notebook(metadata={"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}})
    nb.metadata["language_info"] = {"name": "python"}
    nb.cells = [new_markdown_cell("# Title"), new_markdown_cell(HEADER), code(SETUP, tags=("setup", "hide-input"))]
    nb.cells += [code("print(6 * 7)", printed("42\n")), *cells]
    nb.cells += [cell for number in range(6) for cell in exercise(number)]
    for count, cell in enumerate((c for c in nb.cells if c.cell_type == "code"), 1):
        cell.execution_count = count
    return nb


def faults(nb: NotebookNode) -> str:
    return "\n".join(notebook_faults(nb, "ch.ipynb"))


GOOD = [
    code("plot()", picture(), mystnb={"image": {"alt": ALT}}),
    code("fit()", printed("loss 0.31\n"), tags=("nbval-ignore-output",)),
    code("torch.testing.assert_close(loss, 0.3, atol=0.1)"),
    code("1 / 0", new_output("error", ename="ZeroDivisionError", evalue="", traceback=[]), tags=("raises-exception",)),
    new_markdown_cell(f"![{ALT}](map.png) and `<img>`, see https://example.org/home/x"),
    code("x = 1;"),
]


def test_a_good_notebook_has_no_faults():
    assert faults(notebook(*GOOD)) == ""


BAD_CELLS = {
    "wrote to stderr": code("f()", printed("UserWarning: old\n", "stderr")),
    "failed with KeyError": code("f()", new_output("error", ename="KeyError", evalue="", traceback=[])),
    "absolute path '/home/ann/x.csv'": code("f()", printed("read /home/ann/x.csv")),
    "absolute path '/tmp/x'": code("open('/tmp/x')"),
    "absolute path '/root": new_markdown_cell("Look in /root for it"),
    "absolute path '/Users/ann": code(
        "f()", shown(**{"text/html": '<img alt="four words of text" src="/Users/ann/a">'})
    ),
    "absolute path 'C:": code("f()", printed(r"C:\Users\ann")),
    "absolute path 'site-packages": code("f()", printed("lib/python3.11/site-packages/torch")),
    "residue": code("f()", printed("100%|██████████| 3/3 [00:00<00:00, 9.1it/s]")),
    "residue 'at 0x": code("f()", shown("<plm.Model at 0x7f3a12bc0d50>")),
    "'@@TEXT@@' was left behind": code("plot()", picture(), mystnb={"image": {"alt": ALT + " @@TEXT@@"}}),
    "'TODO' was left behind": code("f()  # TODO an assertion"),
    "volatile metadata 'execution'": code("f()", execution={"iopub.execute_input": "2024"}),
    "volatile metadata 'collapsed'": code("f()", collapsed=True),
    "unknown tag 'hide-inputs'": code("f()", tags=("hide-inputs",)),
    "unknown tag 'lib-same:torch.add'": code("f()", tags=("lib-same:torch.add",)),
    "only code cells carry tags": new_markdown_cell("x", metadata={"tags": ["solution"]}),
    "without an assertion in this code cell or the next": code("fit()", tags=("nbval-ignore-output",)),
    "no saved output": code("for word in words:\n    print(word)"),
    "figure without alternative text": code("plot()", picture()),
    "2 pictures share": code("plot()", picture(), picture(), mystnb={"image": {"alt": ALT}}),
    "image without alternative text; say": new_markdown_cell("![](map.png)"),
    "image without alternative text: <img": code("f()", shown(**{"text/html": "<img src='a.png'>"})),
    "image without alternative text: <svg": code("f()", shown(**{"text/html": "<svg><path/></svg>"})),
    "31 lines of code": code("x = 1\n" * 31),
    "imports torchtext": code("from torchtext.vocab import GloVe"),
    "on every code cell of a solution, and only there": code("f()", tags=("solution",)),
    "shows no difficulty": new_markdown_cell(":::{exercise} Add\n:label: ex-0\n:::"),
    "exercise ex-9 has no solution": new_markdown_cell(":::{exercise} ★ Add\n:label: ex-9\n:::"),
    "'ex-9' is no exercise": new_markdown_cell(":::{solution} ex-9\n:class: dropdown\nIt is 2.\n:::"),
    "solution ex-0 lies open": new_markdown_cell(":::{solution} ex-0\nIt is 2.\n:::"),
    "pair each solution-start": new_markdown_cell(":::{solution-end}\n:::"),
}


@pytest.mark.parametrize("message", BAD_CELLS)
def test_guard_refuses_a_bad_cell(message):
    found = faults(notebook(BAD_CELLS[message], code("f()")))
    assert re.search(rf"^ch.ipynb: cell 5: .*{re.escape(message)}", found, re.MULTILINE), found


def test_k14_outputs_stripped():
    stripped = notebook()
    for cell in stripped.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    assert "no cell has an output" in faults(stripped)
    assert "cell 5: shows a value but has no saved output" in faults(notebook(code("1 + 1")))


def test_guard_refuses_a_notebook_that_was_not_run_in_order():
    for count in (None, 1, 99):
        nb = notebook(code("f()"))
        nb.cells[4].execution_count = count
        assert f"cell 5: execution count is {count}, not 3" in faults(nb)


def test_e02_kernel_of_the_authors_machine():
    nb = notebook()
    nb.metadata.kernelspec.name = "conda-env-nlp-py"
    assert "kernel is 'conda-env-nlp-py'; it must be 'python3'" in faults(nb)
    del nb.metadata["kernelspec"], nb.metadata["language_info"]
    assert "kernel is None" in faults(nb)
    assert "language_info names None" in faults(nb)


def test_e04_widget_without_state_or_static_twin():
    view = {WIDGET_VIEW: {"model_id": "abc", "version_major": 2, "version_minor": 0}}
    nb = notebook(code("slider", shown("IntSlider()", **view)))
    assert "cell 5: widget without saved state" in faults(nb)
    assert "cell 5: widget with nothing static beside it" in faults(nb)
    nb.metadata["widgets"] = {WIDGET_STATE: {"state": {"abc": {}}, "version_major": 2, "version_minor": 0}}
    nb.cells[4].outputs[0].data["text/html"] = "<p>Slide.</p>"
    assert faults(nb) == ""


def test_e08_setup_cell_that_leaves_a_colab_reader_alone():
    nb = notebook()
    nb.cells[2].source = "import plm"
    assert "cell 3: set-up does not install plm" in faults(nb)
    nb.cells[2].metadata["tags"] = []
    assert "the first code cell, and no other, must be tagged setup" in faults(nb)


@pytest.mark.parametrize("alt", ["", " ", "Figure size 640x480", "<Figure size 640x480 with 1 Axes>", "plot.png", None])
def test_e10_alternative_text_that_says_nothing(alt):
    nb = notebook(code("plot()", picture("image/svg+xml"), mystnb={"image": {"alt": alt}}))
    assert "cell 5: figure without alternative text" in faults(nb)
    assert html_image_faults(f'<p><img src="a.png" alt="{alt or ""}"></p>')
    assert not html_image_faults(f'<img src="a.png" alt="{ALT}"><svg aria-label="{ALT}"></svg>')


def test_guard_refuses_a_notebook_without_header_assertions_or_exercises():
    nb = notebook()
    nb.cells = [new_markdown_cell("# Title"), *nb.cells[2:4]]
    for message in ("no learning header", "asserts nothing", "0 exercises"):
        assert message in faults(nb)


def test_guard_refuses_an_assertion_that_cannot_fail():
    assert "without an assertion" in faults(
        notebook(code("fit()\nassert True", tags=("nbval-ignore-output",)), code("f()"))
    )
    for nothing in ("assert (1 == 2, 'message')", "assert [loss > 1]", "%%bash\nassert loss > 1"):
        assert "without an assertion" in faults(notebook(code(nothing, tags=("nbval-ignore-output",)), code("f()")))
    uncalled = code("def check():\n    assert loss < 1", tags=("nbval-ignore-output",))
    assert "without an assertion" in faults(notebook(uncalled, code("f()")))


def test_guard_refuses_a_solution_that_checks_nothing_or_never_ends():
    nb = notebook()
    nb.cells[6].source = "1 + 1;"
    del nb.cells[-1]
    assert "the code of solution ex-0 asserts nothing" in faults(nb)
    assert "solution ex-5 never ends" in faults(nb)


def test_guard_refuses_an_invalid_notebook():
    nb = notebook()
    nb["author"] = "Ann"
    assert "not a valid notebook" in faults(nb)
    nb.cells[1]["id"] = nb.cells[0]["id"]
    assert "cell ids are missing or not unique" in faults(nb)


def test_guard_refuses_a_big_file_and_says_so_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "big.ipynb"
    nbformat.write(notebook(code("f()", shown(**{"text/html": "x" * 1_500_000}))), path)
    assert "big.ipynb: 1.5 MB" in size_faults(path)[0]
    assert guards.main([str(path)]) == 1
    assert "1 notebooks, 1 faults" in capsys.readouterr().out
    (tmp_path / "page.html").write_text("<img src='a.png'>")
    assert guards.main(["--html", str(tmp_path)]) == 1


@pytest.mark.parametrize(
    "text",
    ["/work/a/b.py", "/content/book", "c:\\users\\ann", "D:\\book\\a", "at 0x00000ABC1DEF", "3it [00:00, 9it/s]"],
)
def test_guard_refuses_traces_of_a_machine_or_a_bar_in_an_output(text):
    output = nbformat.v4.new_output("stream", name="stdout", text=f"see {text} \n")
    assert re.search("absolute path|residue", faults(notebook(code("print(1)", output))))


def test_guard_refuses_a_notebook_that_left_its_source():
    source = notebook(code("f()", tags=("lesson-only",)))
    assert drift_faults(source, source, "ch.ipynb") == []
    for change, message in [
        (lambda nb: nb.cells.pop(), "28 cells, but its source has 29"),
        (lambda nb: nb.cells[4].update(source="g()"), "ch.ipynb: cell 5: starts 'g()'"),
        (lambda nb: nb.cells[4].metadata.update(tags=[]), "ch.ipynb: cell 5: tags or figure metadata differ"),
    ]:
        nb = nbformat.from_dict(source)
        change(nb)
        assert message in drift_faults(nb, source, "ch.ipynb")[0]


ADVICE = [
    "torch.load(path, weights_only" + "=False)",
    "torch.load(path, weights_only" + "=\n  False)",
    "{'weights_only'" + ": False}",
    "pickle" + ".load(file)",
    "np.load(path, allow_pickle" + "=True)",
]


@pytest.mark.parametrize("line", ADVICE)
def test_d06_guard_refuses_advice_to_unpickle(line):
    assert "line 2: lets a loaded file run code" in unsafe_load_faults(f"import torch\n{line}", "x.py")[0]


def test_d06_no_advice_to_unpickle_in_the_book():
    files = [
        p for folder in ("lib", "chapters") for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".md", ".ipynb")
    ]
    assert files
    assert [f for p in files for f in unsafe_load_faults(p.read_text(encoding="utf-8"), p.name)] == []


def test_e08_nothing_imports_torchtext():
    sources = [p.read_text(encoding="utf-8") for p in (ROOT / "lib").rglob("*.py")]
    assert sources
    assert not any("import torchtext" in s or "from torchtext" in s for s in sources)


def test_e01_nbval_sees_a_changed_output_but_no_progress_bar(tmp_path):
    bar = "from plm.train import progress\nfor step in progress(range(3), 'train', delay=0):\n    print(step)"
    cells = [new_code_cell(bar, execution_count=n, outputs=[printed("0\n1\n2\n")]) for n in (1, 2, 3)]
    nbformat.write(new_notebook(cells=cells), tmp_path / "bars.ipynb")
    changed = new_code_cell("print(6 * 7)", execution_count=1, outputs=[printed("43\n")])
    nbformat.write(new_notebook(cells=[changed]), tmp_path / "changed.ipynb")
    (tmp_path / "source.md").write_text("```{code-cell} ipython3\n1 / 0\n```")  # must not be collected

    options = ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", str(ROOT / "tests/sanitize.cfg")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        *options,
        str(tmp_path),
    ]
    environment = {**os.environ, "PLM_QUIET": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "1 failed, 3 passed" in result.stdout, result.stdout
    assert "changed.ipynb::Cell 0" in result.stdout


def test_every_chapter_of_the_contents_is_there():
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    entries = [entry for part in parts for entry in part["chapters"]]
    entries += [section for entry in entries for section in entry.get("sections", ()) if "file" in section]
    listed = {entry["file"] for entry in entries}
    notebooks = {f"chapters/{path.stem}" for path in chapters()}
    assert notebooks, "there are no notebooks in chapters/"
    assert notebooks == {file for file in listed if re.match(r"chapters/\d\d[a-z]?_", file)}
    assert {path.stem for path in chapters()} == {path.stem for path in SOURCES.glob("*.md")}


@pytest.mark.parametrize("path", chapters(), ids=lambda path: path.stem)
def test_chapter(path):
    nb = read(path)
    found = size_faults(path) + notebook_faults(nb, path.name)
    found += drift_faults(nb, render(SOURCES / f"{path.stem}.md"), path.name)
    assert not found, "\n".join(found)
