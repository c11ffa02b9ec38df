"""A book of two pages, built the way ours is: what must become HTML does, and what must fail the build fails it."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from book.guards import main as guard
from book.pages import math_faults

ROOT = Path(__file__).resolve().parents[1]
PAGE = """# A page

Inline $x_1$, a link to <https://example.invalid/that-refuses>, and {cite:t}`someone2020`.

$$
a &= b \\\\
c &= d
$$ (eq-a)

{eq}`eq-a`. {TARGET}

```{bibliography}
```
"""


def build(folder: Path, target: str) -> subprocess.CompletedProcess:
    """Build a small book with our configuration; `target` is put into its page."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    config["sphinx"]["local_extensions"] = {"site_fixes": str(ROOT / "lib" / "book")}
    config["sphinx"]["config"].pop("html_static_path")
    config["sphinx"]["config"].pop("html_css_files")
    config.pop("logo")
    config["html"].pop("favicon")
    config["bibtex_bibfiles"] = ["references.bib"]
    (folder / "_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "_toc.yml").write_text("format: jb-book\nroot: page\nchapters:\n- file: note\n", encoding="utf-8")
    (folder / "references.bib").write_text(
        "@misc{someone2020, author={A. Someone}, title={T}, year={2020}}", encoding="utf-8"
    )
    (folder / "page.md").write_text(PAGE.replace("{TARGET}", target), encoding="utf-8")
    code = new_code_cell("show", execution_count=1)
    code.outputs = [new_output("display_data", data={"text/markdown": "Shown $y_2$.", "text/plain": "m"})]
    nb = new_notebook(cells=[new_markdown_cell("# Note\n\nText."), code])
    nb.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nb, folder / "note.ipynb")
    command = [
        sys.executable,
        "-c",
        "from jupyter_book.cli.main import main; main()",
        "build",
        str(folder),
        "-W",
        "-n",
        "--keep-going",
        "-q",
    ]
    return subprocess.run(command, capture_output=True, text=True)


def test_e07_formulas_become_formulas_and_the_pages_load_nothing_from_elsewhere(tmp_path):
    run = build(tmp_path, "All is well.")
    assert run.returncode == 0, run.stdout + run.stderr
    html = tmp_path / "_build" / "html"
    assert guard(["--html", str(html)]) == 0
    page, note = ((html / name).read_text(encoding="utf-8") for name in ("page.html", "note.html"))
    assert page.count('class="math') == 2
    assert note.count('class="math') == 1
    for text in (page, note):
        assert "thebe" not in text.lower().replace("thebe-", "")
        assert 'src="https://cdn' not in text
    assert "colab.research.google.com" in note
    shutil.rmtree(html)


def test_e11_a_dead_internal_link_fails_the_build_and_an_external_one_does_not(tmp_path):
    run = build(tmp_path, "{ref}`nowhere`")
    assert run.returncode != 0
    assert "nowhere" in run.stdout + run.stderr
    assert "example.invalid" not in run.stdout + run.stderr


def test_left_over_dollars_are_seen_and_code_is_not():
    for text in ("Take $x_1$ and", "$$\nE = mc^2\n$$", r"\[ x \]", r"\begin{align}x\end{align}", "$a_{<em>i</em>}$"):
        assert math_faults(f"<p>{text}</p>") != [], text
    assert math_faults("<pre>$x$</pre><p>costs 5$</p><span class='math notranslate'>$x$</span>") == []
