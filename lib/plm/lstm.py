"""Gated recurrent layers: the LSTM (Hochreiter and Schmidhuber 1997) with its gradient by hand, and the GRU (Cho et al. 2014).

Gates stand in PyTorch's order, from top to bottom of a weight matrix: input i, forget f, candidate g, output o in the LSTM;
reset r, update z, candidate n in the GRU. Papers and tutorials often name f first: only the rows of the matrices move.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from plm.lstm_scan import LSTMScan, autocasts
from plm.rnn import Recurrent

Pair = tuple[Tensor, Tensor]


def lstm_cell(x: Tensor, h: Tensor, c: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor) -> Pair:
    """One step of an LSTM, from the equations: the next hidden state and the next cell state, (B, d_hidden) each.

    x: (B, d_in); h, c: (B, d_hidden); weight_ih: (4 * d_hidden, d_in); weight_hh: (4 * d_hidden, d_hidden);
    bias: (4 * d_hidden,). Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
    """
    i, f, g, o = (x @ weight_ih.T + h @ weight_hh.T + bias).chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h, c


def gru_cell(x: Tensor, h: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
    """One step of a GRU, as in PyTorch: the reset gate acts after the product with weight_hh (Cho et al. 2014: before it).

    x: (B, d_in); h: (B, d_hidden); weight_ih: (3 * d_hidden, d_in); weight_hh: (3 * d_hidden, d_hidden); both biases
    (3 * d_hidden,): they cannot be added beforehand, since r touches only one of them. Returns the next h.
    """
    return _gru_step(F.linear(x, weight_ih, bias_ih), h, weight_hh.t(), bias_hh)


def _gru_step(from_x: Tensor, h: Tensor, w_hh: Tensor, bias_hh: Tensor) -> Tensor:
    r, z, n = from_x.chunk(3, dim=-1)
    r_h, z_h, n_h = torch.addmm(bias_hh, h, w_hh).chunk(3, dim=-1)
    r, z = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
    n = torch.tanh(n + r * n_h)
    return n + z * (h - n)


class LSTM(Recurrent):
    """Layers of LSTM units, batch first, with the parameter names of nn.LSTM: each loads the other's state_dict.

    proj_size: output and h are a projection of the units to this width (Sak et al. 2014). forget_bias: where the forget
    gates start (Jozefowicz et al. 2015 advise 1); None is PyTorch's start, near 0. by_hand: use the gradient of `LSTMScan`;
    False leaves it to autograd, step by step: the same numbers, slower, and gradients of gradients can be had.
    Hochreiter and Schmidhuber 1997; Gers et al. 2000.
    """

    n_gates = 4

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        n_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        proj_size: int = 0,
        forget_bias: float | None = None,
        by_hand: bool = True,
    ):
        super().__init__(d_in, d_hidden, n_layers, bidirectional, dropout, proj_size)
        self.by_hand = by_hand
        if forget_bias is not None:
            with torch.no_grad():
                for name, parameter in self.named_parameters():
                    if name.startswith("bias"):
                        parameter[d_hidden : 2 * d_hidden] = forget_bias if name.startswith("bias_ih") else 0.0

    def forward(self, x: Tensor, state: Pair | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Pair]:
        """x: (B, T, d_in); state: (h, c), each (layers * directions, B, width), or None for zeros; lengths: (B,) int64.

        Returns the outputs (B, T, directions * width), zero where the input is padding, and the last (h, c), in the order
        layer 0 forward, layer 0 reverse, layer 1 forward … Beyond its length a sentence changes nothing; one of length 0
        keeps its initial state.
        """
        if state is not None and (not isinstance(state, tuple) or len(state) != 2):
            raise TypeError(f"the state of an LSTM is a pair (h, c), not {type(state).__name__}")
        h, c = state or (None, None)
        states = [self._initial(x, h, self.d_out, "h"), self._initial(x, c, self.d_hidden, "c")]
        x, (h, c) = self._run(x, states, lengths)
        return x, (h, c)

    def _scan(self, x: Tensor, start: list[Tensor], valid: Tensor | None, end: str) -> tuple[Tensor, ...]:
        w_ih, w_hh = self._of("weight_ih", end), self._of("weight_hh", end)
        bias = self._of("bias_ih", end) + self._of("bias_hh", end)
        w_hr = self._of("weight_hr", end) if self.proj_size else None
        if self.by_hand:
            if autocasts(x):  # the scan computes in the precision of its weights
                x, *start = (part.to(w_ih.dtype) for part in (x, *start))
            if start[1].dtype != x.dtype:
                raise TypeError(f"the cell state c must be {x.dtype}, as x is, not {start[1].dtype}")
            return LSTMScan.apply(x, *start, w_ih, w_hh, bias, w_hr, valid, end.endswith("_reverse"))
        (h, c), outputs = start, [start[0]] * len(x)
        for t in reversed(range(len(x))) if end.endswith("_reverse") else range(len(x)):
            new_h, new_c = lstm_cell(x[t], h, c, w_ih, w_hh, bias)
            new_h = new_h if w_hr is None else new_h @ w_hr.T
            h = new_h if valid is None else torch.where(valid[t], new_h, h)
            c = new_c if valid is None else torch.where(valid[t], new_c, c)
            outputs[t] = h
        return torch.stack(outputs), h, c


class GRU(Recurrent):
    """Layers of gated recurrent units, batch first, with the parameter names of nn.GRU: each loads the other's state_dict.

    Two gates and no cell state of its own: three quarters of the LSTM's parameters. Cho et al. 2014, in PyTorch's variant.
    """

    n_gates = 3

    def __init__(self, d_in: int, d_hidden: int, n_layers: int = 1, bidirectional: bool = False, dropout: float = 0.0):
        super().__init__(d_in, d_hidden, n_layers, bidirectional, dropout)

    def forward(self, x: Tensor, state: Tensor | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `LSTM.forward`, but the state is one tensor, (layers * directions, B, d_hidden)."""
        x, (h,) = self._run(x, [self._initial(x, state, self.d_hidden, "state")], lengths)
        return x, h

    def _scan(self, x: Tensor, start: list[Tensor], valid: Tensor | None, end: str) -> tuple[Tensor, ...]:
        from_x = F.linear(x, self._of("weight_ih", end), self._of("bias_ih", end)).unbind(0)
        w_hh, bias_hh = self._of("weight_hh", end).t(), self._of("bias_hh", end)
        h, outputs = start[0], [start[0]] * len(x)
        for t in reversed(range(len(x))) if end.endswith("_reverse") else range(len(x)):
            new = _gru_step(from_x[t], h, w_hh, bias_hh)
            h = new if valid is None else torch.where(valid[t], new, h)
            outputs[t] = h
        return torch.stack(outputs), h
