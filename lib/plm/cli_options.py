"""Command-line options made from dataclasses: a field is a flag, its comment the help, a YAML file sets what no flag does.

So a setting is written down once, where it is used, and `--help` says what the code says.
"""

import argparse
import difflib
import inspect
import re
import types
import typing
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn

import yaml

MAY_BE_NOTHING = {"clip"}  # `clip: null` is no clipping; any other setting with a default needs a value
NUMBERS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


class CommandError(Exception):
    """Something the user can put right; shown in one line."""


class Parser(argparse.ArgumentParser):
    """One line for a wrong flag, and the way to the help."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def comments(kind: type) -> dict[str, str]:
    """The comment behind each field, inherited ones too; a field without one has no help."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        for line in inspect.getsource(base).splitlines():
            match = re.match(r"    (\w+): [^#]*?# (.+)$", line)
            if match:
                found[match[1]] = match[2]
    return found


def options(kind: type, leave_out: typing.Collection[str] = ()) -> dict[str, tuple[type, Any, str]]:
    """(type, default, help) of each field of a dataclass."""
    hints, said = typing.get_type_hints(kind), comments(kind)
    found = {}
    for field in fields(kind):
        if field.name not in leave_out:
            default = None if field.default is MISSING else field.default
            found[field.name] = (_plain_type(hints[field.name]), default, said.get(field.name, ""))
    return found


def _plain_type(hint: Any) -> type:
    """`int | None` is int."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(t for t in typing.get_args(hint) if t is not type(None))
    return typing.cast(type, hint)


def add_options(parser: argparse.ArgumentParser, title: str, kinds: dict[str, tuple[type, Any, str]]) -> None:
    """A group of flags. Nothing is set that was not given, so that the YAML file comes before the defaults."""
    group = parser.add_argument_group(title)
    for name, (kind, default, said) in kinds.items():
        flag = "--" + name.replace("_", "-")
        text = said.replace("%", "%%") + ("" if default is None else f" [{default}]")
        if kind is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
        else:
            shown = {int: "N", float: "X"}.get(kind, "TEXT")
            group.add_argument(flag, type=kind, default=argparse.SUPPRESS, metavar=shown, help=text)


def make_folder(path: Path) -> None:
    """Make a folder, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise CommandError(f"there can be no folder {path}: it is a file, or lies in one; give another --out") from None


def read_config(path: str | Path, known: dict[str, tuple[type, Any, str]]) -> dict[str, Any]:
    """The settings of a YAML file, checked: every key must be known and every value of its type."""
    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8-sig"), _Once)
    except FileNotFoundError:
        raise CommandError(f"there is no config {path}") from None
    except IsADirectoryError:
        raise CommandError(f"{path} is a folder: --config names a YAML file") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise CommandError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise CommandError(f"{path} holds no settings: it needs lines such as `steps: 1000`")
    for name, value in content.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"; is {near[0]} meant?" if near else "; plm pretrain MODEL --help lists those of a model"
            raise CommandError(f"{path}: there is no setting {name!r}{hint}")
        kind, default, _ = known[name]
        if value is None and default is not None and name not in MAY_BE_NOTHING:
            raise CommandError(f"{path}: {name} has no value")
        content[name] = _typed(value, kind, f"{path}: {name}")
    return content


class _Once(yaml.SafeLoader):
    """A key that stands twice is a mistake: YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise yaml.YAMLError(f"the key {twice[0]} stands there twice")
        return super().construct_mapping(node, deep)


def _typed(value: Any, kind: type, where: str) -> Any:
    if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        return value
    if kind in (int, float) and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)  # YAML reads 1e-3 as text
            if kind is float or number == int(number):
                return kind(number)
        except (ValueError, OverflowError):
            pass
    hint = ": YAML reads no, yes and numbers as such, unless they stand in quotes" if kind is str else ""
    raise CommandError(f"{where} must be {NUMBERS.get(kind, kind.__name__)}, not {value!r}{hint}")
