"""Our RNN beside nn.RNN: seconds for forward and backward on a CPU.

    python benchmarks/rnn.py

Prints, per shape, the median over alternating rounds of both and their ratio (above 1: ours is faster), and the largest relative
difference between outputs and gradients. A last line shows what the input projection outside the loop is worth.
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from plm.rnn import RNN

SHAPES = [(32, 32, 256, 256), (16, 64, 128, 128), (64, 32, 256, 256), (32, 80, 64, 400)]  # B, T, d_in, d_hidden
ROUNDS = 15


def step(layer: Callable, x: torch.Tensor, parameters: list, weights: torch.Tensor) -> list[torch.Tensor]:
    """Outputs and the gradients of input and parameters."""
    out = layer(x)[0]
    return [out.detach(), *torch.autograd.grad(out, [x, *parameters], weights)]


def inside_the_loop(rnn: RNN) -> Callable:
    """The same layer with the input projected step by step."""

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h, outputs = x.new_zeros(len(x), rnn.d_hidden), []
        for x_t in x.unbind(1):
            from_x = nn.functional.linear(x_t, rnn.weight_ih_l0, rnn.bias_ih_l0)
            h = torch.tanh(from_x + nn.functional.linear(h, rnn.weight_hh_l0, rnn.bias_hh_l0))
            outputs.append(h)
        return torch.stack(outputs, 1), h

    return forward


def race(layers: list[Callable], x: torch.Tensor, parameters: list[list], weights: torch.Tensor) -> list[float]:
    """Median seconds of each layer, in alternating order."""
    seconds: list[list[float]] = [[] for _ in layers]
    for r in range(ROUNDS):
        for i in range(len(layers)) if r % 2 else reversed(range(len(layers))):
            start = time.perf_counter()
            step(layers[i], x, parameters[i], weights)
            seconds[i].append(time.perf_counter() - start)
    return [statistics.median(s) for s in seconds]


def main() -> None:
    print(f"torch {torch.__version__}, one thread; forward and backward, milliseconds, median of {ROUNDS} rounds")
    print("  B   T  d_in  d_hidden    nn.RNN     ours    ratio   step by step   difference")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for B, T, d_in, d_hidden in SHAPES:
        theirs, ours = nn.RNN(d_in, d_hidden, batch_first=True), RNN(d_in, d_hidden)
        ours.load_state_dict(theirs.state_dict())
        x, weights = torch.randn(B, T, d_in, requires_grad=True), torch.randn(B, T, d_hidden)
        mine, parameters = list(ours.parameters()), list(theirs.parameters())
        pairs = zip(step(theirs, x, parameters, weights), step(ours, x, mine, weights), strict=True)
        difference = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
        t, o, slow = race([theirs, ours, inside_the_loop(ours)], x, [parameters, mine, mine], weights)
        print(
            f"{B:3} {T:3} {d_in:5} {d_hidden:9} {1e3 * t:9.2f} {1e3 * o:8.2f} {t / o:8.2f} {1e3 * slow:14.2f}"
            f" {difference:12.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
