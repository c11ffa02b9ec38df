"""plm.run_folder: a run's tokenizer stays with it, and a folder that holds something else is left as it is."""

import threading

import pytest
import yaml

from plm import run_folder
from plm.cli_options import CommandError
from plm.cli_pretrain import groups
from plm.run_files import only_one_run
from plm.run_folder import tokenizer_of, write_config


def settings(kind, **change):
    """Every setting of `plm pretrain`."""
    values = {name: default for group in groups(kind).values() for name, (_, default, _) in group.items()}
    return values | {"text": "a.txt", "out": "runs/a"} | change


def ask(folder, kind="gpt", learnt="one", read=lambda path: path.read_text(), **change):
    return tokenizer_of(folder, kind, settings(kind, **change), lambda: learnt, read, lambda line: None)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}


def test_it_is_learnt_once_and_anew_for_other_settings_as_long_as_there_is_no_state(tmp_path):
    assert ask(tmp_path) == "one"
    assert ask(tmp_path, learnt="two") == "one"
    assert ask(tmp_path, learnt="two", lr=0.5) == "one"
    assert ask(tmp_path, learnt="two", vocab_size=300) == "two"
    assert ask(tmp_path, "bert", learnt="three") == "three"
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["mask_rate"] == 0.15
    (tmp_path / "last.safetensors").write_bytes(b"a state")
    before = content(tmp_path)
    for kind, change, words in (
        ("bert", {"vocab_size": 300}, "was begun with vocab_size 8000, not 300"),
        ("bert", {"lowercase": False}, "was begun with lowercase True, not False"),
        ("gpt", {}, "holds the run of another model, bert"),
        ("elmo", {}, "holds the run of another model, bert"),
    ):
        with pytest.raises(CommandError, match=words):
            ask(tmp_path, kind, learnt="four", **change)
    assert ask(tmp_path, "bert", learnt="four", text="moved.txt") == "three"  # the state knows whether it is the same
    assert content(tmp_path) == before


@pytest.mark.parametrize("kind", ["gpt", "bert", "elmo"])
def test_a_config_without_its_first_line_is_still_that_of_its_model(tmp_path, kind):
    write_config(tmp_path, kind, settings(kind))
    path = tmp_path / "config.yaml"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    (tmp_path / "tokenizer.json").write_text("one")
    assert ask(tmp_path, kind, learnt="two") == "one"
    assert ask(tmp_path, "bert" if kind == "gpt" else "gpt", learnt="two") == "two"


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "null", "5", "\0", "# notes of mine\nsteps: 2\nd_model: 64\n", b"\xff"]
)
def test_a_config_of_somebody_else_is_not_written_over(tmp_path, text):
    (tmp_path / "config.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    before = content(tmp_path)
    with pytest.raises(CommandError, match=r"config.yaml was not written by a run: move it elsewhere"):
        ask(tmp_path)
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "eval.csv"])
def test_a_model_of_somebody_else_is_not_written_over(tmp_path, name):
    """The folder of a model of the hub, say."""
    (tmp_path / name).write_text("precious")
    with pytest.raises(CommandError, match=f"holds a {name} that is of no run"):
        ask(tmp_path)
    assert content(tmp_path) == {name: b"precious"}


def test_a_damaged_tokenizer_is_named_with_the_way_out(tmp_path):
    ask(tmp_path)

    def read(path):
        raise Exception("expected `,`")  # as Rust does

    with pytest.raises(CommandError, match=r"tokenizer.json is not the tokenizer of a gpt \(expected `,`\): delete it"):
        ask(tmp_path, read=read)


def test_only_the_first_process_of_a_machine_touches_the_folder(tmp_path, monkeypatch):
    """The others wait until the folder holds the tokenizer of their settings."""
    ask(tmp_path, learnt="old", vocab_size=300)
    monkeypatch.setenv("LOCAL_RANK", "1")
    found, waits, sleep = [], threading.Event(), run_folder.time.sleep
    monkeypatch.setattr(run_folder.time, "sleep", lambda seconds: waits.set() or sleep(seconds))
    waiting = threading.Thread(target=lambda: found.append(ask(tmp_path, learnt="of the second")), daemon=True)
    waiting.start()
    assert waits.wait(600)  # it has read which process it is, and looked into the folder once
    assert found == []
    assert (tmp_path / "tokenizer.json").read_text() == "old"
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert ask(tmp_path, learnt="of the first") == "of the first"
    waiting.join(600)
    assert found == ["of the first"]


def test_a_run_that_is_held_keeps_its_folder(tmp_path):
    with (
        only_one_run(tmp_path, True),
        pytest.raises(ValueError, match="another run is writing"),
        only_one_run(tmp_path, True),
    ):
        pass
