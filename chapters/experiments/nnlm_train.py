"""Train one NNLM on film reviews; store dev curve, test perplexity and weights.

The runs of chapter 3, one thread each (RUNS is any folder; seeds 0, 1 and 2 for a
million words):

    python chapters/experiments/nnlm_train.py --out RUNS/1m-seed0.json --seed 0 \\
        --sampled 1000
    python chapters/experiments/nnlm_train.py --out RUNS/5m-seed0.json \\
        --sampled 1000 --words 5000000 --epochs 2 --d-hidden 200 --dropout 0.1 \\
        --batch 1024

(and the runs planned for one pass, listed in nnlm_compare.py).

Budget: about 5 minutes of one core per seed for a million words, 8 for five
million. An interrupted run goes on from its last finished epoch. Nothing here is
needed to read or to re-execute the chapter.

What led to these settings, all on the dev part of a million words, three epochs,
dropout 0.2: a context of 5 and vectors of 100 were better than 4 and 64 (124.3
against 135.3 after one epoch, with learning rates 4e-3 and 2e-3); the sampled loss
lost nothing against the full one (107.0 with --sampled 1500, 107.6 with the full
sum) and took less than half the time. More epochs then called for more dropout.
bfloat16 was tried and is slower on a CPU without matrix units.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plm.data import language_model_text
from plm.files import cache_dir, write_atomically
from plm.nnlm import NNLM, NNLMConfig, context_windows
from plm.train import save_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

V = 10_000


class SampledLoss:
    """Cross entropy with the sum over V words estimated from about `keep` of them:
    five to ten times faster than all V.

    Each batch draws one set of words: word j with probability k_j = min(1, c *
    frequency_j ** 0.5), and every target of the batch. A word that comes in with
    probability pi_j counts 1 / pi_j times in the sum, which makes the sum right on
    average (Horvitz-Thompson); the target of an example is always there and counts
    once. The idea is that of Bengio and Senecal 2003, who trained this model that
    way. Perplexities are always measured with the full sum.
    """

    def __init__(
        self, targets: Tensor, vocab_size: int, keep: int, batch: int, seed: int
    ):
        frequency = (torch.bincount(targets, minlength=vocab_size) + 0.1) / len(
            targets
        )
        weight, low, high = frequency.sqrt(), 0.0, 1e9
        for _ in range(100):  # bisection for c
            middle = (low + high) / 2
            low, high = (
                (middle, high)
                if (middle * weight).clamp(max=1).sum() < keep
                else (low, middle)
            )
        self.draw = (low * weight).clamp(max=1)
        self.log_pi = (
            1 - (1 - self.draw) * (1 - frequency).clamp(min=0) ** (batch - 1)
        ).log()
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, model: NNLM, contexts: Tensor, targets: Tensor) -> Tensor:
        chosen = torch.rand(len(self.draw), generator=self.generator) < self.draw
        chosen[targets] = True
        words = chosen.nonzero()[:, 0]
        place = torch.empty(len(chosen), dtype=torch.int64)
        place[words] = torch.arange(len(words))
        _, h = model.hidden(contexts)
        logits = F.linear(
            h,
            model.U.index_select(0, words),
            (model.b - self.log_pi).index_select(0, words),
        )
        own = torch.zeros_like(logits).scatter_(
            1, place[targets, None], self.log_pi[targets, None]
        )
        return F.cross_entropy(logits + own, place[targets])


def learning_rate(peak: float, step: int, n_steps: int, warmup: int = 200) -> float:
    """Linear rise over `warmup` steps, then linear fall to nothing at `n_steps`."""
    return peak * min((step + 1) / warmup, max(0.0, 1 - step / n_steps))


def perplexity(model: NNLM, sentences: list[list[int]]) -> float:
    return float(np.exp(-model.token_log_probs(sentences).mean()))


def train(args: argparse.Namespace) -> dict:
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    text = language_model_text(args.words)
    vocab = Vocab.build(
        (w for s in language_model_text(1_000_000).train for w in s),
        V,
        specials=LANGUAGE_MODEL_SPECIALS,
    )
    encoded = {
        part: [vocab.encode(s) for s in getattr(text, part)]
        for part in ("train", "dev", "test")
    }
    config = NNLMConfig(
        len(vocab),
        args.context,
        args.d_emb,
        args.d_hidden,
        args.direct,
        args.dropout,
    )
    contexts, targets = context_windows(encoded["train"], config.context)
    model = NNLM(config).start_from_counts(targets)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, weight_decay=args.weight_decay, fused=True
    )
    sampled = (
        SampledLoss(targets, len(vocab), args.sampled, args.batch, args.seed)
        if args.sampled
        else None
    )
    steps_per_epoch = len(targets) // args.batch
    curve: list[dict] = []

    unfinished = cache_dir() / "runs" / f"{args.out.stem}.pt"
    if unfinished.exists():
        state = torch.load(unfinished, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        curve = state["curve"]
        print(f"going on after epoch {len(curve)}", flush=True)

    for epoch in range(len(curve), args.epochs):
        started, cpu, total = time.perf_counter(), time.process_time(), 0.0
        order = torch.randperm(
            len(targets),
            generator=torch.Generator().manual_seed(1000 * args.seed + epoch),
        )
        for i in range(steps_per_epoch):
            rows = order[i * args.batch : (i + 1) * args.batch]
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(
                    args.lr,
                    epoch * steps_per_epoch + i,
                    args.epochs * steps_per_epoch,
                )
            full = not args.sampled or epoch >= args.epochs - args.full_epochs
            if full:
                loss = F.cross_entropy(model(contexts[rows]), targets[rows])
            else:
                loss = sampled(model, contexts[rows], targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if i % 500 == 499:
                speed = (i + 1) * args.batch / (time.perf_counter() - started)
                so_far = np.exp(total / (i + 1))
                done = f"{i + 1}/{steps_per_epoch}"
                print(
                    f"  {done} train {so_far:.1f} {speed:.0f} words/s", flush=True
                )
        curve.append(
            {
                "epoch": epoch + 1,
                "train_perplexity": round(
                    float(np.exp(total / steps_per_epoch)), 2
                ),
                "dev_perplexity": round(perplexity(model, encoded["dev"]), 3),
                "wall_minutes": round((time.perf_counter() - started) / 60, 2),
                "cpu_minutes": round((time.process_time() - cpu) / 60, 2),
            }
        )
        print(args.out.stem, json.dumps(curve[-1]), flush=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        torch.save(state | {"curve": curve}, unfinished.with_suffix(".part"))
        unfinished.with_suffix(".part").replace(unfinished)
    save_checkpoint(args.out.with_suffix(".safetensors"), model, asdict(config))
    return {
        "config": asdict(config),
        "seed": args.seed,
        "train_words": args.words,
        "train_predictions": len(targets),
        "lr": args.lr,
        "batch": args.batch,
        "weight_decay": args.weight_decay,
        "sampled": args.sampled,
        "full_epochs": args.full_epochs,
        "parameters": sum(p.numel() for p in model.parameters()),
        "curve": curve,
        "test_perplexity": round(perplexity(model, encoded["test"]), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--context", type=int, default=5)
    parser.add_argument("--d-emb", type=int, default=100)
    parser.add_argument("--d-hidden", type=int, default=128)
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument(
        "--sampled",
        type=int,
        default=0,
        help="words in the sampled softmax; 0 sums over all of them",
    )
    parser.add_argument(
        "--full-epochs",
        type=int,
        default=0,
        help="last epochs with the full softmax all the same",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="result file, .json; its name also names the run",
    )
    args = parser.parse_args()
    if args.direct and args.sampled:
        parser.error(
            "the sampled loss leaves out W: give --sampled 0 with --direct"
        )
    result = train(args)
    write_atomically(args.out, json.dumps(result, indent=1))
    print(args.out.stem, "test", result["test_perplexity"], flush=True)


if __name__ == "__main__":
    main()
