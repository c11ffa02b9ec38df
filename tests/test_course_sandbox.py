"""The sandbox: what student code can reach, and how it ends. Once for each kind of isolation that works here."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from course import sandbox
from course.sandbox import Limits, NoIsolationError, Request, _end, run

KINDS = [kind for kind in ("bwrap", "namespaces") if sandbox.works(kind)]
PATIENT = Limits(cpu=2, wall=120)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def answer(kind, body, limits=PATIENT, **surroundings):
    """What a function with this body returns inside, or how it ended."""
    source = "def f(**inputs):\n" + "\n".join("    " + line for line in body.splitlines())
    inputs = surroundings.pop("inputs", {})
    outcome = run(Request([{"source": source}], [{"name": "f", "inputs": inputs}], limits=limits, **surroundings), kind)
    frames = [f for f in outcome.frames if "call" in f]
    if outcome.ended != "done":
        return outcome.ended
    return frames[0]["value"] if "value" in frames[0] else frames[0]["error"]["type"]


def test_some_isolation_works_here():
    assert KINDS, "neither bubblewrap nor namespaces: hidden tests cannot be kept from students on this machine"


def test_an_environment_that_is_a_link_works(kind, tmp_path, monkeypatch):
    (tmp_path / "env").symlink_to(sys.prefix)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / Path(sys.executable).relative_to(sys.prefix)))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "env") if sys.base_prefix == sys.prefix else sys.base_prefix)
    assert answer(kind, "import sys, numpy\nreturn sys.prefix") == str(tmp_path / "env")


def test_values_go_in_and_come_out(kind):
    x = np.arange(6.0).reshape(2, 3)
    got = answer(kind, "inputs['x'] += 1\nreturn [inputs['x'], inputs['n'] + 1, ('a', None)]", inputs={"x": x, "n": 1})
    np.testing.assert_array_equal(got[0], x + 1)
    assert got[1:] == [2, ("a", None)]


def test_tensors_go_in_as_tensors(kind):
    torch = pytest.importorskip("torch")
    body = "import torch\nreturn [type(inputs['x']) is torch.Tensor, inputs['x'].softmax(0)]"
    is_tensor, got = answer(
        kind, body, Limits(cpu=20, wall=300, memory=6 << 30), tensors=True, inputs={"x": torch.tensor([1.0, 2.0])}
    )
    assert is_tensor
    np.testing.assert_allclose(got, torch.tensor([1.0, 2.0]).softmax(0).numpy())


def test_f06_no_file_of_the_course_is_there(kind):
    body = (
        "import os\nfound = []\n"
        "for folder, _, files in os.walk('/'):\n"
        "    if folder.startswith(('/proc', '/usr')): continue\n"
        "    found += [os.path.join(folder, name) for name in files]\n"
        "return [p for p in found if 'site-packages' not in p and '/lib/python3' not in p]"
    )
    found = answer(kind, body, Limits(cpu=20, wall=300))
    assert any(p.endswith("lib/course/runner.py") for p in found)  # the walk sees what there is
    names = (
        "assignments",
        "grading",
        "fake_class",
        "judge",
        "classroom",
        "cases.bin",
        "seed",
        "tests/",
        "chapters/src",
    )
    assert [p for p in found if any(name in p for name in names)] == []


def test_f06_nothing_of_the_request_is_left_to_read(kind):
    body = (
        "import sys, os\nout = []\nframe = sys._getframe()\n"
        "while frame:\n    out += [str(k) for k in frame.f_locals] + [str(frame.f_globals.get('__name__'))]\n"
        "    frame = frame.f_back\n"
        "return [out, sorted(os.environ), sys.stdin.read(), sys.argv, os.listdir('/proc/self/fd')]"
    )
    names, variables, stdin, arguments, descriptors = answer(kind, body)
    assert not [n for n in names if n in ("want", "expected", "secret", "judge", "reference", "seed")]
    assert not [v for v in variables if "COURSE" in v or "CLASSROOM" in v or "PYTEST" in v]
    assert stdin == ""
    assert len(arguments) == 2  # the runner, and where it answers
    assert len(descriptors) <= 8


def test_no_network_no_other_process_no_root(kind):
    body = (
        "import os, socket\n"
        "try:\n    socket.create_connection(('127.0.0.1', 9), 1)\nexcept OSError as error:\n    net = type(error).__name__\n"
        "return [net, os.getuid(), sum(p.isdigit() for p in os.listdir('/proc')), socket.gethostname()]"
    )
    net, user, processes, _ = answer(kind, body)
    assert net in ("ConnectionRefusedError", "OSError")
    assert user == 65534
    assert processes <= 3


def test_a_server_outside_cannot_be_reached(kind):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), 1).close()  # from here it can
        body = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)\nreturn 'reached'"
        assert answer(kind, body) in ("ConnectionRefusedError", "OSError")


def test_it_writes_only_a_little_and_only_in_memory(kind):
    assert answer(kind, "open('/x', 'w')") in ("PermissionError", "OSError")
    assert answer(kind, "import plm\nopen(plm.__file__, 'a')") in ("PermissionError", "OSError")
    assert answer(kind, "with open('/tmp/a', 'wb') as f:\n    while True: f.write(bytes(1 << 20))") == "OSError"
    assert answer(kind, "open('/tmp/a', 'w').write('mine')\nreturn open('/tmp/a').read()") == "mine"
    assert answer(kind, "import os\nreturn os.path.exists('/tmp/a')") is False  # nothing stays


def test_packages_can_be_left_out(kind):
    body = (
        "import sys, importlib.util\nsys.meta_path[:] = [m for m in sys.meta_path if type(m).__name__ != 'Without']\n"
        "import babel\nreturn hasattr(babel, 'Locale')"
    )
    assert answer(kind, "import babel\nreturn 'there'", without=("babel",)) == "ImportError"
    assert answer(kind, body, without=("babel",)) in (False, "ModuleNotFoundError", "ImportError")
    assert answer(kind, body) is True


def test_plm_is_there_and_files_can_be_granted(kind, tmp_path):
    (tmp_path / "weights.txt").write_text("seven")
    path = str(tmp_path / "weights.txt")
    assert answer(kind, "import plm\nreturn plm.__name__") == "plm"
    assert answer(kind, f"return open({path!r}).read()") == "FileNotFoundError"
    assert answer(kind, f"return open({path!r}).read()", reads=(path,)) == "seven"


@pytest.mark.parametrize(
    ("body", "ended"),
    [
        ("while True: pass", "time"),
        ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", "time"),
        ("import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True: pass", "time"),
        ("import os\nos._exit(0)", "died"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "memory"),
        ("bytearray(64 << 30)", "MemoryError"),
        ("import ctypes\nctypes.string_at(0)", "died"),
        ("f()", "RecursionError"),
        ("while True: print('x' * 10_000)", "output"),
        ("return bytes(1)", "NotPlainError"),
        ("return [0.5] * 15_000_000", "output"),
        ("return [0.5] * 30_000_000", "NotPlainError"),
        ("input()", "EOFError"),
        ("import sys\nsys.exit(0)", "SystemExit"),
        ("import os, sys\nos.write(int(sys.argv[1]), bytes(16))", "unreadable"),
        ("import os, sys\nos.close(int(sys.argv[1]))", "died"),
    ],
    ids=lambda v: v.replace("\n", "; ")[:40],
)
def test_f03_f04_f12_how_it_ends(kind, body, ended):
    limits = Limits(cpu=1 if ended == "time" else 20, wall=200, memory=4 << 30)
    if "SIGKILL" in body and kind == "namespaces":
        ended = None  # the first process of a namespace cannot end itself so
    assert answer(kind, body, limits) == ended


def test_f03_who_sleeps_is_woken(kind):
    started = time.monotonic()
    assert answer(kind, "import time\ntime.sleep(10**6)", Limits(cpu=1, wall=8)) == "time"
    assert time.monotonic() - started < 30


def test_children_end_with_it(kind):
    started = time.monotonic()
    body = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\nreturn 'parent'"
    assert answer(kind, body) == "parent"
    assert time.monotonic() - started < 60


def test_after_an_error_the_next_cell_and_the_next_call_run(kind):
    cells = [{"source": "def f(x): return 1 / x"}, {"source": "%time\n1 / 0"}, {"source": "def g(): return 2"}]
    calls = [{"name": "f", "inputs": {"x": 0}}, {"name": "f", "inputs": {"x": 2}}, {"name": "g", "inputs": {}}]
    outcome = run(Request(cells, [*calls, {"name": "h", "inputs": {}}], limits=PATIENT), kind)
    assert outcome.ended == "done"
    assert [f["error"]["type"] for f in outcome.frames if "cell" in f] == ["ZeroDivisionError"]
    results = [f.get("value", f.get("error", {})) for f in outcome.frames if "call" in f]
    assert results[0]["code"] == "def f(x): return 1 / x"
    assert results[1:3] == [0.5, 2]
    assert results[3]["message"] == "h is not defined"


def test_without_isolation_it_refuses_and_says_what_to_do(monkeypatch):
    monkeypatch.setattr(sandbox, "works", lambda kind: False)
    with pytest.raises(NoIsolationError, match="install bubblewrap"):
        run(Request([], []), "auto")


@pytest.mark.parametrize(
    ("script", "patience", "killed", "code"), [("sleep 1; exit 3", 60, False, 3), ("sleep 60", 0.1, True, -9)]
)
def test_a_slow_end_is_not_taken_for_a_kill(script, patience, killed, code):
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    assert _end(process, patience) is killed
    assert process.returncode == code
