"""ULMFiT: a language model becomes a classifier, layer by layer (Howard and Ruder 2018)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.elmo import BiLM
from plm.rnn import length_mask
from plm.train import fit


class LMClassifier(nn.Module):
    """A biLM, its top layer pooled three ways, and a small network on top.

    The paper's concat pooling: the last state, the maximum and the mean over the words (sec. 3.3), here of both directions;
    the paper trains a forward and a backward classifier and averages what they say.
    """

    def __init__(self, lm: BiLM, n_classes: int, d_hidden: int = 50, dropout: float = 0.2):
        super().__init__()
        if n_classes < 2:
            raise ValueError(f"a classifier needs at least two classes, not {n_classes}")
        self.lm = lm
        width = 6 * lm.config.d_emb
        self.head = nn.Sequential(
            nn.LayerNorm(width), nn.Dropout(dropout), nn.Linear(width, d_hidden), nn.ReLU(),
            nn.Dropout(dropout), nn.Linear(d_hidden, n_classes),
        )  # fmt: skip

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """ids: (B, T), lengths: (B,), both from `BiLM.pad`. Returns logits (B, n_classes)."""
        top = self.lm.states(ids, lengths)[-1]
        last = top.forward[torch.arange(len(ids)), lengths - 1]
        first = top.backward[:, 0]  # where the backward reader ends
        h = torch.cat(top, -1)
        inside = length_mask(lengths, ids.shape[1])[:, :, None]
        highest = h.masked_fill(~inside, -torch.inf).amax(1)
        mean = h.masked_fill(~inside, 0.0).sum(1) / lengths[:, None]
        return self.head(torch.cat([last, first, highest, mean], -1))

    def groups(self) -> list[list[nn.Parameter]]:
        """The parameters from the bottom to the top: word vectors, each layer of both directions, head."""
        lm = self.lm
        layers = [
            [*there.parameters(), *back.parameters()]
            for there, back in zip(lm.forward_lm.layers, lm.backward_lm.layers)
        ]
        return [list(lm.embedding.parameters()), *layers, list(self.head.parameters())]


def slanted_triangular(steps: int, cut: float = 0.1, ratio: float = 32.0) -> Callable[[int], float]:
    """Factor on the learning rate at a step: up in a line over `cut` of the steps, then down in a line to 1 / ratio.

    Howard and Ruder 2018, eq. 3.
    """
    if steps < 1 or not 0 < cut < 1 or not ratio >= 1:
        raise ValueError(f"need at least one step, 0 < cut < 1 and a ratio of at least 1; got {steps}, {cut}, {ratio}")
    turn = max(1, int(steps * cut))

    def factor(step: int) -> float:
        p = (step + 1) / turn if step < turn else max(0.0, 1 - (step - turn + 1) / max(1, steps - turn))
        return (1 + p * (ratio - 1)) / ratio

    return factor


def discriminative(groups: Sequence[list[nn.Parameter]], lr: float, factor: float = 2.6) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser: the top one learns at `lr`, each one below at the rate above divided by `factor`.

    factor=1 gives every group the same rate. Howard and Ruder 2018, sec. 3.2.
    """
    if not (factor > 0 and lr > 0):
        raise ValueError(f"lr and factor must be positive; got {lr} and {factor}")
    top = len(groups) - 1
    return [{"params": group, "lr": lr / factor ** (top - i)} for i, group in enumerate(groups)]


def thaw(groups: Sequence[list[nn.Parameter]], n: int) -> None:
    """Let the top `n` groups learn and freeze the others: n = 1, 2, … over the passes is gradual unfreezing (sec. 3.3)."""
    if not 0 <= n <= len(groups):
        raise ValueError(f"there are {len(groups)} groups; cannot thaw {n}")
    for i, group in enumerate(groups):
        for parameter in group:
            parameter.requires_grad_(i >= len(groups) - n)


def fine_tune(
    model: LMClassifier,
    batches: Iterable[tuple[Tensor, Tensor, Tensor]],
    passes: int,
    lr: float,
    *,
    factor: float = 2.6,
    gradual: bool = True,
    clip: float = 1.0,
    after_pass: Callable[[int], None] | None = None,
) -> list[float]:
    """Train the classifier for some passes over (ids, lengths, labels) and return the loss of every step.

    gradual: the first pass trains the head alone, each later one a layer more; otherwise everything from the start.
    after_pass(i) is called after each pass, in evaluation mode. The rates follow `slanted_triangular` over all steps.
    """
    batches = list(batches)
    if not batches or passes < 1:
        raise ValueError("there must be at least one batch and one pass")
    if not clip > 0:
        raise ValueError(f"clip is the largest norm a gradient may have and must be positive, not {clip}")
    groups = model.groups()
    n, losses = len(batches), list[float]()
    optimizer = torch.optim.Adam(discriminative(groups, lr, factor))
    rate = slanted_triangular(passes * n)

    def loss(batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        ids, lengths, labels = batch
        return F.cross_entropy(model(ids, lengths), labels)

    try:
        for i in range(passes):
            thaw(groups, min(i + 1, len(groups)) if gradual else len(groups))
            shuffled = [batches[k] for k in torch.randperm(n).tolist()]
            schedule = lambda step, i=i: rate(i * n + step)  # noqa: E731
            losses += fit(model, loss, shuffled, n, optimizer=optimizer, schedule=schedule, clip=clip).losses
            if after_pass is not None:
                model.eval()
                after_pass(i)
    finally:  # after an error, too, nothing stays frozen
        thaw(groups, len(groups))
    return losses
