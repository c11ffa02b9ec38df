"""A sandbox by hand, for Linux without bubblewrap: new namespaces, a root that holds only what may be read, then the command.

Started as a program by `sandbox.py`; stands alone. As root it keeps root for the command, which becomes nobody by itself;
otherwise it makes a user namespace first. Namespaces: unshare(2), mount(2), pivot_root(2).
"""

import ctypes
import json
import os
import platform
import signal
import sys
from pathlib import Path

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
DETACH, PDEATHSIG, NO_NEW_PRIVS = 2, 1, 38
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
NOBODY = 65534
libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise what the C library reports."""
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    arguments = [text.encode() or None for text in (source, target, kind)]
    check(libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None), f"mount {target}")


def bind(source: str, root: str, at: str = "", read_only: bool = True) -> None:
    """Show `source` inside the new root, at the same place or at another; a link stays a link."""
    target = root + (at or source)
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    if os.path.islink(source) and not at:
        if not os.path.lexists(target):
            os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        Path(target).touch()
    mount(source, target, flags=BIND | REC)
    if read_only:
        # In a user namespace the flags that are already there have to be named again.
        kept = os.statvfs(source).f_flag & (NOSUID | NODEV | NOEXEC)
        mount("", target, flags=BIND | REMOUNT | RDONLY | NOSUID | kept)


def build(root: str, plan: dict) -> None:  # type: ignore[type-arg]
    """Everything that the command will see, in a file system in memory."""
    mount("", "/", flags=REC | PRIVATE)
    mount("tmpfs", root, "tmpfs", NOSUID | NODEV, "size=4m,nr_inodes=10000,mode=755")
    for folder in ("/tmp", "/dev/shm", "/proc"):
        os.makedirs(root + folder)
    mount("tmpfs", root + "/tmp", "tmpfs", NOSUID | NODEV, f"size={plan['size']},nr_inodes=10000,mode=1777")
    for path in plan["readable"]:
        if not os.path.exists(root + path) or os.path.isfile(path):
            bind(path, root)
    for path in plan["covered"]:
        if os.path.isdir(path):
            mount("tmpfs", root + path, "tmpfs", RDONLY | NOSUID, "size=4096")
        else:
            bind("/dev/null", root, at=path)
    for device in ("null", "zero", "full", "random", "urandom"):
        bind(f"/dev/{device}", root, read_only=False)
    mount(root + "/tmp", root + "/dev/shm", flags=BIND)
    # All else is made; without root, the student's process is the user who made it.
    mount("", root, flags=BIND | REMOUNT | RDONLY | NOSUID | NODEV)


def enter(root: str) -> None:
    """Make `root` the root, and let go of the old one."""
    os.chdir(root)
    check(libc.syscall(PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    check(libc.umount2(b".", DETACH), "umount")
    os.chdir("/tmp")


def main() -> int:
    """Returns the exit code of the command, or 128 + the signal that ended it."""
    plan = json.loads(sys.argv[1])
    user, group = os.geteuid(), os.getegid()
    check(libc.unshare((NEWUSER if user else 0) | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{NOBODY} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{NOBODY} {group} 1")
    libc.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    child = os.fork()
    if child == 0:
        libc.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        build("/mnt", plan)
        mount("proc", "/mnt/proc", "proc", NOSUID | NODEV | NOEXEC)
        enter("/mnt")
        libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
        os.execv(plan["command"][0], plan["command"])
    os.close(int(plan["command"][-1]))  # only the command answers there
    code = os.waitpid(child, 0)[1]
    return 128 + os.WTERMSIG(code) if os.WIFSIGNALED(code) else os.WEXITSTATUS(code)


if __name__ == "__main__":
    sys.exit(main())
