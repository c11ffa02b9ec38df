"""GPT against transformers' GPT-1 and GPT-2 with copied weights, and what must hold for any left-to-right model."""

import copy
import pickle
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel

from plm.attention import keep_weights
from plm.gpt import GPT, GPT1, GPT2, GPTConfig, parameter_terms
from plm.gpt_weights import from_transformers, load_gpt1, load_gpt2, to_transformers
from plm.layers import gelu_tanh
from plm.sampling import generate
from plm.train import load_checkpoint, save_checkpoint

SIZES = {"vocab_size": 23, "n_positions": 16, "n_embd": 12, "n_layer": 3, "n_head": 4}
IDS = torch.randint(23, (2, 9), generator=torch.Generator().manual_seed(1))


def pair(kind):
    """Theirs with random weights, biases included, and ours with the same. (Their GPT-1 keeps single precision inside.)"""
    torch.manual_seed(0)
    if kind == "gpt1":
        theirs = OpenAIGPTLMHeadModel(OpenAIGPTConfig(**SIZES)).eval()
    else:
        theirs = GPT2LMHeadModel(GPT2Config(**SIZES, bos_token_id=0, eos_token_id=0)).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)
    load = load_gpt1 if kind == "gpt1" else load_gpt2
    return theirs.double(), load(theirs.state_dict(), n_heads=4).double()


def tiny(norm="pre", **changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": 23, "n_positions": 8, "d_model": 12, "n_heads": 3, "n_layers": 2, "dropout": 0.0}
    return GPT(GPTConfig(**(sizes | {"norm": norm, "init_std": 0.3} | changes)))


# --- equals a reference -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gpt1", "gpt2"])
def test_k08_equals_transformers_logits_states_and_gradients(kind):
    theirs, ours = pair(kind)
    found = theirs(IDS, output_hidden_states=True)
    close = {"rtol": 1e-5, "atol": 1e-6}
    assert_close(ours(IDS), found.logits, **close)
    assert_close(ours.hidden(IDS), found.hidden_states[-1], **close)
    loss = F.cross_entropy(found.logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten())
    total, n = ours.loss({"ids": IDS})
    assert n == 16
    assert_close(total / n, loss, **close)
    loss.backward()
    (total / n).backward()
    wanted = from_transformers({name: p.grad for name, p in theirs.named_parameters()}, kind)
    mine = {name: p.grad for name, p in ours.named_parameters()}
    assert mine.keys() == wanted.keys()
    for name in wanted:
        assert_close(mine[name], wanted[name], **close, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("kind", ["gpt1", "gpt2"])
def test_equals_transformers_greedy_generation(kind):
    theirs, ours = pair(kind)
    prompt = IDS[:, :4]
    wanted = theirs.generate(prompt, max_new_tokens=10, do_sample=False, pad_token_id=0, eos_token_id=None)
    assert generate(ours, prompt, 10, temperature=0) == wanted.tolist()


@pytest.mark.parametrize("kind", ["gpt1", "gpt2"])
def test_weights_go_back_to_transformers(kind):
    theirs, ours = pair(kind)
    back = to_transformers(ours)
    state = theirs.state_dict()
    assert back.keys() == state.keys()
    for name in state:
        assert_close(back[name], state[name], rtol=0, atol=0)


def test_attention_weights_equal_transformers():
    theirs, ours = pair("gpt2")
    theirs.set_attn_implementation("eager")
    wanted = theirs(IDS, output_attentions=True).attentions
    found = ours.train().attention(IDS)
    assert ours.training
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b)
    assert not ours.blocks.layers[0].attention.keep_weights


def test_k08_the_two_gelus_differ_by_less_than_half_a_thousandth():
    x = torch.linspace(-5, 5, 10_001)
    gap = (F.gelu(x) - gelu_tanh(x)).abs().max().item()
    assert 4.5e-4 < gap < 4.8e-4


def test_parameters_of_gpt1_term_by_term():
    terms = parameter_terms(GPT1)
    assert terms == {
        "tokens": 40_478 * 768,
        "positions": 512 * 768,
        "attention": 12 * 4 * (768 * 768 + 768),
        "feed-forward": 12 * (2 * 768 * 3072 + 3072 + 768),
        "norms": 12 * 2 * 2 * 768,
    }
    assert sum(terms.values()) == 116_534_784
    assert sum(parameter_terms(GPT2).values()) == 124_439_808
    with torch.device("meta"):
        theirs = OpenAIGPTLMHeadModel(OpenAIGPTConfig())
        assert sum(p.numel() for p in theirs.parameters()) == 116_534_784
        assert sum(p.numel() for p in GPT(GPT1).parameters()) == 116_534_784
        assert sum(p.numel() for p in GPT2LMHeadModel(GPT2Config()).parameters()) == 124_439_808


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_parameter_terms_count_what_is_there(norm):
    model = tiny(norm)
    assert sum(parameter_terms(model.config).values()) == sum(p.numel() for p in model.parameters())


def test_foreign_state_dicts_are_refused():
    theirs, _ = pair("gpt2")
    state = theirs.state_dict()
    with pytest.raises(ValueError, match=r"no state dict of gpt1: it has no 'tokens_embed.weight'"):
        load_gpt1(state)
    with pytest.raises(ValueError, match="extra"):
        load_gpt2(state | {"extra": torch.zeros(1)}, n_heads=4)
    with pytest.raises(ValueError, match="one of gpt1, gpt2"):
        from_transformers(state, "gpt3")
    del state["transformer.h.1.mlp.c_fc.bias"]
    with pytest.raises(ValueError, match=r"h.1.mlp.c_fc.bias"):
        load_gpt2(state)


# --- invariants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_future_changes_nothing(norm):
    model, ids = tiny(norm).eval(), IDS[:, :8]
    changed = ids.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 23
    assert_close(model(ids)[:, :5], model(changed)[:, :5], rtol=0, atol=0)
    assert not torch.equal(model(ids)[:, 5:], model(changed)[:, 5:])


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("pieces", [[1] * 8, [3, 1, 4], [8]])
def test_a03_reading_piece_by_piece_equals_reading_at_once(norm, pieces):
    model = tiny(norm).eval().double()
    caches, found = model.new_caches(), []
    for piece in IDS[:, :8].split(pieces, dim=1):
        found.append(model(piece, caches=caches))
    assert_close(torch.cat(found, 1), model(IDS[:, :8]))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_padding_on_the_left_changes_nothing(norm):
    model = tiny(norm).eval().double()
    alone = model(IDS[:1, :5])
    padded = torch.cat([torch.full((1, 6), 7), IDS[:1, :5]], 1)
    mask = torch.arange(11) >= 6
    both = torch.cat([padded, IDS[:, :1].new_full((1, 11), 3)]), torch.stack([mask, torch.arange(11) >= 4])
    assert_close(model(*both)[:1, 6:], alone)
    spoilt = both[0].clone()
    spoilt[:1, :6] = 11
    assert_close(model(spoilt, both[1])[:1, 6:], alone)
    # and in two pieces, with caches
    caches = model.new_caches()
    model(both[0][:, :8], both[1][:, :8], caches)
    assert_close(model(both[0][:, 8:], both[1], caches)[:1], alone[:, 2:])
    assert bool(torch.isfinite(model(*both)).all())


def test_k05_one_token():
    model = tiny().eval()
    assert bool(torch.isfinite(model(torch.tensor([[3]]))).all())
    assert model(torch.tensor([[3]])).shape == (1, 1, 23)


def test_a22_one_table_for_input_and_output():
    model = GPT(GPTConfig(vocab_size=10, d_model=4, n_heads=2, n_layers=1, n_positions=5))
    tables = [p for p in model.parameters() if 10 in p.shape]
    assert sum(p.numel() for p in tables) == 40
    pointer = model.tokens.weight.data_ptr()
    optimizer = torch.optim.AdamW(model.parameters())
    assert sum(p is model.tokens.weight for group in optimizer.param_groups for p in group["params"]) == 1
    model.to("cpu").load_state_dict(copy.deepcopy(model.state_dict()))
    before = model(torch.tensor([[1]]))
    model.loss({"ids": torch.tensor([[1, 2, 3]])})[0].backward()
    optimizer.step()
    assert model.tokens.weight.data_ptr() == pointer
    assert sum(10 in t.shape for t in model.state_dict().values()) == 1
    # the table is input and output: zero a row, and its token scores 0 everywhere
    with torch.no_grad():
        model.tokens.weight[4] = 0
    assert not model(torch.tensor([[1, 2]]))[..., 4].any()
    assert not torch.equal(before, model(torch.tensor([[1]])))


@pytest.mark.parametrize("kept", [False, True])
def test_a24_dropout_in_training_only_on_both_attention_paths(kept):
    model = tiny(dropout=0.5)
    with keep_weights(model, kept):
        model.train()
        assert not torch.equal(model(IDS[:, :8]), model(IDS[:, :8]))
        model.eval()
        assert torch.equal(model(IDS[:, :8]), model(IDS[:, :8]))


def test_a27_positions_count_from_zero_to_the_last():
    model = tiny().eval()
    assert model(IDS[:, :8]).shape == (2, 8, 23)
    swapped = IDS[:, [1, 0, *range(2, 8)]]
    assert not torch.allclose(model(IDS[:, :8])[:, -1], model(swapped)[:, -1])
    with pytest.raises(ValueError, match="9 tokens do not fit into n_positions = 8"):
        model(IDS)


def test_the_log_probabilities_of_a_long_text():
    model = tiny().double().eval()
    text = torch.randint(23, (31,), generator=torch.Generator().manual_seed(2))
    for stride in (1, 3, 8):
        found = model.token_log_probs(text, stride)
        assert found.shape == (30,)
        assert found.dtype == np.float64
        # the first window whole, then the last `stride` places of each window
        wanted = []
        for t in range(1, 31):
            start = 0 if t <= 8 else -(-(t - 8) // stride) * stride
            logits = model(text[None, start:t])[0, -1]
            wanted.append(logits.log_softmax(-1)[text[t]].item())
        assert_close(torch.tensor(found), torch.tensor(wanted, dtype=torch.float64))
    short = model.token_log_probs(text[:3].tolist())
    assert_close(torch.tensor(short), torch.tensor(found[:2]))
    with pytest.raises(ValueError, match="at least two tokens"):
        model.token_log_probs([1])
    with pytest.raises(ValueError, match="stride must lie between 1 and n_positions = 8, not 9"):
        model.token_log_probs(text, 9)


def test_it_learns_one_batch_by_heart():
    model = tiny(init_std=0.1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(150):
        total, n = model.loss({"ids": IDS})
        optimizer.zero_grad()
        (total / n).backward()
        optimizer.step()
    total, n = model.loss({"ids": IDS})
    assert total.item() / n < 0.05


def test_copies_pickles_checkpoints_and_other_precisions(tmp_path):
    model = tiny().eval()
    wanted = model(IDS[:, :8])
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(IDS[:, :8]), wanted)
    save_checkpoint(tmp_path / "x.safetensors", model, asdict(model.config) | {"tokenizer": "beside"})
    state, stored = load_checkpoint(tmp_path / "x.safetensors")
    again = GPT(GPTConfig.from_dict(stored))
    again.load_state_dict(state)
    assert torch.equal(again.eval()(IDS[:, :8]), wanted)
    assert_close(model.double()(IDS[:, :8]).float(), wanted)
    assert bool(torch.isfinite(model.bfloat16()(IDS[:, :8])).all())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be at least 1"),
        ({"n_positions": 0}, "n_positions must be at least 1"),
        ({"n_ids": 24}, "n_ids=24 tokens do not fit"),
        ({"init_std": -1.0}, "init_std"),
        ({"init_std": float("inf")}, "init_std"),
        ({"norm": "middle"}, "norm is"),
        ({"activation": "tanh"}, "activation is one of relu, gelu, gelu_tanh"),
    ],
)
def test_bad_sizes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


def test_sizes_that_are_no_whole_numbers_and_foreign_configs_are_named():
    for name, value in (("vocab_size", 10.0), ("n_positions", "8"), ("n_ids", 2.5)):
        with pytest.raises(TypeError, match=f"{name} is a whole number"):
            tiny(**{name: value})
    with pytest.raises(ValueError, match="no vocab_size: d_model"):
        GPTConfig.from_dict({"d_model": 12})


def test_a_text_with_ids_that_are_none_is_refused_not_judged():
    """-100 means "no target" to the cross entropy, which would call it a certainty."""
    model = tiny()
    for ids in ([1, -100], [1, 23], [-1, 2]):
        with pytest.raises(IndexError, match="ids must lie in 0 … 22"):
            model.token_log_probs(ids)
        with pytest.raises(IndexError, match="must lie in 0 … 22"):
            model.loss({"ids": torch.tensor([ids])})
    with pytest.raises(TypeError, match="not text"):
        model.token_log_probs("a film")
    with pytest.raises(TypeError, match="int64"):
        model.token_log_probs([1.0, 2.0])
    for stride in (0, 2.5, -1):
        with pytest.raises(ValueError, match="stride must lie between 1"):
            model.token_log_probs([1, 2, 3], stride)
    for ids in (torch.tensor([[1]]), [[1, 2]], torch.tensor([1, 2])):
        with pytest.raises(TypeError, match=r"a tensor \(B, T \+ 1\) with T at least 1"):
            model.loss({"ids": ids})


@pytest.mark.parametrize(
    ("ids", "mask", "error", "message"),
    [
        (IDS[:, :8].float(), None, TypeError, "int64"),
        (IDS[0], None, TypeError, r"\(B, T\)"),
        ([[1, 2]], None, TypeError, "got list"),
        (IDS[:, :0], None, TypeError, "at least 1"),
        (IDS[:, :8] + 20, None, IndexError, r"ids must lie in 0 … 22; got \d+ … 4\d"),
        (IDS[:, :8], torch.ones(2, 7, dtype=torch.bool), TypeError, r"mask must be bool \(2, 8\)"),
        (IDS[:, :8], torch.ones(2, 8), TypeError, "float32"),
    ],
)
def test_bad_input_is_named(ids, mask, error, message):
    with pytest.raises(error, match=message):
        tiny()(ids, mask)
