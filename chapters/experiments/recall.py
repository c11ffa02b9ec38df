"""Recall across a distance: which recurrent layer remembers a symbol, and how far?

    python chapters/experiments/recall.py

Budget: about 10 minutes of one core. The task: a symbol out of 8, then d others out
of the same 8, then a question mark; the answer is the first symbol, and chance is
1/8. Every training batch draws its d from 1 to 40, so that the short ones can teach
the long ones; then each distance is tested by itself, also one that was never
trained. All kinds get the same number of steps, sequences and units. The learning
rate of each kind is chosen on another seed than those reported, by the mean
accuracy over the distances. "only_longest" repeats this for two kinds with d = 40
alone, in training and in the test. Finished runs are kept in
chapters/results/recall.json and not run again.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from plm.files import read_json, write_atomically
from plm.lstm import GRU, LSTM
from plm.rnn import RNN
from plm.train import seed_everything

RESULTS = Path(__file__).parent.parent / "results" / "recall.json"
SYMBOLS = 8
D_EMB, D_HIDDEN, BATCH, STEPS, LONGEST = 16, 32, 32, 1500, 40
DISTANCES = (1, 2, 5, 10, 15, 20, 25, 30, 40, 60)  # the last is never trained
RATES = (1e-3, 3e-3, 1e-2)
TUNING_SEED, SEEDS = 100, range(5)
ONLY_LONGEST = ("LSTM", "LSTM, forget bias 3")
KINDS = {
    "RNN": lambda: RNN(D_EMB, D_HIDDEN),
    "GRU": lambda: GRU(D_EMB, D_HIDDEN),
    "LSTM": lambda: LSTM(D_EMB, D_HIDDEN),
    "LSTM, forget bias 1": lambda: LSTM(D_EMB, D_HIDDEN, forget_bias=1.0),
    "LSTM, forget bias 3": lambda: LSTM(D_EMB, D_HIDDEN, forget_bias=3.0),
}


def sequences(n: int, distance: int, generator: torch.Generator):
    """ids (n, distance + 2): a symbol, the others, a question mark; the answers."""
    symbols = torch.randint(SYMBOLS, (n,), generator=generator)
    noise = torch.randint(SYMBOLS, (n, distance), generator=generator)
    question = torch.full((n, 1), SYMBOLS)
    return torch.cat([symbols[:, None], noise, question], 1), symbols


class Recaller(nn.Module):
    """Embedding, a recurrent layer, and the answer from its last output."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS + 1, D_EMB)
        self.layer, self.head = layer, nn.Linear(D_HIDDEN, SYMBOLS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embedding(ids))[0][:, -1])


def train(
    kind: str, lr: float, seed: int, steps: int = STEPS, shortest: int = 1
) -> Recaller:
    """One model of a kind, trained on all distances from `shortest` to LONGEST."""
    seed_everything(seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    model = Recaller(KINDS[kind]())
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, 2 * (1 - step / steps))
        distance = int(
            torch.randint(shortest, LONGEST + 1, (1,), generator=generator)
        )
        ids, symbols = sequences(BATCH, distance, generator)
        loss = F.cross_entropy(model(ids), symbols)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


@torch.no_grad()
def right(model: Recaller, distance: int, n: int = 1000) -> float:
    """The share of right answers on new sequences, the same for every model."""
    ids, symbols = sequences(n, distance, torch.Generator().manual_seed(distance))
    return float((model(ids).argmax(1) == symbols).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--kinds", nargs="+", default=list(KINDS), choices=list(KINDS)
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = read_json(RESULTS) if RESULTS.exists() else {"runs": {}}
    done |= {"command": "python chapters/experiments/recall.py", "steps": STEPS}
    done |= {"batch": BATCH, "d_hidden": D_HIDDEN, "symbols": SYMBOLS}
    done |= {"distances": list(DISTANCES), "longest_trained": LONGEST}
    done |= {"rates": list(RATES), "seeds": list(SEEDS), "tuning_seed": TUNING_SEED}
    runs = done["runs"]

    def once(kind: str, lr: float, seed: int, shortest: int = 1) -> list[float]:
        key = f"{kind} | lr={lr:g} | seed={seed}"
        key += f" | from {shortest}" if shortest > 1 else ""
        if key not in runs:
            started = time.process_time()
            model = train(kind, lr, seed, shortest=shortest)
            runs[key] = [round(right(model, d), 4) for d in DISTANCES]
            print(
                key, runs[key], f"{time.process_time() - started:.0f} s", flush=True
            )
            write_atomically(RESULTS, json.dumps(done, indent=1) + "\n")
        return runs[key]

    for kind in args.kinds:
        best = max(RATES, key=lambda lr: sum(once(kind, lr, TUNING_SEED)))
        accuracy = [once(kind, best, seed) for seed in SEEDS]
        done.setdefault("accuracy", {})[kind] = accuracy
        done.setdefault("lr", {})[kind] = best
        write_atomically(RESULTS, json.dumps(done, indent=1) + "\n")
    # Without the short distances that teach the long ones.
    for kind in (kind for kind in args.kinds if kind in ONLY_LONGEST):
        at = DISTANCES.index(LONGEST)
        rates = {lr: once(kind, lr, TUNING_SEED, LONGEST)[at] for lr in RATES}
        best = max(rates, key=rates.get)
        found = [once(kind, best, seed, LONGEST)[at] for seed in SEEDS]
        done.setdefault("only_longest", {})[kind] = found
        done.setdefault("only_longest_lr", {})[kind] = best
        write_atomically(RESULTS, json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()
