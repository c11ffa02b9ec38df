"""Text of any size, made into ids once and kept on the disk: packed rows for GPT and ELMo, documents of sentences for BERT.

    source -> pieces of text (plm.corpus_source, `datasets`) -> ids (`tokenizers`, in Rust, on all cores) -> an Arrow file

The file lies in the cache under a hash of the text, the tokenizer and the recipe, so the same text is cut only once, and a
changed one never meets old ids. Nobody ever holds more than a megabyte or so of the text. Training reads the Arrow file through
a memory map: row i is as near as row 0, which is why a batch can be a function of its number.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from plm.corpus_source import Piece, Source, batches
from plm.corpus_store import Blocks, Documents, write_blocks, write_documents
from plm.files import cache_dir, read_json, writable
from plm.tokenize import sentences as english_sentences

VERSION = 1  # of what is written; another one never reads this one's files
_CHINESE_END = re.compile(r"(?<=[。！？][”』」）])|(?<=[。！？])(?![”』」）])")
Echo = Callable[[str], None]


@dataclass(frozen=True)
class Packing:
    """How text becomes rows: units one after the other, each opened and closed, cut into rows of one length."""

    length: int  # ids in a row; for GPT one more than its context
    unit: str = "document"  # or "sentence"
    start_id: int | None = None  # put before each sentence
    end_id: int | None = None  # put behind each unit

    def __post_init__(self) -> None:
        if self.length < 2:
            raise ValueError(f"a row needs at least 2 ids, one to read and one to guess, not {self.length}")
        if self.unit == "document" and self.start_id is not None:
            raise ValueError("documents are closed, not opened: the end of one is the beginning of the next")
        if self.unit not in ("document", "sentence"):
            raise ValueError(f'unit is "document" or "sentence", not {self.unit!r}')


def split_sentences(text: str) -> list[str]:
    """Sentences of English or Chinese text: cut at line breaks, at . ! ? before white space, and behind 。！？."""
    return [part for s in english_sentences(text) for part in _CHINESE_END.split(s) if part.strip()]


def pack(source: Source, tokenizer: Any, packing: Packing, echo: Echo | None = None) -> Blocks:
    """The text of a source as rows of ids; made on the first call, read from the cache on later ones.

    tokenizer: a `tokenizers.Tokenizer`. ValueError if the text does not fill a single row. Several processes may call this
    at once: one makes the file, the others wait for it.
    """
    path = _cached(source, tokenizer, asdict(packing), lambda p: _make_blocks(p, source, tokenizer, packing, echo))
    return Blocks(path / "rows.arrow", read_json(path / "corpus.json"))


def documents(source: Source, tokenizer: Any, shard_tokens: int = 1_000_000, echo: Echo | None = None) -> Documents:
    """The text of a source as documents of sentences of ids, in shards of about so many tokens; cached as `pack` does."""
    if shard_tokens < 1:
        raise ValueError(f"shard_tokens must be at least 1, not {shard_tokens}")
    recipe = {"documents": shard_tokens}
    path = _cached(source, tokenizer, recipe, lambda p: _make_documents(p, source, tokenizer, shard_tokens, echo))
    return Documents(path / "documents.arrow", read_json(path / "corpus.json"))


def _cached(source: Source, tokenizer: Any, recipe: dict[str, Any], make: Callable[[Path], dict[str, Any]]) -> Path:
    """The folder that `make` fills, under a hash of all that it depends on; whole or absent."""
    names = (source.digest(), tokenizer.to_str(), json.dumps(recipe, sort_keys=True), str(VERSION))
    key = hashlib.sha256("\0".join(names).encode()).hexdigest()
    folder = cache_dir() / "corpora" / key[:20]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if _whole(folder):
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        for old in folder.parent.glob(f".{folder.name}.*"):
            shutil.rmtree(old)  # of a process that was killed: we hold the lock
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            facts = make(temporary)
            sizes = {file.name: file.stat().st_size for file in temporary.iterdir()}
            (temporary / "corpus.json").write_text(json.dumps(facts | {"key": key, "files": sizes}), encoding="utf-8")
            os.replace(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return folder


def _whole(folder: Path) -> bool:
    try:
        files = read_json(folder / "corpus.json")["files"]
        return all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError):
        return False


def _encode(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Ids of each text, in parallel, in Rust. A lone surrogate becomes U+FFFD: no file can hold it."""
    try:
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    except TypeError:
        encoded = tokenizer.encode_batch_fast([writable(text) for text in texts], add_special_tokens=False)
    return [e.ids for e in encoded]


def _make_blocks(folder: Path, source: Source, tokenizer: Any, packing: Packing, echo: Echo | None) -> dict[str, Any]:
    facts = {"length": packing.length, "tokens": 0, "characters": 0, "documents": 0}
    kind = _smallest(tokenizer)

    def rows() -> Iterator[NDArray[Any]]:
        rest = np.empty(0, kind)
        for part in _progress(source, facts, echo):
            flat = np.concatenate([rest, np.fromiter(chain.from_iterable(_units(part, tokenizer, packing)), kind)])
            facts["tokens"] += len(flat) - len(rest)
            n = len(flat) // packing.length * packing.length
            rest = flat[n:]
            yield flat[:n].reshape(-1, packing.length)

    facts["rows"] = write_blocks(folder / "rows.arrow", rows(), packing.length, kind)
    if not facts["rows"]:
        raise ValueError(
            f"{source.path} holds {facts['tokens']} tokens, and one row needs {packing.length}: "
            "give more text or shorter rows (--length)"
        )
    return facts


def _units(part: list[Piece], tokenizer: Any, packing: Packing) -> Iterator[list[int]]:
    """The ids of some pieces, opened and closed as the packing says."""
    open_, close = ([] if i is None else [i] for i in (packing.start_id, packing.end_id))
    if packing.unit == "sentence":
        sentences = _encode(tokenizer, [s for piece in part for s in split_sentences(piece.text)])
        yield from ([*open_, *ids, *close] for ids in sentences if ids)
        return
    for piece, ids in zip(part, _encode(tokenizer, [piece.text for piece in part])):
        yield ids
        if piece.ends:
            yield close


def _make_documents(
    folder: Path, source: Source, tokenizer: Any, shard_tokens: int, echo: Echo | None
) -> dict[str, Any]:
    facts = {"tokens": 0, "characters": 0, "documents": 0}

    def cut() -> Iterator[list[list[int]]]:
        document: list[list[int]] = []
        for part in _progress(source, facts, echo):
            split = [split_sentences(piece.text) for piece in part]
            ids = iter(_encode(tokenizer, [s for parts in split for s in parts]))
            for piece, parts in zip(part, split):
                document += [found for found in (next(ids) for _ in parts) if found]
                size = sum(map(len, document))
                # A document that would fill much of a shard is cut: a shard must hold several, and memory is finite.
                if document and (piece.ends or size > shard_tokens // 8):
                    facts["tokens"] += size
                    yield document
                    document = []

    facts["shards"] = write_documents(folder / "documents.arrow", cut(), shard_tokens, _smallest(tokenizer))
    if not facts["shards"]:
        raise ValueError(f"there is not a single sentence in {source.path}")
    return facts


def _progress(source: Source, facts: dict[str, Any], echo: Echo | None) -> Iterator[list[Piece]]:
    """The pieces in batches, counted, with a line now and then."""
    told = 0
    for part in batches(source.pieces()):
        facts["characters"] += sum(len(piece.text) for piece in part)
        facts["documents"] += sum(piece.ends for piece in part)
        if echo and facts["characters"] >= told + 20_000_000:
            told = facts["characters"]
            echo(f"cutting {source.path} into tokens: {told / 1e6:,.0f} million characters")
        yield part


def _smallest(tokenizer: Any) -> Any:
    return np.uint16 if tokenizer.get_vocab_size() <= 2**16 else np.int32
