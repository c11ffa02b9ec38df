"""The Transformer on the translation task of chapter 8, at the same budget.

Command: python chapters/experiments/transformer_translation.py
Budget: about 20 minutes on one core; it may be stopped and started again.

The same 24,000 phrases, batches, number of updates, loss, optimiser and schedule as
experiments/attention_translation.py, about as many parameters, and its way to
choose the learning rate: a short run with each rate of a grid, the lowest loss on
dev. One choice more: dropout (which stands in many more places here than in chapter
8's models) of 0.1 or none. Three seeds, and two controls of one seed: twice the
updates, and the dropout that was not chosen, with its best rate. Then greedy search
on the test phrases, and BLEU and chrF (sacrebleu) beside the models of chapter 8,
whose stored checkpoints (seed 0) are decoded here.

Writes chapters/results/transformer_translation.json: for each run which of the
2,000 test phrases came out exactly, in the order of translations().test ("1" or "0"
each), dev scores during training, CPU seconds. Writes
chapters/checkpoints/transformer.safetensors, the model of seed 0.
"""

import itertools
import json
import time
from pathlib import Path

import torch
from sacrebleu.metrics import BLEU, CHRF
from torch import Tensor, nn
from torch.nn import functional as F

from plm.decode import greedy
from plm.files import write_atomically
from plm.seq2seq import Seq2Seq, Seq2SeqConfig
from plm.train import (
    fit,
    linear_decay,
    load_checkpoint,
    save_checkpoint,
    seed_everything,
)
from plm.transformer import Transformer, TransformerConfig
from plm.translation import (
    END_ID,
    START_ID,
    PairBatches,
    Pairs,
    pairs,
    source_ids,
    translations,
    until_end,
)

CHAPTERS = Path(__file__).resolve().parents[1]
RESULTS = CHAPTERS / "results" / "transformer_translation.json"
CHECKPOINTS = CHAPTERS / "checkpoints"
COMMAND = "python chapters/experiments/transformer_translation.py"
SIZES = {"d_model": 72, "n_heads": 4, "d_ff": 288, "n_layers": 2}
RATES, DROPOUTS, SEEDS = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2), (0.1, 0.0), (0, 1, 2)
TUNE_STEPS, STEPS, LONGER, BATCH = 500, 2_000, 4_000, 64
SEARCH = {"start_id": START_ID, "end_id": END_ID, "max_len": 70}


def loss(model: nn.Module, batch: Pairs) -> Tensor:
    """Cross entropy of the target tokens, padding left out."""
    logits = model(batch.source, batch.target_in)
    return F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten())


def dev_loss(model: nn.Module) -> float:
    data, total, n = translations(), 0.0, 0
    model.eval()
    with torch.no_grad():
        for i in range(0, 1_000, 200):
            part = pairs(data.dev[i : i + 200], data)
            counted = int((part.target_out >= 0).sum())
            total, n = total + float(loss(model, part)) * counted, n + counted
    return total / n


def search(model: nn.Module, phrases: tuple) -> list:
    """The translation of each phrase; phrases of like length share a batch."""
    data, found = translations(), [None] * len(phrases)
    order = sorted(range(len(found)), key=lambda i: len(phrases[i].source_tokens))
    for rows in (order[i : i + 250] for i in range(0, len(order), 250)):
        ids = source_ids([phrases[i] for i in rows], data.source_vocab)
        for i, hypothesis in zip(rows, greedy(model, ids, **SEARCH), strict=True):
            found[i] = hypothesis
    return found


def text(ids: list[int]) -> str:
    return "".join(translations().target_vocab.decode(ids))


def hits(texts: list[str], phrases: tuple) -> str:
    """One digit per phrase: 1 where the translation is the reference."""
    pairs_of = zip(texts, phrases, strict=True)
    return "".join(str(int(t == "".join(p.target_tokens))) for t, p in pairs_of)


def scores(texts: list[str], phrases: tuple) -> dict:
    """Exact match, BLEU of characters and chrF."""
    references = [["".join(p.target_tokens) for p in phrases]]
    bleu, chrf = BLEU(tokenize="char"), CHRF()
    return {
        "exact": hits(texts, phrases).count("1") / len(texts),
        "bleu": round(bleu.corpus_score(texts, references).score, 2),
        "chrf": round(chrf.corpus_score(texts, references).score, 2),
        "signatures": [str(bleu.get_signature()), str(chrf.get_signature())],
    }


def train(
    lr: float, dropout: float, steps: int, seed: int
) -> tuple[Transformer, dict]:
    """One run from start to end, and what happened on dev."""
    data = translations()
    seed_everything(seed)
    vocabs = len(data.source_vocab), len(data.target_vocab)
    config = TransformerConfig(
        source_vocab=vocabs[0], target_vocab=vocabs[1], dropout=dropout, **SIZES
    )
    model = Transformer(config)
    some = data.dev[:250]

    def exact() -> float:
        found = [text(h.ids) for h in search(model, some)]
        return hits(found, some).count("1") / len(some)

    started = time.process_time()
    history = fit(
        model,
        lambda batch: loss(model, batch),
        PairBatches(data.train, data, BATCH, seed),
        steps,
        optimizer=torch.optim.Adam(model.parameters(), lr, fused=True),
        schedule=linear_decay(steps, warmup=100),
        clip=1.0,
        evaluate=exact,
        evaluate_at=range(500, steps, 500),
    )
    return model, {
        "lr": lr,
        "dropout": dropout,
        "steps": steps,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "cpu_seconds": round(time.process_time() - started),
        "dev_loss": round(dev_loss(model), 4),
        "curve": dict(zip(history.steps, history.scores, strict=True)),
        "losses": [round(v, 4) for v in history.losses[::25]],
    }


def chapter_8() -> dict:
    """BLEU and chrF of the stored models of chapter 8 on the test phrases."""
    data, found = translations(), {}
    for name in ("none", "additive", "multi_head"):
        path = CHECKPOINTS / f"seq2seq_{name}.safetensors"
        if path.exists():
            state, config = load_checkpoint(path)
            model = Seq2Seq(Seq2SeqConfig(**config))
            model.load_state_dict(state)
            texts = []
            for i in range(0, len(data.test), 250):
                ids = source_ids(data.test[i : i + 250], data.source_vocab)
                rows = until_end(model.translate(ids).ids, data.target_vocab)
                texts += ["".join(row) for row in rows]
            found[name] = scores(texts, data.test)
    return found


def main() -> None:
    torch.set_num_threads(1)
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    tuning, runs = stored.get("tuning", {}), stored.get("runs", [])
    controls, others = stored.get("controls", {}), stored.get("chapter_8", {})
    data = translations()

    def keep() -> None:
        content = {"command": COMMAND, "batch": BATCH, "seeds": SEEDS}
        content |= {"sizes": SIZES, "rates": RATES, "dropouts": DROPOUTS}
        content |= {"tuning": tuning, "runs": runs, "controls": controls}
        content |= {"chapter_8": others}
        write_atomically(RESULTS, json.dumps(content, indent=1) + "\n")

    def tune(dropouts: tuple[float, ...]) -> tuple[float, float]:
        """Rate and dropout with the lowest loss on dev after a short run."""
        grid = {
            f"{lr}, {p}": (lr, p) for p, lr in itertools.product(dropouts, RATES)
        }
        for name, setting in grid.items():
            if name not in tuning:
                tuning[name] = train(*setting, TUNE_STEPS, seed=9)[1]
                keep()
                found = tuning[name]
                print("tune", name, found["dev_loss"], found["curve"], flush=True)
        return grid[min(grid, key=lambda name: tuning[name]["dev_loss"])]

    def final(setting: tuple[float, float], steps: int, seed: int):
        model, run = train(*setting, steps, seed)
        texts = [text(h.ids) for h in search(model, data.test)]
        run |= scores(texts, data.test) | {"hits": hits(texts, data.test)}
        print(setting, steps, seed, run["exact"], run["cpu_seconds"], flush=True)
        return model, run

    setting = tune(DROPOUTS)
    for seed in SEEDS:
        if not any(run["seed"] == seed for run in runs):
            model, run = final(setting, STEPS, seed)
            runs.append(run)
            if seed == 0:
                path = CHECKPOINTS / "transformer.safetensors"
                save_checkpoint(path, model, vars(model.config), half=True)
            keep()
    others |= chapter_8()
    other = tune(tuple(p for p in DROPOUTS if p != setting[1]))
    trials = {
        "twice the updates": (setting, LONGER),
        "other dropout": (other, STEPS),
    }
    for name, (chosen, steps) in trials.items():
        if name not in controls:
            controls[name] = final(chosen, steps, SEEDS[0])[1]
        keep()


if __name__ == "__main__":
    main()
