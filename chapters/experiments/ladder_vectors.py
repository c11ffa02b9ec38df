"""The first rungs of the ladder: bag of words, random vectors, and the vectors of
NNLM, word2vec and GloVe, frozen and fine-tuned.

Command: python chapters/experiments/ladder_vectors.py
Budget: about an hour on one core; an interrupted run goes on where it stopped.

Needs chapters/checkpoints/*_vectors.safetensors; writes the rungs of chapters 2 to
4 into chapters/results/ladder.json. Task, labelled sentences, test part and choice
of settings are those of `plm.evaluate.climb`.

A sentence is the average of its known words' vectors. Frozen vectors get a logistic
regression and choose from one grid: vectors as they are or scaled to one length;
words weighted equally or the frequent ones less (Arora et al. 2017); penalty.
Fine-tuned ones start as they are, all words weighing the same, are trained with the
linear layer on top by Adam, and choose learning rate and steps. The bag of words
may choose between presence, tf-idf with and without pairs of words, logistic
regression and naive Bayes.
"""

import argparse
import warnings
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from torch import Tensor, nn
from torch.nn import functional as F

from plm.data import language_model_text, reviews
from plm.evaluate import Rung, accuracy, add_rung, climb
from plm.files import cache_dir
from plm.tokenize import words
from plm.train import Batches, fit, load_checkpoint, seed_everything
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

CHAPTERS = Path(__file__).resolve().parents[1]
COMMAND = "python chapters/experiments/ladder_vectors.py"
RATES, STEPS = (1e-3, 3e-3, 1e-2, 3e-2), (30, 100, 300)
PENALTIES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)  # C of scikit-learn: less is more
SIF = 1e-3  # a word of frequency f weighs SIF / (SIF + f)
FORMS = [
    (length, weight) for length in ("own", "unit") for weight in ("equal", "sif")
]
PARTS = ("train", "dev", "test")

Scores = dict[tuple, tuple[float, float]]


@cache
def labels(part: str) -> Tensor:
    return torch.tensor([review.label for review in reviews(f"rt_{part}")])


@cache
def texts(part: str) -> list[list[str]]:
    return [words(review.text) for review in reviews(f"rt_{part}")]


@cache
def counts() -> Counter:
    return Counter(w for s in language_model_text(5_000_000).train for w in s)


@cache
def shares(vocab: Vocab, weight: str, part: str) -> Tensor:
    """(N, V) sparse: each known word's weight in each sentence, summing to 1."""
    total = counts().total()
    rows, columns, values = [], [], []
    for i, sentence in enumerate(texts(part)):
        known = [w for w in sentence if w in vocab]
        found = [SIF / (SIF + counts()[w] / total) for w in known]
        found = found if weight == "sif" else [1.0] * len(known)
        rows += [i] * len(known)
        columns += vocab.encode(known)
        values += [value / sum(found) for value in found]
    size = (len(texts(part)), len(vocab))
    return torch.sparse_coo_tensor(
        [rows, columns], values, size, check_invariants=True
    ).coalesce()


def scaled(Q: Tensor, length: str) -> Tensor:
    """Centre and scale a table, so that one rate and one penalty suit all."""
    Q = F.normalize(Q, dim=1) if length == "unit" else Q
    return (Q - Q.mean(0)) / Q.std()


@cache
def averages(
    name: str, seed: int, length: str, weight: str
) -> dict[str, np.ndarray]:
    """For each part of the data the average vector of each sentence, (N, d)."""
    Q, vocab = table(name, seed)
    Q = scaled(Q, length)
    return {part: (shares(vocab, weight, part) @ Q).numpy() for part in PARTS}


@cache
def base_vocab() -> Vocab:
    """The ten thousand words of chapter 3."""
    text = language_model_text(1_000_000).train
    return Vocab.build(
        (w for s in text for w in s), 10_000, specials=LANGUAGE_MODEL_SPECIALS
    )


@cache
def table(name: str, seed: int = 0) -> tuple[Tensor, Vocab]:
    """A table of vectors and its words; `seed` counts for random ones only."""
    if name == "random":
        shape = len(base_vocab()), 100
        return torch.randn(
            shape, generator=torch.Generator().manual_seed(seed)
        ), base_vocab()
    state, config = load_checkpoint(
        CHAPTERS / "checkpoints" / f"{name}.safetensors"
    )
    vocab = (
        Vocab(config["words"], specials=()) if "words" in config else base_vocab()
    )
    return state["Q"], vocab


def logistic(C: float, x, y) -> LogisticRegression:
    # Newton's method needs few steps, but a matrix of d x d: for vectors only.
    dense = isinstance(x, np.ndarray)
    solver = "newton-cholesky" if dense else "lbfgs"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=C, max_iter=1000, solver=solver).fit(x, y)


def run_frozen(name: str, rows: Tensor, seed: int) -> Scores:
    """Logistic regression on averages of vectors that stay as they are."""
    scores, which = {}, seed if name == "random" else 0
    for length, weight in FORMS:
        x = averages(name, which, length, weight)
        for C in PENALTIES:
            model = logistic(C, x["train"][rows], labels("train")[rows])
            setting = ("length", length), ("weight", weight), ("C", C)
            scores[setting] = tuple(
                float(model.score(x[part], labels(part)))
                for part in ("dev", "test")
            )
    return scores


class MeanOfVectors(nn.Module):
    """The average of a sentence's vectors, and a linear layer on top."""

    def __init__(self, Q: Tensor):
        super().__init__()
        self.Q, self.head = nn.Parameter(Q.clone()), nn.Linear(Q.shape[1], 2)

    def forward(self, ids: Tensor, weights: Tensor) -> Tensor:
        """ids, weights: (B, T), weight 0 for padding. Returns logits (B, 2)."""
        return self.head((F.embedding(ids, self.Q) * weights[:, :, None]).sum(1))


def padded(share: Tensor) -> tuple[Tensor, Tensor]:
    """Of (N, V) the columns that are not 0, and their values, both (N, T)."""
    width = int((share > 0).sum(1).max())
    weights, ids = share.topk(width, dim=1)
    return ids, weights


def run_trained(name: str, rows: Tensor, seed: int) -> Scores:
    """Vectors that are trained along, from what they were before.

    Only words of the labelled sentences can move, so only their rows are trained:
    the same result in a fraction of the time.
    """
    scores = {}
    Q, vocab = table(name, seed if name == "random" else 0)
    whole = scaled(Q, "own")
    held_out = [(shares(vocab, "equal", p), labels(p)) for p in ("dev", "test")]
    inputs = shares(vocab, "equal", "train").index_select(0, rows).to_dense()
    here = (inputs > 0).any(0).nonzero()[:, 0]
    batches = *padded(inputs[:, here]), labels("train")[rows]
    for lr in RATES:
        seed_everything(seed)
        model, trained = MeanOfVectors(whole[here]), whole.clone()
        marks: list[tuple[float, ...]] = []

        def measure(model=model, trained=trained, marks=marks) -> float:
            trained[here] = model.Q.detach()
            guesses = [model.head(x @ trained).argmax(1) for x, _ in held_out]
            found = zip(guesses, held_out)
            marks.append(tuple(accuracy(guess, y) for guess, (_, y) in found))
            return marks[-1][0]

        fit(
            model,
            lambda b, m=model: F.cross_entropy(m(b[0], b[1]), b[2]),
            Batches(*batches, batch_size=32, seed=seed),
            STEPS[-1],
            optimizer=torch.optim.Adam(model.parameters(), lr, fused=True),
            evaluate=measure,
            evaluate_at=STEPS[:-1],
        )
        for steps, mark in zip(STEPS, marks):
            scores[("lr", lr), ("steps", steps)] = mark
    return scores


def run_bag(rows: Tensor, seed: int) -> Scores:
    """Which words are there: the opponent that has no vectors and no other text."""
    chosen = [texts("train")[i] for i in rows.tolist()]
    makers = {
        "words": CountVectorizer(analyzer=list, binary=True),
        "tf-idf": TfidfVectorizer(analyzer=list, sublinear_tf=True),
        "tf-idf, pairs": TfidfVectorizer(analyzer=with_pairs, sublinear_tf=True),
    }
    scores = {}
    for features, maker in makers.items():
        x = maker.fit_transform(chosen)
        held_out = [
            (maker.transform(texts(part)), labels(part)) for part in ("dev", "test")
        ]
        models = {
            ("C", C): logistic(C, x, labels("train")[rows]) for C in PENALTIES
        }
        for alpha in (0.1, 0.3, 1.0, 3.0):
            model = MultinomialNB(alpha=alpha).fit(x, labels("train")[rows])
            models["naive Bayes, alpha", alpha] = model
        for setting, model in models.items():
            found = tuple(float(model.score(*part)) for part in held_out)
            scores[("features", features), setting] = found
    return scores


def with_pairs(sentence: list[str]) -> list[str]:
    return sentence + [f"{a} {b}" for a, b in pairwise(sentence)]


NNLM, W2V, GLOVE = "nnlm_5m_vectors", "word2vec_5m_vectors", "glove_5m_vectors"
EVERYTHING = "word2vec_all_vectors"
RUNGS = {  # name: (chapter, way, model, how to run it)
    "bag of words": (2, "bag", "bag of words", run_bag),
    "random, frozen": (3, "random", "random", (run_frozen, "random")),
    "random, trained along": (3, "random", "random", (run_trained, "random")),
    "NNLM, frozen": (3, "frozen", "NNLM", (run_frozen, NNLM)),
    "NNLM, fine-tuned": (3, "fine-tuned", "NNLM", (run_trained, NNLM)),
    "word2vec, frozen": (4, "frozen", "word2vec", (run_frozen, W2V)),
    "word2vec, fine-tuned": (4, "fine-tuned", "word2vec", (run_trained, W2V)),
    "GloVe, frozen": (4, "frozen", "GloVe", (run_frozen, GLOVE)),
    "GloVe, fine-tuned": (4, "fine-tuned", "GloVe", (run_trained, GLOVE)),
    "word2vec, all text, frozen": (
        4,
        "frozen",
        "word2vec",
        (run_frozen, EVERYTHING),
    ),
    "word2vec, all text, fine-tuned": (
        4,
        "fine-tuned",
        "word2vec",
        (run_trained, EVERYTHING),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--only", nargs="*", default=list(RUNGS), choices=list(RUNGS)
    )
    torch.set_num_threads(1)
    for name in parser.parse_args().only:
        chapter, way, model, how = RUNGS[name]
        run = how if callable(how) else lambda *a, h=how: h[0](h[1], *a)
        store = cache_dir() / "runs" / f"ladder {name}.json"
        found = climb(run, store=store)
        rung = Rung(name, chapter, way, model, COMMAND, found)
        add_rung(CHAPTERS / "results" / "ladder.json", rung)
        means = {n: round(float(np.mean(a)), 3) for n, a in found.accuracy.items()}
        print(name, means, found.settings, flush=True)


if __name__ == "__main__":
    main()
