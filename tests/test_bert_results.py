"""The shipped BERTs are what their cards say."""

from pathlib import Path

import pytest
import torch

from plm.bert_data import encode_documents, english
from plm.chinese import chinese_texts
from plm.masking import MaskingConfig, PretrainingBatches
from plm.model_files import load_bert

CHECKPOINTS = Path(__file__).resolve().parents[1] / "chapters" / "checkpoints"
# The dev batches of chapters/experiments/bert_pretrain.py: lengths of rows, and their shares.
ROWS = {"bert": ((64, 128), [0.5, 0.5]), "bert_zh": ((32, 64, 128), [0.2, 0.4, 0.4])}


@pytest.mark.parametrize("name", ROWS)
def test_measures_are_those_of_the_card(name):
    path = CHECKPOINTS / f"{name}.safetensors"
    if not path.exists():
        pytest.skip(f"{path.name} is not trained yet")
    assert path.stat().st_size <= 10 * 2**20
    model, tokenizer, card = load_bert(path)
    assert {"data", "command", "licence", "cpu_minutes", "tokens"} <= card.keys()
    texts = english("dev") if name == "bert" else chinese_texts("dev")
    lengths, shares = ROWS[name]
    batches = PretrainingBatches(
        encode_documents(texts, tokenizer), tokenizer, MaskingConfig(rate=0.15, mask=1.0, random=0.0),
        tokens=4096, lengths=lengths, shares=shares, seed=1,
    )  # fmt: skip
    right, n = {"mlm": 0, "nsp": 0}, {"mlm": 0, "nsp": 0}
    with torch.no_grad():
        for _ in range(12):
            batch = batches.next()
            guesses = model(batch["ids"], segments=batch["segments"], positions=batch["positions"])
            for kind, logits, targets in (
                ("mlm", guesses.mlm, batch["targets"]),
                ("nsp", guesses.nsp, batch["is_next"]),
            ):
                right[kind] += int((logits.argmax(-1) == targets).sum())
                n[kind] += len(targets)
    for kind in right:  # stored in half precision: a few guesses may tip over
        assert right[kind] / n[kind] == pytest.approx(card[f"{kind}_accuracy"], abs=0.003 if kind == "mlm" else 0.01)
