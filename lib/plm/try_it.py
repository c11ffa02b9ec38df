"""A panel to try a model with texts of one's own: widgets where a kernel runs, a table of prepared answers on a page."""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Answer = Callable[..., Mapping[str, str]]


class TryIt:
    """tasks: {name: (labels of its fields, answer)}; answer(*texts) returns {what: said} in plain text.

    examples: (task, texts) whose answers are computed at once and shown where no kernel is.
    """

    def __init__(
        self,
        tasks: Mapping[str, tuple[Sequence[str], Answer]],
        examples: Sequence[tuple[str, Sequence[str]]],
        label: str,
    ):
        for task, texts in examples:
            if task not in tasks or len(texts) != len(tasks[task][0]):
                raise ValueError(f"{(task, tuple(texts))} fits none of the tasks {', '.join(tasks)}")
        if not examples:
            raise ValueError("a page without a kernel needs at least one example")
        self.tasks, self.examples, self.label = dict(tasks), list(examples), label
        self.prepared = [self.ask(task, texts) for task, texts in examples]

    def ask(self, task: str, texts: Sequence[str]) -> dict[str, str]:
        """The answer; what goes wrong is said instead of raised, as nobody reads a traceback in a panel."""
        if not all(text.strip() for text in texts):
            return {"": "Type something in each field."}
        try:
            return dict(self.tasks[task][1](*texts))
        except (ValueError, TypeError, IndexError) as error:
            return {"": f"{type(error).__name__}: {error}"}

    def to_html(self) -> str:
        """The prepared examples as one table; every text is escaped."""
        rows = "".join(
            f"<tr><td>{html.escape(task)}</td><td>{'<br>'.join(map(html.escape, texts))}</td><td>{_said(answer)}</td></tr>"
            for (task, texts), answer in zip(self.examples, self.prepared)
        )
        head = "<tr><th>task</th><th>text</th><th>answer</th></tr>"
        return f'<table class="plm-try-it" aria-label="{html.escape(self.label, quote=True)}">{head}{rows}</table>'

    def live(self) -> Any:
        """The same as widgets."""
        import ipywidgets as w

        choice, run = w.Dropdown(options=list(self.tasks), description="task"), w.Button(description="Ask")
        fields, said = w.VBox(), w.HTML()

        def lay_out(task: str) -> None:
            first = next((texts for name, texts in self.examples if name == task), [""] * len(self.tasks[task][0]))
            wide = w.Layout(width="95%")
            pairs = zip(self.tasks[task][0], first)
            fields.children = [w.Text(value=text, description=name, layout=wide) for name, text in pairs]
            said.value = ""

        def answer(_: Any) -> None:
            said.value = _said(self.ask(choice.value, [field.value for field in fields.children]))

        choice.observe(lambda change: lay_out(change["new"]), names="value")
        run.on_click(answer)
        lay_out(choice.value)
        return w.VBox([choice, fields, run, said])

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """HTML for pages, and the widgets where a kernel runs; a front end shows the richest it knows."""
        bundle: dict[str, Any] = {"text/html": self.to_html(), "text/plain": f"<TryIt: {self.label}>"}
        try:
            from IPython import get_ipython
        except ImportError:
            return bundle
        if getattr(get_ipython(), "kernel", None) is not None:
            view = self.live()._repr_mimebundle_()
            found = view[0] if isinstance(view, tuple) else view
            key = "application/vnd.jupyter.widget-view+json"
            if found and key in found:
                bundle[key] = found[key]
        return bundle


def _said(answer: Mapping[str, str]) -> str:
    lines = (f"{name}: {text}" if name else text for name, text in answer.items())
    return "<br>".join(html.escape(line) for line in lines)
