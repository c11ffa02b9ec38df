"""The parity guard: the code a chapter spells out and the library never drift apart.

Every class and function that a chapter defines carries one tag: `lib-same:plm.mod.name` (same syntax tree as the library's),
`lib-equiv:plm.mod.Name` (a later cell compares the two) or `lesson-only`. Run `python -m book.parity` to check all chapters.
"""

import ast
import copy
import difflib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nbformat import NotebookNode

from book.cells import ROOT, call_name, chapters, code_cells, read, syntax, tags

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Lookup = Callable[[str], Definition | None]
TYPING_DECORATORS = {"overload", "final", "override", "no_type_check", "runtime_checkable"}


def definitions(body: Iterable[ast.stmt]) -> Iterator[Definition]:
    """The classes and functions that a cell or module defines at its top level, also inside `if`, `try` and `with`."""
    for statement in body:
        if isinstance(statement, Definition):
            yield statement
        else:
            for field in ("body", "orelse", "finalbody", "handlers"):
                yield from definitions(getattr(statement, field, []))


def library_definition(dotted: str) -> Definition | None:
    """The syntax tree of `plm.mod.Name` (or `plm.mod.Name.method`), read from the source; None if there is none."""
    parts = dotted.split(".")
    for split in range(len(parts) - 1, 0, -1):
        path = ROOT / "lib" / Path(*parts[:split]).with_suffix(".py")
        if path.is_file():
            return _find(ast.parse(path.read_text(encoding="utf-8")).body, parts[split:])
    return None


def _find(body: Iterable[ast.stmt], names: list[str]) -> Definition | None:
    found = next((d for d in definitions(body) if d.name == names[0]), None)
    return found if found is None or len(names) == 1 else _find(found.body, names[1:])


class _Bare(ast.NodeTransformer):
    """Drops what does not change what code does: docstrings, annotations, typing decorators, `cast`."""

    def _strip(self, node: Definition) -> Definition:
        self.generic_visit(node)
        names = [ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list]
        node.decorator_list = [d for d, n in zip(node.decorator_list, names, strict=True) if n not in TYPING_DECORATORS]
        node.body = node.body or [ast.Pass()]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = node.type_comment = None
        return self._strip(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = node.type_comment = None
        return self._strip(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for statement in node.body:
            # The annotation makes a field of a record: what it says goes, that it is there stays.
            if isinstance(statement, ast.AnnAssign) and _has_fields(node):
                statement.annotation = ast.Constant(...)
        return self._strip(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        if isinstance(node.annotation, ast.Constant) and node.annotation.value is ...:
            return node
        return ast.Assign([node.target], node.value) if node.value else None

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = node.type_comment = None
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        self.generic_visit(node)
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.args[1] if call_name(node) == "cast" and len(node.args) == 2 else node


def _has_fields(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return bool(bases & {"NamedTuple", "TypedDict"}) or any("dataclass" in ast.unparse(d) for d in node.decorator_list)


def bare(node: Definition) -> str:
    """The code of a definition as the comparison sees it: no docstring, comment, annotation or layout."""
    return ast.unparse(ast.fix_missing_locations(_Bare().visit(copy.deepcopy(node))))


def same_faults(ours: Definition, theirs: Definition, tag: str) -> list[str]:
    """Whether two definitions are the same code; if not, the difference line by line."""
    left, right = bare(theirs).splitlines(), bare(ours).splitlines()
    if left == right:
        return []
    diff = "\n".join(list(difflib.unified_diff(left, right, "library", "notebook", lineterm=""))[:40])
    return [f"{ours.name} differs from {tag.partition(':')[2]}; make them the same, or tag it lib-equiv:\n{diff}"]


def aliases(trees: Iterable[ast.AST]) -> dict[str, str]:
    """What imported names stand for: {"nn": "torch.nn", "LibraryLSTM": "plm.lstm.LSTM"}."""
    found = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        for name in node.names if isinstance(node, ast.Import | ast.ImportFrom) else []:
            if isinstance(node, ast.ImportFrom):
                found[name.asname or name.name] = f"{node.module}.{name.name}"
            else:
                found[name.asname or name.name.split(".")[0]] = name.name if name.asname else name.name.split(".")[0]
    return found


def compared(name: str, dotted: str, later: list[ast.Module], imported: dict[str, str]) -> bool:
    """Whether one of the `later` cells calls `assert_close` and speaks of both, our `name` and the library's `dotted`.

    A variable made from either counts as it: `theirs = plm.lstm.LSTM(...)` in one cell, the comparison in the next.
    """
    ours, theirs = {name}, {alias for alias, full in imported.items() if full == dotted and alias != name}

    def speaks(tree: ast.AST, names: set[str], path: str = "") -> bool:
        return any(
            (isinstance(node, ast.Name) and node.id in names)
            or (isinstance(node, ast.Attribute) and path != "" and _full_name(node, imported) == path)
            for node in ast.walk(tree)
        )

    for tree in later:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                targets = {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
                ours |= targets if speaks(node.value, ours) else set()
                theirs |= targets if speaks(node.value, theirs, dotted) else set()
        checks = [node for node in ast.walk(tree) if call_name(node).startswith("assert_")]
        if any(speaks(check, ours) and speaks(check, theirs, dotted) for check in checks):
            return True
    return False


def _full_name(node: ast.Attribute, imported: dict[str, str]) -> str:
    head, _, rest = ast.unparse(node).partition(".")
    return f"{imported.get(head, head)}.{rest}"


def parity_faults(nb: NotebookNode, name: str, lookup: Lookup = library_definition) -> list[str]:
    """All faults of the tags about definitions, each as "name: cell N: what is wrong; what to do"."""
    cells = list(code_cells(nb))
    trees = [syntax(cell.source) for _, cell in cells]
    faults = []
    for i, (n, cell) in enumerate(cells):
        for fault in cell_faults(cell, trees[i + 1 :], aliases(trees), lookup):
            faults.append(f"{name}: cell {n}: {fault}")
    return faults


def cell_faults(
    cell: NotebookNode, later: list[ast.Module], imported: dict[str, str], lookup: Lookup = library_definition
) -> list[str]:
    """The faults of one cell's definitions and tags; `later` are the trees of the code cells after it."""
    defined = {d.name: d for d in definitions(syntax(cell.source).body)}
    library = [tag for tag in tags(cell) if tag.startswith(("lib-same:", "lib-equiv:"))]
    lesson = {"lesson-only", "solution"} & set(tags(cell))
    named = [tag.rpartition(".")[2] for tag in library]
    faults = [f"{d} has {named.count(d)} lib- tags; keep one" for d in defined if named.count(d) > 1]
    untagged = [d for d in defined if d not in named]
    if untagged and not lesson:
        faults += [f"{d} has no tag; say lib-same:…, lib-equiv:… or lesson-only" for d in untagged]
    if "lesson-only" in lesson and not untagged:
        faults.append("lesson-only, but nothing here is defined for the lesson only; drop the tag")
    for tag, short in zip(library, named, strict=True):
        dotted = tag.partition(":")[2]
        if short not in defined:
            faults.append(f"{tag}, but the cell defines no {short}; drop the tag or name what is defined")
        elif (theirs := lookup(dotted)) is None:
            faults.append(f"{tag}, but there is no class or function {dotted}; correct the name")
        elif tag.startswith("lib-same:"):
            faults += same_faults(defined[short], theirs, tag)
        elif not compared(short, dotted, later, imported):
            faults.append(f"{tag}, but no later cell calls assert_close on {short} and {dotted}; compare the two")
    return faults


def main() -> int:
    """Print the faults of all chapters; return how the process should exit."""
    faults = [fault for path in chapters() for fault in parity_faults(read(path), path.name)]
    print("\n".join([f"{len(chapters())} notebooks, {len(faults)} faults", *faults]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
