"""Attention against torch's own, in outputs, weights and gradients, under every mask; and what must hold for any attention."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from plm.attention import (
    BahdanauAttention,
    KVCache,
    MultiHeadAttention,
    attend,
    attention_weights,
    causal_mask,
    keep_weights,
    masked_softmax,
    padding_mask,
)

B, H, T, D = 2, 3, 5, 4
IDS = torch.tensor([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]])
MASKS = {
    "none": None,
    "causal": causal_mask(T),
    "padding": padding_mask(IDS),
    "both": padding_mask(IDS) & causal_mask(T),
    "one row empty": torch.ones(T, T, dtype=torch.bool).index_fill(0, torch.tensor([2]), False),
}


def qkv(dtype=torch.float32, shape=(B, T, D), n_values=3):
    torch.manual_seed(0)
    q, k, v = (torch.randn(*shape[:-1], width).to(dtype) for width in (shape[-1], shape[-1], n_values))
    return [t.requires_grad_() for t in (q, k, v)]


def multi_head(**kwargs) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Ours and torch's with the same random weights, biases included."""
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(H * D, H, batch_first=True, **kwargs)
    for p in theirs.parameters():
        nn.init.normal_(p, std=0.4)
    ours = MultiHeadAttention(H * D, H, bias=kwargs.get("bias", True), d_memory=kwargs.get("kdim"))
    return ours.load_torch(theirs), theirs


def gradients(outputs, leaves):
    torch.manual_seed(9)
    loss = sum((out * torch.randn(out.shape, dtype=out.dtype)).sum() for out in outputs)
    return torch.autograd.grad(loss, leaves, retain_graph=True)


# --- equals a reference -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attend_equals_torch_outputs_and_gradients(name, dtype):
    mask, leaves = MASKS[name], qkv(dtype)
    ours = attend(*leaves, mask)[0]
    theirs = F.scaled_dot_product_attention(*leaves, attn_mask=mask)
    assert_close(ours, theirs)
    for a, b in zip(gradients([ours], leaves), gradients([theirs], leaves)):
        assert_close(a, b)


@pytest.mark.parametrize("name", [name for name in MASKS if name != "one row empty"])
@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_equals_torch_outputs_weights_and_gradients(name, bias):
    ours, theirs = multi_head(bias=bias)
    mask = MASKS[name]
    x = torch.randn(B, T, H * D, requires_grad=True)
    blocked = None if mask is None else (~mask).expand(B, T, T).repeat_interleave(H, 0)  # torch: True = may NOT look
    out, weights = ours(x, mask=mask)
    out_t, weights_t = theirs(x, x, x, attn_mask=blocked, average_attn_weights=False)
    assert_close(out, out_t)
    assert_close(weights, weights_t)
    mine, torchs = dict(ours.named_parameters()), dict(theirs.named_parameters())
    found = dict(zip(mine, gradients([out, weights], list(mine.values()))))
    wanted = dict(zip(torchs, gradients([out_t, weights_t], list(torchs.values()))))
    for kind in ("weight", "bias")[: 1 + bias]:
        stacked = torch.cat([found[f"w_{letter}.{kind}"] for letter in "qkv"])
        assert_close(stacked, wanted[f"in_proj_{kind}"])
        assert_close(found[f"w_o.{kind}"], wanted[f"out_proj.{kind}"])
    assert_close(*(gradients(pair, [x])[0] for pair in ([out, weights], [out_t, weights_t])))


def test_cross_attention_equals_torch_with_key_padding_and_other_widths():
    ours, theirs = multi_head(kdim=7, vdim=7)
    x, memory = torch.randn(B, 4, H * D), torch.randn(B, T, 7)
    out, weights = ours(x, memory, padding_mask(IDS))
    out_t, weights_t = theirs(x, memory, memory, key_padding_mask=IDS == 0, average_attn_weights=False)
    assert_close(out, out_t)
    assert_close(weights, weights_t)


def test_bahdanau_equals_the_formula_pair_by_pair():
    torch.manual_seed(0)
    layer = BahdanauAttention(3, 4, 6)
    q, k = torch.randn(B, 2, 3), torch.randn(B, T, 4)
    average, weights = layer(q, k, k, padding_mask(IDS))
    for b in range(B):
        for i in range(2):
            scores = [layer.w.weight[0] @ torch.tanh(layer.W.weight @ q[b, i] + layer.U.weight @ key) for key in k[b]]
            expected = torch.stack(scores)[IDS[b] != 0].softmax(0)
            assert_close(weights[b, i, IDS[b] != 0], expected)
            assert_close(average[b, i], expected @ k[b, IDS[b] != 0])
    assert weights[0, :, 3:].abs().max() == 0


# --- hand numbers -------------------------------------------------------------------------------------------------


def test_thinking_machines():
    """Scores 112 and 96 at d_head = 64: divided by 8 they are 14 and 12, and the weights .88 and .12."""
    q, k = torch.full((1, 64), math.sqrt(2)), torch.zeros(2, 64)
    k[0], k[1] = 112 / (64 * math.sqrt(2)), 96 / (64 * math.sqrt(2))
    assert_close(q @ k.T, torch.tensor([[112.0, 96.0]]))
    weights = attend(q, k, torch.eye(2))[1]
    assert_close(weights, torch.tensor([[0.88, 0.12]]), atol=0.005, rtol=0)
    assert_close(weights[0, 0], torch.sigmoid(torch.tensor(2.0)))


def test_equal_keys_give_the_plain_average():
    v = torch.tensor([[2.0], [4.0], [9.0]])
    average, weights = attend(torch.randn(1, 4), torch.ones(3, 4), v)
    assert_close(average, torch.tensor([[5.0]]))
    assert_close(weights, torch.full((1, 3), 1 / 3))


# --- invariants and cases -----------------------------------------------------------------------------------------


def test_a02_true_means_may_look_and_the_future_cannot_be_seen():
    torch.manual_seed(0)
    q = k = torch.randn(3, 3)
    average, weights = attend(q, k, torch.eye(3), causal_mask(3))
    assert torch.equal(average, weights)  # the values are the identity
    assert_close(weights[0], torch.tensor([1.0, 0, 0]))
    changed = k.clone()
    changed[2] += 5
    values = torch.eye(3)
    values[2] -= 7
    later, _ = attend(torch.cat([q[:2], changed[2:]]), changed, values, causal_mask(3))
    assert torch.equal(later[:2], average[:2])  # bit for bit
    assert not torch.equal(later[2], average[2])


def test_a03_one_query_and_a_cache_of_keys_sees_all_of_them():
    q, k, v = torch.zeros(1, 1, 2), torch.randn(1, 5, 2), torch.arange(5.0)[None, :, None]
    assert_close(attend(q, k, v, causal_mask(1, 5))[0], torch.full((1, 1, 1), 2.0))
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]


@pytest.mark.parametrize("steps", [[1, 1, 1, 1, 1], [2, 3], [4, 1], [5]])
def test_a03_cached_decoding_equals_the_full_pass(steps):
    layer, _ = multi_head()
    x = torch.randn(B, T, H * D)
    full, full_weights = layer(x, mask=causal_mask(T))
    cache, outs, at = KVCache(), [], 0
    for n in steps:
        out, weights = layer(x[:, at : at + n], mask=causal_mask(n, at + n), cache=cache)
        assert_close(weights, full_weights[:, :, at : at + n, : at + n])
        outs.append(out)
        at += n
        assert len(cache) == at
    assert_close(torch.cat(outs, 1), full)


def test_a_cache_of_a_memory_computes_keys_once_and_gives_the_same():
    layer, _ = multi_head()
    x, memory, cache = torch.randn(B, 3, H * D), torch.randn(B, T, H * D), KVCache()
    full = layer(x, memory, padding_mask(IDS))[0]
    outs = [layer(x[:, t : t + 1], memory, padding_mask(IDS), cache)[0] for t in range(3)]
    assert len(cache) == T
    assert_close(torch.cat(outs, 1), full)


def test_a_cache_can_be_reordered_for_a_beam():
    layer, _ = multi_head()
    x, rows, cache = torch.randn(B, 2, H * D), torch.tensor([1, 1, 0]), KVCache()
    layer(x[:, :1], cache=cache)
    cache.reorder(rows)
    assert_close(layer(x[rows, 1:], cache=cache)[0], layer(x, mask=causal_mask(2))[0][rows, 1:])
    KVCache().reorder(rows)  # an empty one stays empty


def test_a05_same_shape_and_numbers_in_training_evaluation_and_without_gradients():
    layer, _ = multi_head()
    ids = torch.tensor([[1, 2, 3, 0, 0], [1, 2, 0, 0, 0]])  # the last two columns are padding everywhere
    x = torch.randn(2, 5, H * D)
    trained = layer.train()(x, mask=padding_mask(ids))[0]
    evaluated = layer.eval()(x, mask=padding_mask(ids))[0]
    with torch.no_grad():
        silent = layer(x, mask=padding_mask(ids))[0]
    assert trained.shape == evaluated.shape == silent.shape == (2, 5, H * D)
    assert_close(trained, evaluated)
    assert_close(evaluated, silent)


def test_a11_padding_hides_keys_not_queries():
    mask = padding_mask(torch.tensor([[1, 2, 3, 0, 0]])) & causal_mask(5)
    rows = ["".join(str(int(look)) for look in row) for row in mask[0]]
    assert rows == ["10000", "11000", "11100", "11100", "11100"]
    assert mask.any(-1).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a21_two_masks_in_half_precision(dtype):
    mask = padding_mask(torch.tensor([[0, 7]])) & causal_mask(2)  # padding first: the first row may look nowhere
    leaves = qkv(dtype, (1, 2, 8))
    average, weights = attend(*leaves, mask)
    assert average.dtype == weights.dtype == dtype
    assert weights[0].tolist() == [[0, 0], [0, 1]]
    assert average[0, 0].tolist() == [0, 0, 0]
    for gradient in torch.autograd.grad(average.sum() + weights.sum(), leaves):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a21_scores_beyond_half_precision_do_not_overflow(dtype):
    q = torch.full((1, 64), 40.0, dtype=dtype)  # the dot product, 102400, does not fit into float16
    assert torch.isfinite(attend(q, q, torch.ones(1, 2, dtype=dtype))[0]).all()


def test_a_row_that_may_look_nowhere_gives_zeros_and_no_gradient():
    leaves = qkv()
    mask = MASKS["one row empty"]
    average, weights = attend(*leaves, mask)
    assert average[:, 2].abs().max() == weights[:, 2].abs().max() == 0
    assert_close(weights.sum(-1)[:, [0, 1, 3, 4]], torch.ones(B, 4))
    q_gradient = gradients([average, weights], leaves)[0]
    assert q_gradient[:, 2].abs().max() == 0
    assert torch.isfinite(q_gradient).all()
    assert_close(masked_softmax(torch.randn(2, 3), torch.zeros(3, dtype=torch.bool)), torch.zeros(2, 3))


def test_a24_dropout_acts_on_the_weights_in_training_only():
    layer, x = MultiHeadAttention(8, 2, dropout=0.5), torch.randn(1, 6, 8)
    layer.train()
    first, weights = layer(x)
    assert not torch.equal(first, layer(x)[0])
    assert_close(weights.sum(-1), torch.ones(1, 2, 6))  # reported as they are before dropout
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    nothing = MultiHeadAttention(8, 2, dropout=0.0).train()
    assert torch.equal(nothing(x)[0], nothing(x)[0])


@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.parametrize("length", [1, 3])
def test_k04_heads_split_and_merge_for_all_sizes(n_heads, length):
    layer, x = MultiHeadAttention(4, n_heads), torch.randn(2, length, 4)
    assert torch.equal(layer.merge(layer.split(x)), x)
    head = layer.split(x)[1, n_heads - 1]
    assert torch.equal(head, x[1, :, -4 // n_heads :] if n_heads > 1 else x[1])
    out, weights = layer(x.transpose(0, 1).contiguous().transpose(0, 1))  # not contiguous either
    assert out.shape == (2, length, 4)
    assert weights.shape == (2, n_heads, length, length)


def test_k05_a_single_token_looks_at_itself():
    layer, x = MultiHeadAttention(4, 2), torch.randn(1, 1, 4)
    out, weights = layer(x, mask=causal_mask(1))
    assert weights.flatten().tolist() == [1, 1]
    assert_close(out, layer.w_o(layer.w_v(x)))
    average, weights = BahdanauAttention(4, 4, 3)(x, x, x)
    assert_close(average, x)
    assert weights.item() == 1


@pytest.mark.parametrize("kind", ["attend", "multi-head", "additive"])
def test_permutation_equivariance(kind):
    """Other order in, the same outputs in the other order; not the same outputs in place."""
    torch.manual_seed(0)
    x, order = torch.randn(1, 6, 8), torch.tensor([3, 0, 5, 1, 4, 2])
    layer = MultiHeadAttention(8, 2) if kind == "multi-head" else BahdanauAttention(8, 8, 5)

    def run(x):
        return layer(x)[0] if kind == "multi-head" else (attend if kind == "attend" else layer)(x, x, x)[0]

    assert_close(run(x[:, order]), run(x)[:, order])
    assert (run(x[:, order]) - run(x)).abs().max() > 0.01
    assert_close(run(x[:, order]).mean(1), run(x).mean(1))  # what does not ask for places is invariant


def test_padding_cannot_leak():
    layer, _ = multi_head()
    x = torch.randn(B, T, H * D)
    other = x.clone()
    other[0, 3:] = 100.0
    a, b = (layer(inputs, mask=padding_mask(IDS))[0] for inputs in (x, other))
    assert torch.equal(a[0, :3], b[0, :3])
    assert_close(layer(x[:1, :3])[0], a[:1, :3])  # as if it had stood alone


@given(t_q=st.integers(1, 6), more=st.integers(0, 4), seed=st.integers(0, 99))
def test_weights_are_a_distribution_over_the_allowed_places(t_q, more, seed):
    torch.manual_seed(seed)
    q, k = torch.randn(t_q, 3) * 5, torch.randn(t_q + more, 3) * 5
    mask = torch.rand(t_q, t_q + more) < 0.6
    weights = attention_weights(q, k, mask)
    assert weights[~mask].abs().sum() == 0
    assert_close(weights.sum(-1), mask.any(-1).float())
    assert (weights >= 0).all()


def test_copies_pickles_state_dicts_and_double_precision():
    for layer in (MultiHeadAttention(8, 2), BahdanauAttention(8, 8, 4)):
        args = [torch.randn(1, 3, 8)] * (1 if isinstance(layer, MultiHeadAttention) else 3)
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert torch.equal(twin(*args)[0], layer(*args)[0])
        fresh = type(layer)(*((8, 2) if isinstance(layer, MultiHeadAttention) else (8, 8, 4)))
        fresh.load_state_dict(layer.state_dict())
        assert_close(fresh.double()(*[a.double() for a in args])[0], layer(*args)[0].double(), atol=1e-6, rtol=1e-5)


def test_one_batch_is_learnt():
    """Find the marked place: the label is the value of the token whose first number is large."""
    torch.manual_seed(0)
    x = torch.randn(32, 6, 8)
    x[:, :, 0] = 0
    place = torch.randint(0, 6, (32,))
    x[torch.arange(32), place, 0] = 3
    labels = (x[torch.arange(32), place, 1] > 0).long()
    layer, head = MultiHeadAttention(8, 2), nn.Linear(8, 2)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(150):
        loss = F.cross_entropy(head(layer(x)[0].mean(1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05


# --- clear words --------------------------------------------------------------------------------------------------


def test_bad_input_is_named():
    q, k, v = (t.detach() for t in qkv())
    with pytest.raises(TypeError, match=r'True means "may look"; got torch.float32'):
        attend(q, k, v, torch.zeros(T, T))
    with pytest.raises(TypeError, match="got list"):
        attend(q, k, v, [[True]])
    with pytest.raises(ValueError, match=r"\(2, 5, 6\) does not broadcast"):
        attend(q, k, v, torch.ones(2, 5, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match="does not broadcast"):  # it would make the scores larger
        attend(q, k, v, torch.ones(7, 2, 5, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="same width"):
        attend(q, k[..., :3], v)
    with pytest.raises(ValueError, match="each key needs its value"):
        attend(q, k, v[:, :4])
    with pytest.raises(TypeError, match="embedding first"):
        attend(IDS[..., None], IDS[..., None], v)
    with pytest.raises(ValueError, match="multiple of n_heads"):
        MultiHeadAttention(10, 3)
    with pytest.raises(ValueError, match=r"x must be \(B, T, 12\)"):
        multi_head()[0](torch.randn(5, 12))
    with pytest.raises(ValueError, match=r"memory must be \(B, T, 12\)"):
        multi_head()[0](torch.randn(1, 5, 12), torch.randn(1, 5, 11))
    with pytest.raises(TypeError, match="x holds vectors"):
        multi_head()[0](torch.ones(1, 5, 12, dtype=torch.int64))
    with pytest.raises(ValueError, match="last T_q of T_k"):
        causal_mask(3, 2)
    with pytest.raises(ValueError, match=r"ids must be \(B, T\)"):
        padding_mask(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="num_heads=3"):
        MultiHeadAttention(12, 2).load_torch(multi_head()[1])
    with pytest.raises(ValueError, match="has none"):
        MultiHeadAttention(12, 3, bias=False).load_torch(multi_head()[1])
    with pytest.raises(ValueError, match=r"q must be \(B, T, 4\)"):
        BahdanauAttention(4, 4, 2)(torch.randn(1, 2, 3), torch.randn(1, 2, 4), torch.randn(1, 2, 4))


# --- the weights on request ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MASKS, "the word causal"])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_with_and_without_its_weights_attention_gives_the_same(name, rate):
    torch.manual_seed(0)
    layer = MultiHeadAttention(H * D, H, dropout=rate).double().eval()
    mask = "causal" if name == "the word causal" else MASKS[name]
    x = torch.randn(B, T, H * D, dtype=torch.float64, requires_grad=True)
    leaves = [x, *layer.parameters()]
    kept, weights = layer(x, mask=mask)
    with keep_weights(layer, False):
        dropped, nothing = layer(x, mask=mask)
    assert weights.shape == (B, H, T, T)
    assert nothing is None
    assert layer.keep_weights
    assert_close(dropped, kept)
    for a, b in zip(gradients([dropped], leaves), gradients([kept], leaves)):
        assert_close(a, b)
    if name == "the word causal":
        assert_close(weights, layer(x, mask=causal_mask(T))[1])


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("steps", [[1, 1, 1, 1, 1], [2, 3], [4, 1]])
def test_a03_the_word_causal_counts_from_the_last_key(kept, steps):
    torch.manual_seed(0)
    layer = MultiHeadAttention(H * D, H).double()
    x, cache = torch.randn(B, T, H * D, dtype=torch.float64), KVCache()
    wanted, _ = layer(x, mask=causal_mask(T))
    with keep_weights(layer, kept):
        found = torch.cat([layer(piece, mask="causal", cache=cache)[0] for piece in x.split(steps, 1)], 1)
    assert_close(found, wanted)


def test_keep_weights_reaches_all_layers_and_is_undone_after_an_error():
    layers = nn.Sequential(MultiHeadAttention(4, 2), MultiHeadAttention(4, 2))
    layers[1].keep_weights = False
    with keep_weights(layers):
        assert all(layer.keep_weights for layer in layers)
        with pytest.raises(ValueError, match="x must be"), keep_weights(layers, False):
            layers[0](torch.zeros(1))
        assert all(layer.keep_weights for layer in layers)
    assert [layer.keep_weights for layer in layers] == [True, False]


def test_masks_are_checked_without_weights_too():
    layer, x = MultiHeadAttention(4, 2), torch.randn(1, 3, 4)
    for kept in (True, False):
        with keep_weights(layer, kept):
            with pytest.raises(ValueError, match="\"causal\" or None; got 'full'"):
                layer(x, mask="full")
            with pytest.raises(TypeError, match="bool tensor"):
                layer(x, mask=torch.zeros(3, 3))
            with pytest.raises(ValueError, match="does not broadcast"):
                layer(x, mask=torch.ones(2, 3, dtype=torch.bool))


@pytest.mark.parametrize("grad", [True, False])
def test_a_cache_copies_nothing_twice_and_shares_nothing(grad):
    torch.manual_seed(0)
    pieces = torch.randn(9, 2, B, H, 1, D)
    with torch.set_grad_enabled(grad):
        cache, twin, rooms = KVCache(), None, set()
        for n, (k, v) in enumerate(pieces):
            all_k, all_v = cache.extend(k, v)
            assert len(cache) == n + 1
            assert torch.equal(all_k, pieces[: n + 1, 0].flatten(3).permute(1, 2, 0, 3))
            assert torch.equal(all_v, cache.v)
            rooms.add(all_k.data_ptr())
            if n == 4:
                twin = copy.copy(cache)
                twin.reorder(torch.arange(B))
        assert len(rooms) == (9 if grad else 5)  # room for 1, 2, 4, 8 and 16
        twin.extend(*pieces[0])
        assert torch.equal(cache.k[:, :, 5], pieces[5, 0, :, :, 0])
        assert torch.equal(twin.k[:, :, 5], pieces[0, 0, :, :, 0])
    assert torch.equal(pieces[0, 0, :, :, 0], cache.k[:, :, 0])  # what was given is not written to


@pytest.mark.parametrize("bias", [True, False])
def test_joined_projections_are_the_three_separate_ones(bias):
    torch.manual_seed(0)
    layer = MultiHeadAttention(H * D, H, bias=bias).double()
    for p in layer.parameters():
        nn.init.normal_(p)
    x = torch.randn(B, 3 * H * D, H * D, dtype=torch.float64)  # more vectors than the width: joined
    joined = layer.project(x)
    for part, w in zip(joined, (layer.w_q, layer.w_k, layer.w_v), strict=True):
        assert_close(part, layer.split(w(x)))
    for part, few in zip(joined, layer.project(x[:1, :2]), strict=True):
        assert_close(part[:1, :, :2], few)


# --- what must not pass in silence ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
def test_rows_look_at_their_own_memory_only(kept):
    """One row more or less would be stretched over the batch without a word."""
    layer, x = MultiHeadAttention(8, 2), torch.randn(3, 2, 8)
    with keep_weights(layer, kept):
        with pytest.raises(ValueError, match="x has 3 rows and what it looks at 1"):
            layer(x, x[:1])
        with pytest.raises(ValueError, match="x has 1 rows and what it looks at 3"):
            layer(x[:1], x)
        filled = KVCache()
        layer(x, x, cache=filled)
        with pytest.raises(ValueError, match="x has 1 rows and what it looks at 3"):
            layer(x[:1], x[:1], cache=filled)
        with pytest.raises(ValueError, match="T at least 1"):
            layer(x[:, :0])
    with pytest.raises(TypeError, match="x must be a tensor"):
        layer([[1.0]])


@pytest.mark.parametrize("grad", [True, False])
def test_a_cache_serves_one_layer_and_one_batch(grad):
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(8, 2), torch.randn(3, 2, 8)
    with torch.set_grad_enabled(grad):
        cache = KVCache()
        layer(x, cache=cache)
        layer(x, cache=cache)
        with pytest.raises(ValueError, match="one cache serves one layer and one batch"):
            layer(x[:1], cache=cache)
        with pytest.raises(ValueError, match="one cache serves one layer"):
            MultiHeadAttention(8, 4)(x, cache=cache)
        with pytest.raises(ValueError, match=r"torch\.float64: one cache"):
            copy.deepcopy(layer).double()(x.double(), cache=cache)
        assert len(cache) == 4  # nothing was taken in
        assert layer(x, cache=cache)[0].shape == x.shape


def test_a_cache_outlives_the_mode_it_was_filled_in():
    torch.manual_seed(0)
    layer, x, cache = MultiHeadAttention(8, 2), torch.randn(1, 6, 8), KVCache()
    wanted = layer(x, mask="causal")[0]
    with torch.inference_mode():
        found = [layer(x[:, :2], mask="causal", cache=cache)[0].clone(), layer(x[:, 2:3], cache=cache)[0].clone()]
    with torch.no_grad():
        found += [layer(x[:, t : t + 1], cache=cache)[0] for t in (3, 4)]
    found.append(layer(x[:, 5:], cache=cache)[0])
    found[-1].sum().backward()
    assert_close(torch.cat(found, 1), wanted)


def test_a_memory_of_another_width_has_to_be_passed():
    for length in (2, 9):  # few vectors, and enough to join the projections
        with pytest.raises(ValueError, match="memory of width 6"):
            MultiHeadAttention(8, 2, d_memory=6)(torch.randn(1, length, 8))
    with pytest.raises(ValueError, match="d_memory must be at least 1"):
        MultiHeadAttention(8, 2, d_memory=0)


@pytest.mark.parametrize("shape", [(), (5,), (5, 1), (1, 5), (2, 1, 5), (1, 3, 5, 5), (2, 3, 1, 5), (2, 1, 5, 1)])
def test_masks_of_all_shapes_on_both_ways(shape):
    torch.manual_seed(3)
    layer, x = MultiHeadAttention(H * D, H).double(), torch.randn(B, T, H * D, dtype=torch.float64)
    mask = torch.rand(shape) < 0.5
    kept, weights = layer(x, mask=mask)
    with keep_weights(layer, False):
        assert_close(layer(x, mask=mask)[0], kept)
    full = (mask[:, None] if mask.ndim == 3 else mask).expand(B, H, T, T)
    assert not weights[~full].any()


@pytest.mark.parametrize("kept", [True, False])
def test_gradients_by_finite_differences_and_finite_where_nothing_may_be_looked_at(kept):
    torch.manual_seed(0)
    layer = MultiHeadAttention(4, 2).double()
    layer.keep_weights = kept
    x, memory = (torch.randn(1, n, 4, dtype=torch.float64, requires_grad=True) for n in (3, 4))
    some = torch.rand(1, 2, 3, 4) < 0.6
    some[:, :, 1] = False
    assert torch.autograd.gradcheck(lambda a, b: layer(a, b, some)[0], (x, memory))
    assert torch.autograd.gradcheck(lambda a: layer(a, mask="causal")[0], (x,))
    additive = BahdanauAttention(4, 4, 3).double()
    assert torch.autograd.gradcheck(lambda a, b: additive(a, b, b, some[:, 0])[0], (x, memory))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("mask", ["causal", causal_mask(4)])
def test_a24_dropout_has_its_mean_and_its_variance_on_both_ways(kept, mask):
    """Values and projections are the identity: the output is the weight, or nothing, over the share that stays."""
    torch.manual_seed(0)
    rate, n = 0.3, 4000
    layer = MultiHeadAttention(4, 1, dropout=rate).double().train()
    with torch.no_grad():
        layer.w_v.weight.copy_(torch.eye(4))
        layer.w_o.weight.copy_(torch.eye(4))
    layer.keep_weights = kept
    x = torch.eye(4, dtype=torch.float64).expand(n, 4, 4)
    out = layer(x, mask=mask)[0].detach()
    weights = layer.eval()(x[:1], mask=mask)[0].detach()[0]
    dropped = (out == 0).double().mean(0)[causal_mask(4)]
    assert_close(dropped, torch.full_like(dropped, rate), atol=0.04, rtol=0)
    assert_close(out.mean(0), weights, atol=0.06, rtol=0)
    assert_close(out.var(0), weights**2 * rate / (1 - rate), atol=0.06, rtol=0)
    assert torch.equal(layer(x, mask=mask)[0], layer(x, mask=mask)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a21_half_precision_without_weights(dtype):
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(8, 2).to(dtype), (torch.randn(2, 4, 8) * 30).to(dtype)
    mask = padding_mask(torch.tensor([[0, 5, 5, 5], [5, 5, 5, 0]])) & causal_mask(4)
    wanted = layer(x, mask=mask)[0]
    layer.keep_weights = False
    assert_close(layer(x, mask=mask)[0], wanted, atol=0.3, rtol=0.05)
    assert_close(layer(x, mask=mask)[0][0, 0], layer.w_o.bias)  # may look nowhere


@pytest.mark.parametrize("kept", [True, False])
def test_order_of_the_batch_memory_layout_and_company_do_not_matter(kept):
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(8, 2).double(), torch.randn(5, 3, 8, dtype=torch.float64)
    layer.keep_weights = kept
    out = layer(x, mask="causal")[0]
    assert_close(layer(x.flip(0), mask="causal")[0].flip(0), out)
    assert_close(layer(x[2:3], mask="causal")[0], out[2:3])  # few vectors: the projections are not joined
    assert_close(layer(x.transpose(1, 2).contiguous().transpose(1, 2), mask="causal")[0], out)
    assert layer(x[:0], mask="causal")[0].shape == (0, 3, 8)
