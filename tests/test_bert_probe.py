"""The probes of chapter 11 read a sentence alike, whatever stands beside it in the batch."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "chapters" / "experiments"))
import bert_probe


@pytest.mark.parametrize("name", ["ELMo", "GPT", "BERT", "MiniLM"])
def test_a_longer_neighbour_changes_no_vector(name):
    reader = bert_probe.readers()[name]
    short = ["the", "film", "was", "good"]
    long = [*short, "and", "the", "story", "was", "bad"] * 4
    rows = [[reader.spell(word) for word in words] for words in (short, long)]
    places = [[*range(4)], []]
    alone = bert_probe.vectors(reader, rows[:1], places[:1])
    beside = bert_probe.vectors(reader, rows, places)
    np.testing.assert_allclose(alone, beside, rtol=1e-3, atol=1e-4)
