"""plm.bert: equal to transformers' BERT, its parameters counted, both losses, and what it refuses."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from plm.attention import keep_weights
from plm.bert import (
    IS_NEXT,
    NOT_NEXT,
    NSP_NAMES,
    Bert,
    BertConfig,
    BertForPretraining,
    pad,
)
from plm.bert_parameters import count_parameters
from plm.hub import bert_config, bert_state, fill_model
from plm.leaks import influence
from plm.model_files import load_bert, save_bert
from plm.run_settings import decay_groups
from plm.wordpiece import SPECIALS, WordPiece

V, T = 23, 12
SMALL = BertConfig(vocab_size=V, n_positions=T, d_model=8, n_heads=2, n_layers=2, dropout=0.0)


def theirs(cls, **changes):
    """A small model of transformers whose every parameter is random."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 20}
    config = transformers.BertConfig(vocab_size=V, max_position_embeddings=T, **sizes, **changes)
    torch.manual_seed(0)
    model = getattr(transformers, cls)(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.4)
    return model


def ours(model):
    """Our model with their weights."""
    state, heads = bert_state(dict(model.state_dict()))
    config = bert_config(model.config.to_dict())
    mine = BertForPretraining(config) if heads else Bert(config)
    fill_model(mine, state, "the test")
    return mine.eval()


def batch():
    """Three rows, two of them padded, and passages A and B."""
    ids = torch.randint(5, V, (3, 9), generator=torch.Generator().manual_seed(1))
    ids[1, 6:], ids[2, 1:] = 0, 0
    segments = (torch.arange(9) > 3).long().repeat(3, 1)
    return ids, segments, ids != 0


def random_model(seed=0, **changes):
    torch.manual_seed(seed)
    model = BertForPretraining(BertConfig(**{**vars(SMALL), **changes}))
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    return model.eval()


# --- equal to the reference -----------------------------------------------------------------------------------------


def test_every_layer_equals_transformers():
    reference, (ids, segments, real) = theirs("BertModel"), batch()
    mine = ours(reference)
    found = reference(ids, attention_mask=real.long(), token_type_ids=segments, output_hidden_states=True)
    states = mine.all_states(ids, segments=segments)
    assert len(states) == len(found.hidden_states) == 4
    for a, b in zip(states, found.hidden_states):
        assert_close(a[real], b[real], atol=1e-5, rtol=1e-5)
    assert_close(mine(ids, segments=segments, mask=real).pooled, found.pooler_output, atol=1e-5, rtol=1e-5)


def test_logits_losses_and_gradients_equal_transformers():
    reference, (ids, segments, real) = theirs("BertForPreTraining"), batch()
    mine = ours(reference)
    positions, targets = torch.tensor([1, 4, 11, 18]), torch.tensor([5, 6, 7, 8])
    labels = torch.full(ids.shape, -100)
    labels.view(-1)[positions] = targets
    is_next = torch.tensor([0, 1, 0])
    found = reference(
        ids, attention_mask=real.long(), token_type_ids=segments, labels=labels, next_sentence_label=is_next
    )
    guesses = mine(ids, segments=segments)
    assert_close(guesses.mlm[real], found.prediction_logits[real], atol=1e-5, rtol=1e-5)
    assert_close(guesses.nsp, found.seq_relationship_logits, atol=1e-5, rtol=1e-5)
    found.loss.backward()
    losses = mine.loss(
        {"ids": ids, "segments": segments, "positions": positions, "targets": targets, "is_next": is_next}
    )
    loss = sum(total / n for total, n in losses.values())
    assert_close(loss, found.loss)
    loss.backward()
    grads, _ = bert_state({name: p.grad for name, p in reference.named_parameters()})
    for name, p in mine.named_parameters():
        assert_close(p.grad, grads[name], atol=1e-5, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


def test_only_the_places_asked_for_go_through_the_decoder():
    model, (ids, segments, _) = random_model(), batch()
    positions = torch.tensor([8, 0, 5])
    everywhere, some = model(ids, segments=segments), model(ids, segments=segments, positions=positions)
    assert some.mlm.shape == (3, V)
    assert_close(some.mlm, everywhere.mlm.flatten(0, 1)[positions])


# --- numbers --------------------------------------------------------------------------------------------------------

BASE = {"vocab_size": 30_522, "d_model": 768, "n_heads": 12, "n_layers": 12}
LARGE = {"vocab_size": 30_522, "d_model": 1024, "n_heads": 16, "n_layers": 24}


@pytest.mark.parametrize(("sizes", "heads", "n"), [(BASE, False, 109_482_240), (BASE, True, 110_106_428),
                                                   (LARGE, False, 335_141_888)])  # fmt: skip
def test_parameters_of_the_published_models(sizes, heads, n):
    config = BertConfig(**sizes)
    with torch.device("meta"):
        model = (BertForPretraining if heads else Bert)(config)
    assert sum(p.numel() for p in model.parameters()) == n
    assert sum(count_parameters(config, heads).values()) == n


def test_the_two_formulas_of_the_articles_and_what_they_leave_out():
    terms = count_parameters(BertConfig(**BASE))
    first = (30_522 + 512 + 2) * 768 + 2 * 768 + 12 * (3 * 12 * 768 * 64 + 768**2 + 2 * 768 * 3072 + 4 * 768)
    assert first == 108_808_704
    left_out = terms["attention biases"] + terms["feed-forward biases"] + terms["pooler"]
    assert first + left_out == sum(terms.values()) == 109_482_240
    second = 30_000 * 768 + 12 * 12 * 768**2
    assert second == 107_974_656
    matrices = terms["attention matrices"] + terms["feed-forward matrices"]
    assert matrices == 12 * 12 * 768**2
    others = sum(terms.values()) - terms["word table"] - matrices
    assert second + 522 * 768 + others == 109_482_240


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_count_fits_any_size(norm):
    model = BertForPretraining(BertConfig(vocab_size=V, n_positions=7, d_model=8, n_heads=2, d_ff=20, norm=norm))
    assert sum(count_parameters(model.config, heads=True).values()) == sum(p.numel() for p in model.parameters())


def test_a22_the_word_table_exists_once_and_decays_once():
    model = random_model()
    names = [name for name, p in model.named_parameters() if p.shape == (V, 8)]
    assert names == ["bert.embedding.words.weight"] == [n for n, t in model.state_dict().items() if t.shape == (V, 8)]
    groups = decay_groups(model, 0.01)
    ids = [id(p) for group in groups for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    assert groups[1]["weight_decay"] == 0
    assert {id(p) for p in groups[0]["params"]}.isdisjoint(id(p) for p in model.parameters() if p.ndim == 1)
    before = model.bert.embedding.words.weight.clone()
    model(batch()[0], positions=torch.tensor([0])).mlm.sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert not torch.equal(before, model.bert.embedding.words.weight)


# --- invariants -----------------------------------------------------------------------------------------------------


def test_both_sides_are_seen_unless_it_is_causal():
    ids = batch()[0][:1]
    assert influence(lambda x: random_model().bert(x).states, ids, 7).all()
    seen = influence(lambda x: random_model(causal=True).bert(x).states, ids, 7)
    assert torch.equal(seen, torch.ones(9, 9, dtype=torch.bool).tril())


def test_attention_comes_from_the_same_code():
    model, (ids, segments, real) = random_model(), batch()
    weights = model.bert.attention(ids, segments=segments)
    assert [w.shape for w in weights] == [(3, 2, 9, 9)] * 2
    assert_close(weights[0].sum(-1), torch.ones(3, 2, 9))
    assert (weights[1][~real[:, None, None, :].expand_as(weights[1])] == 0).all()
    with keep_weights(model):
        slow = model(ids, segments=segments)
    assert_close(slow.nsp, model(ids, segments=segments).nsp)


def test_padding_changes_nothing():
    model, (ids, segments, _) = random_model(), batch()
    alone = model(ids[1:2, :6], segments=segments[1:2, :6])
    padded = model(ids, segments=segments)
    assert_close(padded.mlm[1, :6], alone.mlm[0])
    assert_close(padded.nsp[1], alone.nsp[0])
    other = ids.clone()
    other[1, 6:] = 3  # a mask says what is real, whatever stands there
    assert_close(model(other, segments=segments, mask=ids != 0).nsp[1], alone.nsp[0])


def test_c13_segments_and_mask_cannot_be_swapped():
    model, (ids, segments, _) = random_model(), batch()
    with pytest.raises(TypeError):
        model(ids, segments)
    with pytest.raises(TypeError):
        model.bert(ids, segments)
    with pytest.raises(TypeError, match="bool"):
        model(ids, mask=segments)
    assert not torch.allclose(model(ids, segments=segments).nsp, model(ids).nsp)
    gap = torch.tensor([[5, 6, 0, 0, 7, 8]])  # padding between A and B
    between = torch.tensor([[0, 0, 0, 0, 1, 1]])
    seen = influence(lambda x: model.bert(x, segments=between, mask=gap != 0).states, gap, 9)
    assert seen[5, [0, 1, 4, 5]].all()
    assert not seen[5, 2:4].any()


def test_a13_next_sentence_does_not_share_the_ignored_id_of_the_gaps():
    logits = torch.zeros(4, 2, requires_grad=True)
    for labels in ([0, 0, 0, 0], [0, 1, 0, 1]):
        model = random_model()
        model.nsp = nn.Linear(8, 2)
        nn.init.zeros_(model.nsp.weight)
        nn.init.zeros_(model.nsp.bias)
        rows = torch.randint(5, V, (4, 6))
        losses = model.loss({"ids": rows, "segments": torch.zeros_like(rows), "positions": torch.tensor([1]),
                             "targets": torch.tensor([0]), "is_next": torch.tensor(labels)})  # fmt: skip
        total, n = losses["nsp"]
        assert n == 4
        assert (total / n).item() == pytest.approx(0.6931, abs=1e-4)
        total.backward()
        assert (model.nsp.bias.grad != 0).any() or labels == [0, 1, 0, 1]
        assert losses["mlm"][1] == 1  # [PAD], id 0, may be a target: nothing but -100 is ignored
    assert F.cross_entropy(logits, torch.tensor([0, 0, 0, 0])).item() == pytest.approx(0.6931, abs=1e-4)


def test_c07_a_batch_without_gaps_has_a_finite_loss():
    model = random_model()
    none = torch.empty(0, dtype=torch.int64)
    rows = torch.tensor([[2, 3], [2, 3]])
    losses = model.loss({"ids": rows, "segments": torch.zeros_like(rows), "positions": none, "targets": none,
                         "is_next": torch.tensor([-100, -100])})  # fmt: skip
    loss = sum(total / max(1, n) for total, n in losses.values())
    assert loss.item() == 0
    loss.backward()
    assert all(p.grad is None or bool((p.grad == 0).all()) for p in model.parameters())


def test_c14_index_0_is_next():
    model = random_model()
    nn.init.zeros_(model.nsp.weight)
    with torch.no_grad():
        model.nsp.bias.copy_(torch.tensor([5.0, -5.0]))
    ids, segments, _ = batch()
    assert model.next_sentence(ids, segments) == ["IsNext"] * 3
    assert NSP_NAMES[IS_NEXT] == "IsNext"
    assert NSP_NAMES[NOT_NEXT] == "NotNext"
    assert (IS_NEXT, NOT_NEXT) == (0, 1)


def test_a24_dropout_only_in_training_and_modes_are_put_back():
    model = random_model(dropout=0.5)
    ids, segments, _ = batch()
    assert_close(model(ids).nsp, model(ids).nsp)
    model.train()
    model.bert.embedding.eval()
    assert not torch.allclose(model(ids).nsp, model(ids).nsp)
    model.fill(torch.tensor([[2, 4, 7, 3]]), mask_id=4)
    model.next_sentence(ids, segments)
    assert model.training
    assert not model.bert.embedding.training


def test_a27_positions_start_at_0_and_order_counts():
    model = random_model(n_positions=5)
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    assert_close(model.bert.embedding.positions.weight[0] + model.bert.embedding.segments.weight[0]
                 + model.bert.embedding.words.weight[2], _sum(model, ids)[0, 0])  # fmt: skip
    swapped = torch.tensor([[2, 8, 7, 9, 3]])
    assert not torch.allclose(model(ids).mlm[0, 0], model(swapped).mlm[0, 0])
    with pytest.raises(ValueError, match="5 positions"):
        model(torch.cat([ids, ids], 1))


def _sum(model, ids):
    """The embedding before its norm."""
    found = []
    hook = model.bert.embedding.norm.register_forward_hook(lambda module, given, result: found.append(given[0]))
    model.bert.embedding(ids)
    hook.remove()
    return found[0]


def test_k05_one_token_is_enough():
    assert torch.isfinite(random_model()(torch.tensor([[7]])).mlm).all()


def test_fill_gives_probabilities_of_the_gaps_in_reading_order():
    model, ids = random_model(), torch.tensor([[2, 4, 7, 3], [2, 8, 4, 3]])
    p = model.fill(ids, mask_id=4)
    assert p.shape == (2, V)
    assert_close(p.sum(1), torch.ones(2))
    assert_close(p[1], model(ids).mlm[1, 2].softmax(-1))
    with pytest.raises(ValueError, match="no gap"):
        model.fill(torch.tensor([[2, 7, 3]]), mask_id=4)


def test_it_learns_one_batch_by_heart():
    torch.manual_seed(0)
    model = BertForPretraining(BertConfig(vocab_size=V, n_positions=T, d_model=32, n_heads=4, n_layers=2, dropout=0.0))
    ids = torch.randint(5, V, (6, 10))
    positions, segments = torch.arange(3, 60, 7), (torch.arange(10) > 4).long().repeat(6, 1)
    targets = ids.flatten()[positions].clone()
    ids.view(-1)[positions] = 4
    data = {"ids": ids, "segments": segments, "positions": positions, "targets": targets,
            "is_next": torch.tensor([0, 1, 1, 0, 1, 0])}  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(150):
        loss = sum(total / n for total, n in model.loss(data).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


def test_starting_points():
    model = BertForPretraining(SMALL)
    vectors = torch.randn(V, 8) * 3 + 1
    model.start_from_vectors(vectors, std=0.03)
    table = model.bert.embedding.words.weight.detach()
    assert table.std().item() == pytest.approx(0.03, rel=1e-4)
    assert torch.corrcoef(torch.stack([table[:, 0], vectors[:, 0]]))[0, 1] > 0.999
    counts = torch.arange(V)
    model.start_from_counts(counts)
    assert_close(model.mlm.bias.detach().softmax(0), (counts + 1.0) / (counts + 1.0).sum())
    with pytest.raises(ValueError, match="finite vectors"):
        model.start_from_vectors(vectors[:3])
    with pytest.raises(ValueError, match="counts"):
        model.start_from_counts(-counts)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_and_double_precision(way):
    model, ids = random_model(), batch()[0]
    assert_close(way(model)(ids).mlm, model(ids).mlm)
    assert_close(way(model).double()(ids).mlm.float(), model(ids).mlm, atol=1e-4, rtol=1e-4)


def test_a_checkpoint_comes_back_whole(tmp_path):
    tokenizer = WordPiece([*SPECIALS, *(chr(97 + i) for i in range(V - 5))])
    model, path = random_model(), tmp_path / "bert.safetensors"
    save_bert(path, model, tokenizer, {"data": "none"})
    back, pieces, card = load_bert(path)
    assert pieces.pieces == tokenizer.pieces
    assert card == {"data": "none"}
    assert_close(back(batch()[0]).mlm, model(batch()[0]).mlm, atol=0.02, rtol=0.02)
    with pytest.raises(ValueError, match="the tokenizer has 5 tokens"):
        save_bert(path, model, WordPiece(SPECIALS), {})


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [({"vocab_size": 0}, "vocab_size"), ({"n_heads": 3}, "share"), ({"pad_id": V}, "pad_id"), ({"init_std": 0.0}, "init_std"),
     ({"norm": "both"}, "norm"), ({"n_positions": 0}, "n_positions"), ({"activation": "tanh"}, "activation")],
)  # fmt: skip
def test_bad_sizes_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        BertConfig(**{**vars(SMALL), **change})


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [(torch.tensor([2, 7]), TypeError, r"\(B, T\)"), (torch.tensor([[2.0]]), TypeError, "int64"),
     (torch.tensor([[V]]), IndexError, "0 … 22"), (torch.tensor([[-1]]), IndexError, "0 … 22"),
     ([[2, 3]], TypeError, "list"), (torch.empty(1, 0, dtype=torch.int64), TypeError, "at least 1")],
)  # fmt: skip
def test_bad_ids_are_named(ids, error, words):
    with pytest.raises(error, match=words):
        random_model()(ids)


def test_bad_segments_are_named():
    with pytest.raises(IndexError, match="segments"):
        random_model()(torch.tensor([[2, 7]]), segments=torch.tensor([[0, 2]]))
    with pytest.raises(ValueError, match="each token needs its segment"):
        random_model()(torch.tensor([[2, 7]]), segments=torch.tensor([[0]]))


def test_pad_fills_up_on_the_right():
    assert pad([[2, 3], [2, 7, 3]]).tolist() == [[2, 3, 0], [2, 7, 3]]
    for rows in ([], [[2], []]):
        with pytest.raises(ValueError, match="row"):
            pad(rows)
