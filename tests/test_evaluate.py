"""plm.evaluate: numbers worked by hand, and intervals that cover what they say."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from plm.evaluate import accuracy, bootstrap_interval, mean_and_spread, perplexity, predict


def test_perplexity_by_hand():
    assert perplexity(np.log([0.25, 0.25])) == pytest.approx(4)
    assert perplexity(np.log([1.0, 0.25])) == pytest.approx(2)
    assert perplexity([0.0]) == 1
    assert perplexity([-math.inf, 0.0]) == math.inf
    assert perplexity([-710.0]) == math.inf


@given(st.integers(1, 10_000), st.integers(1, 50))
def test_perplexity_of_a_uniform_guess_is_the_vocabulary(size, tokens):
    assert perplexity([-math.log(size)] * tokens) == pytest.approx(size)


@pytest.mark.parametrize("bad", [[], [0.5], [float("nan")]])
def test_perplexity_refuses_what_is_no_log_probability(bad):
    with pytest.raises(ValueError, match=r"perplexity|log-prob"):
        perplexity(bad)


def test_accuracy_by_hand_and_shape_errors():
    assert accuracy(torch.tensor([1, 0, 2]), [1, 1, 2]) == pytest.approx(2 / 3)
    for bad in (([1], [1, 2]), ([], [])):
        with pytest.raises(ValueError, match="one shape"):
            accuracy(*bad)


def test_bootstrap_agrees_with_the_normal_interval_and_is_seeded():
    values = np.random.default_rng(0).random(1000) < 0.8
    interval = bootstrap_interval(values)
    error = math.sqrt(values.mean() * (1 - values.mean()) / len(values))
    assert interval.value == values.mean()
    assert interval.low == pytest.approx(values.mean() - 1.96 * error, abs=0.004)
    assert interval.high == pytest.approx(values.mean() + 1.96 * error, abs=0.004)
    assert interval == bootstrap_interval(values)
    assert str(bootstrap_interval([1, 1])) == "1.000 [1.000, 1.000]"


def test_bootstrap_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    intervals = [bootstrap_interval(rng.random(200) < 0.7, samples=300, seed=i) for i in range(200)]
    covered = np.mean([low <= 0.7 <= high for _, low, high in intervals])
    assert 0.9 <= covered <= 0.99


@pytest.mark.parametrize(("values", "level"), [([], 0.95), ([[1, 2]], 0.95), ([1, 2], 1.5), ([1, float("nan")], 0.95)])
def test_bootstrap_refuses_bad_input(values, level):
    with pytest.raises(ValueError, match=r"non-empty|level|NaN"):
        bootstrap_interval(values, level)


def test_mean_and_spread_by_hand():
    mean, std = mean_and_spread([[1.0, 5.0], [3.0, 5.0]])
    assert mean.tolist() == [2, 5]
    assert std == pytest.approx([math.sqrt(2), 0])
    with pytest.raises(ValueError, match="two runs"):
        mean_and_spread([[1.0]])


def test_a24_predict_is_deterministic_and_leaves_the_mode():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).train()
    x = torch.randn(50, 4)
    first = predict(model, x, batch_size=7)
    assert model.training
    assert torch.equal(first, predict(model, x))
    assert torch.equal(first, model.eval()(x).argmax(1))
    model.train()
    model[1].eval()
    predict(model, x)
    assert [part.training for part in model.modules()] == [True, True, False, True]
