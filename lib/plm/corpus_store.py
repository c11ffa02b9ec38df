"""Ids in Arrow files, read through a memory map: rows of one length, and documents of sentences in shards."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from plm import masking

ROWS = 1024  # in each record batch of a file of rows: row i is row i % ROWS of batch i // ROWS


def write_blocks(path: Path, parts: Iterable[NDArray[Any]], length: int, kind: Any) -> int:
    """Write rows (n, length), part by part, as the column "ids"; returns how many."""
    schema = pa.schema({"ids": pa.list_(pa.from_numpy_dtype(kind), length)})
    written, rest = 0, np.empty((0, length), kind)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as out:

        def write(rows: NDArray[Any]) -> None:
            column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), length)
            out.write_batch(pa.record_batch([column], schema=schema))

        for part in parts:
            rest = np.concatenate([rest, part])
            while len(rest) >= ROWS:
                write(rest[:ROWS])
                written, rest = written + ROWS, rest[ROWS:]
        if len(rest):
            write(rest)
    return written + len(rest)


class Blocks:
    """Rows of ids of one length on the disk: `blocks[[3, 1]]` is an int64 tensor (2, length). `facts`: what corpus.json says."""

    def __init__(self, path: Path, facts: dict[str, Any], start: int = 0, stop: int | None = None):
        self.path, self.facts, self.start = path, facts, start
        self.stop = facts["rows"] if stop is None else stop
        column = pa.ipc.open_stream(pa.memory_map(str(path))).read_all().column("ids")
        self.parts = [part.flatten().to_numpy().reshape(-1, facts["length"]) for part in column.chunks]

    def __reduce__(self) -> tuple[Any, ...]:
        return Blocks, (self.path, self.facts, self.start, self.stop)  # a copy in another process opens the file anew

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, rows: list[int]) -> Tensor:
        if len(rows) and not (min(rows) >= 0 and max(rows) < len(self)):
            raise IndexError(f"rows must lie in 0 … {len(self) - 1}; got {min(rows)} … {max(rows)}")
        places = [self.start + row for row in rows]
        return torch.from_numpy(np.stack([self.parts[i // ROWS][i % ROWS] for i in places]).astype(np.int64))

    @property
    def characters(self) -> int:
        """About how many characters of text these rows stand for: their share of the whole."""
        return round(self.facts["characters"] * len(self) * self.facts["length"] / self.facts["tokens"])

    def split(self, share: float = 0.01, most: int = 2000) -> tuple["Blocks", "Blocks"]:
        """Training rows and held-out rows: the last `share` of the text, at most `most` rows, at least one of each."""
        if not 0 < share < 1:
            raise ValueError(f"share of the held-out text lies between 0 and 1, not {share}")
        if len(self) < 2:
            raise ValueError(
                f"the text fills {len(self)} row of {self.facts['length']} tokens, and training and held-out text need one each: "
                "give more text or shorter rows (--length)"
            )
        border = self.stop - min(most, max(1, round(share * len(self))))
        return tuple(Blocks(self.path, self.facts, *ends) for ends in ((self.start, border), (border, self.stop)))  # type: ignore


def write_documents(path: Path, documents: Iterable[list[list[int]]], shard_tokens: int, kind: Any) -> int:
    """Write documents of sentences of ids: a row per document ("ids", and "sentences", their lengths); returns the shards."""
    schema = pa.schema({"ids": pa.list_(pa.from_numpy_dtype(kind)), "sentences": pa.list_(pa.int32())})
    held: list[list[list[int]]] = []
    shards, tokens = 0, 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as out:

        def write() -> None:
            flat = [np.concatenate([np.asarray(s, kind) for s in document]) for document in held]
            columns = (flat, [np.array([len(s) for s in document], np.int32) for document in held])
            out.write_batch(pa.record_batch([pa.array(c, t) for c, t in zip(columns, schema.types)], schema=schema))

        for document in documents:
            held.append(document)
            tokens += sum(map(len, document))
            if tokens >= shard_tokens:
                write()
                shards, held, tokens = shards + 1, [], 0
        if held:
            write()
            shards += 1
    return shards


class Documents:
    """Documents of sentences on the disk, in shards: `documents[i]` is a `plm.masking.Documents`.

    keep: only so many documents of the last shard.
    """

    def __init__(self, path: Path, facts: dict[str, Any], n_shards: int | None = None, keep: int | None = None):
        self.path, self.facts, self.n_shards, self.keep = path, facts, n_shards, keep
        self.shards = pa.ipc.open_stream(pa.memory_map(str(path))).read_all().to_batches()[:n_shards]

    def __reduce__(self) -> tuple[Any, ...]:
        return Documents, (self.path, self.facts, self.n_shards, self.keep)

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[masking.Documents]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> masking.Documents:
        shard = self.shards[i]
        return _documents(shard[: self.keep] if i % len(self) == len(self) - 1 else shard)

    def split(self, share: float = 0.01, most: int = 200_000) -> tuple["Documents", masking.Documents]:
        """Training shards, and held-out documents: the last `share` of the text, at most `most` tokens of one shard.

        Both need two documents at least: a random neighbour comes from another one.
        """
        if not 0 < share < 1:
            raise ValueError(f"share of the held-out text lies between 0 and 1, not {share}")
        last = self.shards[-1]
        sizes = np.array([len(ids) for ids in last.column("ids")])
        wanted = min(most, share * self.facts["tokens"])
        n = max(2, 1 + int(np.searchsorted(sizes[::-1].cumsum(), wanted)))
        left = max(0, len(sizes) - n)
        whole = len(self) - (left < 2)  # what would be left of the last shard is too little: hold all of it out
        n_documents = self.facts["documents"]
        if not whole or len(sizes) < 2:
            raise ValueError(
                f"the text has {n_documents} document{'s' * (n_documents != 1)}, and training and held-out text need two each: "
                'give more, or cut it into more documents (an empty line between them, or boundary "line"), or hold out less'
                + f", or take larger shards (there are {len(self)})"
                * (len(self) > 1)
            )
        train = Documents(self.path, self.facts, whole, left if whole == len(self) else None)
        return train, _documents(last[left if whole == len(self) else 0 :])


def _documents(shard: pa.RecordBatch) -> masking.Documents:
    ids, sentences = shard.column("ids"), shard.column("sentences")
    lengths = sentences.flatten().to_numpy()
    borders = np.concatenate([[0], lengths.cumsum(dtype=np.int64)])
    firsts = sentences.offsets.to_numpy() - sentences.offsets[0].as_py()
    return masking.Documents(ids.flatten().to_numpy().astype(np.int32), borders, borders[firsts])
