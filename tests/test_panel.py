"""Several heads in one file: the same answers after reading it back, and plain words about what is wrong."""

import pytest
import torch

from plm.bert import Bert, BertConfig
from plm.downstream import text_example, text_scores
from plm.entities import labels_of
from plm.panel import HeadKind, build_head, chances, load_panel, names, places, save_panel
from plm.wordpiece import SPECIALS, WordPiece

TOKENIZER = WordPiece([*SPECIALS, *"天气预报显示今最高温度摄氏的是多少37"], characters=True)
KINDS = {
    "pair": HeadKind("text", ("yes", "no", "none")),
    "mean": HeadKind("text", ("bad", "good"), "mean"),
    "span": HeadKind("span"),
    "tag": HeadKind("tag", tuple(labels_of(("PER",)))),
}
WEATHER = "天气预报显示今天最高温度37摄氏度"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    torch.manual_seed(0)
    sizes = {"n_positions": 40, "d_model": 16, "n_heads": 2, "n_layers": 1}
    bert = Bert(BertConfig(vocab_size=len(TOKENIZER), **sizes))
    heads = {name: build_head(bert, kind).eval() for name, kind in KINDS.items()}
    path = save_panel(tmp_path_factory.mktemp("panel") / "p.safetensors", heads, KINDS, TOKENIZER, {"command": "x"})
    return heads, path


def test_read_back_all_heads_stand_on_one_encoder(stored):
    heads, path = stored
    panel = load_panel(path)
    assert len({id(head.bert) for head in panel.heads.values()}) == 1
    assert panel.kinds == KINDS
    assert not any(head.training for head in panel.heads.values())
    example = [text_example(TOKENIZER, "今天", "温度", 0)]
    for name in ("pair", "mean"):
        torch.testing.assert_close(
            text_scores(panel.heads[name], example), text_scores(heads[name], example), rtol=0.02, atol=0.02
        )  # stored in half precision


def test_answers_are_probabilities_of_what_was_asked(stored):
    panel = load_panel(stored[1])
    assert list(chances(panel, "pair", "今天", "温度")) == ["yes", "no", "none"]
    assert sum(chances(panel, "mean", "今天").values()) == pytest.approx(1)
    found = places(panel, "span", "最高温度是多少", WEATHER)
    assert found.tokens == ["[CLS]", *WEATHER]
    assert sum(found.start) == pytest.approx(1)
    assert sum(found.end) == pytest.approx(1)
    assert found.found.text in WEATHER
    said = names(panel, "tag", list("今天天气"))
    assert len(said.labels) == len(said.probability) == 4
    assert all(0 < p <= 1 for p in said.probability)


def test_bad_input_is_named(stored):
    heads, path = stored
    panel = load_panel(path)
    with pytest.raises(ValueError, match="'span' is no TextHead"):
        chances(panel, "span", "今")
    with pytest.raises(ValueError, match='"text", "span" or "tag"'):
        build_head(heads["span"].bert, HeadKind("words"))
    with pytest.raises(ValueError, match="on one encoder"):
        save_panel(path, heads, {}, TOKENIZER, {})
    other = path.with_name("other.safetensors")
    from plm.train import save_checkpoint

    save_checkpoint(other, heads["span"], {})
    with pytest.raises(ValueError, match="holds no panel"):
        load_panel(other)
