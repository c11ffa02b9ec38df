"""The experiments of chapter 4: their pieces, what they stored, and the vectors that the book ships."""

import importlib.util
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from plm.data import language_model_text
from plm.evaluate import LADDER_LABELS, LADDER_SEEDS, read_ladder
from plm.files import read_json
from plm.keyed_vectors import KeyedVectors
from plm.train import load_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab
from plm.word_evaluation import PAIR_SETS, spearman, word_pairs

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"


def load_experiment(name: str):
    spec = importlib.util.spec_from_file_location(name, CHAPTERS / "experiments" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    words = (w for s in language_model_text(1_000_000).train for w in s)
    return Vocab.build(words, max_size=10_000, specials=LANGUAGE_MODEL_SPECIALS)


# --- the pieces of the ladder -------------------------------------------------------------------------------------


@pytest.fixture
def ladder(monkeypatch):
    """The ladder's script on a world of six words and eight sentences."""
    module = load_experiment("ladder_vectors")
    vocab = Vocab(["good", "fine", "bad", "poor", "film", "the"], specials=())
    texts = [["the", "film", w] for w in ("good", "bad", "fine", "poor", "good", "bad", "fine", "poor")]
    texts[0] = ["good", "good", "unheard-of"]
    labels = torch.tensor([1, 0] * 4)
    monkeypatch.setattr(module, "texts", lambda part: texts)
    monkeypatch.setattr(module, "labels", lambda part: labels)
    monkeypatch.setattr(module, "table", lambda name, seed=0: (torch.eye(6), vocab))
    return module, vocab


def test_k07_a_sentence_is_the_average_of_its_known_words(ladder):
    module, vocab = ladder
    shares = module.shares(vocab, "equal", "train").to_dense()
    assert_close(shares.sum(1), torch.ones(8))
    assert shares[0].tolist() == [1, 0, 0, 0, 0, 0]  # "unheard-of" is not known, and does not count
    assert_close(shares[1], torch.tensor([0, 0, 1, 0, 1, 1]) / 3)


def test_frequent_words_weigh_less(ladder):
    module, vocab = ladder
    share = module.shares(vocab, "sif", "train").to_dense()[1]
    assert share[vocab["the"]] < share[vocab["film"]] < share[vocab["bad"]]
    assert_close(share.sum(), torch.tensor(1.0))


def test_padding_does_not_count(ladder):
    module, _ = ladder
    shares = torch.tensor([[0, 0.5, 0, 0.25, 0.25, 0], [1.0, 0, 0, 0, 0, 0]])
    model = module.MeanOfVectors(torch.randn(6, 4))
    assert_close(model(*module.padded(shares)), model.head(shares @ model.Q))


def test_training_only_the_rows_that_can_move_equals_training_all(ladder, monkeypatch):
    module, _ = ladder
    monkeypatch.setattr(module, "STEPS", (1, 5))
    monkeypatch.setattr(module, "RATES", (0.1,))
    torch.manual_seed(0)
    vocab, Q = Vocab([str(i) for i in range(30)], specials=()), torch.randn(30, 6)
    rng = np.random.default_rng(0)
    texts = {part: [[str(i) for i in rng.integers(0, 20 if part == "train" else 30, 4)] for _ in range(200)]
             for part in ("train", "dev", "test")}  # fmt: skip
    labels = {part: torch.from_numpy(rng.integers(0, 2, 200)) for part in texts}
    monkeypatch.setattr(module, "texts", lambda part: texts[part])
    monkeypatch.setattr(module, "labels", lambda part: labels[part])
    monkeypatch.setattr(module, "table", lambda name, seed=0: (Q, vocab))
    rows = torch.arange(40)
    scores = module.run_trained("any", rows, seed=3)

    module.seed_everything(3)
    whole = module.MeanOfVectors(module.scaled(Q, "own"))
    inputs = module.shares(vocab, "equal", "train").to_dense()[rows]
    batches = module.Batches(*module.padded(inputs), labels["train"][rows], batch_size=32, seed=3)
    module.fit(whole, lambda b: F.cross_entropy(whole(b[0], b[1]), b[2]), batches, 5, 0.1)
    for part, found in zip(("dev", "test"), scores[("lr", 0.1), ("steps", 5)], strict=True):
        guesses = whole.head(module.shares(vocab, "equal", part).to_dense() @ whole.Q).argmax(1)
        assert found == pytest.approx(module.accuracy(guesses, labels[part]), abs=0.011)  # ties may round
    assert scores[("lr", 0.1), ("steps", 1)] != scores[("lr", 0.1), ("steps", 5)]


def test_frozen_vectors_that_hold_the_answer_solve_the_task(ladder, monkeypatch):
    module, vocab = ladder
    answers = torch.tensor([[1.0, 0], [1, 0], [-1, 0], [-1, 0], [0, 1], [0, 1]])
    monkeypatch.setattr(module, "table", lambda name, seed=0: (answers, vocab))
    scores = module.run_frozen("any", torch.arange(2), 0)  # one "good", one "bad"
    assert max(test for _, test in scores.values()) == 1


def test_a_bag_of_words_knows_nothing_of_words_without_a_label(ladder):
    module, _ = ladder
    scores = module.run_bag(torch.arange(2), 0)  # "fine" and "poor" are in no labelled sentence
    assert max(test for _, test in scores.values()) <= 0.75


# --- the pieces of the pseudowords --------------------------------------------------------------------------------


def test_a_third_of_each_word_becomes_the_pair_and_a_third_its_double():
    module = load_experiment("word2vec_senses")
    a, b = module.PAIRS[0]
    disguised = [s[0] for s in module.disguise([[a], [b], ["film"]] * 3000, seed=0)]
    both = "|".join((a, b))
    for word in (a, b):
        assert disguised.count(word) == pytest.approx(1000, abs=120)
        assert disguised.count(f"{word}|{word}") == pytest.approx(1000, abs=120)
    assert disguised.count(both) == pytest.approx(2000, abs=150)
    assert disguised.count("film") == 3000
    assert disguised == [s[0] for s in module.disguise([[a], [b], ["film"]] * 3000, seed=0)]


def test_an_occurrence_is_described_by_its_neighbours_alone():
    module = load_experiment("word2vec_senses")
    vocab = Vocab(["old", "new", "church", "train"], specials=())
    Q = torch.tensor([[1.0, 0], [0, 1], [9, 9], [9, 9]])
    sentences = [["old", "church"], ["the", "new", "train"], ["church"], ["old", "new", "train"]]
    x, y = module.occurrences(sentences, ("church", "train"), Q, vocab)
    assert y.tolist() == [0, 1]  # as many of the one as of the other; a word alone says nothing
    assert x.tolist() == [[1, 0], [0, 1]]


# --- what was stored ----------------------------------------------------------------------------------------------


def test_every_rung_has_the_seeds_and_labels_of_the_ladder():
    rungs = read_ladder(CHAPTERS / "results" / "ladder.json")
    names = [rung.name for rung in rungs]
    assert len(set(names)) == len(names)
    for rung in rungs:
        labels = tuple(rung.climb.accuracy)
        assert labels == tuple(rung.climb.settings) == LADDER_LABELS[: len(labels)]
        # One control lacks 2,000 labels, and chapter 7 says so: it did not begin to learn there. No other rung may.
        assert labels == (LADDER_LABELS[:2] if rung.name == "biLM from scratch" else LADDER_LABELS)
        seeds = rung.climb.seeds
        assert set(seeds) <= set(LADDER_SEEDS)  # slow rungs of later chapters run fewer
        assert rung.chapter > 4 or tuple(seeds) == LADDER_SEEDS
        assert all(len(found) == len(seeds) for found in rung.climb.accuracy.values())
        assert all(0.4 < value < 1 for found in rung.climb.accuracy.values() for value in found)


def test_every_way_of_chapter_4_stands_beside_its_control():
    names = {rung.name for rung in read_ladder(CHAPTERS / "results" / "ladder.json")}
    assert {"bag of words", "random, frozen", "random, trained along"} <= names
    for model, way in product(("NNLM", "word2vec", "GloVe"), ("frozen", "fine-tuned")):
        assert f"{model}, {way}" in names


def test_the_stored_pseudowords_agree_with_themselves():
    module = load_experiment("word2vec_senses")
    stored = read_json(CHAPTERS / "results" / "word2vec_senses.json")
    assert [run["seed"] for run in stored["runs"]] == list(stored["seeds"])
    for run in stored["runs"]:
        assert [tuple(row["pair"]) for row in run["pairs"]] == module.PAIRS
        for row in run["pairs"]:
            assert row["accuracy"]["its own vector"] == 0.5
            assert row["occurrences"]["test"] % 2 == 0
            assert all(-1 <= value <= 1 for value in row["cosine"].values())


def test_the_shipped_vectors_give_the_stored_correlation(vocab):
    runs = read_json(CHAPTERS / "results" / "word2vec_quality.json")["runs"]
    files = {"word2vec": "word2vec_5m_vectors", "GloVe": "glove_5m_vectors", "NNLM": "nnlm_5m_vectors"}
    for method, file in files.items():
        path = CHAPTERS / "checkpoints" / f"{file}.safetensors"
        assert path.stat().st_size < 3_000_000
        vectors = KeyedVectors(vocab.tokens, load_checkpoint(path)[0]["Q"])
        run = next(r for r in runs if (r["method"], r["words"], r["seed"]) == (method, 5_000_000, 0))
        for name in PAIR_SETS:
            known = [p for p in word_pairs(name) if p.a in vectors and p.b in vectors]
            unit = F.normalize(vectors.vectors.double(), dim=1)
            cosines = [float(unit[vectors.id(p.a)] @ unit[vectors.id(p.b)]) for p in known]
            rho = spearman(cosines, [p.score for p in known])
            assert len(known) == run[name]["covered"]
            assert rho == pytest.approx(run[name]["rho"], abs=0.01)  # the file is in half precision


def test_intervals_hold_their_value_and_seeds_are_complete():
    stored = read_json(CHAPTERS / "results" / "word2vec_quality.json")
    seeds: dict[tuple, list[int]] = {}
    for run in stored["runs"]:
        seeds.setdefault((run["method"], run["words"]), []).append(run["seed"])
        assert all(run[name]["low"] < run[name]["rho"] < run[name]["high"] for name in PAIR_SETS)
    for (method, words), found in seeds.items():
        assert len(set(found)) == len(found), (method, words)
        assert set(found) <= set(stored["seeds"])
    for method, words in product(["word2vec"], (300_000, 1_000_000, 2_500_000, 5_000_000)):
        assert 0 in seeds[method, words]
    assert {("gensim", 5_000_000), ("GloVe", 5_000_000), ("NNLM", 5_000_000)} <= seeds.keys()
