"""Looking at notebooks: their cells, tags, syntax trees, assertions and outputs. The guards are built on these."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]


def chapters() -> list[Path]:
    """The notebooks of the book, in reading order of their file names."""
    return sorted((ROOT / "chapters").glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    """Read a notebook as it lies on disk, without validation or repair."""
    return nbformat.v4.reads(path.read_text(encoding="utf-8"))


def code_cells(nb: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    """The code cells that hold code, each with its number among all cells (from 1)."""
    return ((n, c) for n, c in enumerate(nb.cells, 1) if c.cell_type == "code" and c.source.strip())


def markdown_cells(nb: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    """The markdown cells, each with its number among all cells (from 1)."""
    return ((n, c) for n, c in enumerate(nb.cells, 1) if c.cell_type == "markdown")


def cell_label(path: Path, cell: NotebookNode) -> str:
    """The label that `book.site_fixes` gives a code cell: {ref}`text <02_language_models-cell-017>` leads to it."""
    return f"{path.stem}-{cell.id}"


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    return list(cell.metadata.get("tags", []))


@cache
def syntax(source: str) -> ast.Module:
    """The syntax tree of a cell, its IPython magics translated. Do not change it: it is shared."""
    body = re.sub(r"\A\s*%%(time|timeit|capture)\b.*\n", "", source)  # these run the cell as Python all the same
    if re.match(r"\s*%%", body):
        return ast.Module([], [])
    try:
        return ast.parse(TransformerManager().transform_cell(body))
    except SyntaxError:  # only a cell tagged raises-exception gets this far in an executed notebook
        return ast.Module([], [])


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """Walk the part of a tree that runs with the cell: not the bodies of functions and classes."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield child
            yield from executed(child)


def call_name(node: ast.AST) -> str:
    """`assert_close` for a call of `torch.testing.assert_close(...)`; "" when `node` is no call."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


# Tests that cannot fail, whatever their parts are.
CERTAIN = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.JoinedStr, ast.Lambda)


def asserts(source: str) -> bool:
    """Whether running the cell checks something: an assert that can fail, or a call of some `assert_...`."""
    return any(
        (isinstance(node, ast.Assert) and not isinstance(node.test, CERTAIN)) or call_name(node).startswith("assert_")
        for node in executed(syntax(source))
    )


def output_texts(cell: NotebookNode) -> Iterator[str]:
    """Everything readable in the outputs of a cell: streams, tracebacks and data, but no bitmap."""
    for output in cell.outputs:
        yield output.get("text", "")
        yield "\n".join(output.get("traceback", []))
        for mime, data in output.get("data", {}).items():
            if not mime.startswith("image/") or "svg" in mime:
                yield data if isinstance(data, str) else json.dumps(data)
