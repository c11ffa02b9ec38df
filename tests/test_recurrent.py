"""plm.recurrent: like for like with the n-gram models, no look ahead, carried state, text in order, generation."""

import copy
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from plm.data import reviews
from plm.files import read_json
from plm.recurrent import (
    RecurrentLM,
    RecurrentLMConfig,
    SentenceBatches,
    TextLanes,
    detach,
    generate,
    pad_sentences,
    text_stream,
)
from plm.train import load_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

V = 12
SENTENCES = [[3, 4, 5], [6], [], [7, 8, 9, 10, 11, 3, 4], [5, 5]]


def model(**options):
    torch.manual_seed(0)
    lm = RecurrentLM(RecurrentLMConfig(V, d_emb=6, d_hidden=8, **options))
    for parameter in lm.parameters():  # larger than the initial values, so that differences show
        nn.init.normal_(parameter, std=0.5)
    return lm


def test_one_by_one_equals_the_sum_of_single_predictions():
    lm = model()
    wanted = [
        math.log(lm.distribution(sentence[:i])[word])
        for sentence in SENTENCES
        for i, word in enumerate([*sentence, lm.config.end_id])
    ]
    for batch_size in (1, 2, 64):
        np.testing.assert_allclose(lm.token_log_probs(SENTENCES, batch_size=batch_size), wanted, atol=1e-5)


def test_distribution_sums_to_one_and_uses_the_whole_past():
    lm = model()
    p = lm.distribution([3, 4, 5, 6, 7])
    assert abs(p.sum() - 1) < 1e-9
    assert np.abs(p - lm.distribution([9, 4, 5, 6, 7])).max() > 1e-6


def test_carried_state_crosses_sentences_and_chunks():
    lm = model()
    carried = lm.token_log_probs(SENTENCES, carry=True)
    assert_close(lm.token_log_probs(SENTENCES, carry=True, chunk=3), carried, rtol=1e-5, atol=1e-6)
    alone = lm.token_log_probs(SENTENCES)
    np.testing.assert_allclose(carried[:4], alone[:4], atol=1e-5)  # the first sentence has no past
    assert np.abs(carried[4:] - alone[4:]).max() > 1e-3


def test_no_look_ahead():
    lm = model(n_layers=2)
    a, b = torch.randint(3, V, (1, 9)), torch.randint(3, V, (1, 9))
    b[:, :5] = a[:, :5]
    assert_close(lm.eval()(a)[0][:, :5], lm(b)[0][:, :5], rtol=0, atol=0)


def test_dropout_is_off_in_measures_and_modes_are_kept():
    lm = model(dropout=0.5)
    lm.drop.eval()  # frozen by hand
    found = [m.training for m in lm.modules()]
    assert np.array_equal(lm.token_log_probs(SENTENCES), lm.token_log_probs(SENTENCES))
    assert generate(lm, 5, seed=1) == generate(lm, 5, seed=1)
    assert [m.training for m in lm.modules()] == found
    lm.train()
    ids = torch.randint(3, V, (2, 5))
    assert not torch.equal(lm(ids)[0], lm(ids)[0])


def test_a22_tied_tables_are_one_parameter():
    for d_hidden in (6, 8):
        lm = RecurrentLM(RecurrentLMConfig(V, d_emb=6, d_hidden=d_hidden))
        assert lm.output.weight is lm.embedding.weight
        other = copy.deepcopy(lm)
        other.load_state_dict(lm.state_dict())
        assert other.output.weight is other.embedding.weight
        assert sum(p.data_ptr() == lm.output.weight.data_ptr() for p in lm.parameters()) == 1
    untied = RecurrentLM(RecurrentLMConfig(V, d_emb=6, d_hidden=8, tied=False))
    assert untied.output.weight.shape == (V, 8)


def test_untrained_it_is_the_unigram_model():
    lm = RecurrentLM(RecurrentLMConfig(V, d_emb=6, d_hidden=8, tied=False))
    _, targets = text_stream(SENTENCES)
    lm.start_from_counts(targets)
    counts = np.bincount(targets.numpy(), minlength=V) + 1
    np.testing.assert_allclose(lm.distribution([3, 4]), counts / counts.sum(), rtol=1e-5)


def test_text_stream_and_padding():
    inputs, targets = text_stream([[3, 4], [5]])
    assert inputs.tolist() == [1, 3, 4, 1, 5]
    assert targets.tolist() == [3, 4, 2, 5, 2]
    inputs, targets, lengths = pad_sentences([[3, 4], []])
    assert inputs.tolist() == [[1, 3, 4], [1, 2, 2]]
    assert targets.tolist() == [[3, 4, 2], [2, -100, -100]]
    assert lengths.tolist() == [3, 1]


def test_lanes_go_on_where_they_stopped():
    tokens = torch.arange(23)
    lanes = TextLanes(tokens, tokens + 1, 3, 3)
    rows = torch.cat([x for x, _ in lanes], 1)
    assert rows.tolist() == [list(range(7)), list(range(7, 14)), list(range(14, 21))]
    assert all(torch.equal(y, x + 1) for x, y in lanes)
    assert [x.shape[1] for x, _ in lanes] == [3, 3, 1]
    assert len(lanes) == 3
    assert next(iter(TextLanes(tokens, tokens, 3, 3, shift=5)))[0][0].tolist() == [5, 6, 7]
    with pytest.raises(ValueError, match="lanes"):
        TextLanes(tokens, tokens, 24, 3)


def test_sentence_batches_hold_every_prediction_once():
    batches = SentenceBatches(SENTENCES * 5, tokens=20, longest=4)
    for _ in range(2):
        targets = torch.cat([y[y >= 0] for _, y, _ in batches])
        assert sorted(targets.tolist()) == sorted(text_stream(SENTENCES * 5)[1].tolist())
    for x, y, lengths in batches:
        assert x.numel() <= 20
        assert ((y >= 0).sum(1) == lengths).all()
    orders = [[tuple(x.flatten().tolist()) for x, _, _ in SentenceBatches(SENTENCES * 5, 20, s)] for s in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("T", [4, 100])
def test_a29_truncated_back_propagation(T):
    lm, state = model(), None
    tokens = torch.randint(3, V, (60,))
    for x, y in TextLanes(tokens, tokens.roll(-1), 2, T):
        logits, state = lm(x, state)
        F.cross_entropy(logits.flatten(0, 1), y.flatten()).backward()
        state = detach(state)
    pair = detach((state.clone().requires_grad_(), state))
    assert isinstance(pair, tuple)
    assert not any(part.requires_grad for part in pair)
    assert detach(None) is None


def test_generation():
    lm = model()
    with torch.no_grad():
        lm.output.bias[lm.config.end_id] = -1e9
        lm.output.bias[lm.config.start_id] = 50.0
    assert lm.config.start_id not in generate(lm, 40, temperature=5.0, seed=0)
    greedy = [int(np.argmax(p)) for p in [lm.distribution([4])]]
    with torch.no_grad():
        lm.output.bias[lm.config.start_id] = 0.0
    for temperature in (0, 1e-8):
        found = generate(lm, 6, [4], temperature)
        assert len(found) == 6
        assert found == generate(lm, 6, [4], temperature)
        for i, word in enumerate(found):
            p = lm.distribution([4, *found[:i]])
            p[lm.config.start_id] = 0
            assert word == p.argmax()
    assert greedy == [lm.config.start_id]  # which generate does not draw
    assert generate(lm, 0) == []
    with torch.no_grad():
        lm.output.bias[lm.config.end_id] = 1e9
    assert generate(lm, 10) == []
    with pytest.raises(ValueError, match="at least 0"):
        generate(lm, 3, temperature=-1)


def test_overfits_one_batch():
    lm = RecurrentLM(RecurrentLMConfig(V, d_emb=16, d_hidden=32))
    optimizer = torch.optim.Adam(lm.parameters(), 1e-2)
    inputs, targets, lengths = pad_sentences(SENTENCES[:1] + SENTENCES[3:])
    for _ in range(150):
        loss = F.cross_entropy(lm(inputs, None, lengths)[0].flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # The first word of each sentence is a draw among three: log(3) in 3 of 15 predictions cannot be learnt.
    assert loss < 0.32


def test_any_layer_and_precision():
    class Torch(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(6, 8, batch_first=True)

        def forward(self, x, state=None, lengths=None):
            return self.rnn(x, state)

    lm = RecurrentLM(RecurrentLMConfig(V, d_emb=6, d_hidden=8), Torch()).double()
    carried = lm.token_log_probs(SENTENCES, carry=True, chunk=3)
    np.testing.assert_allclose(carried, lm.token_log_probs(SENTENCES, carry=True), atol=1e-9)
    again = pickle.loads(pickle.dumps(model()))
    assert_close(again.token_log_probs(SENTENCES), model().token_log_probs(SENTENCES))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(kind="mlp"), "rnn, gru, lstm"),
        (dict(d_emb=0), "d_emb"),
        (dict(dropout=1.0), "dropout"),
        (dict(end_id=V), "end_id"),
    ],
)
def test_bad_configs(options, message):
    with pytest.raises(ValueError, match=message):
        RecurrentLMConfig(V, **options)


def test_bad_ids_and_sentences():
    lm = model()
    with pytest.raises(TypeError, match="int64"):
        lm(torch.zeros(2, 3))
    with pytest.raises(TypeError, match="int64"):
        lm(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(IndexError, match="0 … 11"):
        lm(torch.tensor([[12]]))
    for carry in (False, True):
        with pytest.raises(ValueError, match="no sentence"):
            lm.token_log_probs([], carry)
    for wrong in (["a word"], [["a", "word"]]):
        with pytest.raises(TypeError, match="strings"):
            lm.token_log_probs(wrong)


def test_the_shipped_character_model_reaches_its_bits():
    chapters = Path(__file__).resolve().parents[1] / "chapters"
    state, config = load_checkpoint(chapters / "checkpoints" / "rnn_characters.safetensors")
    alphabet = Vocab(config.pop("tokens"), LANGUAGE_MODEL_SPECIALS)
    writer = RecurrentLM(RecurrentLMConfig(**config))
    writer.load_state_dict(state)
    texts = [alphabet.encode(list(r.text.replace("\n", " "))) for r in reviews("imdb_dev")[:20]]
    bits = -writer.token_log_probs(texts, carry=True).mean() / math.log(2)
    stored = read_json(chapters / "results" / "rnn_characters.json")
    assert abs(bits - stored["dev_bits"]) < 0.1  # twenty reviews of the 150 or so
    assert stored["ngram_bits"]["7"] < stored["dev_bits"] < stored["ngram_bits"]["5"]


BAD_SENTENCES = [
    ([[3, 1, 4]], ValueError, "without <s>"),  # <s> would be predicted, and count
    ([[3, 4, 2]], ValueError, "without <s>"),  # </s> would count twice
    ([[3, 4], [3.7, 4.2]], TypeError, "integer ids"),
    ([[3], ["a"]], TypeError, "not strings"),
    ([3, 4], TypeError, "one sentence"),
    ([iter([3, 4])], TypeError, "len"),  # read once for the check, it would be empty for the text
]


@pytest.mark.parametrize(("sentences", "error", "message"), BAD_SENTENCES)
def test_sentences_are_checked_as_for_the_ngram_models(sentences, error, message):
    lm = model()
    for use in (
        lm.token_log_probs,
        lambda s: lm.token_log_probs(s, carry=True),
        text_stream,
        pad_sentences,
        lambda s: SentenceBatches(s, 8),
    ):
        with pytest.raises(error, match=message):
            use(sentences)


@pytest.mark.parametrize("carry", [False, True])
def test_half_precision_does_not_round_the_log_probabilities(carry):
    lm = model().bfloat16()
    found = lm.token_log_probs(SENTENCES, carry)
    assert (found != torch.tensor(found).bfloat16().double().numpy()).any()
