"""The training loop of word2vec as machine code: one example after the other, as Mikolov's C program does it.

Each example makes one exact step of gradient descent: all scores are computed before any row moves. `plm.word2vec` has the
same losses in PyTorch, and the tests hold the two together.
"""

from functools import partial
from typing import Any

import numpy as np

from plm.compiled import compiled

Array = Any  # numpy arrays outside, numba's arrays inside
inlined = partial(compiled, inline="always")  # a call that hands over ten arrays costs as much as a dot product
U64, F32 = np.uint64, np.float32
LOW = U64(0xFFFFFFFF)


@inlined
def _random(state: Array) -> Any:
    """64 random bits; state (1,) uint64. SplitMix64 (Steele, Lea and Flood 2014)."""
    state[0] += U64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
    return z ^ (z >> U64(31))


@inlined
def _below(bits: Any, n: int) -> Any:
    """A number in 0 … n - 1 from the upper 32 bits, without a division."""
    return np.int64(((bits >> U64(32)) * U64(n)) >> U64(32))


@inlined
def _descend(h: Array, g: Array, C: Array, rows: Array, labels: Array, n: int, lr: float, error: Array) -> None:
    """One step for the example (h; rows and labels): moves C, and leaves -lr times the gradient of h in g."""
    d = h.shape[0]
    for k in range(n):
        row, score = rows[k], F32(0)
        for i in range(d):
            score += h[i] * C[row, i]
        error[k] = lr * (labels[k] - F32(1) / (F32(1) + np.exp(-score)))
    for i in range(d):
        g[i] = 0
    for k in range(n):
        row, e = rows[k], error[k]
        for i in range(d):
            g[i] += e * C[row, i]
    for k in range(n):
        row, e = rows[k], error[k]
        for i in range(d):
            C[row, i] += e * h[i]


@inlined
def _step(
    Q: Array, C: Array, inputs: Array, m: int, rows: Array, labels: Array, n: int, lr: float, h: Array, g: Array, error: Array
) -> None:  # fmt: skip
    """One step for one example: the mean of the rows inputs[:m] of Q predicts rows[:n] of C. h, g, error: room to work."""
    d = Q.shape[1]
    share = F32(1) / F32(m)
    for i in range(d):
        h[i] = 0
    for j in range(m):
        row = inputs[j]
        for i in range(d):
            h[i] += share * Q[row, i]
    _descend(h, g, C, rows, labels, n, lr, error)
    for j in range(m):
        row = inputs[j]
        for i in range(d):
            Q[row, i] += share * g[i]


@compiled
def steps(Q: Array, C: Array, inputs: Array, rows: Array, labels: Array, lr: float) -> None:
    """One step after the other for given examples, to compare with PyTorch: changes Q (V, d) and C in place, float32.

    inputs: (B, m), rows: (B, n), both int32 with -1 for "none"; labels: (B, n) float32, 1 for the real word or turn 0.
    """
    h, g, error = np.empty_like(Q[0]), np.empty_like(Q[0]), np.empty_like(labels[0])
    given, wanted, answers = np.empty_like(inputs[0]), np.empty_like(rows[0]), np.empty_like(labels[0])
    for b in range(len(inputs)):
        m = n = 0
        for i in inputs[b]:
            if i >= 0:
                given[m] = i
                m += 1
        for k in range(rows.shape[1]):
            if rows[b, k] >= 0:
                wanted[n], answers[n] = rows[b, k], labels[b, k]
                n += 1
        _step(Q, C, given, m, wanted, answers, n, F32(lr), h, g, error)


@inlined
def _draw(target: int, K: int, cut: Array, other: Array, rows: Array, state: Array) -> Any:
    """The target and up to K words drawn from the alias table, those equal to the target left out. Returns how many."""
    rows[0], n = target, 1
    for _ in range(K):
        bits = _random(state)
        word = _below(bits, len(cut))
        if (bits & LOW) >= cut[word]:
            word = np.int64(other[word])
        if word != target:
            rows[n] = word
            n += 1
    return n


@inlined
def _path(target: int, points: Array, codes: Array, starts: Array, rows: Array, labels: Array) -> Any:
    """The inner nodes on the way to the target and the labels of its turns. Returns how many."""
    n = 0
    for k in range(starts[target], starts[target + 1]):
        rows[n], labels[n] = points[k], F32(1 - codes[k])
        n += 1
    return n


@compiled
def train_chunk(
    ids: Array, starts: Array, Q: Array, C: Array, skip_gram: bool, window: int, keep: Array, K: int,
    noise: tuple[Array, Array], tree: tuple[Array, Array, Array], rates: tuple[float, float], seed: int, trace: Array,
) -> Any:  # fmt: skip
    """Train on some sentences, Q and C in place. Returns how many examples there were.

    ids: (N,) int32; starts: (S + 1,) positions of the sentences in it. keep: (V,) uint64, the chance that a word stays times
    2**32. K: negatives per target, or 0 for the tree. noise: `alias_table`. tree: points, codes, and where each word's path
    starts. rates: at the first and at the last word, a line between. trace: int32 (T, 2 * window + 1 + K), filled with the
    inputs, target and negatives of the first T examples, -1 where there is none.
    """
    state = np.empty(1, np.uint64)
    state[0] = seed
    cut, other = noise
    points, codes, paths = tree
    longest = max(K + 1, len(points) if K == 0 else 0)
    rows, labels = np.empty(longest, np.int32), np.zeros(longest, np.float32)
    labels[0] = 1
    h, g, error = np.empty_like(Q[0]), np.empty_like(Q[0]), np.empty_like(labels)
    given = np.empty(2 * window, np.int32)  # no slices in the loop: each one costs as much as a dot product
    text, inputs, done = np.empty(len(ids), np.int32), np.empty(2 * window, np.int32), 0
    for s in range(len(starts) - 1):
        m = 0
        for p in range(starts[s], starts[s + 1]):
            if (_random(state) >> U64(32)) < keep[ids[p]]:
                text[m] = ids[p]
                m += 1
        lr = F32(rates[0] + (rates[1] - rates[0]) * (starts[s] - starts[0]) / max(starts[-1] - starts[0], 1))
        for p in range(m):
            reach = _below(_random(state), window) + 1
            n_inputs = 0
            for q in range(max(0, p - reach), min(m, p + reach + 1)):
                if q != p:
                    inputs[n_inputs] = text[q]
                    n_inputs += 1
            # Skip-gram: the word predicts each neighbour. CBOW: all neighbours together predict the word.
            for e in range(n_inputs if skip_gram else min(n_inputs, 1)):
                target = inputs[e] if skip_gram else text[p]
                n = (
                    _draw(target, K, cut, other, rows, state)
                    if K
                    else _path(target, points, codes, paths, rows, labels)
                )
                n_given = 1 if skip_gram else n_inputs
                for k in range(n_given):
                    given[k] = text[p] if skip_gram else inputs[k]
                if done < len(trace):
                    trace[done] = -1
                    trace[done, :n_given] = given[:n_given]
                    trace[done, 2 * window] = target
                    for k in range(1, n if K else 0):
                        trace[done, 2 * window + k] = rows[k]
                _step(Q, C, given, n_given, rows, labels, n, lr, h, g, error)
                done += 1
    return done


def alias_table(probabilities: Array) -> tuple[Array, Array]:
    """cut (V,) uint64 and other (V,) int32, to draw from `probabilities` (V,) in one step: Walker 1977, Vose 1991.

    Draw a word evenly and 32 bits; the word stays if the bits lie below its cut, else take its other.
    """
    V = len(probabilities)
    mass = np.asarray(probabilities, np.float64) * V  # 1 on average
    cut, other = np.ones(V), np.arange(V, dtype=np.int32)
    small, large = list(np.flatnonzero(mass < 1)), list(np.flatnonzero(mass >= 1))
    while small and large:
        low, high = small.pop(), large[-1]
        cut[low], other[low] = mass[low], high
        mass[high] -= 1 - mass[low]
        if mass[high] < 1:
            small.append(large.pop())
    return (cut * 2.0**32).astype(np.uint64), other
