"""Byte-pair encoding: a vocabulary of pieces of words, from letters upwards. Sennrich et al. 2016; the tokenizer of GPT.

A word is a run of other characters and the space behind it. The space is the end-of-word mark, which the paper writes </w>:
it takes part in the merges, no word can hold it, and decoding is nothing but joining. Training and encoding follow two rules
that leave nothing to chance, and are those of Hugging Face's `tokenizers`:
  ids: the special tokens, then the characters by code point, then the merged tokens in the order in which they were made;
  of two pairs that are equally frequent the one with the smaller ids (left, then right) is merged first.
One thing is ours alone: a pair that spells a special token (a text full of "<s>") is never merged.
"""

import heapq
import itertools
import json
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plm.files import read_json, writable, write_atomically

UNKNOWN, START, END, DELIMITER, EXTRACT = SPECIALS = ("<unk>", "<s>", "</s>", "<delimiter>", "<extract>")
Pair = tuple[int, int]
_WORD = re.compile(r"[^ ]* |[^ ]+")
_CACHED_WORDS = 200_000


def split_words(text: str) -> list[str]:
    """The words of a text, each with the space behind it; the last may have none. Lone surrogates become U+FFFD."""
    if not isinstance(text, str):
        raise TypeError(f"text is one string, not {type(text).__name__}: call this once per text")
    return _WORD.findall(writable(text))


def merge(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    """Replace every occurrence of the pair by `new`, from left to right: merge([1, 1, 1], (1, 1), 7) is [7, 1]."""
    merged, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            merged.append(new)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def learn_merges(
    counts: Mapping[str, int], vocab_size: int, specials: Sequence[str] = SPECIALS
) -> tuple[list[str], list[Pair]]:
    """The tokens (in the order of their ids) and the merges (pairs of ids, in the order in which they apply).

    counts: how often each word occurs, at least once. Stops at `vocab_size` tokens, or when no pair is left. A pair is
    recounted only in the words that hold the pair merged last; the heap keeps old counts, which can only be too high, and
    corrects one when it comes up.
    """
    if not isinstance(counts, Mapping):
        raise TypeError(f"counts maps each word to how often it occurs; got {type(counts).__name__}")
    if (rarest := min(counts.items(), key=lambda item: item[1], default=("", 1)))[1] < 1:
        raise ValueError(f"the word {rarest[0]!r} occurs {rarest[1]} times; leave out what does not occur")
    if not isinstance(vocab_size, int):
        raise TypeError(f"vocab_size is a number of tokens, an int, not {vocab_size!r}")
    tokens = [*specials, *sorted({character for word in counts for character in word})]
    if vocab_size < len(tokens):
        raise ValueError(f"vocab_size={vocab_size} is below the {len(tokens)} special tokens and single characters")
    ids = {token: i for i, token in enumerate(tokens)}
    words, weights = [[ids[c] for c in word] for word in counts], list(counts.values())
    frequency: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for i, (word, n) in enumerate(zip(words, weights)):
        for pair in itertools.pairwise(word):
            frequency[pair] += n
            where[pair].add(i)
    heap = [(-n, pair) for pair, n in frequency.items()]
    heapq.heapify(heap)
    merges: list[Pair] = []
    while heap and len(tokens) < vocab_size:
        n, pair = heapq.heappop(heap)
        if frequency[pair] != -n:
            if frequency[pair] > 0:
                heapq.heappush(heap, (-frequency[pair], pair))
            continue
        new = ids.setdefault(tokens[pair[0]] + tokens[pair[1]], len(tokens))  # ab+c and a+bc are one token
        if new < len(specials):  # a text must not be able to write a special token
            continue
        if new == len(tokens):
            tokens.append(tokens[pair[0]] + tokens[pair[1]])
        merges.append(pair)
        born: set[Pair] = set()
        for i in where.pop(pair):
            before, words[i] = words[i], merge(words[i], pair, new)
            for old in itertools.pairwise(before):
                frequency[old] -= weights[i]
            for fresh in zip(words[i], words[i][1:]):
                frequency[fresh] += weights[i]
                if new in fresh:
                    where[fresh].add(i)
                    born.add(fresh)
        for fresh in born:
            heapq.heappush(heap, (-frequency[fresh], fresh))
    return tokens, merges


class BPE:
    """A trained tokenizer. Text is taken as it is: lower case and spacing are the caller's (plm.tokenize.words).

    A character that training never saw becomes <unk>. Special tokens are ids that no text produces: "<s>" typed by somebody
    is three characters. `save` writes the JSON of Hugging Face's tokenizers, and both libraries read it.
    """

    def __init__(self, tokens: Sequence[str], merges: Sequence[Pair], specials: Sequence[str] = SPECIALS):
        if UNKNOWN not in specials or tuple(tokens[: len(specials)]) != tuple(specials):
            raise ValueError(f"the first tokens must be the special ones, {UNKNOWN} among them: {list(specials)}")
        self.tokens, self.specials = tuple(tokens), tuple(specials)
        self.merges: tuple[Pair, ...] = tuple((left, right) for left, right in merges)
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self.ids) != len(self.tokens):
            raise ValueError("each token may stand once in a vocabulary, but some stand twice")
        self._made: dict[Pair, tuple[int, int]] = {}  # pair -> (rank, the token it makes)
        for rank, (left, right) in enumerate(self.merges):
            if not (0 <= left < len(self) and 0 <= right < len(self)):
                raise ValueError(f"merge {rank} joins tokens {left} and {right}; there are {len(self)}")
            made = self.ids.get(self.tokens[left] + self.tokens[right])
            if made is None:
                raise ValueError(f"merge {rank} makes {self.tokens[left] + self.tokens[right]!r}, which is no token")
            if min(left, right, made) < len(self.specials):
                raise ValueError(
                    f"merge {rank} joins or makes a special token: texts could write {self.tokens[made]!r}"
                )
            self._made.setdefault((left, right), (rank, made))
        self._cache: dict[str, tuple[int, ...]] = {}

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, specials: Sequence[str] = SPECIALS) -> "BPE":
        """Learn from texts, such as a list of sentences, each a string that ends with a space."""
        if isinstance(texts, str):
            raise TypeError("texts is a sequence of strings, not one string: pass [text]")
        counts = Counter(word for text in texts for word in split_words(text))
        if not counts:
            raise ValueError("there is no word to learn from")
        return cls(*learn_merges(counts, vocab_size, specials), specials)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def start_id(self) -> int:
        """The id of <s>, before the first token of a text."""
        return self.ids[START]

    @property
    def end_id(self) -> int:
        """The id of </s>, behind a sentence."""
        return self.ids[END]

    def encode(self, text: str) -> list[int]:
        """Ids of a text. A last word without a space behind it is an unfinished one: its end is left open."""
        return [i for word in split_words(text) for i in self.encode_word(word)]

    def encode_word(self, word: str) -> list[int]:
        """Ids of one word, its space included: of all pairs the earliest learnt is merged first, the leftmost among equals."""
        if not isinstance(word, str):
            raise TypeError(f"a word is a string, not {type(word).__name__}")
        if word in self._cache:
            return list(self._cache[word])
        word = writable(word)
        ids = [self.ids.get(c, self.ids[UNKNOWN]) for c in word]
        while len(ids) > 1:
            ranked = [(self._made[p], i) for i, p in enumerate(itertools.pairwise(ids)) if p in self._made]
            if not ranked:
                break
            (_, made), i = min(ranked)
            ids[i : i + 2] = [made]
        if len(self._cache) >= _CACHED_WORDS:
            self._cache.clear()
        self._cache[word] = tuple(ids)
        return ids

    def pieces(self, text: str) -> list[str]:
        """The tokens of a text, as strings."""
        return [self.tokens[i] for i in self.encode(text)]

    def decode(self, ids: Iterable[int], specials: bool = False) -> str:
        """The text of a sequence of ids; special tokens are left out, or written by name."""
        try:
            known = [operator.index(i) for i in ids]
        except TypeError:
            raise TypeError(f"ids is a sequence of whole numbers, not {ids!r}") from None
        for i in known:
            if not 0 <= i < len(self):
                raise IndexError(f"id {i} is outside this vocabulary of {len(self)} tokens")
        return "".join(self.tokens[i] for i in known if specials or i >= len(self.specials))

    @property
    def config(self) -> dict[str, list[Any]]:
        """What makes it, as plain data: BPE(**config) is this tokenizer again."""
        return {"tokens": list(self.tokens), "merges": [list(pair) for pair in self.merges]}

    def to_json(self) -> str:
        """The tokenizer in the form of Hugging Face's tokenizers: `tokenizers.Tokenizer.from_str` reads it."""
        merges = [[self.tokens[a], self.tokens[b]] for a, b in self.merges]
        model: dict[str, Any] = {"type": "BPE", "unk_token": UNKNOWN, "vocab": self.ids, "merges": merges}
        model |= dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
        model |= dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False)
        split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
        content: dict[str, Any] = {
            "version": "1.0",
            "model": model,
            "pre_tokenizer": split,
            "decoder": {"type": "Fuse"},
        }
        # No "added tokens": they would be found inside texts, and a text must not be able to write special tokens.
        content |= {"added_tokens": [], "normalizer": None, "post_processor": None, "truncation": None, "padding": None}
        return json.dumps(content, ensure_ascii=False, indent=0) + "\n"

    def save(self, path: str | Path) -> Path:
        """Write `to_json` to a file (plain data: reading it can run no code)."""
        return write_atomically(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path, specials: Sequence[str] = SPECIALS) -> "BPE":
        """Read a tokenizer from a file of `save`."""
        content = read_json(path)
        try:
            vocab, merges = dict(content["model"]["vocab"]), content["model"]["merges"]
            tokens = sorted(vocab, key=vocab.__getitem__)
            pairs = [(vocab[a], vocab[b]) for a, b in merges]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(f"{path} is no BPE tokenizer: it needs model.vocab and model.merges") from None
        if sorted(vocab.values()) != list(range(len(vocab))):
            raise ValueError(f"the ids in {path} are not 0 … {len(vocab) - 1}")
        return cls(tokens, pairs, specials)
