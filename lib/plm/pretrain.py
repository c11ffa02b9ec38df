"""One pretraining loop for all language models: on a CPU, on a GPU in mixed precision, or in many processes.

The whole design: a batch is a function of its number, and chance is a function of (seed, step, process). So all that a run has
to remember is weights, optimiser and the number of its next step; whoever knows these goes on bit for bit.

    for each step:
        draw the micro-batches k of this step that are ours          a pure function of k
        count over how many items each loss goes, all processes      one small all-reduce
        backward of sum / count for each of them                     so accumulation and sharding equal one big batch
        clip, set the learning rate, update                          functions of the step
        now and then: log, evaluate, save                            safetensors + JSON, atomically

Distribution and mixed precision are Hugging Face Accelerate's: the same script runs under `python`, `torchrun` and
`accelerate launch`.
"""

import json
import math
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from plm.evaluate import modes, restore
from plm.processes import accelerator, deaf
from plm.run_files import StopRequest, load_state, only_one_run, remove_leftovers, restore_state, save_state
from plm.run_log import Clock, Log, board, hours
from plm.run_settings import FREE, SHAPE, Progress, Settings, check_same, decay_groups
from plm.train import seed_everything

Batch = dict[str, Tensor]


class Task(Protocol):
    """What is learnt: a model, its batches, its losses, and how well it does."""

    @property
    def model(self) -> nn.Module:
        """What is trained."""

    def batch(self, k: int) -> Batch:
        """Micro-batch number k of the run: the same whenever, wherever and in whatever order it is asked for."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """For each loss, over how many items its mean goes; and "tokens", how many tokens were read."""

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """For each loss, the sum over its items, a scalar. Training minimises the sum of their means."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Measures on held-out text, always the same names; the first decides which model is best, lower is better."""

    def save(self, path: Path, /) -> object:
        """Write the model for those who use it."""

    def identity(self) -> dict[str, Any]:
        """JSON-able: what must be equal when a run goes on, such as sizes, text and seed."""


class _Losses(nn.Module):
    """The model with its losses as its forward: what Accelerate wraps, so that every use of it is synchronised and cast."""

    def __init__(self, task: Task):
        super().__init__()
        self.model, self.task = task.model, task

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.task.losses(self.model, batch)


class _Numbered(Dataset[Batch]):
    def __init__(self, task: Task):
        self.batch = task.batch

    def __getitem__(self, k: int) -> Batch:
        return self.batch(k)


def pretrain(
    task: Task, folder: str | Path, settings: Settings, echo: Callable[[str], None] | None = None, held: bool = False
) -> Progress:
    """Train until `settings.steps`, or go on where an earlier call in this `folder` was stopped or killed.

    The folder gets last.safetensors (everything, to go on), best.safetensors and model.safetensors (`task.save`, the best by
    evaluation and the last), train.csv and eval.csv. `echo` is given a line of progress now and then. `held`: the caller holds
    `only_one_run(folder)` already.
    Ctrl-C or SIGTERM: the step is finished, the state saved, and the call returns, with `step` below `settings.steps`: look
    before you use the model. ValueError if the state in the folder is damaged or of another run: nothing is overwritten.
    FloatingPointError if the loss is no longer finite.
    """
    folder = Path(folder)
    run = Run(task, folder, settings, echo)
    with only_one_run(folder, run.accelerator.is_main_process and not held), StopRequest() as stop:
        run.resume()
        return run.train(stop)


class Run:
    """A run: one task, one folder."""

    def __init__(self, task: Task, folder: Path, settings: Settings, echo: Callable[[str], None] | None = None):
        self.accelerator = accelerator(settings.precision, settings.cpu)
        self.settings = replace(settings, precision=self.accelerator.mixed_precision)
        self.task, self.folder, self.state_path = task, folder, folder / "last.safetensors"
        self.world, self.rank = self.accelerator.num_processes, self.accelerator.process_index
        self.echo = echo if echo and self.accelerator.is_main_process else lambda line: None
        self.progress = Progress()
        task.model.to(self.accelerator.device)  # before the optimiser is made: it keeps the tensors it is given
        groups = decay_groups(task.model, settings.weight_decay)
        betas = (settings.beta1, settings.beta2)
        optimizer = torch.optim.AdamW(groups, lr=settings.lr, betas=betas, eps=settings.eps, fused=True)
        self.wrapped, self.optimizer = self.accelerator.prepare(_Losses(task), optimizer)

    # --- what a stopped run needs ---

    def identity(self) -> dict[str, Any]:
        """What must be the same when the run goes on."""
        fixed = {name: value for name, value in asdict(self.settings).items() if name not in (*FREE, *SHAPE)}
        return fixed | {"task": self.task.identity(), "micro_batches": self.settings.accumulate * self.world}

    def resume(self) -> None:
        """Go on from last.safetensors, if there is one; open the logs."""
        if self.state_path.exists():
            tensors, facts = load_state(self.state_path)
            check_same(self.state_path, facts, self.identity(), self.settings)
            restore_state(tensors, self.task.model, self.optimizer.optimizer)
            self.progress = Progress(**facts["progress"])
            if self.accelerator.scaler is not None and facts["scaler"]:
                self.accelerator.scaler.load_state_dict(facts["scaler"])
            self.echo(f"going on from {self.state_path} at step {self.progress.step}")
        self._agree()
        processes = f"{self.world} process{'es' * (self.world > 1)}"
        self.echo(f"{processes} on {self.accelerator.device.type}, precision {self.settings.precision}")
        if self.accelerator.is_main_process:
            for name in ("last.safetensors", "best.safetensors", "model.safetensors", "train.csv", "eval.csv"):
                remove_leftovers(self.folder / name)
            self.logs = {name: Log(self.folder / f"{name}.csv", self.progress.step) for name in ("train", "eval")}
            self.board = board(self.folder, self.progress.step) if self.settings.tensorboard else None

    def _agree(self) -> None:
        """Processes that were given another text, other settings or another state would train nonsense in silence."""
        code = zlib.crc32(json.dumps(self.identity(), sort_keys=True).encode())
        ours = torch.tensor([[self.progress.step, code]], device=self.accelerator.device)
        steps, codes = zip(*self.accelerator.gather(ours).tolist()) if self.world > 1 else ((0,), (0,))
        if len(set(steps)) > 1:
            raise ValueError(f"the processes stand at the steps {steps}: all must see the same folder {self.folder}")
        if len(set(codes)) > 1:
            raise ValueError("the processes were given different settings, texts or tokenizers: they need the same")

    def save(self) -> None:
        """Write everything that `resume` needs."""
        if self.accelerator.is_main_process:
            self.progress = self.clock.add_to(self.progress)
            facts: dict[str, Any] = {"identity": self.identity(), "settings": asdict(self.settings)}
            facts["progress"] = asdict(self.progress)
            facts["scaler"] = self.accelerator.scaler.state_dict() if self.accelerator.scaler is not None else None
            save_state(self.state_path, self.task.model, self.optimizer.optimizer, facts)

    # --- the loop ---

    def train(self, stop: StopRequest) -> Progress:
        """Do the updates that are left; return early when asked to stop."""
        s, batches, saved, found = self.settings, self._batches(), time.monotonic(), modes(self.task.model)
        self.task.model.train()
        self.clock = Clock(self.progress)
        asked = False
        try:
            while self.progress.step < s.steps and not asked:
                step = self.progress.step + 1  # the number of updates done when this one is
                log, evaluate = (step % every == 0 or step == s.steps for every in (s.log_every, s.evaluate_every))
                asked = self._update(next(batches), log, bool(stop))
                if evaluate:
                    self._evaluate()
                if time.monotonic() >= saved + 60 * s.save_minutes or asked or step == s.steps:
                    self.save()
                    saved = time.monotonic()
        finally:
            restore(found)
            self._once(lambda: self.board.close() if self.board is not None else None)
        if self.progress.step == s.steps:
            self._once(lambda: self.task.save(self.folder / "model.safetensors"))
        return self.progress

    def _batches(self) -> Iterator[list[Batch]]:
        """The micro-batches of this process, step by step. Number k of the run goes to process k % world."""
        s = self.settings
        mine = range(
            self.progress.step * s.accumulate * self.world + self.rank, s.steps * s.accumulate * self.world, self.world
        )
        # A generator of its own: else the loader would draw from the one that dropout uses.
        loader = DataLoader(
            _Numbered(self.task), None, sampler=mine, num_workers=s.workers, generator=torch.Generator(),
            pin_memory=self.accelerator.device.type == "cuda", worker_init_fn=deaf,
        )  # fmt: skip
        stream = iter(loader)
        for _ in range(self.progress.step, s.steps):
            yield [next(stream) for _ in range(s.accumulate)]

    def _update(self, batches: list[Batch], log: bool, stop: bool) -> bool:
        """One step of the optimiser. Returns whether any process was asked to stop."""
        counts, asked = self._total([self.task.counts(batch) for batch in batches], stop)
        step, accelerator = self.progress.step, self.accelerator
        seed_everything(seed_of(self.settings.seed, step, self.rank))
        means: dict[str, Tensor] = {}
        for i, batch in enumerate(batches):
            batch = {name: tensor.to(accelerator.device, non_blocking=True) for name, tensor in batch.items()}
            with accelerator.no_sync(self.wrapped) if i + 1 < len(batches) else nullcontext():
                parts = {name: total / max(1, counts[name]) for name, total in self.wrapped(batch).items()}
                # Processes average their gradients; we want the sum.
                accelerator.backward(torch.stack(list(parts.values())).sum() * self.world)
            means = {name: part.detach() + means.get(name, 0.0) for name, part in parts.items()}
        norm = accelerator.clip_grad_norm_(self.task.model.parameters(), self.settings.clip or math.inf)
        if accelerator.scaler is None and not torch.isfinite(norm):  # in fp16 the scaler skips such a step
            raise FloatingPointError(
                f"the gradient is {float(norm)} at step {step}: try a smaller lr, a longer warm-up or a smaller clip"
                + f". The last good state is in {self.state_path}" * self.state_path.exists()
            )
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress = replace(self.progress, step=step + 1, tokens=self.progress.tokens + counts["tokens"])
        if log:
            self._log(means, float(norm))
        return asked

    def _total(self, counts: list[dict[str, int]], stop: bool) -> tuple[dict[str, int], bool]:
        """The counts of all micro-batches of all processes, and whether any was asked to stop."""
        names = sorted(counts[0])
        values = torch.tensor([*(sum(c[name] for c in counts) for name in names), stop])
        if self.world > 1:
            values = self.accelerator.reduce(values.to(self.accelerator.device), "sum")
        *totals, asked = values.tolist()
        return dict(zip(names, totals)), bool(asked)

    def _log(self, means: dict[str, Tensor], norm: float) -> None:
        names = list(means)
        values = torch.stack([means[name] for name in names])
        losses: list[float] = (self.accelerator.reduce(values, "sum") if self.world > 1 else values).tolist()
        step, speed = self.progress.step, self.clock.speed(self.progress)
        row = {"step": step, "tokens": self.progress.tokens, "lr": self.settings.rate(step - 1), "grad_norm": norm}
        row |= {"loss": sum(losses)} | (dict(zip(names, losses)) if len(names) > 1 else {})
        self.progress = self.clock.add_to(self.progress)
        self._write("train", row | {"tokens_per_second": round(speed), "seconds": round(self.progress.seconds, 2)})
        left = self.progress.seconds / step * (self.settings.steps - step)
        line = f"step {step}/{self.settings.steps}  loss {row['loss']:.4f}  lr {row['lr']:.2e}  {speed:,.0f} tokens/s"
        self.clock.now_and_then(lambda: self.echo(f"{line}  {hours(left)} left"))

    def _evaluate(self) -> None:
        found = modes(self.task.model)
        self.task.model.eval()
        with torch.no_grad():  # every process for itself: same weights, same numbers, nobody waits
            scores = {name: float(value) for name, value in self.task.evaluate(self.task.model).items()}
        restore(found)
        step, first = self.progress.step, next(iter(scores))
        if any(math.isnan(value) for value in scores.values()):
            raise FloatingPointError(f"the evaluation after step {step} gave NaN: {scores}")
        if self.progress.best is None or scores[first] < self.progress.best:
            self.progress = replace(self.progress, best=scores[first], best_step=step)
            self._once(lambda: self.task.save(self.folder / "best.safetensors"))
        self.progress = self.clock.add_to(self.progress)
        times = {"seconds": round(self.progress.seconds, 2), "cpu_seconds": round(self.progress.cpu_seconds, 2)}
        self._write("eval", {"step": step, "tokens": self.progress.tokens} | times | scores)
        self.echo(f"step {step}: " + ", ".join(f"{name} {value:.4f}" for name, value in scores.items()))

    def _once(self, do: Callable[[], object]) -> None:
        """For the main process only."""
        if self.accelerator.is_main_process:
            do()

    def _write(self, name: str, row: dict[str, float | int]) -> None:
        if self.accelerator.is_main_process:
            self.logs[name].write(row)
            if self.board is not None:
                for key in row.keys() - {"step"}:
                    self.board.add_scalar(f"{name}/{key}", row[key], row["step"])


def seed_of(*numbers: int) -> int:
    """A seed from several numbers, such as (seed, step, process): neighbours give unrelated ones. Below 2 ** 32."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
