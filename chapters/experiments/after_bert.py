"""Chapter 13: ELMo, GPT, BERT and XLNet on the same rows of the same text, three
seeds each; then gaps, writing, the ladder and the probes.

Command: python chapters/experiments/after_bert.py
Budget: about three hours of one core (pretraining a seed: ELMo 10, GPT 7, BERT 5,
the other three 6 to 8). `--arms`, `--seeds` and `--only pretrain fill write ladder
probes` do a part, and two parts may run side by side, on two cores:

    --arms ELMo BERT "XLNet, apart"
    --arms GPT XLNet "BERT, distances" "BERT, sines" "BERT, bare head"

Every finished piece is kept, and a stopped pretraining goes on bit for bit.
`--smoke` does three steps of everything and stores nothing in the book.

Writes chapters/results/after_bert.json; the models stay in the cache, runs/after
NAME SEED. All start from word2vec vectors of the same pieces and, where they have
a bias, from log frequencies; the networks are as wide and about as large; each
reads the same number of tokens in the same order. With fewer than three million
tokens what fills gaps would hardly have left the plateau of word frequencies
(bert_arms.py). Between BERT and XLNet stand two arms, each one step further:
"BERT, distances" has XLNet's layers, so it knows how far apart words are instead of
where they stand (and has no layer in front of its scores); "XLNet, apart" reads no
[MASK], and its guesses do not see one another yet. Two more BERTs are pretrained
(first seed only), to see what holds BERT on the plateau: "BERT, sines" starts its
table of places from chapter 9's sines, "BERT, bare head" has no layer in front of
its scores. "start" is the control on the ladder: each network before pretraining.
"""

import argparse
import fcntl
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from bert_ladder import PASSES, RATES, fine_tune, guesses, ids, mean_state
from bert_pretrain import CHAPTERS, RUNS, VECTOR_STD, word_vectors
from bert_probe import Reader, bert_layers, gpt_layers, pos_of, sense_of, table
from elmo_pretrain import PAIRS
from elmo_probe import held_out
from ladder_vectors import labels
from torch import Tensor, nn

from plm.bert import BertConfig, BertForPretraining, MaskedLMHead
from plm.bert_data import corpus, piece_counts
from plm.elmo import BiLM, BiLMConfig
from plm.evaluate import accuracy, ladder_rows
from plm.files import cache_dir, read_json, write_atomically
from plm.gpt import GPT, GPTConfig
from plm.layers import sinusoidal_positions
from plm.linear_loss import linear_cross_entropy
from plm.masking import MaskingConfig
from plm.ngram import KneserNey
from plm.pretrain import Batch, pretrain
from plm.pretrain_tasks import ElmoTask, GPTTask
from plm.run_log import read_log
from plm.run_settings import Settings
from plm.train import load_checkpoint, save_checkpoint, seed_everything
from plm.xlnet import XLNet, XLNetConfig
from plm.xlnet_tasks import GapTask, XLNetTask, pack

RESULT = CHAPTERS / "results" / "after_bert.json"
COMMAND = "python chapters/experiments/after_bert.py"
ARMS = ("ELMo", "GPT", "BERT", "BERT, distances", "XLNet, apart", "XLNet")
STARTED = ("ELMo", "GPT", "BERT", "XLNet")  # measured before pretraining, too
PLATEAU = ("BERT, sines", "BERT, bare head")  # only pretrained
PARTS = ("pretrain", "fill", "write", "ladder", "probes")
SEEDS, T, BATCH, SHARE = range(3), 64, 16, 0.3
SIZES = {"d_model": 128, "n_heads": 4, "n_layers": 4, "dropout": 0.0, "norm": "pre"}
ELMO_HIDDEN = 176  # gives the biLM as many parameters as GPT has
N_DEV = 256  # rows that pretraining is measured on; gaps are made in later ones
GIVEN, NEW = 24, 24  # tokens of a row that a model reads before it writes so many
Model = BiLM | GPT | BertForPretraining | XLNet


class Gaps(XLNet):
    """BERT's task on XLNet's layers."""


class BareHead(MaskedLMHead):
    """No layer between the states and the scores."""

    def __init__(self, config: BertConfig):
        super().__init__(config)
        self.transform, self.norm = nn.Identity(), nn.Identity()

    def guess(self, h: Tensor) -> Tensor:
        return h


class Plan(NamedTuple):
    """How much of everything, and where the models are kept."""

    runs: Path
    steps: int
    dev: int  # rows
    fill: int  # rows
    written: int  # rows
    labels: int
    passes: int  # over the labels
    rates: tuple[float, ...]  # of fine-tuning; the best on dev counts
    pairs: int  # of words with two senses


FULL = Plan(
    RUNS, 4000, N_DEV, 1000, 400, 500, PASSES[500], RATES["ours"], len(PAIRS)
)


@cache
def rows(part: str) -> Tensor:
    """The text of a part in rows of T pieces."""
    text = corpus("en")
    v = text.tokenizer
    packed = pack(getattr(text, part), T, v.cls_id, v.sep_id)
    if part == "train":
        return packed
    chosen = torch.randperm(len(packed), generator=torch.Generator().manual_seed(0))
    return packed[chosen]


def build(arm: str, seed: int) -> Model:
    """An arm before pretraining."""
    text, d = corpus("en"), SIZES["d_model"]
    v = text.tokenizer
    seed_everything(seed)
    model: Model
    if arm == "ELMo":
        ends = {"start_id": v.cls_id, "end_id": v.sep_id}
        config = BiLMConfig(len(v), d, ELMO_HIDDEN, dropout=0.0, tied=True, **ends)
        model = BiLM(config)
    elif arm == "GPT":
        model = GPT(GPTConfig(vocab_size=len(v), n_positions=T, **SIZES))
    elif arm in ("BERT", *PLATEAU):
        sizes = BertConfig(vocab_size=len(v), n_positions=T, **SIZES)
        model = BertForPretraining(sizes)
        if arm == "BERT, bare head":
            model.mlm = BareHead(sizes)
    else:
        kind = Gaps if arm == "BERT, distances" else XLNet
        model = kind(XLNetConfig(vocab_size=len(v), segments=False, **SIZES))
    found, _ = word_vectors("en", text, d)
    centred = found - found.mean(0)
    std = 0.1 if arm == "ELMo" else VECTOR_STD
    counts = torch.from_numpy(piece_counts(text.train, len(v)))
    with torch.no_grad():
        table(bare(model)).copy_(centred * (std / centred.std()))
        if arm == "BERT, sines":
            places = sinusoidal_positions(T, d)
            model.bert.embedding.positions.weight.copy_(
                places * (VECTOR_STD / places.std())
            )
        if isinstance(model, XLNet):
            model.bias.copy_(((counts + 1.0) / (counts + 1.0).sum()).log())
    if isinstance(model, BiLM | BertForPretraining):
        model.start_from_counts(counts)
    return model


def bare(model: Model) -> nn.Module:
    """Without the heads of pretraining."""
    return model.bert if isinstance(model, BertForPretraining) else model


class WholeSoftmax(ElmoTask):
    """The biLM's losses without storing a score for every token and piece."""

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        top, targets = model.states(batch["ids"])[-1], self.targets(batch["ids"])
        states = top.forward[:, :-1], top.backward[:, 1:]
        weight, bias = model.output.weight, model.output.bias
        return {
            name: linear_cross_entropy(h.flatten(0, 1), weight, t.flatten(), bias)
            for name, h, t in zip(("forward", "backward"), states, targets)
        }


def task(arm: str, seed: int, dev: int):
    """The model with its objective, measured on so many rows."""
    model, v = build(arm, seed), corpus("en").tokenizer
    save = partial(save_checkpoint, model=model, config={"arm": arm, "seed": seed})
    given = model, rows("train"), rows("dev")[:dev], BATCH, save, seed, "book en"
    if arm == "ELMo":
        return WholeSoftmax(*given)
    if arm == "GPT":
        return GPTTask(*given)
    if arm.startswith("BERT"):
        return GapTask(*given, vocabulary=v, masking=MaskingConfig(SHARE))
    joint = arm == "XLNet"
    return XLNetTask(*given, special_ids=v.special_ids, share=SHARE, joint=joint)


def folder(plan: Plan, arm: str, seed: int) -> Path:
    return plan.runs / f"after {arm} {seed}"


def train(plan: Plan, arm: str, seed: int) -> dict:
    """Pretrain; the curve on held-out text and what it cost."""
    settings = Settings(
        steps=plan.steps,
        lr=1.5e-3,
        schedule="cooldown",
        warmup=min(100, plan.steps // 2),
        cooldown=max(1, plan.steps // 6),
        floor=0.0,
        weight_decay=0.01,
        beta2=0.98,
        eps=1e-6,
        precision="no",
        seed=seed,
        cpu=True,
        log_every=50,
        evaluate_every=max(1, plan.steps // 5),
        save_minutes=1.0,
    )
    job = task(arm, seed, plan.dev)
    if pretrain(job, folder(plan, arm, seed), settings, print).step < plan.steps:
        raise SystemExit("stopped; the same command goes on")
    counts = job.counts(job.batch(0))
    guessed = sum(n for name, n in counts.items() if name != "tokens")
    curve = read_log(folder(plan, arm, seed) / "eval.csv")
    return {
        "parameters": sum(p.numel() for p in job.model.parameters()),
        "guesses per token": round(guessed / counts["tokens"], 3),
        "cpu_minutes": round(curve[-1]["cpu_seconds"] / 60, 2),
        "curve": [
            {k: round(float(x), 4) for k, x in row.items() if "seconds" not in k}
            for row in curve
        ],
    }


def trained(plan: Plan, arm: str, seed: int) -> Model:
    model = build(arm, seed)
    state, _ = load_checkpoint(folder(plan, arm, seed) / "model.safetensors")
    model.load_state_dict(state)
    return model.eval()


# --- every layer, in one form ------------------------------------------


def elmo_layers(model: BiLM, batch: Tensor) -> list[Tensor]:
    lengths = (batch != corpus("en").tokenizer.pad_id).sum(1).clamp(min=1)
    return [torch.cat(pair, -1) for pair in model.states(batch, lengths)]


def xlnet_layers(model: XLNet, batch: Tensor) -> list[Tensor]:
    return model(batch).content


LAYERS: dict[type, Callable] = {BiLM: elmo_layers, GPT: gpt_layers}


def layers_of(model: nn.Module) -> Callable:
    default = xlnet_layers if isinstance(model, XLNet) else bert_layers
    return LAYERS.get(type(model), default)


def in_parts(model: nn.Module, batch: Tensor) -> list[Tensor]:
    """For the probes: what stands behind [SEP] is padding, and a sentence longer
    than the rows of pretraining is read in parts of that length."""
    v = corpus("en").tokenizer
    batch = batch.where((batch == v.sep_id).cumsum(1) <= 1, v.pad_id)
    read = [layers_of(model)(model, part) for part in batch.split(T, 1)]
    return [torch.cat(layer, 1) for layer in zip(*read)]


# --- the ladder -------------------------------------------------------


class Classifier(nn.Module):
    """The mean of the tokens' last states, and a linear layer."""

    def __init__(self, model: nn.Module, width: int):
        super().__init__()
        self.model, self.drop = model, nn.Dropout(0.1)
        self.head = nn.Linear(width, 2)
        nn.init.zeros_(self.head.weight)
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.1  # pretrained without, fine-tuned with it

    def forward(self, batch: Tensor) -> Tensor:
        top = layers_of(self.model)(self.model, batch)[-1]
        return self.head(self.drop(mean_state(top, batch)))


def on_the_ladder(
    plan: Plan, arm: str, seed: int, start: bool
) -> dict[str, list[float]]:
    """Dev and test accuracy with each rate; sentences and run share the seed."""
    chosen, found = ladder_rows(plan.labels, seed), {}
    sentences = [ids("ours", "train")[i] for i in chosen.tolist()]
    for lr in plan.rates:
        model = bare(build(arm, seed) if start else trained(plan, arm, seed))
        width = SIZES["d_model"] * (2 if arm == "ELMo" else 1)
        torch.manual_seed(seed)
        classifier = Classifier(model, width)
        fine_tune(classifier, sentences, labels("train")[chosen], lr, plan.passes)
        found[str(lr)] = [
            accuracy(guesses(classifier, ids("ours", part)), labels(part))
            for part in ("dev", "test")
        ]
    return found


# --- gaps -------------------------------------------------------------


def gap_scores(model: BertForPretraining | Gaps, batch: Tensor) -> Tensor:
    """Scores of every piece at every place, (B, T, V)."""
    if isinstance(model, Gaps):
        return model.score(model(batch).content[-1])
    return model(batch).mlm


@torch.no_grad()
def gap(model: Model, batch: Tensor, at: Tensor, n: int, joint: bool) -> Tensor:
    """Log probabilities (B, n, V) of the pieces from `at` on, n of them a row."""
    b, places = torch.arange(len(batch))[:, None], at[:, None] + torch.arange(n)
    if isinstance(model, BertForPretraining | Gaps):
        hidden = batch.clone()
        hidden[b, places] = corpus("en").tokenizer.mask_id
        return gap_scores(model, hidden)[b, places].log_softmax(-1)
    if isinstance(model, XLNet):
        late = torch.zeros_like(batch).scatter_(
            1, places, (torch.arange(n) + T).expand_as(places)
        )
        order = (late + torch.arange(T) * (late == 0)).argsort(1)
        return model.guess(batch, order, n, joint)
    if isinstance(model, GPT):
        return model(batch)[b, places - 1].log_softmax(-1)
    there, back = (side.log_softmax(-1) for side in model(batch))
    rare = piece_counts(corpus("en").train, there.shape[-1]) + 1.0
    prior = torch.from_numpy(np.log(rare / rare.sum())).float()
    both = there[b, places - 1] + back[b, places + n] - prior
    return both.log_softmax(-1)


@torch.no_grad()
def in_order(model: Model, batch: Tensor) -> float | None:
    """Summed loss of the pieces read from left to right; BERT has none."""
    if isinstance(model, BertForPretraining | Gaps):
        return None
    if isinstance(model, XLNet):
        order = torch.arange(T).expand_as(batch)
        return -float(model.log_probs(batch, order, T - 1).sum())
    logits = model(batch) if isinstance(model, GPT) else model(batch).forward
    log_p = logits[:, :-1].log_softmax(-1)
    return -float(log_p.gather(2, batch[:, 1:, None]).sum())


@torch.no_grad()
def fill(plan: Plan, arm: str, seed: int) -> dict[str, float]:
    """One gap and two neighbouring gaps in held-out rows, and reading in order."""
    model, text = trained(plan, arm, seed), rows("dev")[N_DEV:][: plan.fill]
    at = torch.randint(
        16, T - 16, (len(text),), generator=torch.Generator().manual_seed(0)
    )
    sums: dict[str, float] = Counter()
    for part, place in zip(text.split(50), at.split(50)):
        b = torch.arange(len(part))
        one = gap(model, part, place, 1, joint=True)[:, 0]
        there = part[b, place]
        sums["right"] += float((one.argmax(-1) == there).sum())
        sums["one gap"] -= float(one[b, there].sum())
        if arm != "ELMo":  # each of its readers would have to cross the other gap
            both = gap(model, part, place, 2, joint=arm == "XLNet")
            for k in range(2):
                sums["two gaps"] -= float(both[b, k, part[b, place + k]].sum())
        if (loss := in_order(model, part)) is not None:
            sums["in order"] += loss / (T - 1)
    return {k: round(x / len(text), 4) for k, x in sums.items()}


# --- writing ----------------------------------------------------------


@cache
def judge() -> KneserNey:
    """A 5-gram model of the rows of training, which reads what the others write."""
    v = corpus("en").tokenizer
    model = KneserNey(5, len(v), start_id=v.cls_id, end_id=v.sep_id)
    return model.fit(rows("train")[:, 1:-1].tolist())


def next_scores(model: Model, given: Tensor, gaps: int) -> Tensor:
    """Scores (B, V) of the piece after `given`. For BERT so many gaps and [SEP]
    follow; the others need nothing behind it."""
    v, n = corpus("en").tokenizer, given.shape[1]
    if isinstance(model, GPT):
        return model(given)[:, -1]
    if isinstance(model, BiLM):
        return model(given).forward[:, -1]
    after = given.new_full((len(given), gaps + 1), v.mask_id)
    if isinstance(model, XLNet) and not isinstance(model, Gaps):
        row = torch.cat([given, after[:, :1]], 1)  # no guess sees what stands there
        return model.guess(row, torch.arange(n + 1).expand_as(row), 1)[:, 0]
    after[:, -1] = v.sep_id
    return gap_scores(model, torch.cat([given, after], 1))[:, n]


@torch.no_grad()
def continued(model: Model, text: Tensor, many_gaps: bool) -> Tensor:
    """Rows whose first GIVEN tokens are kept, and NEW more are drawn one by one."""
    v, draw = corpus("en").tokenizer, torch.Generator().manual_seed(0)
    text = text[:, :GIVEN]
    for n in range(GIVEN, GIVEN + NEW):
        scores = next_scores(model, text, T - 1 - n if many_gaps else 1)
        scores[:, v.special_ids] = -torch.inf
        new = torch.multinomial(scores.softmax(-1), 1, generator=draw)
        text = torch.cat([text, new], 1)
    return text


def write(plan: Plan, arm: str, seed: int) -> dict[str, dict]:
    """The judge's loss per written piece, and three of the texts. BERT has two ways
    to write; "people" is how the rows go on."""
    model, v = trained(plan, arm, seed), corpus("en").tokenizer
    text = rows("dev")[N_DEV:][: plan.written]
    ways = {"": False} | ({", all gaps": True} if "BERT" in arm else {})
    written = {
        arm + way: torch.cat(
            [continued(model, part, many) for part in text.split(50)]
        )
        for way, many in ways.items()
    }
    written["people"] = text[:, : GIVEN + NEW]
    found = {}
    for who, whole in written.items():
        log_p = judge().token_log_probs(whole[:, 1:].tolist())
        new = log_p.reshape(len(whole), -1)[:, GIVEN - 1 : GIVEN + NEW - 1]
        texts = [
            [v.decode(part) for part in (row[1:GIVEN], row[GIVEN:])]
            for row in whole[:3].tolist()
        ]
        found[who] = {"loss": round(-float(new.mean()), 4), "texts": texts}
    return found


# --- probes -----------------------------------------------------------


def reader(whole: Model) -> Reader:
    """A model in the form of bert_probe.py."""
    v, model = corpus("en").tokenizer, bare(whole)
    spell = lambda w: [v.ids[p.text] for p in v.tokenise(w)]  # noqa: E731
    ends = [v.cls_id], [v.sep_id]
    return Reader(model, spell, table(model), v.unk_id, *ends, in_parts)


def sense(pair: tuple[str, str], documents, one: Reader) -> list[list[float]]:
    """The probe's accuracies on each layer."""
    found = sense_of(pair, documents, {"": one})["accuracy"]
    return [found[f", layer {k}"] for k in range(len(found))]


def probes(plan: Plan, arms: list[str], seeds: list[int], keep: Callable) -> None:
    """Parts of speech, for the first seed alone, and senses; with the first seed
    both before pretraining, too: layers of random numbers."""
    documents = held_out()
    for arm, seed in product(arms, seeds):
        models = {arm: reader(trained(plan, arm, seed))}
        if seed == 0 and arm in STARTED:
            models[f"{arm}, start"] = reader(build(arm, seed).eval())
        for name, one in models.items():
            if seed == 0:
                keep("pos", name, partial(pos_of, one))
            for pair in PAIRS[: plan.pairs]:
                of_pair = partial(sense, pair, documents, one)
                keep("sense", f"{name}, {seed}, {'|'.join(pair)}", of_pair)


# --- all of it ----------------------------------------------------------


class Store:
    """Finished parts by name, in a file that is whole at any time. What another
    process has added meanwhile stays."""

    def __init__(self, path: Path, plan: Plan):
        self.path = path
        sizes = {k: x for k, x in plan._asdict().items() if k != "runs"}
        sizes |= {"T": T, "batch": BATCH, "share": SHARE}
        self.fixed = {"command": COMMAND, "config": SIZES | sizes}

    def read(self) -> dict:
        stored = read_json(self.path) if self.path.exists() else {}
        return {**stored, **self.fixed}

    def keep(self, part: str, name: str, make: Callable[[], object]) -> None:
        if name in self.read().get(part, {}):
            return
        started, found = time.process_time(), make()
        seconds = time.process_time() - started
        print(f"{part} {name} {seconds:.0f} s {str(found)[:300]}", flush=True)
        with open(cache_dir() / f"{self.path.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stored = self.read()
            stored.setdefault(part, {})[name] = found
            write_atomically(self.path, json.dumps(stored, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    every = (*ARMS, *PLATEAU)
    parser.add_argument("--arms", choices=every, nargs="+", default=every)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*SEEDS])
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    plan, path = FULL, RESULT
    if args.smoke:
        here = Path(tempfile.mkdtemp())
        plan = Plan(here, 3, 32, 40, 8, 32, 1, (3e-4,), 1)
        path = here / "smoke.json"
    keep = Store(path, plan).keep
    for seed in args.seeds:
        for arm in args.arms:
            name, given = f"{arm}, {seed}", (plan, arm, seed)
            if arm in PLATEAU and seed:
                continue
            if "pretrain" in args.only:
                keep("pretrain", name, partial(train, *given))
            if arm in PLATEAU:
                continue
            if "fill" in args.only:
                keep("fill", name, partial(fill, *given))
            if "write" in args.only:
                keep("write", name, partial(write, *given))
            if "ladder" in args.only:
                keep("ladder", name, partial(on_the_ladder, *given, False))
            if "ladder" in args.only and arm in STARTED:
                start = partial(on_the_ladder, *given, True)
                keep("ladder", f"{arm}, start, {seed}", start)
    if "probes" in args.only:
        arms = [arm for arm in args.arms if arm in ARMS]
        probes(plan, arms, args.seeds, keep)


if __name__ == "__main__":
    main()
