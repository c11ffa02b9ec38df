"""What a training run keeps on disk: its state, whole or absent, and its logs.

The state is one safetensors file: weights and optimiser as plain numbers, everything else as JSON in its header. Reading it
can run no code. It is written beside the old one and takes its place in one step, so a kill at any moment leaves a whole one.
"""

import json
import os
import signal
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from plm.files import share

FORMAT = "plm run, version 1"
WAY_OUT = "Put a whole copy in its place, or begin anew in another folder"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; what was written there is flushed to the disk and takes the place of `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        share(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Delete the unfinished files that a killed `replacing(path)` left behind."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        leftover.unlink(missing_ok=True)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, the tensors themselves; tied ones stand once, under their first name."""
    found: dict[int, str] = {}
    return {
        name: tensor
        for name, tensor in model.state_dict(keep_vars=True).items()
        if found.setdefault(id(tensor), name) == name
    }


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    code = 0
    for name in sorted(tensors):
        code = zlib.crc32(name.encode(), code)
        if tensors[name].numel():
            code = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, code)
    return code


def save_state(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, facts: dict[str, Any]) -> None:
    """Write weights, optimiser state and `facts` (JSON-able) to `path`; the old file stays until the new one is whole."""
    own = named_tensors(model)
    names = {id(tensor): name for name, tensor in own.items()}
    tensors = {f"model/{name}": tensor for name, tensor in own.items()}
    for parameter, state in optimizer.state.items():
        tensors |= {f"optimizer/{names[id(parameter)]}/{key}": value for key, value in state.items()}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    head = {"format": FORMAT, "checksum": _checksum(tensors), **facts}
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata={"run": json.dumps(head, sort_keys=True)})
        except SafetensorError as error:  # the disk is full, say
            raise OSError(f"{path} could not be written ({error}); the one before was left as it is") from error


def parse_head(metadata: dict[str, str] | None) -> dict[str, Any]:
    """What `save_state` wrote into the header; nothing, if another wrote it."""
    try:
        head = json.loads((metadata or {}).get("run", "{}"))
    except json.JSONDecodeError:
        return {}
    return head if isinstance(head, dict) else {}


def load_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read (tensors, facts) of `save_state`. A truncated, altered or foreign file is refused with the reason."""
    try:
        with safe_open(path, framework="pt") as file:
            head = parse_head(file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is truncated or no safetensors file ({error}); it was left as it is. {WAY_OUT}"
        ) from error
    if head.get("format") != FORMAT:
        raise ValueError(
            f"{path} is not the state of a run: it was not written by plm.pretrain; it was left as it is. {WAY_OUT}"
        )
    if head.get("checksum") != _checksum(tensors):
        raise ValueError(f"{path} is damaged: its numbers do not fit their checksum; it was left as it is. {WAY_OUT}")
    return tensors, head


def restore_state(tensors: Mapping[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put the tensors of `load_state` into a model and its optimiser, after checking that all names and shapes fit."""
    own = named_tensors(model)
    saved = {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
    wrong = sorted(saved.keys() ^ own.keys()) or [n for n in own if own[n].shape != saved[n].shape]
    if wrong:
        raise ValueError(f"the state is of another model: names or shapes differ, beginning with {wrong[0]}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved[name])
    by_parameter: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer/"):
            parameter, _, key = name.removeprefix("optimizer/").rpartition("/")
            by_parameter.setdefault(parameter, {})[key] = tensor
    names = {id(tensor): name for name, tensor in own.items()}
    order = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
    state = {i: by_parameter[name] for i, name in enumerate(order) if name in by_parameter}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


@contextmanager
def only_one_run(folder: Path, main: bool) -> Iterator[None]:
    """Hold the folder while a run writes into it: a second run is refused. A kill frees it. Other processes: no effect."""
    if not main:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(f"another run is writing into {folder}: wait for it, or give another folder") from None
    try:
        yield
    finally:
        lock.release()


class StopRequest:
    """True once Ctrl-C or SIGTERM has come; a second Ctrl-C interrupts as usual. Signals reach only the main thread."""

    def __init__(self) -> None:
        self.asked = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True

    def __bool__(self) -> bool:
        return self.asked
