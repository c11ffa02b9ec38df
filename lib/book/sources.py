"""Format the code cells of the chapter sources, as ruff formats a notebook.

python -m book.sources    # all chapters; part of make lint
"""

import json
import re
import subprocess
import sys

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from plm.files import write_atomically

# A code cell of a MyST notebook: the fence, its options (YAML between --- or lines of :key: value), the code.
CELL = re.compile(r"(?ms)^(```\{code-cell\}[^\n]*\n(?:---\n.*?\n---\n|(?::[\w-]+:[^\n]*\n)*)\n*)(.*?)(\n```)$")


def ruff_format(cells: list[str]) -> list[str]:
    """The cells of one notebook, formatted; ruff knows magics and a semicolon at the end."""
    nb = new_notebook(cells=[new_code_cell(code) for code in cells])
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "chapters/source.ipynb", "-"]
    run = subprocess.run(command, input=nbformat.writes(nb), capture_output=True, text=True, check=False)
    if run.returncode:
        raise ValueError(f"ruff cannot format this chapter: {run.stderr.strip()}")
    return ["".join(cell["source"]) for cell in json.loads(run.stdout)["cells"]]


def format_source(text: str) -> str:
    """A chapter source with each code cell formatted and everything else untouched."""
    formatted = iter(ruff_format([match[2] for match in CELL.finditer(text)]))
    return CELL.sub(lambda match: match[1] + next(formatted) + match[3], text)


if __name__ == "__main__":
    from book.notebooks import sources

    for path in sources():
        before = path.read_text(encoding="utf-8")
        after = format_source(before)
        if after != before:
            write_atomically(path, after)
            print(f"formatted {path.name}")
