"""What a student's process finds around it: the command that starts it, the files it may read, its variables."""

import importlib.util
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = HERE.parent
SCRATCH = 64 << 20  # bytes of the file system in memory, which is all that can be written to
KINDS = ("bwrap", "namespaces", "limits")


def masked(names: tuple[str, ...]) -> list[str]:
    """Where the named packages lie, to be covered by nothing."""
    found = []
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is not None:
            found += list(spec.submodule_search_locations or []) or [str(spec.origin)]
    return found


def system_paths() -> list[str]:
    """What a Python process needs to read: the interpreter, its packages, the system's libraries."""
    wanted = [sys.base_prefix, sys.prefix, "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"]
    wanted += [str(Path(sys.executable).resolve().parents[1]), str(HERE / "runner.py"), str(HERE / "values.py")]
    wanted += [
        os.path.realpath(p) for p in wanted if os.path.islink(p)
    ]  # an environment may be a link to another place
    return list(dict.fromkeys(p for p in wanted if os.path.exists(p)))


def command_for(kind: str, reads: list[str], covered: list[str], results: int) -> list[str]:
    """The command line that starts the runner under this kind of isolation. results: the descriptor of its results pipe."""
    inner = [sys.executable, "-s", "-B", str(HERE / "runner.py"), str(results)]
    readable = [*system_paths(), *reads]
    if kind == "limits":
        return inner
    if kind == "namespaces":
        plan = {"readable": readable, "covered": covered, "size": SCRATCH, "command": inner}
        return [sys.executable, "-s", "-B", str(HERE / "confine.py"), json.dumps(plan)]
    command = ["bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if os.geteuid() == 0:  # the runner becomes nobody by itself, which is a user of its own for the kernel's counts
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    command += ["--die-with-parent", "--hostname", "sandbox", "--proc", "/proc", "--dev", "/dev"]
    command += ["--perms", "1777", "--size", str(SCRATCH), "--tmpfs", "/tmp"]
    for folder in sorted({str(f) for path in readable for f in Path(path).parents} - {"/", "/tmp"}):
        command += ["--perms", "0755", "--dir", folder]  # else only root could pass through it
    for path in readable:
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        else:
            command += ["--ro-bind", path, path]
    for path in covered:
        command += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    return [*command, "--remount-ro", "/", "--chdir", "/tmp", "--", *inner]


def environment() -> dict[str, str]:
    """The variables of the student's process: none of ours."""
    settings = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "USER": "student", "LANG": "C.UTF-8"}
    settings |= {"PYTHONPATH": str(LIBRARY), "MPLBACKEND": "Agg", "MPLCONFIGDIR": "/tmp", "PLM_QUIET": "1"}
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    kept = {k: os.environ[k] for k in ("OPENBLAS_CORETYPE",) if k in os.environ}
    return settings | dict.fromkeys(threads, "1") | kept | {"PYTHONHASHSEED": "0"}
