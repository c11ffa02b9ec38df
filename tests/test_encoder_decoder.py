"""BERT reads, GPT writes: GPT to the last digit before training, causal, deaf to padding, cached as uncached, able to learn."""

import copy

import pytest
import torch
from torch.testing import assert_close

from plm.bert import IGNORED, Bert, BertConfig
from plm.decode import greedy
from plm.encoder_decoder import EncoderDecoder
from plm.gpt import GPT, GPTConfig
from plm.leaks import influence

SMALL = {"n_heads": 2, "n_layers": 2, "dropout": 0.0}


def halves():
    torch.manual_seed(0)
    bert = Bert(BertConfig(vocab_size=20, n_positions=12, d_model=16, **SMALL))
    return bert, GPT(GPTConfig(vocab_size=15, n_positions=10, d_model=8, **SMALL)).eval()


def built(stirred=True):
    """With `stirred` the new attention says something, as after training."""
    bert, gpt = halves()
    model = EncoderDecoder(bert, gpt, dropout=0.0).eval()
    if stirred:
        for layer in model.decoder.layers:
            torch.nn.init.normal_(layer.cross_attention.w_o.weight)
    return model


SOURCE = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 3, 0, 0]])
TARGET = torch.tensor([[1, 4, 5, 6, 7], [1, 8, 9, 2, IGNORED]])


def test_before_training_it_is_the_gpt():
    bert, gpt = halves()
    model = EncoderDecoder(bert, gpt).eval()
    ids = TARGET.clamp(min=0)
    assert_close(model(SOURCE, ids), gpt(ids))
    assert model.tokens.weight.data_ptr() != gpt.tokens.weight.data_ptr()
    assert model.encoder.config.dropout == 0.1
    assert bert.config.dropout == 0.0


def test_causal_and_open_to_the_source():
    model = built()
    ids = TARGET[:1].clone()
    memory, mask = model.read(SOURCE[:1])
    seen = influence(lambda ids: model.write(ids, memory, mask), ids, 3)
    assert torch.equal(seen, seen.tril())
    other = SOURCE[:1].clone()
    other[0, 2] = 8
    assert not torch.allclose(model(other, ids), model(SOURCE[:1], ids))


def test_padding_changes_nothing():
    model = built()
    alone = model(SOURCE[1:, :3], TARGET[1:, :4])
    assert_close(model(SOURCE, TARGET.clamp(min=0))[1:, :4], alone)
    one = model.loss(SOURCE[1:, :3], TARGET[1:, :4])
    padded = torch.cat([TARGET[1:], torch.full((1, 2), IGNORED)], 1)
    assert_close(model.loss(SOURCE[1:], padded), one)


def test_cached_equals_uncached():
    model = built()
    state, found = model.start(SOURCE), []
    ids = TARGET[:, :4]
    for t in range(4):
        logits, state = model.step(ids[:, t], state)
        found.append(logits)
    assert_close(torch.stack(found, 1), model(SOURCE, ids))


def test_it_learns_by_heart_and_writes_it():
    model = built(stirred=False)
    source = torch.tensor([[2, 5, 3], [2, 6, 3]])
    target = torch.tensor([[1, 5, 6, 2], [1, 7, 2, IGNORED]])
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(80):
        optimizer.zero_grad()
        model.loss(source, target).backward()
        optimizer.step()
    found = greedy(model, source, start_id=1, end_id=2, max_len=8)
    assert [h.ids for h in found] == [[5, 6], [7]]
    twin = copy.deepcopy(model)
    assert_close(twin(source, target.clamp(min=0)), model(source, target.clamp(min=0)))


def test_bad_input_is_named():
    bert, _ = halves()
    post = GPT(GPTConfig(vocab_size=15, n_positions=10, d_model=8, norm="post", **SMALL))
    with pytest.raises(ValueError, match="pre-norm GPT"):
        EncoderDecoder(bert, post)
    with pytest.raises(ValueError, match="11 tokens do not fit into 10"):
        built()(SOURCE, torch.ones(2, 11, dtype=torch.int64))
