"""Train a character-level RNN on film reviews; store its checkpoint, curve and
samples.

    python chapters/experiments/rnn_characters.py

Budget: about 12 minutes of one core. Writes results/rnn_characters.json and
chapters/checkpoints/rnn_characters.safetensors. An interrupted run goes on from its
last part. Nothing here is needed to read or to re-execute the chapter.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from plm.data import reviews
from plm.files import cache_dir, write_atomically
from plm.ngram import KneserNey
from plm.recurrent import (
    RecurrentLM,
    RecurrentLMConfig,
    TextLanes,
    detach,
    generate,
    text_stream,
)
from plm.train import linear_decay, save_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

CHAPTERS = Path(__file__).parent.parent
COMMAND = "python chapters/experiments/rnn_characters.py"
TEMPERATURES = (0.3, 0.6, 1.0)


def characters(split: str, n: int | None = None) -> list[str]:
    """The reviews of a split as strings, line breaks as spaces; whole reviews up to
    about n characters."""
    texts, size = [], 0
    for review in reviews(split):
        if n is not None and size >= n:
            break
        texts.append(review.text.replace("\n", " "))
        size += len(texts[-1])
    return texts


def bits(model: RecurrentLM, texts: list[list[int]]) -> float:
    """Bits per character, the end of each review included; state carried."""
    return -float(np.mean(model.token_log_probs(texts, carry=True))) / np.log(2)


def baselines(train: list, dev: list, vocab_size: int) -> dict[str, float]:
    """Bits per character of Kneser-Ney models of the same text."""
    found = {}
    for n in (3, 5, 7):
        model = KneserNey(n, vocab_size).fit(train)
        logs = model.token_log_probs(dev)
        found[str(n)] = round(-float(np.mean(logs)) / np.log(2), 4)
        print(f"{n}-gram {found[str(n)]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--d-hidden", type=int, default=512)
    parser.add_argument("--d-emb", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--characters", type=int, default=24_000_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--T", type=int, default=80)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="rnn_characters")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train = characters("imdb_train", args.characters)
    dev = characters("imdb_dev", 200_000)
    vocab = Vocab.build(
        (c for t in train for c in t), 100, specials=LANGUAGE_MODEL_SPECIALS
    )
    ids, dev_ids = ([vocab.encode(list(t)) for t in part] for part in (train, dev))
    config = RecurrentLMConfig(
        len(vocab),
        "rnn",
        args.d_emb,
        args.d_hidden,
        args.layers,
        args.dropout,
        False,
    )
    model = RecurrentLM(config)
    inputs, targets = text_stream(ids)
    model.start_from_counts(targets)
    lanes = TextLanes(inputs, targets, args.batch, args.T)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    schedule = linear_decay(len(lanes), warmup=100)
    marks = np.unique(np.geomspace(50, len(lanes), 12).astype(int)).tolist()
    curve, state, start, total = [], None, 0, 0.0
    unfinished = cache_dir() / "runs" / f"{args.name}.pt"
    if unfinished.exists():
        saved = torch.load(unfinished, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        curve, state, start = saved["curve"], saved["state"], saved["step"]
        print(f"going on after step {start}", flush=True)
    began, cpu = time.perf_counter(), time.process_time()
    for step, (x, y) in enumerate(lanes):
        if step < start:
            continue
        for group in optimizer.param_groups:
            group["lr"] = args.lr * schedule(step)
        h, state = model.hidden(x, state)
        state = detach(state)
        loss = F.cross_entropy(model.output(h).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        total = 0.99 * total + 0.01 * loss.item()
        if step + 1 in marks:
            seen = (step + 1) * x.numel()
            torch.manual_seed(0)
            sample = "".join(vocab.decode(generate(model, 120, temperature=0.6)))
            curve.append(
                {
                    "step": step + 1,
                    "characters": seen,
                    "dev_bits": round(bits(model, dev_ids[:40]), 4),
                    "sample": sample,
                }
            )
            speed = (step + 1 - start) * x.numel() / (time.perf_counter() - began)
            left = (len(lanes) - step) * x.numel() / speed / 60
            print(
                json.dumps(curve[-1]),
                f"{speed:.0f}/s, {left:.1f} min left",
                flush=True,
            )
            if not args.quick:
                unfinished.parent.mkdir(parents=True, exist_ok=True)
                saved = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "curve": curve,
                    "state": state,
                    "step": step + 1,
                }
                torch.save(saved, unfinished.with_suffix(".part"))
                unfinished.with_suffix(".part").replace(unfinished)
    if args.quick:
        return
    cpu_minutes = round((time.process_time() - cpu) / 60, 1)
    samples = {}
    for temperature in TEMPERATURES:
        torch.manual_seed(0)
        found = (generate(model, 400, temperature=temperature) for _ in range(2))
        samples[str(temperature)] = ["".join(vocab.decode(s)) for s in found]
    path = CHAPTERS / "checkpoints" / "rnn_characters.safetensors"
    extra = {"tokens": vocab.tokens[3:]}
    save_checkpoint(path, model, asdict(config) | extra, half=True)
    options = {k: v for k, v in vars(args).items() if k not in ("name", "quick")}
    result = {
        "command": COMMAND,
        "settings": options,
        "parameters": sum(p.numel() for p in model.parameters()),
        "train_characters": len(targets),
        "dev_bits": round(bits(model, dev_ids), 4),
        "ngram_bits": baselines(ids, dev_ids, len(vocab)),
        "cpu_minutes": cpu_minutes,
        "curve": curve,
        "samples": samples,
    }
    path = CHAPTERS / "results" / "rnn_characters.json"
    write_atomically(path, json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
