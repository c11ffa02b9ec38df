"""Sphinx extension: three repairs of the pages that no setting offers.

The scripts of sphinx-thebe, which Jupyter Book adds twice to every page even when thebe is off, are dropped. The button
"edit this page" of a chapter leads to its source in `chapters/src/`, not to the notebook that is made from it. Every code
cell gets a label, so that another page can point at it: {ref}`text <02_language_models-cell-017>`.
"""

import re
from typing import Any

CHAPTER = re.compile(r"(/edit/[^/]+/chapters/)(\d\d\w*)\.ipynb\b")


def _is_thebe(asset: Any) -> bool:
    attributes = getattr(asset, "attributes", {})
    return "thebe" in f"{getattr(asset, 'filename', asset)} {attributes.get('body') or ''}".lower()


def edit_the_source(buttons: list[dict[str, Any]]) -> None:
    """Change the address of every edit button in these groups of header buttons."""
    for button in buttons:
        edit_the_source(button.get("buttons", []))
        if "url" in button:
            button["url"] = CHAPTER.sub(r"\1src/\2.md", button["url"])


def repair(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Mend one page before it is written."""
    for kind in ("script_files", "css_files"):
        context[kind] = [asset for asset in context.get(kind, []) if not _is_thebe(asset)]
    edit_the_source(context.get("header_buttons", []))


def label_cells(app: Any, doctree: Any) -> None:
    """Give the code cells of one page an anchor and a label: the page's name and the cell's id, which counts from cell-000."""
    docname = app.env.docname
    labels = app.env.get_domain("std").anonlabels
    for node in doctree.findall(lambda node: getattr(node, "attributes", {}).get("nb_element") == "cell_code"):
        anchor = f"cell-{node['cell_index']:03d}"
        node["ids"].append(anchor)
        labels[f"{docname.rpartition('/')[2]}-{anchor}"] = docname, anchor


def setup(app: Any) -> dict[str, bool]:
    """Register after every extension that adds scripts or buttons."""
    app.connect("html-page-context", repair, priority=900)
    app.connect("doctree-read", label_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
