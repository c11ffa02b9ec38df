"""Telegrams: what is kept is kept in order, and no sentence is in two parts."""

import pytest

from plm.data import language_model_text
from plm.telegrams import PARTS, SMALL, shorten, telegrams


def test_small_words_go_and_the_turning_ones_stay():
    words = ["i", "do", "n't", "think", "that", "the", "film", "is", "not", "worth", "it", "."]
    assert shorten(words) == ["n't", "think", "film", "not", "worth"]
    assert not {"not", "n't", "no", "never"} & SMALL
    with pytest.raises(TypeError, match="not one string"):
        shorten("a film")


def test_no_sentence_is_in_two_parts_and_none_was_read_before():
    found = {part: telegrams(part, 400) for part in PARTS}
    texts = {part: {tuple(t.words) for t in rows} for part, rows in found.items()}
    assert all(len(rows) == 400 for rows in texts.values())
    assert not texts["train"] & (texts["dev"] | texts["test"])
    assert not texts["dev"] & texts["test"]
    read = {tuple(s) for s in language_model_text(5_000_000).train}
    # A stock phrase may stand in two reviews; the reviews themselves are apart.
    assert len(texts["train"] & read) < 10
    for telegram in found["test"]:
        rest = iter(telegram.words)
        assert all(word in rest for word in telegram.kept)
        assert len(telegram.kept) < len(telegram.words)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="part is one of"):
        telegrams("tests", 3)
    with pytest.raises(ValueError, match="asked for 0"):
        telegrams("dev", 0)
