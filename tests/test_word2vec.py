"""word2vec against autograd, torch's own layers, hand numbers, and what must never change; its cases."""

import copy
import math
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from plm.huffman import huffman
from plm.vocab import Vocab
from plm.word2vec import (
    CBOW,
    PAD,
    NegativeSampler,
    SkipGram,
    Word2VecConfig,
    cbow_examples,
    hierarchical_gradients,
    hierarchical_loss,
    keep_probability,
    negative_sampling_gradients,
    negative_sampling_loss,
    neighbours,
    skipgram_pairs,
    softmax_gradients,
    softmax_loss,
)
from plm.word2vec_text import flatten
from plm.word2vec_training import sgd_step

V, D = 9, 4
COUNTS = [50, 20, 10, 5, 3, 3, 2, 1, 1]


def random_model(kind=SkipGram, n_outputs=None, seed=0):
    """Both tables random (as built, C is zero and hides faults)."""
    torch.manual_seed(seed)
    model = kind(V, D, n_outputs)
    for p in model.parameters():
        nn.init.normal_(p, std=0.7)
    return model.double()


def some_inputs(kind):
    if kind is SkipGram:
        return torch.tensor([0, 3, 3, 8])
    return torch.tensor([[1, 2, PAD, 4], [PAD, PAD, PAD, 7], [2, 2, 3, 8], [0, PAD, 1, 2]])


TARGETS = torch.tensor([1, 0, 5, 1])
NEGATIVES = torch.tensor([[2, 3, 2], [0, 4, 8], [1, 1, 1], [PAD, 6, 7]])  # repeated, equal to the target, left out


# --- equals a reference -------------------------------------------------------------------------------------------


def test_skipgram_equals_embedding_and_linear():
    model = random_model()
    embedding, output = nn.Embedding(V, D).double(), nn.Linear(D, V, bias=False).double()
    embedding.weight.data, output.weight.data = model.Q.data.clone(), model.C.data.clone()
    inputs = some_inputs(SkipGram)
    assert_close(model(inputs), output(embedding(inputs)))
    model.softmax_loss(inputs, TARGETS).backward()
    F.cross_entropy(output(embedding(inputs)), TARGETS).backward()
    assert_close(model.Q.grad, embedding.weight.grad)
    assert_close(model.C.grad, output.weight.grad)


def test_cbow_equals_embedding_bag():
    model = random_model(CBOW)
    rows = [[i for i in row if i != PAD] for row in some_inputs(CBOW).tolist()]
    offsets = torch.tensor([0, *np.cumsum([len(r) for r in rows])[:-1]])
    bag = F.embedding_bag(torch.tensor(sum(rows, [])), model.Q, offsets, mode="mean")  # noqa: RUF017
    assert_close(model.hidden(some_inputs(CBOW)), bag)


@pytest.mark.parametrize("kind", [SkipGram, CBOW])
def test_negative_sampling_loss_pair_by_pair(kind):
    model, total = random_model(kind), 0.0
    for h, target, negatives in zip(model.hidden(some_inputs(kind)), TARGETS, NEGATIVES, strict=True):
        total -= F.logsigmoid(h @ model.C[target])
        for n in negatives:
            if n not in (PAD, target):
                total -= F.logsigmoid(-(h @ model.C[n]))
    assert_close(model.negative_loss(some_inputs(kind), TARGETS, NEGATIVES), total / 4)


@pytest.mark.parametrize("loss", ["softmax", "negative", "hierarchical"])
def test_gradients_written_out_equal_autograd(loss):
    tree = huffman(COUNTS)
    model = random_model(n_outputs=V - 1 if loss == "hierarchical" else None)
    h, C = model.Q[some_inputs(SkipGram)].detach().requires_grad_(), model.C
    if loss == "softmax":
        softmax_loss(h, C, TARGETS).backward()
        grad_h, grad_C = softmax_gradients(h.detach(), C.detach(), TARGETS)
    else:
        value, by_hand, against = (
            (negative_sampling_loss, negative_sampling_gradients, NEGATIVES)
            if loss == "negative"
            else (hierarchical_loss, hierarchical_gradients, tree)
        )
        value(h, C, TARGETS, against).backward()
        found = by_hand(h.detach(), C.detach(), TARGETS, against)
        grad_h = found.h
        grad_C = torch.zeros_like(C).index_add(0, found.rows.flatten(), found.C.flatten(0, 1))
    assert h.grad.abs().min() > 0
    assert_close(grad_h / 4, h.grad)  # autograd's loss is a mean, ours is of each example
    assert_close(grad_C / 4, C.grad)


@pytest.mark.parametrize("kind", [SkipGram, CBOW])
@pytest.mark.parametrize("loss", ["softmax", "negative", "hierarchical"])
def test_a_step_by_hand_equals_sgd_with_autograd(kind, loss):
    tree, inputs = huffman(COUNTS), some_inputs(kind)
    model = random_model(kind, V - 1 if loss == "hierarchical" else None)
    twin = copy.deepcopy(model)
    value = {
        "softmax": lambda: twin.softmax_loss(inputs, TARGETS),
        "negative": lambda: twin.negative_loss(inputs, TARGETS, NEGATIVES),
        "hierarchical": lambda: twin.hierarchical_loss(inputs, TARGETS, tree),
    }[loss]
    before = model.Q.detach().clone()
    sgd_step(model, inputs, TARGETS, {"softmax": None, "negative": NEGATIVES, "hierarchical": tree}[loss], lr=0.1)
    (value() * len(inputs)).backward()
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    assert_close(model.Q, twin.Q)
    assert_close(model.C, twin.C)
    assert (model.Q - before).abs().max() > 0.01


# --- hand numbers -------------------------------------------------------------------------------------------------


def test_negative_sampling_by_hand():
    """h = [1, 2]; scores 1 * 1 + 0 * 2 = 1 for the target, 0 and 2 for the negatives."""
    h, C = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    loss = negative_sampling_loss(h, C, torch.tensor([0]), torch.tensor([[1, 2]]))
    p = [1 / (1 + math.exp(-s)) for s in (1, 0, 2)]
    assert_close(loss.item(), -math.log(p[0]) - math.log(1 - p[1]) - math.log(1 - p[2]))
    found = negative_sampling_gradients(h, C, torch.tensor([0]), torch.tensor([[1, 2]]))
    assert_close(found.h, torch.tensor([[p[0] - 1, p[2]]]))
    assert_close(found.C[0, 1], torch.tensor([0.5, 1.0]))


def test_windows_by_hand():
    words, contexts = neighbours([[3, 4, 5], [6]], window=2)
    assert words.tolist() == [3, 4, 5, 6]
    assert contexts.tolist() == [[PAD, PAD, 4, 5], [PAD, 3, 5, PAD], [3, 4, PAD, PAD], [PAD] * 4]
    inputs, targets = skipgram_pairs([[3, 4, 5], [6]], window=1)
    assert list(zip(inputs.tolist(), targets.tolist(), strict=True)) == [(3, 4), (4, 3), (4, 5), (5, 4)]
    inputs, targets = cbow_examples([[3, 4, 5], [6]], window=1)
    assert inputs.tolist() == [[PAD, 4], [3, 5], [4, PAD]]
    assert targets.tolist() == [3, 4, 5]


def test_dynamic_window_reaches_each_distance_as_often_as_it_should():
    """A word at distance d of 5 is seen when the reach, even in 1 … 5, is at least d: in (6 - d) / 5 of the cases."""
    _, contexts = neighbours([[1] * 20_000], 5, np.random.default_rng(0))
    seen = (contexts != PAD).double().mean(0)
    wanted = torch.tensor([1, 2, 3, 4, 5, 5, 4, 3, 2, 1]) / 5
    assert_close(seen, wanted.double(), atol=0.02, rtol=0)


# --- the tree -----------------------------------------------------------------------------------------------------


def test_huffman_by_hand():
    tree = huffman([5, 2, 1, 1])  # 1 + 1 = 2, 2 + 2 = 4, 4 + 5 = 9
    assert tree.lengths.tolist() == [1, 2, 3, 3]
    assert tree.points[0].tolist() == [2, -1, -1]
    assert {len(tree.code(i)) for i in range(4)} == {1, 2, 3}
    assert len({tree.code(i) for i in range(4)}) == 4


@given(st.lists(st.integers(0, 50), min_size=2, max_size=30))
def test_huffman_is_a_full_prefix_code_of_least_length(counts):
    tree = huffman(counts)
    codes = [tree.code(i) for i in range(len(counts))]
    assert not any(b.startswith(a) for i, a in enumerate(codes) for j, b in enumerate(codes) if i != j)
    assert sum(2.0 ** -len(code) for code in codes) == 1  # Kraft: no leaf is missing
    heap, cost = sorted(counts), 0  # the cost of the best tree is the sum of all merges
    while len(heap) > 1:
        merged = heap.pop(0) + heap.pop(0)
        cost += merged
        heap = sorted([*heap, merged])
    assert cost == sum(n * len(code) for n, code in zip(counts, codes, strict=True))
    points = tree.points[tree.points >= 0]
    assert set(points.tolist()) == set(range(len(counts) - 1))


def test_probabilities_of_the_tree_sum_to_one():
    tree, model = huffman(COUNTS), random_model(n_outputs=V - 1)
    everyone = torch.arange(V)
    losses = [model.hierarchical_loss(torch.tensor([4]), everyone[i : i + 1], tree) for i in range(V)]
    assert_close(sum((-x).exp() for x in losses).item(), 1.0)


@pytest.mark.parametrize("counts", [[3], [], [1, -1], [1, math.nan], [[1, 2]]])
def test_huffman_says_what_is_wrong(counts):
    with pytest.raises(ValueError, match="count"):
        huffman(counts)


# --- invariants ---------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=7), max_size=5), st.integers(1, 4), st.booleans(), st.integers(0, 9)
)
def test_pairs_are_the_words_within_reach(sentences, window, dynamic, seed):
    rng = np.random.default_rng(seed) if dynamic else None
    inputs, targets = skipgram_pairs(sentences, window, rng)
    found = Counter(zip(inputs.tolist(), targets.tolist(), strict=True))
    full = Counter(
        (s[i], s[j]) for s in sentences for i in range(len(s)) for j in range(len(s)) if i != j and abs(i - j) <= window
    )
    assert found <= full if dynamic else found == full
    contexts, middle = cbow_examples(sentences, window)
    assert len(middle) == sum(len(s) for s in sentences if len(s) > 1)
    assert (contexts != PAD).any(1).all()


@pytest.mark.parametrize("kind", [SkipGram, CBOW])
def test_copies_and_pickles(kind):
    model, inputs = random_model(kind), some_inputs(kind)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_close(twin(inputs), model(inputs))
    other = kind(V, D).double()
    other.load_state_dict(model.state_dict())
    assert_close(other(inputs), model(inputs))


@pytest.mark.parametrize("kind", [SkipGram, CBOW])
@pytest.mark.parametrize("loss", ["softmax", "negative", "hierarchical"])
def test_overfits_one_batch(kind, loss):
    """Each word has one right answer; every loss learns all of them."""
    torch.manual_seed(0)
    tree, model = huffman(COUNTS), kind(V, 12, V - 1 if loss == "hierarchical" else None)
    inputs, targets = torch.arange(V), torch.arange(V).roll(2)
    inputs = inputs if kind is SkipGram else torch.stack([inputs, torch.full((V,), PAD)], 1)
    others = torch.stack([torch.cat([torch.arange(V)[:t], torch.arange(V)[t + 1 :]]) for t in targets.tolist()])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        value = {
            "softmax": lambda: model.softmax_loss(inputs, targets),
            "negative": lambda: model.negative_loss(inputs, targets, others),
            "hierarchical": lambda: model.hierarchical_loss(inputs, targets, tree),
        }[loss]()
        value.backward()
        optimizer.step()
    assert value.item() < 0.05


# --- cases --------------------------------------------------------------------------------------------------------


def test_c02_negatives_follow_the_frequency_of_the_right_word():
    counts = Counter(a=5, b=1)
    vocab = Vocab(["b", "a"], specials=())  # ids not in the order of counts
    sampler = NegativeSampler([counts[w] for w in vocab.tokens])
    share = (sampler.sample(100_000) == vocab["a"]).double().mean()
    assert share.item() == pytest.approx(5**0.75 / (5**0.75 + 1), abs=0.01)
    assert sampler.probabilities[vocab["a"]] == pytest.approx(0.7698, abs=1e-4)
    with pytest.raises(TypeError, match="order of the ids"):
        NegativeSampler(counts)
    assert set(NegativeSampler([0, 3, 0, 1]).sample(50, 20).unique().tolist()) == {1, 3}


def test_c03_both_formulas_of_subsampling():
    f = [0.1, 0.0001]
    np.testing.assert_allclose(keep_probability(f, 1e-3, "paper"), [0.1, 1])
    np.testing.assert_allclose(keep_probability(f, 1e-3, "code"), [0.11, 1])
    np.testing.assert_array_equal(keep_probability(f, 1e-3), keep_probability(f, 1e-3, "code"))
    edge = 2.618e-3  # where the C program starts to drop words; the paper's formula starts at 1e-3
    assert keep_probability(edge * 0.999) == 1 > keep_probability(edge * 1.001)
    assert keep_probability([0.5, 0.0], sample=0).tolist() == [1, 1]


def test_k03_strings_are_not_lists_of_words():
    for function in (flatten, lambda s: skipgram_pairs(s, 2), lambda s: cbow_examples(s, 2)):
        for text in (["hello world"], "hello world"):
            with pytest.raises(TypeError, match="not strings"):
                function(text)


def test_k05_one_word_has_no_neighbour():
    for text in ([[3]], [[]], []):
        assert len(skipgram_pairs(text, 2)[0]) == len(cbow_examples(text, 2)[0]) == 0
    with pytest.raises(ValueError, match="without a single neighbour"):
        random_model(CBOW)(torch.full((1, 4), PAD))


def test_k09_the_mean_is_over_real_neighbours():
    model = random_model(CBOW)
    inputs, targets = cbow_examples([[3, 4, 5]], window=2)
    assert targets.tolist() == [3, 4, 5]
    h = model.hidden(inputs)
    assert_close(h[1], (model.Q[3] + model.Q[5]) / 2)  # the middle
    assert_close(h[0], (model.Q[4] + model.Q[5]) / 2)  # the edge


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: SkipGram(V, D)(torch.tensor([V])), IndexError, "0 … 8"),
        (lambda: SkipGram(V, D)(torch.tensor([-1])), IndexError, "0 … 8"),
        (lambda: SkipGram(V, D)(torch.tensor([[1]])), ValueError, r"\(B,\)"),
        (lambda: SkipGram(V, D)(torch.tensor([1.0])), TypeError, "int64"),
        (lambda: CBOW(V, D)(torch.tensor([1])), ValueError, "2 . window"),
        (lambda: CBOW(V, D)(torch.tensor([[-2]])), IndexError, "-1 … 8"),
        (lambda: neighbours([[1]], 0), ValueError, "at least one word"),
        (lambda: neighbours([1, 2], 1), TypeError, r"\[sentence\]"),
        (lambda: neighbours([[1, -2]], 1), ValueError, "0 … "),
        (lambda: neighbours([[1.5]], 1), TypeError, "integer"),
        (lambda: neighbours([["a"]], 1), TypeError, "integer"),
        (lambda: keep_probability([5, 1]), ValueError, "divide the counts"),
        (lambda: keep_probability([math.nan]), ValueError, "divide the counts"),
        (lambda: keep_probability([0.1], formula="c"), ValueError, "formula"),
        (lambda: NegativeSampler([0, 0]), ValueError, "not all 0"),
        (lambda: NegativeSampler([1, -1]), ValueError, "negative"),
        (lambda: keep_probability([0.1], sample=-1), ValueError, "sample"),
        (lambda: keep_probability([0.1], sample=math.nan), ValueError, "sample"),
        (lambda: NegativeSampler([math.nan]), ValueError, "finite"),
        (lambda: NegativeSampler([1, 2], power=math.nan), ValueError, "power=nan"),
        (lambda: NegativeSampler([1, 200], power=1e4), ValueError, "power=10000"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


TREE = huffman(list(range(1, V + 1)))


@pytest.mark.parametrize(
    "use",
    [
        lambda h, C, t: softmax_loss(h, C, t),
        lambda h, C, t: softmax_gradients(h, C, t),
        lambda h, C, t: negative_sampling_loss(h, C, t, torch.zeros(2, 1, dtype=torch.int64)),
        lambda h, C, t: negative_sampling_gradients(h, C, t, torch.zeros(2, 1, dtype=torch.int64)),
        lambda h, C, t: hierarchical_loss(h, C[1:], t, TREE),
        lambda h, C, t: hierarchical_gradients(h, C[1:], t, TREE),
    ],
)
def test_every_target_counts_or_is_refused(use):
    """-100 was left out, PAD taken for word 0 or for the last word, one target spread over all examples."""
    h, C = torch.randn(2, D), torch.randn(V, D)
    use(h, C, torch.tensor([0, V - 1]))
    for wrong in (PAD, -100, V):
        with pytest.raises(IndexError, match="0 … 8"):
            use(h, C, torch.tensor([0, wrong]))
    with pytest.raises(ValueError, match="one target"):
        use(h, C, torch.tensor([0]))
    with pytest.raises(TypeError, match="int64"):
        use(h, C, torch.tensor([0.0, 1.0]))


def test_negatives_below_pad_and_a_table_of_another_tree_are_refused():
    h, C, targets = torch.randn(2, D), torch.randn(V, D), torch.tensor([0, 1])
    with pytest.raises(IndexError, match="-1 … 8"):
        negative_sampling_loss(h, C, targets, torch.tensor([[2], [-7]]))
    with pytest.raises(ValueError, match=r"negatives must be \(B, K\)"):
        negative_sampling_loss(h, C, targets, torch.tensor([2, 3]))
    with pytest.raises(ValueError, match="inner node"):
        hierarchical_loss(h, C, targets, TREE)


@pytest.mark.parametrize(
    "changes",
    [
        {"architecture": "skipgram"}, {"loss": "hs"}, {"d_emb": 0}, {"window": 0}, {"negatives": 0}, {"epochs": 0},
        {"min_count": 0}, {"threads": 0}, {"batch_size": 0}, {"lr": -1.0}, {"lr": math.nan}, {"min_lr": 1.0}, {"sample": 2.0},
    ],
)  # fmt: skip
def test_bad_config_is_named(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        Word2VecConfig(**changes)


def test_rate_of_each_architecture():
    assert Word2VecConfig().lr == 0.025
    assert Word2VecConfig(architecture="cbow").lr == 0.075
    assert Word2VecConfig(architecture="cbow", lr=0.01).lr == 0.01
