"""plm.cli: what the book's page promises, from a text to a model that is used; and one clear line for whatever is wrong."""

import json
import random
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from plm import cli_pretrain
from plm.checkpoints import load
from plm.cli import build_parser, main
from plm.cli_options import CommandError, options, read_config
from plm.fast_tokenizers import ByteBPE, fast_words, train_wordpiece, train_words
from plm.run_log import read_log
from plm.run_settings import Settings
from plm.tokenize import words

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
        code = main(shlex.split(command.replace("PLACE", str(place))))
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
        ("pretrain gpt --stepz 5", "does not know --stepz"),
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
        (f"fill-mask PLACE/bert '[MASK] {'long ' * 40}'", "this model reads 24"),
        ("finetune PLACE/gpt --train absent.csv --out x", "there is no file absent.csv"),
        ("finetune PLACE/gpt --train PLACE/text.txt --out x", "is none of .csv"),
        (
            "finetune PLACE/gpt --train PLACE/labels.csv --label-column y --out x",
            "row 1 has no 'y'; its columns are text, label",
        ),
        ("finetune PLACE/gpt --train PLACE/labels.csv --epochs 0 --out x", "epochs and batch_size must be at least 1"),
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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("stepz: 5", "there is no setting 'stepz'; is steps meant?"),
        ("steps: many", "steps must be a number, not 'many'"),
        ("cpu: 3", "cpu must be bool, not 3"),
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


def test_a_number_of_yaml_1_1_is_read():
    """YAML takes 1e-3 for a text."""
    from plm.cli_options import _typed

    assert _typed("1e-3", float, "lr") == 0.001
    assert _typed(1, float, "lr") == 1.0
    for value, kind in ((True, int), (1.5, int), ("x", float), (1, str)):
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
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a?b"
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
