"""Train one recurrent language model (RNN, GRU or LSTM) on film reviews.

Stores the dev curve and dev and test perplexities, each measured in two ways, in
chapters/results/recurrent_lm/NAME.json; the weights go to the cache folder
($PLM_CACHE or ~/.cache/plm, runs/NAME.safetensors). The runs of chapter 5, one
thread each (seeds 0, 1 and 2 for a million words):

    python chapters/experiments/recurrent_lm.py --regime sentence --seed 0
    python chapters/experiments/recurrent_lm.py --regime carried --seed 0
    python chapters/experiments/recurrent_lm.py --words 5000000 --epochs 3 \\
        --d-emb 400 --d-hidden 400 --dropout 0.2 --regime sentence

Budget: about 7 minutes of one core for a million words, 20 for five million.

An interrupted run goes on from its last finished epoch; a finished one is not run
again. Nothing here is needed to read or to re-execute the chapter.

--regime says what the model meets in training, and the result has both measures:
"sentence" starts every sentence from a state of zeros, as the n-gram models and the
NNLM do; "carried" reads the text in order and never resets the state.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.data import language_model_text
from plm.evaluate import perplexity
from plm.files import cache_dir, read_json, write_atomically
from plm.recurrent import (
    RecurrentLM,
    RecurrentLMConfig,
    SentenceBatches,
    TextLanes,
    detach,
    text_stream,
)
from plm.softmax import WordSampler, sampled_cross_entropy
from plm.train import save_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

V = 10_000
RESULTS = Path(__file__).parent.parent / "results" / "recurrent_lm"


def learning_rate(peak: float, step: int, n_steps: int, warmup: int = 100) -> float:
    """Linear rise over `warmup` steps, then linear fall to nothing at `n_steps`."""
    return peak * min((step + 1) / warmup, max(0.0, 1 - step / n_steps))


def encode(words: int) -> tuple[list, list, list, int]:
    """Train, dev and test as lists of ids, and the size of the vocabulary."""
    small = language_model_text(1_000_000).train
    every_word = (w for s in small for w in s)
    vocab = Vocab.build(every_word, V, specials=LANGUAGE_MODEL_SPECIALS)
    text = language_model_text(words)
    return *([vocab.encode(s) for s in part] for part in text), len(vocab)


class Trainer:
    """One model, its optimiser, and the batches of its regime."""

    def __init__(self, args: argparse.Namespace, train: list, vocab_size: int):
        self.args = args
        config = RecurrentLMConfig(
            vocab_size,
            args.kind,
            args.d_emb,
            args.d_hidden,
            args.layers,
            args.dropout,
            not args.untied,
        )
        self.inputs, self.targets = text_stream(train)
        self.model = RecurrentLM(config).start_from_counts(self.targets)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=args.lr,
            weight_decay=args.weight_decay,
            fused=True,
        )
        self.tokens = args.batch * args.T
        self.per_epoch = -(-len(self.targets) // self.tokens)
        self.train = train

    def batches(self, epoch: int):
        """One pass: (inputs, targets, lengths) with lengths=None when carried."""
        seed = 1000 * self.args.seed + epoch
        if self.args.regime == "sentence":
            yield from SentenceBatches(self.train, self.tokens, seed)
            return
        generator = torch.Generator().manual_seed(seed)
        shift = int(torch.randint(len(self.inputs), (1,), generator=generator))
        lanes = TextLanes(
            self.inputs, self.targets, self.args.batch, self.args.T, shift
        )
        yield from ((x, y, None) for x, y in lanes)

    def epoch(self, epoch: int) -> float:
        """One pass over the text; returns the mean training loss."""
        # The sampler's generator starts from the seed and the epoch, so that a
        # resumed run draws what an uninterrupted one would have drawn.
        args = self.args
        counts = torch.bincount(self.targets, minlength=V)
        sampler = WordSampler(counts, args.sampled, 1000 * args.seed + epoch)
        torch.manual_seed(1000 * args.seed + epoch)
        state, total, seen, started = None, 0.0, 0, time.perf_counter()
        n_steps, step = args.epochs * self.per_epoch, epoch * self.per_epoch
        self.model.train()
        for i, (x, y, lengths) in enumerate(self.batches(epoch)):
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(args.lr, step + i, n_steps)
            loss, state = self.loss(x, y, lengths, state, sampler)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), args.clip)
            self.optimizer.step()
            n = int((y >= 0).sum())
            total, seen = total + loss.item() * n, seen + n
            if i % 100 == 99:
                speed = seen / (time.perf_counter() - started)
                left = len(self.targets) * (args.epochs - epoch) - seen
                print(
                    f"  {epoch + 1}: {i + 1}/{self.per_epoch} {total / seen:.3f}"
                    f" {speed:.0f} tokens/s, {left / speed / 60:.1f} min left",
                    flush=True,
                )
        return total / seen

    def loss(self, x, y, lengths, state, sampler) -> tuple[Tensor, object]:
        h, new = self.model.hidden(x, state if lengths is None else None, lengths)
        h, targets, output = h.flatten(0, 1), y.flatten(), self.model.output
        if self.args.sampled:
            loss = sampled_cross_entropy(
                h, targets, output.weight, output.bias, sampler
            )
        else:
            loss = F.cross_entropy(output(h), targets)
        return loss, detach(new)


def train(args: argparse.Namespace) -> dict:
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    train_ids, dev, test, vocab_size = encode(args.words)
    trainer = Trainer(args, train_ids, vocab_size)
    model, curve, minutes = trainer.model, [], 0.0
    unfinished = cache_dir() / "runs" / f"{args.name}.pt"
    if unfinished.exists():
        saved = torch.load(unfinished, weights_only=True)
        model.load_state_dict(saved["model"])
        trainer.optimizer.load_state_dict(saved["optimizer"])
        curve = saved["curve"]
        print(f"going on after epoch {len(curve)}", flush=True)
    carry = args.regime == "carried"
    for epoch in range(len(curve), args.epochs):
        started, cpu = time.perf_counter(), time.process_time()
        loss = trainer.epoch(epoch)
        minutes = (time.perf_counter() - started) / 60
        score = perplexity(model.token_log_probs(dev[: args.dev_sentences], carry))
        curve.append(
            {
                "epoch": epoch + 1,
                "train_loss": round(loss, 4),
                "dev_perplexity": round(score, 3),
                "wall_minutes": round(minutes, 2),
                "cpu_minutes": round((time.process_time() - cpu) / 60, 2),
            }
        )
        print(args.name, json.dumps(curve[-1]), flush=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        saved = {
            "model": model.state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
        }
        torch.save(saved | {"curve": curve}, unfinished.with_suffix(".part"))
        unfinished.with_suffix(".part").replace(unfinished)
    save_checkpoint(
        cache_dir() / "runs" / f"{args.name}.safetensors",
        model,
        asdict(model.config),
    )
    options = {k: v for k, v in vars(args).items() if k not in ("name", "threads")}
    result = {
        "name": args.name,
        "command": args.command,
        **options,
        "config": asdict(model.config),
        "train_predictions": len(trainer.targets),
        "parameters": sum(p.numel() for p in model.parameters()),
        "curve": curve,
    }
    del result["command"], result["quick"]
    result["command"] = args.command
    if args.quick:
        return result
    for part, sentences in (("dev", dev), ("test", test)):
        for way, carry in (("sentence", False), ("carried", True)):
            found = perplexity(model.token_log_probs(sentences, carry))
            result[f"{part}_{way}"] = round(found, 3)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=("rnn", "gru", "lstm"), default="rnn")
    parser.add_argument("--name", help="default: KIND-WORDS-REGIME-SEED")
    parser.add_argument(
        "--regime", choices=("sentence", "carried"), default="carried"
    )
    parser.add_argument("--words", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--d-emb", type=int, default=256)
    parser.add_argument("--d-hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--untied", action="store_true")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--T", type=int, default=32)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument(
        "--sampled", type=int, default=1000, help="0 sums over all words"
    )
    parser.add_argument("--dev-sentences", type=int, default=1500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--quick", action="store_true", help="only the dev curve, no final measures"
    )
    args = parser.parse_args()
    given = [
        f"--{k.replace('_', '-')}" + ("" if v is True else f" {v}")
        for k, v in vars(args).items()
        if v != parser.get_default(k) and k not in ("threads", "name")
    ]
    args.command = " ".join(["python chapters/experiments/recurrent_lm.py", *given])
    size = f"{args.words / 1e6:g}m"
    args.name = args.name or f"{args.kind}-{size}-{args.regime}-{args.seed}"
    path = RESULTS / f"{args.name}.json"
    if args.quick:
        path = cache_dir() / "runs" / f"{args.name}.json"
    if path.exists():
        print(path.name, "is there already:", read_json(path).get("test_sentence"))
        return
    result = train(args)
    write_atomically(path, json.dumps(result, indent=1) + "\n")
    print(args.name, {k: v for k, v in result.items() if k[:4] in ("dev_", "test")})


if __name__ == "__main__":
    main()
