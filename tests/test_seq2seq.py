"""The encoder-decoder: against torch's LSTM, and padding that cannot leak, decoding that equals teacher forcing."""

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from plm.decode import beam_search, greedy
from plm.seq2seq import ATTENTION, END_ID, PAD_ID, START_ID, Seq2Seq, Seq2SeqConfig
from plm.train import load_checkpoint
from plm.translation import exact_matches, source_ids, translations, until_end

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
SOURCE = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]])
TARGET = torch.tensor([[2, 5, 6, 7, 8], [2, 9, 4, 4, 0]])


def model(attention: str = "none", seed: int = 0, **changes) -> Seq2Seq:
    torch.manual_seed(seed)
    sizes = {"d_emb": 6, "d_hidden": 8, "n_heads": 2 if attention == "multi-head" else 1}
    found = Seq2Seq(Seq2SeqConfig(11, 10, attention, **(sizes | changes))).eval()
    for p in found.parameters():
        nn.init.normal_(p, std=0.5)
    return found


each = pytest.mark.parametrize("attention", ATTENTION)


# --- equals a reference -------------------------------------------------------------------------------------------


def test_without_attention_it_is_two_lstms_and_a_vector():
    ours = model()
    encoder = nn.LSTM(6, 4, batch_first=True, bidirectional=True)
    decoder = nn.LSTM(6, 8, batch_first=True)
    encoder.load_state_dict(ours.encoder.state_dict())
    decoder.load_state_dict(ours.decoder.state_dict())
    for source, target in zip(SOURCE, TARGET):  # one at a time: no padding, nothing to get wrong
        source = source[source != PAD_ID]
        _, (h, c) = encoder(ours.source_embedding(source)[None])
        summary, c = h.transpose(0, 1).flatten(1), c.transpose(0, 1).flatten(1)
        start = torch.tanh(ours.bridge_h(summary)), ours.bridge_c(c)
        states, _ = decoder(ours.target_embedding(target)[None], (start[0][None], start[1][None]))
        both = torch.cat([summary[:, None].expand_as(states), states], -1)
        assert_close(ours(source[None], target[None]), ours.output(torch.tanh(ours.combine(both))))


def test_with_attention_only_the_vector_is_another():
    plain, attentive = model(), model("additive")
    attentive.load_state_dict(plain.state_dict(), strict=False)
    memory, h = attentive.encode(SOURCE), None
    h, _ = attentive.decoder(attentive.target_embedding(TARGET), tuple(s[None] for s in memory.start))
    context, weights = attentive.attention(h, memory.states, memory.states, memory.mask)
    expected = attentive.output(torch.tanh(attentive.combine(torch.cat([context, h], -1))))
    found = attentive.decode(TARGET, memory)
    assert_close(found.logits, expected)
    assert_close(found.weights[:, 0], weights)


# --- invariants ---------------------------------------------------------------------------------------------------


@each
def test_padding_cannot_leak(attention):
    ours = model(attention)
    alone = ours(SOURCE[1:, :2], TARGET[1:])
    assert_close(ours(SOURCE, TARGET)[1:], alone)
    longer = torch.cat([SOURCE, torch.zeros(2, 3, dtype=torch.int64)], 1)
    assert_close(ours(longer, TARGET), ours(SOURCE, TARGET))
    changed = model(attention)
    with torch.no_grad():
        changed.source_embedding.weight[PAD_ID] += 100
    assert torch.equal(changed(SOURCE, TARGET), ours(SOURCE, TARGET))


@each
def test_padding_gets_no_gradient(attention):
    ours = model(attention)
    ours(SOURCE, TARGET)[:, :2].sum().backward()
    assert ours.source_embedding.weight.grad[PAD_ID].abs().max() == 0


@each
def test_the_future_of_the_target_does_not_count(attention):
    ours, changed = model(attention), TARGET.clone()
    changed[:, 3:] = 1
    assert torch.equal(ours(SOURCE, changed)[:, :3], ours(SOURCE, TARGET)[:, :3])
    assert not torch.equal(ours(SOURCE, changed)[:, 3], ours(SOURCE, TARGET)[:, 3])


@each
def test_greedy_decoding_says_what_teacher_forcing_scores_highest(attention):
    ours = model(attention)
    ids, weights = ours.translate(SOURCE, max_length=7)
    fed = torch.cat([torch.full((2, 1), START_ID), ids[:, :-1]], 1)
    forced = ours.decode(fed, ours.encode(SOURCE))
    assert torch.equal(forced.logits.argmax(-1), ids)
    if attention == "none":
        assert weights is forced.weights is None
    else:
        assert_close(weights, forced.weights)
        assert weights.shape == (2, ours.config.n_heads, ids.shape[1], 4)
        assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
        assert weights[1, :, :, 2:].abs().max() == 0


@each
def test_greedy_and_beam_search_take_it(attention):
    ours = model(attention)
    how = {"start_id": START_ID, "end_id": END_ID, "max_len": 7}
    ids = ours.translate(SOURCE, max_length=7).ids.tolist()
    wanted = [row[: row.index(END_ID)] if END_ID in row else row for row in ids]
    assert [found.ids for found in greedy(ours, SOURCE, **how)] == wanted
    best = [found[0] for found in beam_search(ours, SOURCE, beam=4, alpha=0.0, **how)]
    for row, hypothesis in enumerate(best):  # its probability is the one that teacher forcing gives
        said = [*hypothesis.ids, END_ID] if hypothesis.finished else hypothesis.ids
        fed = torch.tensor([[START_ID, *said[:-1]]])
        length = int((SOURCE[row] != PAD_ID).sum())
        log_probs = ours(SOURCE[row : row + 1, :length], fed).log_softmax(-1)[0]
        total = log_probs[torch.arange(len(said)), torch.tensor(said)].sum()
        assert_close(total.item(), hypothesis.log_prob, rtol=1e-4, atol=1e-4)


def test_decoding_stops_when_all_have_ended():
    ours = model()
    with torch.no_grad():
        ours.output.bias[END_ID] = 1000
    assert ours.translate(SOURCE).ids.tolist() == [[END_ID], [END_ID]]
    with torch.no_grad():
        ours.output.bias[END_ID] = -1000
    assert ours.translate(SOURCE, max_length=5).ids.shape == (2, 5)


@each
def test_a24_dropout_acts_in_training_only_and_translate_leaves_the_mode(attention):
    ours = model(attention, dropout=0.5).train()
    assert not torch.equal(ours(SOURCE, TARGET), ours(SOURCE, TARGET))
    first, second = ours.translate(SOURCE, 5), ours.translate(SOURCE, 5)
    assert torch.equal(first.ids, second.ids)
    assert ours.training
    assert torch.equal(ours.eval()(SOURCE, TARGET), ours(SOURCE, TARGET))


@each
def test_k05_one_token(attention):
    ours = model(attention)
    assert torch.isfinite(ours(torch.tensor([[3]]), torch.tensor([[2]]))).all()


@each
def test_copies_pickles_and_double_precision(attention):
    ours = model(attention)
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert torch.equal(twin(SOURCE, TARGET), ours(SOURCE, TARGET))
    fresh = Seq2Seq(ours.config).eval()
    fresh.load_state_dict(ours.state_dict())
    assert_close(fresh.double()(SOURCE, TARGET), ours(SOURCE, TARGET).double(), atol=1e-4, rtol=1e-4)


@each
def test_a07_an_empty_source_is_named_and_an_empty_batch_is_empty(attention):
    ours = model(attention)
    with pytest.raises(ValueError, match="source 1 holds nothing"):
        ours(torch.tensor([[4, 3], [0, 0]]), TARGET)
    how = {"start_id": START_ID, "end_id": END_ID, "max_len": 3}
    assert greedy(ours, SOURCE[:0], **how) == beam_search(ours, SOURCE[:0], beam=2, **how) == []


@each
def test_a08_the_summary_is_the_last_state_of_each_direction(attention):
    memory = model(attention).encode(SOURCE)
    for row, n in enumerate((4, 2)):
        forward, backward = memory.states[row, n - 1, :4], memory.states[row, 0, 4:]
        assert torch.equal(memory.summary[row], torch.cat([forward, backward]))
        assert not torch.allclose(memory.summary[row, 4:], memory.states[row, n - 1, 4:])


@each
def test_a21_half_precision(attention):
    ours = Seq2Seq(model(attention).config).bfloat16().eval()
    assert ours(SOURCE, TARGET).isfinite().all()


@each
def test_a25_the_model_returns_scores_not_probabilities(attention):
    ours = model(attention)
    with torch.no_grad():
        ours.output.weight.zero_()
        ours.output.bias.copy_(60.0 * F.one_hot(torch.tensor(4), 10))
    assert F.cross_entropy(ours(SOURCE, TARGET).flatten(0, 1), torch.full((10,), 4)) < 1e-6


@each
def test_order_of_the_batch_does_not_matter(attention):
    ours = model(attention)
    assert_close(ours(SOURCE.flip(0), TARGET.flip(0)).flip(0), ours(SOURCE, TARGET))


# --- overfits one batch -------------------------------------------------------------------------------------------


@each
def test_one_batch_is_learnt(attention):
    ours = model(attention, d_hidden=16, dropout=0.0)
    for p in ours.parameters():
        if p.ndim > 1:
            nn.init.xavier_uniform_(p)
    wanted = torch.tensor([[5, 6, 7, 8, END_ID], [9, 4, 4, END_ID, -100]])
    optimizer = torch.optim.Adam(ours.parameters(), 2e-2)
    for _ in range(100):
        loss = F.cross_entropy(ours(SOURCE, TARGET).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05
    ids = ours.translate(SOURCE, 5).ids
    assert torch.equal(ids[0], wanted[0])
    assert torch.equal(ids[1, :4], wanted[1, :4])


# --- clear words --------------------------------------------------------------------------------------------------


def test_bad_input_is_named():
    ours = model()
    with pytest.raises(ValueError, match="not 'luong'"):
        Seq2SeqConfig(5, 5, "luong")
    with pytest.raises(ValueError, match="must be even"):
        Seq2SeqConfig(5, 5, d_hidden=7)
    with pytest.raises(ValueError, match="several heads"):
        Seq2SeqConfig(5, 5, "additive", n_heads=2)
    with pytest.raises(ValueError, match="dropout"):
        Seq2SeqConfig(5, 5, dropout=1.0)
    with pytest.raises(ValueError, match="source_size must be at least 1"):
        Seq2SeqConfig(0, 5)
    with pytest.raises(ValueError, match="only at the end"):
        ours(torch.tensor([[0, 4, 3, 1]]), TARGET[:1])
    with pytest.raises(ValueError, match="source 1 holds nothing"):
        ours(torch.tensor([[4, 3], [0, 0]]), TARGET)
    with pytest.raises(IndexError, match=r"source ids must lie in 0 … 10; got 3 … 11"):
        ours(torch.tensor([[11, 3]]), TARGET[:1])
    with pytest.raises(TypeError, match="source must be"):
        ours(torch.randn(1, 3), TARGET[:1])
    with pytest.raises(TypeError, match="target_in must be"):
        ours(SOURCE, TARGET[0])
    with pytest.raises(ValueError, match="2 sources, 1 targets"):
        ours(SOURCE, TARGET[:1])
    with pytest.raises(TypeError, match="source must be a tensor of ids"):
        ours([[4, 3]], TARGET)
    broken = copy.deepcopy(ours)
    nn.init.constant_(broken.output.bias, float("nan"))
    with pytest.raises(FloatingPointError, match="NaN"):
        broken.translate(SOURCE)
    with pytest.raises(ValueError, match="max_length"):
        ours.translate(SOURCE, 0)


# --- what the book ships ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["none", "additive", "4 heads"])
def test_shipped_models_translate_as_recorded(arm):
    stored = json.loads((CHAPTERS / "results" / "attention_translation.json").read_text(encoding="utf-8"))
    runs = {run["seed"]: run for run in stored["runs"][arm]}
    assert sorted(runs) == stored["seeds"]
    file = {"4 heads": "multi_head"}.get(arm, arm)
    state, config = load_checkpoint(CHAPTERS / "checkpoints" / f"seq2seq_{file}.safetensors")
    shipped = Seq2Seq(Seq2SeqConfig(**config))
    shipped.load_state_dict(state)
    data = translations()
    phrases = data.test[:200]
    written = until_end(shipped.translate(source_ids(phrases, data.source_vocab)).ids, data.target_vocab)
    recorded = [hit == "1" for hit in runs[0]["hits"][:200]]
    # Half precision and another processor may tip a translation that was on the edge.
    assert (exact_matches(written, phrases) != recorded).sum() <= 4
