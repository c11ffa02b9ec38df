"""What `plm.pretrain` can teach: ELMo's biLM, GPT, BERT. A task hands out batch number k, sums its losses, and measures.

Every batch is a function of its number: an order of the examples that is drawn anew for each pass, and a generator seeded with
(seed, k) for whatever else is drawn. So a run needs no place in its data, and no two processes ever get the same batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.bert import BertForPretraining
from plm.elmo import IGNORED, BiLM
from plm.gpt import GPT
from plm.masking import Documents, PretrainingBatches
from plm.pretrain import Batch, seed_of
from plm.softmax import WordSampler, sampled_cross_entropy

Save = Callable[[Path], object]


class Rows(Protocol):
    """Rows of ids of one length: an int64 tensor (N, T), or `plm.corpus.Blocks`, which stay on the disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: list[int]) -> Tensor: ...


class Shards(Protocol):
    """Documents in parts, each read when it is asked for: `plm.corpus_store.Documents`."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int) -> Documents: ...


class Shuffled:
    """The numbers 0 … n - 1 in a new order for each pass, without end; any stretch of it can be asked for at any time."""

    def __init__(self, n: int, seed: int):
        if n < 1:
            raise ValueError("there is not a single row to train on")
        self.n, self.seed = n, seed
        self.orders: dict[int, np.ndarray] = {}

    def __call__(self, start: int, stop: int) -> list[int]:
        """The places start … stop - 1 of the endless row."""
        return [int(self._order(place // self.n)[place % self.n]) for place in range(start, stop)]

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self.orders:
            if len(self.orders) > 1:  # a batch touches at most two passes, unless it is longer than one
                self.orders.clear()
            self.orders[epoch] = np.random.default_rng((self.seed, epoch)).permutation(self.n)
        return self.orders[epoch]


class RowTask:
    """The half that GPT and ELMo share: batches are rows of packed text."""

    def __init__(
        self, model: nn.Module, rows: Rows, dev: Rows, batch_size: int, save: Save, seed: int = 0, text: str = ""
    ):
        if batch_size < 1 or not len(dev):
            raise ValueError(f"need a batch_size of at least 1 and held-out rows; got {batch_size} and {len(dev)}")
        self.model, self.rows, self.dev, self.batch_size, self.save = model, rows, dev, batch_size, save
        self.seed, self.text, self.order = seed, text, Shuffled(len(rows), seed)

    def batch(self, k: int) -> Batch:
        """Rows k * batch_size … of the endless shuffle, so a batch twice as large is two batches."""
        places = self.order(k * self.batch_size, (k + 1) * self.batch_size)
        return {"ids": torch.as_tensor(self.rows[places]), "k": torch.tensor(k)}

    def identity(self) -> dict[str, Any]:
        """`text` stands for the data, a hash say."""
        config = asdict(self.model.config)  # type: ignore[call-overload]
        sizes = {"rows": len(self.rows), "batch_size": self.batch_size, "seed": self.seed}
        return {"model": type(self.model).__name__, "config": config, "text": self.text, **sizes}

    def dev_batches(self) -> list[Batch]:
        """The held-out rows in order."""
        size = 2 * self.batch_size
        parts = [list(range(i, min(i + size, len(self.dev)))) for i in range(0, len(self.dev), size)]
        return [{"ids": torch.as_tensor(self.dev[part]), "k": torch.tensor(0)} for part in parts]


class GPTTask(RowTask):
    """Predict each next token of rows (N, T + 1); save(path) writes the model. dev_characters: of the dev text, all rows."""

    model: GPT

    def __init__(self, *args: Any, dev_characters: int | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.dev_characters = dev_characters

    def counts(self, batch: Batch) -> dict[str, int]:
        """B * T predictions."""
        n = batch["ids"][:, 1:].numel()
        return {"tokens": n, "next": n}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Summed cross entropy of the next token."""
        return {"next": model.loss(batch)[0]}  # type: ignore[operator]

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Mean loss per token, perplexity, and bits per character, which alone compares models with other tokens."""
        device = next(model.parameters()).device
        total, n = 0.0, 0
        for batch in self.dev_batches():
            loss, count = model.loss({"ids": batch["ids"].to(device)})  # type: ignore[operator]
            total, n = total + float(loss), n + count
        scores = {"loss": total / n, "perplexity": float(np.exp(total / n))}
        if self.dev_characters:
            per_row = self.dev_characters / len(self.dev) / self.dev[[0]].shape[1]  # characters per token
            scores["bits_per_character"] = total / n / np.log(2) / per_row
        return scores


class ElmoTask(RowTask):
    """Both directions of a biLM over rows (N, T) of `<s> words </s> <s> words </s> …`, cut anywhere.

    Guessing <s> after </s>, or </s> before <s>, teaches nothing and is left out. counts (V,) of the training text and
    `sampled` words per draw: train with the sampled softmax; without them with the whole one. Measures use the whole one.
    """

    model: BiLM

    def __init__(self, *args: Any, word_counts: Tensor | None = None, sampled: int = 0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.sampler = WordSampler(word_counts, sampled) if word_counts is not None and sampled else None
        self.sampled = sampled if self.sampler else 0

    def identity(self) -> dict[str, Any]:
        """And the size of the sampled softmax."""
        return super().identity() | {"sampled": self.sampled}

    def targets(self, ids: Tensor) -> list[Tensor]:
        """What is guessed forward and backward, (B, T - 1) each; -100 where nothing is to be learnt."""
        config = self.model.config
        there, back = self.model.targets(ids)
        return [there.where(there != config.start_id, IGNORED), back.where(back != config.end_id, IGNORED)]

    def counts(self, batch: Batch) -> dict[str, int]:
        """Guesses of each direction."""
        there, back = (int((t != IGNORED).sum()) for t in self.targets(batch["ids"]))
        return {"tokens": batch["ids"].numel(), "forward": there, "backward": back}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Summed cross entropy of each direction."""
        ids, sampler = batch["ids"], self.sampler if model.training else None
        top = model.states(ids)[-1]  # type: ignore[operator]
        found = {}
        if sampler is not None:
            sampler.generator.manual_seed(seed_of(self.seed, int(batch["k"])))  # a draw per batch, whoever has it
        states = (top.forward[:, :-1], top.backward[:, 1:])
        for name, h, targets in zip(("forward", "backward"), states, self.targets(ids)):
            h, targets = model.drop(h).flatten(0, 1), targets.flatten()  # type: ignore[operator]
            weight, bias = model.output.weight, model.output.bias  # type: ignore[union-attr]
            if sampler is None:
                found[name] = F.cross_entropy(F.linear(h, weight, bias), targets, reduction="sum")  # type: ignore[arg-type]
            else:
                n = (targets != IGNORED).sum()
                found[name] = n * sampled_cross_entropy(h, targets, weight, bias, sampler)  # type: ignore[arg-type]
        return found

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Mean loss of both directions together, and the perplexity of each."""
        sums, n = {"forward": 0.0, "backward": 0.0}, {"forward": 0, "backward": 0}
        for batch in self.dev_batches():
            batch = {name: tensor.to(model.output.bias.device) for name, tensor in batch.items()}  # type: ignore
            counts = self.counts(batch)
            for name, loss in self.losses(model, batch).items():
                sums[name], n[name] = sums[name] + float(loss), n[name] + counts[name]
        means = {name: sums[name] / max(1, n[name]) for name in sums}
        return {"loss": sum(means.values())} | {f"{name}_perplexity": float(np.exp(m)) for name, m in means.items()}


class BertTask:
    """Masked words and next sentences. `batches(rng)` makes a stream that draws from this generator alone.

    dev: a few fixed batches, masked once for all. `batches` is a `PretrainingBatches`; its own place in the stream is not used.
    """

    def __init__(
        self, model: BertForPretraining, batches: PretrainingBatches, dev: Sequence[Batch], save: Save, seed: int = 0,
        text: str = "",
    ):  # fmt: skip
        if not dev:
            raise ValueError("need at least one held-out batch to measure with")
        self.model, self.batches, self.dev, self.save, self.seed, self.text = model, batches, dev, save, seed, text

    def batch(self, k: int) -> Batch:
        """Pairs and gaps drawn by a generator of this batch's own."""
        self.batches.rng = np.random.default_rng((self.seed, k))
        return self.batches.next()

    def identity(self) -> dict[str, Any]:
        """`text` stands for the data, a hash say."""
        b = self.batches
        sizes = {"tokens": b.tokens, "lengths": b.lengths, "shares": b.shares, "single_share": b.single_share}
        model = {"model": type(self.model).__name__, "config": asdict(self.model.config)}
        return {**model, "text": self.text, "masking": asdict(b.masking), **sizes, "seed": self.seed}

    def counts(self, batch: Batch) -> dict[str, int]:
        """Gaps and pairs."""
        gaps, pairs = (int((batch[name] != IGNORED).sum()) for name in ("targets", "is_next"))
        return {"tokens": batch["ids"].numel(), "mlm": gaps, "nsp": pairs}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Summed cross entropy of the gaps and of the pairs."""
        return {name: total for name, (total, _) in model.loss(batch).items()}  # type: ignore[operator]

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Sum of the two mean losses, each of them, and the share of gaps and pairs that were guessed right."""
        device = next(model.parameters()).device
        sums, right, n = ({"mlm": 0.0, "nsp": 0.0} for _ in range(3))
        for batch in self.dev:
            batch = {name: tensor.to(device) for name, tensor in batch.items()}
            guesses = model(batch["ids"], segments=batch["segments"], positions=batch["positions"])
            for name, logits, targets in (
                ("mlm", guesses.mlm, batch["targets"]),
                ("nsp", guesses.nsp, batch["is_next"]),
            ):
                sums[name] += float(F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum"))
                right[name] += int((logits.argmax(-1) == targets).sum())
                n[name] += int((targets != IGNORED).sum())
        means = {name: sums[name] / max(1, n[name]) for name in sums}
        shares = {f"{name}_accuracy": right[name] / max(1, n[name]) for name in sums}
        return {"loss": sum(means.values())} | {f"{name}_loss": mean for name, mean in means.items()} | shares


class ShardedBertTask(BertTask):
    """BERT on text that does not fit into memory: pairs come from one shard for as many batches as it has text, then the next.

    make(documents) makes a `PretrainingBatches`; shards: one `masking.Documents` per number, read when it is needed.
    """

    def __init__(
        self, model: BertForPretraining, make: Callable[[Documents], PretrainingBatches], shards: Shards,
        dev: Sequence[Batch], save: Save, seed: int = 0, text: str = "",
    ):  # fmt: skip
        super().__init__(model, make(shards[0]), dev, save, seed, text)
        self.make, self.shards, self.order, self.open = make, shards, Shuffled(len(shards), seed), (0, self.batches)
        self.stretch = max(1, len(shards[0].ids) // self.batches.tokens)

    def identity(self) -> dict[str, Any]:
        """And where the training text ends: what is held out is no part of it."""
        return super().identity() | {
            "shards": len(self.shards),
            "last_shard": len(self.shards[len(self.shards) - 1].ids),
        }

    def batch(self, k: int) -> Batch:
        """As BertTask's; all batches of one stretch come from one shard."""
        [i] = self.order(k // self.stretch, k // self.stretch + 1)
        if i != self.open[0]:
            self.open = i, self.make(self.shards[i])
        self.batches = self.open[1]
        return super().batch(k)
