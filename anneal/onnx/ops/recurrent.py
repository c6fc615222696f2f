"""RNN, GRU and LSTM. The products with the inputs of all steps are one product; many steps are a loop on the device.

Version 14 brought `layout` (1: the batch is the first axis), version 7 dropped `output_sequence`, which says nothing
here: an output that is not wanted is not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from anneal.onnx.execute import NodeCall
from anneal.onnx.ops._values import Value, iota, plus
from anneal.onnx.registry import op
from anneal.tensor import Tensor, dtypes
from anneal.transforms import scan

_TRAINED = 256  # steps that are a loop on the device where gradients flow, as in anneal.nn
_UNROLLED = 64  # steps that are one graph at most where the batch is a Variable, which no loop takes

Function = Callable[[Tensor], Tensor]
States = tuple[Tensor, ...]

# -- activations ------------------------------------------------------------------------------------------------------

# name: the function of x, alpha and beta, and the defaults of those that it has
ACTIVATIONS: dict[str, tuple[Callable[..., Tensor], float | None, float | None]] = {
    "affine": (lambda x, a, b: x * a + b, 1.0, 0.0),
    "elu": (lambda x, a: x.elu(a), 1.0, None),
    "hardsigmoid": (lambda x, a, b: (x * a + b).clamp(0.0, 1.0), 0.2, 0.5),
    "leakyrelu": (lambda x, a: x.leaky_relu(a), 0.01, None),
    "relu": (Tensor.relu, None, None),
    "scaledtanh": (lambda x, a, b: (x * b).tanh() * a, 1.0, 1.0),
    "sigmoid": (Tensor.sigmoid, None, None),
    "softplus": (Tensor.softplus, None, None),
    "softsign": (Tensor.softsign, None, None),
    "tanh": (Tensor.tanh, None, None),
    "thresholdedrelu": (lambda x, a: (x > a).where(x, x.zeros_like()), 1.0, None),
}


class Layer(NamedTuple):
    """The attributes of recurrent layers."""

    activation_alpha: Sequence[float] | None = None
    activation_beta: Sequence[float] | None = None
    activations: Sequence[str] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    input_forget: int = 0
    layout: int = 0
    linear_before_reset: int = 0
    output_sequence: int = 0


LAYER = Layer()


def activations_of(node: NodeCall, how: Layer, default: Sequence[str], directions: int) -> list[list[Function]]:
    """The functions of each direction; alphas and betas go to those that have one, in order."""
    wanted = list(how.activations or list(default) * directions)
    if len(wanted) < len(default) * directions:
        raise node.fail(f"{len(wanted)} activations; {len(default) * directions} are wanted")
    alpha, beta = iter(how.activation_alpha or ()), iter(how.activation_beta or ())
    made = []
    for name in wanted[: len(default) * directions]:
        if name.lower() not in ACTIVATIONS:
            raise node.fail(f"activation {name!r} is none of {', '.join(ACTIVATIONS)}")
        function, a, b = ACTIVATIONS[name.lower()]
        arguments = [next(values, d) for values, d in ((alpha, a), (beta, b)) if d is not None]
        made.append(_clipped(function, arguments, how.clip))
    return [made[i * len(default) : (i + 1) * len(default)] for i in range(directions)]


def _clipped(function: Callable[..., Tensor], arguments: list[float], clip: float | None) -> Function:
    if clip is None:
        return lambda x: function(x, *arguments)
    return lambda x: function(x.clamp(-clip, clip), *arguments)


# -- layers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """The weights of one direction: of the inputs and of the state, transposed, and their biases."""

    inputs: Tensor  # (in, gates * hidden)
    state: Tensor  # (hidden, gates * hidden)
    input_bias: Tensor | None
    state_bias: Tensor | None
    peephole: Tensor | None = None
    looped: ClassVar[int] = 32  # steps that are a loop on the device; fewer are one graph, which is faster

    def from_inputs(self, x: Tensor) -> Tensor:
        """The part of the gates that the inputs of all steps give."""
        y = x.matmul(self.inputs)
        return plus(y, self.input_bias)

    def from_state(self, h: Tensor) -> Tensor:
        """The part of the gates that the state gives."""
        return h.matmul(self.state)


Step = Callable[[Tensor, States, Cell, list[Function]], States]


def _by_length(x: Tensor, lengths: Tensor) -> Tensor:
    """(time, batch, ...) with the first elements of each sequence reversed."""
    time = iota(x, x.shape[0], 0, 2)
    index = (time < lengths).where(lengths - 1 - time, time)
    return x.gather(0, index.unsqueeze(-1).expand(*x.shape))


def _direction(
    node: NodeCall,
    x: Tensor,
    cell: Cell,
    states: States,
    step: Step,
    functions: list[Function],
    lengths: Tensor | None,
    backward: bool,
) -> tuple[Tensor, States]:
    """(time, batch, in) to the outputs (time, batch, hidden) and the last states."""
    if backward:
        x = x.flip(0) if lengths is None else _by_length(x, lengths)
    states, y = _turns(node, cell.from_inputs(x), cell, states, step, functions, lengths)
    if backward:
        y = y.flip(0) if lengths is None else _by_length(y, lengths)
    return y, states


def _turns(
    node: NodeCall,
    projected: Tensor,
    cell: Cell,
    states: States,
    step: Step,
    functions: list[Function],
    lengths: Tensor | None,
) -> tuple[States, Tensor]:
    """The last states, and all outputs; what is behind the end of a sequence is zeros."""

    def turn(states: States, given: tuple[Tensor, Tensor | None]) -> tuple[States, Tensor]:
        now, going = given
        new = step(now, states, cell, functions)
        if going is None:
            return new, new[0]
        kept = tuple([going.where(n, s) for n, s in zip(new, states, strict=True)])
        return kept, going.where(new[0], new[0].zeros_like())

    time, batch = projected.shape[:2]
    going = None if lengths is None else (lengths > iota(projected, time, 0, 2)).unsqueeze(-1)
    if time >= (_TRAINED if node.training else cell.looped) and (isinstance(batch, int) or time > _UNROLLED):
        ends, y = scan(turn, states, (projected, going))
        return ends, y
    outputs = []
    for t in range(time):
        states, y = turn(states, (projected[t], None if going is None else going[t]))
        outputs.append(y)
    return states, Tensor.stack(outputs)


def run_layer(
    node: NodeCall,
    x: Tensor,
    cells: Sequence[Cell],
    initial: list[Tensor | None],
    step: Step,
    functions: list[list[Function]],
    lengths: Value | None,
    how: Layer,
) -> tuple[Tensor, ...]:
    """A layer in all its directions: Y (time, directions, batch, hidden), then each last state."""
    if how.layout:
        x = x.transpose(0, 1)
    hidden, batch = cells[0].state.shape[0], x.shape[1]
    if isinstance(lengths, np.ndarray):
        lengths = None if (lengths == x.shape[0]).all() else node.tensor(lengths)
    size = None if lengths is None else lengths.cast(dtypes.int32)
    ys, lasts = [], []
    for d, cell in enumerate(cells):
        zero = Tensor.zeros(batch, hidden, dtype=x.dtype, device=x.device)
        first = tuple([zero if s is None else s[:, d] if how.layout else s[d] for s in initial])
        backward = how.direction == "reverse" or d == 1
        y, last = _direction(node, x, cell, first, step, functions[d], size, backward)
        ys.append(y)
        lasts.append(last)
    whole = Tensor.stack(ys, dim=1)
    ends = [Tensor.stack([last[i] for last in lasts]) for i in range(len(initial))]
    if how.layout:
        return whole.permute(2, 0, 1, 3), *[e.transpose(0, 1) for e in ends]
    return whole, *ends


def directions_of(node: NodeCall, how: Layer, r: Value) -> int:
    """The number of directions; an error for a hidden_size that is not the weights'."""
    if how.hidden_size is not None and how.hidden_size != r.shape[-1]:
        raise node.fail(f"hidden_size is {how.hidden_size}, but the weights R have {r.shape[-1]}")
    # The default of GRU in version 1 is "foward".
    if how.direction not in ("forward", "foward", "reverse", "bidirectional"):
        raise node.fail(f"direction is forward, reverse or bidirectional, not {how.direction!r}")
    return 2 if how.direction == "bidirectional" else 1


def _cells(
    w: Tensor, r: Tensor, b: Tensor | None, count: int, p: Tensor | None = None, joined: bool = True
) -> list[Cell]:
    """The weights of each direction; both biases in one, added to the inputs, unless the step needs them apart."""
    made = []
    for d in range(count):
        first = second = None
        if b is not None:
            half = b.shape[1] // 2
            first, second = b[d, :half], b[d, half:]
            if joined:
                first, second = first + second, None
        made.append(Cell(w[d].T, r[d].T, first, second, None if p is None else p[d]))
    return made


def _parts(x: Tensor, count: int) -> list[Tensor]:
    n = x.shape[-1] // count
    return [x[..., i * n : (i + 1) * n] for i in range(count)]


# -- RNN --------------------------------------------------------------------------------------------------------------


def _rnn_step(x: Tensor, states: States, cell: Cell, f: list[Function]) -> States:
    return (f[0](x + cell.from_state(states[0])),)


# -- GRU --------------------------------------------------------------------------------------------------------------


def _gru_step(x: Tensor, states: States, cell: Cell, f: list[Function]) -> States:
    """The reset gate before the product with the state."""
    h = states[0]
    n = h.shape[-1]
    gates = f[0](x[..., : 2 * n] + h.matmul(cell.state[:, : 2 * n]))
    update, reset = _parts(gates, 2)
    new = f[1](x[..., 2 * n :] + (reset * h).matmul(cell.state[:, 2 * n :]))
    return (new + update * (h - new),)


def _gru_step_reset_after(x: Tensor, states: States, cell: Cell, f: list[Function]) -> States:
    """The reset gate behind the product with the state (linear_before_reset=1), as cuDNN has it."""
    h = states[0]
    n = h.shape[-1]
    hidden = cell.from_state(h)
    if cell.state_bias is not None:
        hidden = hidden + cell.state_bias
    update, reset = _parts(f[0](x[..., : 2 * n] + hidden[..., : 2 * n]), 2)
    new = f[1](x[..., 2 * n :] + reset * hidden[..., 2 * n :])
    return (new + update * (h - new),)


# -- LSTM -------------------------------------------------------------------------------------------------------------


def lstm_step(x: Tensor, states: States, cell: Cell, f: list[Function], coupled: bool = False) -> States:
    """Gates in the order input, output, forget, cell; peepholes weigh the cell's state for the first three."""
    h, c = states
    into, out, forget, new = _parts(x + cell.from_state(h), 4)
    peeps = None if cell.peephole is None else _parts(cell.peephole, 3)
    if peeps is not None:
        into, forget = into + peeps[0] * c, forget + peeps[2] * c
    i = f[0](into)
    kept = 1 - i if coupled else f[0](forget)
    c = kept * c + i * f[1](new)
    if peeps is not None:
        out = out + peeps[1] * c
    return f[0](out) * f[2](c), c


# -- operators --------------------------------------------------------------------------------------------------------

# the step, and the activations that it has by default
_STEPS: dict[str, tuple[Step, list[str]]] = {
    "RNN": (_rnn_step, ["Tanh"]),
    "GRU": (_gru_step, ["Sigmoid", "Tanh"]),
    "LSTM": (lstm_step, ["Sigmoid", "Tanh", "Tanh"]),
}


@op("RNN", "GRU", "LSTM", raw=True)
def recurrent(
    node: NodeCall,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    p: Value | None = None,
    *,
    how: Layer = LAYER,
) -> Any:
    """h = f(x W + h R + b), in one direction or both; the gated recurrent unit, whose linear_before_reset came with
    version 3; long short-term memory, with peepholes (p) and coupled gates (input_forget=1) if asked.
    """
    step, default = _STEPS[node.op]
    count = directions_of(node, how, r)
    functions = activations_of(node, how, default, count)
    after = node.op == "GRU" and how.linear_before_reset
    cells = _cells(node.tensor(w), node.tensor(r), node.tensor(b), count, node.tensor(p), joined=not after)
    if after:
        step = _gru_step_reset_after
    elif node.op == "LSTM" and how.input_forget:
        step = partial(lstm_step, coupled=True)
    states = [node.tensor(s) for s in (initial_h, initial_c)[: 2 if node.op == "LSTM" else 1]]
    return run_layer(node, node.tensor(x), cells, states, step, functions, sequence_lens, how)
