"""plm.ulmfit: the slanted triangle, rates per layer, gradual unfreezing, concat pooling."""

import copy
import pickle

import pytest
import torch
from torch.testing import assert_close

from plm.elmo import BiLM, BiLMConfig, pad
from plm.ulmfit import LMClassifier, discriminative, fine_tune, slanted_triangular, thaw

IDS, LENGTHS = pad([[5, 7, 3, 9], [4, 6]])


def classifier(n_layers=2):
    torch.manual_seed(0)
    return LMClassifier(BiLM(BiLMConfig(11, d_emb=4, d_hidden=6, n_layers=n_layers, dropout=0.0)), 2, dropout=0.0)


def test_a08_pooling_by_hand():
    model = classifier()
    model.head = torch.nn.Identity()
    found = model(IDS, LENGTHS)
    for row, n in enumerate(LENGTHS.tolist()):
        there, back = (h[row, :n] for h in model.lm.states(IDS, LENGTHS)[-1])
        both = torch.cat([there, back], -1)
        assert_close(found[row], torch.cat([there[-1], back[0], both.max(0).values, both.mean(0)]))


def test_k07_padding_never_enters():
    model = classifier().eval()
    alone = model(*pad([[4, 6]]))
    ids = IDS.clone()
    ids[1, 4:] = 8
    assert_close(model(ids, LENGTHS)[1], alone[0])


def test_every_parameter_stands_in_one_group_but_the_output_words():
    model = classifier(3)
    groups = model.groups()
    ids = [id(p) for group in groups for p in group]
    unused = {id(p) for p in model.lm.output.parameters()}  # the softmax over words plays no part in a classifier
    assert len(groups) == 5
    assert len(ids) == len(set(ids))
    assert set(ids) | unused == {id(p) for p in model.parameters()}


def test_rates_fall_by_the_factor_from_the_top():
    rates = [group["lr"] for group in discriminative(classifier().groups(), 0.01, 2.0)]
    assert_close(rates, [0.01 / 8, 0.01 / 4, 0.01 / 2, 0.01])
    assert {group["lr"] for group in discriminative(classifier().groups(), 0.01, 1.0)} == {0.01}


def test_triangle():
    factor = slanted_triangular(100)
    values = [factor(step) for step in range(100)]
    assert max(values) == values[9] == 1.0
    assert 0 < values[0] < values[5] < 1
    assert values[9] > values[50] > values[-1]
    assert values[-1] == pytest.approx(1 / 32)
    assert slanted_triangular(1)(0) == 1.0
    assert values[54] == pytest.approx((1 + 0.5 * 31) / 32)


def test_thaw_from_the_top():
    groups = classifier().groups()
    for n in range(len(groups) + 1):
        thaw(groups, n)
        learning = [all(p.requires_grad for p in group) for group in groups]
        assert learning == [False] * (len(groups) - n) + [True] * n


def test_gradual_unfreezing_moves_a_layer_more_with_each_pass():
    model, before, moved = classifier(), None, []

    def which(_):
        nonlocal before
        now = copy.deepcopy([[p.detach() for p in g] for g in model.groups()])
        moved.append([any(not torch.equal(a, b) for a, b in zip(x, y)) for x, y in zip(before, now)])
        before = now

    before = copy.deepcopy([[p.detach() for p in g] for g in model.groups()])
    fine_tune(model, [(IDS, LENGTHS, torch.tensor([0, 1]))], 5, 0.01, after_pass=which)
    steps = [[False, False, False, True], [False, False, True, True], [False, True, True, True]]
    assert moved == [*steps, [True] * 4, [True] * 4]
    assert all(p.requires_grad for g in model.groups() for p in g)


@pytest.mark.parametrize("gradual", [True, False])
def test_learns_one_batch_by_heart(gradual):
    model = classifier()
    losses = fine_tune(model, [(IDS, LENGTHS, torch.tensor([0, 1]))], 60, 0.02, gradual=gradual)
    assert len(losses) == 60
    assert losses[-1] < 0.1 < losses[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: slanted_triangular(0), "one step"),
        (lambda: slanted_triangular(10, cut=1.0), "cut"),
        (lambda: discriminative(classifier().groups(), 0.0), "positive"),
        (lambda: discriminative(classifier().groups(), float("nan")), "positive"),
        (lambda: slanted_triangular(10, ratio=float("nan")), "ratio"),
        (lambda: fine_tune(classifier(), [(IDS, LENGTHS, LENGTHS)], 1, 0.1, clip=0.0), "clip"),
        (lambda: thaw(classifier().groups(), 9), "4 groups"),
        (lambda: fine_tune(classifier(), [], 1, 0.1), "one batch"),
        (lambda: LMClassifier(classifier().lm, 1), "two classes"),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a24_dropout_in_training_only():
    model = LMClassifier(classifier().lm, 2, dropout=0.5)
    assert not torch.equal(model(IDS, LENGTHS), model(IDS, LENGTHS))
    model.eval()
    assert torch.equal(model(IDS, LENGTHS), model(IDS, LENGTHS))


def test_k05_a_sentence_without_words_copies_and_double_precision():
    model = classifier().eval()
    assert model(*pad([[]])).isfinite().all()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(IDS, LENGTHS), model(IDS, LENGTHS))
    assert_close(copy.deepcopy(model).double()(IDS, LENGTHS).float(), model(IDS, LENGTHS))


def test_a_loss_that_is_no_number_is_named_and_nothing_stays_frozen():
    model = classifier()
    torch.nn.init.constant_(model.head[-1].bias, float("nan"))
    with pytest.raises(FloatingPointError, match="at step 0"):
        fine_tune(model, [(IDS, LENGTHS, torch.tensor([0, 1]))], 1, 0.01)
    assert all(p.requires_grad for p in model.parameters())
