"""plm.hub: folders of the hub in our models, the real weights of MiniLM, and what is refused."""

import json
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from plm import hub
from plm.bert import Bert, BertForPretraining
from plm.wordpiece import SPECIALS

transformers = pytest.importorskip("transformers")
SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20, "vocab_size": 12}
IDS = torch.tensor([[2, 7, 8, 9, 3], [2, 6, 3, 0, 0]])


def folder(path, cls="BertForPreTraining", **changes):
    """A tiny random model as transformers writes it, with a vocabulary."""
    torch.manual_seed(0)
    model = getattr(transformers, cls)(transformers.BertConfig(**{**SIZES, "max_position_embeddings": 10, **changes}))
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    model.eval().save_pretrained(path)
    pieces = [*SPECIALS, "a", "b", "c", "##a", "##b", "##c", "ab"]
    (path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return model


@pytest.mark.parametrize(
    ("cls", "ours"), [("BertForPreTraining", BertForPretraining), ("BertModel", Bert), ("BertForMaskedLM", Bert)]
)
def test_folders_of_bert(tmp_path, cls, ours):
    model = folder(tmp_path, cls)
    if cls == "BertForMaskedLM":  # it has no pooler; our Bert needs one
        with pytest.raises(ValueError, match=r"missing \['pooler"):
            hub.load_hub_bert(tmp_path)
        return
    mine, tokenizer = hub.load_hub_bert(tmp_path)
    assert type(mine) is ours
    assert tokenizer.encode("Abc").pieces == ["[CLS]", "ab", "##c", "[SEP]"]
    found = model(IDS, attention_mask=(IDS != 0).long(), output_hidden_states=True)
    encoder = mine.bert if cls == "BertForPreTraining" else mine
    for a, b in zip(encoder.all_states(IDS), found.hidden_states):
        assert_close(a[IDS != 0], b[IDS != 0], atol=1e-5, rtol=1e-5)
    if cls == "BertForPreTraining":
        assert_close(mine(IDS).nsp, found.seq_relationship_logits, atol=1e-5, rtol=1e-5)


def test_old_folders_with_gamma_and_beta_and_a_pickle(tmp_path):
    model = folder(tmp_path)
    state = {}
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        state[old] = tensor
    (tmp_path / "model.safetensors").unlink()
    torch.save(state, tmp_path / "pytorch_model.bin")
    mine, _ = hub.load_hub_bert(tmp_path)
    assert_close(
        mine(IDS).mlm[0], model(IDS, attention_mask=(IDS != 0).long()).prediction_logits[0], atol=1e-5, rtol=1e-5
    )


class Trap:
    """Unpickling it would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_d06_a_pickle_that_runs_code_is_refused(tmp_path):
    folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    marker = tmp_path / "marker"
    torch.save({"a": Trap(marker)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="may run code"):
        hub.load_hub_bert(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(marker)))
    with pytest.raises(ValueError, match=r"refused|not whole"):
        hub.load_hub_bert(tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("pieces", "settings", "wanted"),
    [
        (["Caf\u00e9", "cafe"], None, "Caf\u00e9"),  # a capital letter in the vocabulary: the model is cased
        (["caf\u00e9", "cafe"], None, "cafe"),
        (["Caf\u00e9", "cafe"], {"do_lower_case": True}, "cafe"),
        (["caf\u00e9", "cafe"], {"do_lower_case": True, "strip_accents": False}, "caf\u00e9"),
        (["Caf\u00e9", "cafe"], {"do_lower_case": False}, "Caf\u00e9"),
        (["cafe", "Cafe"], {"do_lower_case": False, "strip_accents": True}, "Cafe"),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_b03_a_cased_model_is_not_given_small_letters(tmp_path, pieces, settings, wanted, line_end):
    folder(tmp_path)
    lines = [*SPECIALS, "[unused0]", *pieces, *"abcd"]
    (tmp_path / "vocab.txt").write_bytes("".join(line + line_end for line in lines).encode())
    if settings is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert hub.load_hub_bert(tmp_path)[1].encode("Caf\u00e9").pieces[1:-1] == [wanted]


def test_broken_and_foreign_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="download=True"):
        hub.load_hub_bert(tmp_path / "bert-base-uncased")
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        hub.load_hub_bert(tmp_path)
    folder(tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="not whole"):
        hub.load_hub_bert(tmp_path)
    state = load_file_bytes(whole, tmp_path)
    save_file({**state, "classifier.weight": torch.zeros(2, 8)}, weights)
    with pytest.raises(ValueError, match=r"classifier\.weight"):
        hub.load_hub_bert(tmp_path)
    save_file({k: v for k, v in state.items() if "layer.1." not in k}, weights)
    with pytest.raises(ValueError, match="missing"):
        hub.load_hub_bert(tmp_path)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="neither"):
        hub.load_hub_bert(tmp_path)


def load_file_bytes(raw, path):
    """The tensors of a safetensors file given as bytes."""
    (path / "whole.safetensors").write_bytes(raw)
    return load_file(path / "whole.safetensors")


@pytest.mark.parametrize(
    ("change", "words"),
    [({"hidden_act": "gelu_new"}, "gelu"), ({"model_type": "roberta"}, "roberta"),
     ({"position_embedding_type": "relative_key"}, "relative")],
)  # fmt: skip
def test_another_kind_of_model_is_refused(tmp_path, change, words):
    folder(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(ValueError, match=words):
        hub.load_hub_bert(tmp_path)


def test_an_untied_decoder_is_refused(tmp_path):
    folder(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    state["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"] + 1
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="not tied"):
        hub.load_hub_bert(tmp_path)


@pytest.mark.parametrize(
    ("kind", "cls"), [("GPT2Config", "GPT2LMHeadModel"), ("OpenAIGPTConfig", "OpenAIGPTLMHeadModel")]
)
def test_folders_of_gpt(tmp_path, kind, cls):
    torch.manual_seed(0)
    config = getattr(transformers, kind)(vocab_size=12, n_positions=10, n_embd=8, n_layer=2, n_head=2)
    model = getattr(transformers, cls)(config).eval()
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        assert_close(hub.load_hub_gpt(tmp_path)(IDS), model(IDS).logits, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match='not "bert"'):
        hub.load_hub_bert(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(stored | {"layer_norm_epsilon": 1e-3}))
    with pytest.raises(ValueError, match="1e-5"):
        hub.load_hub_gpt(tmp_path)


def test_the_hub_is_asked_only_on_demand(monkeypatch, tmp_path):
    asked = []
    model = folder(tmp_path / "fetched")
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **_: asked.append(name) or tmp_path / "fetched"
    )
    with pytest.raises(FileNotFoundError):
        hub.load_hub_bert("google-bert/bert-base-uncased")
    assert not asked
    mine, _ = hub.load_hub_bert("google-bert/bert-base-uncased", download=True)
    assert asked == ["google-bert/bert-base-uncased"]
    assert sum(p.numel() for p in mine.parameters()) == sum(p.numel() for p in model.parameters())


def test_k08_minilm_equals_transformers_layer_by_layer():
    mine, tokenizer = hub.minilm()
    assert sum(p.numel() for p in mine.parameters()) == 22_713_216
    theirs = transformers.AutoModel.from_pretrained(str(hub.minilm_folder()))
    theirs.eval()
    texts = ["The weather is very bad today, so we cancelled the outing.", "Café?"]
    rows = [tokenizer.encode(text).ids for text in texts]
    ids = torch.zeros(2, max(map(len, rows)), dtype=torch.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    with torch.no_grad():
        found = theirs(ids, attention_mask=(ids != 0).long(), output_hidden_states=True)
        states, pooled = mine.all_states(ids), mine(ids).pooled
    assert len(states) == 7
    for a, b in zip(states, found.hidden_states):
        assert_close(a[ids != 0], b[ids != 0], atol=1e-5, rtol=0)
    assert_close(pooled, found.pooler_output, atol=1e-5, rtol=0)
    assert len(tokenizer) == 30_522
