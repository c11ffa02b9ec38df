"""Chapter 7 on the ladder: frozen biLM vectors with learnt layer weights, and
ULMFiT.

Command: python chapters/experiments/elmo_ladder.py
then with --only ablation, and with --only many (2,000 labels for ULMFiT)
Budget: about 12, 8 and 8 minutes on one core; finished runs are kept, so an
interrupted run goes on.

Needs chapters/checkpoints/elmo.safetensors and word2vec_5m_vectors.safetensors.
Writes rungs into chapters/results/ladder.json and the rest into
results/elmo_ladder.json: the learnt layer weights, single layers, and ULMFiT's
ablation.

Frozen: a sentence is the mean over its words of a layer (word by word as it is or
scaled to length 1, all weighing the same or the frequent ones less: the forms that
word2vec had; or mean and maximum); the task network mixes the layers with learnt
softmax weights, a logistic regression decides. (Mean and mix commute, so the means
are computed once. The factor gamma is fixed at 1: the weights of the regression can
take its part.) Mix and regression are fitted together by L-BFGS. "word2vec and
ELMo" has the word2vec average beside the mix, gamma chosen on dev; its control is
the same regression with gamma 0. Single layers are means of words as they are.
ULMFiT: stage 1 is the pretrained biLM; stage 2 trains it on as a language model on
the sentences of the Rotten Tomatoes training part, without labels; stage 3 trains
the classifier. Three seeds, and a learning rate chosen on the dev part for every
arm; the control of random weights has three times the passes. The ablation, at 500
labels, leaves out one thing at a time.
"""

import argparse
import copy
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import torch
from elmo_pretrain import CHECKPOINT, V
from ladder_vectors import SIF, W2V, averages, counts, labels, texts
from torch import Tensor, nn
from torch.nn import functional as F

from plm.elmo import BiLM, load_bilm
from plm.evaluate import Climb, Rung, accuracy, add_rung, climb, perplexity
from plm.files import cache_dir, read_json, write_atomically
from plm.rnn import length_mask
from plm.train import linear_decay
from plm.ulmfit import LMClassifier, fine_tune

RESULTS = Path(__file__).resolve().parents[1] / "results"
COMMAND = "python chapters/experiments/elmo_ladder.py"
PARTS = ("train", "dev", "test")
PENALTIES = (1e-3, 1e-2, 0.1, 1.0)  # C of scikit-learn: less is more
SINGLE = {"layer 0": [0], "layer 1": [1], "layer 2": [2]}
TUNING_SEEDS = range(3)
PASSES = {100: 12, 500: 8, 2000: 4}
RATES = (0.002, 0.006)
POOLS = {  # which rows of `pooled` stand side by side
    "mean": [0],
    "mean, unit": [1],
    "mean, unit, sif": [3],
    "mean and max": [0, 4],
}
Scores = dict[tuple, tuple[float, float]]


@cache
def readers() -> dict[str, BiLM]:
    """The trained biLM, and one of random weights."""
    torch.manual_seed(0)
    trained = load_bilm(CHECKPOINT)[0]
    return {"trained": trained, "random": BiLM(trained.config).eval()}


@cache
def ids(part: str) -> list[list[int]]:
    vocab = load_bilm(CHECKPOINT)[1]
    return [vocab.encode(s) for s in texts(part)]


# --- frozen -----------------------------------------------------------


@cache
def pooled(name: str, part: str) -> Tensor:
    """Four means and the maximum over the words: (5, layers, N, 2 * d_emb).

    The means are those of words as they are and of length 1, first all weighing the
    same, then the frequent ones less.
    """
    model, sentences = readers()[name], ids(part)
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    config, total = model.config, counts().total()
    found = torch.empty(5, config.n_layers + 1, len(order), 2 * config.d_emb)
    for rows in (order[i : i + 64] for i in range(0, len(order), 64)):
        batch, lengths = model.pad([sentences[i] for i in rows])
        layers = model.vectors(batch, lengths)
        layers[:, :, 0] = 0.0  # <s> and </s> are no words of the sentence
        words = length_mask(lengths - 1, batch.shape[1])
        words[:, 0] = False
        sif = torch.zeros(words.shape)
        for row, i in zip(sif, rows):
            s = texts(part)[i]
            row[1 : len(s) + 1] = torch.tensor(
                [SIF / (SIF + counts()[w] / total) for w in s]
            )
        for k, weights in enumerate((words.float(), sif)):
            weights = (weights / weights.sum(1, keepdim=True))[None, :, :, None]
            for form, x in ((0, layers), (1, F.normalize(layers, dim=-1))):
                found[2 * k + form][:, rows] = (x * weights).sum(2)
        outside = ~words[None, :, :, None]
        found[4][:, rows] = layers.masked_fill(outside, -torch.inf).amax(2)
    return found


@cache
def features(name: str, pool: str, extra: str) -> dict[str, tuple[Tensor, Tensor]]:
    """For each part the layers (L, N, D) and the word2vec average (N, d or 0)."""
    raw = {part: pooled(name, part) for part in PARTS}
    layers = {part: torch.cat([*x[POOLS[pool]]], -1) for part, x in raw.items()}
    mean, std = layers["train"].mean(1, True), layers["train"].std(1, keepdim=True)
    found = {}
    for part in PARTS:
        beside = torch.empty(len(texts(part)), 0)
        if extra:
            table = averages(W2V, 0, "unit", "equal")
            centre, scale = table["train"].mean(0), table["train"].std()
            beside = torch.tensor((table[part] - centre) / scale)
        found[part] = (layers[part] - mean) / (std + 1e-6), beside
    return found


class MixedRegression(nn.Module):
    """sum_j s_j h_j, other features beside it, a logistic regression on top."""

    def __init__(self, n_layers: int, width: int):
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(n_layers))
        self.w, self.b = (
            nn.Parameter(torch.zeros(width)),
            nn.Parameter(torch.zeros(())),
        )

    def forward(self, layers: Tensor, beside: Tensor) -> Tensor:
        """layers: (L, N, D); beside: (N, d). Returns the logits of "positive"."""
        n = layers.shape[-1]
        h = torch.tensordot(self.scores.softmax(0), layers @ self.w[:n], dims=1)
        return h + beside @ self.w[n:] + self.b

    def fit(self, layers: Tensor, beside: Tensor, y: Tensor, C: float) -> None:
        optimizer = torch.optim.LBFGS(
            self.parameters(), max_iter=40, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(
                self(layers, beside), y.float()
            )
            # Held a little, or few labels would put all on one layer.
            penalty = (
                self.w.square().sum() / (2 * C) + 0.5 * self.scores.square().sum()
            )
            loss = loss + penalty / len(y)
            loss.backward()
            return loss

        optimizer.step(closure)


def grid(which: list[int], extra: str, alone: bool) -> list[tuple]:
    """(pool, gamma, C): what is tried.

    Beside word2vec the scale gamma of the layers is tried, too. Single layers are
    compared with one another, and `alone` is the control: word2vec without layers.
    """
    if extra:
        gammas = (0.0,) if alone else (0.03, 0.1, 0.3, 1.0)
        return [("mean", g, C) for g in gammas for C in (0.01, 0.1, 1.0, 10.0)]
    pools = tuple(POOLS) if len(which) > 1 else ("mean",)
    return [(pool, 1.0, C) for pool in pools for C in PENALTIES]


def run_frozen(how: tuple, shares: dict, rows: Tensor, seed: int) -> Scores:
    """how: (which biLM, word2vec's name or nothing, layers, word2vec alone)."""
    scores: Scores = {}
    name, extra, which, _ = how
    for pool, gamma, C in grid(which, extra, how[3]):
        x = {
            part: (gamma * layers[which], beside)
            for part, (layers, beside) in features(name, pool, extra).items()
        }
        here = x["train"][0][:, rows], x["train"][1][rows]
        width = here[0].shape[-1] + here[1].shape[-1]
        model = MixedRegression(len(which), width)
        model.fit(*here, labels("train")[rows], C)
        with torch.no_grad():
            found = [
                accuracy((model(*x[p]) > 0).long(), labels(p))
                for p in ("dev", "test")
            ]
        setting = ("pool", pool), ("gamma", gamma), ("C", C)
        scores[setting] = found[0], found[1]
        key = json.dumps([len(rows), seed, pool, gamma, C])
        shares[key] = model.scores.softmax(0).tolist()
    return scores


def climb_frozen(how: tuple, stem: str) -> tuple[Climb, dict]:
    """The climb, and the learnt layer weights of the chosen settings by labels."""
    store = cache_dir() / "runs" / f"{stem}.json"
    kept = store.with_stem(f"{stem} weights")
    shares = read_json(kept) if kept.exists() else {}

    def run(rows: Tensor, seed: int) -> Scores:
        found = run_frozen(how, shares, rows, seed)
        write_atomically(kept, json.dumps(shares) + "\n")
        return found

    found = climb(run, store=store)
    weights = {
        n: [
            shares[json.dumps([n, seed, s["pool"], s["gamma"], s["C"]])]
            for seed in found.seeds
        ]
        for n, s in found.settings.items()
    }
    return found, weights


# --- ULMFiT -----------------------------------------------------------


@cache
def domain_model() -> BiLM:
    """Stage 2: the biLM, trained on as one on Rotten Tomatoes sentences."""
    path = cache_dir() / "runs" / "ulmfit stage 2.pt"
    model = copy.deepcopy(readers()["trained"])
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval()
    torch.manual_seed(0)
    steps = len(ids("train")) // 64
    optimizer, factor = (
        torch.optim.Adam(model.parameters(), 1e-3),
        linear_decay(steps, 20),
    )
    generator = torch.Generator().manual_seed(0)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * factor(step)
        rows = torch.randint(len(ids("train")), (64,), generator=generator).tolist()
        loss = sum(model.loss(*model.pad([ids("train")[i] for i in rows])))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(
                "stage 2", step, "of", steps, round(loss.item() / 2, 3), flush=True
            )
    torch.save(model.state_dict(), path)
    return model.eval()


def batches(rows: list[int], y: Tensor, size: int = 32) -> list:
    """Sentences of like length together."""
    rows = sorted(rows, key=lambda i: len(ids("train")[i]))
    model = readers()["trained"]
    return [
        (*model.pad([ids("train")[i] for i in part]), y[part])
        for part in (rows[i : i + size] for i in range(0, len(rows), size))
    ]


@torch.no_grad()
def judge(model: LMClassifier, part: str) -> float:
    model.eval()
    sentences, y = ids(part), labels(part)
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    guess = torch.empty(len(order), dtype=torch.int64)
    for rows in (order[i : i + 100] for i in range(0, len(order), 100)):
        guess[rows] = model(*model.lm.pad([sentences[i] for i in rows])).argmax(1)
    return accuracy(guess, y)


ARMS: dict[str, dict] = {
    "ULMFiT": {},
    "without stage 2": {"start": "trained"},
    "one rate for all layers": {"factor": 1.0},
    "all layers at once": {"gradual": False},
    "frozen": {"frozen": True},
    # This one has everything to learn: three times the passes.
    "random weights": {
        "start": "random",
        "gradual": False,
        "factor": 1.0,
        "times": 3,
    },
}


def run_tuned(arm: str, rows: Tensor, seed: int) -> Scores:
    how = {"start": "domain", "gradual": True, "factor": 2.6, "frozen": False}
    how = how | {"times": 1} | ARMS[arm]
    start: Callable[[], BiLM] = {
        "domain": domain_model,
        "trained": lambda: readers()["trained"],
        "random": lambda: BiLM(readers()["trained"].config),
    }[how["start"]]
    scores: Scores = {}
    data = batches(rows.tolist(), labels("train"))
    for lr in RATES:
        torch.manual_seed(seed)
        model = LMClassifier(copy.deepcopy(start()), 2)
        if how["frozen"]:
            model.lm.requires_grad_(False)
            model.groups = lambda m=model: [[*m.head.parameters()]]  # type: ignore
        fine_tune(
            model,
            data,
            PASSES[len(rows)] * how["times"],
            lr,
            factor=how["factor"],
            gradual=how["gradual"],
        )
        scores[(("lr", lr),)] = judge(model, "dev"), judge(model, "test")
    print(arm, len(rows), seed, scores, flush=True)
    return scores


def climb_tuned(arm: str, which: tuple[int, ...]) -> Climb:
    store = cache_dir() / "runs" / f"ulmfit {arm}.json"
    return climb(lambda r, s: run_tuned(arm, r, s), which, TUNING_SEEDS, store)


def rung(name: str, way: str, model: str, found: Climb) -> None:
    add_rung(RESULTS / "ladder.json", Rung(name, 7, way, model, COMMAND, found))
    means = {n: round(float(np.mean(a)), 3) for n, a in found.accuracy.items()}
    print(name, means, found.settings, flush=True)


def ulmfit_rung(which: tuple[int, ...]) -> None:
    found = climb_tuned("ULMFiT", which)
    rung("ULMFiT, fine-tuned", "fine-tuned", "LSTM", found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=("frozen", "tuned", "ablation", "many"))
    only = parser.parse_args().only
    torch.set_num_threads(1)
    path = RESULTS / "elmo_ladder.json"
    result = read_json(path) if path.exists() else {}
    result["command"] = COMMAND

    def keep(**more) -> None:
        result.update(more)
        write_atomically(path, json.dumps(result, indent=1) + "\n")

    every = [0, 1, 2]
    if only in (None, "frozen"):
        weights = {}
        for name, way, colour, reader, extra in (
            ("ELMo, frozen", "frozen", "ELMo", "trained", ""),
            ("ELMo untrained, frozen", "random", "random", "random", ""),
            ("word2vec and ELMo, frozen", "frozen", "ELMo", "trained", W2V),
        ):
            how = reader, extra, every, False
            found, weights[name] = climb_frozen(how, f"ladder {name}")
            rung(name, way, colour, found)
        alone, _ = climb_frozen(("trained", W2V, every, True), "ladder w2v alone")
        single = {}
        for name, which in SINGLE.items():
            how = "trained", "", which, False
            found, _ = climb_frozen(how, f"ladder ELMo {name}")
            single[name] = found.accuracy
            means = {
                n: round(float(np.mean(a)), 3) for n, a in single[name].items()
            }
            print(name, means)
        keep(word2vec_alone=asdict(alone))
        keep(layer_weights=weights, single_layers=single)
    if only in (None, "tuned"):
        text = [s for part in ("dev", "test") for s in ids(part)]
        keep(
            rotten_tomatoes_perplexity={
                name: round(perplexity(model.token_log_probs(text, n_words=V)), 2)
                for name, model in (
                    ("stage 1", readers()["trained"]),
                    ("stage 2", domain_model()),
                )
            },
            passes=PASSES,
            rates=RATES,
        )
        ulmfit_rung((100, 500))
        found = climb_tuned("random weights", (100, 500))
        rung("biLM from scratch", "random", "random", found)
    if only == "ablation":
        ablation = {arm: climb_tuned(arm, (500,)) for arm in ARMS}
        keep(
            ablation={arm: c.accuracy[500] for arm, c in ablation.items()},
            ablation_settings={arm: c.settings[500] for arm, c in ablation.items()},
            ablation_seeds=list(TUNING_SEEDS),
        )
    if only == "many":  # the longest; from scratch neither rate leaves chance
        ulmfit_rung(tuple(PASSES))


if __name__ == "__main__":
    main()
