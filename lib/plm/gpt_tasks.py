"""One network for every task: the input is rewritten, not the model. Radford et al. 2018, sec. 3.2 and 3.3.

Each task turns an example into one or more sequences of tokens, and the pretrained GPT reads them all:
  classification   <s> text <extract>
  entailment       <s> premise <delimiter> hypothesis <extract>
  similarity       both orders of such a pair, whose vectors are added: the question has no order
  multiple choice  one sequence per answer, each scored by itself, and a softmax over the scores
The state at <extract> goes into the one new layer. While it learns the task the model goes on learning the language a little:
the loss is L3 = L2 (task) + λ L1 (next token).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.bpe import BPE, DELIMITER, EXTRACT
from plm.evaluate import modes, restore
from plm.gpt import GPT
from plm.gpt_text import sentence_text
from plm.linear_loss import IGNORED, linear_cross_entropy
from plm.run_settings import decay_groups
from plm.train import fit, linear_decay

Words = Sequence[str]


class Example(NamedTuple):
    """An example as the model reads it."""

    sequences: list[list[int]]  # one; two for similarity; one per answer for multiple choice
    label: int


def classification(tokenizer: BPE, text: Words, label: int, longest: int) -> Example:
    """<s> text <extract>; `longest` is the model's n_positions: of a longer text the end is kept."""
    return Example([_join(tokenizer, longest, text)], label)


def entailment(tokenizer: BPE, premise: Words, hypothesis: Words, label: int, longest: int) -> Example:
    """<s> premise <delimiter> hypothesis <extract>: a pair in a given order."""
    return Example([_join(tokenizer, longest, premise, hypothesis)], label)


def similarity(tokenizer: BPE, a: Words, b: Words, label: int, longest: int) -> Example:
    """Both orders of the pair: a question about two texts of which neither is the first."""
    return Example([_join(tokenizer, longest, a, b), _join(tokenizer, longest, b, a)], label)


def multiple_choice(tokenizer: BPE, context: Words, answers: Sequence[Words], label: int, longest: int) -> Example:
    """<s> context <delimiter> answer <extract> for each answer; the label is the number of the right one."""
    if len(answers) < 2 or not 0 <= label < len(answers):
        raise ValueError(f"need at least two answers and the number of the right one; got {len(answers)} and {label}")
    return Example([_join(tokenizer, longest, context, answer) for answer in answers], label)


def _join(tokenizer: BPE, longest: int, *parts: Words) -> list[int]:
    """Between start and extract token the parts with delimiters; what is too long loses tokens at the start of its longest."""
    pieces = [tokenizer.encode(sentence_text(part)) for part in parts]
    if not all(pieces):
        raise ValueError("a text without any word cannot be judged")
    room = longest - len(parts) - 1  # special tokens: one before each part, one at the end
    if room < len(parts):
        raise ValueError(f"{longest} positions have no room for {len(parts)} parts and their special tokens")
    while (surplus := sum(map(len, pieces)) - room) > 0:
        i = max(range(len(pieces)), key=lambda j: len(pieces[j]))
        others = max((len(p) for j, p in enumerate(pieces) if j != i), default=0)
        pieces[i] = pieces[i][min(surplus, max(1, len(pieces[i]) - others)) :]
    ids = [tokenizer.start_id, *pieces[0]]
    for piece in pieces[1:]:
        ids += [tokenizer.ids[DELIMITER], *piece]
    return [*ids, tokenizer.ids[EXTRACT]]


class TaskBatch(NamedTuple):
    """Some examples of one task, S sequences each, padded on the right."""

    ids: Tensor  # (B, S, T) int64
    lengths: Tensor  # (B, S) int64
    labels: Tensor  # (B,) int64


def collate(examples: Sequence[Example]) -> TaskBatch:
    """Examples side by side. Padding on the right needs no mask: what reads from left to right never meets it."""
    if not len(examples) or len({len(e.sequences) for e in examples}) != 1:
        raise ValueError("a batch holds at least one example, all with the same number of sequences")
    for e in examples:
        if not isinstance(e.label, int) or e.label < 0:
            raise ValueError(f"a label is the number of a class, 0 or more, not {e.label!r}")
        if not e.sequences or not all(e.sequences):
            raise ValueError("an example without any token cannot be judged")
    lengths = torch.tensor([[len(s) for s in e.sequences] for e in examples])
    ids = torch.zeros(*lengths.shape, int(lengths.max()), dtype=torch.int64)
    for b, example in enumerate(examples):
        for s, sequence in enumerate(example.sequences):
            ids[b, s, : len(sequence)] = torch.tensor(sequence)
    return TaskBatch(ids, lengths, torch.tensor([e.label for e in examples]))


class GPTForTask(nn.Module):
    """A GPT and one linear layer on the state at the last token of each sequence.

    n_classes: the states of an example's sequences are added and scored. None: each sequence is scored by itself, and the
    logits of an example are the scores of its sequences (multiple choice).
    """

    def __init__(self, gpt: GPT, n_classes: int | None, dropout: float = 0.1):
        super().__init__()
        if not isinstance(gpt, GPT):
            raise TypeError(f"gpt is a plm.gpt.GPT, not {type(gpt).__name__}")
        if n_classes is not None and (not isinstance(n_classes, int) or n_classes < 2):
            raise ValueError(f"a task has at least two classes, not {n_classes}; None is for multiple choice")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is a probability below 1, not {dropout}")
        self.gpt, self.n_classes = gpt, n_classes
        for module in gpt.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout  # few labels need more of it than much text did
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(gpt.config.d_model, n_classes or 1)
        nn.init.normal_(self.head.weight, std=gpt.config.init_std)
        nn.init.zeros_(self.head.bias)

    def forward(self, batch: TaskBatch) -> Tensor:
        """Logits (B, n_classes), or (B, S) for multiple choice."""
        return self.classify(self.states(batch), batch.lengths)

    def states(self, batch: TaskBatch) -> Tensor:
        """The GPT's vectors, (B, S, T, d_model)."""
        return self.gpt.hidden(batch.ids.flatten(0, 1)).unflatten(0, batch.ids.shape[:2])

    def classify(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Logits from the states at the last token of each sequence."""
        last = (lengths - 1)[..., None, None].expand(*lengths.shape, 1, states.shape[-1])
        h = states.gather(2, last).squeeze(2)  # (B, S, d_model)
        if self.n_classes is None:
            return self.head(self.drop(h)).squeeze(-1)
        return self.head(self.drop(h.sum(1)))

    def losses(self, batch: TaskBatch, language: bool = True) -> tuple[Tensor, Tensor]:
        """Mean losses of the task (L2) and of the next token (L1, over all true tokens but the first of each sequence).

        L1 is 0, and costs nothing, without `language`.
        """
        states = self.states(batch)
        logits = self.classify(states, batch.lengths)
        if int(batch.labels.max()) >= logits.shape[1]:
            raise ValueError(
                f"there are {logits.shape[1]} classes or answers, and a label is {int(batch.labels.max())}"
            )
        task = F.cross_entropy(logits, batch.labels)
        if not language:
            return task, task.new_zeros(())
        inside = torch.arange(1, batch.ids.shape[2], device=batch.ids.device) < batch.lengths[..., None]
        targets = batch.ids[..., 1:].where(inside, IGNORED).flatten()
        total = linear_cross_entropy(states[..., :-1, :].flatten(0, 2), self.gpt.tokens.weight, targets)
        return task, total / inside.sum().clamp(min=1)  # sequences of one token predict none


def fine_tune(
    model: GPTForTask,
    examples: Sequence[Example],
    passes: int,
    lr: float,
    *,
    lm_weight: float = 0.5,
    batch_size: int = 32,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    clip: float = 1.0,
    seed: int = 0,
    after_pass: Callable[[int], None] | None = None,
) -> list[float]:
    """Train everything for some passes over the examples; return the task loss of every step.

    lm_weight: the paper's λ. The rate rises in a line over the share `warmup` of the steps, then falls in a line to 0. Chance
    (order, dropout) comes from `seed`. after_pass(i) is called after each pass, in evaluation mode.
    """
    if not isinstance(passes, int) or passes < 1 or not len(examples):
        raise ValueError(f"there must be at least one example and one pass; got {len(examples)} and {passes}")
    if not 0 < lr < float("inf") or not 0 <= lm_weight < float("inf"):
        raise ValueError(f"lr must be above 0 and lm_weight at least 0; got {lr} and {lm_weight}")
    if not 0 <= warmup <= 1 or not weight_decay >= 0 or not clip > 0:
        raise ValueError(
            f"need warmup in 0 … 1, weight_decay at least 0 and clip above 0; got {warmup}, {weight_decay} and {clip}"
        )
    _check_batch_size(batch_size)
    torch.manual_seed(seed)
    n, losses = -(-len(examples) // batch_size), list[float]()
    rate = linear_decay(passes * n, int(warmup * passes * n))
    optimizer = torch.optim.AdamW(decay_groups(model, weight_decay), lr=lr, betas=(0.9, 0.98))

    def loss(batch: TaskBatch) -> Tensor:
        task, language = model.losses(batch, lm_weight > 0)
        losses.append(task.item())
        return task + lm_weight * language

    for i in range(passes):
        schedule = lambda step, i=i: rate(i * n + step)  # noqa: E731
        fit(model, loss, batches(examples, batch_size), n, optimizer=optimizer, schedule=schedule, clip=clip)
        model.eval()
        if after_pass is not None:
            after_pass(i)
    return losses


def batches(examples: Sequence[Example], batch_size: int) -> Iterator[TaskBatch]:
    """Shuffled batches in which like lengths stand together: shuffled, sorted within stretches of eight batches, shuffled."""
    _check_batch_size(batch_size)
    order, stretch = torch.randperm(len(examples)).tolist(), 8 * batch_size
    groups: list[list[int]] = []
    for part in (order[i : i + stretch] for i in range(0, len(order), stretch)):
        part.sort(key=lambda j: max(map(len, examples[j].sequences)))
        groups += [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
    for g in torch.randperm(len(groups)).tolist():
        yield collate([examples[j] for j in groups[g]])


def _check_batch_size(batch_size: int) -> None:
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size is a number of examples, at least 1, not {batch_size!r}")


@torch.no_grad()
def predict(model: GPTForTask, examples: Sequence[Example], batch_size: int = 64) -> Tensor:
    """The class (or answer) with the highest score, (N,) int64. Leaves the model in the mode it found."""
    _check_batch_size(batch_size)
    order = sorted(range(len(examples)), key=lambda j: max(map(len, examples[j].sequences)))
    guess, found = torch.empty(len(order), dtype=torch.int64), modes(model)
    model.eval()
    try:
        for rows in (order[i : i + batch_size] for i in range(0, len(order), batch_size)):
            guess[rows] = model(collate([examples[j] for j in rows])).argmax(1)
    finally:
        restore(found)
    return guess
