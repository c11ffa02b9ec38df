"""plm.xlnet: equal to transformers' XLNet, to the definition written out in loops, no leak, and what it refuses."""

import copy
import math
import pickle
from itertools import permutations

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from plm.leaks import influence
from plm.run_settings import decay_groups
from plm.wordpiece import SPECIALS, WordPiece
from plm.xlnet import XLNet, XLNetConfig, distance_vectors, permutation_masks
from plm.xlnet_files import from_transformers, load_xlnet, our_state, save_xlnet

V, T = 19, 7
SMALL = XLNetConfig(vocab_size=V, d_model=8, n_heads=2, n_layers=2, dropout=0.0)


def shaken(model):
    """Every parameter random and large enough that nothing hides in the rounding."""
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.4)
    return model.eval()


def theirs():
    transformers = pytest.importorskip("transformers")
    config = transformers.XLNetConfig(
        vocab_size=V, d_model=8, n_layer=3, n_head=2, d_inner=20, dropout=0.0, pad_token_id=0
    )
    model = transformers.XLNetLMHeadModel(config)
    return shaken(model)


def random_orders(B, T, seed=0):
    return torch.rand(B, T, generator=torch.Generator().manual_seed(seed)).argsort(1)


def random_ids(B, T, seed=1):
    return torch.randint(1, V, (B, T), generator=torch.Generator().manual_seed(seed))


def their_masks(order, n):
    """perm_mask (1 = may not look) and target_mapping of transformers."""
    B, T = order.shape
    looks = permutation_masks(order, n)
    perm = 1.0 - looks.content.float()
    where = F.one_hot(order[:, T - n :], T).float()
    for b in range(B):
        perm[b, order[b, T - n :]] = 1.0 - looks.query[b].float()
    return perm, where


# --- the order --------------------------------------------------------


def test_masks_of_three_words_by_hand():
    looks = permutation_masks(torch.tensor([[2, 0, 1]]), 3)  # the third word first, then the first, then the second
    assert looks.content[0].int().tolist() == [[1, 0, 1], [1, 1, 1], [0, 0, 1]]
    assert looks.query[0].int().tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 1]]  # rows in the order of guessing


def test_given_places_see_one_another_and_targets_do_not_see_what_comes_later():
    order = torch.tensor([[3, 1, 0, 2]])
    looks = permutation_masks(order, 2)
    assert looks.content[0, [1, 3]].int().tolist() == [[0, 1, 0, 1]] * 2
    assert looks.query[0].int().tolist() == [[0, 1, 0, 1], [1, 1, 0, 1]]
    apart = permutation_masks(order, 2, joint=False)
    assert apart.query[0].int().tolist() == [[0, 1, 0, 1]] * 2


def test_left_to_right_is_the_causal_mask():
    looks = permutation_masks(torch.arange(5)[None], 5)
    square = torch.ones(5, 5, dtype=torch.bool)
    assert_close(looks.content[0], square.tril())
    assert_close(looks.query[0], square.tril(-1))


def test_distances_are_looked_up_with_the_right_sign():
    vectors = distance_vectors(4, 6)
    assert vectors.shape == (8, 6)
    w = torch.tensor([1, 10_000 ** (-2 / 6), 10_000 ** (-4 / 6)], dtype=torch.float64)
    for row, distance in enumerate(range(4, -4, -1)):
        assert_close(vectors[row], torch.cat([(distance * w).sin(), (distance * w).cos()]))


def test_only_distance_counts():
    """The same words farther to the right, behind padding, have the same states."""
    model = shaken(XLNet(SMALL))
    ids = random_ids(1, 5)
    moved = F.pad(ids, (3, 0), value=SMALL.pad_id)
    assert_close(model(ids).content[-1], model(moved).content[-1][:, 3:])


# --- equal to others --------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, T - 1])
def test_equal_to_transformers_in_both_streams(n):
    reference = theirs()
    model = from_transformers(reference)
    ids, order = random_ids(3, T), random_orders(3, T)
    segments = (torch.arange(T) > 2).long().repeat(3, 1)
    perm, where = their_masks(order, n)
    out = reference(ids, perm_mask=perm, target_mapping=where, token_type_ids=segments, output_hidden_states=True)
    streams = model(ids, order=order, n_targets=n, segments=segments)
    assert_close(list(out.hidden_states[0::2]), streams.content, rtol=1e-4, atol=1e-5)
    assert_close(list(out.hidden_states[1::2]), streams.query, rtol=1e-4, atol=1e-5)
    assert_close(out.logits, model.score(streams.query[-1]), rtol=1e-4, atol=1e-5)


def test_gradients_equal_to_transformers():
    reference = theirs()
    model = from_transformers(reference)
    ids, order, n = random_ids(3, T), random_orders(3, T), 3
    perm, where = their_masks(order, n)
    targets = ids.gather(1, order[:, T - n :])
    segments = (torch.arange(T) > 2).long().repeat(3, 1)
    logits = reference(ids, perm_mask=perm, target_mapping=where, token_type_ids=segments).logits
    F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    query = model(ids, order=order, n_targets=n, segments=segments).query[-1]
    F.cross_entropy(model.score(query).flatten(0, 1), targets.flatten()).backward()
    names = dict(reference.named_parameters())
    gradients = {name: names[name].grad for name in names}
    if "lm_loss.weight" not in gradients:
        assert reference.lm_loss.weight is reference.transformer.word_embedding.weight
    found = our_state(gradients)
    ours = {name: p.grad for name, p in model.named_parameters()}
    assert found.keys() == ours.keys()
    for name in ours:
        assert_close(found[name], ours[name], rtol=1e-3, atol=1e-6, msg=name)


def test_equal_to_transformers_when_a_task_reads_padded_rows():
    reference = theirs()
    model = from_transformers(reference)
    ids = random_ids(2, T)
    ids[1, :3] = 0
    out = reference(ids, attention_mask=(ids != 0).float(), output_hidden_states=True)
    for a, b in zip(out.hidden_states, model(ids).content):
        assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert model(ids).query == []


def test_weights_with_other_settings_are_refused():
    reference = theirs()
    reference.config.attn_type = "uni"
    with pytest.raises(ValueError, match="attn_type"):
        from_transformers(reference)


def slow_log_prob(model, ids, order, step):
    """log p of one word of the order by the definition: only the words before it exist, all in loops over single vectors."""
    d = model.config.d_model
    heads, size = model.config.n_heads, d // model.config.n_heads
    w = torch.tensor([10_000 ** (-k / d) for k in range(0, d, 2)])
    before = order[:step]
    content = {place: model.embedding.weight[ids[place]] for place in before}
    query, asked = model.start, order[step]

    def norm(add_norm, x):
        spread = ((x - x.mean()) ** 2).mean()
        return (x - x.mean()) / (spread + add_norm.norm.eps).sqrt() * add_norm.norm.weight + add_norm.norm.bias

    def one(layer, x, i, seen):
        a, parts = layer.attention, []
        for head in range(heads):
            cut = slice(head * size, (head + 1) * size)
            scores, values = [], []
            for j in seen:
                r = torch.cat([((i - j) * w).sin(), ((i - j) * w).cos()])
                q = a.w_q.weight @ x
                s = (q + a.ask_content)[cut] @ (a.w_k.weight @ content[j])[cut]
                s = s + (q + a.ask_distance)[cut] @ (a.w_r.weight @ r)[cut]
                scores.append((s / math.sqrt(size)).exp())
                values.append((a.w_v.weight @ content[j])[cut])
            total = sum(scores) if scores else 1.0
            parts.append(sum((s / total * v for s, v in zip(scores, values)), torch.zeros(size)))
        x = norm(layer.around_attention, x + a.w_o.weight @ torch.cat(parts))
        f = layer.feed_forward
        wide = F.gelu(f.widen.weight @ x + f.widen.bias)
        return norm(layer.around_feed_forward, x + f.narrow.weight @ wide + f.narrow.bias)

    for layer in model.layers:
        query = one(layer, query, asked, before)
        content = {j: one(layer, content[j], j, before[: k + 1]) for k, j in enumerate(before)}
    logits = model.embedding.weight @ query + model.bias
    return logits[ids[asked]] - logits.exp().sum().log()


def test_expected_loss_over_all_orders_of_three_words_and_its_gradient():
    model = shaken(XLNet(SMALL))
    ids = [5, 11, 3]
    orders = [list(order) for order in permutations(range(3))]
    explicit = -sum(slow_log_prob(model, ids, order, t) for order in orders for t in range(3)) / len(orders)
    slow = torch.autograd.grad(explicit, list(model.parameters()), allow_unused=True)
    order = torch.tensor(orders)
    rows = torch.tensor([ids] * len(orders))
    total, n = model.loss({"ids": rows, "order": order, "targets": rows.gather(1, order)})
    assert n == 18
    assert_close(total / len(orders), explicit, rtol=1e-5, atol=1e-5)
    fast = torch.autograd.grad(total / len(orders), list(model.parameters()), allow_unused=True)
    for (name, _), a, b in zip(model.named_parameters(), slow, fast):
        if a is None:
            assert "segment" in name
            assert b is None
        else:
            assert_close(a, b, rtol=1e-3, atol=1e-5, msg=name)


def test_probabilities_of_all_texts_sum_to_one_in_every_order():
    """Whatever the order, it is a language model: over all texts of two words of a small vocabulary."""
    model = shaken(XLNet(XLNetConfig(vocab_size=4, d_model=8, n_heads=2, n_layers=1, dropout=0.0)))
    texts = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    for order in ([0, 1], [1, 0]):
        orders = torch.tensor([order] * 16)
        streams = model(texts, order=orders, mask=torch.ones(16, 2, dtype=torch.bool))
        log_p = model.score(streams.query[-1]).log_softmax(-1)
        there = log_p.gather(2, texts.gather(1, orders)[:, :, None])
        assert_close(there.sum((1, 2)).exp().sum(), torch.tensor(1.0))


# --- no leak ----------------------------------------------------------


def test_a_guess_depends_on_what_stands_before_it_in_the_order_and_on_nothing_else():
    model = shaken(XLNet(SMALL))
    ids = random_ids(1, T)
    for order in random_orders(5, T, seed=3).split(1):
        sees = influence(lambda x, order=order: model.guess(x, order), ids, 2)
        for step in range(T):
            assert set(sees[step].nonzero()[:, 0].tolist()) == set(order[0, :step].tolist())


def test_targets_that_are_kept_apart_see_what_is_given_alone():
    model = shaken(XLNet(SMALL))
    ids, order = random_ids(1, T), random_orders(1, T, seed=4)
    sees = influence(lambda x: model.guess(x, order, 3, joint=False), ids, 2)
    for step in range(3):
        assert set(sees[step].nonzero()[:, 0].tolist()) == set(order[0, : T - 3].tolist())


def test_the_published_code_lets_the_first_word_of_an_order_see_itself():
    """All its scores are -1e30, so its softmax is uniform over everything; ours returns zeros. With words given they agree."""
    reference = theirs()
    model = from_transformers(reference)
    ids, order = random_ids(1, T), torch.arange(T)[None]
    perm, where = their_masks(order, T)
    guess = lambda x: reference(x, perm_mask=perm, target_mapping=where).logits  # noqa: E731
    assert influence(guess, ids, 2, 1e-6)[0].all()
    assert not influence(lambda x: model.guess(x, order), ids, 2)[0].any()
    assert_close(guess(ids).log_softmax(-1)[:, 1:], model.guess(ids, order)[:, 1:], rtol=1e-4, atol=1e-5)


def test_padding_is_not_looked_at():
    model = shaken(XLNet(SMALL))
    ids, order = random_ids(1, T), torch.tensor([[5, 6, 0, 2, 1, 4, 3]])
    ids[0, 5:] = 0
    mask = ids != 0
    other = ids.clone()
    other[0, 5:] = 9
    a = model(ids, order=order, n_targets=5, mask=mask)
    b = model(other, order=order, n_targets=5, mask=mask)
    assert_close(a.query[-1], b.query[-1])
    assert_close(a.content[-1][:, :5], b.content[-1][:, :5])


# --- a model like any other -------------------------------------------


def batch(n=3):
    ids, order = random_ids(4, T), random_orders(4, T)
    return {"ids": ids, "order": order, "targets": ids.gather(1, order[:, T - n :])}


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_it_learns_a_batch_by_heart(norm):
    torch.manual_seed(0)
    config = XLNetConfig(vocab_size=V, d_model=32, n_heads=2, n_layers=2, dropout=0.0, norm=norm, init_std=0.1)
    model, data = XLNet(config), batch(2)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        total, n = model.loss(data)
        optimizer.zero_grad()
        (total / n).backward()
        optimizer.step()
    assert total.item() / n < 0.05


def test_uncounted_targets():
    model = shaken(XLNet(SMALL))
    data = batch()
    whole, n = model.loss(data)
    data["targets"][0] = -100
    part, fewer = model.loss(data)
    assert n - fewer == 3
    assert part.item() < whole.item()
    data["targets"][:] = -100
    none, zero = model.loss(data)
    assert none.item() == 0
    assert zero == 0
    none.backward()


def test_copies_pickles_doubles_and_files(tmp_path):
    model, data = shaken(XLNet(SMALL)), batch()
    before = model.loss(data)[0]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_close(other.loss(data)[0], before)
    double = copy.deepcopy(model).double()
    assert double(data["ids"], order=data["order"]).query[-1].dtype == torch.float64
    assert_close(double.loss(data)[0].float(), before)
    tokenizer = WordPiece([*SPECIALS, *"abcdefghijklmn"])
    save_xlnet(tmp_path / "x.safetensors", model, tokenizer, {"data": "none"}, half=False)
    loaded, pieces, card = load_xlnet(tmp_path / "x.safetensors")
    assert_close(loaded.loss(data)[0], before)
    assert len(pieces) == V
    assert card == {"data": "none"}
    assert not loaded.training
    with pytest.raises(ValueError, match="pieces"):
        save_xlnet(tmp_path / "y.safetensors", model, WordPiece(list(SPECIALS)), {})


def test_guessing_leaves_the_mode_alone_and_drops_nothing():
    config = XLNetConfig(vocab_size=V, d_model=8, n_heads=2, n_layers=1, dropout=0.5)
    model, data = XLNet(config).train(), batch()
    assert_close(model.guess(data["ids"], data["order"]), model.guess(data["ids"], data["order"]))
    assert model.training
    ours = model.log_probs(data["ids"], data["order"], 2)
    assert ours.shape == (4, 2)
    assert bool((ours < 0).all())


def test_d08_only_matrices_decay():
    matrices, rest = (group["params"] for group in decay_groups(XLNet(SMALL), 0.1))
    assert all(p.ndim == 2 for p in matrices)
    assert len(matrices) == 2 * 7
    assert sum(p.ndim == 2 for p in rest) == 3  # the table of words, and those of the passages


def test_nothing_is_left_to_chance_at_the_start():
    """Every parameter is set: no number from memory that was not filled (norms 1, biases 0, the rest near init_std)."""
    model = XLNet(XLNetConfig(vocab_size=50, d_model=64, n_heads=4, n_layers=1))
    for name, p in model.named_parameters():
        if "norm" in name:
            assert_close(p.detach(), torch.full_like(p, float(name.endswith("weight"))))
        elif name.endswith("bias"):
            assert not p.any()
        else:
            assert 0.01 < p.std().item() < 0.03, name


def test_bad_input_is_refused():
    model, ids = XLNet(SMALL), random_ids(2, T)
    order = random_orders(2, T)
    with pytest.raises(TypeError, match="int64"):
        model(ids.float())
    with pytest.raises(TypeError, match="int64"):
        model("a text")
    with pytest.raises(TypeError, match="T at least 1"):
        model(ids[:, :0])
    with pytest.raises(IndexError, match=r"0 … 18"):
        model(ids + V)
    with pytest.raises(ValueError, match="once each"):
        model(ids, order=torch.zeros_like(order))
    with pytest.raises(ValueError, match="once each"):
        model(ids, order=order[:, 1:])
    for n in (0, T + 1):
        with pytest.raises(ValueError, match="n_targets"):
            model(ids, order=order, n_targets=n)
    with pytest.raises(TypeError, match="mask is bool"):
        model(ids, mask=torch.ones(2, T))
    with pytest.raises(TypeError, match="segments"):
        model(ids, segments=torch.zeros(2, T + 1, dtype=torch.int64))
    blind = XLNet(XLNetConfig(vocab_size=V, d_model=8, n_heads=2, segments=False))
    with pytest.raises(ValueError, match="segments=False"):
        blind(ids, segments=torch.zeros_like(ids))


def test_bad_sizes_are_refused():
    for changes, word in (
        ({"vocab_size": 0}, "vocab_size"),
        ({"pad_id": V}, "pad_id"),
        ({"init_std": 0.0}, "init_std"),
        ({"d_model": 9, "n_heads": 3}, "even"),
        ({"n_heads": 3}, "heads"),
    ):
        with pytest.raises(ValueError, match=word):
            XLNetConfig(**{"vocab_size": V, "d_model": 8, "n_heads": 2, **changes})
