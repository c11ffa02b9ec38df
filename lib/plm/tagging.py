"""Labels of words on pieces of words and back; the files of CoNLL-2003; and paths of labels that spell names only.

A word's label stands at its first piece, and the other pieces are not asked (Devlin et al. 2019, sec. 5.3). Names are written in
one of three ways: IOB1 (B only between neighbours of one type: CoNLL-2003), IOB2 (B at each start), IOBES (`plm.entities`).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from plm.bert import IGNORED
from plm.entities import Span, from_iobes, to_iobes
from plm.evaluate import modes, restore
from plm.heads import Example, TagHead, collate
from plm.wordpiece import UNK, WordPiece

SCHEMES = ("iob1", "iob2", "iobes")
_LABEL = re.compile(r"O|[BIES]-\S+")


class TaggedWords(NamedTuple):
    """The words of a sentence and a label for each; line: of the file, where its first word stands (0: no file)."""

    words: list[str]
    labels: list[str]
    line: int = 0


def read_conll(path: str | Path, column: int = -1) -> list[TaggedWords]:
    """Sentences of a file in the format of CoNLL-2003: a word and its labels a line, an empty line behind each sentence.

    column: which one holds the label (the last: names, which are checked). -DOCSTART- lines are left out.
    """
    found, words, labels = [], list[str](), list[str]()
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    for number, line in enumerate([*lines, ""], 1):
        fields = line.split()
        if fields and fields[0] != "-DOCSTART-":
            if len(fields) < 2:
                raise ValueError(f"{path}, line {number}: {line!r} has a word but no label")
            if column == -1 and not _LABEL.fullmatch(fields[-1]):
                raise ValueError(
                    f"{path}, line {number}: {fields[-1]!r} is no label; expected O, or B-, I-, E-, S- and a type"
                )
            words.append(fields[0])
            labels.append(fields[column])
        elif words:
            found.append(TaggedWords(words, labels, number - len(words)))
            words, labels = [], []
    if not found:
        raise ValueError(f"{path} holds no sentence")
    return found


def scheme_of(sentences: Sequence[Sequence[str]]) -> str:
    """How the names are written: "iobes" if there is an E or S, "iob2" if each name starts with B, else "iob1"."""
    if any(label[0] in "ES" for labels in sentences for label in labels):
        return "iobes"
    return "iob2" if not any(invalid(labels, "iob2") for labels in sentences) else "iob1"


def invalid(labels: Sequence[str], scheme: str) -> list[int]:
    """The places where a label may not follow the one before it; len(labels) if a name (IOBES) is not ended."""
    _check(scheme)
    found = [i for i, (a, b) in enumerate(zip(["O", *labels], labels)) if not follows(a, b, scheme)]
    return found + [len(labels)] * (not follows(labels[-1] if labels else "O", "O", scheme))


def follows(before: str, label: str, scheme: str = "iobes") -> bool:
    """May `label` stand behind `before`? At the start of a sentence, and behind its end, stands O."""
    a, _, kind_a = before.partition("-")
    b, _, kind_b = label.partition("-")
    for place, kind in ((a, kind_a), (b, kind_b)):
        if place not in ("O", "B", "I", "E", "S")[: 3 if scheme != "iobes" else 5] or (place == "O") == bool(kind):
            raise ValueError(f"{place + '-' * bool(kind) + kind!r} is no label of {scheme}")
    if scheme == "iob1":
        return b != "B" or (a in "BI" and kind_a == kind_b)
    if scheme == "iob2":
        return b != "I" or (a in "BI" and kind_a == kind_b)
    inside = a in ("B", "I")
    return (b in ("I", "E") and kind_a == kind_b) if inside else b not in ("I", "E")


def spans_of(labels: Sequence[str], scheme: str, line: int = 0) -> list[Span]:
    """The names in labels. IOB1 and IOB2 must be valid: the error says which word breaks the rule. IOBES as `from_iobes`.

    line: of the first label in its file; with it the error says the line.
    """
    wrong = invalid(labels, scheme)
    if scheme == "iobes":
        return from_iobes(labels)
    if wrong:
        i = wrong[0]
        place = f"line {line + i}" if line else f"word {i + 1}"
        raise ValueError(f"{place}: {labels[i]} may not follow {labels[i - 1] if i else 'the start'} in {scheme}")
    found: list[Span] = []
    for i, (before, label) in enumerate(zip(["O", *labels], labels)):
        place, _, kind = label.partition("-")
        if place == "O":
            continue
        starts = place == "B" or before == "O" or before[2:] != kind
        found.append((i, i + 1, kind) if starts else (found.pop()[0], i + 1, kind))
    return found


def from_spans(n: int, spans: Sequence[Span], scheme: str) -> list[str]:
    """Labels of n words for names, in any of the three ways."""
    _check(scheme)
    labels = to_iobes(n, spans)
    if scheme == "iobes":
        return labels
    labels = [label.replace("S-", "B-").replace("E-", "I-") if label != "O" else label for label in labels]
    if scheme == "iob2":
        return labels
    before = ["O", *labels]
    return [b.replace("B-", "I-") if b[:1] == "B" and a[1:] != b[1:] else b for a, b in zip(before, labels)]


def iobes(sentence: TaggedWords, scheme: str) -> TaggedWords:
    """The same names in IOBES. Already IOBES: unfinished names become O."""
    spans = spans_of(sentence.labels, scheme, sentence.line)
    return TaggedWords(sentence.words, to_iobes(len(sentence.labels), spans), sentence.line)


# --- words and pieces -------------------------------------------------------------------------------------------------


def cut_words(tokenizer: WordPiece, words: Sequence[str]) -> list[list[int]]:
    """The ids of each word's pieces; a word of which cleaning leaves nothing is one [UNK], so no word is lost."""
    if isinstance(words, str):
        raise TypeError("words are a list of strings, not one string; list(text) makes words of Chinese characters")
    found = [[tokenizer.ids[piece.text] for piece in tokenizer.tokenise(word)] for word in words]
    return [pieces or [tokenizer.ids[UNK]] for pieces in found]


def tag_examples(
    tokenizer: WordPiece, sentence: TaggedWords, names: Sequence[str], longest: int = 128
) -> list[Example]:
    """A sentence as one example, or several if it is longer than `longest` tokens: cut between words, none left out.

    names: the labels in the order of the model's outputs. A word cut into more pieces than fit keeps its first ones.
    """
    words, labels = cut_words(tokenizer, sentence.words), sentence.labels
    if len(words) != len(labels):
        raise ValueError(f"{len(words)} words have {len(labels)} labels")
    if longest < 3:
        raise ValueError(f"{longest} tokens have no room for a word")
    place, found, room = {name: i for i, name in enumerate(names)}, list[Example](), 0
    for pieces, label in zip(words, labels):
        if label not in place:
            raise ValueError(f"the label {label!r} is none of the model's: {', '.join(names)}")
        pieces = pieces[: longest - 2]
        if not found or len(pieces) > room:
            found.append(Example([tokenizer.cls_id], [], [IGNORED]))
            room = longest - 2
        found[-1].ids.extend(pieces)
        found[-1].target.extend([place[label], *[IGNORED] * (len(pieces) - 1)])
        room -= len(pieces)
    return [Example([*e.ids, tokenizer.sep_id], [0] * (len(e.ids) + 1), [*e.target, IGNORED]) for e in found]


def transitions(names: Sequence[str]) -> Tensor:
    """(n + 2, n + 2) bool: may IOBES label j stand behind label i? Row n is the start of a sentence, column n + 1 its end."""
    n = len(names)
    table = torch.zeros(n + 2, n + 2, dtype=torch.bool)
    for i, a in enumerate([*names, "O"]):
        for j, b in enumerate(names):
            table[i, j] = follows(a, b)
        table[i, n + 1] = follows(a, "O")
    return table


def best_path(scores: Tensor, table: Tensor) -> list[int]:
    """The labels with the highest sum of scores among those that `transitions` allows (Viterbi 1967). scores: (T, n)."""
    T, n = scores.shape
    forbidden = torch.zeros(table.shape, dtype=scores.dtype).masked_fill(~table, -torch.inf)
    total, back = scores[0] + forbidden[n, :n], []
    for t in range(1, T):
        total, origin = (total[:, None] + forbidden[:n, :n]).max(0)
        total = total + scores[t]
        back.append(origin)
    path = [int((total + forbidden[:n, n + 1]).argmax())]
    for origin in reversed(back):
        path.append(int(origin[path[-1]]))
    return path[::-1]


@torch.no_grad()
def tag(
    model: TagHead,
    tokenizer: WordPiece,
    sentences: Sequence[Sequence[str]],
    names: Sequence[str],
    longest: int = 128,
    constrained: bool = False,
    batch_size: int = 32,
) -> list[list[str]]:
    """A label for each word. constrained: the best path that spells whole names; else each word's best label by itself."""
    examples = [tag_examples(tokenizer, TaggedWords(list(s), [names[0]] * len(s)), names, longest) for s in sentences]
    flat = [(i, e) for i, parts in enumerate(examples) for e in parts]
    order = sorted(range(len(flat)), key=lambda k: len(flat[k][1].ids))
    scores: list[Tensor] = [torch.empty(0)] * len(flat)
    found, table = modes(model), transitions(names) if constrained else None
    model.eval()
    try:
        for part in (order[k : k + batch_size] for k in range(0, len(order), batch_size)):
            batch = collate([flat[k][1] for k in part], tokenizer.pad_id).to(model.output.weight.device)
            logits = model(batch).log_softmax(-1).float().cpu()
            for k, row in zip(part, logits):
                asked = torch.tensor([t != IGNORED for t in flat[k][1].target])
                scores[k] = row[: len(asked)][asked]
    finally:
        restore(found)
    joined: list[list[Tensor]] = [[] for _ in sentences]
    for (i, _), rows in zip(flat, scores):
        joined[i].append(rows)
    paths = [_path(torch.cat(rows), table) if rows else [] for rows in joined]
    return [[names[j] for j in path] for path in paths]


def _path(scores: Tensor, table: Tensor | None) -> list[int]:
    return scores.argmax(1).tolist() if table is None else best_path(scores, table)


def _check(scheme: str) -> None:
    if scheme not in SCHEMES:
        raise ValueError(f"names are written in one of {', '.join(SCHEMES)}, not {scheme!r}")
