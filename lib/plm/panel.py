"""Several heads on one encoder as one file, and what they say about a text, as plain lists: for the panel of chapter 12."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from plm.bert import Bert, BertConfig
from plm.downstream import text_example, text_scores
from plm.heads import Example, Head, SpanHead, TagHead, TextHead, collate
from plm.question_answering import Found, Question, answer, windows
from plm.tagging import TaggedWords, spans_of, tag, tag_examples
from plm.train import load_checkpoint, save_checkpoint
from plm.wordpiece import WordPiece


class HeadKind(NamedTuple):
    """What a head is asked: kind "text", "span" or "tag"; the names of its outputs; what a text's vector is (`TextHead`)."""

    kind: str
    names: tuple[str, ...] = ()
    pool: str = "cls"


class Panel(NamedTuple):
    """One encoder with its heads, all in evaluation mode."""

    heads: dict[str, Any]
    kinds: dict[str, HeadKind]
    tokenizer: WordPiece


def build_head(bert: Bert, kind: HeadKind, dropout: float = 0.1) -> Head:
    """A head of a kind on an encoder, which is not copied."""
    if kind.kind == "span":
        return SpanHead(bert)
    if kind.kind == "tag":
        return TagHead(bert, len(kind.names), dropout)
    if kind.kind != "text":
        raise ValueError(f'a head is "text", "span" or "tag", not {kind.kind!r}')
    return TextHead(bert, len(kind.names), dropout, kind.pool)


def save_panel(
    path: str | Path,
    heads: Mapping[str, Head],
    kinds: Mapping[str, HeadKind],
    tokenizer: WordPiece,
    card: dict[str, Any],
) -> Path:
    """Write the encoder once and each head's layer, in half precision."""
    encoders = {id(head.bert): head.bert for head in heads.values()}
    if len(encoders) != 1 or heads.keys() != kinds.keys():
        raise ValueError("the heads of a panel stand on one encoder, and each has its kind")
    (bert,) = encoders.values()
    parts = nn.ModuleDict({"encoder": bert, **{f"head {name}": head.output for name, head in heads.items()}})
    about = {"encoder": asdict(bert.config), "kinds": {name: list(kind) for name, kind in kinds.items()}}
    return save_checkpoint(path, parts, {"panel": about, "tokenizer": tokenizer.config, "card": card}, half=True)


def load_panel(path: str | Path) -> Panel:
    """Read a file of `save_panel`."""
    state, stored = load_checkpoint(path)
    if "panel" not in stored:
        raise ValueError(f"{path} holds no panel of heads")
    about = stored["panel"]
    bert = Bert(BertConfig(**about["encoder"]))
    kinds = {name: HeadKind(kind, tuple(names), pool) for name, (kind, names, pool) in about["kinds"].items()}
    heads = {name: build_head(bert, kind) for name, kind in kinds.items()}
    parts = nn.ModuleDict({"encoder": bert, **{f"head {name}": head.output for name, head in heads.items()}})
    parts.load_state_dict(state)
    return Panel({name: head.eval() for name, head in heads.items()}, kinds, WordPiece(**stored["tokenizer"]))


def chances(panel: Panel, name: str, a: str, b: str | None = None) -> dict[str, float]:
    """The probability of each class of a text, or of a pair."""
    head = _head(panel, name, TextHead)
    longest = head.bert.config.n_positions
    scores = text_scores(head, [text_example(panel.tokenizer, a, b, 0, longest)], pad_id=panel.tokenizer.pad_id)
    return dict(zip(panel.kinds[name].names, scores[0].softmax(0).tolist()))


class Places(NamedTuple):
    """An answer, and the probability of each token to be its first and its last."""

    tokens: list[str]
    start: list[float]
    end: list[float]
    found: Found


@torch.no_grad()
def places(panel: Panel, name: str, question: str, context: str) -> Places:
    """Where an answer may begin and end, over [CLS] and the text; of a long text the first window."""
    head, longest = _head(panel, name, SpanHead), _head(panel, name, SpanHead).bert.config.n_positions
    asked = Question("", question, context, ())
    window = windows(panel.tokenizer, asked, 0, longest, longest // 3)[0]
    logits = head(collate([Example(window.ids, window.segments, (0, 0))], panel.tokenizer.pad_id))
    kept = [0, *(i for i, o in enumerate(window.offsets) if o is not None)]
    pieces = [panel.tokenizer.pieces[window.ids[i]] for i in kept]
    start, end = (scores[0][kept].softmax(0).tolist() for scores in logits)
    (found,) = answer(head, panel.tokenizer, [asked], longest, longest // 3, threshold=0.0)
    return Places(pieces, start, end, found)


class Tagged(NamedTuple):
    """Each word's label, its probability, and the names that the labels spell."""

    labels: list[str]
    probability: list[float]
    names: list[tuple[str, str]]


@torch.no_grad()
def names(panel: Panel, name: str, words: Sequence[str]) -> Tagged:
    """The names in a sentence that fits into the encoder."""
    head, labels = _head(panel, name, TagHead), panel.kinds[name].names
    longest = head.bert.config.n_positions
    (example,) = tag_examples(panel.tokenizer, TaggedWords(list(words), ["O"] * len(words)), labels, longest)
    p = head(collate([example], panel.tokenizer.pad_id))[0].softmax(-1)
    asked = [i for i, target in enumerate(example.target) if target >= 0]
    (found,) = tag(head, panel.tokenizer, [words], labels, longest)
    spans = spans_of(found, "iobes")
    return Tagged(found, p[asked].max(1).values.tolist(), [("".join(words[a:b]), kind) for a, b, kind in spans])


def _head(panel: Panel, name: str, kind: type) -> Any:
    if not isinstance(panel.heads.get(name), kind):
        raise ValueError(f"{name!r} is no {kind.__name__} of this panel; it has {', '.join(panel.heads)}")
    return panel.heads[name]
