"""The whole Transformer against torch's, its cache, its masks, its smoothed loss, and what must not change."""

import copy
import pickle
import warnings

import pytest
import torch
from test_layers import load_torch, shaken
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from plm.decode import beam_search, greedy
from plm.train import load_checkpoint, save_checkpoint
from plm.transformer import Embedding, Transformer, TransformerConfig, smoothed_cross_entropy

SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 12, "n_layers": 2, "dropout": 0.0, "max_len": 20}
SEARCH = {"start_id": 2, "end_id": 3, "max_len": 8}


def model(norm="pre", seed=0, **changes) -> Transformer:
    sizes = {"source_vocab": 11, "target_vocab": 9, "norm": norm} | SIZES | changes
    return shaken(Transformer(TransformerConfig(**sizes)), seed).eval()


SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]])
TARGET = torch.tensor([[2, 4, 5, 6], [2, 7, 0, 0]])


def copied(ours: Transformer) -> nn.Transformer:
    """torch's Transformer with random weights, which are copied into ours."""
    norm = ours.config.norm
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about nested tensors, which pre-norm does not use
        theirs = nn.Transformer(8, 2, 2, 2, 12, 0.0, batch_first=True, norm_first=norm == "pre")
    if norm == "post":  # torch keeps a last norm there, too, behind one that has done the work
        theirs.encoder.norm = theirs.decoder.norm = None
    shaken(theirs)
    for mine, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        for layer, reference in zip(mine.layers, other.layers):
            load_torch(layer, reference)
        if norm == "pre":
            mine.norm.load_state_dict(other.norm.state_dict())
    return theirs


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("training", [True, False])
def test_equals_nn_transformer_outputs_and_gradients(norm, training):
    ours = model(norm)
    theirs = copied(ours).train(training)
    ours.train(training)
    logits = ours(SOURCE, TARGET)
    future = ~torch.ones(4, 4, dtype=torch.bool).tril()
    reference = theirs(
        ours.source_embedding(SOURCE),
        ours.target_embedding(TARGET),
        tgt_mask=future,
        src_key_padding_mask=SOURCE == 0,
        tgt_key_padding_mask=TARGET == 0,
        memory_key_padding_mask=SOURCE == 0,
    )
    reference = ours.generator(reference)
    real = TARGET != 0
    assert_close(logits[real], reference[real], rtol=1e-4, atol=1e-5)
    gradients = []
    for found in (logits, reference):
        ours.zero_grad()
        found[real].log_softmax(-1)[:, 5].sum().backward()
        gradients.append([p.grad.clone() for p in (ours.source_embedding.words.weight, ours.generator.weight)])
    for mine, other in zip(*gradients):
        assert mine.abs().max() > 0
        assert_close(mine, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_cached_decoding_equals_one_pass(norm):
    ours = model(norm)
    state, whole = ours.start(SOURCE), ours(SOURCE, TARGET)
    for t in range(4):
        logits, state = ours.step(TARGET[:, t], state)
        assert_close(logits[0], whole[0, t], rtol=1e-4, atol=1e-5)
    assert len(state.caches[0].own) == 4
    assert len(state.caches[0].source) == 5  # the source stays as long as it was


def test_several_words_at_once_behind_a_cache():
    ours = model()
    state = ours.start(SOURCE[:1])
    decoded = [ours.decode(part, state.memory, state.memory_mask, state.caches) for part in TARGET[:1].split(2, 1)]
    assert_close(torch.cat([d.logits for d in decoded], 1), ours(SOURCE[:1], TARGET[:1]), rtol=1e-4, atol=1e-5)


def test_a_word_sees_what_is_left_of_it_and_all_of_the_source():
    ours = model()
    before = ours(SOURCE, TARGET)
    later = TARGET.clone()
    later[0, 2] = 8
    assert_close(ours(SOURCE, later)[0, :2], before[0, :2], rtol=0, atol=0)
    assert not torch.allclose(ours(SOURCE, later)[0, 2:], before[0, 2:])
    other = SOURCE.clone()
    other[0, 4] = 8
    assert not torch.allclose(ours(other, TARGET)[0, 0], before[0, 0])


def test_padding_changes_nothing():
    ours = model()
    alone = ours(SOURCE[1:, :3], TARGET[1:, :2])
    assert_close(ours(SOURCE, TARGET)[1, :2], alone[0], rtol=1e-4, atol=1e-5)
    ours(SOURCE, TARGET)[1, :2].sum().backward()
    assert not ours.source_embedding.words.weight.grad[0].any()


def test_a11_the_mask_of_a_padded_target_has_no_empty_row():
    mask = model().target_mask(torch.tensor([[1, 2, 3, 0, 0]]))
    rows = ["".join(str(int(looks)) for looks in row) for row in mask[0]]
    assert rows == ["10000", "11000", "11100", "11100", "11100"]


@pytest.mark.parametrize("search", [greedy, lambda *a, **k: [h[0] for h in beam_search(*a, beam=3, **k)]])
def test_translations_in_a_batch_are_those_one_by_one(search):
    for seed in range(3):
        ours = model(seed=seed)
        together = search(ours, SOURCE, **SEARCH)
        alone = [search(ours, SOURCE[:1], **SEARCH)[0], search(ours, SOURCE[1:, :3], **SEARCH)[0]]
        assert [h.ids for h in together] == [h.ids for h in alone]
        assert [h.log_prob for h in together] == pytest.approx([h.log_prob for h in alone], abs=1e-4)


def test_greedy_is_what_one_pass_per_word_gives():
    ours = model(seed=4)
    found = greedy(ours, SOURCE[:1], **SEARCH)[0]
    ids = torch.tensor([[2]])
    for _ in range(8):
        token = ours(SOURCE[:1], ids)[0, -1].argmax()
        ids = torch.cat([ids, token.view(1, 1)], 1)
        if token == 3:
            break
    assert [i for i in ids[0, 1:].tolist() if i != 3] == found.ids


def test_a22_one_table_is_one_parameter(tmp_path):
    tied, untied = model(), model(tied=False)
    n = [sum(p.numel() for p in m.parameters()) for m in (tied, untied)]
    assert n[1] - n[0] == 9 * 8
    names = [name for name, p in tied.named_parameters() if p.shape == (9, 8)]
    assert names == ["target_embedding.words.weight"]

    def one(m):
        return m.generator.weight is m.target_embedding.words.weight

    other = copy.deepcopy(tied)
    path = save_checkpoint(tmp_path / "m.safetensors", tied, vars(tied.config))
    state, config = load_checkpoint(path)
    fresh = Transformer(TransformerConfig(**config))
    fresh.load_state_dict(state)
    optimizer = torch.optim.SGD(fresh.parameters(), lr=0.1)
    fresh(SOURCE, TARGET).sum().backward()
    optimizer.step()
    assert all(map(one, (tied, other.to("cpu"), pickle.loads(pickle.dumps(tied)), fresh)))
    assert not one(untied)
    ids = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert ids.count(id(fresh.generator.weight)) == 1
    assert_close(other(SOURCE, TARGET), tied(SOURCE, TARGET))


def test_a24_dropout_in_training_only():
    ours = model(dropout=0.5)
    assert_close(ours(SOURCE, TARGET), ours(SOURCE, TARGET), rtol=0, atol=0)
    ours.train()
    assert not torch.allclose(ours(SOURCE, TARGET), ours(SOURCE, TARGET))
    assert greedy(ours, SOURCE, **SEARCH) == greedy(ours, SOURCE, **SEARCH)
    assert ours.training


def test_a25_the_model_returns_scores_not_probabilities():
    ours = model()
    with torch.no_grad():
        ours.generator.bias.copy_(60.0 * F.one_hot(torch.tensor(4), 9))
        ours.generator.weight.zero_()
    loss = F.cross_entropy(ours(SOURCE, TARGET).flatten(0, 1), torch.full((8,), 4))
    assert loss < 1e-6


def test_a27_positions_start_at_zero_and_order_matters():
    ours = model(max_len=5)
    embedded = ours.source_embedding
    with torch.no_grad():
        embedded.words.weight.zero_()
    assert_close(embedded(SOURCE[:1])[0], embedded.positions)
    ours = model(max_len=5)
    swapped = SOURCE[:1, [1, 0, 2, 3, 4]]
    assert not torch.allclose(ours(SOURCE[:1], TARGET[:1]), ours(swapped, TARGET[:1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a21_half_precision(dtype):
    ours = Transformer(model().config).to(dtype).eval()
    assert ours(SOURCE, TARGET).isfinite().all()
    assert all(h.log_prob > float("-inf") for h in greedy(ours, SOURCE, **SEARCH))


def test_double_precision_and_length_one():
    ours = model().double()
    assert ours(SOURCE[:, :1], TARGET[:, :1]).dtype == torch.float64
    assert greedy(ours, SOURCE[:1, :1], **SEARCH)


def test_overfits_one_batch():
    torch.manual_seed(0)
    ours = Transformer(model().config)
    targets = torch.tensor([[4, 5, 6, 3], [7, 3, -100, -100]])
    optimizer = torch.optim.Adam(ours.parameters(), lr=0.01)
    for _ in range(150):
        loss = smoothed_cross_entropy(ours(SOURCE, TARGET), targets, smoothing=0.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.02
    assert [h.ids for h in greedy(ours, SOURCE, **SEARCH)] == [[4, 5, 6], [7]]


def test_bad_input_is_named():
    ours = model()
    with pytest.raises(ValueError, match="max_len = 20"):
        ours(torch.full((1, 21), 4), TARGET[:1])
    with pytest.raises(IndexError, match="0 … 8"):
        ours(SOURCE, torch.full((2, 3), 9))
    with pytest.raises(TypeError, match="int64"):
        ours(SOURCE.float(), TARGET)
    with pytest.raises(TypeError, match="int64"):
        ours(SOURCE[0], TARGET)
    with pytest.raises(ValueError, match="vocab"):
        model(source_vocab=0)
    with pytest.raises(ValueError, match="beyond max_len"):
        Embedding(5, ours.config)(torch.zeros(1, 3, dtype=torch.int64), first=18)


# --- label smoothing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("targets", [[2, 1], [2, 1, -100], [4]])
def test_a10_label_smoothing_equals_torch(smoothing, targets):
    torch.manual_seed(0)
    logits = torch.randn(3, 5)[: len(targets)].requires_grad_()
    other = logits.detach().clone().requires_grad_()
    ours = smoothed_cross_entropy(logits, torch.tensor(targets), smoothing)
    theirs = F.cross_entropy(other, torch.tensor(targets), label_smoothing=smoothing)
    assert_close(ours, theirs)
    ours.backward()
    theirs.backward()
    assert_close(logits.grad, other.grad)


def test_a10_padding_does_not_count_and_extremes_stay_finite():
    torch.manual_seed(0)
    logits = torch.randn(3, 5)
    two = smoothed_cross_entropy(logits[:2], torch.tensor([2, 1]))
    assert_close(two, smoothed_cross_entropy(logits, torch.tensor([2, 1, -100])))
    assert_close(two, smoothed_cross_entropy(logits[None], torch.tensor([[2, 1, 0]]), ignore=0))
    extreme = torch.tensor([[1e4, -1e4, 0, 0, 0]], requires_grad=True)
    loss = smoothed_cross_entropy(extreme, torch.tensor([1]))
    loss.backward()
    assert loss.isfinite()
    assert extreme.grad.isfinite().all()
    nothing = torch.randn(2, 5, requires_grad=True)
    loss = smoothed_cross_entropy(nothing, torch.tensor([-100, -100]))
    loss.backward()
    assert loss == 0
    assert not nothing.grad.any()
    with pytest.raises(ValueError, match="share"):
        smoothed_cross_entropy(nothing, torch.tensor([1, 1]), smoothing=1.0)


def test_k13_smoothing_is_a_kl_divergence_summed_over_words_and_averaged_over_places():
    torch.manual_seed(0)
    logits, targets = torch.randn(2, 5), torch.tensor([3, 0])
    wanted = 0.9 * F.one_hot(targets, 5) + 0.1 / 5
    kl = F.kl_div(logits.log_softmax(-1), wanted, reduction="batchmean")
    entropy = -(wanted * wanted.log()).sum(-1).mean()
    assert_close(smoothed_cross_entropy(logits, targets), kl + entropy)
    with pytest.warns(UserWarning, match="batchmean"):
        pitfall = F.kl_div(logits.log_softmax(-1), wanted, reduction="mean")
    assert_close(pitfall, kl / 5)  # V times too small


def test_c07_no_target_at_all_gives_zero():
    logits = torch.randn(2, 3, 5, requires_grad=True)
    loss = smoothed_cross_entropy(logits, torch.full((2, 3), -100))
    loss.backward()
    assert loss == 0
    assert not logits.grad.any()


# --- what must not pass in silence ----------------------------------------------------------------------------------


def test_a07_a_source_that_is_all_padding_leaves_the_others_alone():
    ours = model()
    source = torch.cat([SOURCE[:1], torch.zeros_like(SOURCE[:1])])
    logits = ours(source, TARGET)
    assert logits.isfinite().all()
    assert_close(logits[0], ours(SOURCE[:1], TARGET[:1])[0])
    logits.sum().backward()
    assert all(p.grad.isfinite().all() for p in ours.parameters())


def test_batches_positions_and_kinds_that_do_not_fit_are_named():
    ours = model()
    with pytest.raises(ValueError, match="x has 1 rows and what it looks at 2"):
        ours(SOURCE, TARGET[:1])
    with pytest.raises(ValueError, match="at least one token"):
        ours(SOURCE[:, :0], TARGET)
    with pytest.raises(ValueError, match="at least one token"):
        ours(SOURCE, TARGET[:, :0])
    with pytest.raises(ValueError, match="position 0 or later"):
        ours.source_embedding(SOURCE[:, :1], first=-1)
    for wrong in ([[4, 5]], "a text", torch.tensor(3)):
        with pytest.raises(TypeError, match=r"\(B, T\)"):
            ours(wrong, TARGET)
    state = ours.start(SOURCE)
    with pytest.raises(ValueError, match="2 layers, 1 caches"):
        ours.decode(TARGET, state.memory, state.memory_mask, state.caches[:1])
    assert ours(SOURCE[:0], TARGET[:0]).shape == (0, 4, 9)
    assert greedy(ours, SOURCE[:0], **SEARCH) == beam_search(ours, SOURCE[:0], beam=2, **SEARCH) == []


def test_order_of_the_batch_and_memory_layout_do_not_matter():
    ours = model()
    logits = ours(SOURCE, TARGET)
    assert_close(ours(SOURCE.flip(0), TARGET.flip(0)).flip(0), logits)
    assert_close(ours(SOURCE.t().contiguous().t(), TARGET), logits)


def test_beam_search_scores_are_those_of_one_pass():
    ours = model(seed=2)
    for row, found in enumerate(beam_search(ours, SOURCE, beam=4, **SEARCH)):
        for h in found:
            said = [*h.ids, 3] if h.finished else h.ids
            length = int((SOURCE[row] != 0).sum())
            log_probs = ours(SOURCE[row : row + 1, :length], torch.tensor([[2, *said[:-1]]])).log_softmax(-1)[0]
            assert h.log_prob == pytest.approx(log_probs[range(len(said)), said].sum().item(), abs=1e-4)
