"""From scores for the next token to a whole sequence: greedy search, beam search, and the exhaustive search that checks them.

They work with any module that has two methods:
  start(source) -> state: read the source (B, T_source) once. The state is any nest of tuples, lists, tensors whose first
  dimension is the batch, and key-value caches; None stands for nothing.
  step(last, state) -> (logits, state): last (N,) int64, the token written last in each row; logits (N, V) for the next one.
  It may use up the state it is given.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plm.evaluate import modes, restore

State = Any
Model = Any  # an nn.Module with `start` and `step`


class Hypothesis(NamedTuple):
    """One output: a sequence and how probable the model holds it."""

    ids: list[int]  # without the start and the end token
    log_prob: float  # natural log, summed over its tokens, the end token included
    score: float  # log_prob / length ** alpha: what the search ranks by
    finished: bool  # whether it ended with the end token; otherwise it was cut at max_len


@torch.no_grad()
def greedy(model: Model, source: Tensor, *, start_id: int, end_id: int, max_len: int) -> list[Hypothesis]:
    """In each row the most probable token, then the most probable one after it, up to the end token or `max_len` tokens.

    source: (B, T) int64, padded as the model expects it. `max_len` counts the end token. Each row gets what it would get
    alone. The model runs in evaluation mode and is left in the mode it was found in.
    """
    _check(model, source, max_len, start_id, end_id)
    if not len(source):
        return []
    ids: list[list[int]] = [[] for _ in source]
    log_probs, finished = [0.0] * len(source), [False] * len(source)
    with _at_rest(model):
        rows, last, state = list(range(len(source))), torch.full_like(source[:, 0], start_id), model.start(source)
        for _ in range(max_len):
            scores, state = _next(model, last, state, end_id)
            values, last = scores.max(-1)
            for row, value, token in zip(rows, values.tolist(), last.tolist()):
                log_probs[row] += value
                finished[row] = token == end_id
                ids[row] += [] if finished[row] else [token]
            going = [i for i, row in enumerate(rows) if not finished[row]]
            if not going:
                break
            if len(going) < len(rows):  # finished rows leave the batch
                rows, last, state = [rows[i] for i in going], last[going], select(state, torch.tensor(going))
    scored = zip(ids, log_probs, finished)
    return [Hypothesis(i, value, value / (len(i) + done), done) for i, value, done in scored]


@torch.no_grad()
def beam_search(
    model: Model, source: Tensor, *, beam: int, start_id: int, end_id: int, max_len: int, alpha: float = 1.0
) -> list[list[Hypothesis]]:
    """Carry the `beam` most probable unfinished sequences of each row along; return up to `beam` finished ones, best first.

    A sequence that ends leaves the beam for the list of the finished, and its place stays empty: a beam with two finished
    sequences carries `beam` - 2 on (as in the code of Bahdanau et al. 2015). So the most probable beginning keeps its place
    to the end; in a beam that is filled up again, improbable sequences that end early would crowd it out. A row is done when
    no place is left or after `max_len` tokens, end token included; if nothing finished by then, the cut sequences are
    returned. Results are ranked by log_prob / length ** alpha: the log-probability of a sequence only falls
    with each token, so that alpha = 0 favours short ones; alpha = 1 ranks by the mean per token (Wu et al. 2016, sec. 7).
    With `beam` = 1 this is greedy search; with a beam as wide as the tree it is exhaustive.
    """
    _check(model, source, max_len, start_id, end_id, alpha)
    if beam < 1:
        raise ValueError(f"beam must be at least 1, not {beam}")
    if not len(source):
        return []
    done: list[list[Hypothesis]] = [[] for _ in source]
    with _at_rest(model):
        live: list[tuple[int, list[int], float]] = [(row, [], 0.0) for row in range(len(source))]
        last, state = torch.full_like(source[:, 0], start_id), model.start(source)
        for length in range(1, max_len + 1):
            scores, state = _next(model, last, state, end_id)
            total = scores.new_tensor([log_prob for _, _, log_prob in live])[:, None] + scores
            parents: list[int] = []
            grown: list[tuple[int, list[int], float]] = []
            for row, group in groupby(range(len(live)), key=lambda i: live[i][0]):
                members = list(group)
                for i, token, value in _best(total[members], beam - len(done[row])):
                    prefix = live[members[i]][1]
                    if token == end_id:
                        done[row].append(Hypothesis(prefix, value, value / length**alpha, True))
                    else:
                        parents.append(members[i])
                        grown.append((row, [*prefix, token], value))
            live = grown
            if not live:
                break
            last = torch.tensor([ids[-1] for _, ids, _ in live], device=source.device)
            state = select(state, torch.tensor(parents, device=source.device))
    for row, ids, value in live:
        if not any(hypothesis.finished for hypothesis in done[row]):
            done[row].append(Hypothesis(ids, value, value / max_len**alpha, False))
    return [sorted(found, key=lambda h: -h.score)[:beam] for found in done]


def _best(total: Tensor, k: int) -> list[tuple[int, int, float]]:
    """The k largest entries of (n, V) that are not -inf, as (row, column, value), largest first."""
    flat = total.flatten()
    # Of equals, max takes the first, as greedy search does; topk may take any.
    values, places = flat.max(0, keepdim=True) if k == 1 else flat.topk(min(k, len(flat)))
    width = total.shape[1]
    return [(p // width, p % width, v) for v, p in zip(values.tolist(), places.tolist()) if v > float("-inf")]


@torch.no_grad()
def log_prob(model: Model, source: Tensor, ids: list[int], *, start_id: int, end_id: int) -> float:
    """The log-probability that the model gives to `ids` and then the end token, for one source (1, T)."""
    _check(model, source, 1, start_id, end_id)
    if len(source) != 1:
        raise ValueError(f"one source at a time, (1, T): {len(source)} rows came")
    if isinstance(ids, str):
        raise TypeError(f"ids is a list of ids, not the string {ids!r}")
    total = 0.0
    with _at_rest(model):
        last, state = torch.full_like(source[:, 0], start_id), model.start(source)
        for token in [*ids, end_id]:
            scores, state = _next(model, last, state, end_id)
            if not 0 <= token < scores.shape[1]:
                raise IndexError(f"ids must lie in 0 … {scores.shape[1] - 1}; got {token}")
            total += scores[0, token].item()
            last = torch.full_like(last, token)
    return total


def exhaustive(
    model: Model, source: Tensor, *, vocab_size: int, start_id: int, end_id: int, max_len: int, alpha: float = 1.0
) -> list[Hypothesis]:
    """Every sequence of at most `max_len` tokens, end token included, best first. For tiny vocabularies: V ** max_len of them.

    source: (1, T). This writes out what beam search approximates, one sequence at a time.
    """
    _check(model, source, max_len, start_id, end_id, alpha)
    if end_id >= vocab_size:
        raise IndexError(f"end_id={end_id} is outside a vocabulary of {vocab_size}")
    if vocab_size ** (max_len - 1) > 100_000:
        raise ValueError(f"{vocab_size} ** {max_len - 1} sequences are too many to try: use beam_search")
    others = [token for token in range(vocab_size) if token != end_id]
    found = []
    for length in range(1, max_len + 1):
        for ids in map(list, product(others, repeat=length - 1)):
            value = log_prob(model, source, ids, start_id=start_id, end_id=end_id)
            found.append(Hypothesis(ids, value, value / length**alpha, True))
    return sorted(found, key=lambda h: -h.score)


def select(state: State, rows: Tensor) -> State:
    """The given rows of a state: of each tensor and cache in a nest of tuples, named tuples and lists; None stays None."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        return state.index_select(0, rows.to(state.device))
    if hasattr(state, "reorder"):  # a KVCache: the copy gets new tensors, the original keeps its own
        state = copy.copy(state)
        state.reorder(rows)
        return state
    if isinstance(state, tuple | list):
        parts = [select(part, rows) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    raise TypeError(f"a state is a nest of tuples, lists and tensors, but it holds a {type(state).__name__}")


def _next(model: Model, last: Tensor, state: State, end_id: int) -> tuple[Tensor, State]:
    logits, state = model.step(last, state)
    if logits.ndim != 2 or len(logits) != len(last):
        raise ValueError(f"step must return logits ({len(last)}, V), one row per sequence; got {tuple(logits.shape)}")
    if end_id >= logits.shape[1]:
        raise IndexError(
            f"end_id={end_id} is outside the model's vocabulary of {logits.shape[1]}: nothing would ever end"
        )
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # sums in half precision would be rounded
    log_probs = logits.log_softmax(-1)
    if log_probs.isnan().any():
        raise FloatingPointError("the model's scores are NaN, or infinite for a token: did its training diverge?")
    return log_probs, state


def _check(model: Model, source: Tensor, max_len: int, start_id: int, end_id: int, alpha: float = 1.0) -> None:
    if not (hasattr(model, "start") and hasattr(model, "step")):
        raise TypeError(f"{type(model).__name__} has no methods start and step: see the head of plm.decode")
    if not isinstance(source, Tensor):
        raise TypeError(f"source must be a tensor of ids (B, T), not {type(source).__name__}")
    if source.ndim != 2 or source.dtype != torch.int64 or source.shape[1] == 0:
        raise TypeError(f"source must be ids (B, T), int64, T at least 1; got {tuple(source.shape)} {source.dtype}")
    if min(start_id, end_id) < 0:
        raise IndexError(f"start_id and end_id are ids and at least 0; got {start_id} and {end_id}")
    if not (alpha >= 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha must be a finite number of at least 0, not {alpha}")
    if max_len < 1:
        raise ValueError(f"max_len must leave room for at least one token, not {max_len}")


@contextmanager
def _at_rest(model: Model) -> Iterator[None]:
    """Evaluation mode inside, the mode found before after it, also after an error."""
    found = modes(model)
    model.eval()
    try:
        yield
    finally:
        restore(found)
