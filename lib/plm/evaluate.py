"""How good is it, and how sure are we? Perplexity, accuracy, and intervals around both."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn


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
