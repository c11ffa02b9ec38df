"""WordPiece: words in pieces, so that a small vocabulary has an id for all. Schuster and Nakajima 2012; Wu et al. 2016.

Text is cleaned as BERT does it (`normalise`), cut at spaces, punctuation and Chinese characters (`pre_tokenise`), and each word
is covered by the longest pieces from left to right; a piece inside a word is written with ## before it. Each piece knows which
characters of the text it stands for. `plm.wordpiece_training` makes vocabularies.
"""

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from plm.files import read_json, write_atomically

PAD, UNK, CLS, SEP, MASK = SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
INSIDE = "##"  # marks a piece that continues a word
LONGEST = 100  # a longer word is [UNK]: it is no word
CJK = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip  # Chinese characters; Japanese kana and Korean Hangul are written with or without spaces and stay whole


class Piece(NamedTuple):
    """A piece of the vocabulary, and the characters start … end - 1 of the text that it stands for."""

    text: str
    start: int
    end: int


class Encoding(NamedTuple):
    """A text, or two, with special tokens: one entry per token in each list."""

    ids: list[int]
    pieces: list[str]
    segments: list[int]  # 0 up to the first [SEP], 1 behind it
    offsets: list[tuple[int, int] | None]  # characters of the text of that segment; None for a special token


Character = tuple[str, int, int]  # a cleaned character, and the characters start … end - 1 of the text behind it


def is_space(c: str) -> bool:
    """White space by Unicode's list, which Python's `isspace` exceeds by four control codes."""
    return c.isspace() and not "\x1c" <= c <= "\x1f"


def is_control(c: str) -> bool:
    """Control, format, private and lone surrogate codes, and U+FFFD: removed. Line break and tab are spaces."""
    return c not in "\t\n\r" and (c == "\ufffd" or unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs"))


def is_chinese(c: str) -> bool:
    """One of BERT's eight blocks of ideographs."""
    return any(low <= ord(c) <= high for low, high in CJK)


def is_punctuation(c: str) -> bool:
    """Every ASCII character that is no letter, digit or space ($ and ^ too), and Unicode's punctuation."""
    return c in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" or unicodedata.category(c).startswith("P")


def normalise(text: str, lowercase: bool = True, strip_accents: bool | None = None) -> list[Character]:
    """BERT's cleaning: control codes out, every space a space, accents off, lower case, character by character.

    strip_accents: None does as lowercase says, as in the published models. No NFKC: a full-width １ stays what it is.
    """
    if not isinstance(text, str):
        raise TypeError(f"text is one string, not {type(text).__name__}: call this once per text")
    kept = [(" " if is_space(c) else c, i, i + 1) for i, c in enumerate(text) if not is_control(c)]
    if lowercase if strip_accents is None else strip_accents:
        kept = [c for c in decompose(kept) if unicodedata.category(c[0]) != "Mn"]
    if lowercase:  # one character at a time: the two forms of a Greek sigma stay apart from the place in the word
        kept = [(small, i, j) for c, i, j in kept for small in c.lower()]
    return kept


def decompose(characters: list[Character]) -> list[Character]:
    """Unicode's NFD: letters and their marks apart, the marks in canonical order."""
    apart = [(part, i, j) for c, i, j in characters for part in unicodedata.normalize("NFD", c)]
    start = 0
    while start < len(apart):
        end = start + 1
        while end < len(apart) and unicodedata.combining(apart[end][0]):
            end += 1
        apart[start + 1 : end] = sorted(apart[start + 1 : end], key=lambda c: unicodedata.combining(c[0]))
        start = end
    return apart


def pre_tokenise(characters: list[Character]) -> list[list[Character]]:
    """Words: cut at spaces, around each punctuation mark and around each Chinese character."""
    words: list[list[Character]] = [[]]
    for character in characters:
        c = character[0]
        if is_space(c):
            words.append([])
        elif is_punctuation(c) or is_chinese(c):
            words += [[character], []]
        else:
            words[-1].append(character)
    return [word for word in words if word]


def longest_match(word: str, vocabulary: dict[str, int]) -> list[str] | None:
    """Cover a word by the longest pieces from the left; None if that fails anywhere."""
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = (INSIDE if start else "") + word[start:end]
            if piece in vocabulary:
                break
        else:
            return None
        pieces.append(piece)
        start = end
    return pieces


class WordPiece:
    """A vocabulary of pieces and the way to apply it.

    pieces: by id, the special tokens among them. characters: every character is a word of its own, as our Chinese models want
    it. Special tokens are never read from the text: "[SEP]" in a review is three words, so a text cannot forge a boundary.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        lowercase: bool = True,
        strip_accents: bool | None = None,
        characters: bool = False,
    ):
        if isinstance(pieces, str):
            raise TypeError("pieces are a list of strings, not one string")
        self.pieces = tuple(pieces)
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        missing = [special for special in SPECIALS if special not in self.ids]
        if missing:
            raise ValueError(f"the vocabulary lacks {', '.join(missing)}")
        if len(self.ids) != len(self.pieces):
            twice = [piece for i, piece in enumerate(self.pieces) if self.ids[piece] != i]
            raise ValueError(f"each piece may stand once, but these stand twice: {twice[:5]}")
        self.lowercase, self.strip_accents, self.characters = lowercase, strip_accents, characters
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (self.ids[s] for s in SPECIALS)
        self.special_ids = sorted(self.ids[s] for s in SPECIALS)
        self._seen: dict[str, list[str] | None] = {}

    def __len__(self) -> int:
        return len(self.pieces)

    def tokenise(self, text: str) -> list[Piece]:
        """The pieces of a text, without special tokens. A word that cannot be covered whole is one [UNK]."""
        found = []
        characters = normalise(text, self.lowercase, self.strip_accents)
        words = [[c] for c in characters if not is_space(c[0])] if self.characters else pre_tokenise(characters)
        for word in words:
            pieces = self.cover("".join(c for c, _, _ in word))
            at = 0
            for piece in [UNK] if pieces is None else pieces:
                size = len(word) if pieces is None else len(piece.removeprefix(INSIDE) if at else piece)
                found.append(Piece(piece, word[at][1], word[at + size - 1][2]))
                at += size
        return found

    def cover(self, word: str) -> list[str] | None:
        """The pieces of one cleaned word; None if it is unknown."""
        if word not in self._seen:
            if len(self._seen) > 200_000:  # words are few, but not in every text
                self._seen.clear()
            special = word in SPECIALS  # cannot happen with BERT's punctuation, and must not
            self._seen[word] = None if special or len(word) > LONGEST else longest_match(word, self.ids)
        return self._seen[word]

    def encode(self, text: str, second: str | None = None, max_len: int | None = None) -> Encoding:
        """[CLS] text [SEP], or [CLS] text [SEP] second [SEP].

        max_len: cut to so many tokens, special ones included, a token at a time from the end of the longer text.
        """
        parts = [self.tokenise(text)] if second is None else [self.tokenise(text), self.tokenise(second)]
        if max_len is not None:
            room = max_len - 1 - len(parts)
            if room < len(parts):
                raise ValueError(f"max_len={max_len} leaves no room for text beside the special tokens")
            while sum(map(len, parts)) > room:
                max(parts, key=len).pop()
        found = Encoding([self.cls_id], [CLS], [0], [None])
        for segment, part in enumerate(parts):
            found.ids.extend([*(self.ids[piece.text] for piece in part), self.sep_id])
            found.pieces.extend([*(piece.text for piece in part), SEP])
            found.segments.extend([segment] * (len(part) + 1))
            found.offsets.extend([*((piece.start, piece.end) for piece in part), None])
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """A readable text: pieces joined to words, words by spaces. What cleaning removed does not come back."""
        words: list[str] = []
        for i in ids:
            if not 0 <= int(i) < len(self):
                raise IndexError(f"id {i} is outside this vocabulary of {len(self)} pieces")
            piece = self.pieces[int(i)]
            if piece.startswith(INSIDE) and len(piece) > len(INSIDE) and words:
                words[-1] += piece.removeprefix(INSIDE)
            else:
                words.append(piece)
        return " ".join(words)

    @property
    def config(self) -> dict[str, Any]:
        """Everything `WordPiece(**config)` needs, as JSON can hold it."""
        settings = {"lowercase": self.lowercase, "strip_accents": self.strip_accents, "characters": self.characters}
        return {"pieces": list(self.pieces), **settings}

    def save(self, path: str | Path) -> Path:
        """Write as JSON, whole or not at all; a piece with a lone surrogate is refused."""
        bad = [piece for piece in self.pieces if any("\ud800" <= c <= "\udfff" for c in piece)]
        if bad:
            raise ValueError(f"{bad[:3]} hold lone surrogates, which no file can store: repair the text first")
        return write_atomically(path, json.dumps(self.config, ensure_ascii=False))

    @classmethod
    def load(cls, path: str | Path) -> "WordPiece":
        """Read a file of `save`."""
        config = read_json(path)
        if not isinstance(config, dict) or "pieces" not in config:
            raise ValueError(f'{path} is no WordPiece vocabulary: it needs the key "pieces"')
        return cls(**config)

    @classmethod
    def read_vocab(cls, path: str | Path, lowercase: bool = True) -> "WordPiece":
        """Read `vocab.txt` as BERT's models come with: one piece a line, the line number is the id."""
        lines = Path(path).read_text(encoding="utf-8").split("\n")
        return cls(lines[:-1] if lines[-1] == "" else lines, lowercase)

    def fast(self) -> Any:
        """The same as a `tokenizers.Tokenizer` (Rust), without special tokens: for large texts."""
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        inner = models.WordPiece(self.ids, unk_token=UNK, max_input_chars_per_word=LONGEST)
        tokenizer = Tokenizer(inner)
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=self.lowercase, strip_accents=self.strip_accents)
        cut: Any = pre_tokenizers.BertPreTokenizer()
        if self.characters:
            cut = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), _each_character()])
        tokenizer.pre_tokenizer = cut
        return tokenizer


def _each_character() -> Any:
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Split(Regex("."), "isolated")
