"""Sphinx extension: drop the scripts of sphinx-thebe, which Jupyter Book adds twice to every page even when thebe is off."""

from typing import Any


def _is_thebe(asset: Any) -> bool:
    attributes = getattr(asset, "attributes", {})
    return "thebe" in f"{getattr(asset, 'filename', asset)} {attributes.get('body') or ''}".lower()


def drop(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Filter the scripts and style sheets of one page."""
    for kind in ("script_files", "css_files"):
        context[kind] = [asset for asset in context.get(kind, []) if not _is_thebe(asset)]


def setup(app: Any) -> dict[str, bool]:
    """Register after every extension that adds scripts."""
    app.connect("html-page-context", drop, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
