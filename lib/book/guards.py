"""The notebook guard: what must hold for every chapter that is committed.

Each rule is a function of one notebook that returns a list of faults; an empty list means all is well. Run
`python -m book.guards` to check all chapters, `python -m book.guards --html _build/html` to check the built pages.
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from book.cells import asserts, call_name, chapters, code_cells, output_texts, read, syntax, tags
from book.pages import math_faults
from book.pictures import alt_text_faults, html_image_faults, widget_faults
from book.prose import LEFTOVER

MAX_BYTES = 1_500_000
MAX_LINES = 30
MIN_EXERCISES = 6

TAG = re.compile(
    r"hide-(input|output|cell)|remove-(input|output|cell|stdout|stderr)|output_scroll|scroll-output|full-width|margin"
    r"|nbval-(ignore-output|skip)|raises-exception|setup|solution|lesson-only"
    r"|lib-(same|equiv):plm(\.[a-z_][a-z0-9_]*)+\.[A-Za-z_]\w*"
)
# A path starts after a space, a quote or a bracket: never inside a URL or a base64 string.
REST = r"[^\s'\"<>()]*"
ABSOLUTE_PATH = re.compile(
    r"(?<![\w./+~-])/(?:(?:home|tmp|Users|Volumes|opt|mnt|srv|work|workspace|content|kaggle|private|var/(?:tmp|folders)"
    rf"|usr/(?:lib|local))/|root\b){REST}|\bfile:///{REST}|\b[A-Za-z]:\\+\w{REST}|\b(?:site|dist)-packages\b{REST}"
)
RESIDUE = re.compile(r"\d%\|[ #\u2580-\u259f]*\|.*|\d+it \[\d\d:\d\d|\bat 0x[0-9a-fA-F]{6,}\b")
UNSAFE = re.compile(
    r"weights_only[\"']?\s*[=:]\s*(?:False|0)|\bpickle\.loads?\(|allow_pickle\s*=\s*True|\bjoblib\.load\("
)
EXERCISE = re.compile(
    r"^(?:`{3,}|:{3,})\{(exercise|exercise-start|solution|solution-start|solution-end)\}(.*)\n((?::\S+:.*\n)*)",
    re.MULTILINE,
)


def execution_faults(nb: NotebookNode) -> list[str]:
    """Each code cell ran once, from top to bottom, in a fresh kernel."""
    counts = [(n, cell.execution_count) for n, cell in code_cells(nb)]
    return [
        f"cell {n}: execution count is {count}, not {i}; run the notebook from top to bottom"
        for i, (n, count) in enumerate(counts, 1)
        if count != i
    ]


def error_faults(nb: NotebookNode) -> list[str]:
    """No cell failed, unless it is meant to; nothing was written to stderr."""
    faults = []
    for n, cell in code_cells(nb):
        for output in cell.outputs:
            if output.output_type == "error" and "raises-exception" not in tags(cell):
                faults.append(f"cell {n}: failed with {output.ename}; mend it, or tag it raises-exception")
            if output.get("name") == "stderr":
                faults.append(f"cell {n}: wrote to stderr: {output.text.strip()[:80]!r}; silence the cause")
    return faults


def saved_output_faults(nb: NotebookNode) -> list[str]:
    """What a cell shows is stored with it: nbval passes a notebook whose outputs were stripped (case K14)."""
    cells = list(code_cells(nb))
    if not any(cell.outputs for _, cell in cells):
        return ["no cell has an output; execute the notebook and save it with its outputs"]
    return [
        f"cell {n}: shows a value but has no saved output; execute it" for n, c in cells if not c.outputs and _shows(c)
    ]


def _shows(cell: NotebookNode) -> bool:
    body = syntax(cell.source).body
    if "raises-exception" in tags(cell) or not body:
        return False
    last, silent = body[-1], cell.source.rstrip().endswith(";")
    # A call at the end may well return None, so only other expressions are sure to show something.
    if isinstance(last, ast.Expr) and not isinstance(last.value, ast.Call | ast.Constant | ast.Await) and not silent:
        return True
    calls = [s.value for s in _surely(body) if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
    return any(call_name(c) in ("print", "display") and all(k.arg != "file" for k in c.keywords) for c in calls)


def _surely(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.For | ast.With):
            yield from _surely(statement.body)


def path_faults(nb: NotebookNode) -> list[str]:
    """No path of somebody's machine, no progress bar and no memory address, in any source, output or metadata."""
    faults = []
    for n, cell in enumerate(nb.cells, 1):
        texts = list(output_texts(cell)) if cell.cell_type == "code" else []
        for text in [cell.source, *texts]:
            faults += [
                f"cell {n}: absolute path {hit[0][:80]!r}; use a relative one" for hit in ABSOLUTE_PATH.finditer(text)
            ]
        for text in texts:
            faults += [
                f"cell {n}: residue {hit[0][:80]!r} in the output; keep it quiet" for hit in RESIDUE.finditer(text)
            ]
    hits = ABSOLUTE_PATH.finditer(json.dumps(nb.metadata))
    return faults + [f"metadata: absolute path {hit[0][:80]!r}; use a relative one" for hit in hits]


def leftover_faults(nb: NotebookNode) -> list[str]:
    """No control character and no note of things to do in code, captions and alternative texts (`book.prose` reads the rest)."""
    return [
        f"cell {n}: {hit[0]!r} was left behind; finish the line or remove it"
        for n, cell in code_cells(nb)
        for hit in LEFTOVER.finditer(cell.source + json.dumps(cell.metadata.get("mystnb", {}), ensure_ascii=False))
    ]


def format_faults(nb: NotebookNode) -> list[str]:
    """Valid nbformat 4.5 with unique ids, for the kernel `python3`, without volatile metadata (case E02)."""
    faults = []
    ids = [cell.get("id") for cell in nb.cells]
    if None in ids or len(set(ids)) < len(ids):
        return ["cell ids are missing or not unique; regenerate the notebook"]  # validate would repair them in place
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        faults.append(f"not a valid notebook: {str(error).splitlines()[0]}; regenerate it")
    kernel, language = nb.metadata.get("kernelspec", {}), nb.metadata.get("language_info", {})
    if (kernel.get("name"), kernel.get("language", "python")) != ("python3", "python"):
        faults.append(f"kernel is {kernel.get('name')!r}; it must be 'python3', which every machine has")
    if language.get("name") != "python":
        faults.append(f"language_info names {language.get('name')!r}, not 'python'; execute the notebook")
    for n, cell in enumerate(nb.cells, 1):
        volatile = {"execution", "collapsed", "scrolled", "ExecuteTime", "vscode", "colab", "trusted"} & set(
            cell.metadata
        )
        faults += [f"cell {n}: volatile metadata {key!r}; strip it" for key in sorted(volatile)]
    return faults


def tag_faults(nb: NotebookNode) -> list[str]:
    """Tags are known, and stand on code cells."""
    faults = []
    for n, cell in enumerate(nb.cells, 1):
        for tag in tags(cell):
            if not TAG.fullmatch(tag):
                faults.append(f"cell {n}: unknown tag {tag!r}; see CONTRIBUTING.md")
            elif cell.cell_type != "code":
                faults.append(f"cell {n}: tag {tag!r} on a {cell.cell_type} cell; only code cells carry tags")
    return faults


def ignored_output_faults(nb: NotebookNode) -> list[str]:
    """Where nbval ignores the text, an assertion holds the finding: in the same code cell or in the next."""
    cells = list(code_cells(nb))
    following = [*(cell.source for _, cell in cells[1:]), ""]
    return [
        f"cell {n}: {tag} without an assertion in this code cell or the next; assert what the text says"
        for (n, cell), after in zip(cells, following, strict=True)
        for tag in ("nbval-ignore-output", "nbval-skip")
        if tag in tags(cell) and not asserts(cell.source) and not asserts(after)
    ]


def layout_faults(nb: NotebookNode) -> list[str]:
    """Learning header first, one set-up cell that works on Colab (case E08), short cells, at least one assertion."""
    cells, faults = list(code_cells(nb)), []
    if not any(
        c.cell_type == "markdown" and re.search(r":class:.*\blearning-header\b", c.source) for c in nb.cells[:2]
    ):
        faults.append("no learning header in the first two cells; add the box of class learning-header")
    if [i for i, (_, cell) in enumerate(cells) if "setup" in tags(cell)] != [0]:
        faults.append("the first code cell, and no other, must be tagged setup")
    elif not re.search(r"(?s)import plm\b.*except (ImportError|ModuleNotFoundError).*pip install", cells[0][1].source):
        faults.append(f"cell {cells[0][0]}: set-up does not install plm where it is missing; copy chapter 1's")
    for n, cell in cells:
        if (lines := len(cell.source.splitlines())) > MAX_LINES:
            faults.append(f"cell {n}: {lines} lines of code; split it, {MAX_LINES} is the limit")
        if re.search(r"^\s*(import|from) torchtext\b", cell.source, re.MULTILINE):
            faults.append(f"cell {n}: imports torchtext, which no longer exists; use plm.vocab and plm.data")
    if not any(asserts(cell.source) for _, cell in cells):
        faults.append("asserts nothing; check at least one result")
    return faults


def exercise_faults(nb: NotebookNode) -> list[str]:
    """Enough exercises, each with a difficulty and a folded solution whose code runs and checks itself."""
    exercises: dict[str, int] = {}
    solutions: dict[str, int] = {}
    faults: list[str] = []
    inside, code = "", []  # the label of the solution we are in, and its code so far
    for n, cell in enumerate(nb.cells, 1):
        if cell.cell_type == "code" and cell.source.strip():
            code.append(cell.source)
            if bool(inside) != ("solution" in tags(cell)):
                faults.append(f"cell {n}: the tag solution belongs on every code cell of a solution, and only there")
        for kind, title, options in EXERCISE.findall(cell.source + "\n") if cell.cell_type == "markdown" else []:
            label = (re.findall(r":label:\s*(\S+)", options) or [title.strip()])[0]
            if kind.startswith("exercise"):
                exercises[label] = n
                if "★" not in title:
                    faults.append(f"cell {n}: exercise {label} shows no difficulty; add ★, ★★ or ★★★ to its title")
                continue
            if bool(inside) != (kind == "solution-end"):
                faults.append(f"cell {n}: {kind} out of place; pair each solution-start with one solution-end")
            if kind == "solution-end":
                if code and not any(map(asserts, code)):
                    faults.append(f"cell {n}: the code of solution {inside} asserts nothing; check its result")
                inside = ""
                continue
            solutions[label] = n
            inside, code = label if kind == "solution-start" else "", []
            if "dropdown" not in options:
                faults.append(f"cell {n}: solution {label} lies open; fold it with `:class: dropdown`")
    if inside:
        faults.append(f"cell {solutions[inside]}: solution {inside} never ends; add a solution-end")
    if len(exercises) < MIN_EXERCISES:
        faults.append(f"{len(exercises)} exercises; a chapter has at least {MIN_EXERCISES}")
    faults += [f"cell {exercises[x]}: exercise {x} has no solution; add one" for x in exercises if x not in solutions]
    faults += [f"cell {solutions[x]}: {x!r} is no exercise; solve one" for x in solutions if x not in exercises]
    return faults


RULES: list[Callable[[NotebookNode], list[str]]] = [
    execution_faults,
    error_faults,
    saved_output_faults,
    path_faults,
    leftover_faults,
    format_faults,
    tag_faults,
    ignored_output_faults,
    alt_text_faults,
    widget_faults,
    layout_faults,
    exercise_faults,
]


def notebook_faults(nb: NotebookNode, name: str) -> list[str]:
    """All faults of a notebook, each as "name: cell N: what is wrong; what to do"."""
    return [f"{name}: {fault}" for rule in RULES for fault in rule(nb)]


def size_faults(path: Path) -> list[str]:
    """A notebook is small enough to read, to diff and to serve."""
    size = path.stat().st_size
    too_big = f"{path.name}: {size / 1e6:.1f} MB; the limit is {MAX_BYTES / 1e6} MB, so draw fewer or smaller figures"
    return [too_big] if size > MAX_BYTES else []


def drift_faults(nb: NotebookNode, rendered: NotebookNode, name: str) -> list[str]:
    """The notebook holds the cells that its source describes (`rendered`): types, text, tags, figure metadata."""
    faults = []
    if len(nb.cells) != len(rendered.cells):
        faults.append(f"{len(nb.cells)} cells, but its source has {len(rendered.cells)}")
    for n, (ours, source) in enumerate(zip(nb.cells, rendered.cells, strict=False), 1):
        if ours.cell_type != source.cell_type or ours.source.rstrip() != source.source.rstrip():
            faults.append(f"cell {n}: starts {ours.source[:40]!r}, its source differs")
            break  # one inserted cell shifts all the others
        if tags(ours) != tags(source) or ours.metadata.get("mystnb") != source.metadata.get("mystnb"):
            faults.append(f"cell {n}: tags or figure metadata differ from the source")
    return [f"{name}: {fault}; edit the source and run `make notebooks`" for fault in faults]


def unsafe_load_faults(text: str, name: str) -> list[str]:
    """Nothing turns `weights_only` off or advises to: loading a file must not run code (case D06)."""
    lines = [text.count("\n", 0, match.start()) + 1 for match in UNSAFE.finditer(text)]
    return [
        f"{name}: line {n}: lets a loaded file run code; use safetensors or plm.train.load_checkpoint" for n in lines
    ]


def main(arguments: list[str]) -> int:
    """Print the faults of all chapters, or of the HTML files below a folder; return how the process should exit."""
    if arguments[:1] == ["--html"]:
        pages = sorted(Path(arguments[1]).rglob("*.html"))
        texts = {page: page.read_text(encoding="utf-8") for page in pages}
        faults = [
            f"{page}: {fault}" for page, text in texts.items() for fault in html_image_faults(text) + math_faults(text)
        ]
        print(f"{len(pages)} pages, {len(faults)} faults")
    else:
        notebooks = [Path(argument) for argument in arguments] or chapters()
        faults = [f for path in notebooks for f in size_faults(path) + notebook_faults(read(path), path.name)]
        print(f"{len(notebooks)} notebooks, {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
