"""The Transformer on the translation task of chapter 8, at the same budget.

Command: python chapters/experiments/transformer_translation.py
Budget: about 25 minutes on one core; it may be stopped and started again.

The same 24,000 phrases, batches, number of updates, loss, optimiser and schedule as
experiments/attention_translation.py, about as many parameters, and its way to
choose the learning rate: a short run with each rate of a grid, the lowest loss on
dev. One choice more: dropout (which stands in many more places here than in chapter
8's models) of 0.1 or none. Three seeds, and as a control one run with twice the
updates. Then greedy and beam search on test phrases, and BLEU and chrF (sacrebleu)
beside the models of chapter 8, whose stored checkpoints (seed 0) are decoded here.

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

from plm.decode import beam_search, greedy
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
RATES, DROPOUTS, SEEDS = (1e-3, 2e-3, 4e-3, 8e-3), (0.1, 0.0), (0, 1, 2)
TUNE_STEPS, STEPS, LONGER, BATCH = 500, 2_000, 4_000, 64
SEARCH = {"start_id": START_ID, "end_id": END_ID, "max_len": 70}
BEAMS = ((1, 1.0), (4, 0.0), (4, 1.0), (12, 1.0))  # width, alpha
N_SEARCHED = 300  # test phrases for the comparison of beams


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


def search(model: nn.Module, phrases: tuple, beam: int = 1, alpha: float = 1.0):
    """The best hypothesis for each phrase; phrases of like length share a batch."""
    data, found = translations(), [None] * len(phrases)
    order = sorted(range(len(found)), key=lambda i: len(phrases[i].source_tokens))
    size = 250 if beam == 1 else 50
    for rows in (order[i : i + size] for i in range(0, len(order), size)):
        ids = source_ids([phrases[i] for i in rows], data.source_vocab)
        if beam == 1:
            best = greedy(model, ids, **SEARCH)
        else:
            lists = beam_search(model, ids, beam=beam, alpha=alpha, **SEARCH)
            best = [ranked[0] for ranked in lists]
        for i, hypothesis in zip(rows, best, strict=True):
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


def compare_beams(model: nn.Module, phrases: tuple) -> dict:
    """Exact match, and how often the search missed a better sequence."""
    found = {}
    for beam, alpha in BEAMS:
        started, best = time.process_time(), search(model, phrases, beam, alpha)
        found[f"beam {beam}, alpha {alpha}"] = {
            "beam": beam,
            "alpha": alpha,
            "exact": hits([text(h.ids) for h in best], phrases).count("1")
            / len(phrases),
            "log_prob": round(sum(h.log_prob for h in best) / len(best), 5),
            "cut": sum(not h.finished for h in best),
            "cpu_seconds": round(time.process_time() - started, 1),
        }
    return found


def main() -> None:
    torch.set_num_threads(1)
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    tuning, runs = stored.get("tuning", {}), stored.get("runs", [])
    longer, others = stored.get("longer", []), stored.get("chapter_8", {})
    data = translations()

    def keep() -> None:
        content = {"command": COMMAND, "batch": BATCH, "seeds": SEEDS}
        content |= {"sizes": SIZES, "rates": RATES, "dropouts": DROPOUTS}
        content |= {"tuning": tuning, "runs": runs, "longer": longer}
        content |= {"n_searched": N_SEARCHED, "chapter_8": others}
        write_atomically(RESULTS, json.dumps(content, indent=1) + "\n")

    def tune() -> tuple[float, float]:
        grid = {
            f"{lr}, {p}": (lr, p) for p, lr in itertools.product(DROPOUTS, RATES)
        }
        for name, setting in grid.items():
            if name not in tuning:
                tuning[name] = train(*setting, TUNE_STEPS, seed=9)[1]
                keep()
                found = tuning[name]
                print("tune", name, found["dev_loss"], found["curve"], flush=True)
        return grid[min(grid, key=lambda name: tuning[name]["dev_loss"])]

    def final(setting: tuple[float, float], steps: int, seed: int) -> None:
        done = runs if steps == STEPS else longer
        if any(run["seed"] == seed for run in done):
            return
        model, run = train(*setting, steps, seed)
        texts = [text(h.ids) for h in search(model, data.test)]
        run |= scores(texts, data.test) | {"hits": hits(texts, data.test)}
        if steps == STEPS:
            run["beams"] = compare_beams(model, data.test[:N_SEARCHED])
            if seed == 0:
                path = CHECKPOINTS / "transformer.safetensors"
                save_checkpoint(path, model, vars(model.config), half=True)
        done.append(run)
        keep()
        print("seed", seed, steps, run["exact"], run["cpu_seconds"], flush=True)

    setting = tune()
    final(setting, STEPS, SEEDS[0])
    others |= chapter_8()
    keep()
    for seed in SEEDS[1:]:
        final(setting, STEPS, seed)
    final(setting, LONGER, SEEDS[0])


if __name__ == "__main__":
    main()
