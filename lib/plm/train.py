"""One training loop for the whole book, and what surrounds it: seeds, device, schedules, checkpoints."""

import copy
import json
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from plm.evaluate import modes, restore
from plm.files import write_atomically
from plm.progress import progress

T = TypeVar("T")


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - libraries that use the old global generator must be seeded too
    torch.manual_seed(seed)


def pick_device(name: str | None = None) -> torch.device:
    """The named device, or the best one present: CUDA, then Apple's MPS, then the CPU."""
    if name is not None:
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def linear_decay(steps: int, warmup: int = 0, floor: float = 0.0) -> Callable[[int], float]:
    """Factor on the learning rate at a step: up in a line over `warmup` steps, then down in a line to `floor`.

    The first step already moves the weights (factor 1 / (warmup + 1), not 0), and the last has factor `floor` or a step above.
    """
    if steps < 1 or warmup < 0:
        raise ValueError(f"steps must be at least 1 and warmup at least 0; got {steps} and {warmup}")

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return max(floor, 1 - (step - warmup) / max(1, steps - warmup))

    return factor


def inverse_sqrt(warmup: int) -> Callable[[int], float]:
    """Factor on the learning rate at a step: up in a line to 1 over `warmup` steps, then down as 1 / sqrt(step).

    Unlike `linear_decay` it need not know when training ends. The schedule of Vaswani et al. 2017, eq. 3 (there d_model **
    -0.5 * min(step ** -0.5, step * warmup ** -1.5), step counted from 1), divided by its peak, (d_model * warmup) ** -0.5.
    """
    if warmup < 0:
        raise ValueError(f"warmup must be at least 0 steps, not {warmup}")
    peak = max(1, warmup)

    def factor(step: int) -> float:
        return min((step + 1) / peak, math.sqrt(peak / (step + 1)))

    return factor


@dataclass
class History:
    """What happened in a training run: one entry per measurement."""

    steps: list[int] = field(default_factory=list)  # update steps done at each evaluation
    scores: list[float] = field(default_factory=list)  # what `evaluate` returned there
    losses: list[float] = field(default_factory=list)  # training loss of every step
    best_step: int | None = None
    best_score: float | None = None
    seconds: float = 0.0


def fit(
    model: nn.Module,
    loss: Callable[[Any], Tensor],
    batches: Iterable[Any],
    steps: int,
    lr: float = 1e-3,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Callable[[int], float] | None = None,
    clip: float | None = None,
    evaluate: Callable[[], float] | None = None,
    evaluate_at: Iterable[int] = (),
    higher_is_better: bool = True,
    patience: int | None = None,
    keep_best: bool = False,
    desc: str = "train",
) -> History:
    """Train `model` for at most `steps` updates and record what happened.

    loss(batch) -> scalar tensor. `batches` is started again when it runs out. The optimiser is Adam on the parameters
    that require gradients, unless one is given; `schedule(step)` is a factor on its learning rates, `clip` a bound on the
    gradient norm. `evaluate()` is called, in evaluation mode and without gradients, before the update with each number
    in `evaluate_at` and after the last. Training ends early after `patience` evaluations without a better score;
    `keep_best` puts the parameters of the best evaluation back. Each part of the model is left in the mode it was found in.
    A loss that is not finite raises FloatingPointError at once.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if (patience is not None or keep_best) and evaluate is None:
        raise ValueError("patience and keep_best need an `evaluate` function")
    optimizer = optimizer or torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
    base_rates = [group["lr"] for group in optimizer.param_groups]
    place = {id(p): i for i, p in enumerate(model.parameters())}
    # In the model's order, so that the sum behind the norm does not depend on how the optimiser groups them.
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    trained.sort(key=lambda p: place.get(id(p), len(place)))
    marks, history, found, started = set(evaluate_at), History(), modes(model), time.perf_counter()
    best_state: dict[str, Any] | None = None

    def measure(step: int) -> bool:
        """Evaluate; return whether patience has run out."""
        nonlocal best_state
        if evaluate is None:
            return False
        model.eval()
        with torch.no_grad():
            score = float(evaluate())
        model.train()
        if math.isnan(score):
            raise FloatingPointError(f"evaluate() returned NaN at step {step}: no score can be compared with it")
        history.steps.append(step)
        history.scores.append(score)
        best = history.best_score
        if best is None or (score > best if higher_is_better else score < best):
            history.best_score, history.best_step = score, step
            # A state_dict is a live reference: without the copy "best" would go on training.
            best_state = copy.deepcopy(model.state_dict()) if keep_best else None
        since_best = len(history.steps) - 1 - history.steps.index(history.best_step or 0)
        return patience is not None and since_best >= patience

    model.train()
    stream, step = _endless(batches), 0
    try:
        for step in progress(range(steps), desc, total=steps):
            if step in marks and measure(step):
                break
            for group, rate in zip(optimizer.param_groups, base_rates):
                group["lr"] = rate * (schedule(step) if schedule else 1.0)
            value = loss(next(stream))
            if not torch.isfinite(value):
                raise FloatingPointError(
                    f"the loss is {value.item()} at step {step}: try a smaller learning rate or clip"
                )
            optimizer.zero_grad()
            value.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(trained, clip)
            optimizer.step()
            history.losses.append(value.item())
        else:
            measure(steps)
    finally:
        if best_state is not None:  # also after an error or Ctrl-C: that is when the best is needed most
            model.load_state_dict(best_state)
        for group, rate in zip(optimizer.param_groups, base_rates):
            group["lr"] = rate
        restore(found)
    history.seconds = time.perf_counter() - started
    return history


def _endless(batches: Iterable[T]) -> Iterator[T]:
    if iter(batches) is batches:
        yield from batches
        raise ValueError(
            "the batches ran out: pass something that can be started again (a list, a loader), or enough batches"
        )
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise ValueError("there is not a single batch to train on")


class Batches:
    """Shuffled mini-batches of tensors that share their first dimension; each pass has a new order, fixed by the seed."""

    def __init__(self, *tensors: Tensor, batch_size: int, seed: int = 0):
        sizes = {len(tensor) for tensor in tensors}
        if len(sizes) != 1:
            raise ValueError(f"all tensors need the same first dimension, got {[tuple(t.shape) for t in tensors]}")
        if batch_size < 1 or sizes == {0}:
            raise ValueError(
                f"need at least one example and a batch size of at least 1, got {sizes.pop()} and {batch_size}"
            )
        self.tensors, self.batch_size = tensors, batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return -(-len(self.tensors[0]) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        order = torch.randperm(len(self.tensors[0]), generator=self.generator)
        for rows in order.split(self.batch_size):
            yield tuple(tensor[rows] for tensor in self.tensors)


def save_checkpoint(path: str | Path, model: nn.Module, config: dict[str, Any], half: bool = False) -> Path:
    """Write a model's parameters and its config as one safetensors file; `half` stores floats as float16.

    Tied tensors are written once under each name. The file holds plain numbers: loading it can run no code.
    """
    state = {}
    for name, tensor in model.state_dict().items():
        tensor = tensor.detach().cpu().contiguous().clone()
        state[name] = tensor.half() if half and tensor.is_floating_point() else tensor
        if not torch.equal(torch.isfinite(state[name]), torch.isfinite(tensor)):
            raise ValueError(f"{name} holds values beyond float16 (65504): save with half=False")
    return write_atomically(path, save(state, metadata={"config": json.dumps(config, sort_keys=True)}))


def load_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read (state dict in float32, config) from a file of `save_checkpoint`; a broken or foreign file is refused."""
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        with safe_open(path, framework="pt") as file:
            config = (file.metadata() or {}).get("config")
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error}): fetch or make it again") from error
    small = (torch.float16, torch.bfloat16)
    return {name: t.float() if t.dtype in small else t for name, t in state.items()}, parse_config(path, config)


def parse_config(path: str | Path, config: str | None) -> dict[str, Any]:
    """The config that `save_checkpoint` put into a header; that of another program is refused."""
    try:
        parsed = json.loads(config) if config is not None else None
    except json.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError(f"{path} has no config in its metadata: it was not written by plm.train.save_checkpoint")
    return parsed
