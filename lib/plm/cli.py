"""The command line: plm pretrain, finetune, classify, generate, fill-mask, info. `plm --help` says how to begin."""

import argparse
import difflib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from plm import __version__
from plm.cli_options import CommandError, Parser, add_options

INTRO = """Pretrained language models, built by hand: train your own, and use them.

  plm pretrain gpt --text book.txt --out runs/mine     learn from a text; Ctrl-C and the same command again: it goes on
  plm generate runs/mine --prompt "The film"           let it write
  plm pretrain bert --text book.txt --out runs/bert
  plm fill-mask runs/bert "The film was [MASK]."       let it guess
  plm finetune runs/bert --train labelled.csv --out sentiment.safetensors
  plm classify sentiment.safetensors "What a film."
  plm info runs/mine                                   what is in a checkpoint, or how far a run is

Each command has a --help of its own."""

PRETRAIN = """Pretrain a {name} on text of your own.

The text may be plain text (an empty line ends a document), JSON lines, CSV or Parquet, one file or a folder of them,
of any size: it is cut into tokens once, kept on the disk, and never held in memory as a whole. Settings come from
flags, then from the YAML file of --config, then from the defaults below in brackets.

Everything about the run lies in the folder --out. Stop it with Ctrl-C, kill it, lose power: the same command goes on
where it was, with the same numbers to the last bit. Several processes or machines share the work:

  torchrun --nproc-per-node 2 -m plm.cli pretrain {kind} ...      or      accelerate launch -m plm.cli pretrain {kind} ..."""

MODEL = "a model.safetensors, the folder of a run or of a model of the Hugging Face hub, or hub:owner/name, which is fetched"
NO_MEMORY = (
    "out of memory: give a smaller batch (in pretrain, halve --batch-size and double --accumulate), text or model"
)
NAMES = {"elmo": "biLM (ELMo, chapter 7)", "gpt": "GPT (chapter 10)", "bert": "BERT (chapter 11)"}


def build_parser(pretraining: Sequence[str] = tuple(NAMES)) -> Parser:
    """The whole grammar. The options of each model of `pretraining` are read from its code, which must be imported for that."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="plm", description=INTRO, formatter_class=raw)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    pretrain = commands.add_parser("pretrain", help="learn a language from text", formatter_class=raw)
    kinds = pretrain.add_subparsers(dest="kind", metavar="{elmo,gpt,bert}", required=True)
    for kind, name in NAMES.items():
        about = PRETRAIN.format(name=name, kind=kind)
        usage = f"plm pretrain {kind} --text TEXT --out FOLDER [--config FILE] [settings]"
        one = kinds.add_parser(kind, help=name, description=about, usage=usage, formatter_class=raw)
        one.add_argument("--config", metavar="FILE", help="YAML file with settings, such as configs/gpt-laptop.yaml")
        if kind in pretraining:
            from plm import cli_pretrain

            for title, group in cli_pretrain.groups(kind).items():
                add_options(one, title, group)

    generate = commands.add_parser("generate", help="let a GPT go on with a text")
    generate.add_argument("checkpoint", help=MODEL)
    generate.add_argument("--prompt", default="", help="what to go on with; nothing: it begins a text of its own")
    generate.add_argument("--tokens", type=int, default=100, metavar="N", help="how many at most [100]")
    generate.add_argument("--samples", type=int, default=1, metavar="N", help="how many texts [1]")
    generate.add_argument("--temperature", type=float, default=0.8, metavar="X", help="0: always the most likely [0.8]")
    generate.add_argument("--top-k", type=int, metavar="N", help="draw among the N most likely tokens only")
    generate.add_argument("--top-p", type=float, metavar="X", help="draw among those that hold the share X together")
    generate.add_argument("--seed", type=int, default=0, metavar="N", help="another one, another text [0]")

    fill = commands.add_parser("fill-mask", help="let a BERT guess what stands at [MASK]")
    fill.add_argument("checkpoint", help=MODEL)
    fill.add_argument("text", help="a text with one [MASK] or more")
    fill.add_argument("--top", type=int, default=5, metavar="N", help="guesses per gap [5]")

    tune = commands.add_parser("finetune", help="teach a pretrained model to tell labels apart")
    tune.add_argument("checkpoint", help=MODEL + ", or minilm")
    tune.add_argument(
        "--train", required=True, metavar="FILE", help="CSV, TSV, JSON lines or Parquet with text and label"
    )
    tune.add_argument(
        "--test", metavar="FILE", help="the same, to measure with; without: a tenth of --train, drawn by --seed"
    )
    tune.add_argument("--out", required=True, metavar="FILE", help="where the classifier goes, such as out.safetensors")
    tune.add_argument("--text-column", default="text", metavar="NAME", help="[text]")
    tune.add_argument("--label-column", default="label", metavar="NAME", help="[label]")
    tune.add_argument("--epochs", type=int, default=3, metavar="N", help="passes over the data [3]")
    tune.add_argument("--lr", type=float, default=5e-4, metavar="X", help="highest learning rate [5e-4]")
    tune.add_argument("--batch-size", type=int, default=16, metavar="N", help="texts per update [16]")
    tune.add_argument("--freeze", action="store_true", help="train only the last layer: fast, and a control")
    tune.add_argument("--seed", type=int, default=0, metavar="N", help="[0]")
    tune.add_argument(
        "--task",
        choices=("sst2", "mrpc", "squad", "conll2003"),
        help="files in the format of that data set, on a BERT; --train hub fetches the data set itself",
    )
    tune.add_argument("--scratch", action="store_true", help="with --task: forget what was learnt, the other control")
    tune.add_argument("--max-length", type=int, metavar="N", help="with --task: tokens per input [128]")

    classify = commands.add_parser("classify", help="label texts with a model of plm finetune")
    classify.add_argument("checkpoint", help="a file of plm finetune")
    classify.add_argument("texts", nargs="*", help="texts; none: one per line from standard input")

    info = commands.add_parser("info", help="say what is in a checkpoint, or how far a run is")
    info.add_argument("checkpoint", help="a .safetensors file, or the folder of a run")
    return parser


def _pretrain(args: argparse.Namespace) -> None:
    from plm import cli_pretrain
    from plm.cli_options import read_config

    known = {name: option for group in cli_pretrain.groups(args.kind).values() for name, option in group.items()}
    values: dict[str, Any] = {name: default for name, (_, default, _) in known.items()}
    if args.config is not None:
        values |= read_config(args.config, known)
    values |= {name: value for name, value in vars(args).items() if name in known}
    cli_pretrain.run(args.kind, values, lambda line: print(line, flush=True))


def _parse(given: Sequence[str]) -> argparse.Namespace:
    kind = given[1] if given[:1] == ["pretrain"] and len(given) > 1 else ""
    args, rest = build_parser([kind] if kind in NAMES else []).parse_known_args(given)
    if rest:
        name = f"{args.command} {getattr(args, 'kind', '')}".rstrip()
        flags = {"--" + known.replace("_", "-") for known in vars(args)} - {"--command", "--kind"}
        if args.command == "pretrain":
            from plm.cli_pretrain import groups

            flags |= {"--" + known.replace("_", "-") for group in groups(args.kind).values() for known in group}
        near = difflib.get_close_matches(rest[0], flags, 1)
        meant = f"; is {near[0]} meant?" if near else f" (see plm {name} --help)"
        raise CommandError(f"{name} does not know {rest[0]}{meant}")
    return args


def _one_line(message: Any) -> str:
    return f"plm: {' '.join(str(message).split())}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. 0: done; 1: training failed, or nobody reads the output; 2: the command or a file is wrong.

    What is wrong is said in one line; with PLM_TRACEBACK=1 in the environment where it happened, too.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character shows another
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *where, **more: print(_one_line(message), file=sys.stderr)
            args = _parse(list(sys.argv[1:] if arguments is None else arguments))
            if args.command == "pretrain":
                _pretrain(args)
            else:
                from plm import cli_use

                cli_use.COMMANDS[args.command](args)
            sys.stdout.flush()
    except SystemExit as done:
        return int(done.code or 0)
    except BrokenPipeError:  # as of `plm info … | head -1`; what is still held back must not be tried again at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (CommandError, ValueError, TypeError, OSError, ImportError, FloatingPointError) as error:
        if os.environ.get("PLM_TRACEBACK"):
            raise
        print(_one_line(error), file=sys.stderr)
        return 1 if isinstance(error, FloatingPointError) else 2
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or re.search(r"out of memory|can't allocate memory", str(error))):
            raise
        print(_one_line(NO_MEMORY), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("plm: interrupted", file=sys.stderr)
        return 130
    if "torch" in sys.modules and sys.modules["torch"].distributed.is_initialized():
        sys.modules["torch"].distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
