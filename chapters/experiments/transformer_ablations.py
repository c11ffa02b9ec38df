"""What each part of the Transformer is good for: take one out and train again.

Command: python chapters/experiments/transformer_ablations.py
Budget: about 12 minutes on one core; it may be stopped and started again.

A small model (3 layers per stack, d_model 48, no dropout) on the training phrases
of at most 12 characters. Each arm changes one thing. Its learning rate is the
better of two by the loss on dev (seed 0); then two more seeds with that rate. Each
run makes 450 updates of 32 phrases. Without warm-up the rate starts at its peak and
falls in the same line. The arm "no mask" is trained on what it may not see at test
time, so its rate is chosen by the same loss as the others': measured without a
mask, it says little, and the exact matches say the rest.

Writes chapters/results/transformer_ablations.json: per arm the runs, with the share
of 400 dev phrases that came out exactly, the losses on the way and at the end.
"""

import json
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.attention import padding_mask
from plm.decode import greedy
from plm.files import write_atomically
from plm.layers import AddNorm
from plm.train import fit, linear_decay, seed_everything
from plm.transformer import (
    Transformer,
    TransformerConfig,
    smoothed_cross_entropy,
)
from plm.translation import (
    END_ID,
    START_ID,
    PairBatches,
    Phrase,
    pairs,
    source_ids,
    translations,
)

CHAPTERS = Path(__file__).resolve().parents[1]
RESULTS = CHAPTERS / "results" / "transformer_ablations.json"
COMMAND = "python chapters/experiments/transformer_ablations.py"
SIZES = {"d_model": 48, "n_heads": 4, "d_ff": 192, "n_layers": 3, "dropout": 0.0}
RATES, SEEDS, STEPS, BATCH, LONGEST = (1.5e-3, 5e-3), (0, 1, 2), 450, 32, 12
ARMS = {  # name: norm, warm-up steps, what is taken out
    "pre-norm": ("pre", 60, ""),
    "no mask": ("pre", 60, "mask"),
    "no residual": ("pre", 60, "residual"),
    "no norm": ("pre", 60, "norm"),
    "no positions": ("pre", 60, "positions"),
    "post-norm": ("post", 60, ""),
    "pre-norm, no warm-up": ("pre", 0, ""),
    "post-norm, no warm-up": ("post", 0, ""),
    "label smoothing": ("pre", 60, "certainty"),
}


class Unmasked(Transformer):
    """A decoder whose words may look to the right, too."""

    def target_mask(self, target_in: Tensor, before: int = 0) -> Tensor:
        if before:
            return super().target_mask(target_in, before)
        return padding_mask(target_in, self.config.pad_id)


class NoResidual(AddNorm):
    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        return self.drop(y)


class NoNorm(AddNorm):
    def enter(self, x: Tensor) -> Tensor:
        return x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.drop(y)


def build(norm: str, missing: str) -> Transformer:
    """The model of an arm."""
    data = translations()
    vocabs = len(data.source_vocab), len(data.target_vocab)
    config = TransformerConfig(
        source_vocab=vocabs[0], target_vocab=vocabs[1], norm=norm, **SIZES
    )
    model = (Unmasked if missing == "mask" else Transformer)(config)
    others = {"residual": NoResidual, "norm": NoNorm}
    if missing in others:
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, AddNorm):
                    setattr(module, name, others[missing](config))
    if missing == "norm":
        model.encoder.norm = model.decoder.norm = nn.Identity()
    if missing == "positions":
        model.source_embedding.positions.zero_()
        model.target_embedding.positions.zero_()
    return model


def short(phrases: tuple[Phrase, ...]) -> list[Phrase]:
    return [p for p in phrases if len(p.target_tokens) <= LONGEST]


def train(arm: str, lr: float, seed: int) -> dict:
    norm, warmup, missing = ARMS[arm]
    data = translations()
    seed_everything(seed)
    model, smoothing = build(norm, missing), 0.1 * (missing == "certainty")
    started = time.process_time()
    history = fit(
        model,
        lambda b: smoothed_cross_entropy(
            model(b.source, b.target_in), b.target_out, smoothing
        ),
        PairBatches(short(data.train), data, BATCH, seed),
        STEPS,
        optimizer=torch.optim.Adam(model.parameters(), lr, fused=True),
        schedule=linear_decay(STEPS, warmup=warmup),
        clip=1.0,
    )
    model.eval()
    dev = short(data.dev)[:400]
    batch = pairs(dev, data)
    with torch.no_grad():
        logits = model(batch.source, batch.target_in)
        dev_loss = F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten())
    found = greedy(
        model,
        source_ids(dev, data.source_vocab),
        start_id=START_ID,
        end_id=END_ID,
        max_len=20,
    )
    texts = ["".join(data.target_vocab.decode(h.ids)) for h in found]
    return {
        "lr": lr,
        "seed": seed,
        "exact": sum(t == p.target for t, p in zip(texts, dev)) / len(dev),
        "dev_loss": round(float(dev_loss), 4),
        "losses": [round(v, 4) for v in history.losses[9::20]],
        "examples": [[p.source, p.target, t] for p, t in zip(dev, texts)][:5],
        "cpu_seconds": round(time.process_time() - started),
    }


def main() -> None:
    torch.set_num_threads(1)
    runs = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else {}

    def run(arm: str, lr: float, seed: int) -> None:
        done = runs.setdefault(arm, [])
        if not any((r["lr"], r["seed"]) == (lr, seed) for r in done):
            done.append(train(arm, lr, seed))
            content = {"command": COMMAND, "sizes": SIZES, "rates": RATES}
            content |= {"steps": STEPS, "batch": BATCH, "runs": runs}
            write_atomically(RESULTS, json.dumps(content, indent=1) + "\n")
            last = done[-1]
            print(arm, lr, seed, last["exact"], last["dev_loss"], flush=True)

    for arm in ARMS:
        for lr in RATES:
            run(arm, lr, SEEDS[0])
    for seed in SEEDS[1:]:
        for arm in ARMS:
            first = [r for r in runs[arm] if r["seed"] == SEEDS[0]]
            run(arm, min(first, key=lambda r: r["dev_loss"])["lr"], seed)


if __name__ == "__main__":
    main()
