"""The training loop of GloVe as machine code: AdaGrad, one cell of the table of counts after the other."""

from typing import Any

import numpy as np

from plm.compiled import compiled

Array = Any
F32 = np.float32


@compiled
def steps(
    Q: Array, C: Array, b: Array, a: Array, Q2: Array, C2: Array, b2: Array, a2: Array,
    rows: Array, cols: Array, logs: Array, weights: Array, lr: float,
) -> None:  # fmt: skip
    """One step per cell, tables in place: Q, C (V, d), b, a (V, 1), and for each its sum of squared gradients, all float32.

    rows, cols: (N,) int32; logs, weights: (N,) float32, the logarithm of the count and its weight. As torch.optim.Adagrad,
    the square of a gradient is added before the step is divided by the root of the sum.
    """
    d, rate = Q.shape[1], F32(lr)
    for n in range(len(rows)):
        i, j = rows[n], cols[n]
        score = F32(0)
        for k in range(d):
            score += Q[i, k] * C[j, k]
        error = weights[n] * (score + b[i, 0] + a[j, 0] - logs[n])
        for k in range(d):
            grad_q, grad_c = error * C[j, k], error * Q[i, k]
            Q2[i, k] += grad_q * grad_q
            C2[j, k] += grad_c * grad_c
            Q[i, k] -= rate * grad_q / np.sqrt(Q2[i, k])
            C[j, k] -= rate * grad_c / np.sqrt(C2[j, k])
        b2[i, 0] += error * error
        a2[j, 0] += error * error
        b[i, 0] -= rate * error / np.sqrt(b2[i, 0])
        a[j, 0] -= rate * error / np.sqrt(a2[j, 0])
