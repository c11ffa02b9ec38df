"""plm.evaluate: numbers worked by hand, and intervals that cover what they say."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from plm.data import reviews
from plm.evaluate import (
    Climb,
    Rung,
    accuracy,
    add_rung,
    bootstrap_interval,
    climb,
    ladder_rows,
    mean_and_spread,
    paired_difference,
    perplexity,
    predict,
    read_ladder,
)


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


# --- the ladder

GOOD, LUCKY = (("lr", 0.1), ("steps", 3)), (("lr", 1.0), ("steps", 3))


def pretend(rows, seed):
    """A run whose second setting shines on the test part only."""
    return {GOOD: (0.8, 0.5 + seed / 100), LUCKY: (0.7, 0.99)}


def test_ladder_rows_are_the_same_for_every_rung_and_differ_by_seed():
    rows = ladder_rows(100, 3)
    assert torch.equal(rows, ladder_rows(100, 3))
    assert len(set(rows.tolist())) == 100
    assert not torch.equal(rows, ladder_rows(100, 4))
    assert torch.equal(ladder_rows(500, 3)[:100], rows)  # more labels add sentences, they do not swap them
    for n in (1, len(reviews("rt_train")) + 1):
        with pytest.raises(ValueError, match="number of labels"):
            ladder_rows(n, 0)


def test_climb_chooses_on_dev_and_reports_test():
    found = climb(pretend, labels=(10, 20), seeds=(0, 2))
    assert found.accuracy == {10: [0.5, 0.52], 20: [0.5, 0.52]}
    assert found.settings == {10: dict(GOOD), 20: dict(GOOD)}
    assert found.seeds == [0, 2]


def test_climb_goes_on_where_it_was_stopped(tmp_path):
    store, calls = tmp_path / "climb.json", []

    def run(rows, seed, broken):
        if seed == broken:
            raise KeyboardInterrupt
        calls.append((len(rows), seed))
        return pretend(rows, seed)

    with pytest.raises(KeyboardInterrupt):
        climb(lambda rows, seed: run(rows, seed, 1), (10,), (0, 1), store)
    found = climb(lambda rows, seed: run(rows, seed, None), (10,), (0, 1), store)
    assert calls == [(10, 0), (10, 1)]
    assert found == climb(pretend, (10,), (0, 1))


def test_climb_refuses_seeds_that_tried_other_settings():
    with pytest.raises(ValueError, match="seed 1 tried other settings than seed 0"):
        climb(lambda rows, seed: {(("lr", seed),): (0.5, 0.5)}, (10,), (0, 1))
    with pytest.raises(ValueError, match="at least one"):
        climb(pretend, (), (0,))


def test_climb_keeps_settings_that_are_tuples_and_numbers_that_are_numpys(tmp_path):
    def run(rows, seed):
        return {(("widths", (3, 4)),): (np.float32(0.5), np.float32(0.25))}

    first = climb(run, (10,), (0, 1), tmp_path / "climb.json")
    assert first.settings == {10: {"widths": (3, 4)}}
    assert climb(run, (10,), (0, 1), tmp_path / "climb.json") == first  # from the store


def test_climb_refuses_what_is_no_accuracy(tmp_path):
    """A NaN would win: nothing is larger than it."""
    for wrong in (math.nan, 75.0):
        with pytest.raises(ValueError, match=r"10 labels, seed 0: accuracies lie in"):
            climb(lambda rows, seed, x=wrong: {GOOD: (x, 0.5), LUCKY: (0.9, 0.9)}, (10,), (0,), tmp_path / "c.json")
    assert not (tmp_path / "c.json").exists()


def test_rungs_are_kept_replaced_and_ordered(tmp_path):
    path, result = tmp_path / "ladder.json", climb(pretend, (10,), (0, 1))
    later, earlier = (Rung(name, at, "frozen", "LSTM", "python x.py", result) for name, at in (("b", 6), ("a", 4)))
    add_rung(path, later)
    add_rung(path, earlier)
    assert read_ladder(path) == [earlier, later]
    changed = Rung("a", 4, "random", "LSTM", "python x.py", result)
    add_rung(path, changed)
    assert read_ladder(path) == [changed, later]
    with pytest.raises(ValueError, match="way must be one of"):
        add_rung(path, Rung("c", 4, "thawed", "LSTM", "", result))
    assert read_ladder(path) == [changed, later]


def test_paired_difference_cancels_the_luck_of_the_draw():
    luck = np.array([0.5, 0.6, 0.7, 0.8])
    control = Climb({10: list(luck)}, {}, [0, 1, 2, 3])
    better = Climb({10: [0.83, 0.71, 0.62]}, {}, [3, 2, 1])  # other order, one seed fewer
    gain = paired_difference(better, control, 10)
    assert gain.value == pytest.approx(0.02)
    assert gain.value - gain.low == pytest.approx(
        4.3027 * 0.01 / math.sqrt(3), rel=1e-3
    )  # Student, 2 degrees of freedom
    with pytest.raises(ValueError, match="two seeds"):
        paired_difference(Climb({10: [0.5]}, {}, [7]), control, 10)
