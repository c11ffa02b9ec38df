"""The part of the notebook guard about pictures: who cannot see them, or has no kernel, misses nothing."""

import re
from html.parser import HTMLParser
from typing import Any

from nbformat import NotebookNode

from book.cells import code_cells, markdown_cells

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
EMPTY_ALT = re.compile(r"\s*(<?Figure size\b.*|.*\.(png|svg|jpe?g|gif|webp))?\s*", re.DOTALL)
MARKDOWN_IMAGE = re.compile(r"!\[([^\]]*)\][(\[]")
IMAGE_DIRECTIVE = re.compile(r"^[ \t]*(?:`{3,}|:{3,})\{(?:image|figure)\}.*\n((?:[ \t]*:\S+:.*\n)*)", re.MULTILINE)


class _Images(HTMLParser):
    """Collects the images of a piece of HTML that say nothing to a reader who cannot see them."""

    def __init__(self) -> None:
        super().__init__()
        self.bare: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        labelled = any(given.get(key) for key in ("aria-label", "aria-labelledby", "aria-hidden", "title"))
        if (tag == "img" and _empty_alt(given.get("alt", ""))) or (tag == "svg" and not labelled):
            self.bare.append((self.get_starttag_text() or tag)[:80])


def _empty_alt(alt: Any) -> bool:
    return not isinstance(alt, str) or EMPTY_ALT.fullmatch(alt) is not None


def html_image_faults(html: str) -> list[str]:
    """Every <img> has an alternative text and every inline <svg> a label (case E10)."""
    parser = _Images()
    parser.feed(html)
    return [f"image without alternative text: {tag}; add alt (img) or aria-label (svg)" for tag in parser.bare]


def alt_text_faults(nb: NotebookNode) -> list[str]:
    """Every picture, drawn or linked, says in words what it shows (case E10)."""
    faults = []
    for n, cell in markdown_cells(nb):
        options = IMAGE_DIRECTIVE.findall(cell.source + "\n")
        alts = MARKDOWN_IMAGE.findall(cell.source) + [(re.findall(r":alt:(.*)", o) or [""])[0] for o in options]
        faults += [f"cell {n}: image without alternative text; say what it shows" for alt in alts if _empty_alt(alt)]
        faults += [f"cell {n}: {fault}" for fault in html_image_faults(re.sub(r"`[^`]*`", "", cell.source))]
    for n, cell in code_cells(nb):
        pictures = [mime for o in cell.outputs for mime in o.get("data", {}) if mime.startswith("image/")]
        pages = [o.data["text/html"] for o in cell.outputs if "text/html" in o.get("data", {})]
        if pictures and _empty_alt(cell.metadata.get("mystnb", {}).get("image", {}).get("alt")):
            faults.append(f"cell {n}: figure without alternative text; set mystnb.image.alt in the cell's metadata")
        if len(pictures) > 1:
            faults.append(f"cell {n}: {len(pictures)} pictures share one alternative text; draw one per cell")
        faults += [f"cell {n}: {fault}" for page in pages for fault in html_image_faults(page)]
    return faults


def widget_faults(nb: NotebookNode) -> list[str]:
    """Every widget view finds its state in the notebook, and has something static beside it (case E04)."""
    state = nb.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    faults = []
    for n, cell in code_cells(nb):
        data = [o.data for o in cell.outputs if WIDGET_VIEW in o.get("data", {})]
        for bundle in data:
            if bundle[WIDGET_VIEW].get("model_id") not in state:
                faults.append(f"cell {n}: widget without saved state; execute the notebook with store_widget_state")
            if not any(mime == "text/html" or mime.startswith("image/") for mime in bundle):
                faults.append(f"cell {n}: widget with nothing static beside it; give it HTML or a picture")
    return faults
