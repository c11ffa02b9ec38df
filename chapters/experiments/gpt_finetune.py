"""Chapter 10: fine-tune the pretrained GPT, against the same network from scratch,
with and without the auxiliary loss of the language model.

Command: python chapters/experiments/gpt_finetune.py
Budget: about 50 minutes on one core; finished runs are kept, so an interrupted
run goes on. Parts: --only frozen, ladder or tasks.

Needs chapters/checkpoints/gpt.safetensors. Writes rungs into results/ladder.json
and the rest into results/gpt_finetune.json.

The ladder. Fine-tuned: <s> sentence <extract>, one linear layer on the last
state. Learning rate chosen on the dev part, three seeds; the networks from scratch
get twice the passes and rates of their own. Frozen: mean of the last layer's
states, a logistic regression, ten seeds; its control has random weights.

The other three formats of the paper, equal passes for both starts. Entailment:
facts about countries, of which none is in two parts. Similarity: are two sentences
from reviews of the same film? Multiple choice: which of four sentences comes next
in the review? Beside them a baseline that counts shared words, and what the
language model says without any fine-tuning.
"""

import argparse
import copy
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import torch
from ladder_vectors import labels, texts
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from plm.evaluate import Climb, Rung, accuracy, add_rung, climb
from plm.files import cache_dir, read_json, write_atomically
from plm.gpt import GPT
from plm.gpt_tasks import (
    Example,
    GPTForTask,
    classification,
    entailment,
    fine_tune,
    multiple_choice,
    predict,
    similarity,
)
from plm.gpt_text import sentence_text
from plm.model_files import load_gpt
from plm.pair_data import fact_pairs, film_pairs, next_sentence_choices

CHAPTERS = Path(__file__).resolve().parents[1]
RESULTS = CHAPTERS / "results"
CHECKPOINT = CHAPTERS / "checkpoints" / "gpt.safetensors"
COMMAND = "python chapters/experiments/gpt_finetune.py"
RUNS = cache_dir() / "runs"
PASSES = {100: 12, 500: 6, 2000: 3}
RATES = {"scratch": (7e-4, 2e-3), "trained": (3e-4, 1e-3)}
ARMS = {  # name: (start, lambda)
    "scratch": ("scratch", 0.0),
    "fine-tuned, λ = 0": ("trained", 0.0),
    "fine-tuned, λ = 0.5": ("trained", 0.5),
}
LADDER_SEEDS = range(3)
TASKS = {  # name: (n of train, dev, test; classes; passes)
    "facts": (6000, 300, 900, 3, 8),
    "films": (3000, 300, 1000, 2, 3),
    "next": (3000, 200, 600, None, 3),
}
TASK_RATES = {"scratch": (1e-3,), "trained": (3e-4, 1e-3)}
TASK_SEEDS = range(1)


@cache
def start(kind: str) -> GPT:
    """The pretrained model, or one of its sizes with random weights."""
    trained, _, _ = load_gpt(CHECKPOINT)
    if kind == "trained":
        return trained
    torch.manual_seed(0)
    return GPT(trained.config)


@cache
def tokenizer():
    return load_gpt(CHECKPOINT)[1]


def network(kind: str, n_classes: int | None, seed: int) -> GPTForTask:
    torch.manual_seed(seed)
    gpt = copy.deepcopy(start("trained"))
    if kind == "scratch":
        gpt.reset_parameters()
    return GPTForTask(gpt, n_classes)


# --- the ladder ---------------------------------------------------------


@cache
def sentences(part: str) -> list[Example]:
    longest, t = start("trained").config.n_positions, tokenizer()
    y = labels(part).tolist()
    return [
        classification(t, s, label, longest) for s, label in zip(texts(part), y)
    ]


def run_tuned(arm: str, rows: Tensor, seed: int) -> dict:
    kind, lm_weight = ARMS[arm]
    train = [sentences("train")[i] for i in rows.tolist()]
    passes = PASSES[len(rows)] * (2 if kind == "scratch" else 1)
    scores = {}
    for lr in RATES[kind]:
        model = network(kind, 2, seed)
        fine_tune(model, train, passes, lr, lm_weight=lm_weight, seed=seed)
        scores[(("lr", lr), ("passes", passes))] = tuple(
            accuracy(predict(model, sentences(part)), labels(part))
            for part in ("dev", "test")
        )
    print(arm, len(rows), seed, scores, flush=True)
    return scores


@cache
def means(kind: str, part: str) -> np.ndarray:
    """The mean over each sentence's tokens of the last layer's states, (N, d)."""
    found = []
    with torch.no_grad():
        for example in sentences(part):
            ids = torch.tensor(example.sequences)
            found.append(start(kind).hidden(ids)[0, 1:-1].mean(0))
    return torch.stack(found).numpy()


def run_frozen(kind: str, rows: Tensor) -> dict:
    scores, centre = {}, means(kind, "train").mean(0)
    scale = means(kind, "train").std(0) + 1e-6
    x = {p: (means(kind, p) - centre) / scale for p in ("train", "dev", "test")}
    for C in (1e-4, 1e-3, 1e-2, 0.1):
        model = LogisticRegression(C=C, max_iter=1000)
        model.fit(x["train"][rows], labels("train")[rows])
        scores[(("C", C),)] = tuple(
            model.score(x[part], labels(part)) for part in ("dev", "test")
        )
    return scores


def rung(name: str, way: str, model: str, found: Climb) -> None:
    add_rung(RESULTS / "ladder.json", Rung(name, 10, way, model, COMMAND, found))
    shown = {n: round(float(np.mean(a)), 3) for n, a in found.accuracy.items()}
    print(name, shown, found.settings, flush=True)


# --- the other three formats ----------------------------------------------


@cache
def task(name: str, part: str) -> list[Example]:
    n = TASKS[name][("train", "dev", "test").index(part)]
    longest, t = start("trained").config.n_positions, tokenizer()
    if name == "facts":
        return [entailment(t, *pair, longest) for pair in fact_pairs(part, n)]
    if name == "films":
        return [similarity(t, *pair, longest) for pair in film_pairs(part, n)]
    choices = next_sentence_choices(part, n)
    return [multiple_choice(t, *choice, longest) for choice in choices]


def score(model: GPTForTask, name: str, part: str) -> float:
    examples = task(name, part)
    return accuracy(predict(model, examples), [e.label for e in examples])


def run_task(name: str, arm: str, lr: float, seed: int) -> dict:
    """Accuracy on dev after each pass, on test after the last."""
    (kind, lm_weight), (*_, n_classes, passes) = ARMS[arm], TASKS[name]
    model, curve = network(kind, n_classes, seed), []

    def after_pass(i: int) -> None:
        curve.append(score(model, name, "dev"))
        print(name, arm, lr, seed, curve[-1], flush=True)

    train = task(name, "train")
    how = {"lm_weight": lm_weight, "seed": seed, "after_pass": after_pass}
    fine_tune(model, train, passes, lr, **how)
    return {"dev": curve, "test": score(model, name, "test")}


def all_tasks(names: list[str], arms: list[str]) -> dict:
    """The best rate on dev with the first seed, then every seed."""
    store = RUNS / "gpt pair tasks.json"
    done = read_json(store) if store.exists() else {}

    def once(name: str, arm: str, lr: float, seed: int) -> dict:
        key = json.dumps([name, *TASKS[name], arm, lr, seed])
        if key not in done:
            done[key] = run_task(name, arm, lr, seed)
            write_atomically(store, json.dumps(done) + "\n")
        return done[key]

    result = {}
    for name in names:
        *sizes, _, passes = TASKS[name]
        result[name] = {"sizes": sizes, "passes": passes, "chance": baseline(name)}
        result[name] |= {"rates": TASK_RATES}
        for arm in arms:
            rates = TASK_RATES[ARMS[arm][0]]
            tried = {
                lr: once(name, arm, lr, TASK_SEEDS[0])["dev"][-1] for lr in rates
            }
            lr = max(tried, key=lambda rate: tried[rate])
            runs = [once(name, arm, lr, s) for s in TASK_SEEDS]
            result[name][arm] = {"lr": lr, "runs": runs}
    return result


# --- without any learning ---------------------------------------------------


def baseline(name: str) -> float:
    """What the more frequent class reaches on the test part."""
    y = [e.label for e in task(name, "test")]
    return max(map(y.count, set(y))) / len(y)


@cache
def idf() -> dict[str, float]:
    found: dict[str, int] = {}
    for pair in film_pairs("train", 4000):
        for word in {*pair.a, *pair.b}:
            found[word] = found.get(word, 0) + 1
    return {word: float(np.log(8000 / n)) for word, n in found.items()}


def overlap(a: list[str], b: list[str]) -> float:
    """Weight of the shared words over that of all; rare words weigh more."""
    weight = lambda ws: sum(idf().get(w, np.log(8000.0)) for w in ws)  # noqa: E731
    return weight({*a} & {*b}) / weight({*a} | {*b})


@torch.no_grad()
def surprise(context: list[str], text: list[str]) -> tuple[float, int]:
    """Log probability of a sentence behind a context (none: at the start)."""
    model, t = start("trained"), tokenizer()
    before = [t.start_id]
    if context:
        before += [*t.encode(sentence_text(context)), t.end_id]
    ids = [*before, *t.encode(sentence_text(text)), t.end_id]
    logs = model.token_log_probs(ids[-model.config.n_positions - 1 :])
    n = len(ids) - len(before)
    return float(logs[-n:].sum()), n


def untrained_answers() -> dict[str, float]:
    """Films and next sentences by shared words; the latter by the GPT as it is."""
    seen = [overlap(p.a, p.b) for p in film_pairs("dev", 300)]
    limits = np.quantile(seen, 0.5)
    films = film_pairs("test", TASKS["films"][2])
    found = {
        "films, shared words": accuracy(
            [int(overlap(p.a, p.b) > limits) for p in films],
            [p.label for p in films],
        )
    }
    choices = next_sentence_choices("test", TASKS["next"][2])
    ways: dict[str, list[int]] = {"shared words": [], "per token": [], "gain": []}
    for context, answers, _ in choices:
        ways["shared words"].append(
            int(np.argmax([overlap(context, a) for a in answers]))
        )
        behind = [surprise(context, a) for a in answers]
        alone = [surprise([], a) for a in answers]
        ways["per token"].append(int(np.argmax([s / n for s, n in behind])))
        ways["gain"].append(
            int(np.argmax([s - u for (s, _), (u, _) in zip(behind, alone)]))
        )
    y = [c.label for c in choices]
    return found | {f"next, {way}": accuracy(g, y) for way, g in ways.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=("frozen", "ladder", "tasks"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=[*ARMS])
    args = parser.parse_args()
    only = args.only
    torch.set_num_threads(1)
    path = RESULTS / "gpt_finetune.json"
    result = read_json(path) if path.exists() else {}
    result |= {
        "command": COMMAND,
        "rates": RATES,
        "task_seeds": list(TASK_SEEDS),
    }

    def keep(**more) -> None:
        result.update(more)
        write_atomically(path, json.dumps(result, indent=1) + "\n")

    if only in (None, "frozen"):
        for name, way, model, kind in (
            ("GPT, frozen", "frozen", "GPT", "trained"),
            ("GPT untrained, frozen", "random", "random", "scratch"),
        ):
            store = RUNS / f"ladder {name}.json"
            found = climb(lambda r, s, k=kind: run_frozen(k, r), store=store)
            rung(name, way, model, found)
    if only in (None, "tasks"):
        keep(tasks=result.get("tasks", {}) | all_tasks(args.tasks, args.arms))
        keep(untrained=untrained_answers())
        print(result["untrained"])
    if only in (None, "ladder"):
        climbs = {}
        for arm in ARMS:
            climbs[arm] = climb(
                lambda rows, seed, arm=arm: run_tuned(arm, rows, seed),
                seeds=LADDER_SEEDS,
                store=RUNS / f"ladder GPT {arm}.json",
            )
            keep(ladder={name: asdict(c) for name, c in climbs.items()})
        rung("GPT from scratch", "random", "random", climbs["scratch"])
        name = "fine-tuned, λ = 0.5"
        rung("GPT, fine-tuned", "fine-tuned", "GPT", climbs[name])


if __name__ == "__main__":
    main()
