"""Submissions that want to break the grader or to cheat it, made from an assignment's solution, with what each has to get.

Each attacks one question, for which it gets nothing; in the others it is right, and has to get all their points.
"""

from typing import NamedTuple

from nbformat import NotebookNode

from course.fakes import Fake, answered, handful, hijacked, left_out, solution
from course.questions import Assignment
from course.surroundings import LIBRARY


class Attack(NamedTuple):
    """Code, the status that it has to get, and words that the student has to read (a regular expression)."""

    code: str
    state: str
    says: str = ""


GONE = "No such file"
ENDED = "ended in the middle"
NOT_PLAIN = "no plain value"

# Bodies of the functions that answer the question.
IN_A_FUNCTION: dict[str, Attack] = {
    "always-equal": Attack(
        "class Yes(int):\n    __eq__ = lambda *_: True\n    __hash__ = int.__hash__\nreturn Yes(3)",
        "error",
        NOT_PLAIN,
    ),
    "array-always-equal": Attack(
        "import numpy\nclass Yes(numpy.ndarray):\n    __eq__ = lambda *_: True\nreturn numpy.zeros(3).view(Yes)",
        "error",
        NOT_PLAIN,
    ),
    "endless": Attack("while True: pass", "time", "seconds of computing time"),
    "endless-and-deaf": Attack(
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "time",
        "seconds of computing time",
    ),
    "ends-python": Attack("import os\nos._exit(0)", "died", r"os\._exit"),
    "too-much-memory": Attack("return bytearray(64 << 30)", "error", "more memory"),
    "too-deep": Attack("return {name}(*args, **kwargs)", "error", "calls itself without end"),
    "crashes": Attack("import ctypes\nctypes.string_at(0)", "died", ENDED),
    "prints-for-ever": Attack("while True: print('x' * 1000)", "output", "printed"),
    "returns-too-much": Attack("import numpy\nreturn numpy.zeros(12_000_000)", "output", "returned far too much"),
    "leaves": Attack("import sys\nsys.exit()", "error", r"sys\.exit"),
    "asks": Attack("return input('the answer, please')", "error", r"input\(\)"),
    "forks": Attack("import os\nwhile True: os.fork()", "error", "temporarily unavailable"),
    "returns-code": Attack("return lambda: 1", "error", NOT_PLAIN),
    "returns-objects": Attack("import numpy\nreturn numpy.array([lambda: 1], dtype=object)", "error", NOT_PLAIN),
    "reads-what-it-was-given": Attack("return In[-1]", "error", "'In' is not defined"),
    "reads-the-tests": Attack("return open('{folder}/grading.py').read()", "error", GONE),
    "copies-the-solution": Attack(
        "import re\n"
        "text, names = open('{folder}/assignment.md').read(), {}\n"
        "for cell in re.findall(r'```{code-cell} ipython3\\n(.*?)```', text, re.DOTALL):\n"
        "    tags, _, code = cell.partition('\\n')\n"
        "    if 'setup' in tags or 'answer' in tags:\n"
        "        exec(code, names)\n"
        "return names['{name}'](*args, **kwargs)",
        "error",
        GONE,
    ),
    "seeks-the-hidden-inputs": Attack(
        "from pathlib import Path\n"
        "for place in (Path('/tmp'), Path('/root'), Path('/home'), Path('{folder}').parents[1]):\n"
        "    for path in (*place.glob('*/grading/*/cases.bin'), *place.glob('*/grading/*/seed')):\n"
        "        return list(path.read_bytes())\n"
        "raise FileNotFoundError('No such file: cases.bin')",
        "error",
        GONE,
    ),
    "opens-a-socket": Attack(
        "import socket\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))\n"  # an address of nobody; nothing is sent
        "return 'reached'",
        "error",
        "unreachable",
    ),
    "writes-outside": Attack(
        "import json\n"
        "for path in (json.__file__, '/etc/passwd', '{library}/plm/__init__.py', '/left-by-a-student'):\n"
        "    try:\n        open(path, 'r+' if path[1:5] != 'left' else 'w').close()\n"
        "    except OSError as error: last = error\n"
        "    else: return 'written'\n"
        "raise last",
        "error",
        "Permission denied|Read-only",
    ),
    "speaks-for-the-runner": Attack(
        "import sys\nframe = sys._getframe()\nwhile 'send' not in frame.f_globals: frame = frame.f_back\n"
        "for k in range(100): frame.f_globals['send'](call=k, value=True, score=100, status='right')\n"
        "return True",
        "wrong",
    ),
    "forges": Attack(
        "import os, sys\nos.write(int(sys.argv[1]), b'\\x05' + bytes(7) + b'right')\nos._exit(0)",
        "unreadable",
        "could not be read",
    ),
    "kills": Attack("import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(os.getppid(), signal.SIGKILL)", "error"),
}
# Code behind functions that return None: what a shared interpreter would fall for. A driver of calls.py may stumble over None.
IN_A_CELL: dict[str, Attack] = {
    "removes-asserts": Attack(
        "import ast\nclass Out(ast.NodeTransformer):\n    visit_Assert = lambda self, node: ast.Pass()\n"
        "get_ipython().ast_transformers.append(Out())",
        "wrong or error",
        "'get_ipython' is not defined",
    ),
    "patches": Attack(
        "import builtins, numpy\nnumpy.allclose = numpy.array_equal = numpy.isclose = lambda *a, **k: True\n"
        "builtins.all = builtins.any = builtins.isinstance = lambda *a: True",
        "died",
        ENDED,
    ),
    "shadows": Attack("score = points = 100\nprint = exec = len = None", "wrong or error"),
    "ends-python-at-once": Attack("import os\nos._exit(1)", "died", ENDED),
    "exits-at-once": Attack("raise SystemExit", "wrong or error", r"sys\.exit"),
    "does-not-parse": Attack("def (:", "error", "SyntaxError"),
}


def hostile(assignment: Assignment, source: NotebookNode) -> list[Fake]:
    """The hostile submissions of an assignment's fake class."""
    target, rest = answered(assignment)[0], left_out(assignment)
    code, fakes = solution(source, target), []
    for name in handful([*IN_A_FUNCTION, *IN_A_CELL], assignment):
        attack = IN_A_FUNCTION.get(name) or IN_A_CELL[name]
        if name in IN_A_FUNCTION:
            body = attack.code.replace("{folder}", str(assignment.folder)).replace("{library}", str(LIBRARY))
            answer = hijacked(code, body)
        else:
            answer = hijacked(code, "return None") + "\n\n" + attack.code
        fakes.append(
            Fake(
                name,
                {**dict.fromkeys(rest, 0), target: 0},
                answers={**rest, target: answer},
                states={target: attack.state},
                says={target: attack.says},
                kind="hostile",
            )
        )
    return fakes
