"""Reviews as a stream of tokens, and back to numbers per word."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from plm.bpe import BPE
from plm.data import language_model_text
from plm.gpt import GPT, GPTConfig
from plm.gpt_text import encode_document, judge, pack, pretraining_documents, sentence_text
from plm.model_files import load_gpt, save_gpt

DOCUMENTS = [[["a", "film", "."], ["good", "films", "!"]], [["film"]]]


@pytest.fixture(scope="module")
def tokenizer():
    return BPE.train(["a film . ", "good film ! ", "a good goods "] * 2, 32)


def model(tokenizer, **changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "n_positions": 6, "d_model": 8, "n_heads": 2, "n_layers": 1, "dropout": 0.0}
    return GPT(GPTConfig(**(sizes | {"init_std": 0.4} | changes)))


def test_a_document_is_its_sentences_between_special_tokens(tokenizer):
    ids = encode_document(tokenizer, DOCUMENTS[0])
    assert ids[0] == tokenizer.start_id
    assert ids[-1] == tokenizer.end_id
    assert ids.count(tokenizer.end_id) == 2
    assert tokenizer.decode(ids, specials=True) == "<s>a film . </s>good films ! </s>"


def test_rows_overlap_by_one_so_that_each_token_is_predicted_once():
    rows = pack([[1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11]], 3)
    assert rows.tolist() == [[1, 2, 3, 4], [4, 5, 6, 7], [7, 8, 9, 10]]
    assert rows.dtype == torch.int64
    # d10: short texts
    assert pack([[1, 2, 3, 4, 5]], 4).tolist() == [[1, 2, 3, 4, 5]]
    with pytest.raises(ValueError, match=r"4 tokens are too few for a single row of T \+ 1 = 5"):
        pack([[1, 2, 3, 4]], 4)
    with pytest.raises(ValueError, match="0 tokens"):
        pack([], 4)
    with pytest.raises(ValueError, match="at least 1"):
        pack([[1, 2]], 0)


def test_words_get_the_sum_of_their_tokens(tokenizer):
    gpt = model(tokenizer).eval()
    found = judge(gpt, tokenizer, DOCUMENTS)
    assert found.words == ["a", "film", ".", "</s>", "good", "films", "!", "</s>", "film", "</s>"]
    total, n_tokens, n_characters = 0.0, 0, 0
    for document in DOCUMENTS:
        ids = encode_document(tokenizer, document)
        total += gpt.token_log_probs(ids).sum()
        n_tokens += len(ids) - 1
        n_characters += sum(len(sentence_text(s)) + 1 for s in document)
    assert len(found.log_probs) == 10
    assert math.isclose(found.log_probs.sum(), total)
    assert (found.tokens, found.characters) == (n_tokens, n_characters)
    assert math.isclose(found.perplexity, math.exp(-total / 10))
    assert math.isclose(found.token_perplexity, math.exp(-total / n_tokens))
    assert math.isclose(found.bits_per_character, -total / math.log(2) / n_characters)
    # the last document alone: film is its first word
    alone = gpt.token_log_probs(encode_document(tokenizer, DOCUMENTS[1]))
    pieces = len(tokenizer.encode_word("film "))
    assert_close(torch.tensor(found.log_probs[-2:]), torch.tensor([alone[:pieces].sum(), alone[pieces:].sum()]))


def test_an_untrained_model_with_equal_scores_knows_nothing(tokenizer):
    gpt = model(tokenizer, init_std=0.0).eval()
    assert math.isclose(judge(gpt, tokenizer, DOCUMENTS).token_perplexity, len(tokenizer), rel_tol=1e-5)


def test_the_pretraining_text_is_that_of_the_word_models_and_holds_no_held_out_review():
    documents = pretraining_documents(30_000)
    sentences = {tuple(s) for d in documents for s in d}
    text = language_model_text(30_000)
    assert {tuple(s) for s in text.train} <= sentences
    long = {tuple(s) for s in text.test + text.dev if len(s) > 12}
    assert len(long & sentences) <= 0.001 * len(long)
    assert documents == pretraining_documents(30_000)
    with pytest.raises(ValueError, match="but the reviews hold"):
        pretraining_documents(10**9)


def test_a_checkpoint_brings_its_tokenizer_and_card(tokenizer, tmp_path):
    gpt = model(tokenizer).eval()
    path = save_gpt(tmp_path / "x.safetensors", gpt, tokenizer, {"data": "none"}, half=False)
    again, same, card = load_gpt(path)
    ids = torch.tensor([tokenizer.encode("a good film ")])
    assert torch.equal(again(ids), gpt(ids))
    assert same.config == tokenizer.config
    assert card == {"data": "none"}
    assert not again.training
    with pytest.raises(ValueError, match=r"has \d+ tokens, the model \d+"):
        save_gpt(path, gpt, BPE(tokenizer.tokens[:-1], tokenizer.merges[:-1]), {})


def test_bad_input_is_named(tokenizer):
    with pytest.raises(TypeError, match="list of words"):
        sentence_text("a film")
    with pytest.raises(TypeError, match="a list of sentences, each a list of words"):
        judge(model(tokenizer), tokenizer, [["a film"]])
    with pytest.raises(TypeError, match="a list of sentences, each a list of words"):
        judge(model(tokenizer), tokenizer, ["a film"])
    with pytest.raises(ValueError, match="no document"):
        judge(model(tokenizer), tokenizer, [])
    assert np.isfinite(judge(model(tokenizer), tokenizer, [[[]]]).log_probs).all()
