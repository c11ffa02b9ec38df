"""The folder of `plm pretrain` before anything is trained in it: is it one of ours, and which tokenizer belongs to it?"""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from filelock import FileLock

from plm.cli_options import CommandError
from plm.corpus_source import RUN_MARK
from plm.files import write_atomically

T = TypeVar("T")
# What a tokenizer depends on; the last three also shape it, so that a begun run cannot change them.
CUTTING = ("text", "column", "boundary", "hub_config", "split", "documents", "vocab_size", "lowercase", "characters")
SHAPING = CUTTING[-3:]
STATE, CONFIG, TOKENIZER = "last.safetensors", "config.yaml", "tokenizer.json"
OUTPUTS = ("model.safetensors", "best.safetensors", "train.csv", "eval.csv", TOKENIZER)
_HEAD = re.compile(r"# plm pretrain (\w+)")
_OURS = {"text", "out", "hold_out", "vocab_size", "steps"}  # in every config that a run wrote


def write_config(folder: Path, kind: str, values: dict[str, Any]) -> None:
    """Every setting of the run, as `--config` reads it."""
    head = f"# plm pretrain {kind}: every setting of the run in this folder\n"
    write_atomically(folder / CONFIG, head + yaml.safe_dump(values, sort_keys=False, allow_unicode=True))


def tokenizer_of(
    folder: Path, kind: str, values: dict[str, Any], make: Callable[[], str], read: Callable[[Path], T],
    say: Callable[[str], None],
) -> T:  # fmt: skip
    """The tokenizer of a run: learnt once, and the same for ever after, once there is a state.

    make() learns one and gives its text; read(path) loads it. Of the processes on a machine the first makes it. A folder that
    holds something else than a run of this kind is refused, and nothing in it is touched.
    """
    path, first = folder / TOKENIZER, os.environ.get("LOCAL_RANK", "0") == "0"
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        with FileLock(folder / RUN_MARK):
            changed = _changed(folder, kind, values)
            if first:
                _prepare(folder, kind, values, changed)
                if not path.exists():
                    say("learning a tokenizer from the text")
                    write_atomically(path, make())
            if path.exists() and (first or not changed):
                return _read(path, kind, read)
        time.sleep(0.2)


def _changed(folder: Path, kind: str, values: dict[str, Any]) -> list[str]:
    """Which settings that a tokenizer depends on are others than those in the folder; "model" for another kind of model."""
    stored = _stored(folder)
    if stored is None:
        return []
    old_kind, old = stored
    if old_kind != kind:
        if (folder / STATE).exists():
            raise CommandError(f"{folder} holds the run of another model, {old_kind}: give another folder")
        return ["model"]
    changed = [name for name in CUTTING if name in old and old[name] != values.get(name)]
    for name in changed:
        if name in SHAPING and (folder / STATE).exists():
            raise CommandError(
                f"{folder} was begun with {name} {old[name]}, not {values.get(name)}: give that, or another folder"
            )
    return changed


def _prepare(folder: Path, kind: str, values: dict[str, Any], changed: list[str]) -> None:
    if (folder / STATE).exists():
        return  # its settings are those of the run until it has gone on
    if changed:  # of another text or size, and nothing was trained with it yet
        (folder / TOKENIZER).unlink(missing_ok=True)
    write_config(folder, kind, values)


def _stored(folder: Path) -> tuple[str, dict[str, Any]] | None:
    """(kind, settings) of the run in this folder, or None if it is a new one."""
    config = folder / CONFIG
    if not config.exists():
        strange = [name for name in OUTPUTS if (folder / name).exists()]
        if strange and not (folder / STATE).exists():
            raise CommandError(f"{folder} holds a {strange[0]} that is of no run of plm pretrain: give another folder")
        return None
    try:
        text = config.read_text(encoding="utf-8")
        old = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError):
        old = None
    if not isinstance(old, dict) or not old.keys() >= _OURS:
        raise CommandError(f"{config} was not written by a run: move it elsewhere, or give another folder")
    head = _HEAD.match(text)
    return head[1] if head else "bert" if "mask_rate" in old else "elmo" if "sampled" in old else "gpt", old


def _read(path: Path, kind: str, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except Exception as error:  # in Rust every error is an Exception
        raise CommandError(
            f"{path} is not the tokenizer of a {kind} ({error}): delete it, and it is learnt anew from the same text"
        ) from error
