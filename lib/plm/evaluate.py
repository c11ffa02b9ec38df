"""How good is it, and how sure are we? Perplexity, accuracy, intervals around both, and the ladder.

The ladder is one task on which every way of the book to represent text is measured: is a sentence of a film review
positive? With 100, 500 and 2,000 labels, always the same test sentences, and for each seed the same labelled ones.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import t as student
from torch import Tensor, nn

from plm.data import reviews
from plm.files import read_json, write_atomically


class Interval(NamedTuple):
    """An estimate and the interval around it."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Spread(NamedTuple):
    """Mean and standard deviation over seeds (n - 1 in the denominator); arrays when the runs are curves."""

    mean: np.ndarray
    std: np.ndarray


def perplexity(log_probs: ArrayLike) -> float:
    """exp of the mean negative natural-log probability per predicted token; lower is better, |V| is a uniform guess."""
    values = np.asarray(log_probs, dtype=np.float64)
    if values.size == 0:
        raise ValueError("perplexity of nothing: the text has no token to predict")
    if np.isnan(values).any() or (values > 1e-9).any():
        raise ValueError("log-probabilities must be at most 0 and not NaN (were probabilities or logits passed?)")
    surprise = -values.mean()
    return math.exp(surprise) if surprise < 700 else math.inf  # exp(710) is beyond a float


def modes(model: nn.Module) -> list[tuple[nn.Module, bool]]:
    """Each module with its mode (True = training), for `restore`."""
    return [(module, module.training) for module in model.modules()]


def restore(found: list[tuple[nn.Module, bool]]) -> None:
    """Put every module back into the mode that `modes` found: a part that was frozen by hand stays so."""
    for module, training in found:
        module.training = training


@torch.no_grad()
def predict(model: nn.Module, inputs: Tensor, batch_size: int = 1024) -> Tensor:
    """The class with the highest logit, (N,) int64. Runs in evaluation mode and leaves the model in the mode it found."""
    found = modes(model)
    model.eval()
    try:
        return torch.cat([model(chunk).argmax(-1) for chunk in inputs.split(batch_size)])
    finally:
        restore(found)


def accuracy(predictions: ArrayLike | Tensor, labels: ArrayLike | Tensor) -> float:
    """Share of predictions that equal their label."""
    found, wanted = np.asarray(predictions), np.asarray(labels)
    if found.shape != wanted.shape or found.size == 0:
        raise ValueError(f"predictions {found.shape} and labels {wanted.shape} must have one shape, and not be empty")
    return float((found == wanted).mean())


def bootstrap_interval(values: ArrayLike, level: float = 0.95, samples: int = 2000, seed: int = 0) -> Interval:
    """Mean of `values` (say, 1 for each right answer, 0 for each wrong one) with a percentile bootstrap interval.

    It shows the luck of the test set, not of the training run: for that, train with several seeds. Efron 1979.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or data.size == 0:
        raise ValueError(f"bootstrap_interval takes one non-empty row of values, got shape {data.shape}")
    if np.isnan(data).any():
        raise ValueError("bootstrap_interval got NaN among its values")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    rng = np.random.default_rng(seed)
    # Drawing row by row keeps the memory at one resample however large the test set is.
    means = [data[rng.integers(0, data.size, data.size)].mean() for _ in range(samples)]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(data.mean()), float(low), float(high))


def mean_and_spread(runs: Sequence[ArrayLike]) -> Spread:
    """Mean and standard deviation over runs (one per seed), number by number or curve by curve."""
    data = np.asarray(runs, dtype=np.float64)
    if len(data) < 2:
        raise ValueError("a spread needs at least two runs: train with several seeds")
    return Spread(data.mean(axis=0), data.std(axis=0, ddof=1))


# --- the ladder -----------------------------------------------------------------------------------------------------

LADDER_LABELS = (100, 500, 2000)
LADDER_SEEDS = tuple(range(10))
WAYS = ("bag", "random", "frozen", "fine-tuned")  # bag: no vectors at all

Setting = tuple[tuple[str, Any], ...]  # (("lr", 0.01), ("steps", 300))
Run = Callable[[Tensor, int], Mapping[Setting, tuple[float, float]]]


@dataclass(frozen=True)
class Climb:
    """What a way of representing text reached: by number of labels the test accuracy of each seed, and the settings used."""

    accuracy: dict[int, list[float]]
    settings: dict[int, dict[str, Any]]
    seeds: list[int]


@dataclass(frozen=True)
class Rung:
    """A climb with its name, as `ladder.json` keeps it."""

    name: str
    chapter: int
    way: str  # one of WAYS
    model: str  # a key of plot.COLOURS, or "bag of words"
    command: str
    climb: Climb


def ladder_rows(n: int, seed: int) -> Tensor:
    """Which `n` sentences of `reviews("rt_train")` have a label in the run `seed`: (n,) int64, the same for every rung."""
    pool = len(reviews("rt_train"))
    if not 2 <= n <= pool:
        raise ValueError(f"the number of labels must lie between 2 and {pool}, got {n}")
    return torch.randperm(pool, generator=torch.Generator().manual_seed(seed))[:n]


def climb(
    run: Run,
    labels: Iterable[int] = LADDER_LABELS,
    seeds: Iterable[int] = LADDER_SEEDS,
    store: str | Path | None = None,
) -> Climb:
    """Measure one way of representing text on the ladder.

    run(rows, seed) trains on the sentences `rows` of `reviews("rt_train")` and returns {setting: (dev accuracy, test
    accuracy)} for each setting of its grid. Per number of labels the setting with the best dev accuracy, a mean over the
    seeds, is chosen, and its test accuracies are reported: the test part never chooses anything.
    `store`: a JSON file that keeps each finished run, so that a climb goes on where it was stopped.
    """
    labels, seeds = list(labels), list(seeds)
    if not labels or not seeds:
        raise ValueError("a climb needs at least one number of labels and one seed")
    done = read_json(store) if store is not None and Path(store).exists() else {}
    accuracy_of: dict[int, list[float]] = {}
    settings: dict[int, dict[str, Any]] = {}
    for n in labels:
        scores: list[dict[Setting, tuple[float, float]]] = []
        for seed in seeds:
            key = f"{n} labels, seed {seed}"
            if key not in done:
                found = run(ladder_rows(n, seed), seed)
                done[key] = [
                    [list(map(list, setting)), float(dev), float(test)] for setting, (dev, test) in found.items()
                ]
                if not all(0 <= score <= 1 for _, *both in done[key] for score in both):
                    raise ValueError(f"{key}: accuracies lie in 0 … 1, and NaN is none; got {found}")
                if store is not None:
                    write_atomically(store, json.dumps(done) + "\n")
            scores.append({_hashable(setting): (dev, test) for setting, dev, test in done[key]})
            if not scores[-1] or scores[-1].keys() != scores[0].keys():
                raise ValueError(f"{key} tried other settings than seed {seeds[0]}: every seed needs the whole grid")
        best = max(scores[0], key=lambda setting: statistics.mean(found[setting][0] for found in scores))
        settings[n] = dict(best)
        accuracy_of[n] = [round(found[best][1], 4) for found in scores]
    return Climb(accuracy_of, settings, seeds)


def _hashable(value: Any) -> Any:
    """Lists as tuples, all the way down: JSON knows no tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def read_ladder(path: str | Path) -> list[Rung]:
    """The rungs stored in `path`, in the order of the chapters."""
    rungs = []
    for entry in read_json(path):
        result = entry["climb"]
        accuracy_of, settings = (
            {int(n): value for n, value in result[part].items()} for part in ("accuracy", "settings")
        )
        rungs.append(Rung(**{**entry, "climb": Climb(accuracy_of, settings, result["seeds"])}))
    return rungs


def add_rung(path: str | Path, rung: Rung) -> None:
    """Write a rung into the ladder at `path`, in place of an older one of that name; the others stay."""
    if rung.way not in WAYS:
        raise ValueError(f"the way must be one of {', '.join(WAYS)}; got {rung.way!r}")
    others = [old for old in read_ladder(path) if old.name != rung.name] if Path(path).exists() else []
    ladder = sorted([*others, rung], key=lambda entry: entry.chapter)  # stable: within a chapter in order of arrival
    write_atomically(path, json.dumps([asdict(entry) for entry in ladder], indent=1) + "\n")


def paired_difference(rung: Climb, control: Climb, n: int, level: float = 0.95) -> Interval:
    """Mean gain in accuracy of `rung` over `control` with `n` labels, with Student's interval over the seeds they share.

    Both saw the same sentences in each run, so the luck of the draw cancels. The luck of the one test set does not.
    """
    shared = [seed for seed in rung.seeds if seed in control.seeds]
    if len(shared) < 2:
        raise ValueError("a paired difference needs at least two seeds that both climbs have run")
    ours, theirs = (np.array([c.accuracy[n][c.seeds.index(seed)] for seed in shared]) for c in (rung, control))
    gains = ours - theirs
    half = student.ppf((1 + level) / 2, len(gains) - 1) * gains.std(ddof=1) / math.sqrt(len(gains))
    return Interval(float(gains.mean()), float(gains.mean() - half), float(gains.mean() + half))
