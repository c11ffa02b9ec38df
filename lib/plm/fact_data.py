"""Facts about countries as questions with an answer in the text, and as pairs of statements; news with people's similarity.

A country belongs to one part (`plm.pair_data.part_of`), and of each kind of statement and question the last wording is held out:
so one can ask how a model does on countries it never met, in words it has met, and in words it has not.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from plm.data import GENSIM, package_file
from plm.pair_data import PARTS, STATEMENTS, Wordings, country_facts, draw_facts, part_of
from plm.question_answering import Answer, Question

LANGUAGES = ("en", "zh")
LEE = {  # 50 news texts and how alike people find each two (Lee, Pincombe and Welsh 2005), in gensim's test data
    "lee.cor": "a878f9a58f6743c32985c56c2f2f75988386216b38a4023a01fd3bcf7884d93e",
    "similarities0-1.txt": "23762bc6b728897144dda3d324a2c032dc1e059e1009806226d64b6dd123ed79",
}
LEE_PARTS = {"train": range(30), "dev": range(30, 38), "test": range(38, 50)}  # by text: a pair has both in one part
QUESTIONS: dict[str, Wordings] = {
    "en": {
        "capital": ("what is the capital of {x}?", "which city is the capital of {x}?", "from where is {x} governed?"),
        "currency": ("what is the currency of {x}?", "which money is used in {x}?", "how does one pay in {x}?"),
        "language": (
            "what is the language of {x}?",
            "which language is spoken in {x}?",
            "what do people in {x} speak?",
        ),
    },
    "zh": {
        "currency": ("{x}的货币是什么？", "{x}用什么货币？", "在{x}用什么付钱？"),
        "language": ("{x}的语言是什么？", "{x}说什么语言？", "{x}人讲什么话？"),
    },
}


class TextPair(NamedTuple):
    """Two texts, and a class or how alike people find them (0 … 1)."""

    a: str
    b: str
    label: float


@functools.cache
def facts(language: str) -> dict[str, dict[str, str]]:
    """country -> {kind: what is said}, in English (with capitals) or Chinese; English names choose the part in both."""
    if language not in LANGUAGES:
        raise ValueError(f"language is one of {', '.join(LANGUAGES)}, not {language!r}")
    return country_facts() if language == "en" else {name: found for name, (_, found) in _chinese().items()}


@functools.cache
def _chinese() -> dict[str, tuple[str, dict[str, str]]]:
    """Chinese name -> (English name, facts); countries with one name or one fact only are left out."""
    from babel import Locale
    from babel.languages import get_official_languages
    from babel.numbers import get_territory_currencies

    chinese, english = Locale("zh"), Locale("en")
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for code in sorted(chinese.territories):
        money = get_territory_currencies(code) if len(code) == 2 else []
        spoken = get_official_languages(code) if len(code) == 2 else ()
        if money and spoken and money[0] in chinese.currencies and spoken[0] in chinese.languages:
            said = {"currency": chinese.currencies[money[0]], "language": chinese.languages[spoken[0]]}
            found[chinese.territories[code]] = english.territories[code].lower(), said
    return found


def countries(language: str, part: str) -> list[str]:
    """The names of a part's countries in a language; a country is in the same part in both."""
    if part not in PARTS:
        raise ValueError(f"part is one of {', '.join(PARTS)}, not {part!r}")
    key = (lambda name: _chinese()[name][0]) if language == "zh" else str
    return [name for name in facts(language) if part_of(_plain(key(name))) == part]


def _plain(name: str) -> str:
    """The English name as `country_facts` writes it."""
    from plm.tokenize import words

    return " ".join(words(name))


def wording(options: Sequence[str], unseen: bool, rng: np.random.Generator) -> str:
    """The held-out wording (the last), or one of the others."""
    return options[-1] if unseen else options[int(rng.integers(len(options) - 1))]


def fact_questions(
    part: str, n: int, language: str = "en", unseen: bool = False, impossible: float = 0.0, size: int = 3, seed: int = 0
) -> list[Question]:
    """n questions about texts of `size` countries, all facts of each in any order.

    unseen: text and question in the wordings that training never uses. impossible: the share of questions whose fact the text
    leaves out while it says the like of other countries.
    """
    names, known = countries(language, part), facts(language)
    if n < 1 or not 0 <= impossible <= 1 or not 2 <= size <= len(names):
        raise ValueError(
            f"need n at least 1, impossible in 0 … 1, size in 2 … {len(names)}; got {n}, {impossible}, {size}"
        )
    rng = np.random.default_rng([seed, *f"questions {part} {language} {unseen}".encode()])
    found, states, asks = list[Question](), STATEMENTS[language], QUESTIONS[language]
    while len(found) < n:
        here = [names[i] for i in rng.choice(len(names), size, replace=False)]
        kind = str(rng.choice(list(known[here[0]])))
        told = [(x, k) for x in here for k in known[x]]
        no_answer = rng.random() < impossible
        told = [told[i] for i in rng.permutation(len(told)) if not (no_answer and told[i] == (here[0], kind))]
        context, place = "", 0
        for x, k in told:
            template = wording(states[k], unseen, rng)
            if (x, k) == (here[0], kind):
                place = len(context) + len(template.split("{y}")[0].format(x=x))
            context += template.format(x=x, y=known[x][k]) + (" " if language == "en" else "")
        answers = () if no_answer else (Answer(known[here[0]][kind], place),)
        asked = wording(asks[kind], unseen, rng).format(x=here[0])
        found.append(Question(f"{language}-{part}-{len(found)}", asked, context.strip(), answers))
    return found


def statement_pairs(part: str, n: int, language: str = "en", unseen: bool = False, seed: int = 0) -> list[TextPair]:
    """n pairs of a premise and a hypothesis, a third of each class of `plm.pair_data`: what `fact_pairs` makes, as texts.

    unseen: the hypothesis, or the premise, is in the wording that training never uses.
    """
    names, known, states = countries(language, part), facts(language), STATEMENTS[language]
    if n < 1:
        raise ValueError(f"asked for {n} pairs; there must be at least one")
    rng = np.random.default_rng([seed, *f"pairs {part} {language} {unseen}".encode()])
    found: list[TextPair] = []
    for first, second, label in itertools.islice(draw_facts(known, names, rng), n):
        # Two different wordings, so that no pair is told by its being the same sentence twice.
        i, j = (int(k) for k in rng.permutation(len(states[first.kind]) - 1)[:2])
        if unseen:
            i, j = (-1, j) if rng.random() < 0.5 else (i, -1)
        a, b = first.put(states[first.kind][i]), second.put(states[second.kind][j])
        found.append(TextPair(a, b, label))
    return [found[i] for i in rng.permutation(n)]


@functools.cache
def _lee() -> tuple[list[str], list[list[float]]]:
    paths = [package_file(GENSIM, "gensim", f"test/test_data/{name}", sha) for name, sha in LEE.items()]
    texts = paths[0].read_text(encoding="cp1252").splitlines()
    rows = [[float(x) for x in line.split()] for line in paths[1].read_text(encoding="utf-8").splitlines()]
    return texts, rows


def news_pairs(part: str) -> list[TextPair]:
    """Every two different news texts of a part, and how alike people find them, 0 … 1. Each two once, in one order."""
    if part not in PARTS:
        raise ValueError(f"part is one of {', '.join(PARTS)}, not {part!r}")
    texts, rows = _lee()
    here = LEE_PARTS[part]
    return [TextPair(texts[i], texts[j], rows[i][j]) for i in here for j in here if i < j]
