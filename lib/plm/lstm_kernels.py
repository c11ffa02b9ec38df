"""The LSTM cell between two matrix products, forward and backward, compiled to vector code by numba (no C compiler needed).

PyTorch needs eight operations for a cell and writes every intermediate result to memory; here it is one pass. The functions do
what `_cell` and `_cell_gradient` of `plm.lstm_scan` do.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from plm.compiled import compiled

Array = NDArray[np.float32]
F = np.float32
# With Python's rules each division asks whether it divides by zero, and nothing is vectorised.
C_RULES = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}  # a reordered _expm1 would lose digits


def _expm1(x: np.float32) -> np.float32:
    """e^x - 1, where e^x = 2^n e^r with whole n and |r| <= ln(2) / 2, a polynomial (Cephes).

    The 1 comes off before it can swallow the digits of a small x. Error below 3e-7 of the value.
    """
    x = F(88.0) if x > F(88.0) else x  # comparisons that a NaN passes unchanged
    x = F(-87.0) if x < F(-87.0) else x
    n = np.floor(x * F(1.44269504) + F(0.5))
    r = x - n * F(0.693359375)
    r = r - n * F(-2.12194440e-4)
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    two_to_n = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)  # n in the exponent's bits
    return (p * r * r + r) * two_to_n + (two_to_n - F(1.0))


_expm1 = compiled(_expm1, inline="always", **C_RULES)


def _sigmoid(x: np.float32) -> np.float32:
    return F(1) / (F(2) + _expm1(-x))


def _tanh(x: np.float32) -> np.float32:
    m = _expm1(F(-2) * x)
    return -m / (F(2) + m)


_sigmoid = compiled(_sigmoid, inline="always", **C_RULES)
_tanh = compiled(_tanh, inline="always", **C_RULES)


def _forward(
    gates: Array, c: Array, tanh_c: Array, y: Array, valid: NDArray[np.bool_], t: int, before: int, now: int
) -> None:
    B, H = tanh_c.shape[1:]
    for b in range(B):
        gate_i, gate_f = gates[t, b, :H], gates[t, b, H : 2 * H]
        gate_g, gate_o = gates[t, b, 2 * H : 3 * H], gates[t, b, 3 * H :]
        old, new, squashed, out = c[before, b], c[now, b], tanh_c[t, b], y[t, b]
        for j in range(H):
            i = _sigmoid(gate_i[j])
            f = _sigmoid(gate_f[j])
            g = _tanh(gate_g[j])
            o = _sigmoid(gate_o[j])
            cell = f * old[j] + i * g
            q = _tanh(cell)
            gate_i[j] = i
            gate_f[j] = f
            gate_g[j] = g
            gate_o[j] = o
            new[j] = cell
            squashed[j] = q
            out[j] = o * q
        if len(valid) > 0 and not valid[t, b, 0]:
            new[:] = old


def _backward(
    gates: Array,
    c: Array,
    tanh_c: Array,
    grad_gates: Array,
    grad_c: Array,
    valid: NDArray[np.bool_],
    grad_y: Array,
    t: int,
    before: int,
) -> None:
    B, H = tanh_c.shape[1:]
    one = F(1)
    for b in range(B):
        if len(valid) > 0 and not valid[t, b, 0]:
            grad_gates[t, b] = F(0)
            continue
        gate, grad, old, squashed = gates[t, b], grad_gates[t, b], c[before, b], tanh_c[t, b]
        for j in range(H):
            i, f, g, o = gate[j], gate[H + j], gate[2 * H + j], gate[3 * H + j]
            into_c = grad_c[b, j] + grad_y[b, j] * o * (one - squashed[j] * squashed[j])
            grad[j] = into_c * g * i * (one - i)
            grad[H + j] = into_c * old[j] * f * (one - f)
            grad[2 * H + j] = into_c * i * (one - g * g)
            grad[3 * H + j] = grad_y[b, j] * squashed[j] * o * (one - o)
            grad_c[b, j] = into_c * f


_forward = compiled(_forward, **C_RULES)
_backward = compiled(_backward, **C_RULES)


def _bools(valid: Tensor | None) -> NDArray[np.bool_]:
    return np.empty((0, 0, 0), np.bool_) if valid is None else valid.contiguous().numpy()


def cell(gates: Tensor, c: Tensor, tanh_c: Tensor, y: Tensor, valid: Tensor | None) -> Callable[[int, int, int], None]:
    """As `plm.lstm_scan._cell`."""
    arrays: Any = [tensor.numpy() for tensor in (gates, c, tanh_c, y)]  # Any: mypy would count the arguments
    mask = _bools(valid)
    return lambda t, before, now: _forward(*arrays, mask, t, before, now)  # type: ignore[call-arg]


def cell_gradient(
    gates: Tensor, c: Tensor, tanh_c: Tensor, grad_gates: Tensor, grad_c: Tensor, valid: Tensor | None, reverse: bool
) -> Callable[[int, Tensor], None]:
    """As `plm.lstm_scan._cell_gradient`."""
    arrays: Any = [
        tensor.numpy() for tensor in (gates, c, tanh_c, grad_gates, grad_c)
    ]  # Any: mypy would count the arguments
    mask = _bools(valid)
    return lambda t, grad_y: _backward(*arrays, mask, grad_y.numpy(), t, t + 1 if reverse else t)  # type: ignore[call-arg]
