"""Interactive figures that work on a static page, and answer more when a Python kernel is there.

An explorer is one JavaScript module in `explore_static/` (the form that anywidget expects: `export default { render }`)
and one JSON state. On a static page the module runs alone on the saved state. In a live notebook the same module is shown
through anywidget: what the reader does reaches Python (`explorer.state`), and questions that the saved state cannot answer
are answered by the function `answer`.
"""

import hashlib
import html
import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

# The model that anywidget hands to a front end, played by thirty lines where there is no kernel.
_PAGE = """<style>{css}</style>
<div class="plm-explorer" id="{id}" role="group" aria-label="{label}"><div class="plm-fallback">{fallback}</div></div>
<script>
(() => {{
  {module}
  const state = {state};
  for (const el of document.querySelectorAll("#{id}:not([data-ready])")) {{
    const values = {{ state: structuredClone(state), live: false }}, listeners = {{}};
    const model = {{
      get: (name) => values[name],
      set: (name, value) => {{ values[name] = value; (listeners["change:" + name] || []).forEach((f) => f()); }},
      on: (event, f) => {{ (listeners[event] ||= []).push(f); }},
      off: () => {{}}, save_changes: () => {{}}, send: () => {{}},
    }};
    el.dataset.ready = "yes";
    el.replaceChildren();
    widget.render({{ model, el }});
  }}
}})();
</script>"""


def attention_example(
    name: str, rows: Sequence[str], columns: Sequence[str], weights: Any, mask: Any = None, note: str = ""
) -> dict[str, Any]:
    """One example for the front end `attention`: which token (a row) looks at which (a column), in each layer and head.

    weights: numbers (layers, heads, rows, columns); (heads, rows, columns) and (rows, columns) mean one layer, one head.
    mask: bool (rows, columns), False where looking is forbidden. Weights are rounded to three decimals.
    """
    data = np.asarray(weights, dtype=float)
    while data.ndim < 4:
        data = data[None]
    if data.ndim != 4 or data.shape[2:] != (len(rows), len(columns)):
        raise ValueError(
            f"weights are {data.shape}, but there are {len(rows)} rows and {len(columns)} columns of tokens"
        )
    allowed = np.ones(data.shape[2:], bool) if mask is None else np.broadcast_to(np.asarray(mask), data.shape[2:])
    matrices = [
        [
            [[round(w, 3) if look else None for w, look in zip(*pair)] for pair in zip(head.tolist(), allowed.tolist())]
            for head in layer
        ]
        for layer in data
    ]
    return {"name": name, "rows": list(rows), "columns": list(columns), "weights": matrices, "note": note}


def _as_json(state: dict[str, Any]) -> str:
    text = json.dumps(state, ensure_ascii=False, allow_nan=False)
    text.encode("utf-8")  # a lone surrogate fails here
    return text


class Explorer:
    """An interactive figure.

    front_end: name of a module in `explore_static/`, without `.js`. state: what it draws, anything JSON can hold.
    label: what the figure is, for readers who cannot see it. fallback: HTML shown where no script runs.
    answer(question) -> dict: called with what the front end sends when a kernel is live; the result is merged into the state.
    """

    def __init__(
        self,
        front_end: str,
        state: dict[str, Any],
        *,
        label: str,
        fallback: str,
        answer: Callable[[Any], dict[str, Any]] | None = None,
    ):
        folder = files("plm") / "explore_static"
        path = folder / f"{front_end}.js"
        if not path.is_file():
            known = sorted(p.name.removesuffix(".js") for p in folder.iterdir() if p.name.endswith(".js"))
            raise ValueError(f"there is no front end {front_end!r}; there are {', '.join(known)}")
        self._module = (folder / "shared.mjs").read_text(encoding="utf-8") + path.read_text(encoding="utf-8")
        if self._module.count("export default") != 1:
            raise ValueError(f"{front_end}.js must hold `export default {{ render }}` exactly once")
        self._css = (folder / "explorer.css").read_text(encoding="utf-8")
        _as_json(state)  # fail here, not in the reader's browser
        self._state = state
        self._live: Any = None
        self.label, self.fallback, self.answer = label, fallback, answer

    @property
    def state(self) -> dict[str, Any]:
        """The state as the reader left it (in a live notebook), or as it was given."""
        return self._state if self._live is None else self._live.state

    def to_html(self) -> str:
        """A self-contained piece of HTML: nothing is loaded from elsewhere."""
        # No "<" inside a script: "</script" would end it early, and "<!--<script" would swallow the page after it.
        state = _as_json(self._state).replace("<", "\\u003c")
        name = "plm-" + hashlib.sha256((self._module + state).encode("utf-8")).hexdigest()[:10]
        module = self._module.replace("export default", "const widget =")
        label = html.escape(self.label, quote=True)
        return _PAGE.format(css=self._css, id=name, label=label, fallback=self.fallback, module=module, state=state)

    def live(self) -> Any:
        """The same figure as a widget connected to this kernel."""
        import anywidget
        import traitlets

        if self._live is None:
            fields = {
                "_esm": self._module,
                "_css": self._css,
                "state": traitlets.Dict().tag(sync=True),
                "live": traitlets.Bool(self.answer is not None).tag(sync=True),
            }
            self._live = type("LiveExplorer", (anywidget.AnyWidget,), fields)(state=self._state)
            self._live.on_msg(self._on_question)
        return self._live

    def _on_question(self, widget: Any, question: Any, buffers: Any) -> None:
        """Merge the answer into the state; one that fails is told to the reader, who can ask again."""
        try:
            new = {**(self.answer(question) if self.answer else {}), "error": ""}
            _as_json(new)
        except Exception as error:
            new = {"error": f"{type(error).__name__}: {error}"}
        widget.state = {**widget.state, **new, "answered": widget.state.get("answered", 0) + 1}

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """HTML for pages, and beside it the live widget where a kernel runs; a front end shows the richest it knows."""
        bundle: dict[str, Any] = {"text/html": self.to_html(), "text/plain": f"<Explorer: {self.label}>"}
        try:
            from IPython import get_ipython
        except ImportError:
            return bundle
        if getattr(get_ipython(), "kernel", None) is not None:
            view = self.live()._repr_mimebundle_()
            live = view[0] if isinstance(view, tuple) else view
            key = "application/vnd.jupyter.widget-view+json"
            if live and key in live:
                bundle[key] = live[key]
        return bundle
