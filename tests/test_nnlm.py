"""The NNLM against torch's own layers, against hand numbers, and against what must never change."""

import copy
import importlib.util
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from plm.data import language_model_text
from plm.evaluate import perplexity
from plm.files import read_json
from plm.ngram import KneserNey
from plm.nnlm import NNLM, NNLMConfig, context_windows
from plm.similarity import nearest
from plm.train import load_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
START, END = 1, 2


def random_model(seed: int = 0, **changes) -> NNLM:
    """A small model whose every parameter is random (as built, U is zero and hides faults)."""
    torch.manual_seed(seed)
    model = NNLM(NNLMConfig(**{"vocab_size": 11, "context": 3, "d_emb": 4, "d_hidden": 5} | changes))
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    return model


class Reference(nn.Module):
    """The same model from torch's layers."""

    def __init__(self, c: NNLMConfig):
        super().__init__()
        self.embedding = nn.Embedding(c.vocab_size, c.d_emb)
        self.hidden = nn.Linear(c.context * c.d_emb, c.d_hidden)
        self.output = nn.Linear(c.d_hidden, c.vocab_size)
        self.direct = nn.Linear(c.context * c.d_emb, c.vocab_size, bias=False) if c.direct else None

    def forward(self, contexts):
        x = self.embedding(contexts).flatten(1)
        logits = self.output(torch.tanh(self.hidden(x)))
        return logits if self.direct is None else logits + self.direct(x)


NAMES = {
    "Q": "embedding.weight",
    "H": "hidden.weight",
    "d": "hidden.bias",
    "U": "output.weight",
    "b": "output.bias",
    "W": "direct.weight",
}


# --- equals a reference -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [False, True])
def test_outputs_and_gradients_equal_embedding_and_linear(direct):
    model = random_model(direct=direct)
    reference = Reference(model.config)
    reference.load_state_dict({NAMES[name]: p.detach().clone() for name, p in model.named_parameters()})
    contexts, targets = torch.randint(0, 11, (7, 3)), torch.randint(0, 11, (7,))
    assert_close(model(contexts), reference(contexts))
    for m in (model, reference):
        F.cross_entropy(m(contexts), targets).backward()
    theirs = dict(reference.named_parameters())
    assert len(theirs) == len(list(model.parameters()))
    for name, p in model.named_parameters():
        assert p.grad.abs().sum() > 0
        assert_close(p.grad, theirs[NAMES[name]].grad)


def test_gradient_of_q_equals_finite_differences():
    model = random_model(direct=True).double()
    contexts, targets = torch.tensor([[3, 4, 3], [5, 3, 6]]), torch.tensor([7, 8])
    F.cross_entropy(model(contexts), targets).backward()
    numeric, eps = torch.zeros_like(model.Q), 1e-5
    with torch.no_grad():
        for index in np.ndindex(*model.Q.shape):
            for sign in (1, -1):
                model.Q[index] += sign * eps
                numeric[index] += sign * F.cross_entropy(model(contexts), targets) / (2 * eps)
                model.Q[index] -= sign * eps
    assert_close(model.Q.grad, numeric, rtol=1e-6, atol=1e-9)
    unused = [i for i in range(11) if i not in contexts]
    assert model.Q.grad[unused].abs().max() == 0  # a word that is not in the batch does not move


def test_token_log_probs_equal_distribution_word_by_word():
    model, sentence = random_model(), [3, 9, 4, 4, 10]
    one_by_one = [math.log(model.distribution(sentence[:i])[w]) for i, w in enumerate([*sentence, END])]
    np.testing.assert_allclose(model.token_log_probs([sentence]), one_by_one, rtol=1e-5)


# --- hand numbers -------------------------------------------------------------------------------------------------


def test_hand_numbers():
    """One hidden unit, two words of context: x = [1, 2], h = tanh(0.5 * 1 + 0.25 * 2), logits = b + U h + W x."""
    model = NNLM(NNLMConfig(vocab_size=3, context=2, d_emb=1, d_hidden=1, direct=True))
    values = {"Q": [[1], [2], [3]], "H": [[0.5, 0.25]], "d": [0], "U": [[1], [0], [-1]], "b": [0, 0.5, 0]}
    values["W"] = [[0, 0], [0, 0], [1, 1]]
    model.load_state_dict({name: torch.tensor(v, dtype=torch.float32) for name, v in values.items()})
    h = math.tanh(1)
    assert_close(model(torch.tensor([[0, 1]])), torch.tensor([[h, 0.5, 3 - h]]))


def test_softmax_numbers_of_the_article():
    p = torch.tensor([11.0, 22, 55, 44, 87, 84, 88]).softmax(0)
    assert_close(p, torch.tensor([0, 0, 0, 0, 0.265, 0.013, 0.721]), atol=5e-4, rtol=0)


def test_windows_by_hand():
    contexts, targets = context_windows([[7, 8], [9]], context=2)
    assert contexts.tolist() == [[1, 1], [1, 7], [7, 8], [1, 1], [1, 9]]
    assert targets.tolist() == [7, 8, END, 9, END]


def test_start_from_counts_is_the_unigram_model():
    model = NNLM(NNLMConfig(vocab_size=5, context=2, d_emb=3, d_hidden=4))
    model.start_from_counts(torch.tensor([3, 3, 3, 4, END]))
    np.testing.assert_allclose(model.distribution([4, 4]), np.array([1, 1, 2, 4, 2]) / 10, rtol=1e-6)


# --- invariants ---------------------------------------------------------------------------------------------------


def test_words_outside_the_window_cannot_change_the_prediction():
    model = random_model()
    np.testing.assert_array_equal(model.distribution([9, 9, 3, 4, 5]), model.distribution([6, 3, 4, 5]))
    assert np.abs(model.distribution([3, 4, 5]) - model.distribution([9, 4, 5])).max() > 1e-6  # inside it they do


def test_no_window_reaches_into_the_sentence_before():
    model = random_model()
    alone = model.token_log_probs([[5, 6]])
    behind = model.token_log_probs([[9, 10, 3, 4], [5, 6]])
    np.testing.assert_allclose(behind[-3:], alone, rtol=1e-6)


def test_same_tokens_as_the_ngram_models():
    sentences = [[3, 4, 5], [6], [7, 8]]
    kn = KneserNey(3, 11).fit(sentences)
    assert len(random_model().token_log_probs(sentences)) == len(kn.token_log_probs(sentences)) == 9


def test_probabilities_do_not_depend_on_the_batch_size():
    model, sentences = random_model(), [[3, 4, 5, 6], [7, 8]]
    np.testing.assert_allclose(
        model.token_log_probs(sentences, batch_size=1), model.token_log_probs(sentences), rtol=1e-5
    )


def test_dropout_acts_in_training_only():
    model, contexts = random_model(dropout=0.5), torch.tensor([[3, 4, 5]])
    model.train()
    assert (model(contexts) - model(contexts)).abs().max() > 1e-4
    first, second = model.token_log_probs([[3, 4]]), model.token_log_probs([[3, 4]])
    np.testing.assert_array_equal(first, second)
    assert model.training  # left as found
    model.eval()
    assert_close(model(contexts), model(contexts))


def test_dropout_zero_is_no_dropout():
    model, contexts = random_model(dropout=0.0).train(), torch.tensor([[3, 4, 5]])
    assert_close(model(contexts), model(contexts))


def test_copies_and_pickles():
    model, contexts = random_model(direct=True), torch.tensor([[3, 4, 5]])
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_close(twin(contexts), model(contexts))


@given(sentences=st.lists(st.lists(st.integers(3, 10), max_size=6), min_size=1, max_size=5), context=st.integers(1, 4))
def test_windows_have_one_row_per_word_and_end(sentences, context):
    contexts, targets = context_windows(sentences, context)
    n = sum(map(len, sentences)) + len(sentences)
    assert contexts.shape == (n, context)
    assert contexts.dtype == targets.dtype == torch.int64
    assert targets.tolist() == [i for s in sentences for i in [*s, END]]
    rows = iter(contexts.tolist())
    for s in sentences:
        for i in range(len(s) + 1):
            assert next(rows) == ([START] * context + s)[i : i + context]


@given(B=st.integers(0, 5), context=st.integers(1, 4), d_emb=st.integers(1, 5), direct=st.booleans())
def test_shapes(B, context, d_emb, direct):
    model = NNLM(NNLMConfig(vocab_size=6, context=context, d_emb=d_emb, d_hidden=2, direct=direct))
    assert model(torch.randint(0, 6, (B, context))).shape == (B, 6)


# --- learns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [False, True])
def test_overfits_one_batch(direct):
    torch.manual_seed(0)
    model = NNLM(NNLMConfig(vocab_size=11, context=3, d_emb=8, d_hidden=16, direct=direct))
    contexts, targets = torch.randint(0, 11, (8, 3)), torch.randint(0, 11, (8,))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(contexts), targets)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.01


# --- cases --------------------------------------------------------------------------------------------------------


def test_A25_the_loss_has_no_floor():
    """A softmax before the cross entropy would leave perfect logits at a loss of 0.55 for three classes."""
    model = NNLM(NNLMConfig(vocab_size=3, context=1, d_emb=3, d_hidden=3))
    model.load_state_dict(
        {"Q": torch.eye(3) * 20, "H": torch.eye(3), "d": torch.zeros(3), "U": torch.eye(3) * 20, "b": torch.zeros(3)}
    )
    ids = torch.arange(3)
    assert F.cross_entropy(model(ids[:, None]), ids).item() < 1e-6


def test_K05_one_word_and_no_word():
    model = random_model()
    assert model.token_log_probs([[5]]).shape == (2,)
    assert model.token_log_probs([[]]).shape == (1,)  # an empty sentence is </s> alone
    assert np.isfinite(model.token_log_probs([[5], []])).all()


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m(torch.zeros(2, 4, dtype=torch.int64)), ValueError, r"contexts must be \(B, 3\)"),
        (lambda m: m(torch.zeros(3, dtype=torch.int64)), ValueError, r"contexts must be \(B, 3\)"),
        (lambda m: m(torch.tensor([[0, 1, 11]])), IndexError, r"0 … 10; got 0 … 11"),
        (lambda m: m(torch.tensor([[0, 1, -1]])), IndexError, r"0 … 10; got -1 … 1"),
        (lambda m: m(torch.zeros(2, 3)), TypeError, "int64"),
        (lambda m: m.token_log_probs([]), ValueError, "no sentence"),
        (lambda m: m.token_log_probs([3, 4]), TypeError, r"write \[sentence\]"),
        (lambda m: m.token_log_probs([["a", "b"]]), TypeError, "lists of integer ids"),
        (lambda m: m.distribution([99]), IndexError, "0 … 10"),
        (lambda m: m.start_from_counts(torch.tensor([11])), IndexError, "0 … 10"),
        (lambda m: context_windows([[3]], 0), ValueError, "at least one word"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(random_model())


@pytest.mark.parametrize(
    "changes", [{"context": 0}, {"d_emb": 0}, {"d_hidden": -1}, {"dropout": 1.0}, {"dropout": -0.1}, {"end_id": 11}]
)
def test_bad_config_is_named(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        NNLMConfig(**{"vocab_size": 11} | changes)


# --- what the book ships ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    words = (w for s in language_model_text(1_000_000).train for w in s)
    return Vocab.build(words, max_size=10_000, specials=LANGUAGE_MODEL_SPECIALS)


def test_shipped_weights_give_the_stored_perplexity(vocab):
    stored = read_json(CHAPTERS / "results" / "nnlm_perplexity.json")["checkpoint"]
    path = CHAPTERS / "checkpoints" / stored["file"]
    assert path.stat().st_size <= 5_000_000
    state, config = load_checkpoint(path)
    model = NNLM(NNLMConfig(**config))
    model.load_state_dict(state)
    sentences = [vocab.encode(s) for s in language_model_text(1_000_000).test[: stored["test_sentences"]]]
    assert perplexity(model.token_log_probs(sentences)) == pytest.approx(stored["perplexity"], rel=1e-3)
    assert stored["perplexity"] == pytest.approx(stored["perplexity_before_rounding"], rel=1e-3)


def test_shipped_vectors_belong_to_this_vocabulary(vocab):
    path = CHAPTERS / "checkpoints" / "nnlm_5m_vectors.safetensors"
    assert path.stat().st_size <= 5_000_000
    Q = load_checkpoint(path)[0]["Q"]
    assert Q.shape == (len(vocab), 100)
    for word, other in (("film", "movie"), ("he", "she")):
        assert other in vocab.decode(nearest(Q[vocab[word]], Q, k=3, exclude=[vocab[word]]).ids)


# --- the sampled loss of the experiment ---------------------------------------------------------------------------


def load_experiment(name: str):
    spec = importlib.util.spec_from_file_location(name, CHAPTERS / "experiments" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def experiment():
    return load_experiment("nnlm_train")


def test_sampled_loss_with_every_word_is_the_full_loss(experiment):
    model, targets = random_model(), torch.randint(0, 11, (64,))
    contexts = torch.randint(0, 11, (64, 3))
    loss = experiment.SampledLoss(targets, 11, keep=11, batch=64, seed=0)(model, contexts, targets)
    assert_close(loss, F.cross_entropy(model(contexts), targets))


def test_sampled_sum_is_right_on_average(experiment):
    model, text = random_model(), torch.randint(0, 11, (200,))
    contexts, targets = torch.tensor([[3, 4, 5]]), torch.tensor([6])
    sampled = experiment.SampledLoss(text, 11, keep=5, batch=1, seed=0)
    logits = model(contexts)[0]
    with torch.no_grad():
        sums = torch.stack([(sampled(model, contexts, targets) + logits[6]).exp() for _ in range(4000)])
    assert sums.std() > 0
    assert sums.mean().item() == pytest.approx(logits.exp().sum().item(), rel=0.03)


# --- the transfer experiment --------------------------------------------------------------------------------------


@pytest.mark.parametrize("frozen", [True, False])
def test_training_only_the_rows_that_can_move_equals_training_all(frozen, monkeypatch):
    experiment = load_experiment("nnlm_transfer")
    monkeypatch.setattr(experiment, "STEPS", (1, 4))
    torch.manual_seed(0)
    bags, Q, labels = torch.zeros(40, 30), torch.randn(30, 6), torch.randint(2, (40,))
    bags.scatter_(1, torch.randint(0, 20, (40, 3)), 1 / 3)  # words 20 … 29 occur in the held-out part only
    other, wanted = torch.rand(300, 30), torch.randint(2, (300,))
    scores = experiment.classify(Q, frozen, (bags, labels), [(other.to_sparse(), wanted)], 0.1, seed=3)

    experiment.seed_everything(3)
    whole = experiment.MeanOfVectors(Q, frozen)
    batches = experiment.Batches(bags, labels, batch_size=32, seed=3)
    experiment.fit(whole, lambda b: F.cross_entropy(whole(b[0]), b[1]), batches, 4, 0.1)
    assert scores[-1] == [experiment.accuracy(whole(other).argmax(1), wanted)]
    assert scores[0] != scores[-1]
    assert torch.equal(whole.Q.detach(), Q) == frozen


def test_best_settings_are_chosen_on_dev():
    found = {("a",): [[0.9, 0.1], [0.7, 0.2]], ("b",): [[0.5, 0.9], [0.6, 0.9]]}
    assert load_experiment("nnlm_transfer").best_on_dev(found) == (("a",), [0.1, 0.2])


def test_every_way_of_the_stored_transfer_chose_from_the_same_grid():
    stored = read_json(CHAPTERS / "results" / "nnlm_transfer.json")
    labels = [str(n) for n in stored["labels"]]
    for way, scores in stored["accuracy"].items():
        assert list(scores) == list(stored["recipes"][way]) == labels
        assert all(len(found) == len(stored["seeds"]) for found in scores.values())
        for recipe in stored["recipes"][way].values():
            assert all(value in stored["grid"][name] for name, value in recipe.items())
