"""plm.cli: what the book's page promises, from a text to a model that is used; and one clear line for whatever is wrong."""

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from plm import cli_pretrain
from plm.checkpoints import load
from plm.cli import build_parser, main
from plm.cli_options import CommandError, options, read_config
from plm.fast_tokenizers import ByteBPE, fast_words, train_wordpiece, train_words
from plm.finetune import read_labelled
from plm.run_files import only_one_run
from plm.run_log import read_log
from plm.run_settings import Settings
from plm.tokenize import words
from plm.wordpiece_training import count_words, train_pieces

ROOT = Path(__file__).parents[1]
TINY = "--steps 6 --length 24 --vocab-size 300 --batch-size 4 --evaluate-every 3 --warmup 2 --hold-out 0.1 --n-layers 1"
SIZES = {
    "gpt": "--d-model 16 --n-heads 2",
    "bert": "--d-model 16 --n-heads 2",
    "elmo": "--d-emb 8 --d-hidden 16",
}


def a_text(n=120, seed=0):
    """Reviews of a kind: four sentences each, with a blank line between."""
    rng = random.Random(seed)
    nouns, verbs, ends = (
        ("film", "plot", "actor", "score", "end"),
        ("was", "felt", "seemed"),
        ("good", "bad", "long", "café"),
    )

    def sentence():
        noun, other = rng.choice(nouns), rng.choice(nouns)
        return f"The {noun} {rng.choice(verbs)} {rng.choice(ends)} and so did the {other}."

    return "\n\n".join(" ".join(sentence() for _ in range(4)) for _ in range(n))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a text, labelled texts, and a finished run of each model."""
    folder = tmp_path_factory.mktemp("cli")
    patch = pytest.MonkeyPatch()
    patch.setenv("PLM_CACHE", str(folder / "cache"))
    (folder / "text.txt").write_text(a_text(), encoding="utf-8")
    rows = [f"{'good' if i % 2 else 'bad'} film number {i},{'yes' if i % 2 else 'no'}" for i in range(40)]
    (folder / "labels.csv").write_text("text,label\n" + "\n".join(rows))
    for kind, sizes in SIZES.items():
        assert main(shlex.split(f"pretrain {kind} --text {folder}/text.txt --out {folder}/{kind} {TINY} {sizes}")) == 0
    yield folder
    patch.undo()


@pytest.fixture
def say(place, capsys):
    """Run a command and return (exit code, standard output, standard error)."""

    def run(command):
        parts = shlex.split(command) if isinstance(command, str) else command
        code = main([part.replace("PLACE", str(place)) for part in parts])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("kind", SIZES)
def test_a_run_leaves_model_logs_tokenizer_and_settings(place, kind):
    names = {path.name for path in (place / kind).iterdir()}
    wanted = "model.safetensors best.safetensors last.safetensors train.csv eval.csv config.yaml tokenizer.json"
    assert set(wanted.split()) <= names
    found = load(place / kind)
    assert found.kind == kind
    assert [row["step"] for row in read_log(place / kind / "eval.csv")] == [3, 6]
    if kind != "elmo":
        assert found.card["metrics"]["loss"] == pytest.approx(read_log(place / kind / "eval.csv")[-1]["loss"], abs=1e-3)
    # The settings are complete: the same run comes from them alone.
    values = yaml.safe_load((place / kind / "config.yaml").read_text())
    assert values["steps"] == 6
    assert values["lr"] == Settings(1).lr


def test_the_same_command_goes_on_and_more_can_be_asked_for(place, say, tmp_path):
    tail = f"--text PLACE/text.txt --out {tmp_path}/run {TINY} {SIZES['gpt']} --schedule constant"
    assert say(f"pretrain gpt {tail}")[0] == 0
    code, out, _ = say(f"pretrain gpt {tail} --steps 9")
    assert code == 0
    assert f"going on from {tmp_path}/run/last.safetensors at step 6" in out
    assert say(f"pretrain gpt {tail.replace('/run', '/whole')} --steps 9")[0] == 0
    states = [load_file(tmp_path / name / "last.safetensors") for name in ("run", "whole")]
    assert all((tensor == states[1][name]).all() for name, tensor in states[0].items())
    code, out, err = say(f"pretrain gpt {tail} --steps 9 --lr 0.5")
    assert code == 2
    assert "another lr: it was 0.001 and is now 0.5" in err


def test_a_tokenizer_stays_with_its_run_and_is_learnt_anew_as_long_as_there_is_none(place, say, tmp_path):
    (tmp_path / "text.txt").write_text("too short")
    command = f"pretrain gpt --out {tmp_path}/run {TINY} {SIZES['gpt']}"
    assert say(f"{command} --text {tmp_path}/text.txt")[0] == 2
    first = (tmp_path / "run" / "tokenizer.json").read_text()
    assert say(f"{command} --text PLACE/text.txt")[0] == 0
    second = (tmp_path / "run" / "tokenizer.json").read_text()
    assert first != second
    config = (tmp_path / "run" / "config.yaml").read_text()
    code, _, err = say(f"{command} --text PLACE/text.txt --vocab-size 290")
    assert code == 2
    assert "was begun with vocab_size 300, not 290" in err
    assert say(f"{command} --text PLACE/text.txt --lr 0.5")[0] == 2
    assert (tmp_path / "run" / "config.yaml").read_text() == config
    # The same text at another place is the same text.
    (tmp_path / "moved.txt").write_bytes((place / "text.txt").read_bytes())
    assert say(f"{command} --text {tmp_path}/moved.txt")[0] == 0
    assert (tmp_path / "run" / "tokenizer.json").read_text() == second


def test_flags_come_before_the_config_and_the_config_before_the_defaults(place, say, tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text("steps: 5\nlr: 2e-3\nd_model: 16\nn_heads: 2\nn_layers: 1\nlength: 24\nvocab_size: 300\n")
    assert say(f"pretrain gpt --config {config} --text PLACE/text.txt --out {tmp_path}/run --steps 3")[0] == 0
    values = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (values["steps"], values["lr"], values["batch_size"]) == (3, 0.002, 16)


def test_generate(say):
    code, first, _ = say("generate PLACE/gpt --prompt 'The film' --tokens 12 --seed 1")
    assert code == 0
    assert first.startswith("The film")
    assert say("generate PLACE/gpt --prompt 'The film' --tokens 12 --seed 1")[1] == first
    assert say("generate PLACE/gpt --prompt 'The film' --tokens 12 --seed 2")[1] != first
    assert say("generate PLACE/gpt/model.safetensors --tokens 3 --samples 2 --top-k 5 --top-p 0.9")[1].count("---") == 2
    assert say("generate PLACE/gpt --temperature 0 --tokens 5")[0] == 0


def test_fill_mask(say):
    code, out, _ = say("fill-mask PLACE/bert 'The [MASK] was good and so did the [MASK].' --top 2")
    assert code == 0
    assert len(re.findall(r"^ *\d+\.\d%  \S+$", out, re.M)) == 4
    assert out.startswith("gap 1")


@pytest.mark.parametrize("kind", SIZES)
def test_finetune_and_classify(say, tmp_path, kind):
    command = f"finetune PLACE/{kind} --train PLACE/labels.csv --out {tmp_path}/c.safetensors --epochs 12 --lr 0.02"
    code, out, _ = say(command + " --test PLACE/labels.csv")
    assert code == 0
    assert "always the commonest label: 0.500" in out
    assert float(re.search(r"accuracy (\S+);", out)[1]) > 0.8
    code, out, _ = say(f"classify {tmp_path}/c.safetensors 'good film number 3' 'bad film number 8'")
    assert out.splitlines() == ["yes\tgood film number 3", "no\tbad film number 8"]
    code, out, _ = say(f"info {tmp_path}/c.safetensors")
    assert "classifier" in out
    assert "labels     no, yes" in out


def test_a_frozen_model_learns_only_its_last_layer(say, place, tmp_path):
    from plm.finetune import load_classifier

    command = f"finetune PLACE/bert --train PLACE/labels.csv --out {tmp_path}/c.safetensors --epochs 1"
    for freeze in (True, False):
        assert say(command + " --freeze" * freeze)[0] == 0
        tuned, pretrained = load_classifier(tmp_path / "c.safetensors"), load(place / "bert").model
        same = tuned.encoder.pooler.weight.equal(pretrained.bert.pooler.weight)
        layer = [model.encoder.layers[0].feed_forward.widen.weight for model in (tuned.encoder, pretrained.bert)]
        assert same
        assert layer[0].equal(layer[1]) == freeze
        assert tuned.output.weight.abs().sum() > 0


def test_info_of_runs_and_models(say, place):
    code, out, _ = say("info PLACE/gpt")
    assert code == 0
    assert "a run at step 6 of 6" in out
    assert "GPT," in out
    assert "bits_per_character" in out
    assert "d_model 16" in out
    assert say("info PLACE/elmo/model.safetensors")[1].count("biLM (ELMo)") == 1
    assert "at step 6 of 6" in say("info PLACE/bert/last.safetensors")[1]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("pretrian gpt", "invalid choice: 'pretrian'"),
        ("pretrain xlnet", "invalid choice: 'xlnet'"),
        ("pretrain gpt", "needs a text to learn from: --text"),
        ("pretrain gpt --text PLACE/text.txt", "needs a folder for the run: --out"),
        ("pretrain gpt --stepz 5", "does not know --stepz; is --steps meant?"),
        ("generate PLACE/gpt --tempreature 1", "does not know --tempreature; is --temperature meant?"),
        ("pretrain gpt --what 5", "does not know --what (see plm pretrain gpt --help)"),
        ("pretrain gpt --text PLACE/text.txt --out PLACE/text.txt", "is the text: give the run a folder of its own"),
        ("pretrain gpt --text PLACE/text.txt --out PLACE/labels.csv", "is a file: --out names the folder of the run"),
        ("pretrain gpt --text PLACE/text.txt --out PLACE/labels.csv/x", "there can be no folder"),
        ("pretrain gpt --config PLACE", "is a folder: --config names a YAML file"),
        ("finetune PLACE/bert --train PLACE/labels.csv --out PLACE/labels.csv/x", "there can be no folder"),
        ("finetune PLACE/bert --train PLACE/labels.csv --out x --seed -1", "seed must lie in 0"),
        ("finetune PLACE/bert --train PLACE/labels.csv --out x --scratch", "--scratch belongs to --task"),
        ("finetune PLACE/bert --train PLACE/labels.csv --out x --max-length 9", "--max-length belongs to --task"),
        (
            "finetune PLACE/bert --train x --task sst2 --text-column a --out x",
            "the columns of --task sst2 are those of its",
        ),
        ("pretrain gpt --steps many", "argument --steps: invalid int value: 'many'"),
        ("pretrain gpt --text absent.txt --out PLACE/x", "there is no text at absent.txt"),
        ("pretrain gpt --text PLACE/text.txt --out PLACE/x --lr 0", "lr and clip must be above 0"),
        ("pretrain gpt --text PLACE/text.txt --out PLACE/x --d-model 15", "4 heads cannot share d_model = 15"),
        ("pretrain gpt --text PLACE/text.txt --out PLACE/x --length 99999", "one row needs 100000"),
        ("pretrain gpt --config absent.yaml", "there is no config absent.yaml"),
        ("generate PLACE/bert --prompt a", "holds a BERT; this command needs a GPT"),
        ("generate PLACE/absent", "there is no checkpoint"),
        ("generate PLACE/gpt --temperature -1", "temperature"),
        ("generate PLACE/gpt --samples 0", "--samples must be at least 1"),
        ("generate PLACE/gpt --tokens 0", "--tokens must be at least 1"),
        ("fill-mask PLACE/bert 'no gap'", "the text has no [MASK]"),
        ("fill-mask PLACE/gpt '[MASK]'", "holds a GPT; this command needs a BERT"),
        ("fill-mask PLACE/bert '[MASK]' --top 0", "--top must be at least 1"),
        ("fill-mask PLACE/bert ''", "the text has no [MASK]"),
        ("fill-mask PLACE/bert '[mask]'", "the text has no [MASK]"),
        ("generate PLACE/gpt --top-k 0", "top_k keeps at least one token"),
        ("generate PLACE/gpt --top-p 1.5", "top_p is a share"),
        ("generate PLACE/gpt --temperature nan", "temperature is a number"),
        ("finetune PLACE/gpt --train PLACE/labels.csv --out PLACE/gpt", "is a folder: --out names the file"),
        (f"fill-mask PLACE/bert '[MASK] {'long ' * 40}'", "this model reads 24"),
        ("finetune PLACE/gpt --train absent.csv --out x", "there is no file absent.csv"),
        ("finetune PLACE/gpt --train PLACE/text.txt --out x", "is none of .csv"),
        (
            "finetune PLACE/gpt --train PLACE/labels.csv --label-column y --out x",
            "row 1 has no 'y'; its columns are text, label",
        ),
        ("finetune PLACE/gpt --train PLACE/labels.csv --epochs 0 --out x", "epochs and batch_size must be at least 1"),
        (
            "finetune PLACE/gpt --task sst2 --train PLACE/labels.csv --test PLACE/labels.csv --out x",
            "--task needs a BERT, and",
        ),
        ("finetune PLACE/bert --train PLACE --out x", "is a folder: name a file in it"),
        ("classify PLACE/gpt a", "is not a classifier: plm finetune makes one"),
        ("info PLACE/text.txt", "truncated or no safetensors file"),
        ("info PLACE/absent", "there is no checkpoint"),
        ("info PLACE/cache", "there is no model in"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(say, command, words):
    code, _, err = say(command)
    assert code == 2
    assert words in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.txt", b"", "x.txt holds no text"),
        ("x.txt", b"\n \r\n\n", "x.txt holds no text"),
        ("x.jsonl", b'{"text": ""}\n', "x.jsonl holds no text"),
        ("x.txt", a_text(20).encode("latin-1"), "x.txt is not UTF-8"),
        ("x.txt", a_text(20).encode("utf-16"), "x.txt is not UTF-8"),
        ("x.csv", a_text(20).encode("latin-1"), "x.csv is not UTF-8"),
        ("x.txt", b"word", "give more"),
        ("x.txt.gz", b"no archive", "x.txt.gz cannot be read"),
        ("x.jsonl", b'{"text": "a"}\n{"text', "x.jsonl cannot be read"),
        ("x.csv", b"a,b\n1,2\n", "x.csv has no column 'text'; it has a, b"),
        ("x.doc", b"a", "x.doc is none of .txt"),
    ],
)
def test_a_text_that_cannot_be_read_is_named(say, tmp_path, kind, name, content, words):
    (tmp_path / name).write_bytes(content)
    command = f"pretrain {kind} --text {tmp_path}/{name} --out {tmp_path}/run {TINY} {SIZES[kind]}"
    code, _, err = say(command + " --no-vectors" * (kind == "bert"))
    assert code == 2
    assert words in err
    assert err.count("\n") == 1


def test_line_ends_of_windows_and_a_byte_order_mark_change_nothing(place, say, tmp_path):
    plain = (place / "text.txt").read_text(encoding="utf-8")
    states = []
    for text in (plain, "\ufeff" + plain.replace("\n", "\r\n")):
        (tmp_path / "text.txt").write_bytes(text.encode())
        out = f"{tmp_path}/{len(states)}"
        assert say(f"pretrain gpt --text {tmp_path}/text.txt --out {out} {TINY} {SIZES['gpt']}")[0] == 0
        states.append(load_file(Path(out) / "last.safetensors"))
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("stepz: 5", "there is no setting 'stepz'; is steps meant?"),
        ("surprise: 5", "there is no setting 'surprise'; plm pretrain MODEL --help lists those of a model"),
        ("steps: many", "steps must be a whole number, not 'many'"),
        ("steps: 1.5", "steps must be a whole number, not 1.5"),
        ("steps: .inf", "steps must be a whole number, not inf"),
        ("steps:", "steps has no value"),
        ("lr: null", "lr has no value"),
        ("steps: 5\nsteps: 6", "the key steps stands there twice"),
        ("precision: no", "precision must be text, not False: YAML reads no, yes"),
        ("text: [a, b]", "text must be text, not ['a', 'b']"),
        ("5: 3", "there is no setting 5"),
        ("x: !!python/object/apply:os.getcwd []", "is not YAML"),
        ("cpu: 3", "cpu must be true or false, not 3"),
        ("- steps", "holds no settings"),
        ("steps: [", "is not YAML"),
        ("", "holds no settings"),
    ],
)
def test_a_wrong_config_is_said_in_one_line(say, tmp_path, content, words):
    path = tmp_path / "c.yaml"
    path.write_text(content)
    code, _, err = say(f"pretrain gpt --config {path}")
    assert code == 2
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_configs_of_the_book_are_whole(path):
    kind = next(kind for kind in SIZES if path.stem.startswith(kind[:3]))
    kind = "gpt" if path.stem.startswith("gpt") else kind
    known = {name: option for group in cli_pretrain.groups(kind).values() for name, option in group.items()}
    values = {name: default for name, (_, default, _) in known.items()} | read_config(path, known)
    Settings(**{name: values[name] for name in options(Settings)})
    config, left_out = cli_pretrain.CONFIGS[kind]
    config(vocab_size=values["vocab_size"], **{name: values[name] for name in options(config, left_out)})


@pytest.mark.parametrize(
    ("kind", "flags", "words"),
    [
        ("gpt", "--vocab-size 256", "vocab_size must be at least 257 for gpt, not 256"),
        ("bert", "--vocab-size 5 --characters", "vocab_size must be at least 6 for bert"),
        ("elmo", "--vocab-size 3", "vocab_size must be at least 4 for elmo"),
        ("gpt", "--length 0", "length must be at least 1"),
        ("bert", "--length 18", "length must be at least 19 for bert"),
        ("elmo", "--length 1", "length must be at least 2"),
        ("gpt", "--batch-size 0", "batch_size must be at least 1"),
        ("bert", "--shard-tokens 0", "shard_tokens must be at least 1"),
        ("elmo", "--sampled -1", "sampled must be at least 0"),
        ("gpt", "--hold-out 0", "hold_out is a share of the text"),
        ("gpt", "--hold-out nan", "hold_out is a share of the text"),
        ("bert", "--mask-rate 2", "rate is a share between 0 and 1"),
        ("gpt", "--boundary page", "boundary is one of"),
        ("gpt", "--beta2 2", "beta1 and beta2 lie in 0 … 1"),
        ("gpt", "--weight-decay nan", "weight_decay must be a finite number"),
        ("gpt", "--seed 4294967296", "seed must be below 2 ** 32"),
        ("gpt", "--dropout 1", "dropout is a probability below 1"),
        ("bert", "--norm middle", "norm is"),
    ],
)
def test_what_can_be_known_to_be_wrong_is_said_before_the_text_is_read(say, monkeypatch, tmp_path, kind, flags, words):
    from plm.corpus_source import Source

    monkeypatch.setattr(Source, "pieces", lambda self: 1 / 0)
    code, out, err = say(f"pretrain {kind} --text PLACE/text.txt --out {tmp_path}/run {flags}")
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_what_is_held_out_cannot_change_on_the_way(place, say, tmp_path):
    for kind in ("bert", "gpt", "elmo"):
        shutil.copytree(place / kind, tmp_path / kind)
        command = f"pretrain {kind} --text PLACE/text.txt --out {tmp_path}/{kind} {TINY} {SIZES[kind]}"
        before = {path.name: path.read_bytes() for path in (tmp_path / kind).glob("[!.]*")}
        code, _, err = say(f"{command} --hold-out 0.4")
        assert code == 2
        assert "is of a run with another task: " in err
        assert {path.name: path.read_bytes() for path in (tmp_path / kind).glob("[!.]*")} == before
    code, _, err = say(
        f"{command.replace('elmo', 'gpt').replace(SIZES['elmo'], SIZES['gpt'])} --d-model 32 --n-heads 4"
    )
    assert "another task: d_ff was 64 and is now 128, d_model was 16 and is now 32, n_heads was 2 and is now 4." in err
    (tmp_path / "other.txt").write_text(a_text(seed=1))
    command = f"pretrain gpt --text {tmp_path}/other.txt --out {tmp_path}/gpt {TINY} {SIZES['gpt']}"
    assert "… (a hash of what is in the text, its tokenizer, and how it is cut)" in say(command)[2]


def test_a_second_run_in_the_same_folder_changes_nothing_there(place, say, tmp_path):
    """Before the first has saved a state, too: a tokenizer of its own would make the first run unable to go on."""
    command = f"pretrain gpt --text PLACE/text.txt --out {tmp_path}/run {TINY} {SIZES['gpt']}"
    assert say(command)[0] == 0
    (tmp_path / "run" / "last.safetensors").unlink()
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("[!.]*")}
    with only_one_run(tmp_path / "run", True):
        code, _, err = say(f"{command} --vocab-size 290")
    assert code == 2
    assert "another run is writing into" in err
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").glob("[!.]*")} == before


def test_the_folder_of_the_run_may_lie_in_the_folder_of_the_text(say, tmp_path):
    (tmp_path / "a.txt").write_text(a_text())
    command = f"pretrain gpt --text {tmp_path} --out {tmp_path}/runs/mine {TINY} {SIZES['gpt']} --schedule constant"
    assert say(command)[0] == 0
    assert say(command + " --steps 7")[0] == 0


def test_a_lost_log_does_not_spoil_the_end(place, say, tmp_path):
    shutil.copytree(place / "gpt", tmp_path / "gpt")
    (tmp_path / "gpt" / "eval.csv").unlink()
    command = f"pretrain gpt --text PLACE/text.txt --out {tmp_path}/gpt {TINY} {SIZES['gpt']}"
    assert say(command)[0] == 0
    assert load(tmp_path / "gpt").card["metrics"] == {}


def forged(path, to, change=None, metadata=None, tensors=None):
    """A copy of a checkpoint with another header or other tensors."""
    with safe_open(path, "pt") as file:
        stored, state = json.loads(file.metadata()["config"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    stored = stored if change is None else change(stored)
    save_file(tensors(state) if tensors else state, to, metadata=metadata or {"config": json.dumps(stored)})


FORGERIES = {
    "sizes": {"change": lambda c: c | {c["kind"]: c[c["kind"]] | {"d_model": 32}}},
    "a new setting": {"change": lambda c: c | {c["kind"]: c[c["kind"]] | {"surprise": 1}}},
    "no size": {"change": lambda c: c | {c["kind"]: {}}},
    "no sizes": {"change": lambda c: c | {c["kind"]: 5}},
    "no tokenizer": {"change": lambda c: c | {"tokenizer": {}}},
    "a strange tokenizer": {"change": lambda c: c | {"tokenizer": 5}},
    "a list": {"change": lambda c: [1]},
    "a number": {"change": lambda c: 5},
    "another model": {"change": lambda c: {"x": 1}},
    "no JSON": {"metadata": {"config": "{"}},
    "the run of a stranger": {"metadata": {"run": "3"}},
    "less": {"tensors": lambda state: dict(list(state.items())[1:])},
    "more": {"tensors": lambda state: state | {"more": torch.zeros(2)}},
    "nothing": {"tensors": lambda state: {}},
}


@pytest.mark.parametrize("kind", ["gpt", "bert"])
@pytest.mark.parametrize("name", FORGERIES)
def test_a_foreign_or_damaged_checkpoint_is_named_in_one_line(place, say, tmp_path, kind, name):
    how, path = dict(FORGERIES[name]), tmp_path / "x.safetensors"
    if "change" in how:
        how["change"] = lambda c, change=how["change"]: change(c | {"kind": kind})
    forged(place / kind / "model.safetensors", path, **how)
    use = f"generate {path} --tokens 2" if kind == "gpt" else f"fill-mask {path} [MASK]"
    for command in (use, f"finetune {path} --train PLACE/labels.csv --out {tmp_path}/c", f"classify {path} a"):
        code, _, err = say(command)
        assert code == 2
        assert str(path) in err
        assert err.count("\n") == 1
        assert len(err) < 600
    assert say(f"info {path}")[0] in (0, 2)  # it reads the header only, and says what is in it


def test_a_model_of_nan_says_so(place, say, tmp_path):
    for kind, use in (("gpt", "generate {} --tokens 2"), ("bert", "fill-mask {} [MASK]")):
        nan = {"tensors": lambda state: {name: t * float("nan") for name, t in state.items()}}
        forged(place / kind / "model.safetensors", tmp_path / "x.safetensors", **nan)
        code, _, err = say(use.format(tmp_path / "x.safetensors"))
        assert (code, "NaN or infinite" in err) == (1, True)


def test_prompts_of_any_length(say):
    assert say("generate PLACE/gpt --prompt '' --tokens 3")[0] == 0
    prompt = "The film was good. " * 30  # many times the context of 24 tokens
    code, out, _ = say(f"generate PLACE/gpt --prompt '{prompt}' --tokens 3 --samples 2")
    assert code == 0
    assert out.startswith(prompt)
    assert say(["generate", "PLACE/gpt", "--prompt", "\udcff \0 \u4e2d", "--tokens", "3"])[0] == 0


def test_a_closed_pipe_ends_a_command_in_silence(place):
    """plm info CHECKPOINT | head -1, and a terminal that knows no letters but ASCII."""
    command = f"{shlex.quote(sys.executable)} -m plm.cli info {shlex.quote(str(place / 'gpt'))}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "ascii"}
    script = f"{command} | (exec <&-; sleep 0.1); echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_warnings_and_a_lack_of_memory_are_said_in_one_line(say, monkeypatch, tmp_path):
    documents = "\n\n".join(["One sentence alone."] * 12 + [" ".join(["So it was then, and so it went on."] * 20)] * 6)
    (tmp_path / "text.txt").write_text(documents)
    code, _, err = say(f"pretrain bert --text {tmp_path}/text.txt --out {tmp_path}/run {TINY} {SIZES['bert']}")
    assert code == 0
    assert err.splitlines() == ["plm: 12 of 16 documents have one sentence and make no pairs"]
    for error in (MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), RuntimeError("a fault")):
        monkeypatch.setattr(cli_pretrain, "run", Mock(side_effect=error))
        if str(error) == "a fault":
            with pytest.raises(RuntimeError, match="a fault"):  # ours, and to be seen whole
                say("pretrain gpt")
        else:
            code, _, err = say("pretrain gpt")
            assert (code, err.count("\n")) == (1, 1)
            assert "halve --batch-size" in err


def test_a_number_of_yaml_1_1_is_read():
    """YAML takes 1e-3 for a text."""
    from plm.cli_options import _typed

    assert _typed("1e-3", float, "lr") == 0.001
    assert _typed("1e4", int, "steps") == 10_000
    assert _typed(1, float, "lr") == 1.0
    for value, kind in ((True, int), (1.5, int), ("1.5", int), (float("inf"), int), ("x", float), (1, str)):
        with pytest.raises(CommandError, match="lr must be"):
            _typed(value, kind, "lr")


def test_every_option_of_pretrain_has_a_help():
    for kind in SIZES:
        for group in cli_pretrain.groups(kind).values():
            assert [
                name for name, (_, _, said) in group.items() if not said and not name.startswith(("beta", "eps"))
            ] == []


def test_help_teaches(capsys):
    for command, word in (
        ("--help", "plm pretrain gpt --text"),
        ("pretrain gpt --help", "torchrun"),
        ("info --help", "run"),
    ):
        assert main(command.split()) == 0
        assert word in capsys.readouterr().out
    assert build_parser([]).prog == "plm"


def test_the_entry_point_exists():
    module, _, name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["plm"].partition(":")
    assert getattr(import_module(module), name) is main


# --- tokenizers -----------------------------------------------------------------------------------------------------


def test_bytes_lose_nothing_and_no_text_makes_the_end_mark():
    tokenizer = ByteBPE.train([a_text(20)], 300)
    for text in ("The film.\n\tna\u00efve \u4e2d\u6587 \U0001f600  ", "<|end|>", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.end_id not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"  # case B06
    assert len(tokenizer) == 300
    assert ByteBPE(**json.loads(json.dumps(tokenizer.config))).encode("The film") == tokenizer.encode("The film")
    for bad, said in (
        (lambda: ByteBPE.train(["a"], 100), "at least 257"),
        (lambda: ByteBPE.train([" "], 300), "no text to learn"),
    ):
        with pytest.raises(ValueError, match=said):
            bad()


def test_words_are_those_of_the_book():
    text = a_text(30) + " Don\u2019t stop: twenty-one \u201cCAF\u00c9S\u201d cafe\u0301 _x_"
    vocab = train_words([text], 20)
    assert len(vocab) == 20
    assert vocab.tokens[:3] == ("<unk>", "<s>", "</s>")
    assert fast_words(vocab).encode(text).ids == vocab.encode(words(text))


def test_pieces_for_english_and_characters_for_chinese():
    pieces = train_wordpiece([a_text(30)], 60)
    assert len(pieces) <= 60
    assert pieces.fast().encode("The Caf\u00e9").ids == pieces.encode("The Caf\u00e9").ids[1:-1]
    cased = train_wordpiece(["The The the"], 60, lowercase=False)
    assert cased.encode("The").pieces != cased.encode("the").pieces  # case B03
    chinese = train_wordpiece(["\u4e2d\u6587\u4e2d \u56fd\u4e2d\u6587"], 7, characters=True)
    assert chinese.pieces[5:] == ("\u4e2d", "\u6587")


def test_c06_pieces_are_the_same_in_every_process_and_those_made_by_hand():
    rng = random.Random(0)
    known = ["".join(rng.choice("abcde\u00e9\u0434\u4e2d") for _ in range(rng.randint(1, 7))) for _ in range(200)]
    lines = [" ".join(rng.choice(known) for _ in range(12)) + "." for _ in range(200)]
    for size in (60, 120, 300):
        pieces = train_wordpiece(lines, size)
        assert list(pieces.pieces) == train_pieces(count_words(lines), size, 1, alphabet=max(10, size // 4))
        assert train_wordpiece(lines[::-1], size).pieces == pieces.pieces
    assert not any("\ud800" in piece for piece in train_wordpiece([*lines, "a\ud800b"], 300).pieces)  # case B06
    code = "import sys; from plm.fast_tokenizers import *; lines = sys.argv[1].splitlines(); print(ascii(["
    code += "train_wordpiece(lines, 120).pieces, train_words(lines, 90).tokens, ByteBPE.train(lines, 300).config]))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code, "\n".join(lines)],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(found) == 1


# --- the page of the book -------------------------------------------------------------------------------------------

PAGE = (ROOT / "chapters" / "engine.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.S) for line in block.replace("\\\n", " ").splitlines()
]
ABOUT = re.compile(r"^(?:torchrun|accelerate launch) .*?-m plm\.cli ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_is_understood(command):
    given = shlex.split(ABOUT.sub("plm ", command))[1:]
    _, unknown = build_parser().parse_known_args(given)
    assert unknown == []
    config = re.search(r"--config (configs/\S+)", command)
    assert config is None or (ROOT / config[1]).exists()


def test_the_tour_of_the_page(place, capsys, tmp_path, monkeypatch):
    """As it stands there, with a shorter text and smaller models."""
    monkeypatch.chdir(tmp_path)
    exec(compile(re.findall(r"```python\n(.*?)```", PAGE, re.S)[0], "engine.md", "exec"), {"__name__": "page"})
    assert len(read_labelled("labelled.csv").texts) == 1000
    assert Path("reviews.txt").stat().st_size > 1_000_000
    Path("reviews.txt").write_text(a_text(), encoding="utf-8")
    Path("labelled.csv").write_bytes((place / "labels.csv").read_bytes())
    tour = [command for command in COMMANDS if command.startswith("plm") and "--config" not in command]
    assert len(tour) == 8
    for command in tour:
        smaller = f"{TINY} --no-vectors" if " bert " in command else TINY
        assert main(shlex.split(command + f" {smaller}" * command.startswith("plm pretrain"))[1:]) == 0
    out = capsys.readouterr().out
    assert "The film" in out
    assert "\tWhat a film." in out


def test_the_task_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", PAGE, re.S)[1]
    exec(compile(code, "engine.md", "exec"), {"__name__": "page"})
    assert float(capsys.readouterr().out) < 1.5
    assert read_log("runs/letters/eval.csv")[-1]["step"] == 200
