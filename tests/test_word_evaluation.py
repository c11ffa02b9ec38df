"""Word pairs and analogies against gensim and scipy, and what is counted when words have no vector."""

import gensim
import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors as Theirs
from gensim.test.utils import datapath
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from plm.keyed_vectors import KeyedVectors
from plm.word_evaluation import (
    FILES,
    PAIR_SETS,
    AnalogyScore,
    analogies,
    analogy_questions,
    spearman,
    word_pairs,
    word_similarity,
)


@pytest.fixture(scope="module")
def vectors() -> KeyedVectors:
    """Most words of the pairs and of two sections; vectors of related words made alike, so that some answers are right."""
    questions = analogy_questions()
    asked = [w for s in ("family", "gram3-comparative") for q in questions[s] for w in q]
    words = sorted({w for name in PAIR_SETS for p in word_pairs(name) for w in p[:2]} | set(asked))[::-1]
    words = [w for i, w in enumerate(words) if i % 7]
    table = np.random.default_rng(0).normal(size=(len(words), 30))
    place = {w: i for i, w in enumerate(words)}
    for a, b in sorted({q[:2] for q in questions["family"] + questions["gram3-comparative"]}):
        if a in place and b in place:
            table[place[b]] = table[place[a]] + 0.8 * table[place[b]]
    return KeyedVectors(words, table)


def test_the_data_are_what_the_card_says():
    assert [len(word_pairs(name)) for name in PAIR_SETS] == [353, 999]
    questions = analogy_questions()
    assert (len(questions), sum(map(len, questions.values()))) == (14, 19_544)
    assert questions["family"][0] == ("boy", "girl", "brother", "sister")
    assert {(p.a, p.b) for p in word_pairs("wordsim353")} >= {("tiger", "tiger"), ("money", "cash")}
    assert all(word == word.lower() for s in questions.values() for q in s for word in q)
    assert len(FILES) == 3


@pytest.mark.parametrize("name", PAIR_SETS)
def test_word_similarity_equals_gensim(vectors, name):
    theirs = Theirs(30)
    theirs.add_vectors(vectors.words, vectors.vectors.numpy())
    file = datapath(FILES[name][0])
    _, rho, unknown = theirs.evaluate_word_pairs(file, case_insensitive=True, restrict_vocab=None)
    found = word_similarity(name, vectors)
    assert found.rho == pytest.approx(rho[0], abs=1e-4)  # gensim rounds cosines to float32, which parts ties
    assert 1 - found.covered / found.total == pytest.approx(unknown / 100)
    assert found.low < found.rho < found.high
    assert found.high - found.low > 0.05
    assert str(found.total) in str(found)


def test_analogies_equal_gensim(vectors):
    theirs = Theirs(30)
    theirs.add_vectors(vectors.words, vectors.vectors.numpy())
    _, sections = theirs.evaluate_word_analogies(datapath(FILES["analogies"][0]), restrict_vocab=len(vectors))
    wanted = {s["section"]: (len(s["correct"]), len(s["correct"]) + len(s["incorrect"])) for s in sections}
    found = analogies(vectors)
    for section in ("family", "gram3-comparative"):
        assert found[section][:2] == wanted[section]
        assert 0 < found[section].accuracy < 1
    assert found["all"].total == 19_544
    assert found["all"].correct == sum(s.correct for name, s in found.items() if name != "all")
    assert np.isnan(found["capital-world"].accuracy)


def test_some_sections_only(vectors):
    found = analogies(vectors, sections=["family"])
    assert list(found) == ["family", "all"]
    assert found["family"] == found["all"]
    assert found["family"].total == 506


def test_c05_the_question_is_no_answer():
    """All three words of the question are nearer to the sum than the answer."""
    words = ["boy", "girl", "brother", "sister", "other"]
    kv = KeyedVectors(words, torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.9, 0.2], [0.5, 0.5], [-1.0, 0.0]]))
    assert analogies(kv, ["family"])["family"][:2] == (2, 2)  # boy girl brother sister, brother sister boy girl


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.floats(-1, 1)), min_size=2, max_size=30).filter(
        lambda rows: all(len(set(side)) > 1 for side in zip(*rows, strict=True))
    )
)
def test_spearman_equals_scipy(rows):
    a, b = zip(*rows, strict=True)
    assert spearman(a, b) == pytest.approx(spearmanr(a, b)[0], abs=1e-9)


def test_spearman_by_hand():
    assert spearman([1, 2, 3], [10, 100, 1000]) == pytest.approx(1)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert np.isnan(spearman([1, 2], [5, 5]))
    assert AnalogyScore(1, 4, 10).accuracy == 0.25


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda kv: word_similarity("ws", kv), "wordsim353 and simlex999, not 'ws'"),
        (lambda kv: word_similarity("simlex999", KeyedVectors(["a"], [[1.0]])), "only 0 of the 999"),
        (lambda kv: analogies(kv, ["families"]), "no section .'families'.; there are capital"),
        (lambda kv: spearman([1, 2], [1]), "one length"),
        (lambda kv: spearman([1, float("nan")], [1, 2]), "no rank"),
    ],
)
def test_bad_input_is_named(call, message, vectors):
    with pytest.raises(ValueError, match=message):
        call(vectors)


def test_gensim_is_the_version_of_the_card():
    assert gensim.__version__ == "4.4.0"
