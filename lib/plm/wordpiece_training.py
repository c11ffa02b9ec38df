"""Where a WordPiece vocabulary comes from: start with characters, and again and again join two neighbours into a new piece."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from plm.wordpiece import INSIDE, LONGEST, SPECIALS, UNK, WordPiece, normalise, pre_tokenise

Pair = tuple[str, str]
SCORES = ("count", "quotient")


def count_words(texts: Iterable[str], lowercase: bool = True, strip_accents: bool | None = None) -> Counter[str]:
    """How often each word occurs, cleaned and cut as `WordPiece` does it."""
    if isinstance(texts, str):
        raise TypeError("texts are a list of strings, not one string")
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(text.split(" "))
    counts: Counter[str] = Counter()
    for chunk, n in chunks.items():  # each once: a text repeats most of its words
        for word in pre_tokenise(normalise(chunk, lowercase, strip_accents)):
            counts["".join(c for c, _, _ in word)] += n
    return counts


def split(word: str) -> list[str]:
    """A word as the pieces that training starts from: w ##o ##r ##d."""
    return [word[0], *(INSIDE + c for c in word[1:])]


def join(a: str, b: str) -> str:
    """Two neighbours as one piece."""
    return a + b.removeprefix(INSIDE)


def train_pieces(
    words: Counter[str],
    size: int,
    min_count: int = 2,
    alphabet: int | None = None,
    score: str = "count",
    inside: Sequence[str] | None = None,
) -> list[str]:
    """A vocabulary of `size` pieces from counted words: special tokens, characters, joined pieces in the order of joining.

    Each round joins the best pair of neighbours everywhere. score: "count", how often the pair occurs, as the `tokenizers`
    library does it; "quotient", that count divided by the counts of both pieces, as WordPiece is often described: it prefers
    pairs whose parts seldom stand elsewhere. (Schuster and Nakajima 2012 join what raises the likelihood of the text most.)
    Of equal pairs the one whose pieces were in the vocabulary earlier is joined, so the result does not depend on the order of
    the words. inside: the order of the ##-characters in the vocabulary, if not alphabetical.
    alphabet: keep at most so many characters, the most frequent; a word with another one is left out of the counts of pairs
    from that character on. Training stops early when no pair occurs min_count times.
    """
    if not words:
        raise ValueError("there is no word to learn from")
    if score not in SCORES:
        raise ValueError(f"score is one of {', '.join(SCORES)}, not {score!r}")
    kept = _alphabet(words, alphabet)
    pieces = list(SPECIALS)
    if inside is None:
        inside = sorted({INSIDE + c for word in words for c in word[1:] if c in kept})
    pieces += [*sorted(kept), *inside]
    if size < len(pieces):
        raise ValueError(f"size={size} is too small: special tokens and characters alone are {len(pieces)}")
    spelt = [[c for c in split(word) if c.removeprefix(INSIDE) in kept or c in kept] for word in words]
    known = set(pieces)
    for pair in _merges(spelt, list(words.values()), pieces, min_count, score):
        piece = join(*pair)
        if piece not in known:
            known.add(piece)
            pieces.append(piece)
        if len(pieces) >= size:
            break
    return pieces


def _alphabet(words: Counter[str], most: int | None) -> set[str]:
    counts: Counter[str] = Counter()
    for word, n in words.items():
        for c in word:
            counts[c] += n
    ranked = sorted(counts, key=lambda c: (-counts[c], c))
    return set(ranked if most is None else ranked[:most])


def _merges(spelt: list[list[str]], counts: list[int], pieces: list[str], min_count: int, score: str) -> Iterable[Pair]:
    """Yield the best pair, join it everywhere, and so on. Only words that hold the pair are touched."""
    rank = {piece: i for i, piece in enumerate(pieces)}
    pairs: Counter[Pair] = Counter()
    single: Counter[str] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for w, word in enumerate(spelt):
        for piece in word:
            single[piece] += counts[w]
        for pair in pairwise(word):
            pairs[pair] += counts[w]
            where[pair].add(w)

    def value(pair: Pair) -> float:
        n = pairs[pair]
        return n if score == "count" else n / (single[pair[0]] * single[pair[1]])

    def entry(pair: Pair) -> tuple[float, int, int, Pair]:
        return -value(pair), rank[pair[0]], rank[pair[1]], pair

    queue = [entry(pair) for pair in pairs if pairs[pair] >= min_count]
    heapq.heapify(queue)
    while queue:
        old, *_, pair = heapq.heappop(queue)
        if pairs[pair] < min_count:
            continue
        if -old != value(pair):  # its count has changed since it was put in
            heapq.heappush(queue, entry(pair))
            continue
        piece, changed = join(*pair), set()
        rank.setdefault(piece, len(rank))
        yield pair
        for w in where.pop(pair):
            before, after = spelt[w], _joined(spelt[w], pair, piece)
            spelt[w] = after
            for sign, word in ((-1, before), (1, after)):
                for one in word:
                    single[one] += sign * counts[w]
                for two in pairwise(word):
                    pairs[two] += sign * counts[w]
                    if sign > 0:
                        where[two].add(w)
                        changed.add(two)
        if score == "quotient":  # the counts of single pieces have fallen, so the value of other pairs has risen
            changed |= {two for two in pairs if pair[0] in two or pair[1] in two}
        for two in changed:
            if pairs[two] >= min_count:
                heapq.heappush(queue, entry(two))


def _joined(word: list[str], pair: Pair, piece: str) -> list[str]:
    found, i = [], 0
    while i < len(word):
        if tuple(word[i : i + 2]) == pair:
            found.append(piece)
            i += 2
        else:
            found.append(word[i])
            i += 1
    return found


def train_wordpiece(texts: Sequence[str], size: int, min_count: int = 2, alphabet: int | None = None) -> WordPiece:
    """A vocabulary made in seconds by the `tokenizers` library (Rust), for large texts.

    By the rules of `train_pieces` with score "count", but for pairs of equal count: that library numbers the ##-characters in
    the order of a hash table, so its choice among equals may change from process to process. Texts are counted here first,
    and the words are handed over sorted by count, so that this does not depend on the order of the texts.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token=UNK, max_input_chars_per_word=LONGEST))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    settings: dict[str, Any] = {} if alphabet is None else {"limit_alphabet": alphabet}
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=min_count, special_tokens=list(SPECIALS), show_progress=False, **settings
    )
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary = tokenizer.get_vocab()
    return WordPiece(sorted(vocabulary, key=vocabulary.__getitem__))
