"""Words with vectors: questions asked of them, and travel to and from gensim."""

import copy
import pickle

import gensim
import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors as Theirs
from hypothesis import given, settings
from hypothesis import strategies as st

from plm.keyed_vectors import KeyedVectors

WORDS = ["king", "naïve", "苹果", "Ünï·cødé", "don't", "a\u00a0b", "x\u2028y", "😀", "0.5", "</s>"]


def some_vectors(words=WORDS, d=7, seed=0):
    scale = 10.0 ** np.random.default_rng(seed).integers(-6, 6, (len(words), 1))
    return KeyedVectors(words, np.random.default_rng(seed).normal(size=(len(words), d)) * scale)


def same(a, b):
    assert a.words == b.words
    assert torch.equal(a.vectors, b.vectors)


# --- questions ----------------------------------------------------------------------------------------------------


def test_c05_the_words_of_the_question_are_no_answer():
    kv = KeyedVectors(
        ["king", "queen", "man", "woman", "car"], [[1, 0.05], [0.9, 0.43], [0.1, 0], [0.12, 0.1], [-1, 0.2]]
    )
    assert kv.analogy("man", "king", "woman")[0].word == "queen"
    assert {m.word for m in kv.analogy("man", "king", "woman", k=2)} == {"queen", "car"}


def test_nearest_and_analogy_equal_gensim():
    kv = some_vectors([f"w{i}" for i in range(40)])
    theirs = Theirs(7)
    theirs.add_vectors(kv.words, kv.vectors.numpy())
    assert [m.word for m in kv.nearest("w3", 5)] == [w for w, _ in theirs.most_similar("w3", topn=5)]
    np.testing.assert_allclose(
        [m.cosine for m in kv.nearest("w3", 5)], [c for _, c in theirs.most_similar("w3", topn=5)], rtol=1e-5
    )
    expected = theirs.most_similar(positive=["w1", "w2"], negative=["w0"], topn=5)
    assert [m.word for m in kv.analogy("w0", "w1", "w2", k=5)] == [w for w, _ in expected]


def test_nearest_of_a_vector_and_exclusions():
    kv = some_vectors()
    assert kv.nearest(kv["king"], 1)[0].word == "king"
    assert kv.nearest(kv["king"], 1, exclude=["king"]) == kv.nearest("king", 1)
    assert len(kv) == len(WORDS)
    assert "苹果" in kv
    assert "pear" not in kv


def test_copies_and_pickles():
    kv = some_vectors()
    for twin in (copy.deepcopy(kv), pickle.loads(pickle.dumps(kv))):
        same(twin, kv)


# --- travel -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v.txt", "v.bin"])
def test_from_us_to_us_and_to_gensim(tmp_path, name):
    kv = some_vectors()
    same(KeyedVectors.load(kv.save(tmp_path / name)), kv)
    theirs = Theirs.load_word2vec_format(str(tmp_path / name), binary=name.endswith("bin"))
    assert theirs.index_to_key == WORDS
    np.testing.assert_array_equal(theirs.vectors, kv.vectors.numpy())


@pytest.mark.parametrize("binary", [False, True])
def test_from_gensim_to_us(tmp_path, binary):
    theirs = Theirs(7)
    theirs.add_vectors(WORDS, some_vectors().vectors.numpy())
    theirs.save_word2vec_format(str(tmp_path / "v"), binary=binary)
    same(KeyedVectors.load(tmp_path / "v", binary=binary), some_vectors())


def test_a_model_trained_by_gensim_arrives(tmp_path):
    model = gensim.models.Word2Vec([["a", "b", "c"]] * 20, vector_size=5, min_count=1, workers=1)
    model.wv.save_word2vec_format(str(tmp_path / "m.bin"), binary=True)
    ours = KeyedVectors.load(tmp_path / "m.bin")
    assert [m.word for m in ours.nearest("a", 2)] == [w for w, _ in model.wv.most_similar("a", topn=2)]


@settings(max_examples=30, deadline=None)
@given(
    words=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\r\v\f"), min_size=1),
        min_size=1, max_size=5, unique=True,
    ),
    seed=st.integers(0, 99),
    binary=st.booleans(),
)  # fmt: skip
def test_any_word_survives(tmp_path_factory, words, seed, binary):
    kv = some_vectors(words, seed=seed)
    same(KeyedVectors.load(kv.save(tmp_path_factory.mktemp("v") / "v", binary), binary), kv)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    kv = some_vectors()
    path = kv.save(tmp_path / "v.txt")
    with pytest.raises(ValueError, match="'new york' cannot be written"):
        some_vectors(["new york"]).save(path)
    same(KeyedVectors.load(path), kv)
    assert [p.name for p in tmp_path.iterdir()] == ["v.txt"]


# --- bad files and bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: expected two numbers"),
        (b"the 0.1 0.2\nof 0.3 0.4\n", "line 1: expected two numbers.*GloVe"),
        (b"2\na 1\n", "line 1: expected two numbers"),
        (b"0 2\n", "line 1: there must be"),
        (b"2 2\na 1 2\n", "promises 2 words, but 1 lines follow"),
        (b"1 2\na 1 2\nb 1 2\n", "promises 1 words, but 2 lines follow"),
        (b"2 2\na 1 2\nb 1\n", "line 3: expected a word and 2 numbers, found 1"),
        (b"2 2\na 1 2\nb 1 2 3\n", "line 3: expected a word and 2 numbers, found 3"),
        (b"2 2\na 1 2\nb 1 x\n", "line 3: could not convert string to float: b'x'"),
        (b"2 2\na 1 2\nb 1 nan\n", "line 3: the vector of 'b' holds NaN"),
        (b"2 2\na 1 2\nb 1 1e99\n", "line 3: the vector of 'b' holds NaN or infinity"),
        (b"2 2\na 1 2\n\xff\xfe 1 2\n", "line 3: the word .* is not UTF-8"),
        (b"2 2\na 1 2\n 1 2\n", "line 3: the word is missing"),
        (b"2 2\na 1 2\na 1 2\n", "'a' stands twice"),
        (b"99999999999 99999999999\na 1 2\n", "promises 99999999999 words"),
    ],
)
def test_a_malformed_text_file_is_refused(tmp_path, content, message):
    path = tmp_path / "v.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        KeyedVectors.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[:-4], "ends (within|before) word 10 of 10"),
        (lambda raw: raw[:9], "ends before word 10"),
        (lambda raw: raw + b"more", "more data follows"),
        (lambda raw: b"99999999999 99999999999\n" + raw, "ends before word 99999999999"),
        (lambda raw: raw.replace("苹果".encode(), b"\xff\xfe"), "line 4: the word .* is not UTF-8"),
    ],
)
def test_a_malformed_binary_file_is_refused(tmp_path, change, message):
    path = some_vectors().save(tmp_path / "v.bin")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        KeyedVectors.load(path)


def test_windows_line_ends_are_read(tmp_path):
    (tmp_path / "v.txt").write_bytes(b"2 2\r\na 1 2\r\nb 3 4\r\n")
    kv = KeyedVectors.load(tmp_path / "v.txt")
    assert kv.words == ["a", "b"]
    assert kv["b"].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: KeyedVectors("ab", [[1.0], [2.0]]), TypeError, "list of words"),
        (lambda: KeyedVectors(["a"], [[1.0], [2.0]]), ValueError, "one row per word"),
        (lambda: KeyedVectors(["a"], [1.0]), ValueError, "one row per word"),
        (lambda: KeyedVectors(["a", "a"], [[1.0], [2.0]]), ValueError, "'a' stands twice"),
        (lambda: KeyedVectors(["a"], [[float("nan")]]), ValueError, "NaN"),
        (lambda: some_vectors()["pear"], KeyError, "'pear' has no vector"),
        (lambda: some_vectors().nearest("pear"), KeyError, "'pear' has no vector"),
        (lambda: some_vectors().nearest("king", 10), ValueError, "9 rows can be one"),
        (lambda: some_vectors().analogy("king", "pear", "苹果"), KeyError, "'pear'"),
        (lambda: some_vectors(["a\nb"]).save("/nowhere/v"), ValueError, "white space"),
        (lambda: some_vectors([""]).save("/nowhere/v"), ValueError, "white space"),
        (lambda: some_vectors(["a\ud800"]).save("/nowhere/v"), ValueError, "surrogate"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
