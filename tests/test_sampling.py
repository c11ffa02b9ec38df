"""Choosing the next token, and writing: against transformers' filters, by hand, and in a batch as alone."""

import json
import shutil
import subprocess
from importlib.resources import files

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from plm.bpe import BPE
from plm.gpt import GPT, GPTConfig
from plm.sampling import draw, generate, grouped, next_token_example, next_token_probs, pad_left

LOGITS = torch.randn(5, 50, generator=torch.Generator().manual_seed(0)) * 3


def tiny(**changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": 23, "n_positions": 8, "d_model": 12, "n_heads": 3, "n_layers": 2, "dropout": 0.0}
    return GPT(GPTConfig(**(sizes | {"init_std": 0.4} | changes))).double()


# --- the next token -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_k", [None, 1, 7, 500])
@pytest.mark.parametrize("top_p", [None, 0.1, 0.5, 0.95, 1.0])
def test_equals_transformers_filters(temperature, top_k, top_p):
    scores = TemperatureLogitsWarper(temperature)(None, LOGITS.double())
    if top_k is not None:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p is not None:
        scores = TopPLogitsWarper(top_p)(None, scores)
    assert_close(next_token_probs(LOGITS, temperature, top_k, top_p), scores.softmax(-1))


def test_by_hand():
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    hand = lambda *p: torch.tensor(p, dtype=torch.float64)  # noqa: E731
    close = {"atol": 1e-6, "rtol": 1e-6}
    assert_close(next_token_probs(logits, top_k=2), hand(0.625, 0.375, 0, 0), **close)
    assert_close(next_token_probs(logits, top_p=0.8), hand(0.625, 0.375, 0, 0), **close)
    assert_close(next_token_probs(logits, top_p=0.81), hand(50, 30, 15, 0) / 95, **close)
    assert_close(next_token_probs(logits, top_p=0.01), hand(1, 0, 0, 0), **close)
    squared = hand(0.25, 0.09, 0.0225, 0.0025)
    assert_close(next_token_probs(logits, 0.5), squared / squared.sum(), **close)


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-8, 1e-300])
def test_a16_temperature_zero_and_near_zero_are_greedy(temperature):
    probs = next_token_probs(torch.tensor([[1.0, 2.0, 0.0]]), temperature)
    assert_close(probs, torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64))
    assert [int(draw(probs, torch.rand(1, dtype=torch.float64))) for _ in range(5)] == [1] * 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1}, "temperature is a number, 0 .greedy. or more, not -1"),
        ({"temperature": float("nan")}, "not nan"),
        ({"temperature": float("inf")}, "not inf"),
        ({"top_k": 0}, "top_k keeps at least one"),
        ({"top_p": 0.0}, "top_p is a share"),
        ({"top_p": 1.1}, "not 1.1"),
    ],
)
def test_a16_bad_settings_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        next_token_probs(LOGITS, **arguments)
    with pytest.raises(ValueError, match=message):
        generate(tiny(), [[1]], 1, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"temperature": "1"},
        {"temperature": None},
        {"top_k": 2.5},
        {"top_k": 2.0},
        {"top_k": "3"},
        {"top_k": True},
        {"top_k": float("nan")},
        {"top_p": "x"},
        {"top_p": True},
    ],
    ids=str,
)
def test_a16_settings_that_are_no_numbers_are_named(arguments):
    with pytest.raises(TypeError, match=f"{next(iter(arguments))} is a "):
        next_token_probs(LOGITS, **arguments)


def test_scores_that_are_no_scores_are_refused():
    for bad in (float("nan"), float("inf")):
        with pytest.raises(FloatingPointError, match="NaN or infinite"):
            next_token_probs(torch.tensor([0.0, bad]))
    with pytest.raises(TypeError, match="floats"):
        next_token_probs(torch.tensor([1, 2]))
    with pytest.raises(TypeError, match="a tensor of floats"):
        next_token_probs([0.1, 0.2])
    with pytest.raises(FloatingPointError, match="nothing to draw from"):
        draw(torch.zeros(2, 3), torch.tensor([0.1, 0.2]))
    with pytest.raises(ValueError, match=r"need probs \(B, V\) and u \(B,\)"):
        draw(torch.ones(2, 3), torch.tensor([0.1]))
    with pytest.raises(ValueError, match="no token in any row"):
        pad_left([])
    # -inf forbids a token
    assert next_token_probs(torch.tensor([0.0, float("-inf")])).tolist() == [1, 0]


def test_ties_are_cut_so_that_k_remain():
    assert (next_token_probs(torch.zeros(9), top_k=4) > 0).tolist() == [True] * 4 + [False] * 5
    assert (next_token_probs(torch.zeros(10), top_p=0.35) > 0).sum() == 4


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=5), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_a_draw_never_lands_where_the_probability_is_zero(u, seed):
    generator = torch.Generator().manual_seed(seed)
    probs = torch.rand(len(u), 6, generator=generator, dtype=torch.float64)
    probs[:, ::2] = 0
    tokens = draw(probs / probs.sum(1, keepdim=True), torch.tensor(u, dtype=torch.float64))
    assert bool((tokens % 2 == 1).all())


def test_draws_have_the_frequencies_of_the_distribution():
    probs = torch.tensor([[0.1, 0.0, 0.6, 0.3]], dtype=torch.float64).expand(40_000, 4)
    tokens = draw(probs, torch.rand(40_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    assert_close(tokens.bincount(minlength=4) / 40_000, probs[0].float(), atol=0.01, rtol=0)


# --- writing ------------------------------------------------------------------------------------------------------

PROMPTS = [[1], [5, 6, 7, 8], [2, 3], [9, 8, 7, 6, 5, 4, 3]]
WAYS = [{"temperature": 0}, {"temperature": 1.3, "seed": 3}, {"top_k": 5}, {"top_p": 0.7, "seed": 1}]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_cached_equals_uncached_also_beyond_the_window(norm, how):
    model = tiny(norm=norm)
    for n_new in (1, 6, 14):
        with_cache = generate(model, PROMPTS, n_new, **how)
        assert with_cache == generate(model, PROMPTS, n_new, cached=False, **how)
        assert [len(row) for row in with_cache] == [len(p) + n_new for p in PROMPTS]


def test_a_batch_with_padding_equals_one_by_one():
    model = tiny()
    together = generate(model, PROMPTS, 10, temperature=0)
    assert together == [generate(model, [p], 10, temperature=0)[0] for p in PROMPTS]
    # with chance: a row draws its own numbers, whatever stands beside it
    first = generate(model, PROMPTS, 10, seed=4)
    assert first[:2] == generate(model, PROMPTS[:2], 10, seed=4)
    assert first != generate(model, PROMPTS, 10, seed=5)
    same = generate(model, [[1], [1], [1]], 12)
    assert len(set(map(tuple, same))) == 3


def test_rows_that_end_leave_the_batch_and_the_others_go_on():
    model = tiny()
    free = generate(model, PROMPTS, 10, temperature=0)
    end = free[1][len(PROMPTS[1]) + 2]
    ended = generate(model, PROMPTS, 10, temperature=0, end_id=end)
    for row, whole, prompt in zip(ended, free, PROMPTS):
        new = whole[len(prompt) :]
        wanted = new[: new.index(end) + 1] if end in new else new
        assert row == prompt + wanted
    assert len({len(r) - len(p) for r, p in zip(ended, PROMPTS)}) > 1


def test_a18_only_the_last_positions_are_read():
    model = tiny()
    prompt = torch.randint(23, (20,), generator=torch.Generator().manual_seed(0)).tolist()
    assert len(generate(model, [prompt[:8]], 5, temperature=0)[0]) == 13
    long = generate(model, [prompt], 1, temperature=0)[0]
    assert len(long) == 21
    assert long[-1] == generate(model, [prompt[-8:]], 1, temperature=0)[0][-1]
    with pytest.raises(ValueError, match="prompt 1 is empty: begin with the start token"):
        generate(model, [[1], []], 5)


def test_a19_ids_beyond_the_tokenizers_are_never_written():
    model = tiny(vocab_size=64, n_ids=50)
    plain = model.score
    model.score = lambda h: plain(h).index_fill(-1, torch.tensor([60]), 1e9)
    for how in WAYS:
        for row in generate(model, [[1], [2, 3]], 30, **how):
            assert max(row) < 50


@pytest.mark.parametrize("training", [True, False])
def test_a24_writing_is_free_of_dropout_and_leaves_the_mode(training):
    model = tiny(dropout=0.5).train(training)
    model.blocks.layers[0].eval()
    first = generate(model, PROMPTS, 5, temperature=0)
    assert first == generate(model, PROMPTS, 5, temperature=0)
    assert model.training is training
    assert model.blocks.layers[0].training is False
    with pytest.raises(IndexError):
        generate(model, [[99]], 1)
    assert model.training is training


def test_padding_on_the_left():
    ids, mask = pad_left([[1], [2, 3, 4]])
    assert ids.tolist() == [[0, 0, 1], [2, 3, 4]]
    assert mask.tolist() == [[False, False, True], [True, True, True]]


@pytest.mark.parametrize(
    ("prompts", "n_new", "error", "message"),
    [
        ("the film", 3, TypeError, "lists of ids"),
        (["the film"], 3, TypeError, "lists of ids"),
        ([1, 2], 3, TypeError, "lists of ids"),
        ([[1.5]], 3, TypeError, "lists of ids"),
        (torch.tensor([[1.5]]), 3, TypeError, "lists of ids"),
        ([["film"]], 3, TypeError, "lists of ids"),
        (None, 3, TypeError, "lists of ids"),
        ([None], 3, TypeError, "lists of ids"),
        ([[1]], 2.5, TypeError, "n_new is a whole number, not 2.5"),
        ([], 3, TypeError, "lists of ids"),
        ([[1]], 0, ValueError, "n_new must be at least 1"),
        ([[23]], 1, IndexError, "prompt 0 holds an id outside 0 … 22"),
        ([[-1]], 1, IndexError, "outside"),
    ],
)
def test_bad_prompts_are_named(prompts, n_new, error, message):
    with pytest.raises(error, match=message):
        generate(tiny(), prompts, n_new)


def test_bad_seeds_and_ends_are_named():
    for seed in (1.5, None, "0"):
        with pytest.raises(TypeError, match="seed is a whole number"):
            generate(tiny(), [[1]], 1, seed=seed)
    with pytest.raises(TypeError, match="end_id is a whole number"):
        generate(tiny(), [[1]], 1, end_id="</s>")
    with pytest.raises(ValueError, match="end_id=23 would never come"):
        generate(tiny(), [[1]], 1, end_id=23)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a21_half_precision_writes_too_also_with_padding(dtype):
    model = tiny().to(dtype)
    for how in WAYS:
        rows = generate(model, PROMPTS, 6, **how)
        assert [len(r) for r in rows] == [len(p) + 6 for p in PROMPTS]
    ids, mask = pad_left(PROMPTS)
    assert bool(torch.isfinite(model(ids, mask)).all())


def test_a_model_that_diverged_says_so():
    model = tiny()
    with torch.no_grad():
        model.tokens.weight[3] = float("nan")
    with pytest.raises(FloatingPointError, match="NaN"):
        generate(model, [[3]], 1)


# --- the explorer -------------------------------------------------------------------------------------------------


def test_an_example_for_the_explorer_holds_the_whole_distribution():
    tokenizer = BPE.train(["a film . ", "good film ! "], 20)
    model = tiny(vocab_size=24, n_ids=len(tokenizer), n_positions=32)
    found = next_token_example(model, tokenizer, "a good film ", n=5)
    assert len(found["tokens"]) == 5
    assert sum(n for n, _, _ in found["tail"]) == len(tokenizer) - 5
    values = [p for _, p in found["tokens"]]
    assert values == sorted(values, reverse=True)
    assert abs(sum(values) + sum(q for _, q, _ in found["tail"]) - 1) < 1e-4
    ids = [tokenizer.start_id, *tokenizer.encode("a good film ")]
    probs = model(torch.tensor([ids]))[0, -1, : len(tokenizer)].softmax(-1)
    assert_close(values[0], probs.max().item(), atol=1e-5, rtol=0)
    named = [name for _, _, some in found["tail"] for name in some]
    assert not any(" " in token for token in [*(name for name, _ in found["tokens"]), *named])
    assert len(set(named)) == len(named)
    assert {name.replace("␣", " ") for name in named} <= {*tokenizer.tokens}
    with pytest.raises(ValueError, match="at least one word"):
        next_token_example(model, tokenizer, "  ")
    with pytest.raises(TypeError, match="one string"):
        next_token_example(model, tokenizer, ["a", "film"])
    with pytest.raises(ValueError, match="n must be at least 1"):
        next_token_example(model, tokenizer, "a", n=0)


def test_runs_are_of_nearly_equal_probabilities():
    ranked = [0.2, 0.19, 0.1, 0.05, 0.05, 0.05, 0.046, 1e-9, 0.0]
    assert grouped(ranked, "abcdefghi") == [
        [2, 0.39, ["a", "b"]],
        [1, 0.1, ["c"]],
        [4, 0.196, ["d", "e", "g"]],
        [1, 1e-9, ["h"]],  # small, and not 0; what is 0 cannot be drawn
    ]
    assert grouped([], "") == []


def run_in_node(script, tmp_path, **values):
    """What a script prints as JSON, run behind the front end's functions and with these values."""
    text = (files("plm") / "explore_static" / "next_token.js").read_text(encoding="utf-8")
    file = tmp_path / "check.mjs"
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
    file.write_text(
        text.replace("export default { render };", "") + constants + f"console.log(JSON.stringify({script}));"
    )
    return json.loads(subprocess.run(["node", file], check=True, capture_output=True, text=True).stdout)


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def state_of(probs, n):
    """What `next_token_example` gives for probabilities in descending order."""
    values, names = probs.tolist(), [str(i) for i in range(len(probs))]
    return {"tokens": [*map(list, zip(names, values[:n]))], "tail": grouped(values[n:], names[n:])}


@needs_node
def test_the_explorer_chooses_as_the_library_does(tmp_path):
    probs = LOGITS[0].double().softmax(-1).sort(descending=True).values
    ways = [(t, k, p) for t in (0, 0.3, 1, 1.9) for k in (1, 5, 59, 60) for p in (0.05, 0.5, 0.8, 1)]
    found = run_in_node("ways.map(([t, k, p]) => choose(now, t, k, p))", tmp_path, ways=ways, now=state_of(probs, 50))
    for (t, k, p), one in zip(ways, found, strict=True):
        wanted = next_token_probs(probs.log(), t, None if k == 60 or k > 50 else k, None if p == 1 else p)
        assert_close(torch.tensor(one["kept"], dtype=torch.float64), wanted, msg=f"{t}, {k}, {p}")
        assert (one["tail"], one["left"]) == (0, int((wanted > 0).sum()))


@needs_node
@pytest.mark.parametrize("spread", [1.0, 2.0, 4.0], ids="spread {}".format)
def test_the_explorer_is_right_about_tokens_it_does_not_list(spread, tmp_path):
    """Sixty of six thousand are listed; what the sliders make of the others is right to within a per cent."""
    logits = torch.randn(6000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * spread
    probs = logits.softmax(-1).sort(descending=True).values
    ways = [(t / 10, k, p) for t in range(1, 21) for k in (7, 60) for p in (0.05, 0.5, 0.9, 0.95, 1)]
    found = run_in_node("ways.map(([t, k, p]) => choose(now, t, k, p))", tmp_path, ways=ways, now=state_of(probs, 60))
    for (t, k, p), one in zip(ways, found, strict=True):
        wanted = next_token_probs(probs.log(), t, None if k == 60 else k, None if p == 1 else p)
        kept, n = torch.tensor(one["kept"], dtype=torch.float64), int((wanted > 0).sum())
        # Where the cut falls between two tokens a hair decides: one token, or one in a hundred, may be there too many.
        assert abs(one["left"] - n) <= max(1, 0.01 * n), (t, k, p)
        both = (kept > 0) & (wanted[:60] > 0)
        if one["left"] == n or n > 100:
            assert_close(kept[both], wanted[:60][both], rtol=0.01, atol=0, msg=lambda m, way=(t, k, p): f"{way}: {m}")
        assert one["tail"] == pytest.approx(wanted[60:].sum().item(), abs=0.01), (t, k, p)


@needs_node
def test_the_explorer_draws_listed_tokens_and_others_and_nothing_that_is_cut(tmp_path):
    now = {"tokens": [["a", 0.5], ["b", 0.3]], "tail": [[2, 0.2, ["c", "d"]]]}
    at = "[0, 0.49, 0.51, 0.79, 0.81, 0.99, 0.999999999999]"
    draws = f"{at}.map((u) => drawTen(now, choose(now, t, 60, p), () => u)[0])"
    assert run_in_node(draws, tmp_path, now=now, t=1, p=1) == ["a", "a", "b", "b", "(d)", "(d)", "(d)"]
    assert set(run_in_node(draws, tmp_path, now=now, t=1, p=0.8)) == {"a", "b"}
    assert set(run_in_node(draws, tmp_path, now=now, t=0, p=1)) == {"a"}
    once = run_in_node("choose(now, 1, 60, 0.85)", tmp_path, now=now)
    assert once["left"] == 3  # one of the two equals is enough to reach the share
    assert_close(once["tail"], 0.1 / 0.9)
