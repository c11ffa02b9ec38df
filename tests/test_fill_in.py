"""plm.fill_in: gaps are read only where they are written, and each token can be hidden in turn."""

import pytest
import torch

from plm.bert import BertConfig, BertForPretraining
from plm.explore import Explorer
from plm.fill_in import Guess, complete_words, encode_gaps, fill_in, hide_each
from plm.wordpiece import SPECIALS, WordPiece

TOKENIZER = WordPiece([*SPECIALS, "the", "film", "is", "good", "bad", ".", "##s", "[", "]", "mask"])


def model():
    torch.manual_seed(0)
    return BertForPretraining(BertConfig(vocab_size=len(TOKENIZER), n_positions=16, d_model=8, n_heads=2, dropout=0.5))


def test_gaps_are_where_they_are_written():
    ids = encode_gaps(TOKENIZER, "the film is [MASK].")
    assert TOKENIZER.decode(ids) == "[CLS] the film is [MASK] . [SEP]"
    assert TOKENIZER.mask_id not in TOKENIZER.encode("the film is [MASK].").ids


def test_guesses_are_the_likeliest_pieces():
    m = model()
    first, second = fill_in(m, TOKENIZER, "the [MASK] is [MASK].", k=3)
    p = m.fill(torch.tensor([encode_gaps(TOKENIZER, "the [MASK] is [MASK].")]), TOKENIZER.mask_id)
    assert first[0].piece == TOKENIZER.pieces[p[0].argmax()]
    assert [g.probability for g in second] == sorted((g.probability for g in second), reverse=True)
    assert len(first) == len(second) == 3
    assert complete_words([Guess("##s", 0.5), Guess("film", 0.2)]) == [Guess("film", 0.2)]


def test_a19_what_a_rounded_up_table_has_beyond_the_pieces_is_never_guessed():
    wide = BertForPretraining(
        BertConfig(vocab_size=len(TOKENIZER) + 9, n_positions=20, d_model=8, n_heads=2, n_layers=1)
    )
    with torch.no_grad():
        wide.mlm.bias[len(TOKENIZER) :] = 1e9
    for k in (1, 3, 1000):
        [found] = fill_in(wide, TOKENIZER, "the [MASK]", k)
        assert len(found) == min(k, len(TOKENIZER))
        assert {guess.piece for guess in found} <= set(TOKENIZER.pieces)
    assert hide_each(wide, TOKENIZER, "the film", 1000)["tokens"] == ["the", "film"]


def test_each_token_is_hidden_in_turn():
    m = model()
    found = hide_each(m, TOKENIZER, "the films is good", k=len(TOKENIZER))
    assert found["tokens"] == ["the", "film", "##s", "is", "good"]
    (alone,) = fill_in(m, TOKENIZER, "the films [MASK] good", k=1)
    assert found["guesses"][3][0][0] == alone[0].piece
    for token, guesses, rank in zip(found["tokens"], found["guesses"], found["rank"]):
        assert guesses[rank - 1][0] == token
    state = {
        "sentences": [
            {"tokens": found["tokens"], "guesses": {"BERT": found["guesses"]}, "rank": {"BERT": found["rank"]}}
        ]
    }
    page = Explorer(
        "fill_in", state | {"sentence": 0, "hidden": 1, "models": ["BERT"]}, label="x", fallback="y"
    ).to_html()
    assert "films" not in page
    assert '"##s"' in page


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="no gap"):
        fill_in(model(), TOKENIZER, "the film")
    with pytest.raises(ValueError, match="at least one"):
        fill_in(model(), TOKENIZER, "[MASK]", k=0)
    with pytest.raises(ValueError, match="no token"):
        hide_each(model(), TOKENIZER, "  ")
