"""Vocabularies: order, round trips, files, and clear errors."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plm.tokenize import words
from plm.vocab import END, LANGUAGE_MODEL_SPECIALS, START, UNKNOWN, Vocab

token = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
tokens = st.lists(token, max_size=40)
TEXT = ["b", "a", "b", "c", "a", "b", "d"]


def test_order_by_hand():
    vocab = Vocab.build(TEXT)
    assert vocab.tokens == (UNKNOWN, "b", "a", "c", "d")
    assert vocab.encode(["a", "b", "never"]) == [2, 1, 0]
    assert vocab.decode([2, 1, 0]) == ["a", "b", UNKNOWN]
    assert len(vocab) == 5
    assert "a" in vocab
    assert "never" not in vocab


def test_size_and_count_limits():
    assert Vocab.build(TEXT, max_size=3).tokens == (UNKNOWN, "b", "a")
    assert Vocab.build(TEXT, min_count=2).tokens == (UNKNOWN, "b", "a")
    assert Vocab.build(TEXT, max_size=1).tokens == (UNKNOWN,)
    assert Vocab.build([]).tokens == (UNKNOWN,)


def test_specials_come_first_and_are_not_counted_twice():
    vocab = Vocab.build(["<s>", "<s>", "x", "</s>"], specials=LANGUAGE_MODEL_SPECIALS)
    assert vocab.tokens == (UNKNOWN, START, END, "x")


@given(tokens)
def test_encode_then_decode_is_the_identity(text):
    vocab = Vocab.build(text)
    assert vocab.decode(vocab.encode(text)) == text
    assert sorted(vocab.ids.values()) == list(range(len(vocab)))


@given(tokens, st.randoms())
def test_the_order_of_the_text_does_not_matter(text, random):
    shuffled = random.sample(text, len(text))
    assert Vocab.build(shuffled).tokens == Vocab.build(text).tokens


@given(tokens, st.integers(1, 10))
def test_a_smaller_vocabulary_begins_the_larger(text, size):
    full, small = Vocab.build(text), Vocab.build(text, max_size=size)
    assert small.tokens == full.tokens[:size]


def test_c06_order_does_not_depend_on_the_hash_seed():
    """Two processes, two hash seeds, one order. A set of equal counts is what would differ."""
    code = (
        "from plm.vocab import Vocab; print(Vocab.build({w for w in 'the film was good but not great'.split()}).tokens)"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        for seed in ("0", "1")
    ]
    assert all(o.returncode == 0 for o in outputs), outputs[0].stderr
    assert outputs[0].stdout == outputs[1].stdout
    assert "film" in outputs[0].stdout


@given(tokens)
def test_saved_and_loaded_it_is_the_same(tmp_path_factory, text):
    vocab = Vocab.build([*text, "中", "line\nbreak", "İ"], specials=LANGUAGE_MODEL_SPECIALS)
    path = vocab.save(tmp_path_factory.mktemp("vocab") / "vocab.json")
    loaded = Vocab.load(path)
    assert (loaded.tokens, loaded.specials, loaded.ids) == (vocab.tokens, vocab.specials, vocab.ids)


def test_b06_a_lone_surrogate_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="lone surrogate"):
        Vocab(["a\ud800b"])
    with pytest.raises(ValueError, match="lone surrogate"):
        Vocab.build(["fine", "a\ud800b"])
    path = tmp_path / "vocab.json"
    path.write_text('{"specials": ["<unk>"], "tokens": ["a\\ud800b"]}', encoding="utf-8")
    with pytest.raises(ValueError, match="lone surrogate"):
        Vocab.load(path)


def test_b06_one_bad_line_does_not_take_the_corpus_with_it(tmp_path):
    lines = ["one line", "a\ud800b", "three"]
    vocab = Vocab.build(w for line in lines for w in words(line))
    assert Vocab.load(vocab.save(tmp_path / "vocab.json")).tokens == vocab.tokens
    assert {"one", "line", "a", "b", "three"} == set(vocab.tokens[1:])


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = Vocab(["old"]).save(tmp_path / "vocab.json")
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        Vocab(["new"]).save(path)
    assert Vocab.load(path).tokens == (UNKNOWN, "old")
    assert os.listdir(tmp_path) == ["vocab.json"]


def test_k03_raw_strings_are_refused():
    with pytest.raises(TypeError, match="not one string"):
        Vocab.build("hello world")
    with pytest.raises(TypeError, match="not one string"):
        Vocab.build(["hello"]).encode("hello")
    with pytest.raises(TypeError, match="not one string"):
        Vocab("hello")
    with pytest.raises(TypeError, match="not one string"):
        Vocab(["hello"], specials="<unk>")
    with pytest.raises(TypeError, match="a token is a string"):
        Vocab.build([["a", "sentence"], ["and", "another"]])


def test_errors_say_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match=r"stand twice: \['a'\]"):
        Vocab(["a", "a"])
    with pytest.raises(TypeError, match="not int"):
        Vocab([3])
    with pytest.raises(ValueError, match="no room for the 3"):
        Vocab.build(TEXT, max_size=2, specials=LANGUAGE_MODEL_SPECIALS)
    with pytest.raises(KeyError, match="not in the vocabulary"):
        Vocab(["a"], specials=())["b"]
    for bad in (-1, 2):
        with pytest.raises(IndexError, match="outside this vocabulary of 2"):
            Vocab(["a"]).decode([bad])
    path = tmp_path / "vocab.json"
    for content, message in [
        ("{", "not valid JSON"),
        ("[]", "not a vocabulary"),
        ('{"tokens": []}', "not a vocabulary"),
    ]:
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            Vocab.load(path)
    path.write_text(json.dumps({"specials": [UNKNOWN], "tokens": "abc"}), encoding="utf-8")
    with pytest.raises(TypeError, match="not one string"):
        Vocab.load(path)
