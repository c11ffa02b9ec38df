"""How an assignment says what it asks, what each part is worth, and when a returned value is right.

An assignment is a folder of `assignments/`: `assignment.md` (the notebook, with solutions), `grading.py` (this module's words;
never released, never where student code runs), `calls.py` if needed (how answers are called; student code may read it) and
`fake_class.py` (submissions whose marks are known).
"""

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from course.sandbox import Limits
from course.values import decode, encode

ASSIGNMENTS = Path(__file__).resolve().parents[2] / "assignments"
Judge = Callable[[Any, "Case"], "float | str"]
Draw = Callable[[np.random.Generator, Any], "list[Case]"]


@dataclass
class Case:
    """One call. inputs: the keyword arguments. secret: what only the judge sees. want: what the reference returns."""

    inputs: dict[str, Any]
    secret: Any = None
    want: Any = None


def case(secret: Any = None, **inputs: Any) -> Case:
    """A call with these keyword arguments; `secret` stays with the judge."""
    return Case(inputs, secret)


@dataclass(frozen=True)
class Part:
    """One line of the rubric: what it is called in the feedback, what it is worth, and what to think about when it fails."""

    title: str
    points: float
    hint: str
    draw: Draw
    call: str
    judge: Judge
    reference: bool


@dataclass
class Question:
    """A question whose answers are called.

    id: of its cells (`answer:q1`, `check:q1`). call: the name that is called, the student's or one of calls.py.
    needs: questions whose answers it builds on; their cells run before. cpu: seconds for all its calls together.
    without: packages that are not there (the solution must not come from them). tensors: inputs that the author drew as tensors
    arrive as tensors; needs torch, and so more memory. reads: files or folders of the repository that it may read.
    """

    id: str
    title: str
    call: str = ""
    needs: tuple[str, ...] = ()
    cpu: int = 10
    memory: int = 0
    without: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    tensors: bool = False
    parts: list[Part] = field(default_factory=list)

    def part(
        self, points: float, title: str, hint: str, call: str = "", judge: Judge | None = None, reference: bool = True
    ) -> Callable[[Draw], Draw]:
        """Declare a part by the function that draws its calls: `(rng, ref) -> [case(x=...), ...]`. All of them have to be right.
        `ref` holds the names of the reference solution.

        judge: (value, case) -> a share from 0 to 1, True, or a str that says what is wrong; left out: equal to what the
        reference solution returns, within rounding. reference=False: there is no such value, `case.want` is None.
        """

        def declare(draw: Draw) -> Draw:
            self.parts.append(Part(title, points, hint, draw, call or self.call, judge or close(), reference))
            return draw

        return declare

    @property
    def points(self) -> float:
        """What the whole question is worth."""
        return sum(part.points for part in self.parts)

    @property
    def limits(self) -> Limits:
        """What its process may use."""
        return Limits(cpu=self.cpu, memory=self.memory or (6 << 30 if self.tensors else 1 << 30))


@dataclass(frozen=True)
class Written:
    """A question that a person marks. rubric: points and what earns them."""

    id: str
    title: str
    rubric: Mapping[str, float]

    @property
    def points(self) -> float:
        """What it is worth."""
        return sum(self.rubric.values())


@dataclass
class Assignment:
    """All that its folder declares."""

    name: str
    folder: Path
    title: str
    questions: list[Question]
    written: list[Written]
    drivers: str

    @property
    def items(self) -> list[Question | Written]:
        """Everything that has points, in the order of the tables."""
        return [*self.questions, *self.written]

    @property
    def points(self) -> float:
        """What everything is worth."""
        return sum(item.points for item in self.items)

    def question(self, name: str) -> Question:
        """The question with this id."""
        return next(q for q in self.questions if q.id == name)


def assignments() -> list[str]:
    """The names of all assignments."""
    return sorted(p.parent.name for p in ASSIGNMENTS.glob("*/grading.py"))


def load_assignment(name: str) -> Assignment:
    """Read an assignment's folder, by its name or the beginning of it (`03`)."""
    found = [n for n in assignments() if n.startswith(name)]
    if len(found) != 1:
        raise SystemExit(f"no single assignment starts with {name!r}; there are: {', '.join(assignments())}")
    folder = ASSIGNMENTS / found[0]
    module = load_module(folder / "grading.py")
    drivers = folder / "calls.py"
    return Assignment(
        found[0],
        folder,
        module.TITLE,
        module.QUESTIONS,
        module.WRITTEN,
        drivers.read_text(encoding="utf-8") if drivers.exists() else "",
    )


def load_module(path: Path) -> ModuleType:
    """A Python file of an assignment's folder, as a module of its own."""
    name = f"{path.parent.name}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw_cases(assignment: Assignment, seed: str, reference: dict[str, Any]) -> dict[str, list[list[Case]]]:
    """The hidden calls of every part, with what the reference answers: {question id: [cases of part 0, of part 1, …]}.

    seed: secret, drawn for each batch. reference: the names that the solution cells define.
    """
    drivers: dict[str, Any] = {}
    exec(compile(assignment.drivers, "calls.py", "exec"), drivers)
    drawn: dict[str, list[list[Case]]] = {}
    for question in assignment.questions:
        drawn[question.id] = []
        for k, part in enumerate(question.parts):
            digest = sha256(f"{seed}/{assignment.name}/{question.id}/{k}".encode()).digest()
            cases = part.draw(np.random.default_rng(int.from_bytes(digest[:8], "little")), _Names(reference))
            for one in cases if part.reference else []:
                # A copy: the reference gets what students get.
                inputs = decode(encode(one.inputs), tensors=question.tensors)
                if part.call in drivers:
                    one.want = drivers[part.call](_Names(reference), **inputs)
                else:
                    one.want = reference[part.call](**inputs)
            drawn[question.id].append(cases)
    return drawn


class _Names:
    def __init__(self, names: dict[str, Any]):
        self.__dict__.update(names)


def close(rtol: float = 1e-5, atol: float = 1e-7) -> Judge:
    """A judge: the same structure, shapes and numbers as the reference's value. Lists and tuples count as one kind."""
    return lambda got, one: difference(got, one.want, rtol, atol) or True


def difference(got: Any, want: Any, rtol: float, atol: float) -> str:
    """What is different, in words that tell no expected number; "" when nothing is."""
    if isinstance(want, np.ndarray) or isinstance(got, np.ndarray):
        numbers = np.ndarray | float | int | bool
        if not isinstance(got, numbers) or not isinstance(want, numbers):
            return f"a {_kind(got)} was returned, expected is {_kind(want)}"
        got, want = np.asarray(got), np.asarray(want)
        if got.ndim != want.ndim:
            return f"an array of {got.ndim} dimensions, expected are {want.ndim}"
        if got.shape != want.shape:
            return "another shape"
        if np.isnan(got).any() and not np.isnan(want).any():
            return "there is a NaN in it"
        return "" if np.allclose(got, want, rtol, atol, equal_nan=True) else "other numbers"
    if isinstance(want, list | tuple):
        if not isinstance(got, list | tuple):
            return f"a {_kind(got)} was returned, expected is {_kind(want)}"
        if len(got) != len(want):
            return f"{len(got)} values were returned, expected are {len(want)}"
        return next((text for g, w in zip(got, want) if (text := difference(g, w, rtol, atol))), "")
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return f"a {_kind(got)} was returned, expected is {_kind(want)}"
        if set(got) != set(want):
            return "the dict has other keys"
        return next((f"{k}: {text}" for k in want if (text := difference(got[k], want[k], rtol, atol))), "")
    if isinstance(want, float | int) and not isinstance(want, bool) and isinstance(got, float | int):
        return "" if np.isclose(got, want, rtol, atol, equal_nan=True) else "another number"
    if type(got) is not type(want):
        return f"a {_kind(got)} was returned, expected is {_kind(want)}"
    return "" if got == want else f"another {_kind(got)}"


def _kind(value: Any) -> str:
    names = {"NoneType": "None", "ndarray": "array", "Tensor": "tensor", "str": "text", "int": "whole number"}
    return names.get(type(value).__name__, type(value).__name__)
