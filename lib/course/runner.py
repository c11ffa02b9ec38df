"""Runs a student's cells and answers calls with the values they return. This is the only part that meets student code.

It is started inside the sandbox with nothing but this file and `values.py`; the request comes in on stdin, the answers go out,
frame by frame, on the descriptor that the command line names. It holds no expected value and no judgement, so there is nothing
here to find or to patch: whoever takes this process over can only choose the values it returns.
"""

import ast
import builtins
import linecache
import os
import resource
import sys
import traceback
import types
from typing import Any

from values import NotPlainError, decode, encode  # type: ignore[import-not-found]

RESULTS = int(sys.argv[1]) if len(sys.argv) > 1 else -1  # the descriptor of the results pipe
NOBODY = 65534


def confine(limits: dict[str, int]) -> None:
    """Set the limits, then become nobody if this is root: in this order, since nobody could not raise them again."""
    wanted = {"RLIMIT_AS": "memory", "RLIMIT_NPROC": "processes", "RLIMIT_FSIZE": "file_size", "RLIMIT_NOFILE": "files"}
    for name, key in wanted.items():
        resource.setrlimit(getattr(resource, name), (limits[key], limits[key]))
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu"], limits["cpu"] + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def send(**frame: Any) -> None:
    """One frame: its length in eight bytes, then the encoded tree."""
    data = encode(frame)
    data = len(data).to_bytes(8, "little") + data
    while data:
        data = data[os.write(RESULTS, data) :]


def refuse_input(*_: Any) -> str:
    """In place of input()."""
    raise EOFError("input() waits for a person, and nobody is there")


class Without:
    """An import hook that says why a package is not here. The package is masked in the sandbox as well."""

    def __init__(self, names: list[str]):
        self.names = set(names)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Refuse the named packages, leave all others to the next finder."""
        if name.partition(".")[0] in self.names:
            raise ImportError(f"this question is graded without {name.partition('.')[0]}")


class Answers:
    """The student's names, for a driver in calls.py."""

    def __init__(self, names: dict[str, Any]):
        self.__dict__.update({k: v for k, v in names.items() if type(k) is str})

    def __getattr__(self, name: str) -> Any:
        raise NameError(f"{name} is not defined")


def compiled(source: str, name: str) -> Any:
    """The cell's code; where it is no Python, lines of IPython (%magic, !shell) are left out first."""
    try:
        tree = ast.parse(source, name)
    except SyntaxError:
        lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in source.split("\n")]
        source = "\n".join(lines)
        tree = ast.parse(source, name)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return compile(tree, name, "exec")


def described(error: BaseException) -> dict[str, Any]:
    """What went wrong, and at which line of the student's cells."""
    report: dict[str, Any] = {"type": type(error).__name__, "message": "", "line": 0, "code": ""}
    try:
        report["message"] = str(error)[:200]
        places = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith("<cell ")]
        if isinstance(error, SyntaxError):
            report |= {"line": error.lineno or 0, "code": (error.text or "").strip()[:200]}
        elif places:
            report |= {"line": places[-1].lineno or 0, "code": (places[-1].line or "")[:200]}
    except BaseException:  # an exception may be hostile, too
        report["message"] = ""
    return report


def run(request: dict[str, Any]) -> None:
    """Execute the cells in order, then make the calls; a failure of one is reported and the next goes on."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    names = module.__dict__
    names["display"] = lambda *_, **__: None
    for k, cell in enumerate(request["cells"]):
        send(at=["cell", k])
        try:
            exec(compiled(cell["source"], f"<cell {k}>"), names)
        except BaseException as error:
            send(cell=k, error=described(error))
    drivers: dict[str, Any] = {"__name__": "calls"}
    exec(compile(request["drivers"], "<calls>", "exec"), drivers)
    for i, call in enumerate(request["calls"]):
        send(at=["call", i])
        try:
            driver = drivers.get(call["name"])
            if driver is not None:
                value = driver(Answers(names), **call["inputs"])
            elif call["name"] not in names:
                raise NameError(f"{call['name']} is not defined")
            else:
                value = names[call["name"]](**call["inputs"])
            send(call=i, value=value)
        except NotPlainError as error:
            message = str(error).replace("the result['value']", "the result")[:200]
            send(call=i, error={"type": "NotPlainError", "message": message, "line": 0, "code": ""})
        except BaseException as error:
            send(call=i, error=described(error))
    send(done=True)


def main() -> None:
    """Read the request, close the door, run."""
    with os.fdopen(os.dup(0), "rb") as stream:
        data = stream.read()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    head = decode(data)
    confine(head["limits"])
    request = decode(data, tensors=True) if head["tensors"] else head
    sys.meta_path.insert(0, Without(head["without"]))
    builtins.input = refuse_input
    run(request)


if __name__ == "__main__":
    main()
