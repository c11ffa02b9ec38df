"""plm.layers against torch's Transformer layers (outputs, weights, gradients), against hand numbers, and what must not change."""

import copy
import pickle
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from plm.attention import KVCache, causal_mask, padding_mask
from plm.layers import (
    AddNorm,
    Decoder,
    DecoderCache,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerConfig,
    LayerNorm,
    sinusoidal_positions,
)

SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
NORMS = ["pre", "post"]


def shaken(module: nn.Module, seed: int = 0) -> nn.Module:
    """Every parameter random: as built, norms and biases are ones and zeros and hide faults."""
    torch.manual_seed(seed)
    for p in module.parameters():
        nn.init.normal_(p, std=0.4)
    return module


@torch.no_grad()
def load_torch(ours: nn.Module, theirs: nn.Module) -> None:
    """Copy the weights of torch's encoder or decoder layer."""
    ours.attention.load_torch(theirs.self_attn)
    around = [ours.around_attention, ours.around_feed_forward]
    if isinstance(ours, DecoderLayer):
        ours.cross_attention.load_torch(theirs.multihead_attn)
        around.insert(1, ours.around_cross_attention)
    ours.feed_forward.widen.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.narrow.load_state_dict(theirs.linear2.state_dict())
    for i, add_norm in enumerate(around, 1):
        add_norm.norm.load_state_dict(getattr(theirs, f"norm{i}").state_dict())


def torch_layer(kind, norm, activation="relu", dropout=0.0):
    args = {"dropout": dropout, "activation": activation, "batch_first": True, "norm_first": norm == "pre"}
    return kind(8, 2, 12, layer_norm_eps=1e-5, **args)


def copied(norm, kind="encoder", activation="relu"):
    """One of our layers and torch's, with the same random weights."""
    ours = (EncoderLayer if kind == "encoder" else DecoderLayer)(LayerConfig(**SIZES, norm=norm, activation=activation))
    theirs = nn.TransformerEncoderLayer if kind == "encoder" else nn.TransformerDecoderLayer
    theirs = shaken(torch_layer(theirs, norm, activation))
    load_torch(ours, theirs)
    return ours, theirs


def gradients_equal(ours, theirs):
    """Gradients of the parts that have the same shape in both modules."""
    pairs = [(ours.feed_forward.widen, theirs.linear1), (ours.feed_forward.narrow, theirs.linear2)]
    pairs += [(ours.around_attention.norm, theirs.norm1), (ours.attention.w_o, theirs.self_attn.out_proj)]
    for mine, other in pairs:
        assert_close(mine.weight.grad, other.weight.grad, rtol=1e-4, atol=1e-5)
        assert_close(mine.bias.grad, other.bias.grad, rtol=1e-4, atol=1e-5)
    stacked = torch.cat([layer.weight.grad for layer in (ours.attention.w_q, ours.attention.w_k, ours.attention.w_v)])
    assert_close(stacked, theirs.self_attn.in_proj_weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("masked", ["nothing", "padding", "future", "both"])
def test_encoder_layer_equals_torch(norm, activation, masked):
    ours, theirs = copied(norm, activation=activation)
    ids = torch.tensor([[3, 4, 5, 6, 7], [3, 4, 5, 0, 0]])
    x = torch.randn(2, 5, 8, requires_grad=True)
    x2 = x.detach().clone().requires_grad_()
    mask, pad, future = None, None, None
    if masked in ("padding", "both"):
        mask, pad = padding_mask(ids), ids == 0  # torch's True means "may not look"
    if masked in ("future", "both"):
        mask, future = causal_mask(5) if mask is None else mask & causal_mask(5), ~causal_mask(5)
    y, weights = ours(x, mask)
    y2 = theirs(x2, src_mask=future, src_key_padding_mask=pad)
    assert_close(y, y2)
    assert weights.shape == (2, 2, 5, 5)
    (y * torch.arange(8)).sum().backward()
    (y2 * torch.arange(8)).sum().backward()
    assert_close(x.grad, x2.grad, rtol=1e-4, atol=1e-5)
    gradients_equal(ours, theirs)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("padded", [False, True])
def test_decoder_layer_equals_torch(norm, padded):
    ours, theirs = copied(norm, "decoder")
    source = torch.tensor([[3, 4, 5, 6], [3, 4, 0, 0]]) if padded else torch.full((2, 4), 3)
    x, memory = torch.randn(2, 5, 8, requires_grad=True), torch.randn(2, 4, 8, requires_grad=True)
    x2, memory2 = x.detach().clone().requires_grad_(), memory.detach().clone().requires_grad_()
    y, weights, cross = ours(x, memory, causal_mask(5), padding_mask(source))
    y2 = theirs(x2, memory2, tgt_mask=~causal_mask(5), memory_key_padding_mask=source == 0)
    assert_close(y, y2)
    assert (weights.shape, cross.shape) == ((2, 2, 5, 5), (2, 2, 5, 4))
    assert not weights[..., ~causal_mask(5)].any()
    (y * torch.arange(8)).sum().backward()
    (y2 * torch.arange(8)).sum().backward()
    assert_close(x.grad, x2.grad, rtol=1e-4, atol=1e-5)
    assert_close(memory.grad, memory2.grad, rtol=1e-4, atol=1e-5)
    gradients_equal(ours, theirs)


@pytest.mark.parametrize("norm", NORMS)
def test_a05_training_and_evaluation_have_one_shape_and_agree_with_torch(norm):
    ours, theirs = copied(norm)
    ids = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])  # the last two columns are padding in the whole batch
    x, real = torch.randn(2, 5, 8), ids != 0
    found = []
    for training, gradients in ((True, True), (False, True), (False, False)):
        ours.train(training)
        theirs.train(training)
        with torch.set_grad_enabled(gradients):
            y, reference = ours(x, padding_mask(ids))[0], theirs(x, src_key_padding_mask=~real)
        assert y.shape == (2, 5, 8)
        assert_close(y[real], reference[real], rtol=1e-4, atol=1e-5)
        found.append(y.detach())
    assert_close(found[0], found[1])
    assert_close(found[1], found[2])


def test_layer_norm_equals_torch_and_hand_numbers():
    x = torch.tensor([[1.0, 2, 3, 6]])  # mean 3, variance (4 + 1 + 0 + 9) / 4 = 3.5
    assert_close(LayerNorm(4, eps=0.0)(x), torch.tensor([[-2.0, -1, 0, 3]]) / 3.5**0.5)
    ours, theirs = shaken(LayerNorm(6, eps=1e-3)), nn.LayerNorm(6, eps=1e-3)
    theirs.load_state_dict(ours.state_dict())
    x = (torch.randn(3, 5, 6) * 4 + 7).requires_grad_()
    x2 = x.detach().clone().requires_grad_()
    assert_close(ours(x), theirs(x2))
    ours(x).square().sum().backward()
    theirs(x2).square().sum().backward()
    assert_close(x.grad, x2.grad, rtol=1e-4, atol=1e-5)
    assert_close(ours.weight.grad, theirs.weight.grad, rtol=1e-4, atol=1e-4)
    constant = LayerNorm(4)(torch.full((1, 4), 5.0))
    assert constant.isfinite().all()
    assert not constant.any()


def test_add_norm_by_hand():
    x, y = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    pre, post = AddNorm(LayerConfig(**SIZES)), AddNorm(LayerConfig(**SIZES, norm="post"))
    assert_close(pre.enter(x), F.layer_norm(x, (8,)))
    assert_close(pre.leave(x, y), x + y)
    assert_close(post.enter(x), x)
    assert_close(post.leave(x, y), F.layer_norm(x + y, (8,)))


def test_feed_forward_by_hand_and_position_by_position():
    net = shaken(FeedForward(LayerConfig(**SIZES)))
    x = torch.randn(2, 3, 8)
    W1, b1, W2, b2 = net.widen.weight.T, net.widen.bias, net.narrow.weight.T, net.narrow.bias
    assert_close(net(x), (x @ W1 + b1).clamp(min=0) @ W2 + b2)
    assert_close(net(x)[:, 1:2], net(x[:, 1:2]))


# --- positions ------------------------------------------------------------------------------------------------------


def test_positions_are_the_papers_formula():
    table = sinusoidal_positions(50, 16)
    for pos, i in product((0, 1, 7, 49), range(8)):
        angle = torch.tensor(pos / 10_000 ** (2 * i / 16), dtype=torch.float64)
        assert table[pos, 2 * i].item() == pytest.approx(angle.sin().item(), abs=1e-6)
        assert table[pos, 2 * i + 1].item() == pytest.approx(angle.cos().item(), abs=1e-6)
    assert table[0].tolist() == [0, 1] * 8


@pytest.mark.parametrize("k", [-3, 1, 2, 10])
def test_a_step_of_k_is_one_rotation_whatever_the_position(k):
    d, table = 12, sinusoidal_positions(60, 12).double()
    rotation = torch.zeros(d, d, dtype=torch.float64)
    for i in range(d // 2):
        angle = torch.tensor(k / 10_000 ** (2 * i / d), dtype=torch.float64)
        block = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
        rotation[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
    rows = torch.arange(max(0, -k), 60 - max(0, k))
    assert_close(table[rows] @ rotation, table[rows + k], rtol=0, atol=1e-6)


@pytest.mark.parametrize("width", [5, 6, 1])
def test_a14_any_width_has_a_table(width):
    table = sinusoidal_positions(4, width)
    assert table.shape == (4, width)
    assert_close(table[:, 0], torch.arange(4.0).sin())
    with pytest.raises(ValueError, match="at least"):
        sinusoidal_positions(4, 0)


# --- stacks: caches, masks, modes -----------------------------------------------------------------------------------


def stack(kind, norm="pre", **changes):
    return shaken(kind(LayerConfig(**(SIZES | {"n_layers": 3} | changes), norm=norm))).eval()


@pytest.mark.parametrize("norm", NORMS)
def test_an_encoder_with_a_causal_mask_and_caches_equals_one_pass(norm):
    """The decoder of chapter 10: encoder layers that look to the left."""
    encoder, x = stack(Encoder, norm), torch.randn(2, 6, 8)
    whole, _ = encoder(x, causal_mask(6))
    caches = [KVCache() for _ in encoder.layers]
    parts = []
    for first, last in ((0, 3), (3, 4), (4, 6)):
        y, weights = encoder(x[:, first:last], causal_mask(last - first, last), caches)
        assert weights[0].shape == (2, 2, last - first, last)
        parts.append(y)
    assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_a_decoder_with_caches_equals_one_pass(norm):
    decoder, x, memory = stack(Decoder, norm), torch.randn(2, 5, 8), torch.randn(2, 4, 8)
    whole, _, cross = decoder(x, memory, causal_mask(5))
    caches = [DecoderCache(KVCache(), KVCache()) for _ in decoder.layers]
    steps = [decoder(x[:, t : t + 1], memory, causal_mask(1, t + 1), None, caches) for t in range(5)]
    assert_close(torch.cat([y for y, _, _ in steps], 1), whole, rtol=1e-4, atol=1e-5)
    assert_close(torch.cat([c[2] for _, _, c in steps], 2), cross[2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_causality_and_padding_do_not_leak(norm):
    encoder, decoder = stack(Encoder, norm), stack(Decoder, norm)
    x, memory, ids = torch.randn(1, 5, 8), torch.randn(1, 4, 8), torch.tensor([[3, 3, 0, 0]])
    changed, other = x.clone(), memory.clone()
    changed[:, 3:] += torch.randn(1, 2, 8)
    other[:, 2:] += torch.randn(1, 2, 8)
    before = decoder(x, memory, causal_mask(5), padding_mask(ids))[0]
    after = decoder(changed, other, causal_mask(5), padding_mask(ids))[0]
    assert_close(before[:, :3], after[:, :3], rtol=0, atol=0)
    assert not torch.allclose(before[:, 3:], after[:, 3:])
    assert_close(
        encoder(memory, padding_mask(ids))[0][:, :2],
        encoder(other, padding_mask(ids))[0][:, :2],
        rtol=0,
        atol=0,
    )
    assert not torch.allclose(decoder(x, memory)[0], decoder(x, other)[0])


def test_a24_dropout_is_on_in_training_only_and_off_when_zero():
    x = torch.randn(2, 4, 8)
    for kind, more in ((Encoder, ()), (Decoder, (torch.randn(2, 4, 8),))):
        model = stack(kind, dropout=0.5)
        assert_close(model(x, *more)[0], model(x, *more)[0], rtol=0, atol=0)
        model.train()
        assert not torch.allclose(model(x, *more)[0], model(x, *more)[0])
        model = stack(kind, dropout=0.0).train()
        assert_close(model(x, *more)[0], model(x, *more)[0], rtol=0, atol=0)


@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("n_heads", [1, 2])
def test_k04_k05_one_token_and_one_head(T, n_heads):
    x = torch.randn(1, T, 8, requires_grad=True)
    y, _, _ = stack(Decoder, n_heads=n_heads)(*(stack(Encoder, n_heads=n_heads)(x)[0],) * 2)
    assert y.shape == (1, T, 8)
    y.sum().backward()
    assert x.grad.isfinite().all()


def test_copies_pickles_and_other_precisions():
    encoder, x = stack(Encoder), torch.randn(2, 3, 8)
    expected = encoder(x)[0]
    for other in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder)), encoder.to("cpu")):
        assert_close(other(x)[0], expected)
    assert_close(encoder.double()(x.double())[0], expected.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a21_half_precision_with_both_masks(dtype):
    encoder = Encoder(LayerConfig(**SIZES)).to(dtype).eval()
    ids = torch.tensor([[0, 5], [5, 5]])  # [PAD, token] in the first row
    y, weights = encoder(torch.randn(2, 2, 8).to(dtype) * 30, padding_mask(ids) & causal_mask(2))
    assert y.isfinite().all()
    assert weights[0].isfinite().all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 3}, "evenly"),
        ({"d_ff": 0}, "d_ff"),
        ({"dropout": 1.0}, "below 1"),
        ({"norm": "before"}, "pre"),
        ({"activation": "tanh"}, "relu"),
        ({"norm_eps": -1.0}, "norm_eps"),
    ],
)
def test_bad_sizes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        LayerConfig(**(SIZES | changes))


def test_each_layer_needs_its_cache():
    """One cache too few would leave out the last layers."""
    x = torch.randn(1, 2, 8)
    for kind, more, cache in (
        (Encoder, (), KVCache()),
        (Decoder, (x,), DecoderCache(KVCache(), KVCache())),
    ):
        for n in (1, 4):
            with pytest.raises(ValueError, match=f"3 layers, {n} caches"):
                stack(kind)(x, *more, caches=[cache] * n)


def test_layer_norm_is_its_formula_also_where_squares_overflow_half_precision():
    norm = LayerNorm(4)
    x = torch.tensor([[1.0, 2, 3, 6]])
    assert_close(norm(x), (x - 3) / (3.5 + norm.eps) ** 0.5)
    assert_close(norm.half()((300 * x).half()).float(), (x - 3) / 3.5**0.5, atol=2e-3, rtol=0)
    with pytest.raises(RuntimeError, match="shape"):
        LayerNorm(4)(torch.ones(2, 1))  # not stretched over the width
