"""The pytest plugin of this repository: quiet and off-screen, repeatable hypothesis, and the time each notebook took.

Loaded by `addopts` in pyproject.toml, so that it holds for notebooks tested alone as well.
"""

import os
from collections import defaultdict

import matplotlib
import pytest
from hypothesis import settings

# Kernels started by nbval inherit this, so it is set on import and not in a fixture.
os.environ["PLM_QUIET"] = "1"
# Each worker has one core: threads would only wait for one another, and sums would depend on their number.
os.environ["OMP_NUM_THREADS"] = "1"
# For this process only: a kernel that inherited MPLBACKEND would draw no inline figure, and its outputs would differ.
matplotlib.use("Agg")

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

_seconds: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up set-up, call and tear-down of every cell; with xdist the controller sees all workers' reports."""
    path = report.nodeid.partition("::")[0]
    if path.endswith(".ipynb"):
        _seconds[path] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the time of each notebook, the slowest first."""
    if not _seconds:
        return
    terminalreporter.section("seconds per notebook")
    for path, seconds in sorted(_seconds.items(), key=lambda item: -item[1]):
        terminalreporter.line(f"{seconds:8.1f}  {path}")
    terminalreporter.line(f"{sum(_seconds.values()):8.1f}  in total")
