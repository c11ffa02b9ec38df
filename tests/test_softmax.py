"""plm.softmax: the estimate is right on average, equal to the full sum at full size, and refuses nonsense."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from plm.softmax import WordSampler, sampled_cross_entropy


def problem(V=50, D=6, N=20):
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return draw(N, D), torch.randint(V, (N,), generator=generator), draw(V, D), draw(V)


def test_keeping_all_words_is_the_full_cross_entropy():
    h, targets, weight, bias = problem()
    for tensor in (h, weight, bias):
        tensor.requires_grad_()
    ours = sampled_cross_entropy(h, targets, weight, bias, WordSampler(torch.ones(50), 50))
    full = F.cross_entropy(h @ weight.T + bias, targets)
    assert_close(ours, full)
    for a, b in zip(*(torch.autograd.grad(loss, [h, weight, bias]) for loss in (ours, full))):
        assert_close(a, b)


def test_the_sum_is_right_on_average():
    h, targets, weight, _ = problem()
    sampler = WordSampler(torch.arange(50).float(), 15)
    own = (h * weight[targets]).sum(1)
    rows = []
    for _ in range(4000):  # exp(loss_i) * exp(own_i) is the estimate of row i's sum
        losses = [sampled_cross_entropy(h[i : i + 1], targets[i : i + 1], weight, None, sampler) for i in range(2)]
        rows.append([float((loss + score).exp()) for loss, score in zip(losses, own)])
    exact = (h @ weight.T).exp().sum(1)[:2]
    sums = torch.tensor(rows, dtype=torch.float64)
    error = sums.std(0) / len(rows) ** 0.5
    assert ((sums.mean(0) - exact).abs() < 4 * error).all()
    assert (error < exact / 20).all()


def test_draws_hold_as_many_words_as_asked_and_repeat_with_the_seed():
    counts = torch.tensor([1000.0] + [1.0] * 99 + [0.0] * 100)
    sampler = WordSampler(counts, 40, seed=3)
    draws = [sampler.draw() for _ in range(500)]
    assert 38 < sum(map(len, draws)) / 500 < 42
    assert all(0 in d for d in draws)  # the frequent word is always there
    assert any((d >= 100).any() for d in draws)  # a word that never occurred may be
    again = WordSampler(counts, 40, seed=3)
    assert all(torch.equal(d, again.draw()) for d in draws)
    share = torch.bincount(torch.cat(draws), minlength=200) / 500
    assert (share - sampler.probability).abs().max() < 0.1


def test_ignored_rows_do_not_count():
    h, targets, weight, bias = problem()
    sampler = WordSampler(torch.ones(50), 50)
    some = targets.clone()
    some[5:] = -100
    assert_close(
        sampled_cross_entropy(h, some, weight, bias, sampler),
        sampled_cross_entropy(h[:5], targets[:5], weight, bias, sampler),
    )
    h.requires_grad_()
    nothing = sampled_cross_entropy(h, torch.full_like(targets, -100), weight, bias, sampler)
    nothing.backward()
    assert nothing == 0
    assert (h.grad == 0).all()


def test_bad_input_is_refused():
    h, targets, weight, bias = problem()
    sampler = WordSampler(torch.ones(50), 10)
    for wrong in (targets.int(), targets[:3], targets[:, None]):
        with pytest.raises(ValueError, match="int64"):
            sampled_cross_entropy(h, wrong, weight, bias, sampler)
    with pytest.raises(ValueError, match="weight must be"):
        sampled_cross_entropy(h, targets, weight[:40], bias, sampler)
    with pytest.raises(IndexError, match="0 … 49; got"):
        sampled_cross_entropy(h, targets + 50, weight, bias, sampler)
    for keep in (0, 51):
        with pytest.raises(ValueError, match="keep"):
            WordSampler(torch.ones(50), keep)
    with pytest.raises(ValueError, match="bias must be"):
        sampled_cross_entropy(h, targets, weight, torch.zeros(51), sampler)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="counts"):
            WordSampler(torch.tensor([1.0, wrong]), 1)
