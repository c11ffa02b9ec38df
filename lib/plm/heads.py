"""Four tasks, one encoder: what stands on top of BERT. Devlin et al. 2019, sec. 4 and figure 4.

Sentence pair and single sentence: a linear layer on one vector for the whole input. Question answering: two scores per token,
is this where the answer starts, where it ends? Tagging: a score per token and label. All read the same `Batch`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.bert import IGNORED, Bert, pad
from plm.hub import bert_state

POOLS = ("cls", "mean")


class Example(NamedTuple):
    """An input and what is wanted for it.

    target: a class (int) or a rating (float) for texts; the tokens (first, last) of an answer; a label per token, -100 where
    none is asked for.
    """

    ids: list[int]
    segments: list[int]
    target: Any


class Batch(NamedTuple):
    """Examples side by side, filled up on the right."""

    ids: Tensor  # (B, T) int64
    segments: Tensor  # (B, T) int64
    mask: Tensor  # (B, T) bool, True at real tokens
    targets: list[Any]

    def to(self, device: torch.device) -> "Batch":
        """The same batch elsewhere."""
        return Batch(self.ids.to(device), self.segments.to(device), self.mask.to(device), self.targets)


def collate(examples: Sequence[Example], pad_id: int = 0) -> Batch:
    """Examples as one batch."""
    for example in examples:
        if len(example.ids) != len(example.segments):
            raise ValueError(f"{len(example.ids)} ids but {len(example.segments)} segments: each token has its segment")
    ids = pad([example.ids for example in examples], pad_id)
    lengths = torch.tensor([len(example.ids) for example in examples])
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    return Batch(ids, pad([e.segments for e in examples]), mask, [e.target for e in examples])


class Head(nn.Module):
    """An encoder, dropout, and one linear layer. What it reads and how it is taught, the four kinds say."""

    def __init__(self, bert: Bert, n_outputs: int, dropout: float):
        super().__init__()
        if not isinstance(bert, Bert):
            raise TypeError(
                f"a head stands on a plm.bert.Bert, not on {type(bert).__name__}: of a pretrained one take .bert"
            )
        self.bert, self.drop = bert, nn.Dropout(dropout)
        self.output = nn.Linear(bert.config.d_model, n_outputs)
        nn.init.normal_(self.output.weight, std=bert.config.init_std)
        nn.init.zeros_(self.output.bias)

    def read(self, batch: Batch) -> Tensor:
        """What the linear layer is given: a vector per token, (B, T, d_model), or per text, (B, d_model)."""
        return self.bert(batch.ids, segments=batch.segments, mask=batch.mask).states

    def score(self, read: Tensor) -> Any:
        """The scores from what was read."""
        return self.output(self.drop(read))

    def forward(self, batch: Batch) -> Any:
        """The scores of a batch."""
        return self.score(self.read(batch))

    def targets(self, batch: Batch) -> Tensor:
        """What is wanted, as `loss` takes it."""
        raise NotImplementedError

    def loss(self, logits: Any, targets: Tensor) -> Tensor:
        """How far the scores are from it, a scalar."""
        raise NotImplementedError

    def forward_loss(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        return self.loss(self(batch), self.targets(batch).to(batch.ids.device))


class TextHead(Head):
    """Classes of a text, or of a pair of texts; with one class a rating, learnt by the squared error. Logits (B, n_classes).

    pool: "cls", tanh of a linear layer on [CLS], as published; "mean" over all real tokens, which needs no pretrained [CLS].
    """

    def __init__(self, bert: Bert, n_classes: int, dropout: float = 0.1, pool: str = "cls"):
        if n_classes < 1:
            raise ValueError(f"a text has at least two classes, or a rating (1); not {n_classes}")
        if pool not in POOLS:
            raise ValueError(f"pool is {' or '.join(POOLS)}, not {pool!r}")
        super().__init__(bert, n_classes, dropout)
        self.n_classes, self.pool = n_classes, pool

    def read(self, batch: Batch) -> Tensor:
        """(B, d_model)."""
        states, pooled = self.bert(batch.ids, segments=batch.segments, mask=batch.mask)
        if self.pool == "cls":
            return pooled
        real = batch.mask[..., None].to(states.dtype)
        return (states * real).sum(1) / real.sum(1)

    def targets(self, batch: Batch) -> Tensor:
        """(B,) int64, or floats for a rating."""
        kind = torch.int64 if self.n_classes > 1 else self.output.weight.dtype
        return torch.tensor(batch.targets, dtype=kind)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy, or the mean squared error of a rating."""
        if self.n_classes == 1:
            return F.mse_loss(logits.squeeze(-1), targets)
        return F.cross_entropy(logits, targets)


class SpanLogits(NamedTuple):
    """A score for each token to be the first, and to be the last, of the answer."""

    start: Tensor  # (B, T)
    end: Tensor  # (B, T)


class SpanHead(Head):
    """Where in the text is the answer? One vector for its start and one for its end; no answer is the span ([CLS], [CLS])."""

    def __init__(self, bert: Bert, dropout: float = 0.0):
        super().__init__(bert, 2, dropout)

    def score(self, read: Tensor) -> SpanLogits:
        """The scores of all tokens, padding and question included: `plm.question_answering` chooses among those it may."""
        return SpanLogits(*self.output(self.drop(read)).unbind(-1))

    def targets(self, batch: Batch) -> Tensor:
        """(B, 2) int64: places of the first and the last token."""
        wanted = torch.tensor(batch.targets, dtype=torch.int64)
        if wanted.ndim != 2 or wanted.shape[1] != 2 or bool((wanted < 0).any() | (wanted >= batch.ids.shape[1]).any()):
            raise ValueError(f"each target is (first token, last token) inside the input; got {batch.targets[:3]}")
        return wanted

    def loss(self, logits: SpanLogits, targets: Tensor) -> Tensor:
        """The mean of two cross entropies over the tokens."""
        return (F.cross_entropy(logits.start, targets[:, 0]) + F.cross_entropy(logits.end, targets[:, 1])) / 2


class TagHead(Head):
    """A label for each token that is asked for one (names, parts of speech). Logits (B, T, n_labels)."""

    def __init__(self, bert: Bert, n_labels: int, dropout: float = 0.1):
        if n_labels < 2:
            raise ValueError(f"a tagger has at least two labels, not {n_labels}")
        super().__init__(bert, n_labels, dropout)

    def targets(self, batch: Batch) -> Tensor:
        """(B, T) int64, -100 at special tokens, at all pieces of a word but its first, and at padding."""
        wanted = torch.full(tuple(batch.ids.shape), IGNORED)
        for i, row in enumerate(batch.targets):
            if len(row) != int(batch.mask[i].sum()):
                raise ValueError(f"row {i}: {len(row)} labels for {int(batch.mask[i].sum())} tokens")
            wanted[i, : len(row)] = torch.tensor(row)
        return wanted

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean over labelled tokens; 0 if there are none."""
        total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")
        return total / (targets != IGNORED).sum().clamp(min=1)


def copy_from_transformers(head: Head, theirs: dict[str, Tensor]) -> None:
    """Fill a head from the state dict of BertForSequenceClassification, …ForQuestionAnswering or …ForTokenClassification."""
    name = "qa_outputs" if isinstance(head, SpanHead) else "classifier"
    if f"{name}.weight" not in theirs:
        raise ValueError(f"these weights have no {name!r}, so they are no {type(head).__name__}'s")
    head.output.load_state_dict({kind: theirs[f"{name}.{kind}"] for kind in ("weight", "bias")})
    inner, _ = bert_state({key: t for key, t in theirs.items() if not key.startswith(f"{name}.")})
    pooler = {key for key in head.bert.state_dict() if key.startswith("pooler.")}
    missing, extra = head.bert.load_state_dict(inner, strict=False)
    if extra or set(missing) - pooler:  # spans and labels are read without it, and their classes have none
        raise ValueError(f"missing {missing[:4]}, left over {extra[:4]}: weights and config do not belong together")
