"""The cross entropy behind a large output matrix, without ever storing a score for every token and word at once."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 512  # rows scored at a time: 512 x 6,000 floats are 12 MB, about what a processor's cache holds
IGNORED = -100


class LinearCrossEntropy(torch.autograd.Function):
    """Sum of -log softmax(h W^T + b)[target], and its gradient, made together, a few rows at a time.

    The gradient of the scores is softmax - one-hot, known as soon as the scores are. So each chunk of scores is used up where
    it stands: no (N, V) table waits for the backward pass, and none is read twice.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
        needs = ctx.needs_input_grad
        grad_h = torch.empty_like(h) if needs[0] else None
        grad_w = torch.zeros_like(weight) if needs[1] else None
        grad_b = torch.zeros_like(bias) if bias is not None and needs[2] else None
        total = h.new_zeros((), dtype=torch.float64)
        for start in range(0, len(h), CHUNK):
            rows, wanted = h[start : start + CHUNK], targets[start : start + CHUNK, None]
            scores = F.linear(rows, weight, bias)
            scores -= scores.amax(1, keepdim=True)
            right = scores.gather(1, wanted)
            norm = scores.exp_().sum(1, keepdim=True)
            total += (norm.log() - right).sum(dtype=torch.float64)
            if not any(needs):
                continue
            scores /= norm
            scores.scatter_add_(1, wanted, torch.full_like(right, -1.0))
            if grad_h is not None:
                grad_h[start : start + CHUNK] = scores @ weight
            if grad_w is not None:
                grad_w.addmm_(scores.T, rows)
            if grad_b is not None:
                grad_b += scores.sum(0)
        ctx.save_for_backward(grad_h, grad_w, grad_b)
        return total.to(h.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if g is None else g * grad for g in ctx.saved_tensors), None


def linear_cross_entropy(h: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None) -> Tensor:
    """Summed cross entropy of `targets` under the scores h W^T + b: F.cross_entropy(F.linear(…), …, reduction="sum").

    h: (N, D); weight: (V, D); targets: (N,) int64, -100 where none counts. Scored in the precision of the weight, also under
    autocast. Rows are summed in chunks, so the result may differ in the last digits. 0 if no target counts.
    """
    if h.ndim != 2 or weight.ndim != 2 or h.shape[1] != weight.shape[1]:
        raise ValueError(f"h must be (N, D) and weight (V, D); got {tuple(h.shape)} and {tuple(weight.shape)}")
    if targets.shape != h.shape[:1] or targets.dtype != torch.int64:
        raise TypeError(f"targets must be ({len(h)},) int64; got {tuple(targets.shape)} {targets.dtype}")
    counts = targets != IGNORED
    if not bool(counts.all()):
        h, targets = h[counts], targets[counts]
    if targets.numel() and not (targets.min() >= 0 and targets.max() < len(weight)):
        low, high = targets.min().item(), targets.max().item()
        raise IndexError(f"targets must lie in 0 … {len(weight) - 1}, or be {IGNORED}; got {low} … {high}")
    with torch.autocast(h.device.type, enabled=False):
        return LinearCrossEntropy.apply(h.to(weight.dtype), weight, bias, targets)
