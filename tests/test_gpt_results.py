"""The shipped GPT is what its card and the stored results say."""

import json
from pathlib import Path

import pytest

from plm.data import review_sentences
from plm.gpt_text import judge
from plm.model_files import load_gpt

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
CHECKPOINT = CHAPTERS / "checkpoints" / "gpt.safetensors"
pytestmark = pytest.mark.skipif(not CHECKPOINT.exists(), reason="the GPT is not pretrained yet")


def test_the_card_of_the_gpt_is_true():
    model, tokenizer, card = load_gpt(CHECKPOINT)
    assert {"data", "licence", "command", "cpu_minutes", "tokens", "dev", "test"} <= card.keys()
    assert sum(p.numel() for p in model.parameters()) == card["parameters"]
    found = judge(model, tokenizer, review_sentences("imdb_test")[:20])
    assert found.bits_per_character == pytest.approx(card["first_20_test_reviews"]["bits_per_character"], abs=0.002)
    assert CHECKPOINT.stat().st_size < 10_000_000
    assert card["cpu_minutes"] <= 95


def test_results_and_table_agree_with_the_card():
    card = load_gpt(CHECKPOINT)[2]
    stored = json.loads((CHAPTERS / "results" / "gpt_pretraining.json").read_text(encoding="utf-8"))
    for name in ("command", "tokens", "parameters", "dev", "test"):
        assert stored[name] == card[name]
    table = json.loads((CHAPTERS / "results" / "perplexity.json").read_text(encoding="utf-8"))
    (row,) = [row for row in table if row["model"] == "GPT"]
    assert row["test"] == card["test"]["perplexity_per_word"]
    assert row["parameters"] == card["parameters"]
