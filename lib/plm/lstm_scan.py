"""One LSTM layer over all steps of a text, with its back-propagation by hand: the lesson of chapter 6, and its speed."""

import importlib.util
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def autocasts(x: Tensor) -> bool:
    """Whether autocast is on where x lives."""
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _without_autocast(function: Callable[..., Any]) -> Any:  # Any: mypy compares it with the base class
    """Autocast would make half of the tensors half precision, under the hands of the loop and its compiled cell."""

    @wraps(function)
    def call(ctx: Any, first: Tensor, *rest: Any) -> Any:
        if not autocasts(first):
            return function(ctx, first, *rest)
        with torch.autocast(first.device.type, enabled=False):
            return function(ctx, first, *rest)

    return call


class LSTMScan(torch.autograd.Function):
    """An LSTM layer in one direction: autograd sees a single operation, whose gradient is written out here.

    Forward: one product brings the inputs of all steps to the gates; each step then needs a single product with h. Backward:
    the loop finds the gradients of what goes into the gates, last step first; those of the weights are one product each,
    after the loop. Everything between two products is `_cell` and `_cell_gradient`, or, on a CPU in float32, their
    compiled twins in `lstm_kernels`.
    """

    @staticmethod
    @_without_autocast
    def forward(  # type: ignore[override]
        ctx: Any,
        x: Tensor,
        h_0: Tensor,
        c_0: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor,
        weight_hr: Tensor | None = None,
        valid: Tensor | None = None,
        reverse: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x: (T, B, d_in), time first; h_0: (B, d_out); c_0: (B, d_hidden); valid: bool (T, B, 1), or None if all are.

        weight_hr: (d_out, d_hidden) makes the output a projection; without it d_out = d_hidden. `reverse` runs from the last
        step to the first. Returns the states h of all steps (T, B, d_out) and the last h and c.
        """
        (T, B, d_in), H = x.shape, weight_hh.shape[0] // 4
        x = x.contiguous()
        gates = torch.addmm(bias, x.view(T * B, d_in), weight_ih.t()).view(T, B, 4 * H)
        h, c = (_with_start(start, T, reverse) for start in (h_0, c_0))
        tanh_c = x.new_empty(T, B, H)
        y = h[_now(reverse)] if weight_hr is None else x.new_empty(T, B, H)  # what a projection would project
        cell = (_compiled("cell") if _fast(x) else _cell)(gates, c, tanh_c, y, valid)
        # A transposed copy multiplies faster with few rows; for a few steps it does not pay.
        w_hh = weight_hh.t().contiguous() if T > 4 else weight_hh.t()
        step, hs = gates.unbind(0), h.unbind(0)
        for t in reversed(range(T)) if reverse else range(T):
            before, now = (t + 1, t) if reverse else (t, t + 1)
            step[t].addmm_(hs[before], w_hh)
            cell(t, before, now)
            if weight_hr is not None:
                torch.mm(y[t], weight_hr.t(), out=hs[now])
            if valid is not None:  # beyond its end a sentence keeps its state
                torch.where(valid[t], hs[now], hs[before], out=hs[now])
        ctx.reverse = reverse
        ctx.save_for_backward(x, weight_ih, weight_hh, weight_hr, valid, gates, h, c, tanh_c, y)
        last = 0 if reverse else T
        return h[_now(reverse)], h[last].clone(), c[last].clone()

    @staticmethod
    @_without_autocast
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor, grad_h: Tensor, grad_c: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_ih, weight_hh, weight_hr, valid, gates, h, c, tanh_c, y = ctx.saved_tensors
        (T, B, d_in), reverse = x.shape, ctx.reverse
        grad_gates, grad_c, projected = torch.empty_like(gates), grad_c.clone(), []
        gradient = _compiled("cell_gradient") if _fast(x) else _cell_gradient
        cell_gradient = gradient(gates, c, tanh_c, grad_gates, grad_c, valid, reverse)
        step, outs = grad_gates.unbind(0), grad_out.unbind(0)
        order = list(range(T)) if reverse else list(reversed(range(T)))
        grad_h = grad_h + outs[order[0]]
        for t, following in zip(order, [*order[1:], None]):
            if weight_hr is None:
                cell_gradient(t, grad_h)
            else:
                projected.append(grad_h.clone() if valid is None else grad_h * valid[t])
                cell_gradient(t, grad_h @ weight_hr)
            passed_on = None if valid is None else grad_h.masked_fill(valid[t], 0.0)
            if following is None:
                torch.mm(step[t], weight_hh, out=grad_h)
            else:
                torch.addmm(outs[following], step[t], weight_hh, out=grad_h)
            if passed_on is not None:
                grad_h += passed_on
        all_steps = grad_gates.flatten(0, 1)
        grad_hr = None
        if weight_hr is not None:
            in_order = torch.stack(projected if reverse else projected[::-1])
            grad_hr = in_order.flatten(0, 1).t() @ y.flatten(0, 1)
        return (
            (all_steps @ weight_ih).view_as(x) if ctx.needs_input_grad[0] else None,
            grad_h,
            grad_c,
            all_steps.t() @ x.view(T * B, d_in),
            all_steps.t() @ h[_now(not reverse)].flatten(0, 1),
            all_steps.sum(0),
            grad_hr,
            None,
            None,
        )


def _now(reverse: bool) -> slice:
    """Where the states after each step lie among T + 1 of them; `_now(not reverse)` is where those before it lie."""
    return slice(None, -1) if reverse else slice(1, None)


def _with_start(start: Tensor, T: int, reverse: bool) -> Tensor:
    """Room for T states and the one that comes before the first: (T + 1, B, D)."""
    room = start.new_empty(T + 1, *start.shape)
    room[-1 if reverse else 0] = start
    return room


def _cell(gates: Tensor, c: Tensor, tanh_c: Tensor, y: Tensor, valid: Tensor | None) -> Callable[[int, int, int], None]:
    """A function (t, before, now) that squashes the gates of step t in place and fills in c[now], tanh_c[t] and y[t]."""
    i, f, g, o = (part.unbind(0) for part in gates.chunk(4, -1))
    cs, squashed, ys = c.unbind(0), tanh_c.unbind(0), y.unbind(0)

    def cell(t: int, before: int, now: int) -> None:
        i[t].sigmoid_()
        f[t].sigmoid_()
        g[t].tanh_()
        o[t].sigmoid_()
        torch.mul(f[t], cs[before], out=cs[now]).addcmul_(i[t], g[t])
        if valid is not None:
            torch.where(valid[t], cs[now], cs[before], out=cs[now])
        torch.tanh(cs[now], out=squashed[t])
        torch.mul(o[t], squashed[t], out=ys[t])

    return cell


def _cell_gradient(
    gates: Tensor,
    c: Tensor,
    tanh_c: Tensor,
    grad_gates: Tensor,
    grad_c: Tensor,
    valid: Tensor | None,
    reverse: bool,
) -> Callable[[int, Tensor], None]:
    """A function (t, grad_y) that fills in grad_gates[t] and takes grad_c back from step t to the one before, in place.

    What does not depend on the future (the slopes of the gates, and what they were multiplied with) is made here, for all
    steps at once. At padded steps no gate gets a gradient, and grad_c passes.
    """
    i, f, g, o = gates.chunk(4, -1)
    c_before = c[_now(not reverse)]
    slopes = torch.cat([g * i * (1 - i), c_before * f * (1 - f), i * (1 - g**2), tanh_c * o * (1 - o)], -1)
    through_h = o * (1 - tanh_c**2)
    if valid is not None:
        slopes, through_h, f = slopes * valid, through_h * valid, f.masked_fill(~valid, 1.0)

    def cell_gradient(t: int, grad_y: Tensor) -> None:
        grad_c.addcmul_(grad_y, through_h[t])
        torch.mul(slopes[t], torch.cat([grad_c, grad_c, grad_c, grad_y], -1), out=grad_gates[t])
        grad_c.mul_(f[t])

    return cell_gradient


def _fast(x: Tensor) -> bool:
    """Whether the compiled cell can be used: float32 in the memory of a CPU, and numba is there."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and _has_numba()


@cache
def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _compiled(name: str) -> Callable[..., Any]:
    from plm import lstm_kernels  # at first use: importing numba takes a second

    return getattr(lstm_kernels, name)
