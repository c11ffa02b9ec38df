"""The commands that use what was trained: generate, fill-mask, finetune, classify, info."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from plm.bert import BertForPretraining
from plm.bpe import BPE
from plm.checkpoints import NAMES, Loaded, find, kind_of, load
from plm.cli_options import CommandError, make_folder
from plm.fill_in import best, encode_gaps
from plm.finetune import TuneSettings, finetune, hold_out, load_classifier, read_labelled, save_classifier
from plm.model_files import belonging_together
from plm.run_files import FORMAT, parse_head
from plm.run_log import hours
from plm.sampling import generate
from plm.tokenize import words
from plm.train import parse_config
from plm.wordpiece import MASK


def _loaded(path: str, kind: str) -> Loaded:
    found = load(path)
    if found.kind != kind:
        raise CommandError(f"{path} holds a {NAMES[found.kind]}; this command needs a {NAMES[kind]}")
    return found


def generate_text(args: Namespace) -> None:
    """plm generate"""
    found = _loaded(args.checkpoint, "gpt")
    tokenizer = found.tokenizer
    prompt = args.prompt
    if isinstance(tokenizer, BPE):  # learnt from words in lower case with a space behind each
        prompt = "".join(word + " " for word in words(prompt))
    ids = [tokenizer.start_id, *tokenizer.encode(prompt)]
    for name in ("samples", "tokens"):
        if getattr(args, name) < 1:
            raise CommandError(f"--{name} must be at least 1, not {getattr(args, name)}")
    chosen = {"temperature": args.temperature, "top_k": args.top_k, "top_p": args.top_p, "seed": args.seed}
    # The book's own GPT ends sentences, not documents, with its end token: it writes on.
    end = None if isinstance(tokenizer, BPE) else tokenizer.end_id
    for text in generate(found.model, [ids] * args.samples, args.tokens, end_id=end, **chosen):  # type: ignore[arg-type]
        print(tokenizer.decode(text))
        if args.samples > 1:
            print("---")


def fill_mask(args: Namespace) -> None:
    """plm fill-mask"""
    found = _loaded(args.checkpoint, "bert")
    if not isinstance(found.model, BertForPretraining):
        raise CommandError(f"{args.checkpoint} is a BERT without the layer that guesses words")
    tokenizer = found.tokenizer
    if MASK not in args.text:
        raise CommandError(f"the text has no {MASK}: write it where a word is to be guessed")
    ids = encode_gaps(tokenizer, args.text)
    if len(ids) > found.model.config.n_positions:
        raise CommandError(f"the text has {len(ids)} tokens, and this model reads {found.model.config.n_positions}")
    if args.top < 1:
        raise CommandError(f"--top must be at least 1, not {args.top}")
    gaps = best(found.model.fill(torch.tensor([ids]), tokenizer.mask_id), tokenizer, args.top)
    for i, guesses in enumerate(gaps):
        if len(gaps) > 1:
            print(f"gap {i + 1}")
        for piece, p in guesses:
            print(f"{p:6.1%}  {piece}")


def tune(args: Namespace) -> None:
    """plm finetune"""
    if Path(args.out).is_dir():
        raise CommandError(f"{args.out} is a folder: --out names the file of the classifier")
    for flag, given in (("scratch", args.scratch), ("max-length", args.max_length is not None)):
        if given and args.task is None:
            raise CommandError(f"--{flag} belongs to --task, which is not given")
    if args.task is not None and (args.text_column, args.label_column) != ("text", "label"):
        raise CommandError(
            f"the columns of --task {args.task} are those of its files: leave out --text-column and --label-column"
        )
    make_folder(Path(args.out).parent)  # what cannot be written is said before hours of training
    if args.task is not None:
        from plm.cli_tasks import tune_task

        return tune_task(args)
    base = load(args.checkpoint)
    train = read_labelled(args.train, args.text_column, args.label_column)
    if args.test is not None:
        test = read_labelled(args.test, args.text_column, args.label_column)
    else:
        train, test = hold_out(train, args.seed)
    settings = TuneSettings(args.epochs, args.lr, args.batch_size, args.freeze, args.seed)
    print(f"{len(train.texts):,} texts to learn from, {len(test.texts):,} to measure with", flush=True)
    model, scores = finetune(base, train, test, settings)
    shown = {name: round(score, 4) for name, score in scores.items()}
    save_classifier(args.out, model, {"base": str(args.checkpoint), "train": args.train, "metrics": shown})
    print(f"accuracy {scores['accuracy']:.3f}; always the commonest label: {scores['majority']:.3f}")
    print(f"wrote {args.out}; next: plm classify {args.out} 'a text'")
    return None


def classify(args: Namespace) -> None:
    """plm classify"""
    model = load_classifier(find(args.checkpoint))
    try:
        texts = args.texts or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    except UnicodeDecodeError as error:
        raise CommandError(f"standard input is not UTF-8 ({error})") from None
    if not texts:
        raise CommandError("there is no text to classify: give some, or one per line on standard input")
    for text, label in zip(texts, model.predict(texts)):
        print(f"{label}\t{text}")


def info(args: Namespace) -> None:
    """plm info"""
    path = Path(args.checkpoint)
    if path.is_dir() and (path / "last.safetensors").exists():
        _describe_run(path / "last.safetensors")
        if not any((path / name).exists() for name in ("model.safetensors", "best.safetensors")):
            return
    path = find(path)
    head, shapes = _header(path)
    if "run" in head:
        return _describe_run(path)
    if "config" not in head:
        raise CommandError(f"{path} is a safetensors file, but none of ours: its header holds no config")
    stored = parse_config(path, head["config"])
    kind = kind_of(stored)
    n = sum(int(torch.Size(shape).numel()) for shape, _ in shapes.values())
    print(
        f"{path}: {NAMES[kind]}, {n:,} numbers in {path.stat().st_size / 1e6:.1f} MB ({'/'.join(sorted(_types(shapes)))})"
    )
    with belonging_together(path):
        _describe(kind, stored)
    return None


def _describe(kind: str, stored: dict[str, Any]) -> None:
    sizes = stored.get(kind, stored)
    sizes = sizes.get("base", sizes) if kind == "classifier" else sizes
    print("sizes      " + ", ".join(f"{k} {v}" for k, v in sizes.items() if not isinstance(v, list | dict)))
    if kind == "classifier":
        print("labels     " + ", ".join(stored["classifier"]["labels"]))
    for name, value in stored.get("card", {}).items():
        print(f"{name:10} {json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value}")


def _header(path: Path) -> tuple[dict[str, str], dict[str, tuple[list[int], str]]]:
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            return file.metadata() or {}, {name: (s.get_shape(), s.get_dtype()) for name, s in slices.items()}
    except (SafetensorError, OSError) as error:
        raise CommandError(f"{path} is truncated or no safetensors file ({error})") from error


def _types(shapes: dict[str, tuple[list[int], str]]) -> set[str]:
    return {kind for _, kind in shapes.values()}


def _describe_run(path: Path) -> None:
    head, _ = _header(path)
    facts = parse_head(head)
    if facts.get("format") != FORMAT:
        raise CommandError(f"{path} is not the state of a run of this version")
    progress, settings = facts["progress"], facts["settings"]
    print(f"{path}: a run at step {progress['step']:,} of {settings['steps']:,}, {progress['tokens']:,} tokens read")
    print(f"time       {hours(progress['seconds'])}, of which CPU {hours(progress['cpu_seconds'])}")
    if progress["best"] is not None:
        print(f"best       {progress['best']:.4f} at step {progress['best_step']:,}")
    print("settings   " + ", ".join(f"{name} {value}" for name, value in settings.items()))


COMMANDS: dict[str, Callable[[Namespace], None]] = {
    "generate": generate_text,
    "fill-mask": fill_mask,
    "finetune": tune,
    "classify": classify,
    "info": info,
}
