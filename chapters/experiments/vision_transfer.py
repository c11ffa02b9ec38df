"""Chapter 1: what do layers trained on the digits 0-4 bring to the digits 5-9?

    python chapters/experiments/vision_transfer.py

Writes chapters/results/vision_transfer.json. About 30 CPU minutes on one thread.

Every way of training gets the same images, batches and number of updates, and its own learning rate: the best of RATES on
held-out images ("dev") in runs that are not reported. The reported runs have other splits and another test set.
"""

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from plm.data import Digits, digits, per_class, split_digits
from plm.evaluate import accuracy, predict
from plm.files import write_atomically
from plm.train import Batches, fit, seed_everything
from plm.vision import SmallCNN, SmallCNNConfig, calibrate, transfer

RESULTS = Path(__file__).parents[1] / "results" / "vision_transfer.json"
SOURCE, TARGET = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
CONFIG = {
    "seeds": list(range(10)),
    "tuning_seeds": [100, 101],
    "rates": [1e-3, 3e-3, 1e-2],
    "labels_per_class": [1, 2, 5, 10, 20, 50],
    "steps": 200,
    "batch_size": 25,
    "marks": [0, 2, 5, 10, 20, 50, 100, 200],
    "marks_at_labels": {"plain": 5, "hard": 20},  # where the whole curve is recorded, and the layers are compared
    "long_steps": 800,
    "pretraining": {"steps": 400, "batch_size": 64, "rate": 3e-3},
    "n_source_test": 200,
    "n_dev": 196,
    "n_test": 350,
}


class Task:
    """Both halves of the digits for one seed, and the network pretrained on the source half."""

    def __init__(self, data: Digits, seed: int):
        self.source = split_digits(data, SOURCE, CONFIG["n_source_test"], seed)
        outer = split_digits(data, TARGET, CONFIG["n_dev"], 0)  # dev is the same for all seeds, and never tested on
        self.dev = outer.test
        self.target = split_digits(outer.pool, (0, 1, 2, 3, 4), CONFIG["n_test"], seed)
        self.config = SmallCNNConfig(image_size=data.images.shape[-1])
        seed_everything(seed)
        self.pretrained = SmallCNN(self.config)
        plan = CONFIG["pretraining"]
        train(self.pretrained, self.source.pool, plan["steps"], plan["rate"], plan["batch_size"], seed)
        self.source_accuracy = score(self.pretrained, self.source.test)

    def start(self, way: str, n_layers: int, seed: int) -> SmallCNN:
        """A network for the target task. New layers are drawn from the same seed whichever way is asked for."""
        seed_everything(1000 + seed)
        if way in ("frozen", "fine-tuned"):
            return transfer(self.pretrained, len(TARGET), n_layers, freeze=way == "frozen")
        model = SmallCNN(self.config)
        if way == "control":  # random layers, with statistics from many images so that their outputs have a sane scale
            calibrate(model, self.source.pool.images).freeze(n_layers)
        return model


def train(model: SmallCNN, data: Digits, steps: int, rate: float, batch_size: int, seed: int, **watch) -> None:
    """Cross-entropy and Adam; the order of the batches depends on the seed alone."""
    batches = Batches(*data, batch_size=batch_size, seed=seed)
    fit(model, lambda b: F.cross_entropy(model(b[0]), b[1]), batches, steps, rate, **watch)


def score(model: SmallCNN, data: Digits) -> float:
    return accuracy(predict(model, data.images), data.labels)


def run(task: Task, way: str, n_layers: int, labels: int, rate: float, seed: int, marks=(), steps=None) -> dict:
    """Train once; accuracy on dev and test at the end, and at `marks` as it is and with fresh statistics."""
    few = per_class(task.target.pool, labels)
    model = task.start(way, n_layers, seed)
    curve, fresh = [], []

    def measure() -> float:
        if marks:
            fresh.append(score(calibrate(copy.deepcopy(model), few.images), task.target.test))
        curve.append(score(model, task.target.test))
        return curve[-1]

    train(model, few, steps or CONFIG["steps"], rate, CONFIG["batch_size"], seed, evaluate=measure, evaluate_at=marks)
    result = {"dev": score(model, task.dev), "test": curve[-1]}
    return result | ({"curve": curve, "fresh": fresh} if marks else {})


def best_rate(tuning: list[Task], way: str, n_layers: int, labels: int) -> float:
    """The learning rate with the best mean accuracy on dev."""

    def on_dev(rate: float) -> float:
        runs = [run(t, way, n_layers, labels, rate, s)["dev"] for t, s in zip(tuning, CONFIG["tuning_seeds"])]
        return float(np.mean(runs))

    return max(CONFIG["rates"], key=on_dev)


def measure_way(tasks: list[Task], tuning: list[Task], way: str, n_layers: int, labels: int, marks=()) -> dict:
    """Tune the rate, then train once per seed."""
    rate = best_rate(tuning, way, n_layers, labels)
    runs = [run(t, way, n_layers, labels, rate, s, marks) for t, s in zip(tasks, CONFIG["seeds"])]
    record = {"way": way, "layers": n_layers, "labels": labels, "rate": rate, "test": [r["test"] for r in runs]}
    if marks:
        record |= {"curve": [r["curve"] for r in runs], "fresh": [r["fresh"] for r in runs]}
    mean, std = np.mean(record["test"]), np.std(record["test"], ddof=1)
    print(f"{way:10s} layers {n_layers} labels {labels:2d} rate {rate:g}: {mean:.3f} ± {std:.3f}", flush=True)
    return record


def study(variant: str, save: Callable[[dict], None]) -> None:
    """All runs on one variant of the digits; `save` is called after each step."""
    data = digits(hard=variant == "hard")
    tasks, tuning = ([Task(data, s) for s in CONFIG[key]] for key in ("seeds", "tuning_seeds"))
    out = {"source_accuracy": [t.source_accuracy for t in tasks], "labels": [], "layers": [], "long": []}
    compared = CONFIG["marks_at_labels"][variant]
    # The number of labels shown in the chapter's main figures comes first, then the rest.
    for labels in sorted(CONFIG["labels_per_class"], key=lambda n: n != compared):
        for way in ("scratch", "frozen", "fine-tuned", "control"):
            marks = CONFIG["marks"][:-1] if labels == compared else ()
            out["labels"].append(measure_way(tasks, tuning, way, 4, labels, marks))
            save(out)
    for way in ("frozen", "fine-tuned", "control"):
        for n_layers in (1, 2, 3):
            out["layers"].append(measure_way(tasks, tuning, way, n_layers, compared))
            save(out)
    # Had scratch converged? Four times as many updates, with the same rate.
    scratch = next(r for r in out["labels"] if r["way"] == "scratch" and r["labels"] == compared)
    out["long"] = [
        run(t, "scratch", 4, compared, scratch["rate"], s, steps=CONFIG["long_steps"])["test"]
        for t, s in zip(tasks[:5], CONFIG["seeds"])
    ]
    save(out)


def main() -> None:
    torch.set_num_threads(1)
    started = time.process_time()
    results = {"command": "python chapters/experiments/vision_transfer.py", "config": CONFIG}
    for variant in ("hard", "plain"):

        def save(part: dict) -> None:
            results[variant] = part  # noqa: B023 - used inside this turn of the loop only
            results["cpu_minutes"] = round((time.process_time() - started) / 60, 1)
            rounded = json.loads(json.dumps(results), parse_float=lambda text: round(float(text), 4))
            write_atomically(RESULTS, json.dumps(rounded, indent=None, separators=(", ", ": ")) + "\n")

        study(variant, save)


if __name__ == "__main__":
    main()
