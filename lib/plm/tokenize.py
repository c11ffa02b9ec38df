"""From a string to words and sentences. Sub-words (BPE, WordPiece) join this module with their chapters."""

import re
import unicodedata

# A word is a run of letters and digits, with inner apostrophes and hyphens kept: don't, twenty-one.
_WORD = re.compile(r"[^\W_]+(?:['\-][^\W_]+)*|[.,!?;:()\"\-]")
# A sentence ends at a line break, or at . ! ? (and a closing quote or bracket) followed by white space.
_SENTENCE_END = re.compile(r"(?:\n+|(?<=[.!?])[\"')\]]*\s+)")
_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u00b4": "'", "`": "'", "\u201c": '"', "\u201d": '"'})


def words(text: str) -> list[str]:
    """Split English text into lower-case words and punctuation marks.

    Accents are kept and composed (NFC), curly quotes become straight ones; any other symbol is dropped.
    """
    return _WORD.findall(unicodedata.normalize("NFC", text.translate(_QUOTES)).lower())


def sentences(text: str) -> list[str]:
    """Split English text into sentences at line breaks and at . ! ? before white space."""
    return [part for part in (piece.strip() for piece in _SENTENCE_END.split(text)) if part]
