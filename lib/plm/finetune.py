"""A pretrained model learns to tell labels apart: GPT by its last token, BERT and biLM by the mean over the text."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.bert import BertForPretraining, pad
from plm.checkpoints import Loaded, encode, rebuild
from plm.corpus_source import SaidError, naming, table_rows
from plm.elmo import BiLM, ScalarMix
from plm.evaluate import accuracy, modes, restore
from plm.model_files import belonging_together
from plm.run_settings import decay_groups
from plm.train import fit, linear_decay, load_checkpoint, save_checkpoint, seed_everything


class Labelled(NamedTuple):
    """Texts and their labels."""

    texts: list[str]
    labels: list[str]


@dataclass(frozen=True)
class TuneSettings:
    """How fine-tuning goes."""

    epochs: int = 3
    lr: float = 5e-4
    batch_size: int = 16
    freeze: bool = False  # only the last layer learns
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or not self.lr > 0:
            raise ValueError(
                f"epochs and batch_size must be at least 1 and lr above 0; got {self.epochs}, {self.batch_size}, {self.lr}"
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must lie in 0 … {2**32 - 1}, not {self.seed}")


def read_labelled(path: str, text: str = "text", label: str = "label") -> Labelled:
    """Texts and labels from CSV, TSV, JSON lines or Parquet. A row without one of them is an error, and so is an empty label.

    NA, null and numbers are read as they are written, and a text may be empty.
    """
    kinds = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
    file, found = Path(path), Labelled([], [])
    kind = kinds.get(file.suffix.lower())
    if file.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it")
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if kind is None:
        raise ValueError(f"{path} is none of {', '.join(kinds)}")
    extra = {"sep": "\t"} if file.suffix.lower() == ".tsv" else {}
    with naming(file):
        for i, row in enumerate(table_rows(file, kind, [text, label], **extra)):
            for column in (text, label):
                if row.get(column) is None or (column == label and row[column] == ""):
                    raise SaidError(
                        f"{path}: row {i + 1} has no {column!r}; its columns are {', '.join(map(str, row))}"
                    )
            found.texts.append(str(row[text]))
            found.labels.append(str(row[label]))
    if not found.texts:
        raise ValueError(f"{path} holds no rows")
    return found


def hold_out(data: Labelled, seed: int = 0, share: float = 0.1) -> tuple[Labelled, Labelled]:
    """(training data, held-out data): about `share` of the rows, drawn by the seed.

    Equal texts stay on one side: what was learnt by heart must not be measured. Every label stays in the training data.
    """
    rows_of: dict[str, list[int]] = {}
    for i, text in enumerate(data.texts):
        rows_of.setdefault(text, []).append(i)
    groups, left, held = list(rows_of.values()), Counter(data.labels), set[int]()
    for g in torch.randperm(len(groups), generator=torch.Generator().manual_seed(seed)).tolist():
        if held and len(held) + len(groups[g]) > share * len(data.texts):
            continue
        taken = Counter(data.labels[i] for i in groups[g])
        if all(left[label] > n for label, n in taken.items()):
            left -= taken
            held |= set(groups[g])
    if not held:
        raise ValueError(
            "none of the texts can be held out to measure with: give more, or a file of their own (--test)"
        )
    parts = [[i for i in range(len(data.texts)) if (i in held) == test] for test in (False, True)]
    train, test = (Labelled(*([column[i] for i in part] for column in data)) for part in parts)
    return train, test


class Classifier(nn.Module):
    """A pretrained encoder and one linear layer. forward(ids (B, T), lengths (B,)) gives logits (B, classes)."""

    encoder: Any  # GPT, Bert or BiLM

    def __init__(self, base: Loaded, labels: Sequence[str]):
        super().__init__()
        if len(set(labels)) != len(labels) or len(labels) < 2:
            raise ValueError(f"a classifier needs at least two different labels, got {list(labels)}")
        self.kind, self.tokenizer, self.labels = base.kind, base.tokenizer, list(labels)
        self.encoder = base.model.bert if isinstance(base.model, BertForPretraining) else base.model
        config: Any = base.model.config
        self.mix = ScalarMix(config.n_layers + 1) if isinstance(base.model, BiLM) else None
        width = 2 * config.d_emb if self.mix is not None else config.d_model
        self.longest = getattr(config, "n_positions", 10_000)
        self.output = nn.Linear(width, len(labels))
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        real = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]  # (B, T)
        if self.kind == "gpt":  # padding stands on the right, where no earlier token can look
            h = self.encoder.hidden(ids)
            return self.output(h[torch.arange(len(ids)), lengths - 1])
        if self.mix is None:
            h = self.encoder(ids, mask=real).states
        else:
            states = self.encoder.states(ids, lengths)
            h = self.mix(torch.stack([torch.cat(pair, -1) for pair in states]))
        return self.output((h * real[..., None]).sum(1) / lengths[:, None])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, cut to what the model can read."""
        return [encode(self.kind, self.tokenizer, text, self.longest) for text in texts]

    def batch(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Rows of ids as the arguments of `forward`."""
        device = self.output.weight.device
        return pad(rows).to(device), torch.tensor([len(row) for row in rows], device=device)

    @torch.no_grad()
    def predict(self, texts: Sequence[str], batch_size: int = 64) -> list[str]:
        """The label of each text."""
        found, rows = modes(self), self.encode(texts)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        labels = [""] * len(rows)
        self.eval()
        try:
            for part in (order[i : i + batch_size] for i in range(0, len(order), batch_size)):
                for i, best in zip(part, self(*self.batch([rows[i] for i in part])).argmax(1).tolist()):
                    labels[i] = self.labels[best]
        finally:
            restore(found)
        return labels


def finetune(
    base: Loaded, train: Labelled, test: Labelled, settings: TuneSettings
) -> tuple[Classifier, dict[str, Any]]:
    """Train a classifier. Returns it and {"accuracy", "majority"}, on the test texts; majority: always the commonest label."""
    unknown = set(test.labels) - set(train.labels)
    if unknown:
        raise ValueError(f"the label {min(unknown)!r} of the test texts never occurs in the training texts")
    seed_everything(settings.seed)
    model = Classifier(base, sorted(set(train.labels)))
    if settings.freeze:
        model.encoder.requires_grad_(False)
    rows, targets = model.encode(train.texts), [model.labels.index(label) for label in train.labels]
    n, rng = len(rows), np.random.default_rng(settings.seed)

    def batches() -> Any:
        for _ in range(settings.epochs):
            order = rng.permutation(n)
            for part in np.array_split(order, -(-n // settings.batch_size)):
                yield [rows[i] for i in part], torch.tensor([targets[i] for i in part])

    def loss(batch: tuple[list[list[int]], Tensor]) -> Tensor:
        ids, lengths = model.batch(batch[0])
        return F.cross_entropy(model(ids, lengths), batch[1].to(ids.device))

    steps = settings.epochs * -(-n // settings.batch_size)
    optimizer = torch.optim.AdamW(decay_groups(model, 0.01), lr=settings.lr)
    fit(model, loss, batches(), steps, optimizer=optimizer, schedule=linear_decay(steps, steps // 10), clip=1.0)
    found = accuracy(model.predict(test.texts), test.labels)
    commonest = Counter(train.labels).most_common(1)[0][0]
    return model.eval(), {"accuracy": found, "majority": accuracy([commonest] * len(test.labels), test.labels)}


def save_classifier(path: str | Path, model: Classifier, card: dict[str, Any]) -> Path:
    """Write a classifier as one file, in half precision."""
    base = {"kind": model.kind, "labels": model.labels, "base": asdict(model.encoder.config)}
    tokenizer = {"words": list(model.tokenizer.tokens)} if model.kind == "elmo" else model.tokenizer.config
    return save_checkpoint(path, model, {"classifier": base, "tokenizer": tokenizer, "card": card}, half=True)


def load_classifier(path: str | Path) -> Classifier:
    """Read a file of `save_classifier`, in evaluation mode."""
    state, stored = load_checkpoint(path)
    if "classifier" not in stored:
        raise ValueError(f"{path} is not a classifier: plm finetune makes one")
    with belonging_together(path):
        about = stored["classifier"]
        model = Classifier(rebuild(about["kind"], about["base"], stored["tokenizer"]), about["labels"])
        model.load_state_dict(state)
        return model.eval()
