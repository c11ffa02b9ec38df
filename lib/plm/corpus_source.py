"""Text from files of any size, or from the Hugging Face hub, read piece by piece: never the whole.

A file is streamed, not copied. `datasets` reads JSON lines, CSV, Parquet and the data sets of the hub; plain text is read here,
since a line may be as long as its file. All but Parquet may be compressed.
"""

import bz2
import glob
import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

FORMATS = {".txt": "text", ".text": "text", ".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": None}  # the last: a package opens it
BOUNDARIES = ("blank", "line", "file")
LONGEST = 100_000  # characters of a piece: a longer document comes in several
RUN_MARK = ".tokenizer.lock"  # lies in the folder of every run of `plm pretrain`


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
        """The files, in the order of their names. In a folder, what is hidden and what lies in the folder of a run is no text."""
        path = Path(self.path).expanduser()
        if path.is_dir():
            files = [file for file in sorted(path.rglob("*")) if _format(file) is not None and _is_text(file, path)]
        else:  # a name may hold brackets and stars itself
            names = [str(path)] if path.is_file() else sorted(glob.glob(str(path), recursive=True))
            files = [Path(name) for name in names if Path(name).is_file()]
        if not files:
            raise FileNotFoundError(
                f"there is no text at {self.path}: give a file, a folder, a pattern such as 'data/*.txt', or hub:owner/name"
            )
        strange = [file for file in files if _format(file) is None]
        if strange:
            raise ValueError(
                f"{strange[0]} is none of {', '.join(FORMATS)} (which may be compressed: {', '.join(COMPRESSED)})"
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
                yield _paragraphs(_lines(file), self.boundary)
            elif kind is not None:
                yield _documents(_table(file, kind, self.column))


def _format(file: Path) -> str | None:
    name = file.name.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    return FORMATS.get(Path(name).suffix)


def _is_text(file: Path, folder: Path) -> bool:
    inside = file.relative_to(folder)
    hidden = any(part.startswith(".") for part in inside.parts)
    in_a_run = any((folder / up / RUN_MARK).exists() for up in inside.parents[:-1])
    return file.is_file() and not hidden and not in_a_run


def _lines(file: Path) -> Iterator[str]:
    """The lines with their ends; a line beyond LONGEST characters comes in parts of that length."""
    seen = 0
    try:
        with _opener(file)(file, "rt", encoding="utf-8-sig") as text:
            while line := text.readline(LONGEST):
                seen += line.endswith("\n")
                yield line
    except UnicodeDecodeError as error:  # its position counts from the last block that was read
        raise ValueError(not_utf8(file, f"byte {error.object[error.start]:#x} a little below line {seen}")) from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def _opener(file: Path) -> Any:
    ending = file.suffix.lower()
    if ending != ".zst":
        return COMPRESSED.get(ending, open)
    try:
        import zstandard
    except ImportError:
        raise ModuleNotFoundError(f"{file} needs the Python package zstandard: pip install zstandard") from None
    return zstandard.open


def not_utf8(where: object, what: object) -> str:
    """What to say of a file in another encoding."""
    return f"{where} is not UTF-8 ({what}): convert it, for example with iconv -f LATIN1 -t UTF-8, or -f UTF-16"


def _table(file: Path, kind: str, column: str) -> Iterator[str]:
    """The texts of a file of rows."""
    _opener(file)
    with naming(file):
        yield from _column(table_rows(file, kind, [column]), column, str(file))


def table_rows(file: Path, kind: str, columns: Sequence[str], **extra: Any) -> Any:
    """The rows of a file, read one after the other (`datasets`); nothing, if it is empty. columns: those that hold text."""
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(50)  # what goes wrong comes as an error, once
    if file.stat().st_size == 0:
        return datasets.Dataset.from_dict({})
    if kind == "csv":  # or a text such as NA or 1984 would be none
        extra |= {"converters": dict.fromkeys(columns, str), "keep_default_na": False}
    return datasets.load_dataset(kind, data_files=glob.escape(str(file)), split="train", streaming=True, **extra)


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Whatever a reader of tables can raise, as one kind that names the file."""
    try:
        yield
    except SaidError:
        raise
    except UnicodeDecodeError as error:
        raise ValueError(not_utf8(file, error)) from error
    except Exception as error:  # the list would be long
        raise ValueError(f"{file} cannot be read: {error}") from error


def _from_hub(do: str, name: str, *args: Any, **kwargs: Any) -> Any:
    """Every failure as one kind: what a network can raise is a long list."""
    import datasets

    datasets.disable_progress_bars()
    try:
        return getattr(datasets, do)(name, *args, **kwargs)
    except Exception as error:
        raise ValueError(f"hub:{name} cannot be opened ({type(error).__name__}: {error})") from error


def _column(rows: Any, column: str, where: str) -> Iterator[str]:
    """The texts in one column."""
    for batch in rows.iter(batch_size=1000):
        if column not in batch:
            raise SaidError(f"{where} has no column {column!r}; it has {', '.join(map(str, batch))}")
        for text in batch[column]:
            if text is not None and not isinstance(text, str):
                raise SaidError(f"column {column!r} of {where} holds {type(text).__name__}, not text")
            yield text or ""


class SaidError(ValueError):
    """A message that names its file already."""


def _documents(texts: Iterable[str]) -> Iterator[Piece]:
    """Every text is a document; a long one comes in pieces, cut at white space."""
    for text in texts:
        start = 0
        while len(text) - start > LONGEST:
            start, before = _cut(text, start), start
            yield Piece(text[before:start], False)
        if text:
            yield Piece(text[start:], True)


def _cut(text: str, start: int = 0) -> int:
    """Where a piece that begins at `start` ends: before the last white space in reach, or after LONGEST characters."""
    reach = start + LONGEST
    cut = max(text.rfind(" ", start + 1, reach), text.rfind("\n", start + 1, reach))
    return cut if cut > 0 else reach


def _paragraphs(lines: Iterable[str], boundary: str) -> Iterator[Piece]:
    """Documents from the lines of one file, as `_lines` has them. Never holds much more than LONGEST characters."""
    held: list[str] = []
    size, is_open, inside = 0, False, False  # inside: a long line, of which a part was handed out
    for line in lines:
        more = len(line) == LONGEST and line[-1] != "\n"  # its end is still to come
        blank = not (more or inside or line.strip())
        line = line.rstrip("\n")
        if inside:
            held[-1] += line
            size += len(line)
        elif not blank or (boundary == "file" and held):
            held.append(line)
            size += len(line) + 1
        ends = not more and (boundary == "line" or (boundary == "blank" and blank))
        if more:
            text = "\n".join(held)
            cut = _cut(text)
            yield Piece(text[:cut], False)
            held, size, is_open = [text[cut:]], len(text) - cut, True
        elif (held and (ends or size > LONGEST)) or (ends and is_open):
            yield from _pieces("\n".join(held) + ("" if ends else "\n"), ends)
            held, size, is_open = [], 0, not ends
        inside = more
    if held or is_open:
        yield from _pieces("\n".join(held).rstrip("\n"), True)


def _pieces(text: str, ends: bool) -> Iterator[Piece]:
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
