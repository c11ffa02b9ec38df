"""How good are word vectors? Word pairs that people rated, and questions of the form man : king = woman : ?"""

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from torch.nn import functional as F

from plm.data import GENSIM, package_file
from plm.keyed_vectors import KeyedVectors

FILES = {  # in gensim's test data; SHA-256
    "wordsim353": ("wordsim353.tsv", "f92a022fc2537793a15bc3a8c162ebcd74990e033a228bb6388cb71e4c0b1e1d"),
    "simlex999": ("simlex999.txt", "d5e0501971478a511430ee880bd0121e94ac701ba86d90544d83e6d2ba3db05d"),
    "analogies": ("questions-words.txt", "8c29b3332afc46f3fb8be04cb5297bf96f39aa7131272dff57869b4485b22a36"),
}
PAIR_SETS = ("wordsim353", "simlex999")


class WordPair(NamedTuple):
    """Two words and the mean of people's ratings, 0 … 10."""

    a: str
    b: str
    score: float


@functools.cache
def _lines(name: str) -> tuple[str, ...]:
    file, checksum = FILES[name]
    path = package_file(GENSIM, "gensim", f"test/test_data/{file}", checksum)
    return tuple(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))


def word_pairs(name: str) -> list[WordPair]:
    """The rated pairs of "wordsim353" (relatedness) or "simlex999" (similarity), in lower case."""
    if name not in PAIR_SETS:
        raise ValueError(f"there are the pairs {' and '.join(PAIR_SETS)}, not {name!r}")
    rows = (line.lower().split("\t") for line in _lines(name))
    return [WordPair(a, b, float(score)) for a, b, score in rows]


def analogy_questions() -> dict[str, list[tuple[str, str, str, str]]]:
    """Mikolov's questions by section, in lower case: (a, b, c, answer), a is to b as c is to the answer."""
    sections: dict[str, list[tuple[str, str, str, str]]] = {}
    for line in _lines("analogies"):
        if line.startswith(":"):
            questions = sections.setdefault(line[1:].strip(), [])
        else:
            a, b, c, answer = line.lower().split()
            questions.append((a, b, c, answer))
    return sections


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Correlation of the ranks, -1 … 1; equal values share their mean rank. NaN if one side is constant."""
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if a.shape != b.shape or a.ndim != 1 or len(a) < 2:
        raise ValueError(f"need two rows of one length, at least 2; got {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("NaN or infinity has no rank")
    ranks = [rankdata(v) - (len(v) + 1) / 2 for v in (a, b)]
    lengths = np.linalg.norm(ranks[0]) * np.linalg.norm(ranks[1])
    return float(ranks[0] @ ranks[1] / lengths) if lengths else float("nan")


class WordSimilarity(NamedTuple):
    """Spearman's rho with a 95 % bootstrap interval over the pairs, and how many pairs had both vectors."""

    rho: float
    low: float
    high: float
    covered: int
    total: int

    def __str__(self) -> str:
        return f"{self.rho:.3f} [{self.low:.3f}, {self.high:.3f}], {self.covered} of {self.total} pairs"


def word_similarity(name: str, vectors: KeyedVectors, samples: int = 1000, seed: int = 0) -> WordSimilarity:
    """Do the cosines order the pairs as people do? Pairs with a word that has no vector are left out, and counted.

    name: "wordsim353" or "simlex999". The interval shows the luck of the pairs, not of the training run.
    """
    pairs = word_pairs(name)
    known = [p for p in pairs if p.a in vectors and p.b in vectors]
    if len(known) < 2:
        raise ValueError(f"only {len(known)} of the {len(pairs)} pairs of {name} have both vectors: no correlation")
    unit = F.normalize(vectors.vectors.double(), dim=1).cpu().numpy()
    a, b = unit[[vectors.id(p.a) for p in known]], unit[[vectors.id(p.b) for p in known]]
    cosines, scores = (a * b).sum(1), np.array([p.score for p in known])
    rng = np.random.default_rng(seed)
    draws = (rng.integers(0, len(known), len(known)) for _ in range(samples))
    low, high = np.nanquantile([spearman(cosines[d], scores[d]) for d in draws], [0.025, 0.975])
    return WordSimilarity(spearman(cosines, scores), float(low), float(high), len(known), len(pairs))


class AnalogyScore(NamedTuple):
    """Right answers, questions whose four words have vectors, and questions in all."""

    correct: int
    covered: int
    total: int

    @property
    def accuracy(self) -> float:
        """Share of the covered questions that were answered right; NaN if there are none."""
        return self.correct / self.covered if self.covered else float("nan")


def analogies(vectors: KeyedVectors, sections: list[str] | None = None) -> dict[str, AnalogyScore]:
    """3CosAdd on Mikolov's questions: accuracy per section, and over all of them under "all".

    Every word is a candidate but the three of the question. A question with an unknown word is not asked, but counted.
    """
    questions = analogy_questions()
    unknown = set(sections or ()) - questions.keys()
    if unknown:
        raise ValueError(f"there is no section {sorted(unknown)}; there are {', '.join(questions)}")
    unit = F.normalize(vectors.vectors.double(), dim=1).cpu().numpy()
    scores = {}
    for name in sections or questions:
        known = [q for q in questions[name] if all(word in vectors for word in q)]
        ids = np.array([[vectors.id(word) for word in q] for q in known], np.int64).reshape(-1, 4)
        scores[name] = AnalogyScore(_n_right(unit, ids), len(known), len(questions[name]))
    scores["all"] = AnalogyScore(*map(sum, zip(*scores.values(), strict=True)))
    return scores


def _n_right(unit: NDArray[np.float64], ids: NDArray[np.int64], batch: int = 512) -> int:
    right = 0
    for a, b, c, answer in (part.T for part in np.split(ids, range(batch, len(ids), batch))):
        cosines = (unit[b] - unit[a] + unit[c]) @ unit.T
        for asked in (a, b, c):
            cosines[np.arange(len(a)), asked] = -np.inf
        right += int((cosines.argmax(1) == answer).sum())
    return right
