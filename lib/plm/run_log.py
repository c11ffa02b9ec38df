"""What a run says about itself: CSV files that a kill cannot spoil, speed, time left, TensorBoard."""

import csv
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from plm.files import write_atomically
from plm.run_settings import Progress

Row = Mapping[str, float | int]


class Log:
    """A CSV file, one row per measurement. On opening, rows beyond `last_step` go: the run will measure them again."""

    def __init__(self, path: Path, last_step: int):
        self.path = path
        rows = [row for row in read_log(path) if row["step"] <= last_step] if path.exists() else []
        if path.exists():
            write_atomically(
                path, "".join(_line(r) for r in ([list(rows[0])] if rows else []) + [r.values() for r in rows])
            )
        self.columns = list(rows[0]) if rows else []

    def write(self, row: Row) -> None:
        """Append a row; the first decides the columns."""
        new = not self.columns
        self.columns = self.columns or list(row)
        if list(row) != self.columns:
            raise ValueError(f"{self.path} has the columns {self.columns}, but this row has {list(row)}")
        with open(self.path, "a", encoding="utf-8") as file:
            file.write((_line(self.columns) if new else "") + _line(row.values()))
            file.flush()
            os.fsync(file.fileno())


def _line(values: Any) -> str:
    return ",".join(v if isinstance(v, str) else repr(v) for v in values) + "\n"  # repr: all digits of a float


def read_log(path: str | Path) -> list[dict[str, float | int]]:
    """The rows of a log of a run: numbers by column. A last line that a kill cut short is left out."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = [line for line in file.read().splitlines(keepends=True) if line.endswith("\n")]
    try:
        rows = [{name: _number(text) for name, text in row.items()} for row in csv.DictReader(lines)]
        return [row for row in rows if row["step"] >= 0]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not the log of a run ({error!r}): move it away, and a new one is begun") from error


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if math.isfinite(value) and "." not in text and "e" not in text else value


class Clock:
    """Seconds since it last added them up, speed since it was last asked, and whether it is time for a line."""

    def __init__(self, progress: Progress):
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        self.tokens, self.asked, self.spoken = progress.tokens, self.wall, -math.inf

    def add_to(self, progress: Progress) -> Progress:
        wall, cpu = time.perf_counter(), time.process_time()
        seconds, cpu_seconds = progress.seconds + wall - self.wall, progress.cpu_seconds + cpu - self.cpu
        self.wall, self.cpu = wall, cpu
        return replace(progress, seconds=seconds, cpu_seconds=cpu_seconds)

    def speed(self, progress: Progress) -> float:
        """Tokens per second since the last call."""
        now = time.perf_counter()
        tokens, seconds = progress.tokens - self.tokens, now - self.asked
        self.tokens, self.asked = progress.tokens, now
        return tokens / max(seconds, 1e-9)

    def now_and_then(self, speak: Callable[[], None], seconds: float = 10.0) -> None:
        if time.perf_counter() >= self.spoken + seconds:
            self.spoken = time.perf_counter()
            speak()


def hours(seconds: float) -> str:
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"


def board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ModuleNotFoundError(
            "tensorboard=True needs the Python package tensorboard: pip install tensorboard"
        ) from None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
