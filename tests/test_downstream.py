"""The recipe: three ways of starting, the same numbers from the same seed, measures against their definitions."""

import pytest
import torch

from plm.bert import Bert, BertConfig
from plm.downstream import (
    Recipe,
    batches,
    binary_f1,
    confusion,
    read_once,
    start,
    tag_scores,
    text_example,
    text_scores,
    tune,
    tune_together,
    unfrozen,
)
from plm.heads import SpanHead, TextHead
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


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_a_frozen_encoder_reads_once_and_teaches_the_same(pool):
    """Against the plain loop that reads in every pass; without dropout, both draw the same."""
    recipe = Recipe(way="frozen", epochs=4, lr=0.01, batch_size=4)
    found = []
    for plain in (False, True):
        torch.manual_seed(3)
        head = TextHead(start(encoder(), "frozen"), 2, dropout=0.0, pool=pool)
        if plain:  # one number that moves by nothing makes the encoder count as trained
            head.bert.pooler.bias.requires_grad_(True)
            head.bert.pooler.bias.register_hook(torch.zeros_like)
        found.append((tune(head, DATA, recipe).losses, head.output.weight))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)


def test_what_was_read_once_knows_no_padding():
    head = TextHead(encoder(), 2, pool="mean")
    head.train()
    alone = [read_once(head, [e])[0] for e in DATA[:4]]
    together = read_once(head, DATA[:4])
    assert head.training
    for a, b in zip(alone, together):
        torch.testing.assert_close(a, b)
    spans = read_once(SpanHead(encoder()), DATA[:2])
    assert [len(t) for t in spans] == [len(e.ids) for e in DATA[:2]]


def test_two_heads_share_one_encoder():
    torch.manual_seed(0)
    bert = start(encoder(), "fine-tuned", dropout=0.0)
    heads = {"good": TextHead(bert, 2, 0.0), "bad": TextHead(bert, 2, 0.0)}
    bad = [e._replace(target=int("bad" in text)) for e, text in zip(DATA, TEXTS * 4)]
    examples = {"good": DATA, "bad": bad}
    history = tune_together(heads, examples, Recipe(epochs=30, lr=0.01, batch_size=4))
    assert len(history.losses) == 240
    for name, head in heads.items():
        assert head.bert is bert
        assert not head.training
        assert text_scores(head, examples[name]).argmax(1).tolist() == [e.target for e in examples[name]]
    with pytest.raises(ValueError, match="each head needs examples"):
        tune_together(heads, {"good": DATA}, Recipe())
    with pytest.raises(ValueError, match="several encoders"):
        tune_together({"good": heads["good"], "bad": TextHead(encoder(), 2)}, examples, Recipe())
