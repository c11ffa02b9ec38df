"""The translation task: exact references, no content on both sides of a split, no typesetting left."""

import datetime
import hashlib
from collections import Counter

import numpy as np
import pytest
import torch

from plm.translation import (
    DATE_KINDS,
    END_ID,
    IGNORED,
    KINDS,
    PAD_ID,
    SIZES,
    START_ID,
    TRANSLATION_SPECIALS,
    PairBatches,
    character_tokens,
    countries,
    date_phrase,
    exact_matches,
    list_phrase,
    pairs,
    part_of,
    plain_spaces,
    source_ids,
    translations,
    until_end,
    word_tokens,
)

DAY = datetime.date(2024, 6, 6)


@pytest.fixture(scope="module")
def data():
    return translations("zh")


# --- hand examples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "end", "source", "target"),
    [
        ("full", None, "Thursday, June 6, 2024", "2024年6月6日星期四"),
        ("long", None, "June 6, 2024", "2024年6月6日"),
        ("medium", None, "Jun 6, 2024", "2024年6月6日"),
        ("interval", datetime.date(2024, 6, 9), "Thu, Jun 6 – Sun, Jun 9, 2024", "2024年6月6日周四–6月9日周日"),
        ("interval", datetime.date(2024, 8, 9), "Thu, Jun 6 – Fri, Aug 9, 2024", "2024年6月6日周四至8月9日周五"),
    ],
)
def test_dates_by_hand(kind, end, source, target):
    phrase = date_phrase(kind, DAY, end)
    assert (phrase.kind, phrase.source, phrase.target) == (kind, source, target)
    assert phrase.size == 1 + (end is not None)
    assert "".join(phrase.target_tokens) == target


def test_lists_by_hand():
    assert list_phrase(["TD", "PE", "IQ"])[:4] == ("list", 3, "Chad, Peru, and Iraq", "乍得、秘鲁和伊拉克")
    french = list_phrase(["TD", "CI"], "fr")
    assert french.target == "Tchad et Côte d’Ivoire"
    assert french.target_tokens == ("Tchad", "et", "Côte", "d", "’", "Ivoire")
    assert french.source_tokens == ("Chad", "and", "Côte", "d", "’", "Ivoire")


def test_tokens_split_digits_and_spaces_are_plain():
    assert word_tokens("June 12, 2024") == ("June", "1", "2", ",", "2", "0", "2", "4")
    assert character_tokens("6月9日 – 周日") == tuple("6月9日–周日")
    assert plain_spaces("a\u202fb\u00a0c\u2009–\u2009d ") == "a b c – d"


# --- the whole set --------------------------------------------------------------------------------------------------


def test_sizes_and_shares(data):
    assert {part: len(getattr(data, part)) for part in SIZES} == SIZES
    kinds = Counter(p.kind for p in data.test)
    assert set(kinds) == set(KINDS)
    assert all(kinds[kind] == pytest.approx(250, abs=5) for kind in DATE_KINDS)
    lengths = Counter(p.size for p in data.test if p.kind == "list")
    assert set(lengths) == set(range(1, 9))
    assert all(lengths[n] > 130 for n in range(2, 9))
    assert lengths[1] > 30  # there are only so many countries


def test_the_phrases_are_always_the_same(data):
    text = "\n".join(f"{p.source}\t{p.target}" for part in data[:3] for p in part)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == FINGERPRINT


FINGERPRINT = "69172bd9b950ee3b"


@pytest.mark.parametrize("language", ["zh", "fr"])
def test_no_typesetting_and_no_unknown_token(language):
    data = translations(language)
    odd = {c for part in data[:3] for p in part for c in p.source + p.target if c.isspace() or not c.isprintable()}
    assert odd == ({" "})
    for part in (data.dev, data.test):
        assert all(t in data.source_vocab for p in part for t in p.source_tokens)
        assert all(t in data.target_vocab for p in part for t in p.target_tokens)
    assert data.source_vocab.tokens[:4] == data.target_vocab.tokens[:4] == TRANSLATION_SPECIALS


def test_one_source_has_one_translation_and_stands_once(data):
    for part in data[:3]:
        assert len({p.source for p in part}) == len(part)


def test_k11_no_content_in_two_parts(data):
    """Not the day in another pattern, not the countries in another order."""
    names = {list_phrase([c]).source: c for c in countries()}

    def content(phrase) -> set[str]:
        if phrase.kind == "list":
            parts = phrase.source.replace(", and ", ", ").split(", ")
            if phrase.size == 2:
                parts = next([a, b] for a in names for b in [phrase.source.removeprefix(f"{a} and ")] if b in names)
            return {" ".join(sorted(names[p] for p in parts))}
        year, rest = phrase.target.split("年", 1)  # Chinese dates read from large to small, without spaces
        days = []
        for piece in rest.replace("–", "至").split("至"):
            if "年" in piece:
                year, piece = piece.split("年")
            month, day = piece.split("日")[0].split("月")
            days.append(datetime.date(int(year), int(month), int(day)).isoformat())
        return set(days)

    found = [set().union(*map(content, part)) for part in data[:3]]
    assert sum(map(len, found)) == len(set().union(*found))
    for part, name in zip(found, ("train", "dev", "test")):
        assert {part_of(item) for item in part} == {name}


def test_countries_of_held_out_lists_are_known_from_training(data):
    assert {t for p in data.test if p.kind == "list" for t in p.source_tokens} <= {
        t for p in data.train if p.kind == "list" for t in p.source_tokens
    }


def test_both_languages_say_the_same(data):
    french = translations("fr")
    assert [p.source for p in french.test] == [p.source for p in data.test]


# --- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_by_hand(data):
    short, long = list_phrase(["TD"]), list_phrase(["TD", "PE"])
    batch = pairs([short, long], data)
    s, t = data.source_vocab, data.target_vocab
    assert batch.source.tolist() == [
        [s["Chad"], END_ID, PAD_ID, PAD_ID],
        [s["Chad"], s["and"], s["Peru"], END_ID],
    ]
    ids = t.encode(list("乍得和秘鲁"))
    assert batch.target_in.tolist() == [[START_ID, *ids[:2], PAD_ID, PAD_ID, PAD_ID], [START_ID, *ids]]
    assert batch.target_out.tolist() == [[*ids[:2], END_ID, IGNORED, IGNORED, IGNORED], [*ids, END_ID]]
    assert torch.equal(source_ids([short, long], s), batch.source)


def test_batches_hold_every_phrase_once_in_a_new_order_each_pass(data):
    some = data.train[:130]
    batches = PairBatches(some, data, 32, seed=4)
    assert len(batches) == 5
    passes = [[tuple(row) for b in batches for row in b.source.tolist()] for _ in range(2)]
    strip = [[tuple(i for i in row if i) for row in rows] for rows in passes]
    assert (
        Counter(strip[0])
        == Counter(strip[1])
        == Counter((*data.source_vocab.encode(p.source_tokens), END_ID) for p in some)
    )
    assert strip[0] != strip[1]
    again = [[tuple(row) for row in b.source.tolist()] for b in PairBatches(some, data, 32, seed=4)]
    assert [row for rows in again for row in rows] == passes[0]


def test_until_end_and_exact_matches(data):
    t, phrase = data.target_vocab, list_phrase(["TD"])
    ids = torch.tensor([[*t.encode("乍得"[i] for i in range(2)), END_ID, 7], [*t.encode(list("乍得")), 8, 9]])
    tokens = until_end(ids, t)
    assert tokens[0] == ("乍", "得")
    assert len(tokens[1]) == 4
    np.testing.assert_array_equal(exact_matches(tokens, [phrase, phrase]), [True, False])


# --- clear words ----------------------------------------------------------------------------------------------------


def test_bad_input_is_named(data):
    with pytest.raises(ValueError, match="zh or fr, not 'de'"):
        translations("de")
    with pytest.raises(ValueError, match=r"codes must be .*'XX'"):
        list_phrase(["XX"])
    with pytest.raises(ValueError, match="codes must be"):
        list_phrase("CN")
    with pytest.raises(ValueError, match="codes must be"):
        list_phrase([])
    with pytest.raises(ValueError, match="not 'short'"):
        date_phrase("short", DAY)
    with pytest.raises(ValueError, match="later than its start"):
        date_phrase("interval", DAY, DAY)
    with pytest.raises(ValueError, match="an interval"):
        date_phrase("full", DAY, datetime.date(2025, 1, 1))
    with pytest.raises(TypeError, match="list of Phrase"):
        pairs(["a phrase"], data)
    with pytest.raises(TypeError, match="write \\[phrase\\]"):
        pairs(list_phrase(["CN"]), data)
    with pytest.raises(TypeError, match="non-empty"):
        pairs([], data)
    with pytest.raises(ValueError, match="1 translations for 2"):
        exact_matches([("a",)], data.test[:2])
    with pytest.raises(TypeError, match="int64"):
        until_end(torch.tensor([4, 5]), data.target_vocab)
    with pytest.raises(TypeError, match="int64"):
        until_end(torch.tensor([[4.0, 5.6]]), data.target_vocab)
    with pytest.raises(ValueError, match="batch_size"):
        PairBatches(data.dev, data, 0)


def test_locale_data_of_another_version_is_refused(monkeypatch):
    from plm import translation

    monkeypatch.setitem(translation.LOCALE_SHA256, "zh", "0" * 64)
    translation._locale.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"zh\.dat of babel==2\.19\.0 is not the file"):
            list_phrase(["CN"])
    finally:
        monkeypatch.undo()
        translation._locale.cache_clear()


def test_k03_a_translation_is_tokens_not_a_string():
    """Letter by letter a Chinese string would be right, and a French one wrong."""
    for language in ("zh", "fr"):
        phrase = list_phrase(["TD"], language)
        assert exact_matches([phrase.target_tokens], [phrase]).all()
        with pytest.raises(TypeError, match="until_end"):
            exact_matches([phrase.target], [phrase])
