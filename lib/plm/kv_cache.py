"""What attention keeps from step to step, so that no token is read twice."""

import torch
from torch import Tensor


class KVCache:
    """Keys and values of the positions seen so far, each (B, n_heads, T, d_head); empty at first.

    Without gradients they lie in buffers that double when they are full, so that a position is copied about once and not
    again at every later step; with gradients, which need the old tensors, each step makes new ones.
    """

    def __init__(self) -> None:
        self._k: Tensor | None = None  # (B, n_heads, room, d_head)
        self._v: Tensor | None = None
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def k(self) -> Tensor | None:
        """The keys so far."""
        return None if self._k is None else self._k[:, :, : self._length]

    @property
    def v(self) -> Tensor | None:
        """The values so far."""
        return None if self._v is None else self._v[:, :, : self._length]

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append new positions; return all. ValueError for those of another batch, layer or precision."""
        if self._k is not None and (self._k[:, :, 0].shape, self._k.dtype) != (k[:, :, 0].shape, k.dtype):
            raise ValueError(
                f"this cache holds keys {tuple(self._k[:, :, : self._length].shape)} {self._k.dtype}, and the new ones are "
                f"{tuple(k.shape)} {k.dtype}: one cache serves one layer and one batch"
            )
        before, self._length = self._length, self._length + k.shape[2]
        self._k, self._v = _appended(self._k, k, before), _appended(self._v, v, before)
        return self._k[:, :, : self._length], self._v[:, :, : self._length]

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order (a beam search drops some and doubles others)."""
        if self._k is not None and self._v is not None:
            self._k, self._v = self._k[rows], self._v[rows]


def _appended(buffer: Tensor | None, new: Tensor, n: int) -> Tensor:
    """A buffer whose first n positions are old and whose next ones are `new`: the same one, if it has the room."""
    if buffer is None:
        return new
    if torch.is_grad_enabled():
        return torch.cat([buffer[:, :, :n], new], 2)
    need = n + new.shape[2]
    frozen = buffer.is_inference() and not torch.is_inference_mode_enabled()  # torch lets nobody write to it
    if buffer.shape[2] < need or buffer.requires_grad or frozen:
        room = buffer.new_empty(*buffer.shape[:2], max(need, 2 * buffer.shape[2]), buffer.shape[3])
        room[:, :, :n] = buffer[:, :, :n]
        buffer = room
    buffer[:, :, n:need] = new
    return buffer
