"""plm.chinese: what the cards say, names joined, no leak between parts, and one token per character."""

import pytest

from plm.chinese import (
    Article,
    Entity,
    Word,
    character_vocabulary,
    chinese_reviews,
    chinese_texts,
    chinese_tokenizer,
    named,
    narrow,
    news,
    sentences,
    tagged_lines,
)


def test_news_is_what_the_card_says():
    parts = [news(part) for part in ("train", "dev", "test")]
    assert [len(part) for part in parts] == [2637, 155, 311]
    everything = [s for part in parts for article in part for s in article.sentences]
    assert len(everything) == 44_533
    assert 1.83e6 < sum(len(s.text) for s in everything) < 1.85e6
    kinds = [e.type for s in everything for e in s.entities]
    assert (kinds.count("PER"), kinds.count("LOC"), kinds.count("ORG")) == (20_121, 27_890, 3573)
    assert 0.4 < sum(not s.entities for s in everything) / len(everything) < 0.6
    organisations = {s.text[e.start : e.end] for s in everything for e in s.entities if e.type == "ORG"}
    assert len(organisations) < 200  # badly under-labelled


def test_names_lie_in_their_sentences_and_do_not_overlap():
    for article in news("dev"):
        assert isinstance(article, Article)
        for s in article.sentences:
            borders = [place for e in s.entities for place in (e.start, e.end)]
            assert borders == sorted(borders)
            assert not borders or borders[-1] <= len(s.text)


def test_surname_and_given_name_are_one():
    line = [Word("江", "nr"), Word("泽民", "nr"), Word("在", "p"), Word("北京", "ns")]
    assert named(line) == ("江泽民在北京", (Entity(0, 3, "PER"), Entity(4, 6, "LOC")))
    two = [Word("邓小平", "nr"), Word("江", "nr"), Word("泽民", "nr")]
    assert [e[:2] for e in named(two).entities] == [(0, 3), (3, 6)]
    compound = [Word("欧阳", "nr"), Word("修", "nr")]
    assert named(compound).entities == (Entity(0, 3, "PER"),)


def test_sentences_keep_their_names():
    line = named(
        [Word("他", "r"), Word("来", "v"), Word("。", "w"), Word("”", "w"), Word("北京", "ns"), Word("！", "w")]
    )
    assert [s.text for s in sentences(line)] == ["他来。”", "北京！"]
    assert sentences(line)[1].entities == (Entity(0, 2, "LOC"),)


def test_digits_and_letters_are_narrow_and_punctuation_is_not():
    assert narrow("１９９８年，ＡＢＣ．５％（ａ）") == "1998年，ABC.5%（a）"
    assert not any("０" <= c <= "９" for line in tagged_lines()[:2000] for word in line for c in word.text)


def test_reviews_have_no_doubles_within_or_across_parts():
    parts = [chinese_reviews(part) for part in ("train", "dev", "test")]
    assert [len(part) for part in parts] == [13_645, 1000, 2000]
    texts = ["".join(c for c in review.text if c.isalnum()) for part in parts for review in part]
    assert len(texts) == len(set(texts)) == 16_645
    assert 0.45 < sum(review.label for part in parts for review in part) / len(texts) < 0.55


def test_held_out_text_is_not_pretrained_on():
    train = {s for document in chinese_texts("train") for s in document if len(s) > 25}
    for part in ("dev", "test"):
        held_out = [s for document in chinese_texts(part) for s in document if len(s) > 25]
        assert sum(s in train for s in held_out) < 0.01 * len(held_out)  # phrases that a paper prints every day


def test_one_token_per_character():
    tokenizer = chinese_tokenizer()
    text = "江泽民在北京发表1998年新年讲话。"
    found = tokenizer.encode(text)
    assert found.pieces[1:-1] == list(text)
    assert found.offsets[1:-1] == [(i, i + 1) for i in range(len(text))]
    small = character_vocabulary(["天天上上", "天上下"], min_count=2)
    assert small.pieces[5:] == ("上", "天")
    assert small.encode("天下").pieces[1:-1] == ["天", "[UNK]"]


@pytest.mark.parametrize("load", [news, chinese_reviews])
def test_unknown_parts_are_named(load):
    with pytest.raises(ValueError, match="'all'; there are train, dev, test"):
        load("all")
