"""Words and sentences: English as it comes, and any Unicode at all."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plm.tokenize import sentences, words

# Any code point, lone surrogates and unassigned ones included.
anything = st.text(st.characters(codec=None), max_size=60)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's GOOD, isn't it?", "it's good , isn't it ?"),
        ("a twenty-one-year-old film - really", "a twenty-one-year-old film - really"),
        ("10/10 (well... 9)", "10 10 ( well . . . 9 )"),
        ("“Curly” ‘quotes’ don’t matter", '" curly " quotes don\'t matter'),
        ("snake_case €5 café", "snake case 5 café"),
        ("one\nline note\tbook", "one line note book"),
        ("", ""),
        ("…€★", ""),
    ],
)
def test_words_by_hand(text, expected):
    assert words(text) == expected.split()


def test_b04_composed_and_decomposed_accents_are_one_word():
    assert words("Héllo") == words("He\u0301llo") == ["héllo"]


def test_a_mark_without_composed_form_does_not_cut_the_word():
    """The lower-case of İ is an i with a separate dot above."""
    assert words("İstanbul") == ["i\u0307stanbul"]
    assert words("x\u0302y") == ["x\u0302y"]


def test_b06_a_lone_surrogate_parts_words_and_is_dropped():
    assert words("a\ud800b") == ["a", "b"]
    lines = ["one line", "a\ud800b", "three"]
    assert [words(line) for line in lines] == [["one", "line"], ["a", "b"], ["three"]]


@given(anything)
@example("A\u030a\ud800'-x")
def test_words_of_any_text_are_lower_case_composed_and_writable(text):
    for word in words(text):
        assert word
        assert not any(c.isspace() for c in word)
        assert word == unicodedata.normalize("NFC", word)
        word.encode("utf-8")


@given(anything)
def test_words_of_words_are_the_same_words(text):
    found = words(text)
    assert words(" ".join(found)) == found


@given(anything)
def test_composition_does_not_change_the_words(text):
    assert words(unicodedata.normalize("NFD", text)) == words(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "no." Then (he left.) Why?', ['He said "no."', "Then (he left.)", "Why?"]),
        ("“Oh.” He fell.", ["“Oh.”", "He fell."]),
        ("line one\nline two\n\n\nline three", ["line one", "line two", "line three"]),
        ("version 2.5 of it", ["version 2.5 of it"]),
        ("  padded.   spaces  ", ["padded.", "spaces"]),
        (" \n ", []),
    ],
)
def test_sentences_by_hand(text, expected):
    assert sentences(text) == expected


@given(anything)
def test_sentences_lose_white_space_only(text):
    assert "".join("".join(s.split()) for s in sentences(text)) == "".join(text.split())
    assert all(s == s.strip() and s and "\n" not in s for s in sentences(text))


@given(anything)
def test_words_are_the_words_of_the_sentences(text):
    assert [w for s in sentences(text) for w in words(s)] == words(text)


def test_k03_lists_are_refused():
    with pytest.raises(TypeError, match="one string"):
        words(["hello world"])
    with pytest.raises(TypeError, match="one string"):
        sentences(["hello world"])
