"""plm.entities: labels and names, there and back, and the strict score."""

import random

import pytest

from plm.entities import entity_f1, from_iobes, labels_of, to_iobes


def test_thirteen_labels():
    assert len(labels_of(["PER", "LOC", "ORG"])) == 13
    assert labels_of(["PER"]) == ["O", "B-PER", "I-PER", "E-PER", "S-PER"]


def test_there_and_back():
    rng = random.Random(0)
    for _ in range(200):
        n, at, spans = 20, 0, []
        while at < n:
            size = rng.randint(1, 4)
            if rng.random() < 0.5 and at + size <= n:
                spans.append((at, at + size, rng.choice(["PER", "LOC"])))
            at += size
        assert from_iobes(to_iobes(n, spans)) == spans


@pytest.mark.parametrize(
    ("gold", "found", "score"),
    [("B-PER E-PER S-PER", "B-PER I-PER S-PER", (1.0, 0.5, 0.667)), ("B-X E-X", "I-X E-X", (0, 0, 0)),
     ("B-X E-X B-X E-X", "B-X I-X I-X E-X", (0, 0, 0)), ("O O", "O O", (0, 0, 0)), ("B-X E-X", "B-X E-Y", (0, 0, 0)),
     ("S-X", "S-X", (1, 1, 1)), ("B-X I-X E-X", "B-X I-Y E-X", (0, 0, 0))],
)  # fmt: skip
def test_c20_strict_score(gold, found, score):
    spans = [from_iobes(labels.split()) for labels in (gold, found)]
    assert entity_f1([spans[0]], [spans[1]]) == pytest.approx(score, abs=1e-3)


def test_c23_a_set_without_names_scores_nought_without_an_error():
    with pytest.warns(UserWarning, match="no name to be found"):
        assert entity_f1([[], []], [[], [(0, 1, "PER")]]) == (0, 0, 0)
    with pytest.warns(UserWarning, match="no name to be found"):
        assert entity_f1([[(0, 1, "PER")]], [[(0, 1, "PER")]], "LOC").f1 == 0


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="overlaps"):
        to_iobes(5, [(0, 3, "PER"), (2, 4, "LOC")])
    with pytest.raises(ValueError, match="lie in"):
        to_iobes(2, [(1, 3, "PER")])
    for label in ("X-PER", "B", "O-PER", ""):
        with pytest.raises(ValueError, match="label 1"):
            from_iobes(["O", label])
    with pytest.raises(ValueError, match="sentences"):
        entity_f1([[]], [])
