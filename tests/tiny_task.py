"""A language model of a few hundred numbers, for the tests of the engine: dropout, a tied table, all three generators in use."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plm.pretrain import pretrain, seed_of
from plm.train import save_checkpoint

V, D = 11, 8


def to_the_end(task, folder, settings, **more):
    """`pretrain`, for tests that compare what it leaves. A signal that ends it early is meant for the whole session.

    The SIGTERM of `timeout`, say: the run saves and returns, as it should, and nobody else would ever hear of the signal.
    """
    progress = pretrain(task, folder, settings, **more)
    if progress.step < settings.steps:
        pytest.exit(f"a signal asked to stop after step {progress.step} of {settings.steps}", returncode=143)
    return progress


class TinyLM(nn.Module):
    """Guesses each token from the one before it."""

    def __init__(self, dropout=0.2):
        super().__init__()
        self.table = nn.Embedding(V, D)
        self.norm = nn.LayerNorm(D)
        self.hidden = nn.Linear(D, D)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(D, V)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(self.drop(torch.tanh(self.hidden(self.norm(self.table(ids))))))


@dataclass
class TinyTask:
    """Rows of random length: the number of predictions differs from batch to batch."""

    dropout: float = 0.2
    noise: float = 0.01  # on the loss, from all three generators
    batch_size: int = 4
    seed: int = 0
    model: nn.Module = field(init=False)

    def __post_init__(self):
        torch.manual_seed(self.seed)
        self.model = TinyLM(self.dropout)

    def row(self, i):
        generator = torch.Generator().manual_seed(seed_of(self.seed, i))
        first = torch.randint(V, (1,), generator=generator)
        length = int(torch.randint(3, 9, (1,), generator=generator))
        ids = (first + 2 * torch.arange(9)) % V  # each token is the one before it plus 2
        return ids, torch.where(torch.arange(8) < length, ids[1:], -100)

    def batch(self, k):
        rows = [self.row(i) for i in range(k * self.batch_size, (k + 1) * self.batch_size)]
        ids, targets = (torch.stack(column) for column in zip(*rows))
        return {"ids": ids[:, :-1], "targets": targets}

    def counts(self, batch):
        return {"tokens": batch["ids"].numel(), "next": int((batch["targets"] >= 0).sum()), "last": len(batch["ids"])}

    def losses(self, model, batch):
        logits = model(batch["ids"])
        loss = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), reduction="sum", ignore_index=-100)
        chance = random.random() + np.random.rand() + torch.rand(()).item()  # noqa: NPY002
        return {"next": loss * (1 + self.noise * chance), "last": logits[:, -1].square().mean(-1).sum() * 0.01}

    def evaluate(self, model):
        batch = self.batch(10**6)
        random.random(), torch.rand(3)  # an evaluation may draw as it likes
        logits = model(batch["ids"]).detach()
        return {"loss": float(F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten()))}

    def save(self, path):
        save_checkpoint(path, self.model, {"kind": "tiny"})

    def identity(self):
        return {"kind": "tiny", "batch_size": self.batch_size, "seed": self.seed}
