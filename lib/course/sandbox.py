"""Starts the runner where it can do no harm: no network, no files but what it needs, bounded time, memory and output.

Three kinds of isolation. `bwrap`: bubblewrap. `namespaces`: the same by hand, for Linux without bubblewrap (`confine.py`).
`limits`: resource limits and, for root, another user, but the same file system and network; it has to be asked for by name.
In the first two, hidden tests and solutions are not in the file system that student code sees.
"""

import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from course.surroundings import KINDS, LIBRARY, SCRATCH, command_for, environment, masked
from course.values import decode, encode


@dataclass(frozen=True)
class Limits:
    """What one run may use. Time on a busy machine is waiting, so `cpu` is what counts; `wall` ends who sleeps."""

    cpu: int = 10  # seconds
    wall: float = 0  # seconds; 0 stands for 20 + 6 * cpu
    memory: int = 1 << 30  # bytes of address space; 0 in a question stands for "enough for torch" there
    processes: int = 64
    files: int = 256
    file_size: int = SCRATCH
    printed: int = 1 << 20  # bytes on stdout and stderr
    result: int = 64 << 20  # bytes of returned values

    @property
    def patience(self) -> float:
        """Seconds until the run is ended whatever it does."""
        return self.wall or 20 + 6 * self.cpu


@dataclass(frozen=True)
class Request:
    """What to run: cells (dicts with `source`), calls (dicts with `name` and `inputs`), driver code, and its surroundings."""

    cells: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    drivers: str = ""
    without: tuple[str, ...] = ()  # packages that are not there
    reads: tuple[str, ...] = ()  # further files or folders that may be read
    tensors: bool = False
    limits: Limits = field(default_factory=Limits)

    def encoded(self) -> bytes:
        """What the runner reads."""
        limits = {k: v for k, v in vars(self.limits).items() if k != "wall"}
        body = {"cells": self.cells, "calls": self.calls, "drivers": self.drivers, "without": list(self.without)}
        return encode(body | {"tensors": self.tensors, "limits": limits})


GOODBYE = 10.0  # seconds that a process has for its end once its results are closed: on a busy machine it is slow


@dataclass
class Outcome:
    """What came out. ended: done, time, memory, output, died (with `detail`), or unreadable."""

    frames: list[dict[str, Any]]
    ended: str
    detail: str = ""
    seconds: float = 0.0


class NoIsolationError(RuntimeError):
    """No kind of isolation works here."""


def run(request: Request, kind: str = "auto") -> Outcome:
    """Run it once, under the given kind of isolation (`auto`: the first that works here)."""
    kind = choose(kind)
    return _watch(kind, [str(LIBRARY / "plm"), *request.reads], masked(request.without), request)


def choose(kind: str) -> str:
    """The kind of isolation to use; raises NoIsolationError when it does not work here."""
    if kind == "limits":
        return kind
    for candidate in KINDS[:2] if kind == "auto" else [kind]:
        if works(candidate):
            return candidate
    raise NoIsolationError(
        f"isolation {kind!r} does not work here. On Linux install bubblewrap. ISOLATION=limits grades without it, but then "
        "student code can read every file that you can read: use it only for people you trust"
    )


@cache
def works(kind: str) -> bool:
    """Whether an empty request comes back done."""
    if kind == "bwrap" and not shutil.which("bwrap"):
        return False
    if kind not in KINDS or not sys.platform.startswith("linux"):
        return False
    request = Request([], [])
    return _watch(kind, [], [], request).ended == "done"


class Frames:
    """Takes the bytes of the results pipe as they come, and cuts them into frames."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.rest, self.size, self.done, self.broken = bytearray(), 0, False, False

    def feed(self, piece: bytes) -> None:
        """Add bytes. After a frame that says done, or that cannot be read, nothing more is taken."""
        self.rest += piece
        self.size += len(piece)
        while not self.done and not self.broken and len(self.rest) >= 8:
            end = 8 + int.from_bytes(self.rest[:8], "little")
            if len(self.rest) < end:
                return
            try:
                frame = decode(bytes(self.rest[8:end]))
            except ValueError:
                frame = None
            del self.rest[:end]
            self.broken = not isinstance(frame, dict)
            if isinstance(frame, dict):
                self.frames.append(frame)
                self.done = frame.get("done") is True


def _watch(kind: str, reads: list[str], covered: list[str], request: Request) -> Outcome:
    """Start it, feed it, and read both pipes until it is done, or over a limit, or gone."""
    limits = request.limits
    started, cpu = time.monotonic(), _cpu_of_children()
    reader, writer = os.pipe()
    process = subprocess.Popen(
        command_for(kind, reads, covered, writer),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(writer,),
        start_new_session=True,
        env=environment(),
        cwd="/",
    )
    os.close(writer)
    results, used, printed, ended, gone = Frames(), [0.0], b"", "", False
    try:
        printed, ended = _pump(process, reader, request.encoded(), results, limits, started + limits.patience, used)
        gone = not (ended or results.done or results.broken)
    finally:
        killed = _end(process, GOODBYE if gone else 0.5)
        os.close(reader)
    seconds, cpu = time.monotonic() - started, _cpu_of_children() - cpu
    if results.done:
        return Outcome(results.frames, "done", seconds=seconds)
    if results.broken:
        return Outcome(results.frames, "unreadable", seconds=seconds)
    if ended:
        return Outcome(results.frames, ended, seconds=seconds)
    if killed:  # the exit code is ours and tells nothing
        return Outcome(results.frames, "died", "it closed its results and went on", seconds)
    return Outcome(results.frames, *_cause(process.returncode, printed, max(cpu, *used) >= limits.cpu), seconds)


def _pump(
    process: "subprocess.Popen[bytes]",
    reader: int,
    request: bytes,
    results: Frames,
    limits: Limits,
    deadline: float,
    used: list[float],
) -> tuple[bytes, str]:
    """Move bytes. Returns the first part of what was printed, and which limit ended it ("" for none).

    used[0] becomes the computing time seen last: bwrap leaves before its child, whose time then counts for nobody.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin.fileno(), process.stdout.fileno()
    printed, n_printed, waiting = bytearray(), 0, memoryview(request)
    with selectors.DefaultSelector() as selector:
        for fd in (stdin, stdout, reader):
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_WRITE if fd == stdin else selectors.EVENT_READ)
        while not (results.done or results.broken):
            ready = selector.select(0.2)
            used[0] = max(used[0], _cpu_of(process.pid))
            if not ready and process.poll() is not None:
                break
            for fd in (key.fd for key, _ in ready):
                if fd == stdin:
                    waiting = _write(stdin, waiting)
                    if not waiting:
                        selector.unregister(stdin)
                        process.stdin.close()
                    continue
                piece = os.read(fd, 1 << 16)
                if not piece:
                    selector.unregister(fd)
                    if fd == reader:  # the process has gone, or has closed its results
                        return bytes(printed), ""
                elif fd == reader:
                    results.feed(piece)
                else:
                    n_printed += len(piece)
                    printed += piece[: max(0, 4096 - len(printed))]
            if n_printed > limits.printed or results.size > limits.result:
                return bytes(printed), "output"
            if time.monotonic() > deadline:
                return bytes(printed), "time"
    return bytes(printed), ""


def _write(fd: int, waiting: memoryview) -> memoryview:
    """Write what the pipe takes; nothing is left for a process that does not listen any more."""
    try:
        return waiting[os.write(fd, waiting[: 1 << 16]) :]
    except BrokenPipeError:
        return waiting[:0]


def _end(process: "subprocess.Popen[bytes]", patience: float) -> bool:
    """End the whole group, and say whether that was needed: it had not ended by itself within `patience` seconds.

    In a namespace of its own, all children go with the first process.
    """
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()
    try:
        process.wait(patience)  # its exit code tells why it went
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def _cpu_of(pid: int) -> float:
    """Seconds of computing time of a living process and of all that came from it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, ValueError):  # it has gone
        return 0.0
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(_cpu_of(int(child)) for child in children)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cause(code: int, printed: bytes, spent: bool) -> tuple[str, str]:
    """Why it ended without being done, from its exit code (128 + signal, or minus the signal)."""
    number = -code if code < 0 else code - 128 if code > 128 else 0
    if number == signal.SIGXCPU or (number == signal.SIGKILL and spent):
        return "time", ""
    if number == signal.SIGKILL or b"MemoryError" in printed:
        return "memory", ""
    if number in set(signal.Signals):
        return "died", signal.Signals(number).name
    return "died", f"exit code {code}"


def scaled(limits: Limits, patience: float) -> Limits:
    """The same limits with more patience, for a busy machine."""
    return replace(limits, wall=limits.patience * patience)
