"""A word's vector from its spelling: convolutions over characters, the strongest match of each, and highway layers.

Kim et al. 2016; Jozefowicz et al. 2016; the input of ELMo (Peters et al. 2018). There is no unknown word.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PADDING, WORD_START, WORD_END = 0, 1, 2
N_CHARACTERS = 3 + 256  # the three marks, then the 256 bytes of UTF-8: every text of the world has a spelling


@dataclass(frozen=True)
class CharacterConfig:
    """Sizes of a character encoder. ELMo's: 2,048 filters of widths 1 to 7, two highway layers, 512 numbers out."""

    d_character: int = 16  # length of a character's vector
    filters: tuple[tuple[int, int], ...] = ((1, 32), (2, 32), (3, 64), (4, 64), (5, 64))  # (width, how many)
    n_highway: int = 1
    longest: int = 20  # bytes of a word that are read, marks included

    def __post_init__(self) -> None:
        # JSON knows no tuples: a config that was stored and read again must equal the first.
        object.__setattr__(self, "filters", tuple((int(width), int(n)) for width, n in self.filters))
        if not self.filters or any(width < 1 or n < 1 for width, n in self.filters):
            raise ValueError(f"filters are pairs (width, how many), each at least 1; got {self.filters}")
        if self.longest < max(3, *(width for width, _ in self.filters)):
            raise ValueError(f"longest={self.longest} is shorter than the widest filter or than three characters")
        if self.d_character < 1 or self.n_highway < 0:
            raise ValueError(f"d_character must be positive and n_highway not negative; got {self}")


def spell(words: Iterable[str], longest: int = 20) -> Tensor:
    """The characters of each word as ids, (N, longest) int64: a start mark, the bytes of its UTF-8, an end mark, padding.

    What does not fit is cut off before the end mark.
    """
    if isinstance(words, str):
        raise TypeError("spell takes a sequence of words, not one string: put a single word into a list")
    if longest < 3:
        raise ValueError(f"longest must leave room for a character between the two marks: at least 3, not {longest}")
    rows = []
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"a word is a string, not {type(word).__name__}: {word!r}")
        if not word:
            raise ValueError("an empty string has no spelling: leave it out")
        text = [3 + byte for byte in word.encode("utf-8", "replace")[: longest - 2]]
        ids = [WORD_START, *text, WORD_END]
        rows.append(ids + [PADDING] * (longest - len(ids)))
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, longest)


class Highway(nn.Module):
    """y = t * relu(W x + b) + (1 - t) * x, where the gate t = sigmoid(W_t x + b_t) decides how much may pass unchanged.

    The gate starts almost shut (bias -2), so that the layer begins as a copy. Srivastava et al. 2015, eq. 3.
    """

    def __init__(self, d: int):
        super().__init__()
        self.transform, self.gate = nn.Linear(d, d), nn.Linear(d, d)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., d). Returns the same shape."""
        t = torch.sigmoid(self.gate(x))
        return t * F.relu(self.transform(x)) + (1 - t) * x


class CharacterEncoder(nn.Module):
    """Spellings to word vectors: look the characters up, slide filters along, keep the best match of each, highway, project."""

    def __init__(self, config: CharacterConfig, d_out: int):
        super().__init__()
        self.config = c = config
        if d_out < 1:
            raise ValueError(f"d_out must be at least 1, not {d_out}")
        self.embedding = nn.Embedding(N_CHARACTERS, c.d_character, padding_idx=PADDING)
        self.filters = nn.ModuleList(nn.Conv1d(c.d_character, n, width) for width, n in c.filters)
        width = sum(n for _, n in c.filters)
        self.highway = nn.Sequential(*(Highway(width) for _ in range(c.n_highway)))
        self.project = nn.Linear(width, d_out)

    def forward(self, spellings: Tensor) -> Tensor:
        """spellings: (..., longest) int64, from `spell`. Returns vectors (..., d_out)."""
        if not isinstance(spellings, Tensor):
            raise TypeError(f"spellings come from plm.characters.spell, not as {type(spellings).__name__}")
        if spellings.dtype != torch.int64 or spellings.shape[-1:] != (self.config.longest,):
            raise TypeError(
                f"spellings must be int64 (..., {self.config.longest}), as plm.characters.spell makes them; "
                f"got {tuple(spellings.shape)} {spellings.dtype}"
            )
        if spellings.numel() and not (spellings.min() >= 0 and spellings.max() < N_CHARACTERS):
            raise IndexError(f"character ids must lie in 0 … {N_CHARACTERS - 1}")
        x = self.embedding(spellings.reshape(-1, self.config.longest)).transpose(1, 2)  # (N, d_character, longest)
        matches = [F.relu(conv(x).amax(-1)) for conv in self.filters]
        return self.project(self.highway(torch.cat(matches, -1))).view(*spellings.shape[:-1], self.project.out_features)
