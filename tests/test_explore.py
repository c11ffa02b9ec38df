"""plm.explore: figures that work without a kernel, load nothing, and cannot break out of their script."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pytest

from plm.explore import Explorer, attention_example

FRONT_ENDS = sorted(p for p in (files("plm") / "explore_static").iterdir() if p.name.endswith(".js"))
NAMES = [p.name.removesuffix(".js") for p in FRONT_ENDS]


def explorer(state=None, **kwargs):
    return Explorer(NAMES[0], state or {"a": 1}, label="A figure", fallback="<p>text</p>", **kwargs)


def test_there_is_a_front_end_per_chapter():
    assert len(NAMES) >= 3


def test_the_page_is_self_contained_described_and_deterministic():
    page = explorer().to_html()
    assert page == explorer().to_html()
    assert not re.search(r"""(src|href)=|import\s|fetch\(|url\(""", page)
    assert 'aria-label="A figure"' in page
    assert "<p>text</p>" in page


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script> é 中", "<!--<script>", "\u2028 & ' \" \\\\"])
def test_a_state_cannot_end_its_script_or_swallow_the_page(text):
    page = explorer({"text": text}).to_html()
    assert page.count("</script>") == 1
    assert "<!--" not in page
    state = re.findall(r"const state = (\{.*\});\n", page)[-1]
    assert json.loads(state) == {"text": text}


def test_bad_input_is_named_before_the_reader_sees_it():
    with pytest.raises(ValueError, match=re.escape(", ".join(NAMES))):
        Explorer("nothing", {}, label="x", fallback="")
    with pytest.raises(ValueError, match="JSON compliant"):
        explorer({"x": float("nan")})
    with pytest.raises(TypeError, match="not JSON serializable"):
        explorer({"x": {1}})
    with pytest.raises(UnicodeEncodeError):
        explorer({"x": "\ud800"})


def test_a_label_is_escaped():
    assert 'aria-label="&quot;&lt;b&gt;"' in Explorer(NAMES[0], {}, label='"<b>', fallback="").to_html()


def test_without_a_kernel_only_html_is_shown():
    assert set(explorer()._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_with_a_kernel_the_widget_asks_python(monkeypatch):
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=object()))
    figure = explorer({"n": 1}, answer=lambda question: {"n": question + 1})
    bundle = figure._repr_mimebundle_()
    assert "model_id" in bundle["application/vnd.jupyter.widget-view+json"]
    widget = figure.live()
    assert widget.live is True
    widget._handle_custom_msg(4, [])
    assert figure.state == {"n": 5, "error": "", "answered": 1}
    assert explorer().live().live is False


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda q: {"n": 1 / q}, "ZeroDivisionError"),
        (lambda q: {"n": float("nan")}, "ValueError"),
        (lambda q: None, "TypeError"),
    ],
)
def test_an_answer_that_fails_is_told_and_leaves_the_state(monkeypatch, answer, words):
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=object()))
    figure = explorer({"n": 1}, answer=answer)
    for count in (1, 2):
        figure.live()._handle_custom_msg(0, [])
        assert figure.state["n"] == 1
        assert figure.state["answered"] == count
        assert words in figure.state["error"]


@pytest.mark.parametrize("path", FRONT_ENDS, ids=NAMES)
def test_front_ends_are_anywidget_modules_that_load_nothing(path, tmp_path):
    text = path.read_text(encoding="utf-8")
    assert text.count("export default") == 1
    assert not re.search(r"https?://(?!www\.w3\.org)|\beval\(|^import ", text, re.MULTILINE)
    node = shutil.which("node")
    if node is not None:
        module = tmp_path / "front_end.mjs"
        module.write_text(text, encoding="utf-8")
        subprocess.run([node, "--check", module], check=True)


def test_an_attention_example_has_a_matrix_per_layer_and_head():
    weights = np.array([[1.0, 0.0], [0.3333333, 0.6666667]])
    one = attention_example("x", ["a", "b"], ["c", "d"], weights, mask=np.tri(2, dtype=bool), note="n")
    assert one["weights"] == [[[[1.0, None], [0.333, 0.667]]]]
    assert (one["name"], one["rows"], one["columns"], one["note"]) == ("x", ["a", "b"], ["c", "d"], "n")
    many = attention_example("x", "ab", "cd", np.broadcast_to(weights, (3, 4, 2, 2)))
    assert np.shape(many["weights"]) == (3, 4, 2, 2)
    Explorer("attention", {"examples": [one, many]}, label="x", fallback="")
    with pytest.raises(ValueError, match=r"\(1, 1, 2, 2\), but there are 3 rows and 2 columns"):
        attention_example("x", "abc", "cd", weights)
