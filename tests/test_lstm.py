"""LSTM and GRU against torch's own, the gradient by hand against autograd, and against what must never change."""

import copy
import pickle
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from plm import lstm_scan
from plm.data import language_model_text
from plm.evaluate import perplexity
from plm.files import read_json
from plm.lstm import GRU, LSTM, gru_cell, lstm_cell
from plm.lstm_scan import LSTMScan
from plm.recurrent import RecurrentLM, RecurrentLMConfig
from plm.train import load_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
CASES = [
    {},
    {"n_layers": 2},
    {"bidirectional": True},
    {"n_layers": 2, "bidirectional": True},
    {"proj_size": 2},
    {"n_layers": 2, "bidirectional": True, "proj_size": 3},
]
B, T, D, H = 3, 7, 5, 4


def twins(kind="LSTM", dtype=torch.float64, **options):
    """Ours and torch's with the same random weights, larger than at the start, so that the gates saturate here and there."""
    torch.manual_seed(0)
    ours = {"LSTM": LSTM, "GRU": GRU}[kind](D, H, **options).to(dtype)
    for p in ours.parameters():
        nn.init.normal_(p, std=0.8)
    renamed = {"num_layers" if k == "n_layers" else k: v for k, v in options.items() if k != "by_hand"}
    theirs = getattr(nn, kind)(D, H, batch_first=True, **renamed).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def start(layer, batch, dtype=torch.float64):
    """A random initial state for either kind, that wants gradients."""
    rows = layer.n_layers * len(layer.directions)
    state = [torch.randn(rows, batch, w, dtype=dtype, requires_grad=True) for w in (layer.d_out, H)]
    return tuple(state) if isinstance(layer, LSTM) else state[1]


def flat(state):
    return list(state) if isinstance(state, tuple) else [state]


def everything(layer, x, state, lengths=None):
    """Outputs, last states, and the gradients of parameters, input and initial state for a loss that uses all of them."""
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    if lengths is None or isinstance(layer, LSTM | GRU):
        out, last = layer(x, state) if lengths is None else layer(x, state, lengths)
    else:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, last = layer(packed, state)
        out = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0]
    loss = sum((value * torch.randn(value.shape, dtype=value.dtype)).sum() for value in [out, *flat(last)])
    grads = torch.autograd.grad(loss, [x, *flat(state), *layer.parameters()])
    return [out, *flat(last), *grads]


# --- equals a reference -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [None, [7, 2, 5], [1, 7, 1]])
@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("options", CASES)
def test_lstm_equals_torch(options, by_hand, lengths):
    ours, theirs = twins(by_hand=by_hand, **options)
    x, state = torch.randn(B, T, D, dtype=torch.float64), start(ours, B)
    lengths = None if lengths is None else torch.tensor(lengths)
    for a, b in zip(everything(ours, x, state, lengths), everything(theirs, x, state, lengths), strict=True):
        assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("lengths", [None, [7, 2, 5]])
@pytest.mark.parametrize("options", CASES)
def test_lstm_equals_torch_in_single_precision(options, lengths):
    """float32 on a CPU takes the compiled cell."""
    ours, theirs = twins(dtype=torch.float32, **options)
    x, state = torch.randn(B, T, D), start(ours, B, torch.float32)
    lengths = None if lengths is None else torch.tensor(lengths)
    for a, b in zip(everything(ours, x, state, lengths), everything(theirs, x, state, lengths), strict=True):
        assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lengths", [None, [7, 2, 5]])
@pytest.mark.parametrize("options", CASES[:4])
def test_gru_equals_torch(options, lengths):
    ours, theirs = twins("GRU", **options)
    x, state = torch.randn(B, T, D, dtype=torch.float64), start(ours, B)
    lengths = None if lengths is None else torch.tensor(lengths)
    for a, b in zip(everything(ours, x, state, lengths), everything(theirs, x, state, lengths), strict=True):
        assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize(("batch", "steps"), [(1, 1), (1, 5), (4, 1), (2, 40)])
def test_batch_of_one_and_single_steps(kind, batch, steps):
    ours, theirs = twins(kind, n_layers=2, bidirectional=True)
    x, state = torch.randn(batch, steps, D, dtype=torch.float64), start(ours, batch)
    for a, b in zip(everything(ours, x, state), everything(theirs, x, state), strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-10)


def test_cells_equal_torchs_cells():
    torch.manual_seed(0)
    x, h, c = torch.randn(B, D), torch.randn(B, H), torch.randn(B, H)
    ref = nn.LSTMCell(D, H)
    ours = lstm_cell(x, h, c, ref.weight_ih, ref.weight_hh, ref.bias_ih + ref.bias_hh)
    assert_close(ours, ref(x, (h, c)))
    ref = nn.GRUCell(D, H)
    assert_close(gru_cell(x, h, ref.weight_ih, ref.weight_hh, ref.bias_ih, ref.bias_hh), ref(x, h))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("projection", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_gradient_by_hand_equals_finite_differences(reverse, projection, padded):
    torch.manual_seed(0)
    d_out = 2 if projection else 3
    shapes = [(4, 2, 2), (2, d_out), (2, 3), (12, 2), (12, d_out), (12,), (2, 3)]
    tensors = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    valid = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 0]]).bool()[:, :, None] if padded else None
    hr = () if projection else (None,)
    scan = partial(lambda *a: LSTMScan.apply(*a, *hr, valid, reverse))
    assert torch.autograd.gradcheck(scan, tensors[: 7 if projection else 6])


@pytest.mark.parametrize("lengths", [None, [7, 0, 4]])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_compiled_cell_equals_the_readable_one(bidirectional, lengths, monkeypatch):
    ours, _ = twins(dtype=torch.float32, bidirectional=bidirectional)
    x, state = torch.randn(B, T, D), start(ours, B, torch.float32)
    lengths = None if lengths is None else torch.tensor(lengths)
    fast = everything(ours, x, state, lengths)
    monkeypatch.setattr(lstm_scan, "_fast", lambda x: False)
    for a, b in zip(fast, everything(ours, x, state, lengths), strict=True):
        assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_compiled_cell_at_the_ends_of_the_scale():
    """Gates far beyond saturation, infinite and NaN inputs: as torch has them."""
    layer = LSTM(1, 2)
    for p in layer.parameters():
        nn.init.constant_(p, 1.0)
    reference = nn.LSTM(1, 2, batch_first=True)
    reference.load_state_dict(layer.state_dict())
    x = torch.tensor([[[200.0], [-200.0], [0.0]], [[float("inf")], [1.0], [2.0]], [[float("nan")], [1.0], [2.0]]])
    assert_close(layer(x)[0], reference(x)[0], equal_nan=True, rtol=1e-5, atol=1e-6)
    assert layer(x)[0][2].isnan().all()


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4, 1e-6])
def test_compiled_cell_keeps_the_digits_of_small_numbers(scale):
    """Near 0 tanh is its argument: as 2 sigmoid(2x) - 1 it would keep no digit of 1e-8."""
    ours, theirs = twins(dtype=torch.float32)
    with torch.no_grad():
        ours.weight_ih_l0.mul_(scale)
        for bias in (ours.bias_ih_l0, ours.bias_hh_l0):
            bias.zero_()
    theirs.load_state_dict(ours.state_dict())
    x, state = (
        torch.randn(B, T, D),
        (torch.zeros(1, B, H, requires_grad=True), torch.zeros(1, B, H, requires_grad=True)),
    )
    for a, b in zip(everything(ours, x, state), everything(theirs, x, state), strict=True):
        assert (a - b).norm() <= 3e-6 * b.norm()


# --- hand numbers -------------------------------------------------------------------------------------------------


def test_hand_numbers():
    """Gates wide open or shut: f = 1, i = 0 keeps the cell; f = 0, i = 1 replaces it by tanh(g)."""
    weights = torch.zeros(4, 1)
    for bias, c in (([-100, 100, 0, 100], 0.5), ([100, -100, 0.25, 100], torch.tensor(0.25).tanh().item())):
        h, new = lstm_cell(
            torch.ones(1, 1), torch.zeros(1, 1), torch.full((1, 1), 0.5), weights, weights, torch.tensor(bias)
        )
        assert_close(new, torch.full((1, 1), c))
        assert_close(h, new.tanh())


def test_gru_between_keeping_and_replacing():
    zeros = torch.zeros(3, 1)
    for z, wanted in ((100.0, 0.5), (-100.0, torch.tensor(0.25).tanh().item())):
        new = gru_cell(
            torch.ones(1, 1), torch.full((1, 1), 0.5), zeros, zeros, torch.tensor([0, z, 0.25]), torch.zeros(3)
        )
        assert_close(new, torch.full((1, 1), wanted))


def test_forget_bias_starts_where_it_is_told():
    layer = LSTM(3, 4, n_layers=2, forget_bias=1.5)
    for k in (0, 1):
        total = getattr(layer, f"bias_ih_l{k}") + getattr(layer, f"bias_hh_l{k}")
        assert_close(total[4:8], torch.full((4,), 1.5))
        assert (total[:4] != 1.5).all()


# --- invariants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LSTM, GRU])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padding_cannot_leak(kind, dtype):
    torch.manual_seed(0)
    layer = kind(D, H, n_layers=2, bidirectional=True).to(dtype)
    x, lengths = torch.randn(2, 6, D, dtype=dtype), torch.tensor([6, 4])
    poisoned = x.clone()
    poisoned[1, 4:] = float("nan")
    first, second = (everything(layer, v, start(layer, 2, dtype), lengths) for v in (x, poisoned))
    del first, second  # the states differ; below they are zeros
    results = []
    for v in (x, poisoned):
        v = v.clone().requires_grad_()
        out, last = layer(v, None, lengths)
        grads = torch.autograd.grad(out.sum() + sum(s.sum() for s in flat(last)), [v, *layer.parameters()])
        results.append([out, *flat(last), *grads])
    for a, b in zip(*results, strict=True):
        assert_close(a, b, rtol=0, atol=0)
    out, last = layer(x[1:, :4])
    assert_close(results[0][0][1:, :4], out)
    assert_close(results[0][1][:, 1:], flat(last)[0])
    assert results[0][0][1, 4:].abs().sum() == 0
    assert results[1][1 + len(flat(last))][1, 4:].abs().sum() == 0  # the gradient of the padding


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_one_direction_does_not_see_the_future(kind):
    layer, x = kind(D, H, n_layers=2), torch.randn(1, 6, D)
    changed = x.clone()
    changed[:, 4] += 1
    a, b = layer(x)[0], layer(changed)[0]
    assert torch.equal(a[:, :4], b[:, :4])
    assert (a[:, 4:] - b[:, 4:]).abs().min() > 0


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_two_halves_with_carried_state_equal_the_whole(kind):
    layer, x = kind(D, H, n_layers=2), torch.randn(2, 9, D)
    whole, last = layer(x)
    first, state = layer(x[:, :5])
    second, end = layer(x[:, 5:], state)
    assert_close(torch.cat([first, second], 1), whole)
    assert_close(end, last)


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_dropout_acts_between_layers_in_training_only(kind):
    layer, x = kind(D, H, n_layers=2, dropout=0.5), torch.randn(2, 6, D)
    assert (layer(x)[0] - layer(x)[0]).abs().max() > 1e-4
    layer.eval()
    assert_close(layer(x)[0], layer(x)[0], rtol=0, atol=0)
    single = kind(D, H, dropout=0.5)
    assert_close(single(x)[0], single(x)[0], rtol=0, atol=0)  # never after the last


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_copies_and_pickles(kind):
    layer, x = kind(D, H, bidirectional=True), torch.randn(2, 4, D)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert_close(twin(x)[0], layer(x)[0])


def test_second_backward_through_a_kept_graph_gives_the_same():
    layer, x = LSTM(D, H), torch.randn(2, 4, D)
    loss = layer(x)[0].square().sum()
    first = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)
    assert_close(torch.autograd.grad(loss, list(layer.parameters())), first, rtol=0, atol=0)


def test_gradient_of_a_gradient_is_refused_not_wrong():
    layer, x = LSTM(D, H), torch.randn(2, 4, D, requires_grad=True)
    (grad,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()
    layer.by_hand = False
    (grad,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
    grad.sum().backward()
    assert x.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_a_batch_of_no_sentence_has_no_gradient(kind):
    layer = kind(D, H, bidirectional=True)
    out, _ = layer(torch.randn(0, 3, D))
    out.sum().backward()
    assert out.shape == (0, 3, 2 * H)
    assert all(p.grad.abs().sum() == 0 for p in layer.parameters())


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [None, [4, 2]])
def test_autocast_leaves_the_scan_in_full_precision(given, lengths):
    layer, x = LSTM(D, H, n_layers=2, bidirectional=True), torch.randn(2, 4, D).to(given)
    lengths = None if lengths is None else torch.tensor(lengths)
    wanted, _ = layer(x.float(), None, lengths)
    wanted_grad = torch.autograd.grad(wanted.square().sum(), list(layer.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        out, state = layer(x, None, lengths)
        layer(x, state, lengths)  # a carried state
        grad = torch.autograd.grad(out.square().sum(), list(layer.parameters()))
    assert_close(out, wanted)
    assert_close(grad, wanted_grad)


# --- learns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_overfits_one_batch(kind):
    torch.manual_seed(0)
    layer, head = kind(D, 16), nn.Linear(16, 4)
    x, targets = torch.randn(8, 5, D), torch.randint(4, (8,))
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.02)
    for _ in range(150):
        loss = F.cross_entropy(head(layer(x)[0][:, -1]), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.02


# --- cases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_A07_an_empty_sentence_in_the_batch(kind):
    layer, x = kind(D, H, bidirectional=True), torch.randn(2, 3, D)
    out, last = layer(x, None, torch.tensor([2, 0]))
    assert_close(out[:1, :2], layer(x[:1, :2])[0])
    assert out[1].abs().sum() == 0
    assert all(s[:, 1].abs().sum() == 0 for s in flat(last))


def test_A08_final_states_of_a_two_layer_bidirectional_lstm():
    layer, x = LSTM(3, 4, n_layers=2, bidirectional=True), torch.randn(5, 7, 3)
    out, (h, _) = layer(x)
    assert h.shape == (4, 5, 4)
    assert_close(torch.cat([out[:, -1, :4], out[:, 0, 4:]], 1), torch.cat([h[-2], h[-1]], 1))
    assert (out[:, -1, 4:] - h[-1]).abs().max() > 1e-3  # the last step is not the end of the backward direction


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_A29_carried_state_without_its_graph(kind):
    layer, x, state = kind(D, H), torch.randn(3, 10, D), None
    for chunk in x.split(5, 1):
        out, state = layer(chunk, state)
        out.square().sum().backward()
        state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
    with pytest.raises(ValueError, match="smaller batch"):
        layer(x[:2], state)


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_K05_a_single_token(kind):
    out, _ = kind(D, H, n_layers=2, bidirectional=True)(torch.randn(1, 1, D))
    assert out.shape == (1, 1, 2 * H)
    assert out.isfinite().all()


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LSTM, GRU])
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m(torch.randn(2, D)), ValueError, r"must be \(B, T, 5\)"),
        (lambda m: m(torch.randn(2, 3, 4)), ValueError, r"must be \(B, T, 5\)"),
        (lambda m: m(torch.zeros(2, 3, D, dtype=torch.int64)), TypeError, "embedding"),
        (lambda m: m(torch.randn(2, 0, D)), ValueError, "no time step"),
        (lambda m: m(torch.randn(2, 3, D), None, torch.tensor([4, 1])), ValueError, "sentence 0 has 4"),
        (lambda m: m(torch.randn(2, 3, D), None, [1, 2]), ValueError, "integer tensor"),
    ],
)
def test_bad_input_is_named(kind, call, error, message):
    with pytest.raises(error, match=message):
        call(kind(D, H))


def test_bad_states_are_named():
    x = torch.randn(2, 3, D)
    with pytest.raises(TypeError, match=r"pair \(h, c\)"):
        LSTM(D, H)(x, torch.zeros(1, 2, H))
    with pytest.raises(ValueError, match=r"c must be a tensor \(1, 2, 4\)"):
        LSTM(D, H)(x, (torch.zeros(1, 2, H), torch.zeros(1, 2, H + 1)))
    for wrong in (torch.float64, torch.int64):  # whole numbers would be cut to whole numbers at each step
        with pytest.raises(TypeError, match=r"c must be torch\.float32"):
            LSTM(D, H)(x, (torch.zeros(1, 2, H), torch.zeros(1, 2, H, dtype=wrong)))
    with pytest.raises(ValueError, match="got tuple"):
        GRU(D, H)(x, (torch.zeros(1, 2, H), torch.zeros(1, 2, H)))


@pytest.mark.parametrize("changes", [{"d_in": 0}, {"d_hidden": 0}, {"n_layers": 0}, {"dropout": 1.0}, {"proj_size": 4}])
def test_bad_sizes_are_named(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        LSTM(**{"d_in": D, "d_hidden": H} | changes)


# --- what the book ships ------------------------------------------------------------------------------------------


def test_shipped_weights_give_the_stored_perplexity():
    """The file holds the run of seed 0, rounded to half precision, its tied table once."""
    state, config = load_checkpoint(CHAPTERS / "checkpoints" / "lstm.safetensors")
    model = RecurrentLM(RecurrentLMConfig(**config))
    model.load_state_dict(state | {"output.weight": state["embedding.weight"]})
    text = language_model_text(1_000_000)
    words = (w for s in text.train for w in s)
    vocab = Vocab.build(words, max_size=10_000, specials=LANGUAGE_MODEL_SPECIALS)
    stored = read_json(CHAPTERS / "results" / "recurrent_lm" / "lstm-1m-sentence-0.json")
    found = perplexity(model.token_log_probs([vocab.encode(s) for s in text.dev[: stored["dev_sentences"]]]))
    assert found == pytest.approx(stored["curve"][-1]["dev_perplexity"], rel=1e-3)


def test_stored_recall_separates_the_gated_layers_from_the_rnn():
    stored = read_json(CHAPTERS / "results" / "recall.json")
    at = stored["distances"].index(40)
    by_kind = {kind: [line[at] for line in lines] for kind, lines in stored["accuracy"].items()}
    assert all(len(found) == len(stored["seeds"]) for found in by_kind.values())
    assert max(by_kind["RNN"]) < min(min(by_kind["GRU"]), min(by_kind["LSTM"]))
