"""Style and types: ruff on every .py and .ipynb, mypy on the library; each with a bad example."""

import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from book.cells import ROOT, chapters

CONFIG = ["--config", str(ROOT / "pyproject.toml")]
FOLDERS = [name for name in ("lib", "tests", "chapters") if (ROOT / name).is_dir()]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of this environment at the top of the repository."""
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [["check"], ["format", "--check", "--diff"]], ids=["check", "format"])
def test_ruff(command):
    result = run("ruff", *command, *FOLDERS)
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff_looks_into_the_notebooks():
    files = run("ruff", "check", "--show-files", *FOLDERS).stdout
    assert chapters()
    for path in chapters():
        assert str(path) in files


def test_mypy():
    result = run("mypy")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("suffix", [".py", ".ipynb"])
def test_ruff_refuses_a_bad_file(tmp_path, suffix):
    source, path = "import os\nx = [ 1,2 ]", tmp_path / f"bad{suffix}"
    notebook = nbformat.writes(
        new_notebook(cells=[new_code_cell(source)], metadata={"language_info": {"name": "python"}})
    )
    path.write_text(source + "\n" if suffix == ".py" else notebook)
    checked = run("ruff", "check", *CONFIG, str(path))
    assert checked.returncode == 1
    assert "F401" in checked.stdout
    assert run("ruff", "format", "--check", *CONFIG, str(path)).returncode == 1


def test_mypy_refuses_a_public_function_without_types(tmp_path):
    (tmp_path / "bad.py").write_text("def perplexity(loss):\n    return 2**loss\n")
    result = run("mypy", "--config-file", str(ROOT / "pyproject.toml"), str(tmp_path / "bad.py"))
    assert result.returncode == 1
    assert "missing a type annotation" in result.stdout
