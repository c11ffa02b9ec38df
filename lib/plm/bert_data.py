"""The book's texts for BERT: documents of sentences, the vocabulary of pieces made from them, and both as arrays of ids."""

import contextlib
import functools
import hashlib
import inspect
import io
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from plm import wordpiece, wordpiece_training
from plm.data import REVIEWS_SHA256, language_model_text, review_sentences, reviews
from plm.files import cache_dir, cached_text, write_atomically
from plm.masking import Documents
from plm.progress import progress
from plm.tokenize import sentences
from plm.wordpiece import WordPiece
from plm.wordpiece_training import count_words, train_pieces

N_WORDS = 5_000_000  # of the IMDB reviews: what ELMo read, so that the same reviews are held out for probes
N_PIECES, N_CHARACTERS = 6000, 100


class Corpus(NamedTuple):
    """What a BERT of this book is pretrained and measured on."""

    tokenizer: WordPiece
    train: Documents
    dev: Documents
    singles: Documents | None  # documents of one sentence, which make no pairs


def untokenise(text: str) -> str:
    """Join what the Rotten Tomatoes sentences have apart ("do n't", "it 's"), as running text has it."""
    return re.sub(r"(?<=\w) (n't|'(?:s|re|ve|ll|d|m))\b", r"\1", text)


@functools.cache
def english(part: str) -> tuple[tuple[str, ...], ...]:
    """IMDB reviews as documents of sentences (strings): part is "train" (five million words), "dev" or "test"."""
    if part not in ("train", "dev", "test"):
        raise ValueError(f'part is "train", "dev" or "test", not {part!r}')
    documents = reviews(f"imdb_{part}")
    if part == "train":
        sizes = accumulate(sum(map(len, document)) for document in review_sentences("imdb_train"))
        documents = documents[: 1 + next(i for i, n in enumerate(sizes) if n >= N_WORDS)]
        assert sum(map(len, language_model_text(N_WORDS).train)) >= N_WORDS
    return tuple(tuple(untokenise(s) for s in sentences(review.text)) for review in documents)


def single_sentences() -> tuple[tuple[str, ...], ...]:
    """The Rotten Tomatoes sentences of the training part, each a document of its own. Their labels are not used."""
    return tuple((untokenise(" ".join(sentences(review.text))),) for review in reviews("rt_train"))


@functools.cache
def english_wordpiece(size: int = N_PIECES) -> WordPiece:
    """The book's English vocabulary, made by our own trainer from the training texts; cached."""

    def make() -> str:
        texts = [s for document in (*english("train"), *single_sentences()) for s in document]
        return json.dumps(train_pieces(count_words(texts), size, alphabet=N_CHARACTERS))

    sources = (wordpiece, wordpiece_training, untokenise, sentences)
    key = REVIEWS_SHA256 + "".join(inspect.getsource(source) for source in sources) + f"{N_WORDS} {size} {N_CHARACTERS}"
    return WordPiece(json.loads(cached_text(f"wordpiece-{size}", key, make)))


def encode_documents(documents: Sequence[Sequence[str]], tokenizer: WordPiece) -> Documents:
    """Documents of sentences as ids, by the fast tokenizer."""
    fast, found = tokenizer.fast(), []
    for i in progress(range(0, len(documents), 1000), "cutting texts into pieces"):
        part = documents[i : i + 1000]
        encoded = iter(fast.encode_batch([s for d in part for s in d], add_special_tokens=False))
        found += [[next(encoded).ids for _ in d] for d in part]
    return Documents.build(found)


def cached_documents(name: str, key: str, make: Callable[[], Documents]) -> Documents:
    """`make()`, or the copy of an earlier call with the same name and key; a broken copy is made anew."""
    path = cache_dir() / f"{name}-{hashlib.sha256(key.encode('utf-8')).hexdigest()[:16]}.npz"
    with contextlib.suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile), np.load(path) as stored:
        return Documents(*(stored[field] for field in Documents._fields))
    documents, raw = make(), io.BytesIO()
    np.savez(raw, **documents._asdict())
    with contextlib.suppress(OSError):
        write_atomically(path, raw.getvalue())
    return documents


def english_documents(part: str) -> Documents:
    """The reviews of `english`, or with part "singles" the Rotten Tomatoes sentences, in ids of `english_wordpiece`."""
    tokenizer = english_wordpiece()
    key = "".join(tokenizer.pieces) + REVIEWS_SHA256 + inspect.getsource(untokenise) + inspect.getsource(sentences)
    texts = single_sentences if part == "singles" else functools.partial(english, part)
    return cached_documents(f"bert-{part}", key, lambda: encode_documents(texts(), tokenizer))


def corpus(language: str) -> Corpus:
    """The book's text in "en" (film reviews, pieces of words) or "zh" (news and product reviews, characters)."""
    if language == "en":
        return Corpus(english_wordpiece(), *(english_documents(part) for part in ("train", "dev", "singles")))
    if language == "zh":
        from plm.chinese import chinese_documents, chinese_tokenizer

        return Corpus(chinese_tokenizer(), chinese_documents("train"), chinese_documents("dev"), None)
    raise ValueError(f'language is "en" or "zh", not {language!r}')


def piece_counts(documents: Documents, size: int) -> np.ndarray:
    """How often each id occurs, (size,)."""
    return np.bincount(documents.ids, minlength=size)


def id_sentences(documents: Documents) -> list[list[int]]:
    """The sentences as lists of ids, as `plm.word2vec.train_word2vec` takes them."""
    return [part.tolist() for part in np.split(documents.ids, documents.sentences[1:-1])]
