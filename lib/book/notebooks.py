"""Make the notebooks in `chapters/` from their sources in `chapters/src/`: convert, execute, clean, save.

python -m book.notebooks            # all chapters
python -m book.notebooks 02 03      # those whose file name starts so
python -m book.notebooks --check    # do the notebooks still say what their sources say? (nothing is executed)
"""

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from book.guards import drift_faults
from book.repository import ROOT, repository_url
from plm.files import write_atomically

CHAPTERS = ROOT / "chapters"
SOURCES = CHAPTERS / "src"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
WIDGET = "application/vnd.jupyter.widget-view+json"


def sources(prefixes: list[str] | None = None) -> list[Path]:
    """Chapter sources whose name starts with one of `prefixes`; all chapters, but no drafts, when there are none."""
    chapters, drafts = sorted(SOURCES.glob("*.md")), sorted(SOURCES.glob("drafts/*.md"))
    found = [p for p in chapters + drafts if p.name.startswith(tuple(prefixes))] if prefixes else chapters
    if not found:
        known = ", ".join(p.stem for p in chapters + drafts)
        raise SystemExit(f"no chapter starts with {' or '.join(prefixes or ['anything'])}; there are: {known}")
    return found


def render(source: Path) -> NotebookNode:
    """The notebook that a source describes, not executed: variables filled in, cell ids fixed by position."""
    text = re.sub(r"\{\{\s*repository_url\s*\}\}", repository_url(), source.read_text(encoding="utf-8"))
    nb = jupytext.reads(text, fmt="md:myst")
    for number, cell in enumerate(nb.cells):
        cell.id = f"cell-{number:03d}"
    nb.metadata = NotebookNode(kernelspec=KERNEL)
    nb.nbformat, nb.nbformat_minor = 4, 5
    return nb


def execute(nb: NotebookNode, folder: Path, timeout: int = 600) -> float:
    """Run every cell in a new kernel, in order; returns the seconds it took. An error stops with the cell and its traceback."""
    # One thread, as in the tests: the last digits of a sum depend on how many there are.
    os.environ |= {"PLM_QUIET": "1", "OMP_NUM_THREADS": "1"}
    started = time.perf_counter()
    client = NotebookClient(
        nb,
        timeout=timeout,
        kernel_name="python3",
        extra_arguments=["--IPKernelApp.log_level=40"],
        resources={"metadata": {"path": str(folder)}},
    )
    client.store_widget_state = False
    client.execute()
    return time.perf_counter() - started


def clean(nb: NotebookNode) -> NotebookNode:
    """Drop what changes from run to run: times, kernel versions, ids of live widgets (their HTML twin stays)."""
    for cell in nb.cells:
        cell.metadata.pop("execution", None)
        outputs: list[Any] = cell.get("outputs", [])
        for output in outputs:
            output.get("data", {}).pop(WIDGET, None)
    nb.metadata = NotebookNode(
        kernelspec=KERNEL, language_info={"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}
    )
    return nb


def merge_streams(nb: NotebookNode) -> NotebookNode:
    """Join neighbouring pieces of one stream: how a kernel cuts them is chance."""
    for cell in nb.cells:
        joined: list[Any] = []
        for output in cell.get("outputs", []):
            last = joined[-1] if joined else {}
            if output.output_type == "stream" and last.get("output_type") == "stream" and last["name"] == output.name:
                last["text"] += output.text
            else:
                joined.append(output)
        if cell.cell_type == "code":
            cell.outputs = joined
    return nb


def check(paths: list[Path]) -> list[str]:
    """What is wrong with the notebooks of these sources: missing, or not what the source says."""
    faults = []
    for source in paths:
        target = CHAPTERS / f"{source.stem}.ipynb"
        if target.exists():
            faults += drift_faults(nbformat.read(target, as_version=4), render(source), target.name)
        else:
            faults.append(f"{target.name}: not made yet; run `make notebooks`")
    return faults


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m book.notebooks", description="Execute chapters and save them clean."
    )
    parser.add_argument("chapters", nargs="*", help="beginnings of file names, such as 03; all chapters when left out")
    parser.add_argument("--check", action="store_true", help="only compare notebooks with their sources")
    options = parser.parse_args(arguments)
    paths = sources(options.chapters)
    if options.check:
        faults = check(paths)
        print("\n".join(faults) or "all agree")
        return int(bool(faults))
    for source in paths:
        nb = render(source)
        target = CHAPTERS / f"{source.stem}.ipynb"
        half_run = target.with_suffix(".failed.ipynb.partial")
        half_run.unlink(missing_ok=True)
        try:
            seconds = execute(nb, CHAPTERS)
        except Exception:
            # It shows where the run stopped; the good notebook is left alone.
            write_atomically(half_run, nbformat.writes(nb))
            raise
        write_atomically(target, nbformat.writes(merge_streams(clean(nb))) + "\n")
        print(f"{target.name}: {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
