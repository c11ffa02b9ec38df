"""A task that word vectors cannot help with: have two neighbouring words of the
sentence changed places?

Command: python chapters/experiments/bert_order.py
Budget: about 15 minutes on one core; finished runs are kept, so an interrupted run
goes on.

Needs chapters/checkpoints/bert.safetensors. Writes chapters/results/
bert_order.json.

The Rotten Tomatoes sentences of the ladder, of at least six words; in half of them
two different neighbouring words, drawn at random, are swapped. The bag of words is
the same, so nothing that looks at words one by one can do better than a coin. Three
ways of starting, trained alike, as on the ladder (mean of the states, a linear
layer); the learning rate is chosen on dev with the first seed. "bigrams" is a
logistic regression on pairs of neighbouring words, on the same sentences.
"""

import argparse
import json
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from bert_ladder import (
    BATCH,
    LONGEST,
    Classifier,
    fine_tune,
    guesses,
    ours,
    scratch,
    vectors_only,
    with_dropout,
)
from bert_pretrain import CHAPTERS
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from plm.bert import Bert
from plm.bert_data import untokenise
from plm.data import reviews
from plm.evaluate import accuracy
from plm.files import read_json, write_atomically

RESULT = CHAPTERS / "results" / "bert_order.json"
COMMAND = "python chapters/experiments/bert_order.py"
LABELS, PASSES, RATES, SEEDS = 1000, 6, (3e-4, 1e-3), range(3)
PENALTIES = (0.01, 0.1, 1.0, 10.0)  # C of scikit-learn
STARTS: dict[str, Callable[[], Bert]] = {
    "scratch": scratch,
    "vectors only": vectors_only,
    "pretrained": lambda: with_dropout(ours()[0]),
}


@cache
def sentences(part: str) -> tuple[list[str], Tensor]:
    """Sentences, and whether two neighbours have been swapped (1) or not (0)."""
    rng = np.random.default_rng([0, *part.encode()])
    texts, swapped = [], []
    for review in reviews(f"rt_{part}"):
        words = review.text.split()
        places = [
            i
            for i in range(len(words) - 1)
            if words[i].isalpha() and words[i + 1].isalpha()
            if words[i] != words[i + 1]
        ]
        if len(words) < 6 or not places:
            continue
        i, swap = int(rng.choice(places)), int(rng.integers(2))
        if swap:
            words[i], words[i + 1] = words[i + 1], words[i]
        texts.append(untokenise(" ".join(words)))
        swapped.append(swap)
    return texts, torch.tensor(swapped)


def part_of(seed: int) -> slice:
    """Labelled sentences of their own for each seed."""
    return slice(seed * LABELS, (seed + 1) * LABELS)


@cache
def ids(part: str) -> list[list[int]]:
    encode = ours()[1].encode
    return [encode(text, max_len=LONGEST).ids for text in sentences(part)[0]]


def run(how: str, seed: int, lr: float) -> dict[str, float]:
    """Fine-tune; accuracy on dev and test."""
    torch.manual_seed(seed)
    model = Classifier(STARTS[how]())
    chosen, y = part_of(seed), sentences("train")[1]
    fine_tune(model, ids("train")[chosen], y[chosen], lr, PASSES)
    return {
        part: accuracy(guesses(model, ids(part)), sentences(part)[1])
        for part in ("dev", "test")
    }


def bigrams(seed: int) -> dict[str, float]:
    """The best penalty on dev."""
    chosen = part_of(seed)
    texts, y = sentences("train")
    count = CountVectorizer(ngram_range=(2, 2), token_pattern=r"\S+", binary=True)
    x = count.fit_transform(texts[chosen])
    tried = []
    for C in PENALTIES:
        model = LogisticRegression(C=C, max_iter=1000).fit(x, y[chosen].numpy())
        tried.append(
            {
                part: model.score(count.transform(texts_of), y_of.numpy())
                for part in ("dev", "test")
                for texts_of, y_of in [sentences(part)]
            }
        )
    return max(tried, key=lambda scores: scores["dev"])


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    torch.set_num_threads(1)
    fixed = {"command": COMMAND, "labels": LABELS, "passes": PASSES}
    fixed |= {"batch": BATCH, "rates": RATES}
    fixed["test"] = len(sentences("test")[0])
    stored = read_json(RESULT) if RESULT.exists() else {**fixed, "runs": {}}

    def once(name: str, make: Callable[[], dict[str, float]]) -> float:
        if name not in stored["runs"]:
            found = {part: round(value, 4) for part, value in make().items()}
            stored["runs"][name] = found
            write_atomically(RESULT, json.dumps(stored, indent=1) + "\n")
            print(name, found, flush=True)
        return stored["runs"][name]["dev"]

    def trained(how: str, seed: int, lr: float) -> float:
        name = f"{how}, seed {seed}, lr {lr}"
        return once(name, lambda: run(how, seed, lr))

    for seed in SEEDS:
        once(f"bigrams, seed {seed}", lambda seed=seed: bigrams(seed))
    for how in ("pretrained", "vectors only", "scratch"):
        lr = max(RATES, key=lambda rate: trained(how, SEEDS[0], rate))
        for seed in SEEDS[1:]:
            trained(how, seed, lr)


if __name__ == "__main__":
    main()
