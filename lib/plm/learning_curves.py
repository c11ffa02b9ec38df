"""Stored scores of many runs, by number of labels and seed, and the picture of them. Used by chapter 12."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from plm.downstream import WAYS
from plm.plot import COLOURS, MARKERS

CONTROL = "vectors only"  # from scratch upon word2vec vectors; some parts have it beside WAYS
_NAME = re.compile(r"(?P<part>[^,]+), (?P<way>[a-z -]+), (?P<n>\d+) labels, seed (?P<seed>\d+)")


def scores(runs: Mapping[str, Any], part: str, way: str, key: str, test: str = "test") -> dict[int, list[float]]:
    """{labels: [score of each seed]} of a part in one of WAYS, or CONTROL, from runs named "part, way, N labels, seed S"."""
    found: dict[int, dict[int, float]] = {}
    for name, run in runs.items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is no name of a run: it should be 'part, way, N labels, seed S'")
        if (match["part"], match["way"]) == (part, way):
            found.setdefault(int(match["n"]), {})[int(match["seed"])] = float(run[test][key])
    if not found:
        raise ValueError(f"there is no run of {part!r}, {way}; there are {', '.join(sorted(_parts(runs)))}")
    return {n: [found[n][seed] for seed in sorted(found[n])] for n in sorted(found)}


def measured(runs: Mapping[str, Any], *parts: str) -> list[str]:
    """Those of the parts that have been measured in each of WAYS."""
    names = [match for name in runs if (match := _NAME.fullmatch(name))]
    known = {(match["part"], match["way"]) for match in names}
    return [part for part in parts if all((part, way) in known for way in WAYS)]


def ways(runs: Mapping[str, Any], part: str) -> list[str]:
    """WAYS, and CONTROL if the part has it."""
    found = {match["way"] for name in runs if (match := _NAME.fullmatch(name)) and match["part"] == part}
    return [*WAYS, *({CONTROL} & found)]


def table(runs: Mapping[str, Any], part: str, key: str, test: str = "test") -> str:
    """One line for each way: mean over seeds, and the standard deviation where there are several."""
    columns = sorted({n for way in WAYS for n in scores(runs, part, way, key, test)})
    lines = [f"{part + ', labels':26}" + "".join(f"{n:>15,}" for n in columns)]
    for way in ways(runs, part):
        of_way = scores(runs, part, way, key, test)
        lines.append(f"  {way:24}" + "".join(f"{_cell(of_way.get(n, [])):>15}" for n in columns))
    return "\n".join(lines)


def draw(ax: Axes, runs: Mapping[str, Any], part: str, key: str, test: str = "test", title: str = "") -> None:
    """A curve for each way: means over seeds, and bars of one standard deviation."""
    for way in ways(runs, part):
        of_way = scores(runs, part, way, key, test)
        mean = [np.mean(values) for values in of_way.values()]
        spread = np.array([np.std(values, ddof=1) if len(values) > 1 else 0.0 for values in of_way.values()])
        colour, marker = COLOURS.get(way, COLOURS["word2vec"]), MARKERS.get(way, "D")
        ax.errorbar(list(of_way), mean, yerr=spread, color=colour, marker=marker, label=way, capsize=3)
    ax.set(xscale="log", title=title or part)
    columns = sorted({n for way in WAYS for n in scores(runs, part, way, key, test)})
    ax.set_xticks(columns, [f"{n:,}" for n in columns])
    ax.minorticks_off()


def gain(
    runs: Mapping[str, Any], part: str, key: str, n: int, test: str = "test", over: str = "scratch"
) -> list[float]:
    """Fine-tuned minus `over` with n labels, seed by seed: both saw the same examples."""
    pairs = zip(scores(runs, part, "fine-tuned", key, test)[n], scores(runs, part, over, key, test)[n])
    return [a - b for a, b in pairs]


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def _parts(runs: Mapping[str, Any]) -> set[str]:
    return {match["part"] for name in runs if (match := _NAME.fullmatch(name))}
