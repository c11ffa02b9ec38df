"""plm.tagger: with and without features, padding, and the one batch it must learn."""

import copy
import pickle

import pytest
import torch
from torch.nn import functional as F

from plm.tagger import Tagger

VECTORS = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
IDS, LENGTHS = torch.tensor([[3, 5, 7, 4], [6, 8, 0, 0]]), torch.tensor([4, 2])
FEATURES = torch.randn(3, 2, 4, 5, generator=torch.Generator().manual_seed(1))


def tagger(with_features=True, **changes):
    torch.manual_seed(0)
    sizes = {"n_layers": 3, "d_features": 5} if with_features else {}
    return Tagger(VECTORS, 3, d_hidden=6, **sizes, **changes)


def test_features_reach_every_label():
    model = tagger().eval()
    logits = model(IDS, LENGTHS, FEATURES)
    assert logits.shape == (2, 4, 3)
    other = FEATURES.clone()
    other[2, 0, 3] += 1.0
    moved = (model(IDS, LENGTHS, other) != logits).any(-1)
    assert moved.tolist() == [[True] * 4, [False] * 4]


def test_a_weight_of_zero_is_no_feature():
    model = tagger().eval()
    with torch.no_grad():
        model.mix.gamma.zero_()
    assert torch.equal(model(IDS, LENGTHS, FEATURES), model(IDS, LENGTHS, FEATURES + 1))


@pytest.mark.parametrize("with_features", [True, False])
def test_padding_never_enters(with_features):
    model = tagger(with_features).eval()
    features = FEATURES if with_features else None
    found = model(IDS, LENGTHS, features)
    ids, other = IDS.clone(), None if features is None else features.clone()
    ids[1, 2:] = 5
    if other is not None:
        other[:, 1, 2:] = torch.nan
        other = other.nan_to_num(7.0)
    assert torch.equal(model(ids, LENGTHS, other)[1, :2], found[1, :2])


def test_word_vectors_start_where_they_were_and_are_trained_along():
    model = tagger()
    assert torch.equal(model.words.weight, VECTORS)
    assert model.words.weight is not VECTORS
    model(IDS, LENGTHS, FEATURES).sum().backward()
    assert model.words.weight.grad.abs().sum() > 0
    assert model.mix.scores.grad is not None


def test_learns_one_batch_by_heart():
    model, labels = tagger(dropout=0.0), torch.tensor([[0, 1, 2, 1], [2, 0, -100, -100]])
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(80):
        loss = F.cross_entropy(model(IDS, LENGTHS, FEATURES).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.01


def test_copy_and_pickle():
    model = tagger().eval()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(IDS, LENGTHS, FEATURES), model(IDS, LENGTHS, FEATURES))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tagger()(IDS, LENGTHS), "built with features"),
        (lambda: tagger(False)(IDS, LENGTHS, FEATURES), "built without features"),
        (lambda: tagger()(IDS, LENGTHS, FEATURES[:, :, :3]), "features must be"),
        (lambda: tagger()(IDS, LENGTHS, FEATURES[:2]), "3 weights"),
        (lambda: Tagger(VECTORS, 1), "two labels"),
        (lambda: Tagger(VECTORS, 3, n_layers=2), "width"),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("ids", "error"),
    [(IDS + 9, IndexError), (IDS - 9, IndexError), (IDS.float(), TypeError), (IDS[0], TypeError), ([[1]], TypeError)],
)
def test_ids_that_are_none_are_named(ids, error):
    with pytest.raises(error, match="ids must"):
        tagger()(ids, LENGTHS, FEATURES)


def test_vectors_that_are_none_are_named():
    for vectors in (VECTORS[0], VECTORS.long()):
        with pytest.raises(TypeError, match=r"vectors must be \(V, D\) floats"):
            Tagger(vectors, 3)


def test_a07_a_sentence_without_words_leaves_the_others_alone():
    model = tagger().eval()
    found = model(IDS, torch.tensor([4, 0]), FEATURES)
    assert torch.isfinite(found).all()
    assert torch.allclose(found[0], model(IDS, LENGTHS, FEATURES)[0])
    assert model(IDS[:0], LENGTHS[:0], FEATURES[:, :0]).shape == (0, 4, 3)


def test_a24_dropout_in_training_only():
    model = tagger(dropout=0.5)
    assert not torch.equal(model(IDS, LENGTHS, FEATURES), model(IDS, LENGTHS, FEATURES))
    model.eval()
    assert torch.equal(model(IDS, LENGTHS, FEATURES), model(IDS, LENGTHS, FEATURES))


def test_a25_the_model_returns_scores_not_probabilities():
    model = tagger().eval()
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.copy_(torch.tensor([0.0, 60.0, 0.0]))
    assert F.cross_entropy(model(IDS, LENGTHS, FEATURES).flatten(0, 1), torch.ones(8, dtype=torch.int64)) < 1e-6


def test_k05_one_word_and_double_precision():
    model = tagger().double().eval()
    found = model(IDS[:1, :1], torch.tensor([1]), FEATURES[:, :1, :1].double())
    assert found.dtype == torch.float64
    assert torch.isfinite(found).all()
