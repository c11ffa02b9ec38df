"""plm.rnn: equal to PyTorch's layers, by hand, at the edges, and with padding that cannot leak."""

import copy
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from plm.rnn import RNN, RNNCell, backward_through_time, last_output, mean_output

GRID = list(itertools.product((1, 2, 3), (False, True), ("tanh", "relu")))


def pair(n_layers=1, bidirectional=False, nonlinearity="tanh", d_in=4, d_hidden=5):
    ours = RNN(d_in, d_hidden, n_layers, bidirectional, nonlinearity).double()
    theirs = nn.RNN(
        d_in, d_hidden, n_layers, nonlinearity, batch_first=True, bidirectional=bidirectional, dtype=torch.float64
    )
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def gradients(model, outputs, state, x, h):
    weights = torch.arange(1.0, outputs.numel() + 1, dtype=outputs.dtype).view(outputs.shape).cos()
    loss = (outputs * weights).sum() + (state**2).sum()
    return torch.autograd.grad(loss, [x, h, *model.parameters()])


@pytest.mark.parametrize(("n_layers", "bidirectional", "nonlinearity"), GRID)
@pytest.mark.parametrize(("B", "T"), [(1, 1), (1, 6), (3, 1), (3, 6)])
def test_rnn_equals_torch(n_layers, bidirectional, nonlinearity, B, T):
    torch.manual_seed(0)
    ours, theirs = pair(n_layers, bidirectional, nonlinearity)
    x = torch.randn(B, T, 4, dtype=torch.float64, requires_grad=True)
    h = torch.randn(n_layers * (1 + bidirectional), B, 5, dtype=torch.float64, requires_grad=True)
    (a, a_n), (b, b_n) = ours(x, h), theirs(x, h)
    assert_close(a, b)
    assert_close(a_n, b_n)
    for mine, reference in zip(gradients(ours, a, a_n, x, h), gradients(theirs, b, b_n, x, h)):
        assert_close(mine, reference)


@pytest.mark.parametrize(("n_layers", "bidirectional", "nonlinearity"), GRID)
def test_padding_equals_packed(n_layers, bidirectional, nonlinearity):
    torch.manual_seed(1)
    ours, theirs = pair(n_layers, bidirectional, nonlinearity)
    x = torch.randn(4, 6, 4, dtype=torch.float64, requires_grad=True)
    h = torch.randn(n_layers * (1 + bidirectional), 4, 5, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([2, 6, 1, 4])
    a, a_n = ours(x, h, lengths)
    packed, b_n = theirs(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False), h)
    b = pad_packed_sequence(packed, batch_first=True, total_length=6)[0]
    assert_close(a, b)
    assert_close(a_n, b_n)
    for mine, reference in zip(gradients(ours, a, a_n, x, h), gradients(theirs, b, b_n, x, h)):
        assert_close(mine, reference)


def test_nothing_in_the_padding_reaches_output_or_gradient():
    ours, _ = pair(2, True, "relu")
    lengths = torch.tensor([3, 5, 1])
    clean = torch.randn(3, 5, 4, dtype=torch.float64)
    results = []
    for filling in (0.0, 1e30, float("nan"), float("inf")):
        x = clean.clone()
        for row, n in enumerate(lengths):
            x[row, n:] = filling
        x.requires_grad_()
        output, state = ours(x, None, lengths)
        grads = torch.autograd.grad(output.sum() + state.sum(), [x, *ours.parameters()])
        results.append([output, state, *grads])
        assert (grads[0][0, 3:] == 0).all()
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert_close(a, b, rtol=0, atol=0)


def test_long_padding_after_an_exploding_state_gives_finite_gradients():
    ours = RNN(2, 3, nonlinearity="relu")
    nn.init.constant_(ours.weight_hh_l0, 3.0)  # 9 ** 200 is beyond float32
    x = torch.ones(2, 200, 2)
    output, _ = ours(x, None, torch.tensor([2, 3]))
    output.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in ours.parameters())


def test_a_sentence_alone_and_padded_among_others_gives_the_same():
    ours, _ = pair(2, True)
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    alone, state = ours(x)
    batch = torch.cat([torch.cat([x, torch.randn(1, 4, 4, dtype=torch.float64)], 1), torch.randn(1, 7, 4).double()])
    output, states = ours(batch, None, torch.tensor([3, 7]))
    assert_close(output[:1, :3], alone)
    assert_close(states[:, :1], state)
    assert (output[0, 3:] == 0).all()


def test_state_dicts_travel_both_ways():
    ours, theirs = RNN(3, 4, 2, True), nn.RNN(3, 4, 2, batch_first=True, bidirectional=True)
    theirs.load_state_dict(ours.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 5, 3)
    assert_close(ours(x)[0], theirs(x)[0])


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_cell_equals_torch(nonlinearity):
    ours, theirs = RNNCell(3, 4, nonlinearity), nn.RNNCell(3, 4, nonlinearity=nonlinearity)
    theirs.load_state_dict(ours.state_dict())
    x, h = torch.randn(5, 3), torch.randn(5, 4)
    assert_close(ours(x, h), theirs(x, h))
    assert_close(ours(x), theirs(x))
    with pytest.raises(ValueError, match="one time step"):
        ours(x[None])
    with pytest.raises(ValueError, match="h must be"):
        ours(x, h[:2])


def test_hand_numbers():
    rnn = RNN(1, 1, nonlinearity="relu")
    rnn.load_state_dict({name: torch.zeros_like(p) for name, p in rnn.named_parameters()})
    with torch.no_grad():
        rnn.weight_ih_l0[:], rnn.weight_hh_l0[:], rnn.bias_ih_l0[:] = 2.0, 0.5, 1.0
    output, state = rnn(torch.tensor([[[1.0], [0.0], [3.0]]]))
    assert output.flatten().tolist() == [3.0, 2.5, 8.25]  # 2*1+1, 0.5*3+1, 2*3+1+0.5*2.5
    assert state.item() == 8.25


def test_dropout_lies_between_layers_only():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4)
    one, two = RNN(4, 50, 1, dropout=0.5), RNN(4, 50, 2, dropout=0.5)
    assert torch.equal(one(x)[0], one(x)[0])
    assert not torch.equal(two(x)[0], two(x)[0])
    first_layer = [two(x)[1][0] for _ in range(2)]
    assert torch.equal(*first_layer)
    two.eval()
    assert torch.equal(two(x)[0], two(x)[0])


@pytest.mark.parametrize("T", [1, 7])
def test_backward_through_time_equals_autograd(T):
    torch.manual_seed(0)
    rnn = RNN(3, 4).double()
    x = torch.randn(2, T, 3, dtype=torch.float64, requires_grad=True)
    h = torch.randn(1, 2, 4, dtype=torch.float64, requires_grad=True)
    outputs, _ = rnn(x, h)
    upstream = torch.randn_like(outputs)
    by_hand = backward_through_time(x, h[0], outputs, rnn.weight_ih_l0, rnn.weight_hh_l0, upstream)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")
    wanted = torch.autograd.grad((outputs * upstream).sum(), [*(getattr(rnn, n) for n in names), x, h])
    for mine, reference in zip(by_hand, wanted):
        assert_close(mine, reference.view_as(mine))


def test_a07_an_empty_sentence_in_a_batch():
    rnn, x = RNN(2, 3, 2, bidirectional=True), torch.randn(2, 2, 2)
    output, state = rnn(x, None, torch.tensor([2, 0]))
    assert (output[1] == 0).all()
    assert (state[:, 1] == 0).all()
    assert_close(output[0], rnn(x[:1])[0][0])
    assert torch.isfinite(mean_output(output, torch.tensor([2, 0]))).all()
    with pytest.raises(ValueError, match="1 …"):
        last_output(output, torch.tensor([2, 0]))


def test_a08_final_states_of_both_directions():
    rnn, x = RNN(3, 4, 2, bidirectional=True), torch.randn(5, 7, 3)
    output, state = rnn(x)
    assert state.shape == (4, 5, 4)
    final = torch.cat([output[:, -1, :4], output[:, 0, 4:]], 1)
    assert_close(final, torch.cat([state[-2], state[-1]], 1))
    assert (output[:, -1, 4:] - state[-1]).abs().max() > 0.01  # the reverse direction has read one word there


def test_a29_carried_state_and_a_smaller_last_batch():
    rnn, state = RNN(3, 4), None
    for _ in range(2):
        output, state = rnn(torch.randn(5, 6, 3), state)
        output.sum().backward()  # "through the graph a second time" unless the state is detached
        state = state.detach()
    with pytest.raises(ValueError, match="smaller batch"):
        rnn(torch.randn(2, 6, 3), state)
    assert rnn(torch.randn(2, 6, 3), state[:, :2])[0].shape == (2, 6, 4)


def test_k05_one_word():
    for bidirectional in (False, True):
        output, state = RNN(3, 4, 2, bidirectional)(torch.randn(1, 1, 3))
        assert torch.isfinite(output).all()
        assert state.shape == (2 * (1 + bidirectional), 1, 4)


def test_k07_mean_does_not_count_padding():
    rnn, x = RNN(3, 4), torch.randn(1, 2, 3)
    padded = torch.cat([x, torch.randn(1, 8, 3)], 1)
    two = torch.tensor([2])
    assert_close(mean_output(rnn(x)[0], two), mean_output(rnn(padded, None, two)[0], two))
    assert_close(last_output(rnn(padded, None, two)[0], two), rnn(x)[0][:, -1])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(x=torch.zeros(2, 3)), ValueError, "single sequence"),
        (dict(x=torch.zeros(2, 3, 5)), ValueError, r"\(B, T, 4\)"),
        (dict(x=torch.zeros(2, 3, 4, dtype=torch.int64)), TypeError, "embedding"),
        (dict(x=torch.zeros(2, 0, 4)), ValueError, "no time step"),
        (dict(x=torch.zeros(2, 3, 4), lengths=torch.tensor([1, 4])), ValueError, "sentence 1 has 4"),
        (dict(x=torch.zeros(2, 3, 4), lengths=torch.tensor([-1, 3])), ValueError, "sentence 0 has -1"),
        (dict(x=torch.zeros(2, 3, 4), lengths=torch.tensor([3])), ValueError, "one number per sentence"),
        (dict(x=torch.zeros(2, 3, 4), lengths=torch.tensor([1.0, 2.0])), ValueError, "integer"),
        (dict(x=torch.zeros(2, 3, 4), lengths=[1, 2]), ValueError, "tensor"),
        (dict(x=torch.zeros(2, 3, 4), lengths=torch.tensor([True, False])), ValueError, "integer"),
        (dict(x=torch.zeros(2, 3, 4), state=torch.zeros(2, 5)), ValueError, "state must be"),
        (dict(x=torch.zeros(2, 3, 4), state=(torch.zeros(1, 2, 5),) * 2), ValueError, "got tuple"),
    ],
)
def test_bad_input_is_refused_with_advice(arguments, error, message):
    with pytest.raises(error, match=message):
        RNN(4, 5)(**arguments)


@pytest.mark.parametrize("pool", [last_output, mean_output])
def test_pooling_refuses_lengths_that_do_not_fit(pool):
    """A mean over 3 steps must not be divided by 5, nor one length be taken for all sentences."""
    outputs = torch.ones(2, 3, 4)
    for wrong in ([5, 1], [-2, 1], [2], [1.0, 2.0]):
        with pytest.raises(ValueError, match="lengths must"):
            pool(outputs, torch.tensor(wrong))
    assert_close(pool(outputs, torch.tensor([1, 3], dtype=torch.uint8)), torch.ones(2, 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(d_in=0, d_hidden=1), "d_in"),
        (dict(d_in=1, d_hidden=1, n_layers=0), "n_layers"),
        (dict(d_in=1, d_hidden=1, dropout=1.0), "dropout"),
        (dict(d_in=1, d_hidden=1, nonlinearity="sigmoid"), "tanh, relu"),
    ],
)
def test_bad_sizes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RNN(**arguments)


def test_deepcopy_and_pickle():
    rnn, x = RNN(3, 4, 2, True, "relu"), torch.randn(2, 5, 3)
    for other in (copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn))):
        assert_close(other(x)[0], rnn(x)[0])
