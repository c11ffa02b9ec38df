"""How alike are two vectors, and which rows of a table are most like a given one?"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the angle between two vectors: 1 same direction, 0 at right angles, -1 opposite.

    a, b: (..., d), broadcast. Returns (...). Raises ValueError for a zero vector, which has no direction.
    """
    lengths = a.norm(dim=-1) * b.norm(dim=-1)
    if (lengths == 0).any():
        raise ValueError("the zero vector has no direction: no cosine")
    return (a * b).sum(-1) / lengths


class Neighbours(NamedTuple):
    """Row numbers of a table, the most similar first, and their cosines."""

    ids: list[int]
    cosines: list[float]


def nearest(query: Tensor, table: Tensor, k: int = 10, exclude: Iterable[int] = ()) -> Neighbours:
    """The k rows of `table` (V, d) with the highest cosine to `query` (d,).

    exclude: rows that do not count, such as the query word itself (and, in an analogy, all words of the question). Rows of
    zeros never count. Equal cosines are ordered by row number.
    """
    if query.ndim != 1 or table.ndim != 2 or query.shape[0] != table.shape[1]:
        raise ValueError(f"need a query (d,) and a table (V, d), got {tuple(query.shape)} and {tuple(table.shape)}")
    if not torch.isfinite(query).all():
        raise ValueError("the query holds NaN or infinity")
    lengths = table.norm(dim=1)
    counts = lengths > 0
    counts[list(exclude)] = False
    rows = counts.nonzero()[:, 0]
    if not 1 <= k <= len(rows):
        raise ValueError(f"asked for {k} neighbours, but {len(rows)} rows can be one")
    cosines = cosine(query, table[rows])
    best = cosines.argsort(descending=True, stable=True)[:k]
    return Neighbours(rows[best].tolist(), cosines[best].tolist())
