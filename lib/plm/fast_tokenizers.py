"""Tokenizers for one's own text, trained and applied in Rust (`tokenizers`): bytes for GPT, WordPiece for BERT, words for ELMo.

Plain text can never produce a special token: typed by somebody, "<|end|>" is seven characters.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from plm import tokenize
from plm.files import writable
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab
from plm.wordpiece import INSIDE, SPECIALS, UNK, WordPiece
from plm.wordpiece_training import _alphabet

END = "<|end|>"  # behind each document, and before the first word of a prompt without one
ENDS = (END, "<|endoftext|>")  # ours, and GPT-2's


class ByteBPE:
    """Byte-pair encoding of bytes, as GPT-2 has it: no text is unknown, and decoding gives it back letter by letter."""

    def __init__(self, json_text: str):
        content = json.loads(json_text)
        content["added_tokens"] = []  # these would be found inside texts
        self.fast = Tokenizer.from_str(json.dumps(content, ensure_ascii=False))
        end = next((i for i in map(self.fast.token_to_id, ENDS) if i is not None), None)
        if end is None:
            raise ValueError(f"this tokenizer has none of the tokens {', '.join(ENDS)} that could end a text")
        self.end_id: int = end  # the mark behind a document, …
        self.start_id: int = end  # … and what a text begins with: the end of the one before

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> "ByteBPE":
        """Learn `size` tokens: 256 bytes, the end mark, and the most frequent joins."""
        if size < 257:
            raise ValueError(f"a vocabulary of bytes needs at least 257 tokens, not {size}")
        fast = _byte_level(models.BPE())
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
        )
        fast.train_from_iterator(_some(texts), trainer)
        return cls(fast.to_str())

    @classmethod
    def from_folder(cls, folder: str | Path) -> "ByteBPE":
        """The tokenizer of a GPT-2 as the hub keeps it: tokenizer.json, or vocab.json and merges.txt."""
        whole, vocab, merges = (Path(folder) / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
        if whole.exists():
            return cls(whole.read_text(encoding="utf-8"))
        if not (vocab.exists() and merges.exists()):
            raise FileNotFoundError(f"{folder} has no tokenizer: neither tokenizer.json, nor vocab.json and merges.txt")
        return cls(_byte_level(models.BPE.from_file(str(vocab), str(merges))).to_str())

    def __len__(self) -> int:
        return int(self.fast.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Ids of a text. A lone surrogate becomes U+FFFD."""
        return list(self.fast.encode(writable(text), add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text; end marks are left out, and a character of which bytes are missing is U+FFFD."""
        return str(self.fast.decode([int(i) for i in ids if int(i) != self.end_id], skip_special_tokens=False))

    @property
    def config(self) -> dict[str, Any]:
        """What makes it, as plain data: ByteBPE(**config) is this tokenizer again."""
        return {"json_text": self.fast.to_str()}


def _byte_level(model: Any) -> Any:
    fast = Tokenizer(model)
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    return fast


def train_wordpiece(texts: Iterable[str], size: int, lowercase: bool = True, characters: bool = False) -> WordPiece:
    """Learn BERT's pieces: those of `plm.wordpiece_training.train_pieces`, whose merging Rust does here.

    The library would number the ##-characters in the order of a hash table, which differs from process to process, and choose
    by these numbers among pairs of equal count; so it is given a number for each. characters: every character is a word, for
    Chinese; then the most frequent ones are taken.
    """
    if characters:
        counts = Counter(c for text in _some(texts) for c in (text.lower() if lowercase else text) if not c.isspace())
        ranked = sorted(counts, key=lambda c: (-counts[c], c))
        return WordPiece([*SPECIALS, *ranked[: size - len(SPECIALS)]], lowercase, characters=True)
    words = _words(texts, lowercase)
    kept = _alphabet(words, max(10, size // 4))  # a text of many scripts must leave room for pieces
    inside = sorted({INSIDE + c for word in words for c in word[1:] if c in kept})
    first = [*SPECIALS, *sorted(kept), *inside][:size]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=first,
        initial_alphabet=sorted(kept),
        limit_alphabet=len(kept),
        show_progress=False,
    )
    fast = Tokenizer(models.WordPiece(unk_token=UNK))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast.train_from_iterator(_repeated(words), trainer)
    vocabulary = fast.get_vocab()
    return WordPiece(sorted(vocabulary, key=vocabulary.__getitem__), lowercase)


def _words(texts: Iterable[str], lowercase: bool) -> Counter[str]:
    """How often each word occurs, cleaned and cut in Rust."""
    fast = WordPiece(SPECIALS, lowercase).fast()
    counts: Counter[str] = Counter()
    for text in _some(texts):
        clean = fast.normalizer.normalize_str(text)
        counts.update(word for word, _ in fast.pre_tokenizer.pre_tokenize_str(clean))
    return counts


def _repeated(words: Counter[str], most: int = 10_000) -> Iterator[str]:
    """Texts that hold each word as often as it was counted: a trainer takes no counts."""
    for word, n in words.items():
        for start in range(0, n, most):
            yield f"{word} " * min(most, n - start)


def train_words(texts: Iterable[str], size: int) -> Vocab:
    """The most frequent words, as `plm.tokenize.words` sees them, behind <unk>, <s> and </s>."""
    fast = fast_words(Vocab([], LANGUAGE_MODEL_SPECIALS))
    special = list(LANGUAGE_MODEL_SPECIALS)
    fast.train_from_iterator(
        _some(texts), trainers.WordLevelTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    )
    vocabulary = fast.get_vocab()
    return Vocab(sorted(vocabulary, key=vocabulary.__getitem__)[len(special) :], LANGUAGE_MODEL_SPECIALS)


def fast_words(vocab: Vocab) -> Any:
    """`vocab.encode(plm.tokenize.words(text))` as a `tokenizers.Tokenizer`."""
    fast = Tokenizer(models.WordLevel(vocab.ids, unk_token=vocab.specials[0]))
    quotes = [normalizers.Replace(chr(int(code)), str(plain)) for code, plain in tokenize._QUOTES.items()]
    fast.normalizer = normalizers.Sequence([*quotes, normalizers.Lowercase(), normalizers.NFC()])
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(tokenize._WORD.pattern), "removed", invert=True)
    return fast


def _some(texts: Iterable[str]) -> Iterator[str]:
    """The texts, if there is one; a trainer says nothing when there is none."""
    stream = map(writable, texts)
    first = list(islice((text for text in stream if text.strip()), 1))
    if not first:
        raise ValueError("there is no text to learn a tokenizer from")
    yield first[0]
    yield from stream
