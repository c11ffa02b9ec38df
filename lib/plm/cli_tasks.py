"""plm finetune --task: SST-2, MRPC, SQuAD and CoNLL-2003 from their own files or from the hub."""

from argparse import Namespace

from plm.checkpoints import NAMES, load
from plm.cli_options import CommandError
from plm.downstream import Recipe
from plm.tasks import finetune_task, read_hub, read_task, save_head


def tune_task(args: Namespace) -> None:
    """plm finetune CHECKPOINT --task TASK --train FILE|hub [--test FILE] --out FILE"""
    base = load(args.checkpoint)
    if base.kind != "bert":
        raise CommandError(f"--task needs a BERT, and {args.checkpoint} holds a {NAMES[base.kind]}")
    if args.train == "hub":
        train, test = (read_hub(args.task, split) for split in ("train", "validation"))
    elif args.test is None:
        raise CommandError(f"--task {args.task} measures on a file of its own: name one with --test")
    else:
        train, test = (read_task(args.task, path) for path in (args.train, args.test))
    if args.freeze and args.scratch:
        raise CommandError("--freeze keeps what was learnt and --scratch forgets it: give one of them")
    way = "frozen" if args.freeze else "scratch" if args.scratch else "fine-tuned"
    recipe = Recipe(way, args.epochs, args.lr, args.batch_size, seed=args.seed, pad_id=base.tokenizer.pad_id)
    print(f"{len(train):,} examples to learn from, {len(test):,} to measure with; the encoder is {way}", flush=True)
    longest = 128 if args.max_length is None else args.max_length
    head, labels, scores = finetune_task(args.task, base, train, test, recipe, longest)
    shown = {name: round(float(score), 4) for name, score in scores.items()}
    card = {"base": str(args.checkpoint), "train": args.train, "way": way, "metrics": shown}
    save_head(args.out, args.task, head, base.tokenizer, labels, card)
    print(", ".join(f"{name} {score:.3f}" for name, score in shown.items()))
    print(f"wrote {args.out}")
