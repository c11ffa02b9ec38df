"""Python functions turned into machine code by numba, for the few loops that PyTorch cannot make fast."""

from collections.abc import Callable
from typing import Any

MISSING = 'the fast training loops need numba: pip install numba, or choose the readable loops with backend="torch"'

try:
    import numba
except ImportError as error:
    raise ModuleNotFoundError(MISSING) from error


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` at its first call and keep the machine code beside it, or in numba's own cache folder.

    It runs without Python's global lock, so threads run side by side. Sums may be reordered (a vector unit adds eight or
    sixteen numbers at once), but NaN and infinity keep their meaning. Where nothing can be written, it compiles anew.
    """
    options: Any = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz"}}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep the code in
        return numba.njit(**options)(function)
