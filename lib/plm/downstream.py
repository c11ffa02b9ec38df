"""One recipe for all four tasks: where the encoder starts, how it is tuned, and how the result is measured.

Three ways to use a pretrained encoder: tune everything ("fine-tuned"), the new layer only ("frozen"), or, as the control, forget
what was learnt and train the same network ("scratch").
"""

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plm.bert import Bert
from plm.entities import EntityScore, entity_f1, from_iobes
from plm.evaluate import modes, restore
from plm.heads import Batch, Example, Head, TextHead, collate
from plm.run_settings import decay_groups
from plm.tagging import invalid
from plm.train import History, fit, linear_decay
from plm.wordpiece import WordPiece

WAYS = ("frozen", "fine-tuned", "scratch")


@dataclass(frozen=True)
class Recipe:
    """How a task is learnt; the same for all tasks."""

    way: str = "fine-tuned"  # one of WAYS
    epochs: int = 3
    lr: float = 5e-4  # the highest; MiniLM and larger: 5e-5
    batch_size: int = 16
    warmup: float = 0.1  # share of the steps in which the rate rises in a line; then it falls in a line to 0
    weight_decay: float = 0.01  # of matrices only
    clip: float = 1.0  # of the gradient's norm
    dropout: float = 0.1  # in the encoder; a frozen one has none
    seed: int = 0
    pad_id: int = 0

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise ValueError(f"way is one of {', '.join(WAYS)}, not {self.way!r}")
        if self.epochs < 1 or self.batch_size < 1 or not self.lr > 0:
            raise ValueError(
                f"epochs and batch_size must be at least 1 and lr above 0; got {self.epochs}, {self.batch_size}, {self.lr}"
            )


def start(bert: Bert, way: str, dropout: float = 0.1) -> Bert:
    """A copy of the encoder as one of WAYS starts; the given one is left as it is. From scratch: torch's generator draws it."""
    if way not in WAYS:
        raise ValueError(f"way is one of {', '.join(WAYS)}, not {way!r}")
    fresh = Bert(replace(bert.config, dropout=0.0 if way == "frozen" else dropout))
    if way != "scratch":
        fresh.load_state_dict(copy.deepcopy(bert.state_dict()))
    if way == "frozen":
        fresh.requires_grad_(False)
    return fresh.to(bert.pooler.weight.device)


def rows_of(examples: Sequence[Example], recipe: Recipe) -> Iterator[list[int]]:
    """Which examples make up each batch. Those of like length share one, which saves padding, and batches come in any order."""
    rng, size = np.random.default_rng(recipe.seed), recipe.batch_size
    for _ in range(recipe.epochs):
        order = rng.permutation(len(examples)).tolist()
        pools = [
            sorted(order[i : i + 8 * size], key=lambda j: len(examples[j].ids)) for i in range(0, len(order), 8 * size)
        ]
        cut = [pool[i : i + size] for pool in pools for i in range(0, len(pool), size)]
        yield from (cut[k] for k in rng.permutation(len(cut)))


def batches(examples: Sequence[Example], recipe: Recipe) -> Iterator[Batch]:
    """`recipe.epochs` passes over the examples."""
    return (collate([examples[j] for j in rows], recipe.pad_id) for rows in rows_of(examples, recipe))


@torch.no_grad()
def read_once(head: Head, examples: Sequence[Example], batch_size: int = 64, pad_id: int = 0) -> list[Tensor]:
    """What the head's linear layer is given of each example, (T, d_model) or (d_model,); without dropout."""
    found: list[Tensor] = [torch.empty(0)] * len(examples)
    order, mode = sorted(range(len(examples)), key=lambda j: len(examples[j].ids)), modes(head)
    head.eval()
    try:
        for rows in (order[i : i + batch_size] for i in range(0, len(order), batch_size)):
            batch = collate([examples[j] for j in rows], pad_id).to(head.output.weight.device)
            for j, read, real in zip(rows, head.read(batch), batch.mask):
                found[j] = (read if read.ndim == 1 else read[real]).clone()
    finally:
        restore(mode)
    return found


def losses(head: Head, examples: Sequence[Example], recipe: Recipe) -> Iterator[Callable[[], Tensor]]:
    """The loss of each batch, to be computed when it is called. A frozen encoder reads each example once, not in each pass."""
    device = head.output.weight.device
    if any(p.requires_grad for p in head.bert.parameters()):
        for batch in batches(examples, recipe):
            yield functools.partial(head.forward_loss, batch.to(device))
        return
    known = read_once(head, examples, pad_id=recipe.pad_id)
    for rows in rows_of(examples, recipe):
        wanted = head.targets(collate([examples[j] for j in rows], recipe.pad_id)).to(device)
        read = nn.utils.rnn.pad_sequence([known[j] for j in rows], batch_first=True)
        yield lambda read=read, wanted=wanted: head.loss(head.score(read), wanted)  # type: ignore[misc]


def tune(head: Head, examples: Sequence[Example], recipe: Recipe, **measured: Any) -> History:
    """Train a head on examples; the encoder as it was started. measured: what `plm.train.fit` takes beside (evaluate, …).

    Order and dropout come from the recipe's seed. The model is left in evaluation mode.
    """
    if not examples:
        raise ValueError("there is no example to learn from")
    torch.manual_seed(recipe.seed)
    steps = recipe.epochs * -(-len(examples) // recipe.batch_size)
    found = _fit(head, losses(head, examples, recipe), steps, recipe, **measured)
    head.eval()
    return found


def tune_together(heads: Mapping[str, Head], examples: Mapping[str, Sequence[Example]], recipe: Recipe) -> History:
    """Train several heads on one encoder, a batch of one task at a time, the tasks in any order. `recipe` is that of each."""
    if not heads or heads.keys() != examples.keys() or not all(examples.values()):
        raise ValueError(f"each head needs examples: heads {', '.join(heads)}; examples {', '.join(examples)}")
    if len({id(head.bert) for head in heads.values()}) > 1:
        raise ValueError("these heads stand on several encoders: build them all on the same Bert")
    torch.manual_seed(recipe.seed)
    sizes = {name: recipe.epochs * -(-len(found) // recipe.batch_size) for name, found in examples.items()}
    turns = [name for name, n in sizes.items() for _ in range(n)]
    streams = {name: losses(head, examples[name], recipe) for name, head in heads.items()}
    order = np.random.default_rng(recipe.seed).permutation(len(turns))
    model = nn.ModuleDict(dict(heads))
    found = _fit(model, (next(streams[turns[i]]) for i in order), len(turns), recipe)
    model.eval()
    return found


def _fit(model: nn.Module, stream: Iterator[Any], steps: int, recipe: Recipe, **measured: Any) -> History:
    return fit(
        model,
        lambda loss: loss(),
        stream,
        steps,
        optimizer=torch.optim.AdamW(decay_groups(model, recipe.weight_decay), lr=recipe.lr, fused=True),
        schedule=linear_decay(steps, int(recipe.warmup * steps)),
        clip=recipe.clip,
        **measured,
    )


# --- texts and pairs --------------------------------------------------------------------------------------------------


def text_example(tokenizer: WordPiece, a: str, b: str | None, target: Any, longest: int = 128) -> Example:
    """A text, or a pair, as BERT reads it; the end of the longer one is cut."""
    encoding = tokenizer.encode(a, b, longest)
    return Example(encoding.ids, encoding.segments, target)


@torch.no_grad()
def text_scores(head: TextHead, examples: Sequence[Example], batch_size: int = 64, pad_id: int = 0) -> Tensor:
    """Logits (N, n_classes) in the order of the examples, in evaluation mode."""
    order = sorted(range(len(examples)), key=lambda j: len(examples[j].ids))
    found, scores = modes(head), torch.empty(len(examples), head.n_classes)
    head.eval()
    try:
        for rows in (order[i : i + batch_size] for i in range(0, len(order), batch_size)):
            batch = collate([examples[j] for j in rows], pad_id).to(head.output.weight.device)
            scores[rows] = head(batch).float().cpu()
    finally:
        restore(found)
    return scores


def confusion(wanted: Sequence[int], found: Sequence[int], n: int) -> np.ndarray:
    """(n, n) counts: row = what is right, column = what was found."""
    if len(wanted) != len(found):
        raise ValueError(f"{len(wanted)} labels but {len(found)} answers")
    table = np.zeros((n, n), np.int64)
    np.add.at(table, (list(wanted), list(found)), 1)
    return table


def binary_f1(wanted: Sequence[int], found: Sequence[int]) -> float:
    """F1 of the class 1, the second measure of MRPC; 0 if nothing is right."""
    right = sum(a == b == 1 for a, b in zip(wanted, found, strict=True))
    return 2 * right / max(1, sum(a == 1 for a in wanted) + sum(b == 1 for b in found))


# --- names ------------------------------------------------------------------------------------------------------------


def tag_scores(wanted: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> tuple[EntityScore, int]:
    """Strict entity scores of IOBES labels, and how many of the found labels may not stand where they stand."""
    return entity_f1([*map(from_iobes, wanted)], [*map(from_iobes, found)]), sum(
        len(invalid(x, "iobes")) for x in found
    )


def unfrozen(head: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in head.parameters() if p.requires_grad)
