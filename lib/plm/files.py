"""Files that are either whole or absent: atomic writes, checked reads, one cache folder."""

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def write_atomically(path: str | Path, data: bytes | str) -> Path:
    """Write `data` to `path` so that a crash leaves the old file or the new one, never half of either."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode("utf-8") if isinstance(data, str) else data
    # The temporary file must lie in the same folder: os.replace is atomic only within one file system.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(raw)
            out.flush()
            os.fsync(out.fileno())
        share(temporary)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def writable(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, which a broken file or an argument may bring in and no file can hold."""
    return _SURROGATE.sub("\ufffd", text)


def share(path: str | Path) -> None:
    """Let a file of `tempfile`, which only its owner may read, be read by whom the umask lets."""
    mask = os.umask(0o077)  # it can be read only by setting it
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)


def sha256(path: str | Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with open(path, "rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def cache_dir() -> Path:
    """Where prepared data is kept: `$PLM_CACHE`, or `~/.cache/plm`. Safe to delete at any time."""
    return Path(os.environ.get("PLM_CACHE") or Path.home() / ".cache" / "plm").expanduser()


def cached_text(name: str, key: str, make: Callable[[], str]) -> str:
    """Return `make()`, or the copy of an earlier call with the same `name` and `key`.

    The file starts with the SHA-256 of `key` and text; a truncated, foreign or outdated file is made anew. A cache folder
    that cannot be written to costs time, not the result.
    """
    path = cache_dir() / f"{name}.txt"
    try:
        stamp, _, text = path.read_bytes().partition(b"\n")
        if stamp.decode("ascii", "replace") == _stamp(key, text):
            return text.decode("utf-8")
    except OSError:
        pass
    text = make().encode("utf-8")
    with contextlib.suppress(OSError):
        write_atomically(path, _stamp(key, text).encode("ascii") + b"\n" + text)
    return text.decode("utf-8")


def _stamp(key: str, text: bytes) -> str:
    return hashlib.sha256(key.encode("utf-8") + b"\0" + text).hexdigest()


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a broken one is named in the error."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}). Delete it and make it again.") from error
