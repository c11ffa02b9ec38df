"""What chapter 12 measures: each task's data, its head, and how the head is judged.
Used by downstream.py and downstream_panel.py.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from plm.bert import Bert
from plm.chinese import chinese_reviews, news
from plm.downstream import confusion, tag_scores, text_example, text_scores
from plm.entities import entity_f1, from_iobes, labels_of, to_iobes
from plm.error_kinds import answer_error, name_errors, pair_kind
from plm.fact_data import fact_questions, news_pairs, statement_pairs
from plm.heads import Example, Head
from plm.hub import minilm
from plm.model_files import load_bert
from plm.panel import HeadKind
from plm.question_answering import answer, span_examples, squad_scores
from plm.scrambled import judged_clauses
from plm.tagging import TaggedWords, tag, tag_examples
from plm.word_evaluation import spearman
from plm.wordpiece import WordPiece

CHAPTERS = Path(__file__).parents[1]
CHECKPOINTS = CHAPTERS / "checkpoints"
NAMES_OF = ("PER", "LOC", "ORG")
NAMES = tuple(labels_of(NAMES_OF))
RELATIONS = ("follows", "contradicts", "neutral")
N_COUNTRIES = 2  # in the text of a question
N_SHOWN = 12  # errors kept to be read
Scores = dict[str, object]


class Task(NamedTuple):
    """One task; examples and scores need a tokenizer and a longest input."""

    kind: HeadKind
    longest: int
    data: Callable[[str, int, int], list]  # part, number, seed
    examples: Callable[[WordPiece, list, int], list[Example]]
    measure: Callable[..., Scores]  # head, tokenizer, data, longest
    key: str  # what a learning rate is chosen by, on the dev part
    new_words: bool = False  # is there a test part in unseen wordings?


@cache
def encoder(name: str) -> tuple[Bert, WordPiece]:
    """An encoder and its tokenizer: "ours", "zh" or "minilm"."""
    if name == "minilm":
        return minilm()
    file = {"ours": "bert.safetensors", "zh": "bert_zh.safetensors"}[name]
    model, tokenizer, _ = load_bert(CHECKPOINTS / file)
    return model.bert, tokenizer


def split(part: str) -> tuple[str, bool]:
    """ "test, new words" is the part "test" in wordings unseen in training."""
    name, _, new = part.partition(", ")
    return name, new == "new words"


def some(rows: list, n: int, seed: int) -> list:
    """n of the rows, or all, drawn without doubles."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(rows), generator=generator)
    return [rows[i] for i in order[:n].tolist()]


# --- texts and pairs ----------------------------------------------------


def statements(language: str) -> Callable[[str, int, int], list]:
    """Pairs of statements about countries."""

    def drawn(part: str, n: int, seed: int) -> list:
        name, new = split(part)
        return statement_pairs(name, n, language, unseen=new, seed=seed)

    return drawn


def texts(tokenizer: WordPiece, data: list, longest: int) -> list[Example]:
    """Examples of pairs, or of single texts."""
    pairs = [(r.a, r.b) if hasattr(r, "b") else (r.text, None) for r in data]
    return [
        text_example(tokenizer, a, b, row.label, longest)
        for (a, b), row in zip(pairs, data, strict=True)
    ]


def review_kind(row) -> str:
    """What may make a review hard."""
    if re.search("但|不过|可是|就是|只是|虽然|除了", row.text):
        return "praise and blame"
    return "short" if len(row.text) < 15 else "neither"


def classes(kind_of: Callable | None = None) -> Callable[..., Scores]:
    """Accuracy, confusion, and the errors by kind."""

    def measured(head: Head, tokenizer: WordPiece, data: list, longest: int):
        wanted = [int(row.label) for row in data]
        p = text_scores(head, texts(tokenizer, data, longest)).softmax(1)
        found = p.argmax(1).tolist()
        wrong = [i for i, (a, b) in enumerate(zip(wanted, found)) if a != b]
        kinds = Counter(kind_of(row) for row in data) if kind_of else {}
        missed = Counter(kind_of(data[i]) for i in wrong) if kind_of else {}
        shown = sorted(wrong, key=lambda i: -float(p[i].max()))[:N_SHOWN]
        return {
            "accuracy": 1 - len(wrong) / len(data),
            "confusion": confusion(wanted, found, p.shape[1]).tolist(),
            "kinds": {kind: [missed[kind], n] for kind, n in kinds.items()},
            "errors": [
                {
                    "text": [data[i].a, data[i].b]
                    if hasattr(data[i], "b")
                    else [data[i].text[:80]],
                    "wanted": wanted[i],
                    "p": [round(x, 3) for x in p[i].tolist()],
                }
                for i in shown
            ],
        }

    return measured


def alike(head: Head, tokenizer: WordPiece, data: list, longest: int) -> Scores:
    """Rank correlation with people's ratings, and the worst judged pairs."""
    found = text_scores(head, texts(tokenizer, data, longest))[:, 0].tolist()
    wanted = [pair.label for pair in data]
    ranks = [torch.tensor(x).argsort().argsort() for x in (wanted, found)]
    worst = (ranks[0] - ranks[1]).abs().argsort(descending=True)[:N_SHOWN]
    errors = [
        {
            "text": [data[i].a[:120], data[i].b[:120]],
            "wanted": round(wanted[i], 3),
            "found": round(found[i], 3),
        }
        for i in worst.tolist()
    ]
    return {"spearman": spearman(found, wanted), "errors": errors}


# --- answers and names --------------------------------------------------


def questions(language: str) -> Callable[[str, int, int], list]:
    """Questions about two countries; a fifth has no answer in its text."""

    def drawn(part: str, n: int, seed: int) -> list:
        name, new = split(part)
        asked = {"impossible": 0.2, "size": N_COUNTRIES, "seed": seed}
        return fact_questions(name, n, language, new, **asked)

    return drawn


def read_questions(tokenizer: WordPiece, data: list, longest: int) -> list[Example]:
    """Examples of windows."""
    return span_examples(tokenizer, data, longest, longest // 3)


def answered(language: str) -> Callable[..., Scores]:
    """Exact match and F1 over all; exact match where there is an answer and where
    there is none; errors by kind."""

    def measured(head: Head, tokenizer: WordPiece, data: list, longest: int):
        found = answer(head, tokenizer, data, longest, longest // 3, threshold=0.0)
        both = [f.text for f in found]
        scores = squad_scores(data, both, characters=language == "zh")
        wrong = [answer_error(q, f, language) for q, f in zip(data, found)]
        there = [w is None for w, q in zip(wrong, data) if q.answers]
        none = [w is None for w, q in zip(wrong, data) if not q.answers]
        shown = [i for i, kind in enumerate(wrong) if kind][:N_SHOWN]
        return scores | {
            "exact, answer there": sum(there) / max(1, len(there)),
            "exact, none there": sum(none) / max(1, len(none)),
            "kinds": dict(Counter(kind for kind in wrong if kind)),
            "errors": [
                {
                    "question": data[i].text,
                    "text": data[i].context,
                    "wanted": [a.text for a in data[i].answers],
                    "found": both[i],
                    "kind": wrong[i],
                }
                for i in shown
            ],
        }

    return measured


def sentences(part: str, n: int, seed: int) -> list[TaggedWords]:
    """Sentences of the newspaper, characters as words."""
    found = [s for a in news(part) for s in a.sentences if 4 <= len(s.text) <= 80]
    return [
        TaggedWords(list(s.text), to_iobes(len(s.text), s.entities))
        for s in some(found, n, seed)
    ]


def read_names(tokenizer: WordPiece, data: list, longest: int) -> list[Example]:
    """Examples of tags."""
    return [e for s in data for e in tag_examples(tokenizer, s, NAMES, longest)]


def names(head: Head, tokenizer: WordPiece, data: list, longest: int) -> Scores:
    """Strict scores, with and without constrained labels, by type; errors by kind.
    The key is the F1 of persons and places: organisations are under-labelled."""
    gold = [from_iobes(s.labels) for s in data]
    words, scores = [s.words for s in data], {}
    for name, constrained in (("best labels", False), ("best path", True)):
        tags = tag(head, tokenizer, words, NAMES, longest, constrained)
        found = [from_iobes(labels) for labels in tags]
        kept = [
            [[s for s in spans if s[2] != "ORG"] for spans in side]
            for side in (gold, found)
        ]
        by_type = {kind: entity_f1(gold, found, kind).f1 for kind in NAMES_OF}
        wrong = tag_scores([s.labels for s in data], tags)[1]
        f1 = entity_f1(*kept).f1
        scores[name] = {"f1": f1, "by type": by_type, "invalid labels": wrong}
    faults = [
        (s, e) for s, a, b in zip(data, gold, found) for e in name_errors(a, b)
    ]
    table = Counter((a, b) for s, t in zip(data, tags) for a, b in zip(s.labels, t))
    return scores | {
        "f1": scores["best labels"]["f1"],
        "kinds": dict(Counter(e.kind for _, e in faults)),
        "confusion": [[table[a, b] for b in NAMES] for a in NAMES],
        "errors": [
            {"text": "".join(s.words)[:60], **e._asdict()}
            for s, e in faults[:N_SHOWN]
        ],
    }


TASKS = {
    "pairs": Task(
        HeadKind("text", RELATIONS),
        64,
        statements("en"),
        texts,
        classes(pair_kind),
        "accuracy",
        True,
    ),
    "news": Task(
        HeadKind("text", ("rating",), "mean"),
        64,
        lambda part, n, seed: some(news_pairs(part), n, seed),
        texts,
        alike,
        "spearman",
    ),
    "questions": Task(
        HeadKind("span"),
        128,
        questions("en"),
        read_questions,
        answered("en"),
        "exact",
        True,
    ),
    "Chinese pairs": Task(
        HeadKind("text", RELATIONS),
        64,
        statements("zh"),
        texts,
        classes(lambda pair: pair_kind(pair, "zh")),
        "accuracy",
        True,
    ),
    "Chinese order": Task(
        HeadKind("text", ("in disorder", "a sentence"), "mean"),
        32,
        judged_clauses,
        texts,
        classes(),
        "accuracy",
    ),
    "Chinese reviews": Task(
        HeadKind("text", ("negative", "positive"), "mean"),
        64,
        lambda part, n, seed: some(list(chinese_reviews(part)), n, seed),
        texts,
        classes(review_kind),
        "accuracy",
    ),
    "Chinese questions": Task(
        HeadKind("span"),
        128,
        questions("zh"),
        read_questions,
        answered("zh"),
        "exact",
        True,
    ),
    "Chinese names": Task(
        HeadKind("tag", NAMES), 96, sentences, read_names, names, "f1"
    ),
}
