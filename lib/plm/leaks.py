"""Does a model see what it has to guess? Ask it: change a word, and look which guesses move."""

from collections.abc import Callable

import torch
from torch import Tensor


@torch.no_grad()
def influence(guess: Callable[[Tensor], Tensor], ids: Tensor, other_id: int, tolerance: float = 0.0) -> Tensor:
    """Which words does each guess depend on? Change one word after the other and look what moves.

    guess: ids (1, T) -> scores (1, N, V), one row per guess; ids: (1, T). Returns bool (N, T): row n, column j is True if
    guess n moved by more than `tolerance` when word j became `other_id` (or, where it was that, the id after it).
    """
    before, moved = guess(ids)[0], []
    for j in range(ids.shape[1]):
        changed = ids.clone()
        changed[0, j] = other_id + (1 if ids[0, j] == other_id else 0)
        moved.append(((guess(changed)[0] - before).abs() > tolerance).any(-1))
    return torch.stack(moved, 1)
