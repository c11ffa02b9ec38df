"""From a string to words and sentences. Sub-words (BPE, WordPiece) join this module with their chapters."""

import re
import unicodedata

# Letters and digits; a letter may carry combining marks that have no composed form (the dot of a lower-case İ).
_RUN = r"[^\W_]+(?:[\u0300-\u036f]+[^\W_]*)*"
# A word is such a run, with inner apostrophes and hyphens kept: don't, twenty-one.
_WORD = re.compile(rf"{_RUN}(?:['\-]{_RUN})*|[.,!?;:()\"\-]")
# A sentence ends at a line break, or at . ! ? and any closing quotes and brackets before white space.
_SENTENCE_END = re.compile(r"([.!?][\"')\]\u2019\u201d]*)\s+")
_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u00b4": "'", "`": "'", "\u201c": '"', "\u201d": '"'})


def words(text: str) -> list[str]:
    """Split English text into lower-case words and punctuation marks.

    Accents are kept and composed (NFC), curly quotes become straight ones; any other symbol parts words and is dropped, and
    so is a lone surrogate: every word can be written to a file.
    """
    _check_text(text)
    return _WORD.findall(unicodedata.normalize("NFC", text.translate(_QUOTES).lower()))


def sentences(text: str) -> list[str]:
    """Split English text into sentences at line breaks and at . ! ? before white space; only white space is lost."""
    _check_text(text)
    pieces = _SENTENCE_END.sub(r"\1\n", text).split("\n")
    return [piece for piece in (piece.strip() for piece in pieces) if piece]


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"text is one string, not {type(text).__name__}: call this once per text")
