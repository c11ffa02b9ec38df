"""One look for every figure: colours that keep their meaning, sizes that read on a phone, PNG only."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from numpy.typing import ArrayLike

from plm.evaluate import Rung

# Paul Tol's "muted" scheme for models and "vibrant" for ways of training: distinct for colour-blind readers, and dark
# enough on white. A model keeps its colour through the whole book. https://sronpersonalpages.nl/~pault/
COLOURS = {
    "uniform": "#BBBBBB",
    "n-gram": "#777777",
    "Kneser-Ney": "#333333",
    "NNLM": "#CC6677",
    "word2vec": "#DDAA33",
    "GloVe": "#999933",
    "RNN": "#88CCEE",
    "LSTM": "#44AA99",
    "GRU": "#225555",
    "ELMo": "#117733",
    "attention": "#AA4499",
    "Transformer": "#882255",
    "GPT": "#4477AA",
    "BERT": "#332288",
    "XLNet": "#661100",
    # ways of training, from chapter 1 to the end
    "scratch": "#777777",
    "random": "#777777",
    "frozen": "#0077BB",
    "fine-tuned": "#EE7733",
    "control": "#999999",
}
MARKERS = {
    "scratch": "s",
    "random": "s",
    "frozen": "o",
    "fine-tuned": "^",
    "control": "x",
    "NNLM": "o",
    "n-gram": "s",
    "Kneser-Ney": "D",
}
OTHERS = ("#0077BB", "#EE7733", "#009988", "#CC3311", "#33BBEE", "#EE3377", "#777777", "#332288")
DIVERGING, SEQUENTIAL = "RdBu_r", "cividis"
WIDTH = 7.2  # inches; every figure of the book is this wide, so text has one size everywhere


def use_style() -> None:
    """Set the house style and PNG output at a fixed size. Called once at the top of each chapter."""
    plt.rcParams.update(
        {
            "figure.figsize": (WIDTH, 3.8),
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "figure.constrained_layout.use": True,
            # An opaque ground keeps dark text legible when the page around the figure is dark.
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "font.size": 12.5,  # 8 pixels high on a phone
            "font.sans-serif": [
                "DejaVu Sans",
                "Noto Sans CJK SC",
                "Noto Sans CJK JP",
                "PingFang SC",
                "Microsoft YaHei",
            ],
            "axes.titlesize": 13,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#E6E6E6",
            "axes.axisbelow": True,
            "axes.prop_cycle": plt.cycler(color=OTHERS),
            "lines.linewidth": 2,
            "legend.frameon": False,
            "image.cmap": SEQUENTIAL,
        }
    )
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    if get_ipython() is not None:
        # bbox "tight" would make the size of a picture depend on its text.
        set_matplotlib_formats("png", bbox_inches=None)


def _look(name: str, position: int) -> dict[str, Any]:
    return {"color": COLOURS.get(name, OTHERS[position % len(OTHERS)]), "marker": MARKERS.get(name, "o")}


def curves(
    x: ArrayLike,
    runs: Mapping[str, ArrayLike],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    log_x: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """One line per entry of `runs`; an entry of shape (seeds, len(x)) is drawn as its mean in a band of ±1 standard deviation.

    Names found in COLOURS get the colour that they have in the whole book.
    """
    ax = ax or plt.subplots()[1]
    x = np.asarray(x)
    for i, (name, run) in enumerate(runs.items()):
        values = np.atleast_2d(np.asarray(run, dtype=float))
        if values.shape[1] != len(x):
            raise ValueError(f"curve {name!r} has {values.shape[1]} points, but there are {len(x)} x values")
        mean, look = values.mean(0), _look(name, i)
        ax.plot(x, mean, label=name, markersize=5, **look)
        if len(values) > 1:
            std = values.std(0, ddof=1)
            ax.fill_between(x, mean - std, mean + std, color=look["color"], alpha=0.18, linewidth=0)
    if log_x:
        ax.set_xscale("log")
        ax.set_xticks(x, [f"{value:,g}" for value in x])
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.minorticks_off()
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if len(runs) > 1:
        ax.legend()
    return ax


def bars(
    values: Mapping[str, float],
    *,
    title: str,
    xlabel: str,
    errors: Mapping[str, float] | None = None,
    fmt: str = "{:.3g}",
    ax: Axes | None = None,
) -> Axes:
    """Horizontal bars, one per entry, top to bottom, with the number at the end of each."""
    ax = ax or plt.subplots(figsize=(WIDTH, 0.9 + 0.42 * len(values)))[1]
    names = list(values)
    colours = [COLOURS.get(name, OTHERS[0]) for name in names]
    error = [(errors or {}).get(name, 0.0) for name in names]
    drawn = ax.barh(names, list(values.values()), xerr=error if errors else None, color=colours, height=0.62)
    ax.bar_label(drawn, labels=[fmt.format(v) for v in values.values()], padding=4)
    ax.margins(x=0.12)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set(title=title, xlabel=xlabel)
    return ax


def ladder(rungs: Sequence[Rung], n: int, *, title: str, ax: Axes | None = None) -> Axes:
    """Test accuracy with `n` labels, one row per rung: mean, standard deviation over seeds, colour by way of training."""
    if not rungs:
        raise ValueError("there is no rung to draw")
    for rung in rungs:
        if not len(rung.climb.accuracy.get(n, ())):
            raise ValueError(f"{rung.name!r} was not measured with {n} labels, but with {sorted(rung.climb.accuracy)}")
    ax = ax or plt.subplots(figsize=(WIDTH, 1.2 + 0.36 * len(rungs)))[1]
    for row, rung in enumerate(rungs):
        scores = np.asarray(rung.climb.accuracy[n])
        way = {"bag": "control"}.get(rung.way, rung.way)
        spread = scores.std(ddof=1) if len(scores) > 1 else 0.0
        ax.errorbar(
            scores.mean(),
            row,
            xerr=spread,
            color=COLOURS[way],
            marker=MARKERS[way],
            label=rung.way,
            capsize=3,
            markersize=8,
            linestyle="none",
        )
    ax.set_yticks(range(len(rungs)), [rung.name for rung in rungs])
    ax.invert_yaxis()
    ax.set(title=title, xlabel=f"test accuracy with {n:,} labels")
    handles, names = ax.get_legend_handles_labels()
    by_way = dict(zip(names, handles))  # below the axes: inside, its markers could be taken for results
    below = (0.4, -0.5 / ax.get_window_extent().height * ax.figure.dpi)  # half an inch, in heights of the axes
    ax.legend(by_way.values(), by_way.keys(), loc="upper center", bbox_to_anchor=below, ncols=len(by_way))
    return ax


def heatmap(
    values: ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    fmt: str | None = "{:.2f}",
    diverging: bool = False,
    limits: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A matrix as colours, the number written in each cell (`fmt=None` leaves it out); `diverging` centres white on 0.

    limits: the values at the two ends of the colour scale, so that several matrices can share one; else the data's own.
    """
    data = np.asarray(values, dtype=float)
    if data.shape != (len(rows), len(columns)):
        raise ValueError(f"the matrix is {data.shape}, but there are {len(rows)} row and {len(columns)} column names")
    ax = ax or plt.subplots(figsize=(WIDTH, 1.3 + 0.45 * len(rows)))[1]
    bound = np.nanmax(np.abs(data)) or 1.0
    low, high = limits or ((-bound, bound) if diverging else (None, None))
    image = ax.imshow(data, aspect="auto", vmin=low, vmax=high, cmap=DIVERGING if diverging else SEQUENTIAL)
    if fmt is not None:
        for (i, j), value in np.ndenumerate(data):
            r, g, b, _ = image.cmap(image.norm(value))
            dark = 0.299 * r + 0.587 * g + 0.114 * b < 0.5
            ax.text(j, i, fmt.format(value), ha="center", va="center", color="white" if dark else "black", fontsize=11)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.set_title(title)
    return ax


def colour_strip(vectors: Mapping[str, ArrayLike], *, title: str, limit: float | None = None) -> Figure:
    """Each vector as a strip of coloured cells, one strip per entry: red positive, white zero, blue negative."""
    data = [np.asarray(v, dtype=float) for v in vectors.values()]
    if any(v.ndim != 1 for v in data):
        raise ValueError(f"colour_strip takes vectors, got shapes {[v.shape for v in data]}")
    bound = limit or max(float(np.abs(v).max()) for v in data) or 1.0
    fig, axes = plt.subplots(len(data), 1, figsize=(WIDTH, 0.9 + 0.55 * len(data)), squeeze=False)
    for ax, name, vector in zip(axes[:, 0], vectors, data):
        image = ax.imshow(vector[None], aspect="auto", cmap=DIVERGING, vmin=-bound, vmax=bound)
        ax.set_yticks([0], [name])
        ax.set_xticks([])
        ax.grid(visible=False)
        ax.tick_params(length=0)
    fig.colorbar(image, ax=axes[:, 0].tolist(), aspect=max(4, 5 * len(data)), shrink=0.9)
    fig.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return fig


def embedding_map(points: ArrayLike, labels: Sequence[str], *, title: str, groups: Sequence[str] | None = None) -> Axes:
    """Points in the plane with their labels; `groups` names a colour class for each point."""
    data = np.asarray(points, dtype=float)
    if data.shape != (len(labels), 2):
        raise ValueError(f"need one point in the plane per label: {data.shape} points, {len(labels)} labels")
    ax = plt.subplots(figsize=(WIDTH, 5.6))[1]
    kinds = list(dict.fromkeys(groups or ["all"]))
    for i, kind in enumerate(kinds):
        rows = [k for k in range(len(labels)) if not groups or groups[k] == kind]
        ax.scatter(data[rows, 0], data[rows, 1], s=18, color=OTHERS[i % len(OTHERS)], label=kind)
        for k in rows:
            ax.annotate(labels[k], data[k], xytext=(3, 3), textcoords="offset points", fontsize=9)
    if groups:
        ax.legend()
    ax.set(title=title, xticks=[], yticks=[])
    ax.margins(0.1)
    return ax


def image_grid(
    images: ArrayLike, *, title: str, columns: int = 8, captions: Sequence[str] | None = None, diverging: bool = False
) -> Figure:
    """Grey images (N, H, W) in rows of `columns`, each on the same grey scale; `diverging` shows signs in red and blue."""
    data = np.asarray(images, dtype=float)
    if data.ndim != 3:
        raise ValueError(f"image_grid takes images of shape (N, H, W), got {data.shape}")
    rows = -(-len(data) // columns)
    size = WIDTH / columns
    fig, axes = plt.subplots(
        rows, columns, figsize=(WIDTH, rows * size * (1.25 if captions else 1) + 0.35), squeeze=False
    )
    bound = np.abs(data).max() or 1.0
    look: dict[str, Any] = (
        {"cmap": DIVERGING, "vmin": -bound, "vmax": bound}
        if diverging
        else {"cmap": "gray_r", "vmin": data.min(), "vmax": data.max()}
    )
    for i, ax in enumerate(axes.flat):
        ax.axis("off")
        if i < len(data):
            ax.imshow(data[i], **look)
            if captions:
                ax.set_title(captions[i], fontsize=11, fontweight="normal", loc="center", pad=2)
    fig.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return fig
