"""Text from files of any size, or from the Hugging Face hub, read through `datasets` piece by piece: never the whole.

A file is streamed, not copied: `datasets` reads text, JSON lines, CSV and Parquet, also compressed, and data sets of the hub.
"""

import glob
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

FORMATS = {".txt": "text", ".text": "text", ".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
BOUNDARIES = ("blank", "line", "file")
LONGEST = 100_000  # characters of a piece: a longer document comes in several


class Piece(NamedTuple):
    """A stretch of text, and whether its document ends with it."""

    text: str
    ends: bool


@dataclass(frozen=True)
class Source:
    """Where text comes from."""

    path: str  # a file, a folder, a pattern such as data/*.txt, or hub:owner/name
    column: str = "text"  # where the text stands, in all formats but plain text
    boundary: str = "blank"  # what parts documents in plain text: a "blank" line, every "line", or only the "file"
    config: str | None = None  # of a data set of the hub
    split: str = "train"  # of a data set of the hub
    documents: int | None = None  # read only so many

    def __post_init__(self) -> None:
        if self.boundary not in BOUNDARIES:
            raise ValueError(f"boundary is one of {', '.join(BOUNDARIES)}, not {self.boundary!r}")
        if self.documents is not None and self.documents < 1:
            raise ValueError(f"documents must be at least 1, not {self.documents}")

    @property
    def hub(self) -> str | None:
        """The name on the hub, if that is where the text is."""
        return self.path.removeprefix("hub:") if self.path.startswith("hub:") else None

    def files(self) -> list[Path]:
        """The files, in the order of their names."""
        path = Path(self.path)
        found = sorted(path.rglob("*")) if path.is_dir() else [Path(name) for name in sorted(glob.glob(self.path))]
        files = [file for file in found if file.is_file() and file.name[0] != "."]
        if path.is_dir():
            files = [file for file in files if _format(file) is not None]
        if not files:
            raise FileNotFoundError(
                f"there is no text at {self.path}: give a file, a folder, a pattern such as 'data/*.txt', or hub:owner/name"
            )
        strange = [file for file in files if _format(file) is None]
        if strange:
            raise ValueError(
                f"{strange[0]} is none of {', '.join(FORMATS)} (these may be compressed: {', '.join(COMPRESSED)})"
            )
        return files

    def digest(self) -> str:
        """A hash of what will be read: the files' contents, or the hub's revision, and how they are read."""
        code = hashlib.sha256(repr({**asdict(self), "path": ""}).encode())
        if self.hub is not None:
            code.update(f"{self.hub} {_from_hub('load_dataset_builder', self.hub, self.config).hash}".encode())
            return code.hexdigest()
        for file in self.files():
            with open(file, "rb") as content:
                code.update(hashlib.file_digest(content, "sha256").digest())
        return code.hexdigest()

    def pieces(self) -> Iterator[Piece]:
        """The text, piece by piece."""
        stream: Iterator[Piece] = (piece for part in self._parts() for piece in part)
        return stream if self.documents is None else _first(stream, self.documents)

    def _parts(self) -> Iterator[Iterator[Piece]]:
        if self.hub is not None:
            rows = _from_hub("load_dataset", self.hub, self.config, split=self.split, streaming=True)
            yield _documents(_column(rows, self.column, self.path))
            return
        for file in self.files():
            kind = _format(file)
            if kind == "text":
                lines = _load("text", data_files=str(file), split="train", chunksize=1 << 20, encoding="utf-8-sig")
                yield _paragraphs(_column(lines, "text", str(file)), self.boundary)
            else:
                rows = _load(kind, data_files=str(file), split="train")
                yield _documents(_column(rows, self.column, str(file)))


def _format(file: Path) -> str | None:
    name = file.name.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    return FORMATS.get(Path(name).suffix)


def _load(*args: Any, **kwargs: Any) -> Any:
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(50)  # what goes wrong comes as an error, once
    return datasets.load_dataset(*args, streaming=True, **kwargs)


def _from_hub(do: str, name: str, *args: Any, **kwargs: Any) -> Any:
    """Every failure as one kind: what a network can raise is a long list."""
    import datasets

    datasets.disable_progress_bars()
    try:
        return getattr(datasets, do)(name, *args, **kwargs)
    except Exception as error:
        raise ValueError(f"hub:{name} cannot be opened ({type(error).__name__}: {error})") from error


def _column(rows: Any, column: str, where: str) -> Iterator[str]:
    """The texts in one column, with errors that name the file."""
    from pyarrow import ArrowInvalid

    try:
        for batch in rows.iter(batch_size=1000):
            if column not in batch:
                raise ValueError(f"{where} has no column {column!r}; it has {', '.join(batch)}")
            for text in batch[column]:
                if text is not None and not isinstance(text, str):
                    raise ValueError(f"column {column!r} of {where} holds {type(text).__name__}, not text")
                yield text or ""
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8 ({error}): convert it, with iconv for example") from error
    except ArrowInvalid as error:
        raise ValueError(f"{where} cannot be read: {error}") from error


def _documents(texts: Iterable[str]) -> Iterator[Piece]:
    """Every text is a document; a long one comes in pieces, cut at white space."""
    for text in texts:
        while len(text) > LONGEST:
            cut = max(text.rfind(" ", 1, LONGEST), text.rfind("\n", 1, LONGEST))
            cut = cut if cut > 0 else LONGEST
            yield Piece(text[:cut], False)
            text = text[cut:]
        if text:
            yield Piece(text, True)


def _paragraphs(lines: Iterable[str], boundary: str) -> Iterator[Piece]:
    """Documents from the lines of one file."""
    held: list[str] = []
    size, is_open = 0, False
    for line in lines:
        blank = not line.strip()
        if not blank or (boundary == "file" and held):
            held.append(line)
            size += len(line) + 1
        ends = boundary == "line" or (boundary == "blank" and blank)
        if (held and (ends or size > LONGEST)) or (ends and is_open):
            yield from _cut("\n".join(held) + ("" if ends else "\n"), ends)
            held, size, is_open = [], 0, not ends
    if held or is_open:
        yield from _cut("\n".join(held).rstrip("\n"), True)


def _cut(text: str, ends: bool) -> Iterator[Piece]:
    *first, last = list(_documents([text])) or [Piece("", True)]
    yield from first
    yield Piece(last.text, ends)


def _first(stream: Iterator[Piece], n: int) -> Iterator[Piece]:
    for piece in stream:
        yield piece
        n -= piece.ends
        if n == 0:
            return


def batches(pieces: Iterable[Piece], characters: int = 1_000_000) -> Iterator[list[Piece]]:
    """Pieces in lists of about so many characters."""
    stream, held, size = iter(pieces), [], 0
    while part := list(islice(stream, 1)):
        held += part
        size += len(part[0].text)
        if size >= characters:
            yield held
            held, size = [], 0
    if held:
        yield held
