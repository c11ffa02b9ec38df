"""How long does a step take when the sequence grows: recurrence or attention?

Command: python chapters/experiments/transformer_speed.py
Budget: about two minutes on one core.

Forward and backward through one layer, in CPU seconds of one thread (so that other
work on the machine counts little), medians of alternating rounds. Two settings: a
single sequence of wide vectors, and a batch of narrow ones. nn.RNN and nn.LSTM are
torch's compiled layers; attention is plm.attention's, written in Python.

Writes chapters/results/transformer_speed.json.
"""

import json
import statistics
import time
from pathlib import Path

import torch
from torch import nn

from plm.attention import MultiHeadAttention
from plm.files import write_atomically

RESULTS = Path(__file__).resolve().parents[1] / "results" / "transformer_speed.json"
COMMAND = "python chapters/experiments/transformer_speed.py"
SETTINGS, LENGTHS, ROUNDS = ((1, 512), (8, 128)), (16, 32, 64, 128, 256, 512), 5


def seconds(layer: nn.Module, x: torch.Tensor) -> float:
    start = time.process_time()
    layer(x)[0].sum().backward()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    settings = []
    for B, d in SETTINGS:
        torch.manual_seed(0)
        layers = {
            "RNN": nn.RNN(d, d, batch_first=True),
            "LSTM": nn.LSTM(d, d, batch_first=True),
            "attention": MultiHeadAttention(d, 4),
        }
        found = {name: [] for name in layers}
        for T in LENGTHS:
            x = torch.randn(B, T, d, requires_grad=True)
            taken = {name: [] for name in layers}
            for _ in range(ROUNDS + 1):
                for name, layer in layers.items():
                    taken[name].append(seconds(layer, x))
            for name, values in taken.items():  # the first round warms up
                found[name].append(round(1e3 * statistics.median(values[1:]), 3))
        settings.append({"batch": B, "width": d, "milliseconds": found})
        print(B, d, found, flush=True)
    content = {"command": COMMAND, "lengths": LENGTHS, "rounds": ROUNDS}
    content |= {"torch": torch.__version__.split("+")[0], "settings": settings}
    write_atomically(RESULTS, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
