"""From what came out of a student's process to marks and reasons. No student code runs here: data is compared."""

from dataclasses import asdict, dataclass, field
from typing import Any

from course.notebook import Submitted, squeeze
from course.questions import Assignment, Case, Part, Question
from course.sandbox import Outcome, Request, run, scaled

# What a student reads when the process did not come to its end.
ENDINGS = {
    "time": "It took longer than the {cpu} seconds of computing time that this question has. Is there a loop that does not end?",
    "memory": "It needed more memory than this question has. Does something grow without end?",
    "output": "It printed or returned far too much, and was stopped.",
    "died": "The Python process ended in the middle of it ({detail}). Endless recursion does that, and so does os._exit.",
    "unreadable": "What came out of the process could not be read as values.",
}
REASONS = {
    "NotImplementedError": "not answered yet",
    "EOFError": "it asks for input(), and nobody is there to type",
    "SystemExit": "it calls sys.exit or quit, which ends Python",
    "MemoryError": "it needed more memory than this question has",
    "RecursionError": "it calls itself without end",
    "NotPlainError": "it returned something that is no plain value: {message}",
}


@dataclass
class Mark:
    """One line of the rubric, as a student sees it."""

    title: str
    points: float
    score: float
    note: str = ""


@dataclass
class Verdict:
    """A question. status: right, partly, wrong, untouched, no answer cell, error, time, memory, output, died, unreadable."""

    status: str
    score: float
    points: float
    marks: list[Mark] = field(default_factory=list)
    note: str = ""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def grade_question(
    assignment: Assignment,
    question: Question,
    found: Submitted,
    stub: str,
    cases: list[list[Case]],
    kind: str,
    patience: float = 1,
) -> Verdict:
    """Run the student's cells and the hidden calls of one question, and judge what came back."""
    if question.id not in found.answers:
        return _nothing(
            question, "no answer cell", "The answer cell is not in the notebook, or is no code cell any more."
        )
    if squeeze(found.answers[question.id]) == squeeze(stub):
        return _nothing(question, "untouched", "Not answered.")
    outcome, cells, skipped = _run(assignment, question, found, cases, kind, patience)
    notes = [
        f"The cells of {name}, which this question builds on, end the process; they were left out." for name in skipped
    ]
    return _verdict(question, outcome, cells, cases, notes)


def _nothing(question: Question, status: str, note: str) -> Verdict:
    return Verdict(status, 0, question.points, [Mark(p.title, p.points, 0) for p in question.parts], note)


def _run(
    assignment: Assignment, question: Question, found: Submitted, cases: list[list[Case]], kind: str, patience: float
) -> tuple[Outcome, list[dict[str, str]], list[str]]:
    """Run it; where a cell of a question that this one builds on ends the process, once more without that question's cells."""
    skipped: list[str] = []
    calls = [{"name": part.call, "inputs": one.inputs} for part, drawn in zip(question.parts, cases) for one in drawn]
    while True:
        sections = ["setup", *(n for n in question.needs if n not in skipped), question.id]
        cells = [cell | {"section": s} for s in sections for cell in found.cells.get(s, [])]
        request = Request(
            [{"source": cell["source"]} for cell in cells],
            calls,
            assignment.drivers,
            question.without,
            tuple(str(assignment.folder.parents[1] / path) for path in question.reads),
            question.tensors,
            scaled(question.limits, patience),
        )
        outcome = run(request, kind)
        at = [f["at"] for f in outcome.frames if "at" in f][-1:]
        guilty = ""
        if outcome.ended != "done" and at and isinstance(at[0], list) and at[0][0] == "cell":
            guilty = cells[at[0][1]]["section"] if at[0][1] in range(len(cells)) else ""
        if guilty not in question.needs or guilty in skipped:
            return outcome, cells, skipped
        skipped.append(guilty)


def _verdict(
    question: Question, outcome: Outcome, cells: list[dict[str, str]], cases: list[list[Case]], notes: list[str]
) -> Verdict:
    ending = ""
    if outcome.ended != "done":
        ending = ENDINGS[outcome.ended].format(cpu=question.cpu, detail=outcome.detail)
    results = {f["call"]: f for f in reversed(outcome.frames) if type(f.get("call")) is int}
    errors = {
        f["cell"]: f["error"] for f in outcome.frames if type(f.get("cell")) is int and isinstance(f.get("error"), dict)
    }
    for k, error in errors.items():
        if k in range(len(cells)) and cells[k]["kind"] != "given":
            notes.append(f"A cell of {cells[k]['section']} stops with an error: {explained(error)}.")
    marks, first, problems = [], 0, []
    for part, drawn in zip(question.parts, cases):
        answers = [results.get(first + i) for i in range(len(drawn))]
        first += len(drawn)
        share, note, problem = _judge_part(part, drawn, answers, ending)
        problems.append(problem)
        marks.append(Mark(part.title, part.points, round(part.points * share, 2), note))
    score = round(sum(mark.score for mark in marks), 2)
    if score == question.points:
        status = "right"
    elif ending:
        status = outcome.ended
    elif all(problems) or (score == 0 and any(problems)):
        status = "error"
    else:
        status = "partly" if score else "wrong"
    notes = [ending, *notes] if ending else notes
    return Verdict(status, score, question.points, marks, "\n".join(notes), round(outcome.seconds, 2))


def _judge_part(part: Part, drawn: list[Case], answers: list[Any], ending: str) -> tuple[float, str, bool]:
    """The share of a part's points, what to tell the student, and whether an error was the reason."""
    share = 1.0
    for one, frame in zip(drawn, answers):
        if frame is None:
            return 0.0, "not reached" if ending else "no value came back", True
        if "value" not in frame:
            error = frame.get("error")
            known = isinstance(error, dict) and error.get("type") in REASONS  # then the hint is beside the point
            return 0.0, explained(error) + ("." if known else f". {part.hint}"), True
        try:
            verdict = part.judge(frame["value"], one)
        except Exception:  # values that no honest answer has; an error of the judge's own shows in the fake class
            verdict = "the returned value has another form than the one asked for"
        if isinstance(verdict, str):
            return 0.0, f"{verdict}. {part.hint}", False
        share = min(share, max(0.0, min(1.0, float(verdict))))
    return share, "" if share == 1 else part.hint, False


def explained(error: Any) -> str:
    """An exception of student code in a sentence: what, and where. It comes from their process, so nothing in it is trusted."""
    if not isinstance(error, dict):
        return "an error"
    kind, message, code = (str(error.get(k, ""))[:200] for k in ("type", "message", "code"))
    text = REASONS.get(kind, "{kind}: {message}" if message else "{kind}").format(kind=kind, message=message)
    line = error.get("line")
    return text + (f" (line {line}: {code})" if type(line) is int and line > 0 and kind not in REASONS else "")
