"""Loops that PyTorch cannot make fast: compiled by numba, and run in several threads on the same tables."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Job = TypeVar("Job")
Done = TypeVar("Done")

MISSING = 'the fast loops need numba: pip install numba, or choose the readable ones, such as backend="torch"'


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile `function` at its first call and keep the machine code beside it, or in numba's own cache folder.

    It runs without Python's global lock, so threads run side by side. Sums may be reordered (a vector unit adds eight or
    sixteen numbers at once), but NaN and infinity keep their meaning; division by zero gives infinity, as in C. Where nothing
    can be written, it compiles anew in each process. options: further ones for `numba.njit`.
    """
    try:
        from numba import njit
    except ImportError as error:
        raise ModuleNotFoundError(MISSING) from error
    settings: dict[str, Any] = {
        "nogil": True,
        "fastmath": {"reassoc", "contract", "nsz"},
        "error_model": "numpy",
    } | options
    try:
        return njit(cache=True, **settings)(function)
    except RuntimeError:  # no folder to keep the code in
        return njit(**settings)(function)


def in_threads(work: Callable[[Job], Done], jobs: Iterable[Job], threads: int) -> Iterator[Done]:
    """work(job) for each job, in order where `threads` is 1."""
    if threads == 1:
        yield from map(work, jobs)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield from pool.map(work, jobs)
    finally:
        pool.shutdown(cancel_futures=True)  # also when the reader interrupts: no thread goes on behind her back
