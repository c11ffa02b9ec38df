"""The simple recurrent network (Elman 1990): one step, the loop over time, layers, both directions, padding, and its gradient."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NONLINEARITIES = {"tanh": torch.tanh, "relu": torch.relu}


class RNNCell(nn.Module):
    """One step: h' = tanh(W_ih x + b_ih + W_hh h + b_hh). Parameters are named as those of nn.RNNCell.

    nonlinearity: "tanh" or "relu". Elman 1990.
    """

    def __init__(self, d_in: int, d_hidden: int, nonlinearity: str = "tanh"):
        super().__init__()
        check_sizes(d_in=d_in, d_hidden=d_hidden)
        self.squash = _squash(nonlinearity)
        self.weight_ih = nn.Parameter(torch.empty(d_hidden, d_in))
        self.weight_hh = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.bias_ih = nn.Parameter(torch.empty(d_hidden))
        self.bias_hh = nn.Parameter(torch.empty(d_hidden))
        start_uniform(self, d_hidden)

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        """x: (B, d_in); h: (B, d_hidden), zeros when left out. Returns the next h (B, d_hidden)."""
        if x.ndim != 2 or x.shape[1] != self.weight_ih.shape[1]:
            raise ValueError(f"x must be (B, {self.weight_ih.shape[1]}), one time step; got {tuple(x.shape)}")
        if h is None:
            h = x.new_zeros(len(x), len(self.weight_hh))
        elif h.shape != (len(x), len(self.weight_hh)):
            raise ValueError(f"h must be {(len(x), len(self.weight_hh))}; got {tuple(h.shape)}")
        return self.squash(F.linear(x, self.weight_ih, self.bias_ih) + F.linear(h, self.weight_hh, self.bias_hh))


class Recurrent(nn.Module):
    """What RNN, GRU and LSTM share: parameters named as PyTorch's, layers, both directions, padding.

    n_layers: how many on top of each other. bidirectional: each layer reads its input from both ends, and the two outputs
    are laid side by side (Schuster and Paliwal 1997). dropout: between layers, never after the last. A kind of layer gives
    the number of its gates, whose weights are stacked, and `_scan`, its loop over time.
    """

    n_gates = 1

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        n_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        proj_size: int = 0,
    ):
        super().__init__()
        check_sizes(d_in=d_in, d_hidden=d_hidden, n_layers=n_layers)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is a probability below 1, not {dropout}")
        if not 0 <= proj_size < d_hidden:
            raise ValueError(f"proj_size must be below d_hidden={d_hidden}, or 0 for none; not {proj_size}")
        self.d_in, self.d_hidden, self.n_layers, self.dropout = d_in, d_hidden, n_layers, dropout
        self.proj_size, self.d_out = proj_size, proj_size or d_hidden
        self.directions = ("", "_reverse") if bidirectional else ("",)
        rows = self.n_gates * d_hidden
        for layer in range(n_layers):
            width = d_in if layer == 0 else self.d_out * len(self.directions)
            for direction in self.directions:
                shapes = {"weight_ih": (rows, width), "weight_hh": (rows, self.d_out), "bias_ih": (rows,)}
                shapes |= {"bias_hh": (rows,)} | ({"weight_hr": (proj_size, d_hidden)} if proj_size else {})
                for name, shape in shapes.items():
                    self.register_parameter(f"{name}_l{layer}{direction}", nn.Parameter(torch.empty(shape)))
        start_uniform(self, d_hidden)

    def _run(self, x: Tensor, states: list[Tensor], lengths: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """x: (B, T, d_in); states: tensors (layers * directions, B, D). Returns outputs (B, T, …) and the last states."""
        valid = check_input(x, lengths, self.d_in)
        x = x.transpose(0, 1)  # time first: each step is one block of memory
        if valid is not None:
            valid = valid.t()[:, :, None]
            x = x.masked_fill(~valid, 0.0)  # not even a NaN gets out of the padding
        finals = []
        for layer in range(self.n_layers):
            if layer > 0:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            for k, direction in enumerate(self.directions):
                start = [s[layer * len(self.directions) + k] for s in states]
                output, *final = self._scan(x, start, valid, f"_l{layer}{direction}")
                outputs.append(output if valid is None else output.masked_fill(~valid, 0.0))
                finals.append(final)
            x = torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0]
        return x.transpose(0, 1), [torch.stack(column) for column in zip(*finals)]

    def _scan(self, x: Tensor, start: list[Tensor], valid: Tensor | None, end: str) -> tuple[Tensor, ...]:
        """One layer in one direction. x: (T, B, d_in), valid: (T, B, 1); returns the outputs (T, B, …) and the last states."""
        raise NotImplementedError

    def _of(self, name: str, end: str) -> Tensor:
        return getattr(self, name + end)

    def _initial(self, x: Tensor, state: Tensor | None, width: int, name: str) -> Tensor:
        shape = (self.n_layers * len(self.directions), len(x), width)
        if state is None:
            return x.new_zeros(shape)
        if not isinstance(state, Tensor) or state.shape != shape:
            found = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise ValueError(
                f"{name} must be a tensor {shape} for this batch, (layers * directions, B, width); got {found}. "
                "A last, smaller batch needs a state of its own: pass state=None or cut it"
            )
        return state

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_hidden}, n_layers={self.n_layers}, bidirectional={len(self.directions) == 2}"


class RNN(Recurrent):
    """Layers of recurrent units, batch first, with the parameter names of nn.RNN: each loads the other's state_dict.

    The options are those of `Recurrent`; nonlinearity: "tanh" or "relu". Elman 1990.
    """

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        n_layers: int = 1,
        bidirectional: bool = False,
        nonlinearity: str = "tanh",
        dropout: float = 0.0,
    ):
        super().__init__(d_in, d_hidden, n_layers, bidirectional, dropout)
        self.squash = _squash(nonlinearity)

    def forward(self, x: Tensor, state: Tensor | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x: (B, T, d_in); state: (n_layers * directions, B, d_hidden), zeros when left out; lengths: (B,) int64, all T when out.

        Returns the outputs (B, T, directions * d_hidden), zero where the input is padding, and the final state, shaped as
        `state`: layer 0 forward, layer 0 reverse, layer 1 forward … Beyond its length a sentence changes nothing: the
        forward state stops at the last true step, the reverse one starts there, and a sentence of length 0 keeps its
        initial state (zeros). What stands in the padding, even NaN, reaches neither an output nor a gradient.
        """
        x, (h,) = self._run(x, [self._initial(x, state, self.d_hidden, "state")], lengths)
        return x, h

    def _scan(self, x: Tensor, start: list[Tensor], valid: Tensor | None, end: str) -> tuple[Tensor, ...]:
        bias = self._of("bias_ih", end) + self._of("bias_hh", end)
        # The input needs no waiting for h: one product for all steps.
        from_x = F.linear(x, self._of("weight_ih", end), bias).unbind(0)
        w_hh, h, outputs = self._of("weight_hh", end).t(), start[0], [start[0]] * len(x)
        for t in reversed(range(len(x))) if end.endswith("_reverse") else range(len(x)):
            new = self.squash(torch.addmm(from_x[t], h, w_hh))
            h = new if valid is None else torch.where(valid[t], new, h)
            outputs[t] = h
        return torch.stack(outputs), h


class RNNGradients(NamedTuple):
    """What `backward_through_time` returns, each shaped as the thing it is the gradient of."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor  # of bias_ih, and of bias_hh: the two are added, so their gradients are equal
    x: Tensor
    h_0: Tensor


def backward_through_time(
    x: Tensor, h_0: Tensor, outputs: Tensor, weight_ih: Tensor, weight_hh: Tensor, grad_outputs: Tensor
) -> RNNGradients:
    """Gradients of a loss through one tanh layer, by hand, from its gradient with respect to each output.

    x: (B, T, d_in); h_0: (B, d_hidden); outputs and grad_outputs: (B, T, d_hidden). Werbos 1990.
    """
    before = torch.cat([h_0[:, None], outputs[:, :-1]], 1)  # what each step started from
    slope = 1 - outputs**2  # of tanh, written with its value
    grad_a = torch.empty_like(outputs)  # with respect to what goes into the tanh
    grad_h = torch.zeros_like(h_0)  # what the steps after t have to say about h_t
    for t in reversed(range(x.shape[1])):
        grad_a[:, t] = (grad_outputs[:, t] + grad_h) * slope[:, t]
        grad_h = grad_a[:, t] @ weight_hh
    return RNNGradients(
        weight_ih=torch.einsum("bti,btj->ij", grad_a, x),
        weight_hh=torch.einsum("bti,btj->ij", grad_a, before),
        bias=grad_a.sum((0, 1)),
        x=grad_a @ weight_ih,
        h_0=grad_h,
    )


def last_output(outputs: Tensor, lengths: Tensor) -> Tensor:
    """The output at the last true step of each sentence: outputs (B, T, D), lengths (B,) of at least 1 -> (B, D)."""
    _check_lengths(outputs, lengths, 1)
    return outputs[torch.arange(len(outputs), device=outputs.device), lengths.to(outputs.device, torch.int64) - 1]


def mean_output(outputs: Tensor, lengths: Tensor) -> Tensor:
    """The mean over the true steps of each sentence, (B, D); zeros for a sentence of length 0."""
    _check_lengths(outputs, lengths, 0)
    valid = length_mask(lengths.to(outputs.device), outputs.shape[1])
    total = outputs.masked_fill(~valid[:, :, None], 0.0).sum(1)
    return total / lengths.to(outputs).clamp(min=1)[:, None]


def length_mask(lengths: Tensor, T: int) -> Tensor:
    """bool (B, T), True where a step belongs to its sentence."""
    return torch.arange(T, device=lengths.device) < lengths[:, None]


def check_input(x: Tensor, lengths: Tensor | None, d_in: int) -> Tensor | None:
    """Refuse what is not (B, T, d_in) with lengths in 0 … T; return the mask (B, T), or None when nothing is padding."""
    if x.ndim != 3 or x.shape[2] != d_in:
        raise ValueError(f"x must be (B, T, {d_in}); got {tuple(x.shape)} (a single sequence is x[None])")
    if not x.is_floating_point():
        raise TypeError(f"x holds vectors, not {x.dtype}: look the ids up in an embedding first")
    if x.shape[1] == 0:
        raise ValueError("x has no time step (T = 0): pad an empty sentence to length 1 and give lengths=0 for it")
    if lengths is None:
        return None
    _check_lengths(x, lengths, 0)
    lengths = lengths.to(x.device)
    return None if bool((lengths == x.shape[1]).all()) else length_mask(lengths, x.shape[1])


def _check_lengths(x: Tensor, lengths: Tensor, lowest: int) -> None:
    """Refuse what is not one whole number per sentence of x (B, T, …), between `lowest` and T."""
    kind = lengths.dtype if isinstance(lengths, Tensor) else None
    if kind is None or kind.is_floating_point or kind == torch.bool or lengths.shape != (len(x),):
        raise ValueError(f"lengths must be an integer tensor ({len(x)},), one number per sentence; got {lengths!r}")
    wrong = ((lengths < lowest) | (lengths > x.shape[1])).nonzero()[:, 0].tolist()
    if wrong:
        found = lengths[wrong[0]].item()
        raise ValueError(f"lengths must lie in {lowest} … {x.shape[1]}; sentence {wrong[0]} has {found}")


def check_sizes(**sizes: int) -> None:
    """Refuse sizes below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, not {size}")


def start_uniform(module: nn.Module, d_hidden: int) -> None:
    """PyTorch's start for recurrent layers: every number uniform in ±1 / sqrt(d_hidden)."""
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -1 / math.sqrt(d_hidden), 1 / math.sqrt(d_hidden))


def _squash(nonlinearity: str):  # type: ignore[no-untyped-def]
    if nonlinearity not in NONLINEARITIES:
        raise ValueError(f"nonlinearity is one of {', '.join(NONLINEARITIES)}, not {nonlinearity!r}")
    return NONLINEARITIES[nonlinearity]
