"""The cross entropy in chunks against torch's, in value and gradient, and at the edges."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from plm.linear_loss import linear_cross_entropy


@pytest.mark.parametrize("with_bias", [False, True])
def test_the_chunked_loss_equals_torch_and_finite_differences(with_bias, monkeypatch):
    monkeypatch.setattr("plm.linear_loss.CHUNK", 4)
    torch.manual_seed(0)
    h, w = torch.randn(11, 5).double().requires_grad_(), torch.randn(7, 5).double().requires_grad_()
    b = torch.randn(7).double().requires_grad_() if with_bias else None
    targets = torch.randint(7, (11,))
    targets[[0, 6]] = -100
    leaves = [h, w, *([b] if with_bias else [])]
    ours = linear_cross_entropy(h, w, targets, b)
    theirs = F.cross_entropy(F.linear(h, w, b), targets, reduction="sum")
    assert_close(ours, theirs)
    for a, c in zip(torch.autograd.grad(3 * ours, leaves), torch.autograd.grad(3 * theirs, leaves)):
        assert_close(a, c)
    torch.autograd.gradcheck(lambda *p: linear_cross_entropy(p[0], p[1], targets, *p[2:]), leaves)


def test_c07_no_target_at_all_gives_zero_and_large_scores_stay_finite():
    h, w = torch.randn(3, 5, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    loss = linear_cross_entropy(h, w, torch.full((3,), -100))
    loss.backward()
    assert loss.item() == 0
    assert not h.grad.any()
    assert not w.grad.any()
    big = linear_cross_entropy(1e4 * h.detach(), 1e4 * w.detach(), torch.tensor([0, 1, 2]))
    assert bool(torch.isfinite(big))


def test_the_chunked_loss_under_autocast_is_that_without():
    h, w, targets = torch.randn(9, 5), torch.randn(7, 5, requires_grad=True), torch.randint(7, (9,))
    with torch.autocast("cpu", torch.bfloat16):
        inside = linear_cross_entropy(h, w, targets)
    assert_close(inside, linear_cross_entropy(h, w, targets))
    assert linear_cross_entropy(h.bfloat16(), w, targets).dtype == torch.float32


def test_the_chunked_loss_names_bad_input():
    h, w = torch.randn(3, 5), torch.randn(7, 5)
    with pytest.raises(ValueError, match=r"weight \(V, D\)"):
        linear_cross_entropy(h, w.T, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(TypeError, match="int64"):
        linear_cross_entropy(h, w, torch.zeros(3))
    with pytest.raises(IndexError, match="0 … 6"):
        linear_cross_entropy(h, w, torch.tensor([0, 1, 7]))
