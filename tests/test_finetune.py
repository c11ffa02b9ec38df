"""plm.finetune: padding never leaks into a label, checkpoints come back, and bad data is named."""

import copy
import dataclasses
import json
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from plm.bert import BertConfig, BertForPretraining
from plm.bpe import BPE
from plm.checkpoints import Loaded, encode, kind_of, load
from plm.elmo import BiLM, BiLMConfig
from plm.fast_tokenizers import ByteBPE
from plm.finetune import (
    Classifier,
    Labelled,
    TuneSettings,
    finetune,
    hold_out,
    load_classifier,
    read_labelled,
    save_classifier,
)
from plm.gpt import GPT, GPTConfig
from plm.gpt_weights import to_transformers
from plm.model_files import load_bert, load_gpt, save_bert, save_gpt
from plm.sampling import generate
from plm.train import load_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab
from plm.wordpiece import SPECIALS, WordPiece

TEXTS = ["a good film", "bad", "a bad bad film and a long one at that", "good good"]


def base(kind):
    """A tiny untrained model with a tokenizer."""
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 2, "dropout": 0.3}
    if kind == "gpt":
        tokenizer = ByteBPE.train(TEXTS, 260)
        return Loaded(kind, GPT(GPTConfig(vocab_size=len(tokenizer), n_positions=40, **sizes)), tokenizer, {})
    if kind == "gpt of the book":
        tokenizer = BPE.train([f"{text} " for text in TEXTS], 40)
        return Loaded("gpt", GPT(GPTConfig(vocab_size=len(tokenizer), n_positions=40, **sizes)), tokenizer, {})
    words = sorted({word for text in TEXTS for word in text.split()})
    if kind == "elmo":
        vocab = Vocab(words, LANGUAGE_MODEL_SPECIALS)
        return Loaded(kind, BiLM(BiLMConfig(len(vocab), 8, 16, dropout=0.3)), vocab, {})
    tokenizer = WordPiece([*SPECIALS, *words])
    return Loaded(
        kind, BertForPretraining(BertConfig(vocab_size=len(tokenizer), n_positions=20, **sizes)), tokenizer, {}
    )


KINDS = ["gpt", "gpt of the book", "elmo", "bert"]


@pytest.mark.parametrize("kind", KINDS)
def test_k07_a_text_alone_and_in_a_padded_batch_get_the_same_scores(kind):
    model = Classifier(base(kind), ["no", "yes"]).eval()
    torch.nn.init.normal_(model.output.weight)
    rows = model.encode(TEXTS)
    together = model(*model.batch(rows))
    alone = torch.cat([model(*model.batch([row])) for row in rows])
    assert_close(together, alone)
    assert not torch.equal(together[0], together[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a07_an_empty_text_has_scores_and_leaves_the_others_alone(kind):
    model = Classifier(base(kind), ["no", "yes"]).eval()
    torch.nn.init.normal_(model.output.weight)
    both = model(*model.batch(model.encode(["hi", ""])))
    assert bool(torch.isfinite(both).all())
    assert_close(both[:1], model(*model.batch(model.encode(["hi"]))))
    assert model.predict(["hi", ""])[0] == model.predict(["hi"])[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_learns_comes_back_and_can_be_copied(kind, tmp_path):
    data = Labelled(TEXTS * 4, ["yes", "no", "no", "yes"] * 4)
    model, scores = finetune(base(kind), data, data, TuneSettings(epochs=12, lr=0.01, batch_size=4))
    assert scores == {"accuracy": 1.0, "majority": 0.5}
    assert not model.training
    again = load_classifier(save_classifier(tmp_path / "c.safetensors", model, {"data": "made up"}))
    assert again.predict(TEXTS) == model.predict(TEXTS) == data.labels[:4]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.predict(TEXTS) == data.labels[:4]


def test_texts_are_cut_to_what_the_model_reads_and_may_be_empty():
    for kind in KINDS:
        found = base(kind)
        longest = 12
        assert len(encode(found.kind, found.tokenizer, "good film " * 50, longest)) == longest
        assert len(encode(found.kind, found.tokenizer, "", longest)) == 2
        assert Classifier(found, ["no", "yes"]).predict(["", "good " * 100]) == ["no", "no"]


def test_special_tokens_in_a_text_are_text():
    for kind, forged in (("gpt", "<|end|>"), ("gpt of the book", "</s>"), ("bert", "[SEP]"), ("elmo", "</s>")):
        found = base(kind)
        ids = encode(found.kind, found.tokenizer, f"good {forged} film", 40)
        end = ids[-1]
        assert end not in ids[1:-1]


def test_bad_data_is_named(tmp_path):
    data, other = Labelled(["a", "b"], ["x", "y"]), Labelled(["a"], ["z"])
    with pytest.raises(ValueError, match="the label 'z' of the test texts never occurs"):
        finetune(base("bert"), data, other, TuneSettings())
    with pytest.raises(ValueError, match="at least two different labels"):
        finetune(base("bert"), Labelled(["a", "b"], ["x", "x"]), Labelled(["a"], ["x"]), TuneSettings())
    path = tmp_path / "x.tsv"
    path.write_text("text\tlabel\na, b\t1\nc\t2\n")
    assert read_labelled(str(path)) == Labelled(["a, b", "c"], ["1", "2"])
    path.write_text("text\tlabel\na\t\n")
    with pytest.raises(ValueError, match="row 1 has no 'label'"):
        read_labelled(str(path))
    path.write_text("text\tlabel\n")
    with pytest.raises(ValueError, match="holds no rows"):
        read_labelled(str(path))


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_texts_and_labels_are_read_as_they_are_written(tmp_path, ending):
    rows = [("NA", "null"), ("null", "NA"), ("1984", "01"), ("", "none"), ("nan", "1.0"), ('a "b", c', "x y")]
    if ending == "jsonl":
        text = "".join(json.dumps({"label": label, "text": text}) + "\n" for text, label in rows)
    else:
        quoted = [[f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row] for row in rows]
        text = "\r\n".join("\t,"[ending == "csv"].join(row) for row in [["text", "label"], *quoted]) + "\r\n"
    path = tmp_path / f"x.{ending}"
    for mark in ("", "\ufeff"):
        path.write_bytes((mark + text).encode())
        assert read_labelled(str(path)) == Labelled(*map(list, zip(*rows)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "text,label\nd\u00e9j\u00e0,1\n".encode("latin-1"), "is not UTF-8 .*iconv"),
        ("x.csv", b'text,label\n"never closed,1\n', "x.csv cannot be read"),
        ("x.csv", b"text,label\na,1\nb,2,3,4\n", "x.csv cannot be read"),
        ("x.csv", b"", "x.csv holds no rows"),
        ("x.jsonl", b"", "x.jsonl holds no rows"),
        ("x.csv", b"text,label\na,\n", "row 1 has no 'label'"),
        ("x.jsonl", b'{"text": "a", "label": null}\n', "row 1 has no 'label'"),
        ("x.jsonl", b'{"text": "a", "label": 1}\n{"text":', "x.jsonl cannot be read"),
        ("x.parquet", b"PAR1 and nothing else", "x.parquet cannot be read"),
        ("x.txt", b"a", "x.txt is none of .csv, .tsv"),
    ],
)
def test_a_broken_table_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as found:
        read_labelled(str(path))
    assert str(path) in str(found.value)


def test_a_folder_is_no_table(tmp_path):
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        read_labelled(str(tmp_path))


def test_k11_what_is_held_out_is_not_in_the_training_data():
    texts = [f"text {i % 60}" for i in range(100)]  # forty of them stand there twice
    data = Labelled(texts, ["yes" if i % 2 else "no" for i in range(99)] + ["rare"])
    parts = [hold_out(data, seed) for seed in range(20)]
    for train, test in parts:
        assert not set(train.texts) & set(test.texts)
        assert sorted(train.texts + test.texts) == sorted(texts)
        assert 8 <= len(test.texts) <= 10
        assert set(train.labels) == {"yes", "no", "rare"}
    assert len({tuple(test.texts) for _, test in parts}) > 10
    assert hold_out(data, 3) == parts[3]
    for few in (Labelled(["a"], ["x"]), Labelled(["a", "a"], ["x", "y"]), Labelled(["a", "b"], ["x", "y"])):
        with pytest.raises(ValueError, match="--test"):
            hold_out(few)


CHANGES = {
    "other sizes": lambda stored: stored["classifier"]["base"].update(d_model=32),
    "another kind": lambda stored: stored["classifier"].update(kind="xlnet"),
    "more labels": lambda stored: stored["classifier"]["labels"].append("perhaps"),
    "one label": lambda stored: stored["classifier"]["labels"].pop(),
    "no labels": lambda stored: stored["classifier"].pop("labels"),
    "no classifier": lambda stored: stored.update(classifier=3),
    "a setting of the future": lambda stored: stored["classifier"]["base"].update(surprise=1),
    "no tokenizer": lambda stored: stored.pop("tokenizer"),
}


@pytest.mark.parametrize("kind", ["gpt", "elmo", "bert"])
@pytest.mark.parametrize("change", CHANGES)
def test_weights_and_sizes_that_do_not_belong_together_are_refused(kind, change, tmp_path):
    path = save_classifier(tmp_path / "c.safetensors", Classifier(base(kind), ["no", "yes"]), {})
    state, stored = load_checkpoint(path)
    CHANGES[change](stored)
    save_file(state, path, metadata={"config": json.dumps(stored)})
    with pytest.raises(ValueError, match=r"c\.safetensors is damaged or of another version") as found:
        load_classifier(path)
    assert len(str(found.value)) < 500


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path):
    for kind, longer in (
        ("bert", {"pieces": [*SPECIALS, *"abcdefghijklmnopqrst"]}),
        ("elmo", {"words": list("abcdefghijklmno")}),
    ):
        path = save_classifier(tmp_path / "c.safetensors", Classifier(base(kind), ["no", "yes"]), {})
        state, stored = load_checkpoint(path)
        stored["tokenizer"] |= longer
        save_file(state, path, metadata={"config": json.dumps(stored)})
        with pytest.raises(ValueError, match=r"the tokenizer has \d+ tokens, the model only \d+"):
            load_classifier(path)


def test_kinds_are_told_by_what_a_file_says():
    assert [kind_of({key: 0}) for key in ("classifier", "gpt", "bert", "words", "letters")] == [
        "classifier",
        "gpt",
        "bert",
        "elmo",
        "unknown",
    ]


def test_models_of_the_hub_come_with_their_tokenizer(tmp_path):
    """A folder as the hub keeps it: config.json, model.safetensors, and either form of tokenizer."""
    found = base("gpt")
    save_file({name: t.clone() for name, t in to_transformers(found.model).items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "n_head": 2, "activation_function": "gelu_new"})
    )
    with pytest.raises(FileNotFoundError, match="has no tokenizer"):
        load(tmp_path)
    content = json.loads(found.tokenizer.config["json_text"].replace("<|end|>", "<|endoftext|>"))
    added = {"id": 256, "content": "<|endoftext|>", "special": True, "normalized": False}
    content["added_tokens"] = [added | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)]
    (tmp_path / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
    (tmp_path / "merges.txt").write_text(
        "#version: 0.2\n" + "\n".join(" ".join(pair) for pair in content["model"]["merges"])
    )
    ids = found.tokenizer.encode("good <|endoftext|>")
    for name in ("vocab.json", "tokenizer.json"):
        if name == "tokenizer.json":
            (tmp_path / name).write_text(json.dumps(content))
        theirs = load(tmp_path)
        assert theirs.kind == "gpt"
        assert theirs.tokenizer.encode("good <|endoftext|>") == ids
        assert theirs.tokenizer.end_id not in ids
        assert_close(theirs.model(torch.tensor([ids])), found.model.eval()(torch.tensor([ids])))


def test_a19_a_gpt_of_the_hub_writes_only_tokens_that_its_tokenizer_has(tmp_path):
    """Published models round their tables up: 50,257 tokens in 50,304 rows."""
    found = base("gpt")
    n = len(found.tokenizer)
    config = dataclasses.replace(found.model.config, vocab_size=n + 12)
    theirs = GPT(config)
    with torch.no_grad():
        theirs.tokens.weight[n:] = 50 * torch.randn(12, 16)  # what is left over would win at once
    save_file({name: t.clone() for name, t in to_transformers(theirs).items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_head": 2}')
    (tmp_path / "tokenizer.json").write_text(found.tokenizer.config["json_text"])
    model = load(tmp_path).model
    for how in ({"temperature": 0}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 40}):
        assert max(generate(model, [[1, 2]], 30, **how)[0]) < n
    small = GPT(dataclasses.replace(config, vocab_size=n - 1, n_ids=n - 1))
    save_file({name: t.clone() for name, t in to_transformers(small).items()}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"the tokenizer has {n} tokens, the model only {n - 1}"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["gpt", "gpt of the book", "bert"])
def test_a_pretrained_model_comes_back_with_whatever_tokenizer_it_has(kind, tmp_path):
    found, path = base(kind), tmp_path / "model.safetensors"
    save, load_own, other = (save_bert, load_bert, load_gpt) if kind == "bert" else (save_gpt, load_gpt, load_bert)
    save(path, found.model, found.tokenizer, {"data": "none"}, half=False)
    again = load(path)
    for model, tokenizer, card in (load_own(path), (again.model, again.tokenizer, again.card)):
        assert tokenizer.config == found.tokenizer.config
        assert card == {"data": "none"}
        assert not model.training
        assert all(map(torch.equal, model.parameters(), found.model.parameters()))
    with pytest.raises(ValueError, match="was not written by"):
        other(path)


def test_minilm_by_its_name():
    found = load("minilm")
    assert found.kind == "bert"
    data = Labelled(TEXTS[:2], ["yes", "no"])
    model, _ = finetune(found, data, data, TuneSettings(epochs=1, freeze=True))
    assert model.output.in_features == 384
