"""Progress bars that appear when somebody waits, and never in a saved output."""

import os
import sys
from collections.abc import Iterable
from typing import TypeVar

from tqdm.auto import tqdm

T = TypeVar("T")


def progress(steps: Iterable[T], desc: str, total: int | None = None, delay: float = 2.0) -> Iterable[T]:
    """Show a bar over `steps` once they have taken `delay` seconds.

    The bar appears in a terminal or a live notebook and leaves nothing behind; it is silent where nobody watches
    (tests, `PLM_QUIET=1`, output sent to a file), so no saved output ever holds a bar.
    """
    watched = "ipykernel" in sys.modules or sys.stderr.isatty()
    quiet = os.environ.get("PLM_QUIET", "0") != "0" or not watched
    return tqdm(steps, desc=desc, total=total, delay=delay, leave=False, disable=quiet, dynamic_ncols=True)
