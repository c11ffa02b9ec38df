"""The panel: a table where no kernel is, widgets that answer where one is, and no markup from what readers type."""

import pytest

from plm.try_it import TryIt


def panel():
    def shout(text):
        if text == "?":
            raise ValueError("no question")
        return {"loud": text.upper()}

    tasks = {"shout": (("text",), shout), "join": (("a", "b"), lambda a, b: {"both": a + b})}
    return TryIt(tasks, [("shout", ("<b>hi</b>",)), ("join", ("x", "y"))], 'a "panel"')


def test_the_table_holds_the_prepared_answers_and_escapes_them():
    page = panel().to_html()
    assert "&lt;B&gt;HI&lt;/B&gt;" in page
    assert "<b>" not in page
    assert "both: xy" in page
    assert "a &quot;panel&quot;" in page


def test_what_goes_wrong_is_said():
    assert panel().ask("shout", ["?"]) == {"": "ValueError: no question"}
    assert "Type something" in panel().ask("join", ["x", " "])[""]
    with pytest.raises(ValueError, match="fits none of the tasks"):
        TryIt({"join": (("a", "b"), max)}, [("join", ("x",))], "p")
    with pytest.raises(ValueError, match="at least one example"):
        TryIt({"join": (("a", "b"), max)}, [], "p")


def test_the_widgets_answer():
    choice, fields, run, said = panel().live().children
    assert [field.value for field in fields.children] == ["<b>hi</b>"]
    run.click()
    assert "HI" in said.value
    choice.value = "join"
    assert [field.value for field in fields.children] == ["x", "y"]
    assert said.value == ""
    fields.children[1].value = "<z>"
    run.click()
    assert "both: x&lt;z&gt;" in said.value


def test_without_a_kernel_there_is_only_the_page():
    assert set(panel()._repr_mimebundle_()) == {"text/html", "text/plain"}
