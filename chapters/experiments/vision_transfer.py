"""Chapter 1: what do layers trained on the digits 0-4 bring to the digits 5-9?

    python chapters/experiments/vision_transfer.py

Writes chapters/results/vision_transfer.json. About 25 CPU minutes on one thread.

An interrupted run goes on: what the results file holds of the same plan is kept.

Every way of training gets the same images, batches and number of updates, and its
own learning rate: the best of RATES by mean accuracy on "dev" over the first seeds.
No image of dev is in any test set or training set.

Task B is rich, as ImageNet is: on the hard digits the source network sees ten
drawings of each of its images. Two controls belong to that: a source network with
one drawing, and a target task with ten drawings of each labelled image.
"""

import copy
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from plm.data import Digits, digits, per_class, split_digits
from plm.evaluate import accuracy, predict
from plm.files import read_json, write_atomically
from plm.train import Batches, fit, seed_everything
from plm.vision import SmallCNN, SmallCNNConfig, calibrate, transfer

RESULTS = Path(__file__).parents[1] / "results" / "vision_transfer.json"
SOURCE, TARGET = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
CONFIG = {
    "seeds": list(range(10)),
    "tuning_seeds": list(range(5)),
    "rates": [1e-3, 3e-3, 1e-2],
    "labels_per_class": [1, 2, 5, 10, 20, 50],
    "steps": 200,
    "batch_size": 25,
    "marks": [0, 2, 5, 10, 20, 50, 100, 200],
    "marks_at_labels": {
        "plain": 5,
        "hard": 20,
    },  # where the whole curve is recorded, and the layers are compared
    "long_steps": 800,
    "pretraining": {
        "plain": {"draws": 1, "steps": 400},
        "hard": {"draws": 10, "steps": 800},
        "poor": {"draws": 1, "steps": 800},
    },
    "pretraining_batch_size": 64,
    "pretraining_rate": 3e-3,
    "augmented": {"draws": 10, "steps": 400},
    "n_source_test": 200,
    "n_dev": 196,
    "n_test": 350,
}


def drawings(variant: str, n: int) -> list[Digits]:
    """The digits of a variant, drawn `n` times."""
    return [digits(hard=variant != "plain", draw=k) for k in range(n)]


def joined(parts: list[Digits]) -> Digits:
    return Digits(*(torch.cat(tensors) for tensors in zip(*parts)))


class Task:
    """Both halves of the digits for one seed, and the pretrained network."""

    def __init__(self, variant: str, seed: int):
        plan = CONFIG["pretraining"][variant]
        draws = drawings(variant, plan["draws"])
        # The same seed picks the same images from every drawing, so no test image
        # is drawn again for training.
        splits = [
            split_digits(data, SOURCE, CONFIG["n_source_test"], seed)
            for data in draws
        ]
        outers = [split_digits(data, TARGET, CONFIG["n_dev"], 0) for data in draws]
        targets = [
            split_digits(outer.pool, (0, 1, 2, 3, 4), CONFIG["n_test"], seed)
            for outer in outers
        ]
        self.source = joined([split.pool for split in splits])
        self.source_test = splits[0].test
        self.pools = [target.pool for target in targets]
        self.test = targets[0].test
        self.dev = outers[0].test  # the same for all seeds, and never tested on
        self.config = SmallCNNConfig(image_size=self.test.images.shape[-1])
        seed_everything(seed)
        self.pretrained = SmallCNN(self.config)
        size, rate = CONFIG["pretraining_batch_size"], CONFIG["pretraining_rate"]
        train(self.pretrained, self.source, plan["steps"], rate, size, seed)
        self.source_accuracy = score(self.pretrained, self.source_test)

    def few(self, labels: int, draws: int = 1) -> Digits:
        """The first images of each class, in one or more drawings."""
        return joined([per_class(pool, labels) for pool in self.pools[:draws]])

    def start(self, way: str, n_layers: int, seed: int) -> SmallCNN:
        """A network for the target task; new layers depend on the seed alone."""
        seed_everything(1000 + seed)
        if way in ("frozen", "fine-tuned"):
            return transfer(
                self.pretrained, len(TARGET), n_layers, freeze=way == "frozen"
            )
        model = SmallCNN(self.config)
        if way == "control":
            # Random layers, with statistics that give outputs a sane scale.
            calibrate(model, self.source.images[:1000])
            for block in model.blocks[:n_layers]:
                block.freeze()
        return model


def train(
    model: SmallCNN,
    data: Digits,
    steps: int,
    rate: float,
    batch_size: int,
    seed: int,
    **watch,
) -> None:
    """Cross-entropy and Adam; the batches depend on the seed alone."""
    batches = Batches(*data, batch_size=batch_size, seed=seed)
    fit(
        model,
        lambda b: F.cross_entropy(model(b[0]), b[1]),
        batches,
        steps,
        rate,
        **watch,
    )


def score(model: SmallCNN, data: Digits) -> float:
    return accuracy(predict(model, data.images), data.labels)


def run(task: Task, arm: dict, rate: float, seed: int, marks=()) -> dict:
    """Train once; accuracy on dev and test at the end, and on test at `marks`.

    At the marks, twice: as the network is, and with fresh running statistics.
    """
    few = task.few(arm["labels"], arm.get("draws", 1))
    model = task.start(arm["way"], arm["layers"], seed)
    curve, fresh = [], []

    def measure() -> float:
        if marks:
            calibrated = calibrate(copy.deepcopy(model), few.images)
            fresh.append(score(calibrated, task.test))
        curve.append(score(model, task.test))
        return curve[-1]

    steps, size = arm.get("steps", CONFIG["steps"]), CONFIG["batch_size"]
    train(model, few, steps, rate, size, seed, evaluate=measure, evaluate_at=marks)
    result = {"dev": score(model, task.dev), "test": curve[-1]}
    return result | ({"curve": curve, "fresh": fresh} if marks else {})


def best_rate(dev: dict[float, float]) -> float:
    """The rate with the best dev accuracy; of equals the largest, the fastest."""
    return max(dev, key=lambda rate: (round(float(dev[rate]), 4), rate))


def measure_arm(tasks: list[Task], arm: dict, marks=()) -> dict:
    """Choose the learning rate by accuracy on dev, then train with every seed."""

    @functools.cache
    def trained(rate: float, seed: int) -> dict:
        return run(tasks[seed], arm, rate, seed, marks)

    rates, seeds = arm.get("rates", CONFIG["rates"]), CONFIG["tuning_seeds"]
    dev = {
        rate: np.mean([trained(rate, s)["dev"] for s in seeds]) for rate in rates
    }
    rate = best_rate(dev)
    runs = [trained(rate, seed) for seed in CONFIG["seeds"]]
    names = ["test", *(["curve", "fresh"] if marks else [])]
    record = arm | {"rate": rate, "dev": [float(value) for value in dev.values()]}
    record |= {name: [r[name] for r in runs] for name in names}
    mean, std = np.mean(record["test"]), np.std(record["test"], ddof=1)
    print(f"{arm} rate {rate:g}: {mean:.3f} ± {std:.3f}", flush=True)
    return record


@functools.cache
def tasks_of(variant: str) -> list[Task]:
    """The digits and the pretrained network of each seed."""
    return [Task(variant, seed) for seed in CONFIG["seeds"]]


@functools.cache
def earlier() -> dict:
    """What an earlier run left behind."""
    return read_json(RESULTS) if RESULTS.exists() else {"config": {}}


def known(variant: str, part: str, arm: dict, source: str) -> dict | None:
    """The record of an arm in the results of an earlier run of the same plan."""

    def plan(config: dict) -> dict:
        pretraining = config.get("pretraining", {}).get(source)
        return {**config, "pretraining": pretraining}

    if plan(earlier()["config"]) != plan(CONFIG):
        return None
    for record in earlier().get(variant, {}).get(part, []):
        if arm.items() <= record.items():
            rates = arm.get("rates", CONFIG["rates"])
            if record["rate"] == best_rate(dict(zip(rates, record["dev"]))):
                return record
    return None


def study(variant: str, save: Callable[[dict], None]) -> None:
    """All runs on one variant of the digits; `save` is called after each arm."""
    compared = CONFIG["marks_at_labels"][variant]
    out = {
        "source_accuracy": [t.source_accuracy for t in tasks_of(variant)],
        "labels": [],
        "layers": [],
        "controls": [],
    }

    def add(part: str, arm: dict, marks=(), source: str = variant) -> dict:
        record = known(variant, part, arm, source)
        out[part].append(record or measure_arm(tasks_of(source), arm, marks))
        save(out)
        return out[part][-1]

    # The number of labels of the chapter's main figures comes first.
    for labels in sorted(CONFIG["labels_per_class"], key=lambda n: n != compared):
        for way in ("scratch", "frozen", "fine-tuned", "control"):
            marks = CONFIG["marks"][:-1] if labels == compared else ()
            add("labels", {"way": way, "layers": 4, "labels": labels}, marks)
    for way in ("frozen", "fine-tuned", "control"):
        for n_layers in (1, 2, 3):
            add("layers", {"way": way, "layers": n_layers, "labels": compared})
    scratch = next(
        r
        for r in out["labels"]
        if r["way"] == "scratch" and r["labels"] == compared
    )
    same = {"layers": 4, "labels": compared}
    # Had scratch converged? Four times as many updates, with the same rate.
    long = {
        "name": "long",
        "way": "scratch",
        "steps": CONFIG["long_steps"],
        "rates": [scratch["rate"]],
    }
    add("controls", same | long)
    if variant == "hard":
        for way in ("scratch", "fine-tuned"):
            add(
                "controls",
                same | {"name": "augmented", "way": way} | CONFIG["augmented"],
            )
        out["poor_source_accuracy"] = [t.source_accuracy for t in tasks_of("poor")]
        for way in ("frozen", "fine-tuned"):
            arm = same | {"name": "poor source", "way": way}
            add("controls", arm, source="poor")


def main() -> None:
    torch.set_num_threads(1)
    started = time.process_time()
    results = {
        "command": "python chapters/experiments/vision_transfer.py",
        "config": CONFIG,
    }

    def save(variant: str, part: dict) -> None:
        results[variant] = part
        minutes = (time.process_time() - started) / 60
        results["cpu_minutes"] = earlier().get("cpu_minutes", 0) + minutes
        rounded = json.loads(
            json.dumps(results), parse_float=lambda text: round(float(text), 4)
        )
        write_atomically(RESULTS, json.dumps(rounded) + "\n")

    for variant in ("hard", "plain"):
        study(variant, functools.partial(save, variant))


if __name__ == "__main__":
    main()
