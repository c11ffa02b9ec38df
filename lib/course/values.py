"""Plain data as bytes and back: how inputs reach a student's process and how its answers come out.

A tree of None, bool, int, float, str, list, tuple, dict, NumPy arrays and tensors becomes one safetensors file: the arrays
as they are, the rest as JSON in the header. Reading it executes nothing, whoever wrote it. Objects of any other class, also
of a subclass of these, are refused: a number that brings its own `==` along is not a number.
"""

import json
import sys
from typing import Any

import numpy as np
from safetensors.numpy import load, save

Tree = Any
LARGEST_INT, DEEPEST, MOST_NODES = 2**63, 30, 5_000_000
LONGEST_TEXT = 90_000_000  # characters; a safetensors header holds 100 MB


class NotPlainError(TypeError):
    """A value that is no plain data."""


def encode(tree: Tree) -> bytes:
    """The tree as bytes; raises NotPlainError with the place of the first value that is no plain data."""
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(_pack(tree, "the result", arrays, 0))
    if len(text) > LONGEST_TEXT:
        raise NotPlainError("the result holds too many numbers in lists: make arrays of them")
    return save(arrays, metadata={"tree": text})


def decode(data: bytes, tensors: bool = False) -> Tree:
    """The tree again. tensors: make tensors of what were tensors (needs torch); else they too become arrays.

    Raises ValueError, and nothing else, for bytes that no `encode` made.
    """
    try:
        size = int.from_bytes(data[:8], "little")
        text = json.loads(data[8 : 8 + size])["__metadata__"]["tree"]
        return _unpack(json.loads(text), load(data), tensors, [MOST_NODES])
    except Exception as error:
        raise ValueError(f"unreadable: {type(error).__name__}") from None


def _pack(value: Tree, place: str, arrays: dict[str, np.ndarray], depth: int) -> Any:
    kind = type(value)
    if depth > DEEPEST:
        raise NotPlainError(f"{place} is nested more than {DEEPEST} deep")
    if value is None or kind in (bool, float, str):
        return value
    if kind is int:
        if not -LARGEST_INT <= value < LARGEST_INT:
            raise NotPlainError(f"{place} is a whole number of more than 64 bits")
        return value
    if kind in (list, tuple):
        return {kind.__name__: [_pack(v, f"{place}[{i}]", arrays, depth + 1) for i, v in enumerate(value)]}
    if kind is dict:
        pairs = [[_pack(k, f"a key of {place}", arrays, depth + 1), v] for k, v in value.items()]
        return {"dict": [[k, _pack(v, f"{place}[{k!r}]", arrays, depth + 1)] for k, v in pairs]}
    torch = sys.modules.get("torch")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        value = value.detach().cpu()
        return _array((value.float() if value.dtype == torch.bfloat16 else value).numpy(), place, arrays, "tensor")
    if kind is np.ndarray:
        return _array(value, place, arrays, "array")
    if isinstance(value, np.generic) and kind.__module__ == "numpy":
        return _pack(value.item(), place, arrays, depth + 1)
    raise NotPlainError(f"{place} is a {kind.__name__}; wanted are numbers, text, lists, tuples, dicts and arrays")


def _array(value: np.ndarray, place: str, arrays: dict[str, np.ndarray], kind: str) -> dict[str, str]:
    if value.dtype.kind not in "biuf":
        raise NotPlainError(f"{place} is an array of {value.dtype}; wanted are numbers or booleans")
    name = str(len(arrays))
    arrays[name] = np.array(value, dtype=value.dtype.newbyteorder("="), order="C")
    return {kind: name}


def _unpack(node: Any, arrays: dict[str, np.ndarray], tensors: bool, left: list[int]) -> Tree:
    left[0] -= 1
    if left[0] < 0:
        raise ValueError("too many values")
    if not isinstance(node, dict):
        return node
    (kind, content), *more = node.items()
    if more:
        raise ValueError("two kinds")
    if kind in ("list", "tuple"):
        items = [_unpack(item, arrays, tensors, left) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {_unpack(k, arrays, tensors, left): _unpack(v, arrays, tensors, left) for k, v in content}
    if kind == "tensor" and tensors:
        import torch

        return torch.from_numpy(arrays[content].copy())
    if kind in ("array", "tensor"):
        return arrays[content].copy()  # what `load` gives cannot be written to
    raise ValueError(f"unknown kind {kind}")
