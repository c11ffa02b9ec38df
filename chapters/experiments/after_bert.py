"""Chapter 13: ELMo, GPT, BERT and XLNet on the same rows of the same text, three
seeds each; then the ladder, gaps and the probes.

Command: python chapters/experiments/after_bert.py
Budget: about two hours on one core; every finished part is kept, and a stopped
pretraining goes on bit for bit. `--only pretrain|ladder|fill|probes` does a part.

Writes chapters/results/after_bert.json; the models stay in the cache, runs/after
NAME SEED. All start from word2vec vectors of the same pieces and, where they have
a bias, from log frequencies; the networks are as wide and about as large; each
reads the same number of tokens in the same order. "XLNet, apart" guesses its words
without seeing the other ones guessed: what is left of BERT's two faults is then
one. "start" is the control on the ladder: each network before pretraining.
"""

import argparse
import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from bert_ladder import PASSES, RATES, fine_tune, guesses, ids, mean_state
from bert_pretrain import CHAPTERS, RUNS, VECTOR_STD, word_vectors
from bert_probe import Reader, bert_layers, gpt_layers, pos_of, sense_of, table
from elmo_pretrain import PAIRS
from elmo_probe import held_out
from ladder_vectors import labels
from torch import Tensor, nn

from plm.bert import BertConfig, BertForPretraining
from plm.bert_data import corpus, piece_counts
from plm.elmo import BiLM, BiLMConfig
from plm.evaluate import accuracy, ladder_rows
from plm.files import read_json, write_atomically
from plm.gpt import GPT, GPTConfig
from plm.masking import MaskingConfig
from plm.pretrain import pretrain
from plm.pretrain_tasks import ElmoTask, GPTTask
from plm.run_log import read_log
from plm.run_settings import Settings
from plm.train import load_checkpoint, save_checkpoint, seed_everything
from plm.xlnet import XLNet, XLNetConfig
from plm.xlnet_tasks import GapTask, XLNetTask, pack

RESULT = CHAPTERS / "results" / "after_bert.json"
COMMAND = "python chapters/experiments/after_bert.py"
ARMS = ("ELMo", "GPT", "BERT", "XLNet", "XLNet, apart")
SEEDS, STEPS, T, BATCH, SHARE = range(3), 1000, 128, 16, 0.3
SIZES = {"d_model": 128, "n_heads": 4, "n_layers": 4, "dropout": 0.0, "norm": "pre"}
N_DEV, N_FILL, LABELS = 256, 700, 500
Model = BiLM | GPT | BertForPretraining | XLNet


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
        model = BiLM(BiLMConfig(len(v), d, 2 * d, dropout=0.0, tied=True, **ends))
    elif arm == "GPT":
        model = GPT(GPTConfig(vocab_size=len(v), n_positions=T, **SIZES))
    elif arm == "BERT":
        config = BertConfig(vocab_size=len(v), n_positions=T, **SIZES)
        model = BertForPretraining(config)
    else:
        model = XLNet(XLNetConfig(vocab_size=len(v), segments=False, **SIZES))
    found, _ = word_vectors("en", text, d)
    centred = found - found.mean(0)
    std = 0.1 if arm == "ELMo" else VECTOR_STD
    counts = torch.from_numpy(piece_counts(text.train, len(v)))
    with torch.no_grad():
        table(bare(model)).copy_(centred * (std / centred.std()))
        if isinstance(model, XLNet):
            model.bias.copy_(((counts + 1.0) / (counts + 1.0).sum()).log())
    if isinstance(model, BiLM | BertForPretraining):
        model.start_from_counts(counts)
    return model


def bare(model: Model) -> nn.Module:
    """Without the heads of pretraining."""
    return model.bert if isinstance(model, BertForPretraining) else model


def task(arm: str, seed: int):
    """The model with its objective."""
    model, v = build(arm, seed), corpus("en").tokenizer
    save = partial(save_checkpoint, model=model, config={"arm": arm, "seed": seed})
    given = model, rows("train"), rows("dev")[:N_DEV], BATCH, save, seed, "book en"
    if arm == "ELMo":
        return ElmoTask(*given)
    if arm == "GPT":
        return GPTTask(*given)
    if arm == "BERT":
        return GapTask(*given, vocabulary=v, masking=MaskingConfig(SHARE))
    joint = arm == "XLNet"
    return XLNetTask(*given, special_ids=v.special_ids, share=SHARE, joint=joint)


def folder(arm: str, seed: int) -> Path:
    return RUNS / f"after {arm} {seed}"


def train(arm: str, seed: int) -> dict:
    """Pretrain; the curve on held-out text and what it cost."""
    settings = Settings(
        steps=STEPS,
        lr=1.5e-3,
        schedule="cooldown",
        warmup=100,
        cooldown=STEPS // 6,
        floor=0.0,
        weight_decay=0.01,
        beta2=0.98,
        eps=1e-6,
        precision="no",
        seed=seed,
        cpu=True,
        log_every=50,
        evaluate_every=STEPS // 5,
        save_minutes=1.0,
    )
    job = task(arm, seed)
    if pretrain(job, folder(arm, seed), settings, print).step < STEPS:
        raise SystemExit("stopped; the same command goes on")
    counts = job.counts(job.batch(0))
    curve = read_log(folder(arm, seed) / "eval.csv")
    return {
        "parameters": sum(p.numel() for p in job.model.parameters()),
        "guesses per token": round(
            sum(n for name, n in counts.items() if name != "tokens")
            / counts["tokens"],
            3,
        ),
        "cpu_minutes": round(curve[-1]["cpu_seconds"] / 60, 2),
        "curve": [
            {k: round(float(x), 4) for k, x in row.items() if "seconds" not in k}
            for row in curve
        ],
    }


def trained(arm: str, seed: int) -> Model:
    model = build(arm, seed)
    model.load_state_dict(
        load_checkpoint(folder(arm, seed) / "model.safetensors")[0]
    )
    return model.eval()


# --- every layer, in one form ------------------------------------------


def elmo_layers(model: BiLM, batch: Tensor) -> list[Tensor]:
    lengths = (batch != corpus("en").tokenizer.pad_id).sum(1)
    return [torch.cat(pair, -1) for pair in model.states(batch, lengths)]


def xlnet_layers(model: XLNet, batch: Tensor) -> list[Tensor]:
    return model(batch).content


LAYERS: dict[type, Callable] = {BiLM: elmo_layers, GPT: gpt_layers}


def layers_of(model: nn.Module) -> Callable:
    default = xlnet_layers if isinstance(model, XLNet) else bert_layers
    return LAYERS.get(type(model), default)


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


def on_the_ladder(arm: str, seed: int, start: bool) -> dict[str, list[float]]:
    """Dev and test accuracy with each rate; sentences and run share the seed."""
    chosen, found = ladder_rows(LABELS, seed), {}
    sentences = [ids("ours", "train")[i] for i in chosen.tolist()]
    for lr in RATES["ours"]:
        model = bare(build(arm, seed) if start else trained(arm, seed))
        width = SIZES["d_model"] * (2 if arm == "ELMo" else 1)
        torch.manual_seed(seed)
        classifier = Classifier(model, width)
        y = labels("train")[chosen]
        fine_tune(classifier, sentences, y, lr, PASSES[LABELS])
        found[str(lr)] = [
            accuracy(guesses(classifier, ids("ours", part)), labels(part))
            for part in ("dev", "test")
        ]
    return found


# --- gaps -------------------------------------------------------------


@torch.no_grad()
def gap(model: Model, batch: Tensor, at: Tensor, n: int, joint: bool) -> Tensor:
    """Log probabilities (B, n, V) of the pieces from `at` on, n of them a row."""
    b, places = torch.arange(len(batch))[:, None], at[:, None] + torch.arange(n)
    if isinstance(model, BertForPretraining):
        hidden = batch.clone()
        hidden[b, places] = corpus("en").tokenizer.mask_id
        return model(hidden).mlm[b, places].log_softmax(-1)
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
def fill(arm: str, seed: int) -> dict[str, float]:
    """One gap and two neighbouring gaps in held-out rows, and reading in order."""
    model, text = trained(arm, seed), rows("dev")[N_DEV:][:N_FILL]
    at = torch.randint(
        16, T - 16, (len(text),), generator=torch.Generator().manual_seed(0)
    )
    sums = {"right": 0.0, "one gap": 0.0, "two gaps": 0.0, "in order": 0.0}
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
        if arm == "GPT":
            log_p = model(part)[:, :-1].log_softmax(-1)
            sums["in order"] -= float(log_p.gather(2, part[:, 1:, None]).sum())
        elif arm == "XLNet":
            order = torch.arange(T).expand_as(part)
            sums["in order"] -= float(model.log_probs(part, order, T - 1).sum())
    means = {k: x / len(text) for k, x in sums.items()}
    means["in order"] /= T - 1
    return {k: round(x, 4) for k, x in means.items() if x or k == "right"}


# --- probes -----------------------------------------------------------


def readers() -> dict[str, Reader]:
    """All models in the form of bert_probe.py."""
    v, found = corpus("en").tokenizer, {}
    spell = lambda w: [v.ids[p.text] for p in v.tokenise(w)]  # noqa: E731
    for arm in ARMS:
        for seed in SEEDS:
            model = bare(trained(arm, seed))
            ends = [v.cls_id], [v.sep_id]
            found[f"{arm}, {seed}"] = Reader(
                model, spell, table(model), v.unk_id, *ends, layers_of(model)
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts = "pretrain", "ladder", "fill", "probes"
    parser.add_argument("--only", choices=parts)
    only = parser.parse_args().only
    torch.set_num_threads(1)
    stored = read_json(RESULT) if RESULT.exists() else {"command": COMMAND}
    stored["config"] = {**SIZES, "steps": STEPS, "T": T, "batch": BATCH}
    stored["config"] |= {"share": SHARE, "labels": LABELS, "seeds": list(SEEDS)}

    def keep(part: str, name: str, make: Callable[[], object]) -> None:
        if name not in stored.setdefault(part, {}):
            stored[part][name] = make()
            write_atomically(RESULT, json.dumps(stored, indent=1) + "\n")
            print(part, name, stored[part][name], flush=True)

    jobs = [(arm, seed) for seed in SEEDS for arm in ARMS]
    for arm, seed in jobs if only in (None, "pretrain") else ():
        keep("pretrain", f"{arm}, {seed}", partial(train, arm, seed))
    for arm, seed in jobs if only in (None, "ladder") else ():
        keep("ladder", f"{arm}, {seed}", partial(on_the_ladder, arm, seed, False))
        if arm != "XLNet, apart":
            name = f"{arm}, start, {seed}"
            keep("ladder", name, partial(on_the_ladder, arm, seed, True))
    for arm, seed in jobs if only in (None, "fill") else ():
        keep("fill", f"{arm}, {seed}", partial(fill, arm, seed))
    if only in (None, "probes"):
        known, documents = readers(), held_out()
        for name, reader in known.items():
            keep("pos", name, partial(pos_of, reader))
        for pair in PAIRS:
            keep("sense", "|".join(pair), partial(sense_of, pair, documents, known))


if __name__ == "__main__":
    main()
