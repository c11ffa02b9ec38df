"""The recipe: three ways of starting, the same numbers from the same seed, measures against their definitions."""

import pytest
import torch

from plm.bert import Bert, BertConfig
from plm.downstream import (
    Recipe,
    batches,
    binary_f1,
    confusion,
    start,
    tag_scores,
    text_example,
    text_scores,
    tune,
    unfrozen,
)
from plm.heads import TextHead
from plm.wordpiece import SPECIALS, WordPiece

TOKENIZER = WordPiece([*SPECIALS, "good", "bad", "film", "a"])
TEXTS = ["a good film", "bad film", "good", "a bad bad film"]
DATA = [text_example(TOKENIZER, text, None, int("good" in text)) for text in TEXTS] * 4


def encoder():
    torch.manual_seed(1)
    return Bert(BertConfig(vocab_size=len(TOKENIZER), n_positions=12, d_model=16, n_heads=2, n_layers=1, dropout=0.0))


def tuned(way, seed=0, epochs=10):
    recipe = Recipe(way=way, epochs=epochs, lr=0.01, batch_size=4, seed=seed)
    torch.manual_seed(seed)
    head = TextHead(start(encoder(), way), 2)
    return head, tune(head, DATA, recipe)


def test_three_ways_of_starting():
    bert = encoder()
    before = {name: t.clone() for name, t in bert.state_dict().items()}
    for way in ("frozen", "fine-tuned"):
        copied = start(bert, way)
        assert all(torch.equal(t, before[name]) for name, t in copied.state_dict().items())
        assert copied.embedding.words.weight.data_ptr() != bert.embedding.words.weight.data_ptr()
    assert not torch.equal(start(bert, "scratch").embedding.words.weight, bert.embedding.words.weight)
    head = TextHead(start(bert, "frozen"), 2)
    assert unfrozen(head) == 2 * 16 + 2
    tune(head, DATA, Recipe(way="frozen", epochs=2))
    assert all(torch.equal(t, before[name]) for name, t in head.bert.state_dict().items())
    assert all(torch.equal(t, before[name]) for name, t in bert.state_dict().items())
    with pytest.raises(ValueError, match="frozen, fine-tuned, scratch"):
        start(bert, "thawed")


@pytest.mark.parametrize("way", ["fine-tuned", "scratch"])
def test_the_recipe_learns_and_repeats(way):
    head, history = tuned(way, epochs=40)
    assert not head.training
    assert len(history.losses) == 160
    found = text_scores(head, DATA)
    assert found.argmax(1).tolist() == [e.target for e in DATA]
    again, _ = tuned(way, epochs=40)
    assert torch.equal(text_scores(again, DATA), found)
    other, _ = tuned(way, seed=1, epochs=40)
    assert not torch.equal(text_scores(other, DATA), found)


def test_every_pass_shows_every_example_once():
    recipe = Recipe(epochs=3, batch_size=5)
    data = [e._replace(target=i) for i, e in enumerate(DATA)]
    seen = [t for batch in batches(data, recipe) for t in batch.targets]
    assert [sorted(seen[i : i + 16]) for i in (0, 16, 32)] == [list(range(16))] * 3
    assert seen[:16] != seen[16:32]
    assert seen == [t for batch in batches(data, recipe) for t in batch.targets]


def test_measures():
    assert confusion([0, 1, 1, 2], [0, 1, 2, 2], 3).tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 1]]
    assert binary_f1([1, 1, 0, 0], [1, 0, 1, 0]) == 0.5
    assert binary_f1([0], [0]) == 0
    score, wrong = tag_scores([["S-PER", "O"]], [["S-PER", "I-PER"]])
    assert score == (1, 1, 1)
    assert wrong == 2  # I behind S, and a name that is not ended
    with pytest.raises(ValueError, match="2 labels but 1 answers"):
        confusion([0, 1], [0], 2)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="no example"):
        tune(TextHead(encoder(), 2), [], Recipe())
    with pytest.raises(ValueError, match="got 0, 16"):
        Recipe(epochs=0)
    with pytest.raises(ValueError, match="not 'all'"):
        Recipe(way="all")
