"""plm.progress: bars are seen where somebody watches, and nowhere else."""

import subprocess
import sys

from plm.progress import progress


def test_e01_bars_are_silent_where_nobody_watches(capsys, monkeypatch):
    assert list(progress(range(3), "count", delay=0)) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
    code = "import ipykernel\nfrom plm.progress import progress\nlist(progress(range(3), 'count', delay=0))"
    for quiet, shown in (("1", False), ("0", True)):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={"PLM_QUIET": quiet, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout == ""
        assert ("count" in run.stderr) == shown
