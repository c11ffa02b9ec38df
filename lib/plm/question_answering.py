"""Answers that stand in a text: windows over long texts, the best span, and SQuAD's measures. Rajpurkar et al. 2016 and 2018.

A window is [CLS] question [SEP] part of the text [SEP]. Places in the text are characters everywhere but inside the model.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plm.evaluate import modes, restore
from plm.files import read_json
from plm.heads import Example, SpanHead, collate
from plm.wordpiece import WordPiece

NOTHING = (0, 0)  # the target of a window without the answer: [CLS]


class Answer(NamedTuple):
    """A piece of the text, and the character it starts at."""

    text: str
    start: int


class Question(NamedTuple):
    """A question about a text. answers: what people marked; none: the text does not say."""

    id: str
    text: str
    context: str
    answers: tuple[Answer, ...]


class Window(NamedTuple):
    """A part of a text behind its question, as the model reads it."""

    row: int  # which question
    ids: list[int]
    segments: list[int]
    offsets: list[tuple[int, int] | None]  # characters of the text; None at special tokens and the question


class Found(NamedTuple):
    """The answer that was found: "" is none. score: of the span, minus that of no answer."""

    text: str
    start: int
    score: float


def read_squad(path: str | Path) -> list[Question]:
    """Questions of a file in the format of SQuAD 1.1 or 2.0. An answer not at its place counts at the nearest place it is at."""
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise ValueError(f'{path} is no SQuAD file: it needs a list under "data"')
    found = []
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                marked = [] if qa.get("is_impossible") else qa.get("answers", [])
                answers = (_placed(paragraph["context"], a["text"], a["answer_start"], qa["id"]) for a in marked)
                found.append(Question(str(qa["id"]), qa["question"], paragraph["context"], tuple(answers)))
    if not found:
        raise ValueError(f"{path} holds no question")
    return found


def _placed(context: str, text: str, start: int, name: str) -> Answer:
    places = [m.start() for m in re.finditer(f"(?={re.escape(text)})", context)]
    if not text or not places:
        raise ValueError(f"question {name}: its answer {text!r} is not in its text")
    return Answer(text, min(places, key=lambda place: abs(place - start)))


# --- windows ----------------------------------------------------------------------------------------------------------


def window_starts(n: int, size: int, stride: int) -> list[int]:
    """Where windows of `size` tokens begin so that each of n tokens is in one; each begins `stride` after the one before."""
    if size < 1 or not 1 <= stride <= size:
        raise ValueError(f"a stride of {stride} with windows of {size} would skip tokens: it must be 1 … {size}")
    starts = [0]
    while starts[-1] + size < n:
        starts.append(starts[-1] + stride)
    return starts


def windows(
    tokenizer: WordPiece,
    question: Question,
    row: int = 0,
    longest: int = 384,
    stride: int = 128,
    longest_question: int = 64,
) -> list[Window]:
    """The windows over a question's text, at most `longest` tokens each; of a longer question the end is cut."""
    asked = [tokenizer.ids[piece.text] for piece in tokenizer.tokenise(question.text)[:longest_question]]
    pieces, room = tokenizer.tokenise(question.context), longest - len(asked) - 3
    if room < 1:
        raise ValueError(f"{longest} tokens have no room for a text beside a question of {len(asked)}")
    head = [tokenizer.cls_id, *asked, tokenizer.sep_id]
    found = []
    for start in window_starts(len(pieces), room, min(stride, room)):
        part = pieces[start : start + room]
        ids = [*head, *(tokenizer.ids[piece.text] for piece in part), tokenizer.sep_id]
        offsets = [*[None] * len(head), *((piece.start, piece.end) for piece in part), None]
        found.append(Window(row, ids, [0] * len(head) + [1] * (len(part) + 1), offsets))
    return found


def span_target(window: Window, answer: Answer | None) -> tuple[int, int]:
    """First and last token of an answer that stands in the window as a whole; else ([CLS], [CLS])."""
    if answer is None:
        return NOTHING
    text = answer.text  # white space at its edges belongs to no token
    low = answer.start + len(text) - len(text.lstrip())
    high = answer.start + len(text.rstrip())
    places = [i for i, o in enumerate(window.offsets) if o is not None and o[1] > o[0] and o[0] < high and o[1] > low]
    if not places:
        return NOTHING
    a, b = window.offsets[places[0]], window.offsets[places[-1]]
    before = (
        places[0] > 0 and window.offsets[places[0] - 1] is not None
    )  # a token before it: the answer is not cut there
    behind = window.offsets[places[-1] + 1] is not None
    assert a is not None
    assert b is not None
    whole = (a[0] <= low or before) and (b[1] >= high or behind)
    return (places[0], places[-1]) if whole else NOTHING


def span_examples(tokenizer: WordPiece, questions: Sequence[Question], longest: int, stride: int) -> list[Example]:
    """One example per window, the first marked answer as its target."""
    cut = [w for i, q in enumerate(questions) for w in windows(tokenizer, q, i, longest, stride)]
    firsts = [q.answers[0] if q.answers else None for q in questions]
    return [Example(w.ids, w.segments, span_target(w, firsts[w.row])) for w in cut]


# --- the best span ----------------------------------------------------------------------------------------------------


def best_span(start: Tensor, end: Tensor, allowed: Tensor, longest: int = 30) -> tuple[float, int, int]:
    """(score, first, last) of the best span: first <= last, at most `longest` tokens, both ends allowed.

    start, end: (T,) scores; allowed: (T,) bool. The score is the sum of the two; of equal ones the earliest is taken.
    """
    if not bool(allowed.any()) or longest < 1:
        raise ValueError("there must be a token that may be in the answer, and answers of at least one token")
    inside = torch.ones(len(start), len(start), dtype=torch.bool, device=start.device).triu().tril(longest - 1)
    inside &= allowed[:, None] & allowed[None, :]
    scores = (start[:, None] + end[None, :]).masked_fill(~inside, -torch.inf)
    first, last = divmod(int(scores.argmax()), len(start))
    return float(scores[first, last]), first, last


@torch.no_grad()
def answer(
    model: SpanHead,
    tokenizer: WordPiece,
    questions: Sequence[Question],
    longest: int = 384,
    stride: int = 128,
    longest_answer: int = 30,
    threshold: float | None = None,
    batch_size: int = 32,
) -> list[Found]:
    """The answer to each question: the best span of all windows.

    threshold: how much better than no answer ([CLS] as start and end, the lowest of all windows) it must be; None: always answer.
    """
    cut = [w for i, q in enumerate(questions) for w in windows(tokenizer, q, i, longest, stride)]
    order = sorted(range(len(cut)), key=lambda i: len(cut[i].ids))
    best: list[tuple[float, int, int]] = [(-torch.inf, 0, 0)] * len(questions)
    nothing, found = [torch.inf] * len(questions), modes(model)
    model.eval()
    try:
        for part in (order[i : i + batch_size] for i in range(0, len(order), batch_size)):
            batch = collate([Example(cut[i].ids, cut[i].segments, NOTHING) for i in part], tokenizer.pad_id)
            logits = model(batch.to(model.output.weight.device))
            for i, start, end in zip(part, logits.start.float().cpu(), logits.end.float().cpu()):
                row, offsets = cut[i].row, cut[i].offsets
                nothing[row] = min(nothing[row], float(start[0] + end[0]))
                allowed = torch.tensor([o is not None for o in offsets])
                if bool(allowed.any()):
                    score, a, b = best_span(start[: len(offsets)], end[: len(offsets)], allowed, longest_answer)
                    best[row] = max(best[row], (score, offsets[a][0], offsets[b][1]), key=lambda x: x[0])  # type: ignore[index]
    finally:
        restore(found)
    return [_decide(q.context, *best[i], nothing[i], threshold) for i, q in enumerate(questions)]


def _decide(context: str, score: float, start: int, end: int, nothing: float, threshold: float | None) -> Found:
    if start == end or (threshold is not None and score - nothing <= threshold):
        return Found("", 0, score - nothing)
    return Found(text_between(context, start, end), start, score - nothing)


def text_between(context: str, start: int, end: int) -> str:
    """Characters start … end - 1, and the marks behind them: cleaning takes an accent off its letter, so no token holds it."""
    while end < len(context) and unicodedata.combining(context[end]):
        end += 1
    return context[start:end]


# --- SQuAD's measures -------------------------------------------------------------------------------------------------


def normalise_answer(text: str) -> str:
    """Lower case, without punctuation, without a, an, the, single spaces: as SQuAD's own script; Unicode's punctuation too."""
    kept = "".join(
        c for c in text.lower() if c not in string.punctuation and not unicodedata.category(c).startswith("P")
    )
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def answer_tokens(text: str, characters: bool = False) -> list[str]:
    """What F1 counts: the words of the normalised answer, or its characters (Chinese has no spaces)."""
    words = normalise_answer(text).split()
    return list("".join(words)) if characters else words


def exact_match(found: str, wanted: str) -> bool:
    """Equal after normalisation."""
    return normalise_answer(found) == normalise_answer(wanted)


def answer_f1(found: str, wanted: str, characters: bool = False) -> float:
    """Harmonic mean of the shares of words in common, each as often as in both; if one side is empty, 1 if both are."""
    a, b = answer_tokens(found, characters), answer_tokens(wanted, characters)
    if not a or not b:
        return float(a == b)
    common = sum((Counter(a) & Counter(b)).values())
    return 2 * common / (len(a) + len(b))


def squad_scores(questions: Sequence[Question], answers: Sequence[str], characters: bool = False) -> dict[str, float]:
    """Means over the questions of exact match and F1, each the best over the marked answers; "" is right if there are none."""
    if len(questions) != len(answers) or not questions:
        raise ValueError(
            f"there must be an answer ('' for none) to each of {len(questions)} questions, got {len(answers)}"
        )
    exact = f1 = 0.0
    for question, found in zip(questions, answers):
        # As in the script: a marked answer that normalises to nothing is left out.
        wanted: list[Any] = [a.text for a in question.answers if normalise_answer(a.text)] or [""]
        exact += max(exact_match(found, text) for text in wanted)
        f1 += max(answer_f1(found, text, characters) for text in wanted)
    return {"exact": exact / len(questions), "f1": f1 / len(questions)}
