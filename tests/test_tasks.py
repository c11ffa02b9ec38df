"""SST-2, MRPC, SQuAD, CoNLL-2003: small files in exactly their formats, read, learnt and stored through one recipe."""

import copy
import json
import shlex

import pytest
import torch
from safetensors.torch import save_file

from plm.bert import BertConfig, BertForPretraining
from plm.checkpoints import Loaded
from plm.cli import main
from plm.downstream import Recipe
from plm.model_files import save_bert
from plm.tasks import (
    READERS,
    TASKS,
    Labelled,
    finetune_task,
    load_head,
    measure,
    read_mrpc,
    read_sst2,
    read_task,
    save_head,
)
from plm.train import load_checkpoint
from plm.wordpiece import SPECIALS, WordPiece

WORDS = "good bad film a paris is in france john lives where the capital of ."
TOKENIZER = WordPiece([*SPECIALS, *WORDS.split()])
SST2 = 'sentence\tlabel\na "good film \t1\nbad film \t0\na good good film\t1\na bad film\t0\n'
MRPC = (
    "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    '1\t702876\t702977\ta "good film\ta good film .\r\n0\t1\t2\ta good film\tparis is in france\r\n'
)
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "France",
            "paragraphs": [
                {
                    "context": "The capital of France is Paris.",
                    "qas": [{"id": "1", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 25}]}],
                }
            ],
        }
    ],
}
CONLL = """-DOCSTART- -X- -X- O

John NNP B-NP I-PER
lives VBZ B-VP O
in IN B-PP O
Paris NNP B-NP I-LOC
. . O O

"""


@pytest.fixture
def files(tmp_path):
    texts = {"sst2": SST2, "mrpc": MRPC, "squad": json.dumps(SQUAD), "conll2003": CONLL}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.encode())
    save_bert(tmp_path / "bert.safetensors", base().model, TOKENIZER, {})
    return tmp_path


def base():
    torch.manual_seed(0)
    sizes = {"n_positions": 40, "d_model": 32, "n_heads": 2, "n_layers": 1, "dropout": 0.0}
    return Loaded("bert", BertForPretraining(BertConfig(vocab_size=len(TOKENIZER), **sizes)), TOKENIZER, {})


def test_quotes_are_text_and_a_byte_order_mark_is_not(files):
    assert read_sst2(files / "sst2")[0] == Labelled('a "good film ', None, 1)
    assert read_mrpc(files / "mrpc")[0] == Labelled('a "good film', "a good film .", 1)


@pytest.mark.parametrize("task", TASKS)
def test_the_command_learns_measures_and_writes(files, task, capsys):
    command = f"finetune {files}/bert.safetensors --task {task} --train {files}/{task} --test {files}/{task}"
    assert main(shlex.split(f"{command} --out {files}/out.safetensors --epochs 40 --lr 0.01 --max-length 32")) == 0
    out = capsys.readouterr().out
    name = {"sst2": "accuracy", "mrpc": "f1", "squad": "exact", "conll2003": "f1"}[task]
    assert f"{name} 1.000" in out
    found, head, tokenizer, labels = load_head(files / "out.safetensors")
    assert found == task
    assert measure(task, head, tokenizer, labels, READERS[task](files / task))[name] == 1.0
    assert main(["info", str(files / "out.safetensors")]) == 0


def test_a_head_whose_parts_do_not_belong_together_is_refused(files):
    head, labels, _ = finetune_task("sst2", base(), read_sst2(files / "sst2"), read_sst2(files / "sst2"), Recipe())
    path = save_head(files / "h.safetensors", "sst2", head, TOKENIZER, labels, {})
    state, whole = load_checkpoint(path)
    changes = [
        lambda s: s["task"].update(name="conll2003"),
        lambda s: s["task"].update(name="cola"),
        lambda s: s["task"]["encoder"].update(d_model=64),
        lambda s: s["task"]["encoder"].update(vocab_size=7),
        lambda s: s["task"].pop("encoder"),
        lambda s: s["tokenizer"].update(pieces=[*s["tokenizer"]["pieces"], "more"]),
        lambda s: s.update(task=5),
        lambda s: s.pop("tokenizer"),
    ]
    for change in changes:
        stored = copy.deepcopy(whole)
        change(stored)
        save_file(state, path, metadata={"config": json.dumps(stored)})
        with pytest.raises(ValueError, match=r"h\.safetensors is damaged or of another version"):
            load_head(path)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"{}",
        b'{"data": [3]}',
        b'{"data": [{"title": "x"}]}',
        b"caf\xe9 bar\t1\n",
        b"a b\n",
        b"[",
        b"a X-PER\n",
    ],
)
def test_a_file_of_another_kind_is_named(files, task, content, capsys):
    (files / "bad").write_bytes(content)
    with pytest.raises(ValueError, match=r"/bad\b"):
        read_task(task, files / "bad")
    command = f"finetune {files}/bert.safetensors --task {task} --train {files}/bad --test {files}/bad --out {files}/o"
    assert main(shlex.split(command)) == 2
    said = capsys.readouterr().err
    assert (f"{files}/bad" in said, said.count("\n")) == (True, 1)


def test_what_is_wrong_is_said(files, capsys):
    for text, message in (
        ("sentence\tlabel\nx\t2\n", "line 2: the label is 0 or 1, not '2'"),
        ("sentence\tlabel\nx\n", "line 2: 1 columns instead of 2"),
        ("sentence\tlabel\n", "holds no rows"),
        ("text\tlabel\nx\t1\n", "needs the columns sentence, label"),
    ):
        (files / "bad.tsv").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_sst2(files / "bad.tsv")
    tail = f"--task sst2 --train {files}/sst2 --out {files}/o.safetensors"
    assert main(shlex.split(f"finetune {files}/bert.safetensors {tail}")) == 2
    assert "name one with --test" in capsys.readouterr().err
    assert main(shlex.split(f"finetune {files}/bert.safetensors {tail} --test {files}/sst2 --freeze --scratch")) == 2
    assert "give one of them" in capsys.readouterr().err
    assert main(shlex.split(f"finetune minilm {tail} --test {files}/absent")) == 2
    assert f"{files}/absent" in capsys.readouterr().err
    with pytest.raises(ValueError, match="stand on a BERT, and this is a gpt"):
        finetune_task("sst2", Loaded("gpt", base().model, None, {}), [], [], Recipe())
    with pytest.raises(ValueError, match="task is one of"):
        finetune_task("cola", base(), [], [], Recipe())
    with pytest.raises(ValueError, match="no head of a task"):
        load_head(files / "bert.safetensors")
    head, labels, _ = finetune_task("sst2", base(), read_sst2(files / "sst2"), read_sst2(files / "sst2"), Recipe())
    assert save_head(files / "h.safetensors", "sst2", head, TOKENIZER, labels, {}).exists()
