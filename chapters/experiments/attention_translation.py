"""Does a translator lose less of a long phrase when it may look back at it?

Command: python chapters/experiments/attention_translation.py
Budget: about 40 minutes on one core; it may be stopped and started again.

Trains the encoder-decoder of plm.seq2seq on 24,000 phrases (dates and lists of one
to eight countries, English to Chinese): without attention, with additive attention
and with four heads. Every model sees the same number of phrases; its learning rate
is chosen by the loss on dev after a short run with each rate of one grid; then
three seeds. Two controls for the model without attention: three times the training,
and a state of twice the width.

Writes chapters/results/attention_translation.json: for each run which of the 2,000
test phrases came out exactly, in the order of plm.translation.translations().test
("1" or "0" each), dev scores during training, CPU seconds. Writes
chapters/checkpoints/seq2seq_*.safetensors, the models of seed 0.
"""

import json
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from plm.files import write_atomically
from plm.seq2seq import Seq2Seq, Seq2SeqConfig
from plm.train import fit, linear_decay, save_checkpoint, seed_everything
from plm.translation import (
    PairBatches,
    Pairs,
    exact_matches,
    pairs,
    source_ids,
    translations,
    until_end,
)

CHAPTERS = Path(__file__).resolve().parents[1]
RESULTS = CHAPTERS / "results" / "attention_translation.json"
COMMAND = "python chapters/experiments/attention_translation.py"
RATES, SEEDS = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2), (0, 1, 2)
TUNE_STEPS, STEPS, BATCH = 500, 2_000, 64
ARMS = {
    "none": {"attention": "none"},
    "additive": {"attention": "additive"},
    "4 heads": {"attention": "multi-head", "n_heads": 4},
}
CONTROLS = {  # what it borrows its rate from, changes to it, how much longer
    "none, three times as long": ("none", {}, 3),
    "none, twice as wide": ("none", {"d_hidden": 256}, 1),
}


def loss(model: Seq2Seq, batch: Pairs) -> Tensor:
    """Cross entropy of the target tokens, padding left out."""
    logits = model(batch.source, batch.target_in)
    return F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten())


def hits(model: Seq2Seq, phrases: tuple) -> list[bool]:
    """Which phrases come out exactly, greedy decoding."""
    data, found = translations(), []
    for i in range(0, len(phrases), 250):
        part = phrases[i : i + 250]
        ids = model.translate(source_ids(part, data.source_vocab)).ids
        found += exact_matches(until_end(ids, data.target_vocab), part).tolist()
    return found


def train(changes: dict, lr: float, steps: int, seed: int) -> tuple[Seq2Seq, dict]:
    """One run from start to end, and what happened on dev."""
    data = translations()
    seed_everything(seed)
    config = Seq2SeqConfig(
        len(data.source_vocab), len(data.target_vocab), **changes
    )
    model = Seq2Seq(config)
    started = time.process_time()
    history = fit(
        model,
        lambda batch: loss(model, batch),
        PairBatches(data.train, data, BATCH, seed),
        steps,
        optimizer=torch.optim.Adam(model.parameters(), lr, fused=True),
        schedule=linear_decay(steps, warmup=100),
        clip=1.0,
        evaluate=lambda: sum(hits(model, data.dev[:250])) / 250,
        evaluate_at=range(0, steps, 500),
    )
    seconds = time.process_time() - started
    model.eval()
    with torch.no_grad():
        parts = [pairs(data.dev[i : i + 200], data) for i in range(0, 1_000, 200)]
        total = sum(loss(model, p) * (p.target_out >= 0).sum() for p in parts)
        dev_loss = total / sum((p.target_out >= 0).sum() for p in parts)
    return model, {
        "lr": lr,
        "steps": steps,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "cpu_seconds": round(seconds),
        "dev_loss": round(float(dev_loss), 4),
        "curve": dict(zip(history.steps, history.scores, strict=True)),
    }


def main() -> None:
    torch.set_num_threads(1)
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    tuning, runs = stored.get("tuning", {}), stored.get("runs", {})

    def keep() -> None:
        content = {"command": COMMAND, "batch": BATCH, "seeds": SEEDS}
        content |= {"rates": RATES, "tuning": tuning, "runs": runs}
        write_atomically(RESULTS, json.dumps(content, indent=1) + "\n")

    def tune(arm: str) -> float:
        for lr in RATES:
            if str(lr) not in tuning.setdefault(arm, {}):
                run = tuning[arm][str(lr)] = train(
                    ARMS[arm], lr, TUNE_STEPS, seed=9
                )[1]
                keep()
                print("tune", arm, lr, run["dev_loss"], run["curve"], flush=True)
        return min(RATES, key=lambda lr: tuning[arm][str(lr)]["dev_loss"])

    def final(name: str, arm: str, changes: dict, steps: int, seed: int) -> None:
        done = runs.setdefault(name, [])
        if any(run["seed"] == seed for run in done):
            return
        model, run = train(ARMS[arm] | changes, tune(arm), steps, seed)
        found = hits(model, translations().test)
        run["test"] = sum(found) / len(found)
        run["hits"] = "".join(str(int(hit)) for hit in found)
        done.append(run)
        keep()
        print(name, seed, run["lr"], run["test"], run["cpu_seconds"], flush=True)
        if name in ARMS and seed == 0:
            file = f"seq2seq_{model.config.attention.replace('-', '_')}.safetensors"
            path = CHAPTERS / "checkpoints" / file
            save_checkpoint(path, model, vars(model.config), half=True)

    for seed in SEEDS:
        for arm in ("none", "additive"):
            final(arm, arm, {}, STEPS, seed)
    for seed in SEEDS:
        final("4 heads", "4 heads", {}, STEPS, seed)
        for name, (arm, changes, times) in CONTROLS.items():
            final(name, arm, changes, STEPS * times, seed)


if __name__ == "__main__":
    main()
