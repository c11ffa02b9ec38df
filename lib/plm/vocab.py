"""A vocabulary: the list of known tokens, and the id of each."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from plm.files import read_json, write_atomically

UNKNOWN, START, END = "<unk>", "<s>", "</s>"
LANGUAGE_MODEL_SPECIALS = (UNKNOWN, START, END)


class Vocab:
    """Tokens in a fixed order; the id of a token is its position.

    Special tokens come first. A token that is not in the list gets the id of `<unk>`; without `<unk>` it is an error.
    """

    def __init__(self, tokens: Sequence[str], specials: Sequence[str] = (UNKNOWN,)):
        if isinstance(tokens, str) or isinstance(specials, str):
            raise TypeError("tokens and specials are sequences of words, not one string")
        self.specials = tuple(specials)
        self.tokens = self.specials + tuple(tokens)
        for token in self.tokens:
            _check_token(token)
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self.ids) != len(self.tokens):
            twice = [token for token, n in Counter(self.tokens).items() if n > 1]
            raise ValueError(f"each token may stand once in a vocabulary, but these stand twice: {twice[:5]}")

    @classmethod
    def build(
        cls,
        tokens: Iterable[str],
        max_size: int | None = None,
        min_count: int = 1,
        specials: Sequence[str] = (UNKNOWN,),
    ) -> "Vocab":
        """Count `tokens` and keep the most frequent: at most `max_size` entries, specials included.

        Equal counts are ordered alphabetically, so the ids never depend on the order of a hash table.
        """
        if isinstance(tokens, str):
            raise TypeError("tokens must be a sequence of words, not one string: call plm.tokenize.words(text) first")
        if max_size is not None and max_size < len(specials):
            raise ValueError(f"max_size={max_size} leaves no room for the {len(specials)} special tokens")
        try:
            counts = Counter(tokens)
        except TypeError:
            raise TypeError("a token is a string: flatten sentences first, (w for s in sentences for w in s)") from None
        for special in specials:
            counts.pop(special, None)
        ranked = sorted((token for token, n in counts.items() if n >= min_count), key=lambda t: (-counts[t], t))
        return cls(ranked if max_size is None else ranked[: max_size - len(specials)], specials)

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self.ids

    def __getitem__(self, token: str) -> int:
        """The id of one token."""
        if token in self.ids:
            return self.ids[token]
        if UNKNOWN in self.ids:
            return self.ids[UNKNOWN]
        raise KeyError(f"{token!r} is not in the vocabulary of {len(self)} tokens, and it has no {UNKNOWN}")

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids of a sequence of tokens."""
        if isinstance(tokens, str):
            raise TypeError("encode takes a sequence of words, not one string: call plm.tokenize.words(text) first")
        return [self[token] for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Tokens of a sequence of ids."""
        ids = [int(i) for i in ids]
        for i in ids:
            if not 0 <= i < len(self):
                raise IndexError(f"id {i} is outside this vocabulary of {len(self)} tokens")
        return [self.tokens[i] for i in ids]

    def save(self, path: str | Path) -> Path:
        """Write the vocabulary as JSON (plain data: reading it can run no code)."""
        content = {"specials": self.specials, "tokens": self.tokens[len(self.specials) :]}
        return write_atomically(path, json.dumps(content, ensure_ascii=False, indent=0))

    @classmethod
    def load(cls, path: str | Path) -> "Vocab":
        """Read a vocabulary written by `save`."""
        content = read_json(path)
        if not (isinstance(content, dict) and {"specials", "tokens"} <= content.keys()):
            raise ValueError(f'{path} is not a vocabulary: it needs the keys "specials" and "tokens"')
        return cls(content["tokens"], content["specials"])


def _check_token(token: str) -> None:
    if not isinstance(token, str):
        raise TypeError(f"a token is a string, not {type(token).__name__}: {token!r}")
    try:
        token.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(
            f"token {token!r} holds a lone surrogate, which no file can store: repair the text first"
        ) from None
