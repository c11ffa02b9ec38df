"""The parity guard refuses each way in which a chapter and the library can drift apart, and holds for every chapter."""

import ast
from textwrap import dedent

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from book.cells import chapters, read
from book.parity import bare, definitions, library_definition, parity_faults

LIBRARY = '''
@dataclass(frozen=True)
class Config:
    """Sizes."""
    vocab: int
    width: int = 8

def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Turn scores into shares that sum to 1."""
    e: Tensor = (x - x.max(dim, keepdim=True).values).exp()
    return e / e.sum(dim, keepdim=True)

class Pair(NamedTuple):
    low: float
    high: float

class Cell(nn.Module):
    """One step. Elman 1990."""
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.w(x))
'''
CONFIG = "@dataclass(frozen=True)\nclass Config:\n    vocab: 'size'\n    width: float = 8"
SOFTMAX = """def softmax(x, dim=-1):
    e = (x - x.max(dim, keepdim=True).values).exp()  # safe
    return e / e.sum(dim, keepdim=True)"""
CELL = "class Cell(nn.Module):\n    pass"
COMPARE = "torch.testing.assert_close(Cell(2)(x), plm.rnn.Cell(2)(x))"


def library(dotted):
    """Stands in for `lib/plm`: one module, `plm.rnn`."""
    module, _, name = dotted.rpartition(".")
    return next((d for d in definitions(ast.parse(LIBRARY).body) if (module, d.name) == ("plm.rnn", name)), None)


def faults(*cells):
    """The faults of a notebook of (source, tags) cells."""
    nb = new_notebook(cells=[new_code_cell(dedent(source), metadata={"tags": tags}) for source, *tags in cells])
    return "\n".join(parity_faults(nb, "ch.ipynb", library))


GOOD = {
    "same, without types": [(SOFTMAX, "lib-same:plm.rnn.softmax")],
    "same dataclass, other types": [(CONFIG, "lib-same:plm.rnn.Config")],
    "lesson-only": [("def step(): ...", "lesson-only")],
    "solution": [("def step(): ...", "solution", "hide-input")],
    "one of each": [(SOFTMAX + "\n\ndef step(): ...", "lib-same:plm.rnn.softmax", "lesson-only")],
    "module attribute": [("import torch, plm.rnn",), (CELL, "lib-equiv:plm.rnn.Cell"), (COMPARE,)],
    "alias": [
        ("from plm.rnn import Cell as LibraryCell",),
        (CELL, "lib-equiv:plm.rnn.Cell"),
        ("assert_close(Cell(2)(x), LibraryCell(2)(x))",),
    ],
    "variables over two cells": [
        ("from plm import rnn",),
        (CELL, "lib-equiv:plm.rnn.Cell"),
        ("ours, theirs = Cell(2), 0\ntheirs = rnn.Cell(2)\ntheirs.load_state_dict(ours.state_dict())",),
        ("np.testing.assert_allclose(ours(x), theirs(x))",),
    ],
    "nothing defined": [("x = 1",), ("%matplotlib inline\n!ls",)],
}
BAD = {
    "softmax has no tag": [(SOFTMAX,)],
    "step has no tag": [(SOFTMAX + "\n\ndef step(): ...", "lib-same:plm.rnn.softmax")],
    "hidden has no tag": [("%%time\nif True:\n    class hidden: ...",)],
    "softmax has 2 lib- tags": [(SOFTMAX, "lib-same:plm.rnn.softmax", "lib-equiv:plm.rnn.softmax")],
    "lesson-only, but nothing": [(SOFTMAX, "lib-same:plm.rnn.softmax", "lesson-only")],
    "the cell defines no softmax": [("x = 1", "lib-same:plm.rnn.softmax")],
    "there is no class or function plm.rnn.Gru": [("class Gru: ...", "lib-same:plm.rnn.Gru")],
    "there is no class or function plm.lstm.Cell": [(CELL, "lib-equiv:plm.lstm.Cell"), (COMPARE,)],
    "-    e = (x - x.max(dim, keepdim=True).values).exp()\n+    e = x.exp()": [
        (SOFTMAX.replace("(x - x.max(dim, keepdim=True).values)", "x"), "lib-same:plm.rnn.softmax")
    ],
    "softmax differs from plm.rnn.softmax": [(SOFTMAX.replace("dim=-1", "dim=0"), "lib-same:plm.rnn.softmax")],
    "-    width: ... = 8": [(CONFIG.replace("width: float", "width"), "lib-same:plm.rnn.Config")],
    "Pair differs from plm.rnn.Pair": [
        ("class Pair(NamedTuple):\n    high: float\n    low: float", "lib-same:plm.rnn.Pair")
    ],
    "lib-equiv:plm.rnn.Cell, but no later cell calls assert_close": [
        (CELL, "lib-equiv:plm.rnn.Cell"),
        ("a = Cell(1)\nb = plm.rnn.Cell(1)\nassert_close(1, 1)",),
    ],
    "no later cell calls assert_close on Cell": [(COMPARE,), (CELL, "lib-equiv:plm.rnn.Cell")],
    "assert_close on Cell and plm.rnn.Cell": [
        (CELL, "lib-equiv:plm.rnn.Cell"),
        ("assert_close(Cell(2)(x), nn.RNNCell(2)(x))",),
        ("print(Cell(2), plm.rnn.Cell(2))",),
        ("assert_close(plm.rnn.Cell(2)(x), plm.lstm.Cell(2)(x))",),
    ],
}


@pytest.mark.parametrize("case", GOOD)
def test_guard_passes(case):
    assert faults(*GOOD[case]) == ""


@pytest.mark.parametrize("message", BAD)
def test_guard_refuses(message):
    found = faults(*BAD[message])
    assert message in found
    assert found.startswith("ch.ipynb: cell ")


def test_definitions_are_compared_without_docstrings_comments_and_annotations():
    bodies = [
        'def f(x: int) -> int:\n    """Doc."""\n    y: int = x\n    return cast(int, y)',
        "def f(x):\n    y = x  # why\n    return (y)",
    ]
    assert len({bare(next(definitions(ast.parse(body).body))) for body in bodies}) == 1
    assert bare(next(definitions(ast.parse("@typing.final\nclass A:\n    'Doc.'").body))) == "class A:\n    pass"


def test_library_definitions_are_found_in_the_sources():
    assert library_definition("plm.vocab.Vocab").name == "Vocab"
    assert library_definition("plm.vocab.Vocab.build").name == "build"
    assert library_definition("plm.vocab.Nothing") is None
    assert library_definition("plm.nothing.Vocab") is None


def test_there_are_chapters_to_compare():
    assert chapters()


@pytest.mark.parametrize("path", chapters(), ids=lambda path: path.stem)
def test_chapter(path):
    found = parity_faults(read(path), path.name)
    assert not found, "\n".join(found)
