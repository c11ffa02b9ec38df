"""plm.characters: spellings, highway, and filters against a loop."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from plm.characters import CharacterConfig, CharacterEncoder, Highway, spell

CONFIG = CharacterConfig(d_character=3, filters=((1, 2), (3, 4)), n_highway=2, longest=7)


def test_spelling_by_hand():
    assert spell(["ab"], 6).tolist() == [[1, 3 + ord("a"), 3 + ord("b"), 2, 0, 0]]
    assert spell(["abcdef"], 5).tolist() == [[1, 3 + ord("a"), 3 + ord("b"), 3 + ord("c"), 2]]
    assert spell([], 5).shape == (0, 5)


def test_every_text_has_a_spelling_within_the_alphabet():
    found = spell(["café", "银行", "🎬", "a\ud800b"], 20)
    assert found.min() >= 0
    assert found.max() < 259
    assert len({tuple(row) for row in found.tolist()}) == 4


def test_a_filter_is_a_dot_product_at_each_place():
    torch.manual_seed(0)
    encoder = CharacterEncoder(CONFIG, 5).double()
    spellings = spell(["horse"], 7)
    x, best = encoder.embedding(spellings[0]), []
    for (width, n), conv in zip(CONFIG.filters, encoder.filters):
        for k in range(n):
            scores = [(conv.weight[k] * x[i : i + width].T).sum() + conv.bias[k] for i in range(7 - width + 1)]
            best.append(max(scores).relu())
    wanted = encoder.project(encoder.highway(torch.stack(best)))
    assert_close(encoder(spellings)[0], wanted)


def test_any_shape_and_no_memory_of_the_batch():
    torch.manual_seed(0)
    encoder = CharacterEncoder(CONFIG, 5)
    spellings = spell(["a", "horse", "sings", "a"], 7)
    flat = encoder(spellings)
    assert flat.shape == (4, 5)
    assert_close(encoder(spellings.view(2, 2, 7)), flat.view(2, 2, 5))
    assert_close(encoder(spellings[1]), flat[1])
    assert encoder(spellings[:0]).shape == (0, 5)
    assert encoder(spellings.view(2, 2, 7)[:, :0]).shape == (2, 0, 5)
    assert_close(flat[0], flat[3])
    assert not torch.allclose(flat[1], flat[2])


def test_highway_by_hand_and_its_two_ends():
    highway = Highway(2)
    with torch.no_grad():
        for linear in (highway.transform, highway.gate):
            linear.weight.zero_()
            linear.bias.zero_()
        highway.transform.bias[:] = torch.tensor([4.0, -4.0])
    x = torch.tensor([2.0, 2.0])
    assert_close(highway(x), torch.tensor([3.0, 1.0]))  # the gate is one half: (4 + 2) / 2 and (0 + 2) / 2
    with torch.no_grad():
        highway.gate.bias[:] = torch.tensor([50.0, -50.0])
    assert_close(highway(x), torch.tensor([4.0, 2.0]))  # wide open, shut


def test_highway_starts_nearly_as_a_copy():
    torch.manual_seed(0)
    x = torch.randn(100, 8)
    assert F.cosine_similarity(Highway(8)(x), x).mean() > 0.9


def test_gradients():
    torch.manual_seed(0)
    highway = Highway(3).double()
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(highway, x)


def test_a_config_read_from_json_equals_the_first():
    assert CharacterConfig(3, [[1, 2], [3, 4]], 2, 7) == CONFIG


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: spell("horse"), TypeError, "list"),
        (lambda: spell([3]), TypeError, "string"),
        (lambda: spell([""]), ValueError, "empty"),
        (lambda: spell(["a"], 2), ValueError, "at least 3"),
        (lambda: CharacterConfig(filters=()), ValueError, "filters"),
        (lambda: CharacterConfig(filters=((0, 3),)), ValueError, "filters"),
        (lambda: CharacterConfig(filters=((9, 3),), longest=8), ValueError, "longest"),
        (lambda: CharacterEncoder(CONFIG, 0), ValueError, "d_out"),
        (lambda: CharacterEncoder(CONFIG, 2)(torch.zeros(1, 7)), TypeError, "spell"),
        (lambda: CharacterEncoder(CONFIG, 2)(spell(["a"], 6)), TypeError, "7"),
        (lambda: CharacterEncoder(CONFIG, 2)(["horse"]), TypeError, "spell"),
        (lambda: CharacterEncoder(CONFIG, 2)(torch.tensor(3)), TypeError, "spell"),
        (lambda: CharacterEncoder(CONFIG, 2)(torch.full((1, 7), -1)), IndexError, "258"),
        (lambda: CharacterEncoder(CONFIG, 2)(torch.full((1, 7), 999)), IndexError, "258"),
    ],
)
def test_says_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_filters_are_not_shared():
    encoder = CharacterEncoder(CONFIG, 2)
    assert len({id(p) for p in encoder.parameters()}) == len(list(encoder.parameters()))
    assert isinstance(encoder.filters[0], nn.Conv1d)
