"""plm.train: the loop, its schedule, its bars, and checkpoints that hold nothing but numbers."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from plm.train import (
    Batches,
    fit,
    inverse_sqrt,
    linear_decay,
    load_checkpoint,
    pick_device,
    save_checkpoint,
    seed_everything,
)


def line(seed=0):
    """A linear model, data that it can fit, and its loss."""
    torch.manual_seed(seed)
    model, x = nn.Linear(3, 1), torch.randn(20, 3)
    y = x @ torch.tensor([[1.0], [-2.0], [3.0]]) + 0.5
    return model, Batches(x, y, batch_size=5), lambda batch: nn.functional.mse_loss(model(batch[0]), batch[1])


def test_fit_equals_a_loop_written_out():
    model, batches, loss = line()
    other, same_batches, _ = line()
    fit(model, loss, batches, steps=8, lr=0.05)
    optimizer, done = torch.optim.Adam(other.parameters(), lr=0.05), 0
    while done < 8:
        for x, y in same_batches:
            optimizer.zero_grad()
            nn.functional.mse_loss(other(x), y).backward()
            optimizer.step()
            done += 1
    assert_close(model.state_dict(), other.state_dict())


def test_fit_overfits_and_records_what_happened():
    model, batches, loss = line()
    history = fit(
        model, loss, batches, steps=400, lr=0.05, evaluate=lambda: -loss(batches.tensors).item(), evaluate_at=[0, 10]
    )
    assert history.losses[-1] < 1e-3
    assert history.steps == [0, 10, 400]
    assert len(history.losses) == 400
    assert history.best_step == 400
    assert history.best_score == max(history.scores)


def test_evaluation_runs_in_eval_mode_without_gradients_and_the_mode_is_left_as_found():
    model, batches, loss = line()
    seen = []

    def evaluate():
        seen.append((model.training, torch.is_grad_enabled()))
        return 0.0

    model.eval()
    fit(model, loss, batches, steps=3, evaluate=evaluate, evaluate_at=[1])
    assert seen == [(False, False)] * 2
    assert not model.training


def test_early_stop_keeps_the_best_parameters_not_a_live_reference():
    """Case K12: state_dict() alone goes on training."""
    model, batches, loss = line()
    scores, states = iter([1.0, 5.0, 3.0, 2.0, 1.0]), []

    def evaluate():
        states.append({name: t.clone() for name, t in model.state_dict().items()})
        return next(scores)

    history = fit(
        model,
        loss,
        batches,
        steps=100,
        lr=0.1,
        evaluate=evaluate,
        evaluate_at=range(0, 100, 10),
        patience=2,
        keep_best=True,
    )
    assert history.scores == [1.0, 5.0, 3.0, 2.0]
    assert history.best_step == 10
    assert_close(model.state_dict(), states[1])
    assert not torch.equal(states[1]["weight"], states[3]["weight"])


@pytest.mark.parametrize("error", [KeyboardInterrupt, FloatingPointError])
def test_the_best_parameters_come_back_after_an_interruption(error):
    model, batches, loss = line()
    states, calls = [], iter(range(100))

    def evaluate():
        states.append(model.weight.detach().clone())
        return 1.0 if len(states) == 2 else 0.0

    def breaking(batch):
        if next(calls) == 7:
            raise error
        return loss(batch)

    with pytest.raises(error):
        fit(model, breaking, batches, 20, lr=0.1, evaluate=evaluate, evaluate_at=[0, 3, 6], keep_best=True)
    assert torch.equal(model.weight, states[1])
    assert not torch.equal(states[1], states[2])


def test_a24_a_part_that_was_set_to_evaluation_stays_there():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
    model[2].eval()
    fit(model, lambda x: model(x).pow(2).mean(), [torch.randn(8, 2)], 2, evaluate=lambda: 0.0, evaluate_at=[1])
    assert [part.training for part in model.modules()] == [True, True, True, False]


def test_lower_can_be_better():
    model, batches, loss = line()
    scores = iter([3.0, 2.0, 4.0, 5.0])
    history = fit(
        model,
        loss,
        batches,
        50,
        evaluate=lambda: next(scores),
        evaluate_at=range(0, 50, 5),
        patience=2,
        higher_is_better=False,
    )
    assert history.best_score == 2.0
    assert len(history.scores) == 4


def test_frozen_parameters_stay_and_clipping_bounds_the_step():
    model, batches, loss = line()
    model.bias.requires_grad_(False)
    before, bias = model.weight.detach().clone(), model.bias.detach().clone()
    sgd = torch.optim.SGD([model.weight], lr=1.0)
    fit(model, loss, batches, steps=1, optimizer=sgd, clip=0.01)
    assert torch.equal(model.bias, bias)
    assert 0 < (model.weight - before).norm() <= 0.01 + 1e-6


def test_how_the_optimiser_groups_the_parameters_changes_no_bit():
    x, found = torch.linspace(-1, 1, 60).view(12, 5), []
    for order in (1, -1):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(5, 5) for _ in range(8)))
        groups = [{"params": [p]} for p in [*model.parameters()][::order]]
        fit(model, lambda b, m=model: m(b).square().sum(), [x], 20, optimizer=torch.optim.SGD(groups, lr=0.1), clip=0.1)
        found.append([p.detach().clone() for p in model.parameters()])
    assert all(map(torch.equal, *found))


def test_inverse_sqrt_is_the_schedule_of_the_paper_over_its_peak():
    d_model, warmup = 512, 4000
    factor = inverse_sqrt(warmup)
    for step in (1, 2, 1000, 3999, 4000, 4001, 100_000):
        paper = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)  # eq. 3
        assert factor(step - 1) * (d_model * warmup) ** -0.5 == pytest.approx(paper)
    assert factor(warmup - 1) == 1 == max(factor(step) for step in range(10_000))


def test_d03_inverse_sqrt_moves_at_the_first_step_and_needs_no_warm_up():
    assert inverse_sqrt(4)(0) == 0.25
    assert [inverse_sqrt(0)(step) for step in (0, 3)] == [1, 0.5]
    with pytest.raises(ValueError, match="at least 0"):
        inverse_sqrt(-1)


def test_d03_the_first_step_moves_and_the_schedule_ends_at_its_floor():
    assert [linear_decay(10, warmup=4)(step) * 1e-3 for step in range(4)] == pytest.approx([2e-4, 4e-4, 6e-4, 8e-4])
    assert linear_decay(10, warmup=4)(4) == 1
    assert linear_decay(10)(0) == 1
    assert linear_decay(10, floor=0.1)(9) == pytest.approx(0.1)
    model, batches, loss = line()
    before = model.weight.detach().clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    fit(model, loss, batches, steps=1, optimizer=optimizer, schedule=linear_decay(1, warmup=4))
    assert not torch.equal(before, model.weight)
    assert optimizer.param_groups[0]["lr"] == 1e-3


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"steps": 0}, ValueError, "steps"),
        ({"patience": 2}, ValueError, "evaluate"),
        ({"batches": []}, ValueError, "not a single batch"),
        ({"batches": iter([])}, ValueError, "ran out"),
        ({"loss": lambda batch: torch.tensor(float("nan"), requires_grad=True)}, FloatingPointError, "step 0"),
        (
            {"evaluate": lambda: float("nan"), "evaluate_at": [1]},
            FloatingPointError,
            r"evaluate\(\) returned NaN at step 1",
        ),
    ],
)
def test_bad_input_to_fit_is_named(change, error, words):
    model, batches, loss = line()
    with pytest.raises(error, match=words):
        fit(model, **({"loss": loss, "batches": batches, "steps": 2} | change))


def test_batches_are_a_seeded_permutation():
    x = torch.arange(10)
    first, again, other = (Batches(x, batch_size=4, seed=seed) for seed in (0, 0, 1))
    passes = [torch.cat([b for (b,) in first]) for _ in range(2)]
    assert [len(b) for (b,) in again] == [4, 4, 2]
    assert sorted(passes[0].tolist()) == list(range(10))
    assert not torch.equal(*passes)
    assert not torch.equal(passes[0], torch.cat([b for (b,) in other]))
    for bad in ([x, x[:3]], [x[:0]]):
        with pytest.raises(ValueError, match=r"first dimension|at least one example"):
            Batches(*bad, batch_size=4)


def test_seed_everything_fixes_three_generators():
    import random

    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002

    seed_everything(3)
    first = draw()
    seed_everything(3)
    assert draw() == first
    assert pick_device("cpu") == torch.device("cpu")


def test_checkpoint_round_trip(tmp_path):
    model, _, _ = line()
    path = save_checkpoint(tmp_path / "deep" / "model.safetensors", model, {"d": 3, "name": "é"})
    state, config = load_checkpoint(path)
    assert_close(state, dict(model.state_dict()))
    assert config == {"d": 3, "name": "é"}
    half, _ = load_checkpoint(save_checkpoint(path, model, {}, half=True))
    assert half["weight"].dtype == torch.float32
    assert_close(half["weight"], model.weight.detach(), atol=1e-3, rtol=1e-3)


def test_half_precision_that_would_lose_a_number_is_refused_and_bfloat16_comes_back_as_float32(tmp_path):
    model = nn.Linear(1, 1)
    model.weight.data.fill_(1e5)
    with pytest.raises(ValueError, match="weight holds values beyond float16"):
        save_checkpoint(tmp_path / "a", model, {}, half=True)
    assert not (tmp_path / "a").exists()
    state, _ = load_checkpoint(save_checkpoint(tmp_path / "a", model.bfloat16(), {}))
    assert state["weight"].dtype == torch.float32


class Marker:
    """Unpickling this creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_d06_a_checkpoint_runs_no_code_and_broken_ones_are_named(tmp_path):
    marker, path = tmp_path / "ran", tmp_path / "model.safetensors"
    buffer = io.BytesIO()
    pickle.dump(Marker(marker), buffer)
    whole = save_checkpoint(tmp_path / "whole.safetensors", line()[0], {}).read_bytes()
    for content in (buffer.getvalue(), b"", whole[:-10], b"text"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"model.safetensors"):
            load_checkpoint(path)
    assert not marker.exists()
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        load_checkpoint(tmp_path / "absent")
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="no config"):
        load_checkpoint(path)
