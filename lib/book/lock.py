"""Print the packages of this environment as a lock file: exact versions, the same for every platform.

make lock
"""

import re
from importlib.metadata import distributions

# Installed only where they work.
MARKERS = {"pexpect": 'sys_platform != "win32"', "ptyprocess": 'sys_platform != "win32"'}
OURS = {"plm", "pip"}

HEADER = """\
# Exact versions of everything the book needs, for Python 3.11. Made by `make lock`; do not edit.
# On Linux the default torch wheel is a CUDA build of several GB. The README says how to get the CPU build instead.
"""


def lock() -> str:
    """The lock file's text: one `name==version` a line, local parts such as +cpu dropped."""
    lines = {}
    for distribution in distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        if name not in OURS:
            marker = f" ; {MARKERS[name]}" if name in MARKERS else ""
            lines[name] = f"{name}=={distribution.version.split('+')[0]}{marker}"
    return HEADER + "".join(f"{lines[name]}\n" for name in sorted(lines))


if __name__ == "__main__":
    print(lock(), end="")
