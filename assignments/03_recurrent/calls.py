"""How the answers of assignment 3 are called. Student code may read this file: it holds no expected value."""

import numpy as np


def some_cell(x, h, c, w):
    """A small recurrent cell with two states, for questions that take any cell."""
    h = np.tanh(x @ w["x"].T + h @ w["h"].T + w["b"] + 0.5 * c)
    return h, 0.9 * c + h


def some_cell_back(x, h, c, w, dh, dc):
    """Its gradient."""
    da = (dh + dc) * (1 - some_cell(x, h, c, w)[0] ** 2)
    dw = {"x": da.T @ x, "h": da.T @ h, "b": da.sum(0)}
    return da @ w["x"], da @ w["h"], 0.9 * dc + 0.5 * da, dw


def step_and_arguments(answers, **arguments):
    """What `step` returns, and what it leaves of its arguments."""
    return answers.step(**arguments), arguments


def read_some_cell(answers, **arguments):
    """`read` with the cell above."""
    return answers.read(some_cell, **arguments)


def read_back_some_cell(answers, **arguments):
    """`read_back` with the cell above."""
    return answers.read_back(some_cell, some_cell_back, **arguments)


def weights_back(answers, **arguments):
    """Only the gradients of the weights."""
    return answers.step_back(**arguments)[3]


def inputs_back(answers, **arguments):
    """Only the gradients of x, h and c."""
    return answers.step_back(**arguments)[:3]
