"""Words and their vectors, with the questions one asks of them; read and written in the formats of the word2vec program."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from plm.files import write_atomically
from plm.similarity import nearest


class Match(NamedTuple):
    """A word and its cosine to what was asked for."""

    word: str
    cosine: float


class KeyedVectors:
    """One vector per word: `vectors` (V, d) float32, row i belongs to `words[i]`.

    counts: (V,), how often each word occurred in training, if known. context: the table C that training throws away, if kept.
    """

    def __init__(
        self,
        words: Sequence[str],
        vectors: Tensor | ArrayLike,
        counts: ArrayLike | None = None,
        context: Tensor | None = None,
    ):
        if isinstance(words, str):
            raise TypeError("words is a list of words, not one string")
        self.words = list(words)
        self.vectors = torch.as_tensor(vectors, dtype=torch.float32).detach()
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.counts = None if counts is None else np.asarray(counts)
        self.context = None if context is None else context.detach()
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.words):
            raise ValueError(f"need one row per word: {len(self.words)} words, vectors {tuple(self.vectors.shape)}")
        if len(self.ids) != len(self.words):
            twice = next(w for i, w in enumerate(self.words) if self.ids[w] != i)
            raise ValueError(f"each word may have one vector, but {twice!r} stands twice")
        if not torch.isfinite(self.vectors).all():
            raise ValueError("the vectors hold NaN or infinity")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self.ids

    def __getitem__(self, word: str) -> Tensor:
        """The vector of a word, (d,)."""
        return self.vectors[self.id(word)]

    def id(self, word: str) -> int:
        """The row of a word; KeyError if it has none."""
        if word not in self.ids:
            raise KeyError(f"{word!r} has no vector: it is not among the {len(self)} words")
        return self.ids[word]

    def nearest(self, word: str | Tensor, k: int = 10, exclude: Iterable[str] = ()) -> list[Match]:
        """The k words with the highest cosine to a word (which is left out itself) or to a vector (d,)."""
        out = [self.id(w) for w in exclude] + ([self.id(word)] if isinstance(word, str) else [])
        found = nearest(self[word] if isinstance(word, str) else word, self.vectors, k, out)
        return [Match(self.words[i], c) for i, c in zip(found.ids, found.cosines, strict=True)]

    def analogy(self, a: str, b: str, c: str, k: int = 1) -> list[Match]:
        """`a` is to `b` as `c` is to …? The k words closest to b - a + c, each of length 1; a, b and c are no answer.

        Mikolov et al. 2013c; called 3CosAdd by Levy and Goldberg 2014.
        """
        unit = torch.nn.functional.normalize(torch.stack([self[a], self[b], self[c]]), dim=1)
        return self.nearest(unit[1] - unit[0] + unit[2], k, exclude=(a, b, c))

    def save(self, path: str | Path, binary: bool | None = None) -> Path:
        """Write the words and vectors (not counts and context). binary=None: binary if the name ends in ".bin"."""
        path = Path(path)
        for word in self.words:
            if not word or set(word) & set(" \t\n\r\v\f"):
                raise ValueError(f"{word!r} cannot be written: in this format white space ends a word. Rename it first")
            if any("\ud800" <= letter <= "\udfff" for letter in word):
                raise ValueError(f"{word!r} cannot be written: it holds a lone surrogate. Repair the text first")
        table = self.vectors.cpu().numpy().astype("<f4")
        head = f"{len(self)} {self.vectors.shape[1]}\n".encode()
        if path.suffix == ".bin" if binary is None else binary:
            rows = (w.encode() + b" " + v.tobytes() + b"\n" for w, v in zip(self.words, table, strict=True))
        else:  # str(float32) is the shortest text that reads back as the same number
            rows = (f"{w} {' '.join(map(str, v))}\n".encode() for w, v in zip(self.words, table, strict=True))
        return write_atomically(path, head + b"".join(rows))

    @classmethod
    def load(cls, path: str | Path, binary: bool | None = None) -> "KeyedVectors":
        """Read vectors in word2vec's text or binary format, as written by `save`, gensim or the C program."""
        path = Path(path)
        data = path.read_bytes()
        head, newline, body = data.partition(b"\n")
        try:
            V, d = map(int, head.split())
        except ValueError:
            raise ValueError(
                f"{path}, line 1: expected two numbers, words and dimensions, found {head[:40]!r}. GloVe's own files lack "
                "this line: add it. Else the file is not in word2vec format"
            ) from None
        if V < 1 or d < 1 or not newline:
            raise ValueError(f"{path}, line 1: there must be at least one word and one dimension, found {head[:40]!r}")
        read = _binary if (path.suffix == ".bin" if binary is None else binary) else _text
        return cls(*read(body, V, d, path))


def _text(body: bytes, V: int, d: int, path: Path) -> tuple[list[str], NDArray[np.float32]]:
    lines = body.removesuffix(b"\n").split(b"\n")
    if len(lines) != V:
        raise ValueError(
            f"{path}: line 1 promises {V} words, but {len(lines)} lines follow. Fetch or write the file again"
        )
    if V * d > len(body):
        raise ValueError(
            f"{path}: line 1 promises {V} words of {d} numbers, the file is too short. Fetch or write it again"
        )
    words: list[str] = []
    table = np.empty((V, d), np.float32)
    for i, line in enumerate(lines):
        word, *numbers = line.rstrip(b" \r").split(b" ")
        if len(numbers) != d:
            raise ValueError(f"{path}, line {i + 2}: expected a word and {d} numbers, found {len(numbers)} numbers")
        try:
            with np.errstate(over="ignore"):  # too large for float32: refused as infinity below
                table[i] = [float(x) for x in numbers]
        except ValueError as error:
            raise ValueError(f"{path}, line {i + 2}: {error}") from None
        words.append(_word(word, i + 2, table[i], path))
    return words, table


def _binary(body: bytes, V: int, d: int, path: Path) -> tuple[list[str], NDArray[np.float32]]:
    words: list[str] = []
    if V * (4 * d + 1) > len(body):  # also saves the memory for a table that a broken first line promises
        raise ValueError(f"{path} ends before word {V} of {V}: it is not binary, or cut off. Fetch or write it again")
    table, at = np.empty((V, d), np.float32), 0
    for i in range(V):
        space = body.find(b" ", at)
        end = space + 1 + 4 * d
        if space < 0 or end > len(body):
            raise ValueError(
                f"{path} ends within word {i + 1} of {V}: it is not binary, or cut off. Fetch or write it again"
            )
        table[i] = np.frombuffer(body, "<f4", d, space + 1)
        words.append(_word(body[at:space].lstrip(b"\n"), i + 2, table[i], path))
        at = end
    if body[at:].strip(b"\n"):
        raise ValueError(
            f"{path}: line 1 promises {V} words of {d} numbers, but more data follows. Fetch or write it again"
        )
    return words, table


def _word(raw: bytes, line: int, vector: NDArray[np.float32], path: Path) -> str:
    try:
        word = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(
            f"{path}, line {line}: the word {raw[:40]!r} is not UTF-8. Is the file binary, or cut off?"
        ) from None
    if not word:
        raise ValueError(f"{path}, line {line}: the word is missing")
    if not np.isfinite(vector).all():
        raise ValueError(f"{path}, line {line}: the vector of {word!r} holds NaN or infinity")
    return word
