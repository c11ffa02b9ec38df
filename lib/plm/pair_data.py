"""Small tasks on pairs of texts, made from data that the book has: facts about countries, and sentences of film reviews.

Every part (train, dev, test) has countries, or reviews, of its own. Training examples come from reviews that the language
models of chapters 7, 10 and 11 never read (those behind the first five million words).
"""

import hashlib
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
# Three wordings of each kind of fact; {x} is the country, {y} what is said about it.
WORDINGS = {
    "capital": ("the capital of {x} is {y} .", "{y} is the capital of {x} .", "{x} is governed from {y} ."),
    "currency": ("people in {x} pay with the {y} .", "the money of {x} is the {y} .", "in {x} it costs one {y} ."),
    "language": ("in {x} they speak {y} .", "the language of {x} is {y} .", "{y} is spoken in {x} ."),
}


class Pair(NamedTuple):
    """Two texts and a class."""

    a: Sentence
    b: Sentence
    label: int


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


def fact_pairs(part: str, n: int, seed: int = 0) -> list[Pair]:
    """n pairs of a premise and a hypothesis, a third of each class, about countries of one part.

    ENTAILED: the same fact in another wording. CONTRADICTED: another capital (money, language) of the same country. NEUTRAL:
    another kind of fact about the country, or a fact of the same kind about another country.
    """
    _check(part, n)
    facts, rng = country_facts(), _rng("facts", part, seed)
    names = [name for name in facts if part_of(name) == part]
    pairs: list[Pair] = []
    while len(pairs) < n:
        label, x = len(pairs) % 3, names[rng.integers(len(names))]
        kind = str(rng.choice(list(facts[x])))
        others = [z for z in names if facts[z].get(kind, facts[x][kind]) != facts[x][kind]]
        other = others[rng.integers(len(others))]
        about, said = (x, kind), facts[x][kind]
        if label == CONTRADICTED:
            said = facts[other][kind]
        elif label == NEUTRAL:
            about = (other, kind) if rng.random() < 0.5 else (x, str(rng.choice([k for k in facts[x] if k != kind])))
            said = facts[about[0]][about[1]]
        first, second = rng.permutation(3)[:2]
        premise = WORDINGS[kind][first].format(x=x, y=facts[x][kind])
        hypothesis = WORDINGS[about[1]][second].format(x=about[0], y=said)
        pairs.append(Pair(premise.split(" "), hypothesis.split(" "), label))
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
