"""Pretrain the biLM of chapter 7 on five million words of film reviews.

Command: python chapters/experiments/elmo_pretrain.py
Budget: one thread; the result says how many CPU minutes were spent. The run stops
and goes on at will: every few minutes it writes all that it needs into the cache
folder ($PLM_CACHE or ~/.cache/plm, runs/NAME.pt). The learning rate is constant and
falls to nothing in a line over the last `--cooldown` steps; until that has begun, a
run may be given another number of `--steps`.

One pretraining serves every experiment of the chapter. For the pseudoword probe,
half of the occurrences of each word of PAIRS are written as one new word with two
senses, such as church|train; the other half stay, so that the model knows both
words as well. The twelve new words lie behind the ten thousand of the book's
vocabulary. Perplexity is measured on undisguised text, with the softmax over the
ten thousand.

Writes chapters/checkpoints/elmo.safetensors, chapters/results/elmo_pretraining.json
and two rows of chapters/results/perplexity.json. With another --name nothing but
results/NAME.json is written. The small comparison of word tables and character CNN:

    C="--words 1000000 --steps 250 --cooldown 120 --report 250"
    elmo_pretrain.py --name elmo_small_table_tied $C
    elmo_pretrain.py --name elmo_small_table --untied $C
    elmo_pretrain.py --name elmo_small_characters --characters $C
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from plm.characters import CharacterConfig, spell
from plm.data import language_model_text
from plm.elmo import BiLM, BiLMConfig, save_bilm
from plm.evaluate import perplexity
from plm.files import cache_dir, read_json, write_atomically
from plm.recurrent import SentenceBatches
from plm.softmax import WordSampler
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

CHAPTERS = Path(__file__).resolve().parents[1]
RESULT = CHAPTERS / "results" / "elmo_pretraining.json"
CHECKPOINT = CHAPTERS / "checkpoints" / "elmo.safetensors"
V = 10_000
PAIRS = [
    ("music", "money"),
    ("camera", "wife"),
    ("book", "war"),
    ("king", "murder"),
    ("doctor", "army"),
    ("church", "train"),
    ("hospital", "summer"),
    ("phone", "ship"),
    ("girl", "dialogue"),
    ("town", "joke"),
    ("woman", "budget"),
    ("night", "voice"),
]
PSEUDO = {word: "|".join(pair) for pair in PAIRS for word in pair}


def book_vocab() -> Vocab:
    """The ten thousand words of chapters 3 to 6, then the twelve pseudowords."""
    text = language_model_text(1_000_000).train
    base = Vocab.build(
        (w for s in text for w in s), V, specials=LANGUAGE_MODEL_SPECIALS
    )
    n = len(LANGUAGE_MODEL_SPECIALS)
    return Vocab(
        [*base.tokens[n:], *("|".join(p) for p in PAIRS)], LANGUAGE_MODEL_SPECIALS
    )


def disguise(sentences: list[list[str]], seed: int = 0) -> list[list[str]]:
    """Write half of the occurrences of the words of PAIRS as the pseudoword."""
    rng = random.Random(seed)
    return [
        [PSEUDO[w] if w in PSEUDO and rng.random() < 0.5 else w for w in s]
        for s in sentences
    ]


def whole(
    batch: tuple[Tensor, Tensor, Tensor], end_id: int
) -> tuple[Tensor, Tensor]:
    """A batch of `SentenceBatches` as ids (B, T + 1) and lengths."""
    inputs, targets, lengths = batch
    ids = torch.cat([inputs[:, :1], targets.where(targets >= 0, end_id)], 1)
    return ids, lengths + 1


class Pretraining:
    """Model, optimiser, place in the text: everything a stopped run needs."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        torch.manual_seed(args.seed)
        vocab = book_vocab()
        train = disguise(language_model_text(args.words).train)
        spellings = None
        if (
            args.characters
        ):  # every word of the text can be read, V of them predicted
            every = Vocab.build((w for s in train for w in s), specials=())
            more = [w for w in every.tokens if w not in vocab]
            vocab = Vocab([*vocab.tokens[3:], *more], LANGUAGE_MODEL_SPECIALS)
            spellings = spell(vocab.tokens)
        self.vocab, self.ids = vocab, [vocab.encode(s) for s in train]
        config = BiLMConfig(
            V + len(PAIRS),
            args.d_emb,
            args.d_hidden,
            dropout=args.dropout,
            tied=not (args.untied or args.characters),
            characters=CharacterConfig() if args.characters else None,
        )
        every_id = torch.tensor([i for s in self.ids for i in (1, *s, 2)])
        every_id = every_id.where(every_id < config.vocab_size, 0)
        self.counts = torch.bincount(every_id, minlength=config.vocab_size)
        self.model = BiLM(config, spellings).start_from_counts(self.counts)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=args.lr, fused=True
        )
        self.sampler = WordSampler(self.counts, args.sampled, args.seed)
        self.step, self.tokens, self.cpu, self.curve = 0, 0, 0.0, []
        self.epoch, self.in_epoch = 0, 0
        self.path = cache_dir() / "runs" / f"{args.name}.pt"
        self.resume()

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            seed = 1000 * self.args.seed + self.epoch
            batches = SentenceBatches(self.ids, self.args.tokens, seed)
            for i, batch in enumerate(batches):
                if i >= self.in_epoch:
                    self.in_epoch = i + 1
                    yield whole(batch, self.model.config.end_id)
            self.epoch, self.in_epoch = self.epoch + 1, 0

    def rate(self) -> float:
        """Up in a line, constant, and down over the last `cooldown` steps."""
        left = (self.args.steps - self.step) / self.args.cooldown
        return self.args.lr * min(1.0, (self.step + 1) / 100, left)

    def run(self) -> None:
        self.model.train()
        started, saved = time.process_time(), time.time()
        for ids, lengths in self.batches():
            if self.step >= self.args.steps:
                break
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate()
            losses = self.model.loss(ids, lengths, self.sampler)
            self.optimizer.zero_grad()
            sum(losses).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.step, self.tokens = (
                self.step + 1,
                self.tokens + int(lengths.sum()) - len(ids),
            )
            if self.step % self.args.report == 0 or self.step == self.args.steps:
                self.cpu += time.process_time() - started
                self.report()
                started = time.process_time()
            if time.time() > saved + 150:
                self.cpu += time.process_time() - started
                self.save()
                started, saved = time.process_time(), time.time()
        self.save()

    def report(self) -> None:
        dev = [self.vocab.encode(s) for s in language_model_text(1).dev[:800]]
        found = {
            name: round(perplexity(self.model.token_log_probs(dev, backward, V)), 2)
            for name, backward in (("forward", False), ("backward", True))
        }
        self.curve.append(
            {
                "step": self.step,
                "tokens": self.tokens,
                "cpu_minutes": round(self.cpu / 60, 2),
                **found,
            }
        )
        print(
            self.args.name,
            json.dumps(self.curve[-1]),
            time.strftime("%H:%M"),
            flush=True,
        )

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.sampler.generator.get_state(),
            "torch": torch.get_rng_state(),
            "curve": self.curve,
            **{
                name: getattr(self, name)
                for name in ("step", "tokens", "cpu", "epoch", "in_epoch")
            },
        }
        torch.save(state, self.path.with_suffix(".part"))
        self.path.with_suffix(".part").replace(self.path)

    def resume(self) -> None:
        if not self.path.exists():
            return
        state = torch.load(self.path, weights_only=True)
        self.model.load_state_dict(state.pop("model"))
        self.optimizer.load_state_dict(state.pop("optimizer"))
        self.sampler.generator.set_state(state.pop("sampler"))
        torch.set_rng_state(state.pop("torch"))
        for name, value in state.items():
            setattr(self, name, value)
        print(f"{self.args.name} goes on at step {self.step}", flush=True)


def measure(
    model: BiLM, vocab: Vocab, sentences: list[list[str]]
) -> dict[str, float]:
    """Perplexity of both directions, each sentence by itself, over the V words."""
    ids = [vocab.encode(s) for s in sentences]
    return {
        name: round(perplexity(model.token_log_probs(ids, backward, V)), 3)
        for name, backward in (("forward", False), ("backward", True))
    }


def finish(run: Pretraining, command: str) -> None:
    """Judge the model on dev and test, and store it with all that was spent."""
    full = run.args.name == "elmo"
    if full:
        save_bilm(CHECKPOINT, run.model, run.vocab)
    text = language_model_text(1)
    args = {k: v for k, v in vars(run.args).items() if k not in ("name", "report")}
    result = {
        "command": command,
        **args,
        "pairs": PAIRS,
        "tokens": run.tokens,
        "cpu_minutes": round(run.cpu / 60, 1),
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "dev": measure(run.model, run.vocab, text.dev[: None if full else 1500]),
        "curve": run.curve,
    }
    if full:
        result["test"] = measure(run.model, run.vocab, text.test)
    print(result["cpu_minutes"], "CPU minutes", result["dev"], result.get("test"))
    path = RESULT if full else RESULT.with_stem(run.args.name)
    write_atomically(path, json.dumps(result, indent=1) + "\n")
    if not full:
        return
    table = RESULT.with_stem("perplexity")
    names = {f"biLM, {way}": way for way in ("forward", "backward")}
    rows = [row for row in read_json(table) if row["model"] not in names]
    for name, way in names.items():
        row = {"model": name, "chapter": 7, "train_words": run.args.words}
        row |= {part: result[part][way] for part in ("dev", "test")}
        rows.append(row | {"parameters": result["parameters"], "command": command})
    write_atomically(table, json.dumps(rows, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", default="elmo")
    parser.add_argument("--words", type=int, default=5_000_000)
    parser.add_argument("--steps", type=int, default=14_000)
    parser.add_argument("--cooldown", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=1024, help="words in a batch")
    parser.add_argument("--report", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--d-emb", type=int, default=128)
    parser.add_argument("--d-hidden", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--untied", action="store_true")
    parser.add_argument("--characters", action="store_true")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--sampled", type=int, default=1000)
    parser.add_argument(
        "--snapshot", action="store_true", help="store what is there, train no more"
    )
    args = parser.parse_args()
    given = [
        f"--{k.replace('_', '-')}" + ("" if v is True else f" {v}")
        for k, v in vars(args).items()
        if v != parser.get_default(k) and k not in ("report", "snapshot")
    ]
    command = " ".join(["python chapters/experiments/elmo_pretrain.py", *given])
    torch.set_num_threads(1)
    run = Pretraining(args)
    if not args.snapshot:
        run.run()
    finish(run, command)


if __name__ == "__main__":
    main()
