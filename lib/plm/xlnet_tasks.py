"""Pretraining on rows of packed text for the engine `plm.pretrain`: XLNet's orders, and BERT's gaps on the very same rows.

With `GPTTask` and `ElmoTask` of `plm.pretrain_tasks` these are the four objectives of the book, on one text in one form.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from plm.bert import BertForPretraining
from plm.linear_loss import linear_cross_entropy
from plm.masking import Documents, MaskingConfig, mask_tokens
from plm.pretrain import Batch
from plm.pretrain_tasks import RowTask
from plm.xlnet import XLNet


def pack(documents: Documents, T: int, cls_id: int, sep_id: int) -> Tensor:
    """Rows [CLS] T - 2 tokens [SEP], cut from each document one after the other: (N, T) int64. The rest of each is dropped."""
    if T < 3:
        raise ValueError(f"{T} tokens leave no room between [CLS] and [SEP]: give at least 3")
    room, parts = T - 2, []
    for start, end in zip(documents.documents[:-1], documents.documents[1:]):
        n = (end - start) // room
        parts.append(documents.ids[start : start + n * room].reshape(n, room))
    body = np.concatenate(parts).astype(np.int64)
    if not len(body):
        raise ValueError(f"no document has {room} tokens: choose a smaller T")
    rows = np.full((len(body), T), sep_id, np.int64)
    rows[:, 0], rows[:, 1:-1] = cls_id, body
    return torch.from_numpy(rows)


def draw_order(
    ids: NDArray[np.int64], share: float, rng: np.random.Generator, special_ids: Sequence[int]
) -> dict[str, NDArray[np.int64]]:
    """An order of reading for each row: "order" (B, T), and "targets" (B, N), what stands at its last N = share * T places.

    Special tokens come first, so they are given and never guessed. Yang et al. 2019, sec. 2.3: share 1/6.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is the part of each row that is guessed, above 0 and at most 1, not {share}")
    special = np.isin(ids, special_ids)
    n = max(1, int(share * ids.shape[1]))
    if (~special).sum(1).min() < n:
        raise ValueError(f"a row has fewer than {n} ordinary tokens to guess: choose a smaller share, or longer rows")
    order = np.argsort(rng.random(ids.shape) - special, axis=1)
    return {"order": order, "targets": np.take_along_axis(ids, order[:, -n:], 1)}


class XLNetTask(RowTask):
    """Guess the last words of a random order. joint=False keeps the guessed words apart, as BERT does.

    special_ids: never guessed. forward: no chance, the order of the text for every row, and all but the first are guessed.
    """

    model: XLNet

    def __init__(
        self,
        *args: Any,
        special_ids: Sequence[int],
        share: float = 1 / 6,
        joint: bool = True,
        forward: bool = False,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.special_ids, self.share, self.joint, self.in_order = list(special_ids), share, joint, forward

    def identity(self) -> dict[str, Any]:
        """And how orders are drawn."""
        return super().identity() | {"share": self.share, "joint": self.joint, "forward": self.in_order}

    def batch(self, k: int) -> Batch:
        """Orders drawn by a generator of this batch's own."""
        return self._with_order(super().batch(k), np.random.default_rng((self.seed, k)))

    def dev_batches(self) -> list[Batch]:
        """The same orders at each evaluation, and in every run."""
        return [self._with_order(b, np.random.default_rng((1, i))) for i, b in enumerate(super().dev_batches())]

    def _with_order(self, batch: Batch, rng: np.random.Generator) -> Batch:
        ids = batch["ids"]
        if self.in_order:
            order = torch.arange(ids.shape[1]).expand_as(ids)
            return batch | {"order": order, "targets": ids[:, 1:]}
        drawn = draw_order(ids.numpy(), self.share, rng, self.special_ids)
        return batch | {name: torch.from_numpy(value) for name, value in drawn.items()}

    def counts(self, batch: Batch) -> dict[str, int]:
        """How many words are guessed."""
        return {"tokens": batch["ids"].numel(), "permuted": batch["targets"].numel()}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Summed cross entropy of the guesses."""
        return {"permuted": model.loss(batch, self.joint)[0]}  # type: ignore[operator]

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Mean loss of a guess, and the share of right ones."""
        device, total, right, n = next(model.parameters()).device, 0.0, 0, 0
        for batch in self.dev_batches():
            ids, order, targets = (batch[name].to(device) for name in ("ids", "order", "targets"))
            streams = model(ids, order=order, n_targets=targets.shape[1], joint=self.joint)
            logits = model.score(streams.query[-1])  # type: ignore[operator]
            total += float(F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"))
            right, n = right + int((logits.argmax(-1) == targets).sum()), n + targets.numel()
        return {"loss": total / n, "accuracy": right / n}


class GapTask(RowTask):
    """BERT's gaps on packed rows, and nothing else: no pairs, no next sentence.

    model: a BertForPretraining, or an XLNet read without an order: then [MASK] stands in the gaps as well, but the network
    knows distances instead of places, and there is nothing between the last layer and the scores.
    """

    model: BertForPretraining | XLNet

    def __init__(self, *args: Any, vocabulary: Any, masking: MaskingConfig, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.vocabulary, self.masking = vocabulary, masking

    def identity(self) -> dict[str, Any]:
        """And how gaps are drawn."""
        return super().identity() | {"masking": vars(self.masking)}

    def batch(self, k: int) -> Batch:
        """Gaps drawn by a generator of this batch's own."""
        return self._with_gaps(super().batch(k), self.masking, np.random.default_rng((self.seed, k)))

    def dev_batches(self) -> list[Batch]:
        """The same gaps at each evaluation, all shown as [MASK]."""
        shown = MaskingConfig(self.masking.rate, mask=1.0, random=0.0)
        return [self._with_gaps(b, shown, np.random.default_rng((1, i))) for i, b in enumerate(super().dev_batches())]

    def _with_gaps(self, batch: Batch, masking: MaskingConfig, rng: np.random.Generator) -> Batch:
        v = self.vocabulary
        masked = mask_tokens(batch["ids"].numpy(), masking, rng, len(v), v.mask_id, v.special_ids)
        return batch | {name: torch.from_numpy(value) for name, value in masked._asdict().items()}

    def counts(self, batch: Batch) -> dict[str, int]:
        """How many gaps there are."""
        return {"tokens": batch["ids"].numel(), "mlm": batch["targets"].numel()}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Summed cross entropy of the gaps. (What is not used, the head for pairs or XLNet's query, gets a gradient of 0.)"""
        ids = batch["ids"]
        if isinstance(self.model, XLNet):
            h = self.model.drop(model(ids).content[-1]).flatten(0, 1)[batch["positions"]]
            weight, bias = self.model.embedding.weight, self.model.bias
            unused = 0.0 * self.model.start.sum()
            return {"mlm": linear_cross_entropy(h, weight, batch["targets"], bias) + unused}
        rest = {"segments": torch.zeros_like(ids), "is_next": torch.full_like(ids[:, 0], -100)}
        total, unused = (value for value, _ in model.loss(batch | rest).values())  # type: ignore[operator]
        return {"mlm": total + unused}

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Mean loss of a gap, and the share of right ones."""
        device, total, right, n = next(model.parameters()).device, 0.0, 0, 0
        for batch in self.dev_batches():
            ids, positions, targets = (batch[name].to(device) for name in ("ids", "positions", "targets"))
            if isinstance(self.model, XLNet):
                logits = self.model.score(model(ids).content[-1].flatten(0, 1)[positions])
            else:
                logits = model(ids, positions=positions).mlm
            total += float(F.cross_entropy(logits, targets, reduction="sum"))
            right, n = right + int((logits.argmax(-1) == targets).sum()), n + targets.numel()
        return {"loss": total / n, "accuracy": right / n}
