"""Do the word vectors of the NNLM help a sentiment classifier that has few labels?
Random, frozen and fine-tuned vectors.

Command: python chapters/experiments/nnlm_transfer.py
Budget: about 8 minutes on one core.

Needs chapters/checkpoints/nnlm*.safetensors; writes
chapters/results/nnlm_transfer.json: test accuracy for 100, 500 and 2,000 labels,
ten seeds each (a seed draws the labelled sentences, the random vectors and the
batches; the same seed means the same sentences for every way). Learning rate and
number of steps are chosen for each way and each number of labels by the dev
accuracy, a mean over the ten seeds; every way chooses from the same grid. The bag
of words chooses the strength of its penalty in the same manner, and so does
"frozen, 5M, LR": the frozen vectors with the same logistic regression, trained
until nothing changes, so that no difference to the bag comes from the training.
"""

import json
import statistics
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional as F

from plm.data import language_model_text, reviews
from plm.evaluate import accuracy
from plm.files import write_atomically
from plm.tokenize import words
from plm.train import Batches, fit, load_checkpoint, seed_everything
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

CHAPTERS = Path(__file__).resolve().parents[1]
COMMAND = "python chapters/experiments/nnlm_transfer.py"
LABELS, SEEDS = (100, 500, 2000), range(10)
RATES, STEPS = (3e-3, 1e-2, 3e-2, 1e-1), (30, 100, 300)
PENALTIES = (0.1, 1.0, 10.0, 100.0)  # C of scikit-learn, the inverse of the penalty


class MeanOfVectors(nn.Module):
    """A sentence is the average of its words' vectors; a linear layer on top says
    negative or positive.
    """

    def __init__(self, Q: Tensor, frozen: bool):
        super().__init__()
        self.Q = nn.Parameter(Q.clone(), requires_grad=not frozen)
        self.head = nn.Linear(Q.shape[1], 2)

    def forward(self, bags: Tensor) -> Tensor:
        """bags: (B, V), the share of each word in the sentence. Returns logits (B,
        2).
        """
        return self.head(bags @ self.Q)


def bags_and_labels(split: str, vocab: Vocab) -> tuple[Tensor, Tensor]:
    """For each review the share of each word (N, V), and its label (N,)."""
    found = reviews(split)
    bags = torch.zeros(len(found), len(vocab))
    for row, review in zip(bags, found, strict=True):
        ids = torch.tensor(vocab.encode(words(review.text)))
        row.index_add_(0, ids, torch.full((len(ids),), 1 / len(ids)))
    return bags, torch.tensor([review.label for review in found])


def standardise(Q: Tensor) -> Tensor:
    """Centre and scale a table of vectors, so that one learning rate suits them
    all.
    """
    return (Q - Q.mean(0)) / Q.std()


def draw(n: int, pool: int, seed: int) -> Tensor:
    """Which `n` sentences of the pool have a label in this run."""
    return torch.randperm(pool, generator=torch.Generator().manual_seed(seed))[:n]


def classify(
    Q: Tensor, frozen: bool, train: tuple, held_out: list, lr: float, seed: int
) -> list[list[float]]:
    """Train one classifier; return its accuracy on each part of `held_out` after
    each number of steps in STEPS.

    Only words of the labelled sentences can move, so only their rows are trained,
    and frozen rows are averaged once. Both give what training the whole table
    would give, in a fraction of the time.
    """
    seed_everything(seed)
    (bags, labels), whole = train, Q.clone()
    here = (bags > 0).any(0).nonzero()[:, 0]
    model = MeanOfVectors(torch.eye(Q.shape[1]) if frozen else Q[here], frozen)
    inputs = bags @ Q if frozen else bags[:, here]
    scores: list[list[float]] = []

    def measure() -> float:
        if not frozen:
            whole[here] = model.Q.detach()
        scores.append(
            [accuracy(model.head(x @ whole).argmax(1), y) for x, y in held_out]
        )
        return scores[-1][0]

    fit(
        model,
        lambda b: F.cross_entropy(model(b[0]), b[1]),
        Batches(inputs, labels, batch_size=32, seed=seed),
        STEPS[-1],
        optimizer=torch.optim.Adam(
            [p for p in model.parameters() if p.requires_grad], lr, fused=True
        ),
        evaluate=measure,
        evaluate_at=STEPS[:-1],
    )
    return scores


def logistic(
    train: tuple, held_out: list, C: float, Q: Tensor | None = None
) -> list[float]:
    """Logistic regression on the average of the vectors in `Q`; without `Q` on
    which words occur, the opponent that has no vectors.
    """

    def features(bags: Tensor) -> np.ndarray:
        dense = bags.to_dense()
        return ((dense > 0).float() if Q is None else dense @ Q).numpy()

    model = LogisticRegression(C=C, max_iter=2000)
    model.fit(features(train[0]), train[1])
    return [float(model.score(features(x), y)) for x, y in held_out]


def best_on_dev(found: dict[tuple, list[list[float]]]) -> tuple[tuple, list[float]]:
    """Of {settings: [dev and test accuracy of each seed]} the settings with the
    best mean on dev, and the test accuracies of the seeds.
    """
    best = max(found, key=lambda key: statistics.mean(s[0] for s in found[key]))
    return best, [round(score[1], 4) for score in found[best]]


def main() -> None:
    torch.set_num_threads(1)
    vocab = Vocab.build(
        (w for s in language_model_text(1_000_000).train for w in s),
        10_000,
        specials=LANGUAGE_MODEL_SPECIALS,
    )
    bags, labels = bags_and_labels("rt_train", vocab)
    held_out = [bags_and_labels(f"rt_{part}", vocab) for part in ("dev", "test")]
    held_out = [(part.to_sparse(), y) for part, y in held_out]
    files = {"1M": "nnlm.safetensors", "5M": "nnlm_5m_vectors.safetensors"}
    tables = {
        name: standardise(load_checkpoint(CHAPTERS / "checkpoints" / file)[0]["Q"])
        for name, file in files.items()
    }

    def ways(seed: int) -> dict[str, tuple[Tensor, bool]]:
        random = torch.randn(
            tables["5M"].shape, generator=torch.Generator().manual_seed(seed)
        )
        found = {"random": (random, False), "random, frozen": (random, True)}
        for name, Q in tables.items():
            found[f"frozen, {name}"] = (Q, True)
            found[f"fine-tuned, {name}"] = (Q, False)
        return found

    recipes: dict[str, dict[int, dict]] = {}
    results: dict[str, dict[int, list[float]]] = {}
    for n in LABELS:
        found: dict[str, dict[tuple, list[list[float]]]] = {}
        for seed in SEEDS:
            rows = draw(n, len(labels), seed)
            labelled = bags[rows], labels[rows]
            for way, (Q, frozen) in ways(seed).items():
                for lr in RATES:
                    scores = classify(Q, frozen, labelled, held_out, lr, seed)
                    for steps, score in zip(STEPS, scores, strict=True):
                        by_settings = found.setdefault(way, {})
                        by_settings.setdefault((lr, steps), []).append(score)
            for way, Q in (
                ("frozen, 5M, LR", tables["5M"]),
                ("bag of words", None),
            ):
                for C in PENALTIES:
                    score = logistic(labelled, held_out, C, Q)
                    found.setdefault(way, {}).setdefault((C,), []).append(score)
        for way, by_settings in found.items():
            settings, scores = best_on_dev(by_settings)
            names = ("lr", "steps") if len(settings) == 2 else ("C",)
            recipes.setdefault(way, {})[n] = dict(zip(names, settings, strict=True))
            results.setdefault(way, {})[n] = scores
            print(n, way, settings, round(statistics.mean(scores), 3), flush=True)
    content = {
        "command": COMMAND,
        "labels": LABELS,
        "seeds": list(SEEDS),
        "grid": {"lr": RATES, "steps": STEPS, "C": PENALTIES},
        "batch": 32,
        "optimizer": "Adam",
        "recipes": recipes,
        "accuracy": results,
    }
    write_atomically(
        CHAPTERS / "results" / "nnlm_transfer.json",
        json.dumps(content, indent=1) + "\n",
    )


if __name__ == "__main__":
    main()
