"""Cosine and nearest neighbours: hand numbers, invariants, and what may not be a neighbour."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.testing import assert_close

from plm.similarity import cosine, nearest

vector = st.lists(st.floats(-5, 5).filter(lambda x: abs(x) > 1e-3), min_size=3, max_size=3)


def test_cosine_by_hand():
    assert_close(cosine(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 4.0])).item(), 14 / math.sqrt(13 * 17))
    banana, fruit = torch.tensor([7.0, 6, 18]), torch.tensor([23.0, 5, 7])
    assert round(cosine(banana, fruit).item(), 3) == 0.638


def test_cosine_equals_torch_in_value_and_gradient():
    a, b = torch.randn(4, 7, dtype=torch.float64), torch.randn(4, 7, dtype=torch.float64)
    ours, theirs = a.clone().requires_grad_(), a.clone().requires_grad_()
    assert_close(cosine(ours, b), F.cosine_similarity(theirs, b))
    cosine(ours, b).sum().backward()
    F.cosine_similarity(theirs, b).sum().backward()
    assert_close(ours.grad, theirs.grad)


@given(vector, vector, st.floats(0.1, 10))
def test_cosine_is_symmetric_bounded_and_blind_to_length(a, b, factor):
    x, y = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    value = cosine(x, y)
    assert abs(value) <= 1 + 1e-12
    assert_close(cosine(y, x), value)
    assert_close(cosine(factor * x, y), value)
    assert_close(cosine(-x, y), -value)


def test_cosine_refuses_the_zero_vector():
    with pytest.raises(ValueError, match="no direction"):
        cosine(torch.zeros(3), torch.ones(3))


def test_nearest_equals_sorting_all_cosines():
    table = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    found = nearest(table[3], table, k=10, exclude=[3])
    cosines = F.cosine_similarity(table[3][None], table)
    cosines[3] = -2
    assert found.ids == cosines.argsort(descending=True)[:10].tolist()
    assert_close(torch.tensor(found.cosines), cosines[found.ids])


def test_nearest_leaves_out_rows_of_zeros_and_orders_ties_by_row():
    table = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [2.0, 0.0]])
    assert nearest(torch.tensor([1.0, 0.0]), table, k=3).ids == [2, 3, 1]


def test_c05_the_words_of_the_question_are_no_answer():
    names = ["king", "queen", "man", "woman", "car"]
    table = torch.tensor([[1, 0.05], [0.9, 0.43], [0.1, 0], [0.12, 0.1], [-1, 0.2]])
    query = table[0] - table[2] + table[3]
    assert names[nearest(query, table, k=1).ids[0]] == "king"
    assert names[nearest(query, table, k=1, exclude=[0, 2, 3]).ids[0]] == "queen"


@pytest.mark.parametrize(
    ("query", "table", "k", "message"),
    [
        (torch.ones(2), torch.ones(3, 3), 1, r"query \(d,\)"),
        (torch.ones(1, 3), torch.ones(3, 3), 1, r"query \(d,\)"),
        (torch.tensor([1.0, math.nan]), torch.ones(3, 2), 1, "NaN"),
        (torch.ones(2), torch.ones(3, 2), 4, "3 rows"),
        (torch.ones(2), torch.ones(3, 2), 0, "asked for 0"),
        (torch.zeros(2), torch.ones(3, 2), 1, "no direction"),
    ],
)
def test_nearest_says_what_is_wrong(query, table, k, message):
    with pytest.raises(ValueError, match=message):
        nearest(query, table, k)
