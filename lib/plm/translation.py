"""A translation task with exact references: English dates and lists of countries, in Chinese or French.

Babel carries the Unicode consortium's locale data: how a date is written and what a country is called, in hundreds of
languages. Every phrase is written twice from the same content, so the reference is right by construction.
"""

import datetime
import functools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from plm.data import package_file
from plm.progress import progress
from plm.vocab import END, START, UNKNOWN, Vocab

PAD = "<pad>"
TRANSLATION_SPECIALS = (PAD, UNKNOWN, START, END)
PAD_ID, UNKNOWN_ID, START_ID, END_ID = range(4)
IGNORED = -100  # targets that do not count

DATE_KINDS = ("full", "long", "medium", "interval")  # of one day; the last names two
KINDS = (*DATE_KINDS, "list")
LONGEST_LIST = 8
FIRST_DAY, N_DAYS = datetime.date(1900, 1, 1), 55_000  # up to the summer of 2050
SIZES = {"train": 24_000, "dev": 1_000, "test": 2_000}
LOCALE_SHA256 = {
    "en": "1e613e1ac63d11f03440d18f05fe276dd4d30d75b471f7a87bffda9ca0264cee",
    "zh": "ad024d5bea83799e904a84bd3593dcca97d62fa952363445f9a07d152df4b632",
    "fr": "0a4d8b9befb62f45be1161fdc86f8407de68c9fe2865cf3393a5db838f63a779",
}
NOT_COUNTRIES = ("EU", "EZ", "UN", "QO", "XA", "XB", "ZZ")  # unions, test locales, "unknown"


class Phrase(NamedTuple):
    """kind: one of KINDS. size: countries in a list, days in a date. source and target: the texts, with plain spaces."""

    kind: str
    size: int
    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]


class Translation(NamedTuple):
    """The phrases of each part and the two vocabularies, which open with TRANSLATION_SPECIALS."""

    train: tuple[Phrase, ...]
    dev: tuple[Phrase, ...]
    test: tuple[Phrase, ...]
    source_vocab: Vocab
    target_vocab: Vocab


class Pairs(NamedTuple):
    """A batch. source (B, T_k): ends with </s>, filled up with <pad>. target_in (B, T_q): opens with <s>, filled up with
    <pad>. target_out (B, T_q): what should come next, ends with </s>, filled up with -100. All int64."""

    source: Tensor
    target_in: Tensor
    target_out: Tensor


def plain_spaces(text: str) -> str:
    """Locale data is typeset: thin (U+2009), narrow (U+202F) and unbreakable (U+00A0) spaces become ordinary ones."""
    return re.sub(r"\s+", " ", text).strip()


def word_tokens(text: str) -> tuple[str, ...]:
    """Words, single digits and single signs: "June 12, 2024" -> June 1 2 , 2 0 2 4. Case is kept."""
    return tuple(re.findall(r"[^\W\d_]+|\d|[^\w\s]", text))


def character_tokens(text: str) -> tuple[str, ...]:
    """Every character but spaces, which Chinese does without."""
    return tuple(c for c in text if not c.isspace())


TOKENS: dict[str, Callable[[str], tuple[str, ...]]] = {"zh": character_tokens, "fr": word_tokens}


@functools.cache
def _locale(language: str):  # type: ignore[no-untyped-def]
    from babel import Locale

    package_file("babel==2.19.0", "babel", f"locale-data/{language}.dat", LOCALE_SHA256[language])
    return Locale(language)


@functools.cache
def countries() -> tuple[str, ...]:
    """ISO codes of the countries and territories that have a name without a comma in all languages of the task."""
    named = [_locale(language).territories for language in LOCALE_SHA256]
    codes = [c for c in sorted(named[0]) if len(c) == 2 and c.isalpha() and c not in NOT_COUNTRIES]
    return tuple(c for c in codes if all(c in names and "," not in names[c] for names in named))


@functools.cache
def _known_codes() -> frozenset[str]:
    return frozenset(countries())


def list_phrase(codes: Sequence[str], language: str = "zh") -> Phrase:
    """The countries with these ISO codes in one enumeration: "Chad, Peru, and Iraq" -> 乍得、秘鲁和伊拉克."""
    from babel.lists import format_list

    if isinstance(codes, str) or not codes or not _known_codes().issuperset(codes):
        raise ValueError(f"codes must be a non-empty list from countries(), such as ['CN', 'FR']; got {codes!r}")

    def write(locale) -> str:  # type: ignore[no-untyped-def]
        return format_list([locale.territories[c] for c in codes], locale=locale)

    return _phrase("list", len(codes), write, language)


def date_phrase(kind: str, day: datetime.date, end: datetime.date | None = None, language: str = "zh") -> Phrase:
    """A date, with its weekday ("full"), without ("long"), with the month abbreviated ("medium"), or day to end ("interval")."""
    from babel.dates import format_date, format_interval

    if kind not in DATE_KINDS:
        raise ValueError(f"kind is one of {', '.join(DATE_KINDS)}, not {kind!r}")
    if (kind == "interval") != (end is not None) or (end is not None and end <= day):
        raise ValueError(f"an interval, and nothing else, has an end, and it is later than its start; got {day}, {end}")
    if end is None:
        return _phrase(kind, 1, lambda locale: format_date(day, kind, locale), language)
    return _phrase(kind, 2, lambda locale: format_interval(day, end, "yMMMEd", locale=locale), language)


def _phrase(kind: str, size: int, write, language: str) -> Phrase:  # type: ignore[no-untyped-def]
    if language not in TOKENS:
        raise ValueError(f"the phrases are translated to {' or '.join(TOKENS)}, not {language!r}")
    source, target = (plain_spaces(write(_locale(name))) for name in ("en", language))
    tokens = TOKENS[language](target)
    if language == "zh":
        target = "".join(tokens)  # a space around a dash in Chinese is typesetting
    return Phrase(kind, size, source, target, word_tokens(source), tokens)


def part_of(content: str) -> str:
    """The part a day ("2024-06-12") or a set of countries ("CN FR") belongs to, for good: 7 in 10 train, 1 dev, 2 test."""
    return _PARTS[zlib.crc32(content.encode()) % len(_PARTS)]


_PARTS = ("train",) * 7 + ("dev",) + ("test",) * 2


def _day(rng: np.random.Generator) -> datetime.date:
    return FIRST_DAY + datetime.timedelta(days=int(rng.integers(N_DAYS)))


def _date(rng: np.random.Generator, part: str, kind: str, language: str) -> Phrase:
    while True:
        day, reach = _day(rng), (20, 120, 600)[rng.integers(3)]  # to the same month, the same year, or beyond
        end = day + datetime.timedelta(days=int(rng.integers(1, reach))) if kind == "interval" else None
        if all(part_of(d.isoformat()) == part for d in (day, end or day)):
            return date_phrase(kind, day, end, language)


def _countries(rng: np.random.Generator, part: str, size: int, language: str) -> Phrase:
    while True:
        codes = rng.permutation(countries())[:size].tolist()
        if part_of(" ".join(sorted(codes))) == part:
            return list_phrase(codes, language)


def _draw(part: str, language: str) -> tuple[Phrase, ...]:
    """Half dates, half lists, shuffled; each kind of date and each length of list equally often."""
    rng = np.random.default_rng(("train", "dev", "test").index(part))
    half = SIZES[part] // 2
    single = [list_phrase([code], language) for code in countries() if part_of(code) == part]
    found = {phrase.source: phrase for phrase in single}  # there are no more of these
    n_lists, n_dates = -(-(half - len(single)) // (LONGEST_LIST - 1)), half // len(DATE_KINDS)
    makers = [(functools.partial(_countries, size=n), n_lists) for n in range(2, LONGEST_LIST + 1)]
    makers += [(functools.partial(_date, kind=kind), n_dates) for kind in DATE_KINDS]
    for make, share in progress(makers, f"writing {part} phrases", total=len(makers)):
        wanted = len(found) + share
        while len(found) < wanted:
            phrase = make(rng, part, language=language)
            found[phrase.source] = phrase
    phrases = list(found.values())
    return tuple(phrases[i] for i in rng.permutation(len(phrases)))[: SIZES[part]]


@functools.cache
def translations(language: str = "zh") -> Translation:
    """English phrases and their translations to Chinese ("zh") or French ("fr"): 24,000 to train on, 1,000 dev, 2,000 test.

    Always the same, in the same order: the first n of `train` are a smaller training set. No day and no set of countries
    occurs in two parts, in whatever order or pattern; single countries of dev and test occur in training lists.
    """
    if language not in TOKENS:
        raise ValueError(f"the phrases are translated to {' or '.join(TOKENS)}, not {language!r}")
    train, dev, test = (_draw(part, language) for part in SIZES)
    source_vocab, target_vocab = (
        Vocab.build((token for phrase in train for token in getattr(phrase, side)), specials=TRANSLATION_SPECIALS)
        for side in ("source_tokens", "target_tokens")
    )
    return Translation(train, dev, test, source_vocab, target_vocab)


def source_ids(phrases: Sequence[Phrase], vocab: Vocab) -> Tensor:
    """The English side of some phrases as (B, T) int64: each ends with </s> and is filled up with <pad>."""
    return _padded([[*vocab.encode(p.source_tokens), END_ID] for p in _checked(phrases)], PAD_ID)


def pairs(phrases: Sequence[Phrase], data: Translation) -> Pairs:
    """Some phrases as one batch of ids."""
    targets = [data.target_vocab.encode(p.target_tokens) for p in _checked(phrases)]
    return Pairs(
        source_ids(phrases, data.source_vocab),
        _padded([[START_ID, *ids] for ids in targets], PAD_ID),
        _padded([[*ids, END_ID] for ids in targets], IGNORED),
    )


def _checked(phrases: Sequence[Phrase]) -> Sequence[Phrase]:
    if isinstance(phrases, Phrase) or not len(phrases) or not all(isinstance(p, Phrase) for p in phrases):
        raise TypeError("phrases must be a non-empty list of Phrase: for one phrase write [phrase]")
    return phrases


def _padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    ids = torch.full((len(rows), max(map(len, rows))), fill)
    for row, values in zip(ids, rows):
        row[: len(values)] = torch.tensor(values)
    return ids


class PairBatches:
    """Shuffled batches for training; phrases of like length share a batch, and each pass has a new order, fixed by the seed."""

    def __init__(self, phrases: Sequence[Phrase], data: Translation, batch_size: int, seed: int = 0):
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        self.phrases, self.data, self.batch_size = list(_checked(phrases)), data, batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return -(-len(self.phrases) // self.batch_size)

    def __iter__(self) -> Iterator[Pairs]:
        noise = torch.rand(len(self.phrases), generator=self.generator).tolist()
        # Sorted by length with noise: little padding, and yet the neighbours are others in each pass.
        order = sorted(range(len(noise)), key=lambda i: len(self.phrases[i].target_tokens) + 4 * noise[i])
        starts = range(0, len(order), self.batch_size)
        for k in torch.randperm(len(starts), generator=self.generator).tolist():
            rows = order[starts[k] : starts[k] + self.batch_size]
            yield pairs([self.phrases[i] for i in rows], self.data)


def until_end(ids: Tensor, vocab: Vocab) -> list[tuple[str, ...]]:
    """Rows of generated ids (B, T) as tokens, each cut before its first </s>."""
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 2:
        raise TypeError("ids must be an int64 tensor (B, T)")
    return [tuple(vocab.decode(row[: row.index(END_ID)] if END_ID in row else row)) for row in ids.tolist()]


def exact_matches(hypotheses: Iterable[Sequence[str]], phrases: Sequence[Phrase]) -> np.ndarray:
    """Which translations (sequences of tokens) are the reference, to the last character: bool (N,)."""
    hypotheses = list(hypotheses)
    if any(isinstance(hypothesis, str) for hypothesis in hypotheses):
        raise TypeError("a translation is a sequence of tokens, not one string: compare what until_end returns")
    found = [tuple(hypothesis) for hypothesis in hypotheses]
    if len(found) != len(phrases):
        raise ValueError(f"{len(found)} translations for {len(phrases)} phrases")
    return np.array([ours == p.target_tokens for ours, p in zip(found, phrases)], dtype=bool)
