"""Writing with a language model: which token comes next (greedy, temperature, top-k, top-p), and one after the other."""

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from plm.bpe import BPE
from plm.evaluate import modes, restore
from plm.gpt import GPT


def next_token_probs(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """Probabilities to draw the next token from, (..., V) float64, from logits (..., V).

    temperature: softmax(logits / temperature); 0 is the limit, all on the largest logit (the first, if several are).
    top_k: only the k most probable tokens. top_p: of these only the fewest that together hold the share top_p or more
    (the "nucleus", Holtzman et al. 2020). What is cut gets 0, the rest is scaled up to sum to 1. Among equals the lower id
    counts as more probable, so that "the k most probable" are always k.
    """
    _check(temperature, top_k, top_p)
    if not isinstance(logits, Tensor):
        raise TypeError(f"logits must be a tensor of floats (..., V), not {type(logits).__name__}")
    if not logits.is_floating_point() or logits.ndim == 0 or logits.shape[-1] == 0:
        raise TypeError(f"logits must be floats (..., V), not {tuple(logits.shape)} {logits.dtype}")
    top = logits.max(-1, keepdim=True).values.double()
    if not bool(torch.isfinite(top).all()):
        raise FloatingPointError("the model's scores are NaN or infinite: did its training diverge?")
    if temperature == 0:
        return torch.zeros_like(logits, dtype=torch.float64).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    probs = ((logits.double() - top) / temperature).softmax(-1)  # at most 0 before the division: it cannot overflow
    if top_k is None and top_p is None:
        return probs
    ranked, order = probs.sort(dim=-1, descending=True, stable=True)
    keep = torch.ones_like(ranked, dtype=torch.bool)
    if top_k is not None:
        keep[..., top_k:] = False
        ranked = ranked.masked_fill(~keep, 0.0)
        ranked = ranked / ranked.sum(-1, keepdim=True)
    if top_p is not None:
        keep &= ranked.cumsum(-1) - ranked < top_p  # a token is kept while those before it hold less than top_p
        keep[..., 0] = True
    kept = torch.zeros_like(probs).scatter_(-1, order, ranked.masked_fill(~keep, 0.0))
    return kept / kept.sum(-1, keepdim=True)


def _choose(logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, u: Tensor) -> Tensor:
    """The next token of each row, (B,) int64, on the CPU. Greedy needs no distribution."""
    if temperature == 0 and bool(torch.isfinite(logits.max())):
        return logits.argmax(-1).cpu()
    return draw(next_token_probs(logits, temperature, top_k, top_p).cpu(), u)


def draw(probs: Tensor, u: Tensor) -> Tensor:
    """The token at the share u of the way through the distribution: probs (B, V), u (B,) in [0, 1). Returns (B,) int64."""
    if probs.ndim != 2 or u.shape != probs.shape[:1]:
        raise ValueError(f"need probs (B, V) and u (B,), not {tuple(probs.shape)} and {tuple(u.shape)}")
    cumulative = probs.cumsum(-1)
    total = cumulative[:, -1:]
    if not bool((total > 0).all()):  # NaN, too
        raise FloatingPointError("there is nothing to draw from: a row of probs is all 0 or NaN")
    return ((cumulative <= u.double()[:, None] * total) & (cumulative < total)).sum(-1)


@torch.no_grad()
def generate(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    n_new: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    end_id: int | None = None,
    seed: int = 0,
    cached: bool = True,
) -> list[list[int]]:
    """Continue each prompt by `n_new` tokens, or fewer if `end_id` comes (it is the last token then). Prompts included.

    Prompts may differ in length: they stand in one batch with padding on the left, and each gets what it would get alone.
    temperature 0 is greedy; otherwise row i draws with the seed (seed, i), whatever the other rows do. The model sees the
    last n_positions tokens. Until a row is that long, keys and values are kept from step to step (`cached`); afterwards
    every token has another position at each step, and the window is read anew. Ids from config.n_ids on are never written.
    The model runs in evaluation mode and is left in the mode it was found in.
    """
    _check(temperature, top_k, top_p)
    rows = _prompts(model, prompts)
    for name, value in (("n_new", n_new), ("seed", seed), ("end_id", 0 if end_id is None else end_id)):
        if not _whole(value):
            raise TypeError(f"{name} is a whole number, not {value!r}")
    if n_new < 1:
        raise ValueError(f"n_new must be at least 1 token, not {n_new}")
    if end_id is not None and not 0 <= end_id < model.config.n_ids:
        raise ValueError(f"end_id={end_id} would never come: the model writes ids 0 … {model.config.n_ids - 1}")
    device = model.tokens.weight.device
    u = torch.stack([torch.rand(n_new, generator=_generator(seed, i), dtype=torch.float64) for i in range(len(rows))])
    going, caches, found = list(range(len(rows))), None, modes(model)
    model.eval()
    try:
        for step in range(n_new):
            whole = max(len(rows[i]) for i in going) > model.config.n_positions
            if caches is None or whole or not cached:
                caches = None if whole or not cached else model.new_caches()
                ids, mask = pad_left([rows[i][-model.config.n_positions :] for i in going])
                ids, mask = ids.to(device), mask.to(device)
            else:
                ids, mask = ids[:, -1:], torch.cat([mask, mask.new_ones(len(going), 1)], 1)
            h = model.hidden(ids, None if bool(mask.all()) else mask, caches)[:, -1]
            logits = model.score(h)[:, : model.config.n_ids]
            last = _choose(logits, temperature, top_k, top_p, u[going, step])
            for i, token in zip(going, last.tolist()):
                rows[i].append(token)
            stay = [j for j, token in enumerate(last.tolist()) if token != end_id]
            if not stay:
                break
            ids = last[:, None].to(device)
            if len(stay) < len(going):  # rows that have ended leave the batch
                keep = torch.tensor(stay, device=device)
                going, ids, mask = [going[j] for j in stay], ids[keep], mask[keep]
                for cache in caches or []:
                    cache.reorder(keep)
    finally:
        restore(found)
    return rows


@torch.no_grad()
def next_token_example(model: GPT, tokenizer: BPE, text: str, n: int = 60) -> dict[str, Any]:
    """One prefix for the front end `next_token`: the n most probable tokens after a text, and the others in groups.

    The text is read as the beginning of a document. The space that ends a word is shown as ␣. See `grouped`.
    """
    if not isinstance(text, str):
        raise TypeError(f"text is one string, not {type(text).__name__}")
    if not text.strip():
        raise ValueError("type at least one word")
    if n < 1:
        raise ValueError(f"n must be at least 1 token, not {n}")
    ids = [tokenizer.start_id, *tokenizer.encode(text)][-model.config.n_positions :]
    found = modes(model)
    model.eval()
    try:
        here = torch.tensor([ids], device=model.tokens.weight.device)
        probs = next_token_probs(model(here)[0, -1, : model.config.n_ids].cpu())
    finally:
        restore(found)
    ranked, order = probs.sort(descending=True, stable=True)
    names = [tokenizer.tokens[i].replace(" ", "␣") for i in order.tolist()]
    listed = [[name, _digits(p)] for name, p in zip(names[:n], ranked[:n].tolist())]
    return {"text": text.strip(), "tokens": listed, "tail": grouped(ranked[n:].tolist(), names[n:])}


def grouped(ranked: Sequence[float], names: Sequence[str], width: float = 0.1) -> list[list[Any]]:
    """Probabilities in descending order as runs of nearly equal ones: [how many, their sum, the names of up to three] each.

    In a run the natural logs differ by at most `width`, so that the run may be taken for equal shares of its sum: raised to
    the power 1/τ (temperature τ) it is then off by a share of about (width / 2)² |1/τ - 1| / 2τ at most, half a per
    cent at τ = 0.4. What has underflowed to 0 is left out.
    """
    runs: list[tuple[int, int]] = []  # the first place of each, and the one behind its last
    for i, p in enumerate(ranked):
        if p > 0 and (not runs or math.log(ranked[runs[-1][0]] / p) > width):
            runs.append((i, i + 1))
        elif p > 0:
            runs[-1] = runs[-1][0], i + 1
    some = lambda a, b: sorted({a, (a + b - 1) // 2, b - 1})  # noqa: E731
    return [[b - a, _digits(sum(ranked[a:b])), [names[i] for i in some(a, b)]] for a, b in runs]


def _digits(p: float) -> float:
    """Five significant digits: small probabilities stay above 0."""
    return float(f"{p:.5g}")


def pad_left(rows: Sequence[Sequence[int]], pad_id: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of ids as one batch that ends flush: ids (B, T) int64 and mask (B, T) bool, True for true tokens."""
    longest = max(map(len, rows), default=0)
    if not longest:
        raise ValueError("there is no token in any row")
    ids = torch.full((len(rows), longest), pad_id)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, longest - len(row) :] = torch.tensor(row)
        mask[i, longest - len(row) :] = True
    return ids, mask


def _generator(seed: int, row: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + row) % 2**63)


def _prompts(model: GPT, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    if isinstance(prompts, Tensor):
        prompts = prompts.tolist()
    try:
        rows = [[operator.index(token) for token in prompt] for prompt in prompts]
    except TypeError:  # text, floats, a single list ...
        rows = []
    if not rows or isinstance(prompts, str):
        raise TypeError("prompts is a list of lists of ids, one per text to continue: [tokenizer.encode(text)]")
    for i, row in enumerate(rows):
        if not row:
            raise ValueError(f"prompt {i} is empty: begin with the start token, [tokenizer.start_id]")
        if not all(0 <= token < model.config.vocab_size for token in row):
            raise IndexError(f"prompt {i} holds an id outside 0 … {model.config.vocab_size - 1}: {row}")
    return rows


def _whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _check(temperature: float, top_k: int | None, top_p: float | None) -> None:
    for name, value in (("temperature", temperature), ("top_p", 1.0 if top_p is None else top_p)):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{name} is a number, not {value!r}")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature is a number, 0 (greedy) or more, not {temperature}")
    if top_k is not None and not _whole(top_k):
        raise TypeError(f"top_k is a whole number of tokens, not {top_k!r}; None keeps all")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k keeps at least one token, not {top_k}; None keeps all")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is a share above 0 and at most 1, not {top_p}; None keeps all")
