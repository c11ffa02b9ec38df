"""Our LSTM, back-propagation by hand, beside nn.LSTM: seconds for forward and backward on a CPU.

    python benchmarks/lstm.py

Prints, per shape and number of threads, the median over alternating rounds of both, their ratio (above 1: ours is faster), and
the largest difference between outputs and gradients. nn.LSTM runs the fused kernel of oneDNN here.
"""

import statistics
import time

import torch
from torch import nn

from plm.lstm import LSTM

SHAPES = [(32, 32, 256, 256), (16, 64, 128, 128), (32, 32, 128, 256), (64, 35, 200, 200)]  # B, T, d_in, d_hidden
ROUNDS = 21


def step(layer: nn.Module, x: torch.Tensor, weights: torch.Tensor) -> list[torch.Tensor]:
    """Outputs and the gradients of input and parameters."""
    out = layer(x)[0]
    return [out.detach(), *torch.autograd.grad(out, [x, *layer.parameters()], weights)]


def compare(B: int, T: int, d_in: int, d_hidden: int, threads: int) -> tuple[float, float, float]:
    """Median seconds of nn.LSTM and of ours, and the largest relative difference of what they compute."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    theirs, ours = nn.LSTM(d_in, d_hidden, batch_first=True), LSTM(d_in, d_hidden)
    ours.load_state_dict(theirs.state_dict())
    x, weights = torch.randn(B, T, d_in, requires_grad=True), torch.randn(B, T, d_hidden)
    pairs = zip(step(theirs, x, weights), step(ours, x, weights), strict=True)
    difference = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
    repeat = max(1, int(2e9 / (B * T * (d_in + d_hidden) * 24 * d_hidden)))  # about 20 ms each
    seconds: dict[nn.Module, list[float]] = {theirs: [], ours: []}
    for r in range(ROUNDS):
        for layer in (theirs, ours) if r % 2 else (ours, theirs):
            start = time.perf_counter()
            for _ in range(repeat):
                step(layer, x, weights)
            seconds[layer].append((time.perf_counter() - start) / repeat)
    return statistics.median(seconds[theirs]), statistics.median(seconds[ours]), difference


def main() -> None:
    print(f"torch {torch.__version__}; forward and backward, milliseconds, median of {ROUNDS} alternating rounds")
    print("threads   B   T  d_in  d_hidden   nn.LSTM     ours    ratio   difference")
    for threads in (1, 2):
        for shape in SHAPES:
            theirs, ours, difference = compare(*shape, threads)
            B, T, d_in, d_hidden = shape
            print(
                f"{threads:7} {B:3} {T:3} {d_in:5} {d_hidden:9} {1e3 * theirs:9.2f} {1e3 * ours:8.2f}"
                f" {theirs / ours:8.2f} {difference:12.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
