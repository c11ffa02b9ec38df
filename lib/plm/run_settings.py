"""How a pretraining run goes: its settings, how far it is, and whether a stored one is the same run."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from plm.schedules import schedule


@dataclass(frozen=True)
class Settings:
    """How a run goes; what it learns is the task's."""

    steps: int  # updates in all
    lr: float = 1e-3  # the highest learning rate
    schedule: str = "cosine"  # lr falls: cosine or linear to the end, cooldown over the last updates, constant never
    warmup: int = 0  # updates over which the rate rises
    cooldown: int = 0  # updates over which it falls at the end, for the shape "cooldown"
    floor: float = 0.1  # the last rate, as a share of the highest
    accumulate: int = 1  # micro-batches per update and process: a big batch in little memory
    clip: float | None = 1.0  # bound on the norm of the gradient
    weight_decay: float = 0.1  # on matrices only
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    precision: str | None = None  # "no", "bf16" or "fp16"; None: as `accelerate launch` was told, else "no"
    seed: int = 0  # of dropout and whatever else the model draws
    cpu: bool = False  # stay on the CPU even if there is a GPU
    workers: int = 0  # processes that prepare batches
    log_every: int = 10  # steps between rows of train.csv
    evaluate_every: int = 500  # steps between evaluations; after the last step there is always one
    save_minutes: float = 3.0  # between states on disk; 0: after every step
    tensorboard: bool = False  # also write event files for TensorBoard

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value) and name not in ("lr", "clip"):
                raise ValueError(f"{name} must be a finite number, not {value}")
        for name in ("steps", "accumulate", "log_every", "evaluate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("weight_decay", "workers", "save_minutes", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, not {getattr(self, name)}")
        if not 0 < self.lr < math.inf or not (self.clip is None or self.clip > 0):
            raise ValueError(f"lr and clip must be above 0; got {self.lr} and {self.clip}")
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1 and self.eps > 0):
            raise ValueError(
                f"beta1 and beta2 lie in 0 … 1, below 1, and eps above 0; got {self.beta1}, {self.beta2} and {self.eps}"
            )
        if self.seed >= 2**32:
            raise ValueError(f"seed must be below 2 ** 32, not {self.seed}")
        if self.precision not in (None, "no", "bf16", "fp16"):
            raise ValueError(f'precision is "no", "bf16" or "fp16", not {self.precision!r}')
        self.rate(0)

    def rate(self, step: int) -> float:
        """The learning rate of an update."""
        return self.lr * schedule(self.schedule, self.steps, self.warmup, self.cooldown, self.floor)(step)


# What may change when a run goes on, since it touches no update: these freely, …
FREE = {"workers", "log_every", "evaluate_every", "save_minutes", "tensorboard", "cpu", "accumulate"}
# … and these if the learning rate of every update already done stays what it was.
SHAPE = ("steps", "schedule", "warmup", "cooldown", "floor")


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    step: int = 0  # updates done
    tokens: int = 0  # read so far, by all processes
    seconds: float = 0.0  # of training, evaluation included, over all starts
    cpu_seconds: float = 0.0  # the same for the main process's CPU time
    best: float | None = None
    best_step: int | None = None


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameters in two groups: matrices, which decay, and the rest: biases, norms, and tables of vectors, which do not.

    By shape and type, never by name; a tied table counts as a table. Each trainable parameter stands in exactly one group.
    """
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)}
    groups: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for parameter in model.parameters():
        if parameter.requires_grad:
            groups[parameter.ndim >= 2 and id(parameter) not in tables].append(parameter)
    rest, matrices = groups
    both = ({"params": matrices, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0})
    return [group for group in both if group["params"]]


def check_same(path: Path, facts: Mapping[str, Any], identity: Mapping[str, Any], settings: Settings) -> None:
    """Refuse the state of another run: `facts` is what `save_state` stored, the rest what this run wants to be."""
    old, new = facts["identity"], _plain(identity)
    different = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
    if different:
        name = different[0]
        raise ValueError(
            f"{path} is of a run with another {name}: {_shown(old, new, name)}. Give that value, or another folder"
        )
    step, before = facts["progress"]["step"], Settings(**facts["settings"])
    if step > settings.steps or any(before.rate(s) != settings.rate(s) for s in range(step)):
        changes = [f"{n} {getattr(before, n)}" for n in SHAPE if getattr(before, n) != getattr(settings, n)]
        raise ValueError(
            f"{path} has done {step} updates of a run planned with {', '.join(changes)}: as it is planned now, their learning "
            "rates would have been others. Give the old values, or another folder"
        )


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))  # tuples as lists, as they come back from a file


def _shown(old: Any, new: Any, name: str) -> str:
    """Both values; of dictionaries within dictionaries only the entries that differ."""
    said = [
        f"{key or 'it'} was {_brief(a)} and is now {_brief(b)}"
        for key, a, b in _different(old.get(name), new.get(name))
    ]
    hashed = any(text.startswith("text was") for text in said)
    return ", ".join(said) + " (a hash of what is in the text, its tokenizer, and how it is cut)" * hashed


def _different(a: Any, b: Any, key: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        return [found for name in sorted(a | b) for found in _different(a.get(name), b.get(name), name)]
    return [(key, a, b)] if a != b else []


def _brief(value: Any) -> str:
    whole = isinstance(value, str) and len(value) == 64  # a SHA-256
    return f"{value[:8]}…" if whole else repr(value)
