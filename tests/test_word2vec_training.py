"""Training word2vec: the compiled loop is the readable one, runs repeat, and what is learnt makes sense."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from plm import word2vec_kernels
from plm.huffman import huffman
from plm.vocab import Vocab
from plm.word2vec import CBOW, PAD, NegativeSampler, SkipGram, Word2VecConfig, keep_probability, train_word2vec
from plm.word2vec_kernels import alias_table, steps
from plm.word2vec_training import CHUNK, chunks, kernel_arguments, prepare, sgd_step

V, D = 12, 20  # not a multiple of a vector unit's width
COUNTS = np.array([50, 20, 10, 5, 3, 3, 2, 2, 1, 1, 1, 0])
KINDS = {"skip-gram": SkipGram, "cbow": CBOW}


def random_model(architecture, n_outputs=V, seed=0):
    torch.manual_seed(seed)
    model = KINDS[architecture](V, D, n_outputs)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return model


def tables(model):
    return model.Q.detach().numpy().copy(), model.C.detach().numpy().copy()


def text(n=300, seed=0):
    """Two groups of words, a0 … a4 and b0 … b4, that never meet, and one word that meets all."""
    rng = np.random.default_rng(seed)
    return [[*(f"{'ab'[i % 2]}{k}" for k in rng.integers(0, 5, 6)), "the"] for i in range(n)]


SMALL = {"min_count": 1, "d_emb": 16, "sample": 0, "epochs": 5, "window": 3}


# --- the compiled loop is the readable one ------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", KINDS)
@pytest.mark.parametrize("loss", ["negative", "hierarchical"])
def test_compiled_steps_equal_pytorch(architecture, loss):
    """The same examples, the same negatives, one step after the other. Negatives repeat, and some are left out."""
    tree = huffman(COUNTS)
    model = random_model(architecture, V - 1 if loss == "hierarchical" else V)
    Q, C = tables(model)
    B, rng = 30, np.random.default_rng(0)
    inputs = torch.from_numpy(rng.integers(0, V, B if architecture == "skip-gram" else (B, 4)))
    if architecture == "cbow":
        inputs[rng.random((B, 4)) < 0.3] = PAD
        inputs[:, 1] = 3
    targets, negatives = torch.from_numpy(rng.integers(0, V, B)), torch.from_numpy(rng.integers(0, 4, (B, 6)))
    if loss == "negative":
        negatives[negatives == targets[:, None]] = PAD
        rows = torch.cat([targets[:, None], negatives], 1)
        labels = torch.tensor([1.0] + [0.0] * 6).repeat(B, 1)
    else:
        rows, labels = tree.points[targets], (tree.codes[targets] == 0).float()
    for b in range(B):
        against = tree if loss == "hierarchical" else negatives[b : b + 1]
        sgd_step(model, inputs[b : b + 1], targets[b : b + 1], against, lr=0.1)
    as_table = inputs[:, None] if inputs.ndim == 1 else inputs
    steps(Q, C, as_table.int().numpy(), rows.int().numpy(), labels.numpy(), 0.1)
    assert_close(torch.from_numpy(Q), model.Q.data, rtol=1e-4, atol=1e-5)
    assert_close(torch.from_numpy(C), model.C.data, rtol=1e-4, atol=1e-5)
    assert (torch.from_numpy(Q) - random_model(architecture, len(C)).Q).abs().max() > 0.05


@pytest.mark.parametrize("architecture", KINDS)
@pytest.mark.parametrize("loss", ["negative", "hierarchical"])
def test_training_loop_equals_pytorch_on_the_examples_it_draws(architecture, loss):
    config = Word2VecConfig(architecture=architecture, loss=loss, **SMALL)
    words = prepare(text(12), config)
    tree = huffman(words.counts) if loss == "hierarchical" else None
    model = KINDS[architecture](len(words.words), 16, len(words.words) - (loss == "hierarchical"))
    Q, C = tables(model)
    K = 0 if tree else 5
    trace = np.full((1000, 2 * 3 + 1 + K), -9, np.int32)
    n = kernel_arguments(words, config, tree)(words.ids, words.starts, Q, C, (0.1, 0.1), 7, trace)
    assert 0 < n < 1000
    assert (trace[n:] == -9).all()
    for row in torch.from_numpy(trace[:n].astype(np.int64)):
        inputs = row[:1] if architecture == "skip-gram" else row[None, :6]
        sgd_step(model, inputs, row[6:7], tree or row[None, 7:], lr=0.1)
    assert_close(torch.from_numpy(Q), model.Q.data, rtol=1e-4, atol=1e-6)
    assert_close(torch.from_numpy(C), model.C.data, rtol=1e-4, atol=1e-6)


def test_examples_of_the_compiled_loop():
    """Only neighbours within reach; distances, negatives and thinned-out words as often as they should be."""
    rng = np.random.default_rng(0)
    sentence = rng.choice(6, 30_000, p=np.array([16, 8, 4, 2, 1, 1]) / 32)
    config = Word2VecConfig(window=3, negatives=4, sample=0.05, min_count=1)
    words = prepare([sentence.tolist()], config)
    Q, C = np.zeros((6, 2), np.float32), np.zeros((6, 2), np.float32)
    trace = np.empty((200_000, 3 * 2 + 1 + 4), np.int32)
    n = kernel_arguments(words, config, None)(words.ids, words.starts, Q, C, (0.0, 0.0), 1, trace)
    share = words.counts / words.counts.sum()
    kept = share * keep_probability(share, 0.05)
    assert n == pytest.approx(30_000 * kept.sum() * 4, rel=0.03)  # 2 sides * (1 + 2 + 3) / 3 neighbours
    centres = np.bincount(trace[:n, 0], minlength=6) / n
    np.testing.assert_allclose(centres, kept / kept.sum(), atol=0.01)
    drawn, targets = trace[:n, 7:], trace[:n, 6]
    noise = NegativeSampler(words.counts).probabilities
    for word in range(6):  # equal to the target: left out
        wanted = noise * (np.arange(6) != word) / (1 - noise[word])
        found = drawn[targets == word]
        np.testing.assert_allclose(np.bincount(found[found >= 0], minlength=6) / (found >= 0).sum(), wanted, atol=0.02)
        assert (found >= 0).mean() == pytest.approx(1 - noise[word], abs=0.02)


def test_alias_table_gives_back_the_probabilities():
    p = NegativeSampler(COUNTS).probabilities
    cut, other = alias_table(p)
    back = cut / 2.0**32
    np.add.at(back, other, 1 - cut / 2.0**32)
    np.testing.assert_allclose(back / V, p, atol=1e-9)


# --- runs repeat --------------------------------------------------------------------------------------------------

PRINT_HASH = """
import hashlib
from plm.word2vec import Word2VecConfig, train_word2vec
words = {f"w{i}" for i in range(60)}  # a set: its order depends on the hash seed, the text must not
text = [[w for w in sorted(words) if (int(w[1:]) * i) % 7 < 3] for i in range(60)]
for backend in ("numba", "torch"):
    kv = train_word2vec(text, Word2VecConfig(min_count=1, d_emb=10, seed=42), backend)
    print(hashlib.sha256(" ".join(kv.words).encode() + kv.vectors.numpy().tobytes()).hexdigest())
"""


def test_c06_same_seed_same_vectors_in_two_processes():
    runs = [
        subprocess.run(
            [sys.executable, "-c", PRINT_HASH],
            env=os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    ]
    assert [len(line) for line in runs[0].split()] == [64, 64]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_another_seed_gives_other_vectors(backend):
    a, b, c = (train_word2vec(text(20), Word2VecConfig(seed=seed, **SMALL), backend).vectors for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_chunks_cover_every_word_once_per_epoch_and_the_rate_falls():
    config = Word2VecConfig(min_count=1, epochs=2, lr=0.5, min_lr=0.1)
    words = prepare([["a", "b"] * n for n in (1, 3500, 2000, 2, 12_500, 1)] + [[]], config)
    found = list(chunks(words, config))
    per_epoch = found[: len(found) // 2]
    assert [c[:2] for c in per_epoch] == [c[:2] for c in found[len(found) // 2 :]]
    assert [c.first for c in per_epoch[1:]] == [c.last for c in per_epoch[:-1]]
    assert words.starts[per_epoch[0].first] == 0
    assert words.starts[per_epoch[-1].last] == len(words.ids)
    assert len(per_epoch) <= len(words.ids) // CHUNK + 1
    rates = [r for c in found for r in c.rates]
    assert rates[0] == 0.5
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == 0.1
    assert len({c.seed for c in found}) == len(found)


# --- learns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "loss", "backend"),
    [(a, loss, b) for a in KINDS for loss in ("negative", "hierarchical") for b in ("numba", "torch")]
    + [(a, "softmax", "torch") for a in KINDS],  # the full softmax is PyTorch only
)
def test_words_of_one_group_become_neighbours(architecture, loss, backend):
    config = Word2VecConfig(architecture=architecture, loss=loss, lr=0.1, batch_size=16, **SMALL)
    kv = train_word2vec(text(), config, backend)
    assert {m.word[0] for m in kv.nearest("a0", 4)} == {"a"}
    assert {m.word[0] for m in kv.nearest("b3", 4)} == {"b"}
    assert kv.words[0] == "the"
    assert kv.counts.tolist()[0] == 300
    assert kv.context.shape == (len(kv) - (loss == "hierarchical"), 16)


def test_two_threads_learn_too():
    kv = train_word2vec(text(3000), Word2VecConfig(threads=2, lr=0.1, **SMALL | {"epochs": 1}))
    assert {m.word[0] for m in kv.nearest("a0", 4)} == {"a"}


def test_sentences_of_ids_and_a_given_vocabulary():
    vocab = Vocab(["the", "b0", "zzz", *(f"{g}{i}" for g in "ab" for i in range(5) if (g, i) != ("b", 0))])
    config = Word2VecConfig(**SMALL)
    by_words = train_word2vec(text(), config, vocab=vocab)
    by_ids = train_word2vec([vocab.encode(s) for s in text()], config, vocab=vocab)
    assert by_words.words == list(vocab.tokens)
    assert torch.equal(by_words.vectors, by_ids.vectors)
    assert by_words.counts[vocab["zzz"]] == 0
    assert train_word2vec([[0, 1, 2], [2, 1]], Word2VecConfig(**SMALL)).words == ["0", "1", "2"]


def test_rare_words_are_taken_out():
    kv = train_word2vec([["a", "b", "a", "b", "c"]] * 3 + [["d"]], Word2VecConfig(min_count=3, d_emb=2))
    assert kv.words == ["a", "b", "c"]
    assert train_word2vec([["a", "b", "a", "b", "c"]] * 9, Word2VecConfig(max_size=2, d_emb=2)).words == ["a", "b"]


# --- cases and bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sentences", [["hello world"], "hello world", ["hello", "world"], [["a", "b"], "hello"]])
def test_k03_raw_strings_are_refused(sentences):
    with pytest.raises(TypeError, match=r"not (one )?string"):
        train_word2vec(sentences, Word2VecConfig(min_count=1))


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("architecture", KINDS)
def test_k05_one_word_sentences_train_nothing(architecture, backend):
    config = Word2VecConfig(architecture=architecture, **SMALL)
    kv = train_word2vec([["a"], ["b"], []], config, backend)
    assert torch.isfinite(kv.vectors).all()
    assert not kv.context.any()  # no example, so C is as it was


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_diverged_training_raises(backend):
    with pytest.raises(FloatingPointError, match="lower lr"):
        train_word2vec(text(100), Word2VecConfig(lr=1e30, architecture="cbow", **SMALL), backend)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: train_word2vec([]), ValueError, "no word is left"),
        (lambda: train_word2vec([["a", "b"]]), ValueError, "min_count=5"),
        (lambda: train_word2vec([["a", "a"]], Word2VecConfig(min_count=1)), ValueError, "one word"),
        (lambda: train_word2vec([[1, 2]], vocab=Vocab(["a"])), IndexError, "id 2 is outside"),
        (lambda: train_word2vec([[1, -2]]), ValueError, "0 … "),
        (lambda: train_word2vec(["a", 1]), TypeError, "not strings"),
        (lambda: train_word2vec([1, 2]), TypeError, r"\[sentence\]"),
        (lambda: train_word2vec([[1, 2]], backend="cuda"), ValueError, "backend is one of"),
        (lambda: train_word2vec([[1, 2]], Word2VecConfig(loss="softmax")), ValueError, 'backend="torch"'),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_without_numba_the_message_says_what_to_do_and_torch_works(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)  # importing it now fails
    monkeypatch.delitem(sys.modules, "plm.word2vec_kernels")
    config = Word2VecConfig(d_emb=2)
    with pytest.raises(
        ModuleNotFoundError, match='pip install numba, or choose the readable ones, such as backend="torch"'
    ):
        train_word2vec([["a", "b"]] * 9, config)
    assert len(train_word2vec([["a", "b"]] * 9, config, backend="torch")) == 2


def test_a_read_only_installation_compiles_without_a_cache(monkeypatch):
    """numba refuses to cache where no folder can be written; the function is compiled all the same."""
    import numba

    from plm.compiled import compiled

    real = numba.njit

    def nowhere_to_write(*args, **options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(*args, **options)

    monkeypatch.setattr(numba, "njit", nowhere_to_write)
    assert compiled(lambda x: x + 1)(1) == 2


def test_kernels_are_cached():
    assert type(word2vec_kernels.train_chunk._cache).__name__ == "FunctionCache"
