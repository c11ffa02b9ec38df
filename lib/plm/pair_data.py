"""Small tasks on pairs of texts, made from data that the book has: facts about countries, and sentences of film reviews.

Every part (train, dev, test) has countries, or reviews, of its own. Training examples come from reviews that the language
models of chapters 7, 10 and 11 never read (those behind the first five million words).
"""

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from plm.data import review_sentences
from plm.tokenize import words
from plm.word_evaluation import analogy_questions

PARTS = ("train", "dev", "test")
ENTAILED, CONTRADICTED, NEUTRAL = range(3)
Sentence = list[str]
PRETRAINING_WORDS = 5_000_000
Wordings = dict[str, tuple[str, ...]]
# Each kind of fact in several wordings; {x} is the country, {y} what is said about it. The last of each is held out by
# plm.fact_data; the pairs of chapter 10 are in the first three.
STATEMENTS: dict[str, Wordings] = {
    "en": {
        "capital": (
            "the capital of {x} is {y}.",
            "{y} is the capital of {x}.",
            "{x} is governed from {y}.",
            "the parliament of {x} sits in {y}.",
            "as its seat of government {x} has chosen {y}.",
        ),
        "currency": (
            "people in {x} pay with the {y}.",
            "the money of {x} is the {y}.",
            "in {x} it costs one {y}.",
            "the currency of {x} is called {y}.",
            "whoever shops in {x} needs the {y}.",
        ),
        "language": (
            "in {x} they speak {y}.",
            "the language of {x} is {y}.",
            "{y} is spoken in {x}.",
            "the laws of {x} are written in {y}.",
            "children in {x} learn to read in {y}.",
        ),
    },
    "zh": {
        "currency": ("{x}的货币是{y}。", "在{x}用{y}付钱。", "{y}是{x}的货币。", "去{x}买东西要用{y}。"),
        "language": ("{x}的官方语言是{y}。", "在{x}人们说{y}。", "{y}是{x}的语言。", "{x}的孩子在学校学{y}。"),
    },
}
WORDINGS: Wordings = {  # as runs of words: the full stop is one
    kind: tuple(f"{wording.removesuffix('.')} ." for wording in several[:3])
    for kind, several in STATEMENTS["en"].items()
}


class Pair(NamedTuple):
    """Two texts and a class."""

    a: Sentence
    b: Sentence
    label: int


class Fact(NamedTuple):
    """What is said of a country: its capital, its money or its language."""

    kind: str
    x: str
    y: str

    def put(self, wording: str) -> str:
        """The sentence in one of the wordings of its kind."""
        return wording.format(x=self.x, y=self.y)


class Choice(NamedTuple):
    """A text, four that may follow it, and the number of the one that does."""

    context: Sentence
    answers: list[Sentence]
    label: int


@cache
def country_facts() -> dict[str, dict[str, str]]:
    """country -> {kind: what is said}: capitals from questions-words.txt (gensim), money and languages from Babel."""
    from babel import Locale
    from babel.languages import get_official_languages
    from babel.numbers import get_territory_currencies

    english = Locale("en")
    capitals = {q[3]: q[2] for name, qs in analogy_questions().items() if name.startswith("capital") for q in qs}
    capitals |= {q[1]: q[0] for name, qs in analogy_questions().items() if name.startswith("capital") for q in qs}
    facts: dict[str, dict[str, str]] = {}
    for code in sorted(english.territories):
        name = " ".join(words(english.territories[code]))
        found = {"capital": capitals[name]} if name in capitals else {}
        if len(code) == 2 and (money := get_territory_currencies(code)):
            found["currency"] = words(english.currencies.get(money[0], ""))[-1]  # "swiss franc": franc
        if len(code) == 2 and (spoken := get_official_languages(code)):
            found["language"] = " ".join(words(english.languages.get(spoken[0], spoken[0])))
        if len(code) == 2 and len(found) >= 2:
            facts[name] = found
    return facts


def part_of(name: str) -> str:
    """The part a country belongs to, by its name alone: seven in ten train, one dev, two test."""
    digit = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10
    return "train" if digit < 7 else "dev" if digit == 7 else "test"


def draw_facts(
    known: Mapping[str, Mapping[str, str]], names: list[str], rng: np.random.Generator
) -> Iterator[tuple[Fact, Fact, int]]:
    """Without end: a fact about one of the countries, a second statement, and the class of the two; classes take turns.

    ENTAILED: the same fact. CONTRADICTED: another capital (money, language) of the same country. NEUTRAL: another kind of fact
    about the country, or a fact of the same kind about another country. The numbers that choose the wordings are drawn by the
    caller, from the same `rng`, between one pair and the next.
    """
    for label in itertools.cycle((ENTAILED, CONTRADICTED, NEUTRAL)):
        x = names[rng.integers(len(names))]
        kind = str(rng.choice(list(known[x])))
        others = [z for z in names if known[z].get(kind, known[x][kind]) != known[x][kind]]
        other = others[rng.integers(len(others))]
        second = first = Fact(kind, x, known[x][kind])
        if label == CONTRADICTED:
            second = Fact(kind, x, known[other][kind])
        elif label == NEUTRAL:
            rest = [k for k in known[x] if k != kind]
            name, about = (other, kind) if rng.random() < 0.5 else (x, str(rng.choice(rest)))
            second = Fact(about, name, known[name][about])
        yield first, second, label


def fact_pairs(part: str, n: int, seed: int = 0) -> list[Pair]:
    """n pairs of a premise and a hypothesis, a third of each class of `draw_facts`, about countries of one part.

    The two are in different wordings. Of each kind one fact is taken for the only one: that Belgians also speak French would
    count as a contradiction of their speaking Dutch.
    """
    _check(part, n)
    facts, rng = country_facts(), _rng("facts", part, seed)
    names = [name for name in facts if part_of(name) == part]
    pairs: list[Pair] = []
    for first, second, label in itertools.islice(draw_facts(facts, names, rng), n):
        i, j = rng.permutation(3)[:2]
        a, b = first.put(WORDINGS[first.kind][i]), second.put(WORDINGS[second.kind][j])
        pairs.append(Pair(a.split(" "), b.split(" "), label))
    return [pairs[i] for i in rng.permutation(n)]


def film_pairs(part: str, n: int, seed: int = 0) -> list[Pair]:
    """n pairs of sentences, half of them (label 1) from one review: are these two about the same film?"""
    _check(part, n)
    reviews, rng = _reviews(part), _rng("films", part, seed)
    pairs: list[Pair] = []
    while len(pairs) < n:
        label, (i, j) = len(pairs) % 2, rng.choice(len(reviews), 2, replace=False)
        one, other = reviews[i], reviews[i if len(pairs) % 2 else j]
        a, b = rng.integers(len(one)), rng.integers(len(other))
        if label == 0 or a != b:
            pairs.append(Pair(one[a], other[b], label))
    return [pairs[k] for k in rng.permutation(n)]


def next_sentence_choices(part: str, n: int, n_answers: int = 4, seed: int = 0) -> list[Choice]:
    """n times a sentence of a review and `n_answers` that may follow: the next one, and others from other reviews."""
    _check(part, n)
    if n_answers < 2:
        raise ValueError(f"there must be at least two answers, not {n_answers}")
    reviews, rng = _reviews(part), _rng("next", part, seed)
    choices: list[Choice] = []
    while len(choices) < n:
        rows = rng.choice(len(reviews), n_answers, replace=False)
        here = reviews[rows[0]]
        t = rng.integers(len(here) - 1)
        answers = [here[t + 1], *(reviews[r][rng.integers(len(reviews[r]))] for r in rows[1:])]
        label = int(rng.integers(n_answers))
        answers[0], answers[label] = answers[label], answers[0]
        choices.append(Choice(here[t], answers, label))
    return choices


@cache
def _reviews(part: str) -> list[list[Sentence]]:
    """Reviews as runs of sentences of 6 to 30 words (neighbours here were neighbours there); at least two each."""
    documents = review_sentences(f"imdb_{part}")
    if part == "train":
        sizes = np.cumsum([sum(map(len, d)) for d in documents])
        documents = documents[int(np.searchsorted(sizes, PRETRAINING_WORDS)) + 1 :]
    runs = []
    for document in documents:
        run: list[Sentence] = []
        for sentence in document:
            if 6 <= len(sentence) <= 30:
                run.append(sentence)
            elif len(run) < 2:
                run = []
            else:
                break
        if len(run) >= 2:
            runs.append(run)
    return runs


def _rng(name: str, part: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, *name.encode(), *part.encode()])


def _check(part: str, n: int) -> None:
    if part not in PARTS:
        raise ValueError(f"part is one of {', '.join(PARTS)}, not {part!r}")
    if n < 1:
        raise ValueError(f"asked for {n} examples; there must be at least one")
