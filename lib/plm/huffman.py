"""The Huffman tree behind hierarchical softmax: frequent words near the root, each word a path of left-or-right decisions."""

import heapq
from dataclasses import dataclass

import torch
from numpy.typing import ArrayLike
from torch import Tensor

NO_NODE = -1


@dataclass(frozen=True)
class HuffmanTree:
    """Paths from the root to each of V words, padded on the right to the longest path, L.

    points: (V, L) int64, the inner nodes on the way, root first; -1 after the end. There are V - 1 inner nodes, and the root
    is the last of them. codes: (V, L) int64, the turn taken at each: 0 or 1; -1 after the end.
    """

    points: Tensor
    codes: Tensor

    @property
    def lengths(self) -> Tensor:
        """Decisions on the way to each word, (V,) int64."""
        return (self.points != NO_NODE).sum(1)

    def code(self, word: int) -> str:
        """The turns to one word as a string, such as "010"."""
        return "".join(str(int(turn)) for turn in self.codes[word] if turn != NO_NODE)


def huffman(counts: ArrayLike) -> HuffmanTree:
    """Merge the two rarest nodes until one is left: no other binary tree has shorter paths on average.

    counts: (V,), how often each word occurs; 0 is allowed. The rarer of two merged nodes gets turn 1 or 0 by order of
    merging, so the tree depends on the counts alone. Huffman 1952; for word2vec Mikolov et al. 2013b, section 2.1.
    """
    sizes = torch.as_tensor(counts, dtype=torch.float64)
    if sizes.ndim != 1 or len(sizes) < 2:
        raise ValueError(f"a tree needs a row of at least two counts, got shape {tuple(sizes.shape)}")
    if not (torch.isfinite(sizes).all() and (sizes >= 0).all()):
        raise ValueError("counts must be 0 or more, and finite")
    V = len(sizes)
    heap = [(count, node) for node, count in enumerate(sizes.tolist())]  # equal counts: the older node first
    heapq.heapify(heap)
    parent, turn = [0] * (2 * V - 1), [0] * (2 * V - 1)
    for node in range(V, 2 * V - 1):  # words are nodes 0 … V - 1, inner nodes follow in the order they are made
        (first, a), (second, b) = heapq.heappop(heap), heapq.heappop(heap)
        parent[a] = parent[b] = node
        turn[b] = 1
        heapq.heappush(heap, (first + second, node))
    return _paths(parent, turn, V)


def _paths(parent: list[int], turn: list[int], V: int) -> HuffmanTree:
    root, points, codes = 2 * V - 2, [], []
    for word in range(V):
        path, turns, node = [], [], word
        while node != root:
            turns.append(turn[node])
            node = parent[node]
            path.append(node - V)
        points.append(path[::-1])
        codes.append(turns[::-1])
    return HuffmanTree(_padded(points), _padded(codes))


def _padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [NO_NODE] * (longest - len(row)) for row in rows])
