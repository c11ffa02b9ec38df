"""One process or many: Hugging Face Accelerate as the engine wants it."""

import os
import signal

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState


def accelerator(precision: str | None, cpu: bool) -> Accelerator:
    """Device, precision and group of this process. ValueError if processes were started that did not find each other."""
    # Or a second run in one process could have no other precision or device.
    AcceleratorState._reset_state(reset_partial_state=not torch.distributed.is_initialized())
    # Accelerate forms a group of CPU processes only when it is told that they are to stay on the CPU.
    found = Accelerator(mixed_precision=precision, cpu=cpu or not torch.accelerator.is_available())
    wanted = int(os.environ.get("WORLD_SIZE", "1"))
    if found.num_processes != wanted:
        raise ValueError(f"{wanted} processes were started, but they did not find each other; with cpu=True they may")
    return found


def deaf(worker: int) -> None:
    """In a process that prepares batches: signals that go to all are for the main one, which still needs its batch."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
