"""Byte-pair encoding by hand against Hugging Face's tokenizers, the paper's example, and texts that break tokenizers."""

import copy
import json
import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from plm.bpe import BPE, SPECIALS, learn_merges, merge, split_words
from plm.data import review_sentences

# Sennrich et al. 2016, algorithm 1: words with their counts. The space is their </w>.
PAPER = {"low ": 5, "lower ": 2, "newest ": 6, "widest ": 3}
TEXTS = ["low lower lowest ", "new newer newest, wide wider widest ", "é中國 naïve aaaa aaa "] * 3


@pytest.fixture(scope="module")
def reviews():
    return [" ".join(s) + " " for d in review_sentences("rt_train")[:2500] for s in d]


def theirs(texts, vocab_size):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=list(SPECIALS), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())["model"]


# --- equals a reference -------------------------------------------------------------------------------------------


def test_the_papers_example_by_hand():
    tokens, merges = learn_merges(PAPER, 100)
    made = [tokens[a] + tokens[b] for a, b in merges]
    # e+s 9, es+t 9, est+</w> 9 in the paper; here "t"+" " comes before "est", as its ids are... counted below
    assert made[0] == "es"
    assert set(made[1:3]) == {"t ", "est "}
    assert made[3:5] == ["lo", "low"]
    assert "newest " in made
    assert tokens[: len(SPECIALS)] == list(SPECIALS)
    assert tokens[len(SPECIALS) : -len(merges)] == sorted(set("".join(PAPER)))


@pytest.mark.parametrize("vocab_size", [80, 300, 2000])
def test_the_same_merges_as_tokenizers(reviews, vocab_size):
    ours, reference = BPE.train(reviews, vocab_size), theirs(reviews, vocab_size)
    assert ours.ids == reference["vocab"]
    assert ours.config["merges"] == [[ours.ids[a], ours.ids[b]] for a, b in reference["merges"]]


def test_the_same_ids_as_tokenizers_through_one_file(reviews, tmp_path):
    ours = BPE.train(reviews[:1500], 1000)
    reference = Tokenizer.from_file(str(ours.save(tmp_path / "bpe.json")))
    texts = [*reviews[1500:], "no space at the end", "  two  spaces ", "", "中文 émigré ½ <s> </s>", "ab\tcd\nef "]
    for text in texts:
        found = reference.encode(text)
        assert ours.encode(text) == found.ids
        assert ours.pieces(text) == found.tokens
    ids = ours.encode(reviews[0])
    assert reference.decode(ids) == ours.decode(ids) == reviews[0]
    again = BPE.load(tmp_path / "bpe.json")
    assert again.config == ours.config


# --- by hand ------------------------------------------------------------------------------------------------------


def test_merging_goes_from_left_to_right():
    assert merge([1, 1, 1], (1, 1), 7) == [7, 1]
    assert merge([1, 1, 1, 1], (1, 1), 7) == [7, 7]
    assert merge([2, 1, 2, 1, 2], (1, 2), 7) == [2, 7, 7]
    assert merge([], (1, 2), 7) == []


def test_equal_counts_are_broken_by_the_smaller_ids():
    tokens, merges = learn_merges({"ba ": 1, "ab ": 1}, 100, ("<unk>",))
    # all pairs occur once: " " is 1, a is 2, b is 3; the first is (2, 1), "a "
    assert tokens[merges[0][0]] + tokens[merges[0][1]] == "a "


def test_a_token_made_in_two_ways_is_one_token():
    tokens, merges = learn_merges({"abc ": 3, "xab ": 3, "bcy ": 9, "abcd ": 1}, 100, ("<unk>",))
    assert len(set(tokens)) == len(tokens)
    BPE(tokens, merges, ("<unk>",))


def test_training_stops_at_the_size_or_when_no_pair_is_left():
    assert len(BPE.train(["aaaa "], 9)) == 9
    everything = BPE.train(["low lower "], 1000)
    assert everything.pieces("low lower ") == ["low ", "lower "]
    assert len(everything) < 30


def test_a_word_never_seen_is_spelt_out_of_known_pieces(reviews):
    tokenizer = BPE.train(reviews, 600)
    assert "".join(tokenizer.pieces("unwatchability ")) == "unwatchability "
    assert tokenizer.ids["<unk>"] not in tokenizer.encode("unwatchability ")


def test_an_open_end_is_left_open():
    tokenizer = BPE.train(["film film films "], 100)
    assert tokenizer.pieces("film ") == ["film "]
    assert tokenizer.pieces("film") == ["film"]


# --- Unicode and other traps --------------------------------------------------------------------------------------


@given(st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_known_characters_come_back_and_others_become_unknown(text):
    tokenizer = BPE.train(TEXTS, 60)
    ids = tokenizer.encode(text)
    unknown = tokenizer.ids["<unk>"]
    assert "".join("?" if i == unknown else tokenizer.tokens[i] for i in ids) == "".join(
        c if c in tokenizer.ids else "?" for c in text
    )


@pytest.mark.parametrize("where", ["train", "encode"])
def test_b06_a_lone_surrogate_becomes_the_replacement_character(where, tmp_path):
    lines = ["one film ", "a\ud800b ", "two films "]
    if where == "train":
        tokenizer = BPE.train(lines, 100)
        assert "\ufffd" in tokenizer.ids
        assert tokenizer.pieces("one film ") == ["one ", "film "]
        assert BPE.load(tokenizer.save(tmp_path / "x.json")).config == tokenizer.config
        assert tokenizer.decode(tokenizer.encode("a\ud800b ")) == "a\ufffdb "
    else:
        tokenizer = BPE.train([lines[0], lines[2]], 100)
        assert tokenizer.encode("a\ud800b ") == tokenizer.encode("a\ufffdb ")
        assert tokenizer.ids["<unk>"] in tokenizer.encode("a\ud800b ")
    assert [tokenizer.decode(tokenizer.encode(line)) for line in (lines[0], lines[2])] == [lines[0], lines[2]]


def test_b11_every_single_character_is_encoded():
    tokenizer = BPE.train(["ab "], 20)
    unknown = tokenizer.ids["<unk>"]
    for code in range(0x10000):
        ids = tokenizer.encode("1" + chr(code) + "x")
        assert 2 <= len(ids) <= 3
        assert set(ids) <= {unknown, *tokenizer.ids.values()}


def test_b13_text_cannot_write_special_tokens(tmp_path):
    tokenizer = BPE.train(["a <s> b </s> <delimiter> c "] * 5, 200)
    special = set(range(len(SPECIALS)))
    assert not special & set(tokenizer.encode("a <s> b </s> <delimiter> c "))
    reference = Tokenizer.from_file(str(tokenizer.save(tmp_path / "x.json")))
    assert reference.encode("a <s> b ").ids == tokenizer.encode("a <s> b ")


def test_b13_no_text_can_teach_it_to_write_special_tokens(tmp_path):
    """With "<s>" glued to words a merge would spell <s>, and become it: the pair is left alone, whatever its count."""
    texts = ["<s>good <s>bad <s>film </s>x </s>y <unk>a <unk>b "] * 9
    tokenizer = BPE.train(texts, 200)
    special = set(range(len(SPECIALS)))
    assert not special & set(tokenizer.encode(texts[0]))
    assert tokenizer.decode(tokenizer.encode(texts[0])) == texts[0]
    assert BPE.load(tokenizer.save(tmp_path / "x.json")).config == tokenizer.config
    with pytest.raises(ValueError, match="merge 0 joins or makes a special token"):
        BPE([*SPECIALS, "<", "s>"], [(5, 6)])
    with pytest.raises(ValueError, match="special token"):
        BPE([*SPECIALS, "a", "a<s>"], [(5, 1)])


def test_b06_also_word_by_word():
    tokenizer = BPE.train(["a\ufffdb film "], 100)
    assert tokenizer.encode_word("a\ud800b ") == tokenizer.encode("a\ud800b ") == tokenizer.encode("a\ufffdb ")


def test_what_is_handed_out_is_the_callers_own():
    tokenizer = BPE.train(["good film "] * 2, 100)
    wanted = tokenizer.encode("film ")
    tokenizer.encode_word("film ").append(99)
    assert tokenizer.encode_word("film ") == tokenizer.encode("film ") == wanted


def test_c06_the_same_vocabulary_in_another_process(tmp_path):
    """Sets and dicts have another order of strings there."""
    code = f"from plm.bpe import BPE; print(BPE.train({TEXTS!r}, 60).config)"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for seed in ("0", "1")
    }
    assert found == {str(BPE.train(TEXTS, 60).config)}


def test_splitting_loses_nothing():
    for text in ("", " ", "  ", "a", "a b", " a  b ", "a\u00a0b c"):
        assert "".join(split_words(text)) == text
    assert split_words("the film was") == ["the ", "film ", "was"]


def test_training_does_not_depend_on_the_order_of_the_texts(reviews):
    assert BPE.train(reviews[:500], 400).config == BPE.train(reviews[:500][::-1], 400).config


def test_copies_and_pickles():
    tokenizer = BPE.train(TEXTS, 60)
    for twin in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer)), BPE(**tokenizer.config)):
        assert twin.encode(TEXTS[1]) == tokenizer.encode(TEXTS[1])
        assert len(twin) == len(tokenizer)


def test_special_tokens_are_left_out_or_named():
    tokenizer = BPE.train(TEXTS, 60)
    ids = [tokenizer.start_id, *tokenizer.encode("low "), tokenizer.end_id]
    assert tokenizer.decode(ids) == "low "
    assert tokenizer.decode(ids, specials=True) == "<s>low </s>"


def test_bad_input_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"pass \[text\]"):
        BPE.train("one string", 100)
    with pytest.raises(ValueError, match="no word"):
        BPE.train([], 100)
    with pytest.raises(ValueError, match="below the"):
        BPE.train(TEXTS, 8)
    tokenizer = BPE.train(TEXTS, 60)
    with pytest.raises(TypeError, match="one string"):
        tokenizer.encode(["a", "b"])
    with pytest.raises(IndexError, match="outside this vocabulary"):
        tokenizer.decode([60])
    for ids in ("12", [1.5], [None], 5):
        with pytest.raises(TypeError, match="sequence of whole numbers"):
            tokenizer.decode(ids)
    with pytest.raises(TypeError, match="a word is a string, not list"):
        tokenizer.encode_word(["a"])
    for counts in (["ab "], "ab "):
        with pytest.raises(TypeError, match="counts maps each word"):
            learn_merges(counts, 10)
    with pytest.raises(ValueError, match="the word 'cd ' occurs 0 times"):
        learn_merges({"ab ": 2, "cd ": 0}, 100)
    for size in ("100", 10.5):
        with pytest.raises(TypeError, match="vocab_size is a number of tokens"):
            BPE.train(TEXTS, size)
    for merge_ in ((99, 1), (-1, -2)):
        with pytest.raises(ValueError, match="merge 0 joins tokens"):
            BPE([*SPECIALS, "a", "b"], [merge_])
    with pytest.raises(ValueError, match="special ones"):
        BPE(["a"], [])
    with pytest.raises(ValueError, match="which is no token"):
        BPE([*SPECIALS, "a", "b"], [(5, 6)])
    path = tmp_path / "x.json"
    for content in ('{"model": {}}', '{"model": {"vocab": ["a"], "merges": []}}', "[]", "null"):
        path.write_text(content)
        with pytest.raises(ValueError, match="is no BPE tokenizer"):
            BPE.load(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        BPE.load(path)
