"""The tasks that BERT was published with, in their own files: SST-2, MRPC, SQuAD, CoNLL-2003. Used by `plm finetune --task`.

Own data in one of these formats is a task like them.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

from plm.bert import Bert, BertConfig, BertForPretraining
from plm.checkpoints import Loaded
from plm.corpus_source import not_utf8
from plm.downstream import Recipe, binary_f1, start, tag_scores, text_example, text_scores, tune
from plm.entities import labels_of
from plm.heads import Head, SpanHead, TagHead, TextHead
from plm.model_files import belonging_together, check_ids
from plm.question_answering import Answer, Question, answer, read_squad, span_examples, squad_scores
from plm.tagging import TaggedWords, iobes, read_conll, scheme_of, spans_of, tag, tag_examples
from plm.train import load_checkpoint, save_checkpoint
from plm.wordpiece import WordPiece


class Labelled(NamedTuple):
    """A text, or a pair of texts, and its class."""

    a: str
    b: str | None
    label: int


def read_sst2(path: str | Path) -> list[Labelled]:
    """Sentences of SST-2 as GLUE has them: columns sentence and label (0 negative, 1 positive), tabs between, no quoting."""
    return [
        Labelled(row["sentence"], None, _label(row["label"], where)) for row, where in _rows(path, "sentence", "label")
    ]


def read_mrpc(path: str | Path) -> list[Labelled]:
    """Pairs of MRPC: columns Quality (1 means the same), #1 String, #2 String, tabs between, no quoting."""
    names = "Quality", "#1 String", "#2 String"
    return [Labelled(row[names[1]], row[names[2]], _label(row["Quality"], where)) for row, where in _rows(path, *names)]


def _rows(path: str | Path, *names: str) -> list[tuple[dict[str, str], str]]:
    # A quotation mark is text in these files, so no reader of CSV may touch them.
    lines = [line.removesuffix("\r") for line in Path(path).read_text(encoding="utf-8-sig").split("\n")]
    head = lines[0].split("\t")
    if not set(names) <= set(head):
        raise ValueError(f"{path} needs the columns {', '.join(names)}; its first line has {', '.join(head)}")
    found = []
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        if line and len(fields) != len(head):
            raise ValueError(f"{path}, line {number}: {len(fields)} columns instead of {len(head)}")
        if line:
            found.append((dict(zip(head, fields)), f"{path}, line {number}"))
    if not found:
        raise ValueError(f"{path} holds no rows")
    return found


def _label(text: str, where: str) -> int:
    if text not in ("0", "1"):
        raise ValueError(f"{where}: the label is 0 or 1, not {text!r}")
    return int(text)


def _names(sentences: Sequence[TaggedWords]) -> list[TaggedWords]:
    scheme = scheme_of([s.labels for s in sentences])
    return [iobes(s, scheme) for s in sentences]


READERS: dict[str, Callable[[str | Path], list[Any]]] = {
    "sst2": read_sst2,
    "mrpc": read_mrpc,
    "squad": read_squad,
    "conll2003": lambda path: _names(read_conll(path)),
}
TASKS = tuple(READERS)


def read_task(task: str, path: str | Path) -> list[Any]:
    """The examples of a task from its own file. Whatever is wrong with the file, the error names it."""
    try:
        return READERS[task](path)
    except OSError:
        raise
    except UnicodeDecodeError as error:
        raise ValueError(not_utf8(path, error)) from error
    except Exception as error:  # a JSON of another shape has many ways to fail
        said = str(error) if isinstance(error, ValueError) else f"its entries are of another kind: {error!r}"
        raise ValueError(said if str(path) in said else f"{path} is no file of {task}: {said}") from error


HUB: dict[str, tuple[str, dict[str, str]]] = {
    "sst2": ("nyu-mll/glue", {"name": "sst2"}),
    "mrpc": ("nyu-mll/glue", {"name": "mrpc"}),
    "squad": ("rajpurkar/squad", {}),
    "conll2003": ("eriktks/conll2003", {"revision": "refs/convert/parquet"}),
}


def read_hub(task: str, split: str) -> list[Any]:
    """The same data from the Hugging Face hub, fetched: split is "train" or "validation"."""
    import datasets

    name, extra = HUB[task]
    rows = datasets.load_dataset(name, split=split, **extra)
    if task == "sst2":
        return [Labelled(row["sentence"], None, row["label"]) for row in rows]
    if task == "mrpc":
        return [Labelled(row["sentence1"], row["sentence2"], row["label"]) for row in rows]
    if task == "conll2003":
        names = rows.features["ner_tags"].feature.names
        return _names([TaggedWords(row["tokens"], [names[i] for i in row["ner_tags"]]) for row in rows])
    marked = lambda a: tuple(map(Answer, a["text"], a["answer_start"]))  # noqa: E731
    return [Question(row["id"], row["question"], row["context"], marked(row["answers"])) for row in rows]


def build(task: str, bert: Bert, labels: Sequence[str], dropout: float = 0.1) -> Head:
    """The head of a task. labels: of the tagger; the others do not need them."""
    if task == "squad":
        return SpanHead(bert)
    return TagHead(bert, len(labels), dropout) if task == "conll2003" else TextHead(bert, 2, dropout)


def finetune_task(
    task: str, base: Loaded, train: Sequence[Any], test: Sequence[Any], recipe: Recipe, longest: int = 128
) -> tuple[Head, list[str], dict[str, float]]:
    """Train the head of a task. Returns it, its labels, and what was measured on the test data.

    longest: tokens of an input; a longer text is cut, a longer paragraph read in windows, a longer sentence in parts.
    """
    if task not in TASKS:
        raise ValueError(f"task is one of {', '.join(TASKS)}, not {task!r}")
    if base.kind != "bert":
        raise ValueError(f"these heads stand on a BERT, and this is a {base.kind}")
    bert: Any = base.model.bert if isinstance(base.model, BertForPretraining) else base.model
    longest = min(longest, bert.config.n_positions)
    tokenizer, labels = base.tokenizer, list[str]()
    if task == "conll2003":
        kinds = {kind for s in train for _, _, kind in spans_of(s.labels, "iobes")}
        labels = labels_of(sorted(kinds))
        examples = [e for s in train for e in tag_examples(tokenizer, s, labels, longest)]
    elif task == "squad":
        examples = span_examples(tokenizer, train, longest, longest // 3)
    else:
        examples = [text_example(tokenizer, row.a, row.b, row.label, longest) for row in train]
    torch.manual_seed(recipe.seed)
    head = build(task, start(bert, recipe.way, recipe.dropout), labels, recipe.dropout)
    tune(head, examples, recipe)
    return head, labels, measure(task, head, tokenizer, labels, test, longest)


def measure(
    task: str, head: Any, tokenizer: WordPiece, labels: Sequence[str], test: Sequence[Any], longest: int = 128
) -> dict[str, float]:
    """The published measures of a task: accuracy (SST-2), and F1 (MRPC); exact match and F1; strict entity scores."""
    if task == "squad":
        threshold = 0.0 if any(not q.answers for q in test) else None  # in SQuAD 1.1 every question has its answer
        found = answer(head, tokenizer, test, longest, longest // 3, threshold=threshold)
        return squad_scores(test, [f.text for f in found])
    if task == "conll2003":
        tags = tag(head, tokenizer, [s.words for s in test], labels, longest)
        score, wrong = tag_scores([s.labels for s in test], tags)
        return {**score._asdict(), "invalid": wrong}
    wanted = [row.label for row in test]
    rows = [text_example(tokenizer, row.a, row.b, row.label, longest) for row in test]
    guess = text_scores(head, rows, pad_id=tokenizer.pad_id).argmax(1).tolist()
    scores = {"accuracy": sum(a == b for a, b in zip(guess, wanted)) / len(wanted)}
    if task == "mrpc":
        scores["f1"] = binary_f1(wanted, guess)
    return scores | {"majority": max(wanted.count(label) for label in set(wanted)) / len(wanted)}


def save_head(
    path: str | Path, task: str, head: Head, tokenizer: WordPiece, labels: Sequence[str], card: dict[str, Any]
) -> Path:
    """Write a tuned encoder with its head as one file, in half precision."""
    about = {"name": task, "labels": list(labels), "encoder": asdict(head.bert.config)}
    return save_checkpoint(path, head, {"task": about, "tokenizer": tokenizer.config, "card": card}, half=True)


def load_head(path: str | Path) -> tuple[str, Any, WordPiece, list[str]]:
    """Read (task, head in evaluation mode, tokenizer, labels) from a file of `save_head`."""
    state, stored = load_checkpoint(path)
    if "task" not in stored:
        raise ValueError(f"{path} holds no head of a task: plm finetune --task makes one")
    with belonging_together(path):
        about = stored["task"]
        if about["name"] not in TASKS:
            raise ValueError(f"there is no task {about['name']!r}")
        config, tokenizer = BertConfig(**about["encoder"]), WordPiece(**stored["tokenizer"])
        check_ids(tokenizer, config.vocab_size)
        head = build(about["name"], Bert(config), about["labels"])
        head.load_state_dict(state)
        return about["name"], head.eval(), tokenizer, about["labels"]
