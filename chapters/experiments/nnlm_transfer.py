"""Do the word vectors of the NNLM help a sentiment classifier that has few labels?
Random, frozen and fine-tuned vectors.

Command: python chapters/experiments/nnlm_transfer.py
Budget: about 4 minutes on one core.

Needs chapters/checkpoints/nnlm*.safetensors; writes
chapters/results/nnlm_transfer.json: test accuracy for 100, 500 and 2,000 labels,
ten seeds each (a seed draws the labelled sentences, the random vectors and the
batches; the same seed means the same sentences for every way). The learning rate
and the number of steps are those that serve the *random* vectors best on the dev
part; every other way has to live with them.
"""

import json
import statistics
from pathlib import Path

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional as F

from plm.data import language_model_text, reviews
from plm.evaluate import accuracy, predict
from plm.files import write_atomically
from plm.tokenize import words
from plm.train import Batches, fit, load_checkpoint, seed_everything
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

CHAPTERS = Path(__file__).resolve().parents[1]
COMMAND = "python chapters/experiments/nnlm_transfer.py"
LABELS, SEEDS = (100, 500, 2000), range(10)


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
    Q: Tensor,
    frozen: bool,
    train: tuple,
    test: tuple,
    lr: float,
    steps: int,
    seed: int,
) -> float:
    """Train one classifier; return its accuracy on `test`."""
    seed_everything(seed)
    model = MeanOfVectors(Q, frozen)
    fit(
        model,
        lambda b: F.cross_entropy(model(b[0]), b[1]),
        Batches(*train, batch_size=32, seed=seed),
        steps,
        lr,
    )
    return accuracy(predict(model, test[0]), test[1])


def main() -> None:
    torch.set_num_threads(1)
    vocab = Vocab.build(
        (w for s in language_model_text(1_000_000).train for w in s),
        10_000,
        specials=LANGUAGE_MODEL_SPECIALS,
    )
    train, dev, test = (
        bags_and_labels(f"rt_{part}", vocab) for part in ("train", "dev", "test")
    )
    tables = {
        "1M": standardise(
            load_checkpoint(CHAPTERS / "checkpoints" / "nnlm.safetensors")[0]["Q"]
        ),
        "5M": standardise(
            load_checkpoint(
                CHAPTERS / "checkpoints" / "nnlm_5m_vectors.safetensors"
            )[0]["Q"]
        ),
    }

    def random_table(seed: int) -> Tensor:
        return torch.randn(
            tables["5M"].shape, generator=torch.Generator().manual_seed(seed)
        )

    tuning = []
    for lr in (3e-3, 1e-2, 3e-2):
        for steps in (100, 300):
            scores = []
            for seed in range(3):
                rows = draw(500, len(train[1]), seed)
                scores.append(
                    classify(
                        random_table(seed),
                        False,
                        (train[0][rows], train[1][rows]),
                        dev,
                        lr,
                        steps,
                        seed,
                    )
                )
            tuning.append(
                {"lr": lr, "steps": steps, "dev": round(statistics.mean(scores), 4)}
            )
    best = max(tuning, key=lambda t: t["dev"])
    print(best, flush=True)

    results: dict[str, dict[int, list[float]]] = {}
    for n in LABELS:
        for seed in SEEDS:
            rows = draw(n, len(train[1]), seed)
            labelled = train[0][rows], train[1][rows]
            ways = {
                "random": (random_table(seed), False),
                "random, frozen": (random_table(seed), True),
            }
            for name, Q in tables.items():
                ways |= {
                    f"frozen, {name}": (Q, True),
                    f"fine-tuned, {name}": (Q, False),
                }
            for way, (Q, frozen) in ways.items():
                score = classify(
                    Q, frozen, labelled, test, best["lr"], best["steps"], seed
                )
                results.setdefault(way, {}).setdefault(n, []).append(
                    round(score, 4)
                )
            present = (labelled[0] > 0).numpy()
            logistic = LogisticRegression(max_iter=1000).fit(present, labelled[1])
            score = float(logistic.score((test[0] > 0).numpy(), test[1]))
            results.setdefault("bag of words", {}).setdefault(n, []).append(
                round(score, 4)
            )
        print(
            n,
            {way: round(statistics.mean(r[n]), 3) for way, r in results.items()},
            flush=True,
        )
    content = {
        "command": COMMAND,
        "labels": LABELS,
        "seeds": list(SEEDS),
        "tuning_of_random_vectors": tuning,
        "recipe": best | {"batch": 32, "optimizer": "Adam"},
        "accuracy": results,
    }
    write_atomically(
        CHAPTERS / "results" / "nnlm_transfer.json",
        json.dumps(content, indent=1) + "\n",
    )


if __name__ == "__main__":
    main()
