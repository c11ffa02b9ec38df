"""GloVe against counting by hand, autograd, torch's AdaGrad, and what must never change."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from plm.glove import GloVe, GloVeConfig, adagrad_step, cooccurrences, glove_gradients, glove_weight, train_glove
from plm.glove_kernels import steps

V, D = 9, 20
SMALL = {"min_count": 1, "d_emb": 8, "window": 3, "epochs": 30}


def random_model(seed=0):
    torch.manual_seed(seed)
    model = GloVe(V, D, x_max=10)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model


def some_cells(n=40, seed=0):
    """Words and counts, below and above x_max; words repeat."""
    rng = np.random.default_rng(seed)
    return (*torch.from_numpy(rng.integers(0, V, (2, n))), torch.from_numpy(rng.uniform(0.2, 30, n)).float())


def text(n=300, seed=0):
    """Two groups of words that never meet, and one word that meets all."""
    rng = np.random.default_rng(seed)
    return [[*(f"{'ab'[i % 2]}{k}" for k in rng.integers(0, 5, 6)), "the"] for i in range(n)]


# --- counts -------------------------------------------------------------------------------------------------------


def test_counts_by_hand():
    """0 1 2 0: the words at distance 1, 2 and 3 of each other count 1, 1/2 and 1/3, from both sides."""
    X = cooccurrences([[0, 1, 2, 0], [2]], window=3).toarray()
    np.testing.assert_allclose(X, [[2 / 3, 1.5, 1.5], [1.5, 0, 1], [1.5, 1, 0]])
    np.testing.assert_allclose(
        cooccurrences([[0, 1, 2, 0]], 4, window=1).toarray()[:3, :3], [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    )


@given(st.lists(st.lists(st.integers(0, 4), max_size=8), max_size=5), st.integers(1, 9))
def test_counts_equal_a_double_loop(sentences, window):
    wanted = np.zeros((5, 5))
    for s in sentences:
        for i in range(len(s)):
            for j in range(len(s)):
                if i != j and abs(i - j) <= window:
                    wanted[s[i], s[j]] += 1 / abs(i - j)
    X = cooccurrences(sentences, 5, window)
    np.testing.assert_allclose(X.toarray(), wanted)
    assert (X.data > 0).all()


# --- equals a reference -------------------------------------------------------------------------------------------


def test_weight_by_hand():
    assert_close(glove_weight(torch.tensor([0.0, 6.25, 100, 500])), torch.tensor([0, 0.125, 1, 1]))  # (1/16) ** 0.75


def test_loss_cell_by_cell():
    model, (i, j, counts) = random_model().double(), some_cells()
    total = 0.0
    for a, b, x in zip(i.tolist(), j.tolist(), counts.tolist(), strict=True):
        error = (model.Q[a] @ model.C[b] + model.b[a, 0] + model.a[b, 0]).item() - math.log(x)
        total += min(x / 10, 1) ** 0.75 * error**2 / 2
    assert model.loss(i, j, counts.double()).item() == pytest.approx(total)


def test_gradients_written_out_equal_autograd():
    model, (i, j, counts) = random_model().double(), some_cells()
    model.loss(i, j, counts.double()).backward()
    found = glove_gradients(model, i, j, counts.double())
    for p, ids, gradient in zip(model.parameters(), (i, j, i, j), found, strict=True):
        assert p.grad.abs().sum() > 0
        assert_close(torch.zeros_like(p).index_add(0, ids, gradient), p.grad)


def test_a_step_by_hand_equals_adagrad_with_autograd():
    model, cells = random_model(), some_cells()
    twin, squares = copy.deepcopy(model), [torch.ones_like(p) for p in model.parameters()]
    optimizer = torch.optim.Adagrad(twin.parameters(), lr=0.1, initial_accumulator_value=1.0)
    for _ in range(3):
        adagrad_step(model, squares, *cells, lr=0.1)
        optimizer.zero_grad()
        twin.loss(*cells).backward()
        optimizer.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert_close(p, q)


def test_compiled_steps_equal_pytorch():
    model, cells = random_model(), some_cells()
    tables = [p.detach().numpy().copy() for p in model.parameters()]
    squares = [np.ones_like(t) for t in tables]
    twins = [torch.ones_like(p) for p in model.parameters()]
    before = [p.detach().clone() for p in model.parameters()]
    for n in range(len(cells[0])):
        adagrad_step(model, twins, *(c[n : n + 1] for c in cells), lr=0.1)
    i, j, counts = cells
    weights = glove_weight(counts, model.x_max, model.alpha).numpy()
    steps(*tables, *squares, i.int().numpy(), j.int().numpy(), counts.log().numpy(), weights, 0.1)
    for p, table, start in zip(model.parameters(), tables, before, strict=True):
        assert_close(torch.from_numpy(table), p.detach(), rtol=1e-4, atol=1e-5)
        assert (p - start).abs().max() > 0.02
    for square, twin in zip(squares, twins, strict=True):
        assert_close(torch.from_numpy(square), twin, rtol=1e-4, atol=1e-5)


def test_both_backends_agree_in_batches_of_one():
    config = GloVeConfig(**SMALL | {"epochs": 2, "d_emb": 20, "batch_size": 1})
    a, b = (train_glove(text(10), config, backend) for backend in ("numba", "torch"))
    assert_close(a.vectors, b.vectors, rtol=1e-4, atol=1e-6)


# --- learns, repeats ----------------------------------------------------------------------------------------------


def test_fits_a_small_table():
    """With as many numbers as words, the logarithms of all counts are met."""
    torch.manual_seed(0)
    X = cooccurrences(np.random.default_rng(0).integers(0, V, (20, 10)).tolist(), V, 3).tocoo()
    i, j, counts = (torch.from_numpy(c.astype(t)) for c, t in ((X.row, int), (X.col, int), (X.data, np.float32)))
    model = GloVe(V, 12, x_max=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        model.loss(i, j, counts).backward()
        optimizer.step()
    assert (model(i, j) - counts.log()).abs().max() < 0.05


@pytest.mark.parametrize(("backend", "threads"), [("numba", 1), ("numba", 2), ("torch", 1)])
def test_words_of_one_group_become_neighbours(backend, threads):
    kv = train_glove(text(), GloVeConfig(x_max=10, threads=threads, batch_size=8, **SMALL), backend)
    assert {m.word[0] for m in kv.nearest("a0", 4)} == {"a"}
    assert {m.word[0] for m in kv.nearest("b3", 4)} == {"b"}
    assert kv.counts[0] == 300


def test_one_seed_one_result():
    a, b, c = (train_glove(text(20), GloVeConfig(seed=seed, **SMALL)).vectors for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


# --- cases and bad input ------------------------------------------------------------------------------------------


def test_k03_raw_strings_are_refused():
    for sentences in (["hello world"], "hello world"):
        with pytest.raises(TypeError, match="string"):
            train_glove(sentences)
        with pytest.raises(TypeError, match="string"):
            cooccurrences(sentences)


def test_k05_one_word_sentences_hold_no_pair():
    assert cooccurrences([[0], [1], []]).nnz == 0
    assert cooccurrences([]).shape == (0, 0)
    with pytest.raises(ValueError, match="nothing to count"):
        train_glove([["a"], ["b"]], GloVeConfig(min_count=1))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cooccurrences([[0, 3]], 3), IndexError, "id 3 is outside"),
        (lambda: cooccurrences([[0, 3]], window=0), ValueError, "at least one word"),
        (lambda: train_glove([["a", "b"]]), ValueError, "min_count=5"),
        (lambda: train_glove(text(3), GloVeConfig(**SMALL), backend="c"), ValueError, "backend is one of"),
        (lambda: train_glove(text(9), GloVeConfig(lr=1e30, **SMALL)), FloatingPointError, "lower lr"),
        (lambda: random_model()(torch.tensor([V]), torch.tensor([0])), IndexError, "0 … 8"),
        (lambda: random_model()(torch.tensor([0.5]), torch.tensor([0])), TypeError, "int64"),
        (lambda: random_model().loss(*some_cells()[:2], torch.zeros(40)), ValueError, "not 0"),
        (lambda: random_model().loss(*some_cells()[:2], torch.ones(40, 1)), ValueError, "one count"),
        (lambda: random_model()(torch.tensor([0, 1]), torch.tensor([0])), ValueError, "of one shape"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    "changes",
    [
        {"d_emb": 0}, {"window": 0}, {"epochs": 0}, {"min_count": 0}, {"threads": 0}, {"batch_size": 0}, {"x_max": 0.0},
        {"alpha": -1.0}, {"lr": math.nan},
    ],
)  # fmt: skip
def test_bad_config_is_named(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        GloVeConfig(**changes)
