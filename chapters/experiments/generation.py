"""Chapter 12: BERT reads a telegram, GPT writes the sentence.

Command: python chapters/experiments/generation.py
Budget: about 30 minutes on one core; finished runs are kept. `--only ARM` does one
of "both", "bert", "gpt", "none"; `--smoke` does a few steps and stores nothing in
the book.

Needs chapters/checkpoints/bert.safetensors and gpt.safetensors. Writes
chapters/results/generation.json.

Four ways to start one encoder-decoder: both halves pretrained, only the reader,
only the writer, none. All else is the same: sentences, their order, steps. The
learning rate is chosen on the dev part for "both" and for "none", with a third of
the steps; the two in between take that of "both".
"""

import argparse
import json
import math
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np
import torch
from downstream_tasks import CHAPTERS, CHECKPOINTS
from sacrebleu.metrics import BLEU, CHRF
from torch import Tensor

from plm.bert import IGNORED, Bert, pad
from plm.decode import greedy
from plm.encoder_decoder import EncoderDecoder
from plm.files import read_json, write_atomically
from plm.gpt import GPT
from plm.gpt_text import sentence_text
from plm.model_files import load_bert, load_gpt
from plm.run_settings import decay_groups
from plm.telegrams import Telegram, telegrams
from plm.train import fit, linear_decay

RESULT = CHAPTERS / "results" / "generation.json"
COMMAND = "python chapters/experiments/generation.py"
ARMS = {"both": (True, True), "bert": (True, False), "gpt": (False, True)}
ARMS |= {"none": (False, False)}
RATES = (5e-4, 1.5e-3)
SEEDS = {"both": range(2), "bert": range(1), "gpt": range(1), "none": range(2)}
N_TRAIN, STEPS, TRIED, BATCH = 20_000, 900, 300, 32
N_DEV, N_TEST, N_SHOWN = 300, 300, 20
EXAMPLES = (
    "film boring left ten minutes",
    "best performance career",
    "not understand people like movie",
    "story young doctor falls love nurse",
)


@cache
def halves() -> tuple:
    """BERT, its tokenizer, GPT, its tokenizer."""
    bert, pieces, _ = load_bert(CHECKPOINTS / "bert.safetensors")
    gpt, bpe, _ = load_gpt(CHECKPOINTS / "gpt.safetensors")
    return bert.bert, pieces, gpt, bpe


def build(arm: str, seed: int) -> EncoderDecoder:
    """The network as an arm starts it."""
    torch.manual_seed(seed)
    bert, _, gpt, _ = halves()
    keep_bert, keep_gpt = ARMS[arm]
    return EncoderDecoder(
        bert if keep_bert else Bert(bert.config),
        gpt if keep_gpt else GPT(gpt.config),
    )


def source(rows: list[Telegram]) -> Tensor:
    """Telegrams as BERT reads them."""
    _, pieces, _, _ = halves()
    return pad([pieces.encode(" ".join(t.kept)).ids for t in rows], pieces.pad_id)


def target(rows: list[Telegram]) -> Tensor:
    """Sentences as GPT writes them, between its start and end tokens."""
    bpe = halves()[3]
    ids = [
        [bpe.start_id, *bpe.encode(sentence_text(t.words)), bpe.end_id]
        for t in rows
    ]
    return pad(ids, IGNORED)


def dev_loss(model: EncoderDecoder, rows: list[Telegram]) -> tuple[float, int]:
    """Summed negative log probability of the sentences, and how many tokens."""
    total, n = 0.0, 0
    model.eval()
    with torch.no_grad():
        for i in range(0, len(rows), 100):
            wanted = target(rows[i : i + 100])
            count = int((wanted[:, 1:] != IGNORED).sum())
            total += float(model.loss(source(rows[i : i + 100]), wanted)) * count
            n += count
    return total, n


def train(arm: str, seed: int, lr: float, steps: int, n: int) -> EncoderDecoder:
    """One run. Each batch holds telegrams of like length."""
    model, data = build(arm, seed), telegrams("train", n, seed)
    rng = np.random.default_rng(seed)

    def batches():
        while True:
            order = rng.permutation(len(data))
            for pool in np.array_split(order, max(1, len(data) // (8 * BATCH))):
                by_length = sorted(pool, key=lambda i: len(data[i].words))
                cut = [by_length[i : i + BATCH] for i in range(0, len(pool), BATCH)]
                for k in rng.permutation(len(cut)):
                    yield [data[i] for i in cut[k]]

    fit(
        model,
        lambda rows: model.loss(source(rows), target(rows)),
        batches(),
        steps,
        optimizer=torch.optim.AdamW(decay_groups(model, 0.01), lr=lr, fused=True),
        schedule=linear_decay(steps, steps // 10),
        clip=1.0,
    )
    return model.eval()


def write(model: EncoderDecoder, rows: list[Telegram]) -> list[str]:
    """The sentences that the model writes."""
    bpe, found = halves()[3], []
    for i in range(0, len(rows), 100):
        ends = {"start_id": bpe.start_id, "end_id": bpe.end_id, "max_len": 50}
        found += greedy(model, source(rows[i : i + 100]), **ends)
    return [bpe.decode(h.ids).strip() for h in found]


def scores(texts: list[str], rows: list[Telegram]) -> dict:
    """Exact match, BLEU and chrF."""
    wanted = [" ".join(t.words) for t in rows]
    bleu, chrf = BLEU(tokenize="none", force=True), CHRF()
    return {
        "exact": sum(a == b for a, b in zip(texts, wanted)) / len(rows),
        "bleu": round(bleu.corpus_score(texts, [wanted]).score, 2),
        "chrf": round(chrf.corpus_score(texts, [wanted]).score, 2),
        "kept": kept(texts, rows),
        "signatures": [str(bleu.get_signature()), str(chrf.get_signature())],
    }


def kept(texts: list[str], rows: list[Telegram]) -> float:
    """The share of a telegram's words that its sentence has."""
    found = [set(text.split()) for text in texts]
    shares = [
        sum(word in here for word in t.kept) / len(t.kept)
        for t, here in zip(rows, found)
    ]
    return sum(shares) / len(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--only", choices=tuple(ARMS), nargs="+", default=tuple(ARMS)
    )
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    smoke = args.smoke
    path = Path(tempfile.mkdtemp()) / "smoke.json" if smoke else RESULT
    stored = read_json(path) if path.exists() else {}
    stored = {"command": COMMAND, "chosen": {}, "runs": {}, **stored}
    n_train, n_dev, n_test = (64, 20, 20) if smoke else (N_TRAIN, N_DEV, N_TEST)
    dev, test = telegrams("dev", n_dev), telegrams("test", n_test)
    copied = [" ".join(t.kept) for t in test]
    stored["telegram itself"] = scores(copied, test)

    def keep(kind: str, name: str, value: dict) -> None:
        stored[kind][name] = value
        print(kind, name, json.dumps(value)[:300], flush=True)
        write_atomically(path, json.dumps(stored, indent=1) + "\n")

    for arm in args.only:
        rated = "none" if arm == "none" else "both"
        if rated not in stored["chosen"]:
            tried = {}
            for lr in RATES:
                model = train(rated, 0, lr, 2 if smoke else TRIED, n_train)
                total, n = dev_loss(model, dev)
                tried[str(lr)] = total / n
            best = min(tried, key=lambda lr: tried[lr])
            keep("chosen", rated, {"lr": float(best), "dev loss": tried})
        for seed in SEEDS[arm]:
            if f"{arm}, seed {seed}" in stored["runs"]:
                continue
            started, lr = time.process_time(), stored["chosen"][rated]["lr"]
            model = train(arm, seed, lr, 3 if smoke else STEPS, n_train)
            total, n = dev_loss(model, test)
            texts = write(model, test)
            wanted = [" ".join(t.words) for t in test]
            asked = [Telegram(text.split(), text.split()) for text in EXAMPLES]
            found = {
                "lr": lr,
                "perplexity per token": math.exp(total / n),
                **scores(texts, test),
                "samples": list(zip(copied, wanted, texts))[:N_SHOWN],
                "own": list(zip(EXAMPLES, write(model, asked))),
                "cpu_seconds": round(time.process_time() - started),
            }
            keep("runs", f"{arm}, seed {seed}", found)


if __name__ == "__main__":
    main()
