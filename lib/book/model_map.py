"""Draw the map of models on the landing page: which model inherits what from which.

python -m book.model_map    # writes chapters/images/model_map.svg
"""

from html import escape
from pathlib import Path

from plm.files import write_atomically
from plm.plot import COLOURS

PATH = Path(__file__).resolve().parents[2] / "chapters" / "images" / "model_map.svg"
WIDTH, ROW, BOX_W, BOX_H, TOP = 600, 118, 164, 58, 12
COLUMNS = (8, 218, 428)  # left edges

# name: (column, row, what the second line says, key of its colour)
MODELS = {
    "CNN": (0, 0, "vision, 2012", "control"),
    "n-gram": (1, 0, "counting, 1948", "n-gram"),
    "RNN": (2, 0, "a state, 1990", "RNN"),
    "NNLM": (1, 1, "a matrix Q, 2003", "NNLM"),
    "LSTM": (2, 1, "gates, 1997", "LSTM"),
    "word2vec": (1, 2, "only Q, 2013", "word2vec"),
    "Attention": (2, 2, "look back, 2015", "attention"),
    "ELMo": (1, 3, "two directions, 2018", "ELMo"),
    "Transformer": (2, 3, "no recurrence, 2017", "Transformer"),
    "GPT": (2, 4, "decoder, 2018", "GPT"),
    "BERT": (1, 5, "encoder, 2018", "BERT"),
    "XLNet": (2, 6, "permutations, 2019", "XLNet"),
}
# (from, to, inherited thing, in one or two short lines)
DOWN = (
    ("n-gram", "NNLM", ("predict the", "next word")),
    ("RNN", "LSTM", ("recurrence",)),
    ("NNLM", "word2vec", ("Q is the", "product")),
    ("LSTM", "Attention", ("keep every", "state")),
    ("word2vec", "ELMo", ("a vector", "per context")),
    ("Attention", "Transformer", ("query, key,", "value")),
    ("Transformer", "GPT", ("masked", "blocks")),
)


def _box(name: str) -> tuple[int, int]:
    column, row, _, _ = MODELS[name]
    return COLUMNS[column], TOP + row * ROW


def _model(name: str) -> str:
    x, y = _box(name)
    _, _, note, key = MODELS[name]
    middle = x + BOX_W // 2
    return (
        f'<rect x="{x}" y="{y}" width="{BOX_W}" height="{BOX_H}" rx="8" fill="#fff" stroke="{COLOURS[key]}" stroke-width="4"/>'
        f'<text x="{middle}" y="{y + 25}" class="name">{escape(name)}</text>'
        f'<text x="{middle}" y="{y + 46}" class="note">{escape(note)}</text>'
    )


def _label(x: int, y: int, lines: tuple[str, ...], anchor: str = "start") -> str:
    first = y - 8 * (len(lines) - 1)
    return "".join(
        f'<text x="{x}" y="{first + 17 * i + 5}" class="edge" text-anchor="{anchor}">{escape(t)}</text>'
        for i, t in enumerate(lines)
    )


def _arrow(path: str, key: str = "scratch") -> str:
    return f'<path d="{path}" fill="none" stroke="{COLOURS[key]}" stroke-width="2.5" marker-end="url(#tip)"/>'


def _down(start: str, end: str, label: tuple[str, ...]) -> str:
    (x, y), (_, below) = _box(start), _box(end)
    middle = x + BOX_W // 2
    # Labels of the last column stand on the inner side, where there is room.
    inner = x == COLUMNS[-1]
    at = (middle - 9 if inner else middle + 9, (y + BOX_H + below) // 2)
    return _arrow(f"M{middle} {y + BOX_H}V{below - 4}") + _label(*at, label, "end" if inner else "start")


def draw() -> str:
    """The map as SVG text."""
    left, half = COLUMNS[0] + BOX_W // 2, BOX_H // 2
    (nx, ny), (bx, by), (gx, gy) = _box("NNLM"), _box("BERT"), _box("GPT")
    (ex, ey), (lx, ly), (xx, xy), (wx, wy) = _box("ELMo"), _box("LSTM"), _box("XLNet"), _box("word2vec")
    parts = [
        # From vision: reuse a first layer (NNLM), reuse the whole network (BERT).
        _arrow(f"M{left} {TOP + BOX_H}V{by + half}H{bx - 5}", "fine-tuned"),
        _arrow(f"M{left} {ny + half}H{nx - 5}", "fine-tuned"),
        _label(left + 9, ny + half - 24, ("reuse the", "first layer")),
        _label(left + 9, by + half - 24, ("reuse the", "whole network")),
        # The LSTM runs down between the columns into ELMo.
        _arrow(f"M{lx} {ly + half}H{lx - 22}V{ey + half}H{ex + BOX_W + 5}", "LSTM"),
        # Into BERT: from ELMo both sides, from GPT the fine-tuned Transformer; the cloze idea of CBOW runs beside them.
        _arrow(f"M{ex + BOX_W // 2} {ey + BOX_H}V{by - 4}"),
        _label(ex + BOX_W // 2 + 9, ey + BOX_H + 44, ("both", "directions")),
        _arrow(f"M{wx} {wy + half}H{wx - 18}V{by - 30}H{bx + 30}V{by - 4}", "word2vec"),
        _label(wx - 26, ey + BOX_H + 44, ("fill the gap", "(CBOW)"), "end"),
        _arrow(f"M{gx} {gy + half}H{bx + BOX_W - 26}V{by - 4}"),
        _label(bx + BOX_W - 16, by - 34, ("fine-tune", "the whole")),
        _arrow(f"M{gx + BOX_W // 2} {gy + BOX_H}V{xy - 4}"),
        _label(gx + BOX_W // 2 - 9, by + half + 6, ("predict", "in order"), "end"),
        _arrow(f"M{bx + BOX_W // 2} {by + BOX_H}V{xy + half}H{xx - 5}"),
        _label(bx + BOX_W // 2 + 9, xy + half - 34, ("context from", "both sides")),
    ]
    height = TOP + 6 * ROW + BOX_H + 12
    title = "Map of the models in this book: an arrow points from a model to one that inherits an idea from it"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">\n'
        "<style>text{font-family:system-ui,'DejaVu Sans',sans-serif;fill:#444;font-size:15px}"
        ".name,.note{text-anchor:middle}.name{font-size:20px;font-weight:700;fill:#222}.edge{font-style:italic}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="#777"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n'
        + "\n".join([_down(*edge) for edge in DOWN] + parts + [_model(name) for name in MODELS])
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    write_atomically(PATH, draw())
