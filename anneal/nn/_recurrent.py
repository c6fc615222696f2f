"""Recurrent layers and their cells, with torch's names, arguments, parameter names and layouts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, overload

import numpy as np

from anneal.errors import ShapeError
from anneal.nn import init
from anneal.nn._module import Resettable
from anneal.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from anneal.ops import DTypeLike, checked, said
from anneal.tensor import Tensor, functional as F
from anneal.transforms import scan

_KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_LOOPED, _LOOPED_GPU = 16, 256  # steps that are a loop on the device; fewer are one graph

# A short sequence is unrolled: a step's graph grows with the time axis, and each step runs the same kernels. A long one
# is a loop on the device, and so is one of symbolic length. A GPU takes a step of an unrolled sequence in two thirds of
# the time, but a second or more to compile it: there each layer's first length is unrolled, and others are loops. A
# packed sequence runs to its longest; states of the others stand still after their ends.


class _Gated(Resettable):
    gates: ClassVar[int]
    hidden_size: int

    def _weigh(self, suffix: str, width: int, bias: bool) -> None:
        """Set the parameters of one layer and direction, whose inputs have a width."""
        if self.hidden_size < 1:
            raise ShapeError(f"{type(self).__name__}: hidden_size is at least 1, not {self.hidden_size}")
        rows, bound = self.gates * self.hidden_size, 1 / math.sqrt(self.hidden_size)
        shapes = (rows, width), (rows, self.hidden_size), (rows,), (rows,)
        for kind, shape in zip(_KINDS, shapes, strict=True):
            if bias or len(shape) > 1:
                setattr(self, kind + suffix, init.uniform(shape, bound))

    # The next state (the output first) from a step's projected input and projected output of the step before, each
    # (batch, gates * hidden), and from the state.
    _cell: Callable[[Tensor, Tensor, list[Tensor]], list[Tensor]]


class _Elman(_Gated):
    gates = 1
    nonlinearity: str

    def _take(self, nonlinearity: str) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ShapeError(f'{type(self).__name__}: nonlinearity is "tanh" or "relu", not {nonlinearity!r}')
        self.nonlinearity = nonlinearity

    def _cell(self, given: Tensor, mine: Tensor, state: list[Tensor]) -> list[Tensor]:
        h = given + mine
        return [h.tanh() if self.nonlinearity == "tanh" else h.relu()]


class _Unit(_Gated):
    gates = 3

    def _cell(self, given: Tensor, mine: Tensor, state: list[Tensor]) -> list[Tensor]:
        h, n = state[0], self.hidden_size
        r = (given[:, :n] + mine[:, :n]).sigmoid()
        z = (given[:, n : 2 * n] + mine[:, n : 2 * n]).sigmoid()
        new = (given[:, 2 * n :] + r * mine[:, 2 * n :]).tanh()
        return [new + z * (h - new)]


class _LongShort(_Gated):
    gates = 4

    def _cell(self, given: Tensor, mine: Tensor, state: list[Tensor]) -> list[Tensor]:
        n, both = self.hidden_size, given + mine
        i, f, g, o = [both[:, k * n : (k + 1) * n] for k in range(4)]
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return [o.sigmoid() * c.tanh(), c]


class RNNBase(_Gated):
    """The base of `RNN`, `LSTM` and `GRU`.

    >>> from anneal import nn
    >>> isinstance(nn.GRU(2, 3), RNNBase)
    True
    """

    _unrolled: int | None = None  # the length that is one graph on a GPU

    @checked
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        if proj_size:
            raise ShapeError(f"{type(self).__name__}: proj_size is not there; put a Linear after the outputs")
        if num_layers < 1:
            raise ShapeError(f"{type(self).__name__}: num_layers is at least 1, not {num_layers}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.mode, self.proj_size = type(self).__name__, 0
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, dropout, bidirectional
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                self._weigh(suffix, hidden_size * (1 + bidirectional) if layer else input_size, bias)
        self._place(device, dtype)

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: 1 + self.bidirectional]

    def _run(self, x: Any, initial: list[Tensor] | None, states: int) -> tuple[Any, list[Tensor]]:
        """Outputs, and the last of each of `states` kinds of state: what forward gives, but for the layout of
        a state.
        """
        if isinstance(x, PackedSequence):
            return self._packed(x, initial, states)
        return self._steps(x, initial, states, None)

    def _packed(
        self, x: PackedSequence, initial: list[Tensor] | None, states: int
    ) -> tuple[PackedSequence, list[Tensor]]:
        """`_run` of a packed sequence: padded, with states that move in the steps that a sequence has."""
        lengths = x.lengths()
        there = Tensor((np.arange(lengths.max())[:, None] < lengths)[:, :, None], device=x.data.device)
        padded, _ = pad_packed_sequence(x, self.batch_first)
        output, ends = self._steps(padded, initial, states, there)
        return pack_padded_sequence(output, lengths, self.batch_first, x.unsorted_indices is None), ends

    def _steps(
        self, x: Tensor, initial: list[Tensor] | None, states: int, there: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """`_run` of a tensor; `there`, (time, batch, 1), says in which steps a sequence moves its state."""
        name, single = type(self).__name__, x.ndim == 2
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            lead = "batch, time" if self.batch_first else "time, batch"
            raise ShapeError(
                f"{name}: x has shape ({lead}, {self.input_size}) or (time, {self.input_size}), not {x.shape}"
            )
        if single:
            x = x.unsqueeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        time, batch = x.shape[:2]
        rows = self.num_layers * (1 + self.bidirectional)
        shape = (rows, batch, self.hidden_size)
        if initial is None:
            initial = [Tensor.zeros(*shape, dtype=x.dtype, device=x.device)] * states
        elif single:
            initial = [s.unsqueeze(1) for s in initial]
        for s in initial:
            if s.shape != shape:
                raise ShapeError(f"{name}: for x of this size a state has shape {shape}, not {s.shape}")
        last: list[list[Tensor]] = []
        looped = self._looped(time, x.device)
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            directions = []
            for way, suffix in enumerate(self._suffixes(layer)):
                w, b = getattr(self, f"weight_hh{suffix}"), getattr(self, f"bias_hh{suffix}", None)
                # The inputs of all steps in one product; only what depends on the step before is left for the loop.
                given = F.linear(x, getattr(self, f"weight_ih{suffix}"), getattr(self, f"bias_ih{suffix}", None))
                state = [s[len(last)] for s in initial]

                def step(state: list[Tensor], now: Any, w: Tensor = w, b: Tensor | None = b) -> Any:
                    new = self._cell(now[0], F.linear(state[0], w, b), state)
                    if now[1] is not None:
                        new = [now[1].where(n, old) for n, old in zip(new, state, strict=True)]
                    return new, new[0]

                if looped:
                    state, steps = scan(step, state, (given, there), reverse=way == 1)
                else:
                    outputs = [None] * time
                    for t in reversed(range(time)) if way else range(time):
                        state, outputs[t] = step(state, (given[t], None if there is None else there[t]))
                    steps = Tensor.stack(outputs, dim=0)
                directions.append(steps)
                last.append(state)
            x = directions[0] if len(directions) == 1 else Tensor.cat(directions, dim=-1)
        ends = [Tensor.stack([s[i] for s in last], dim=0) for i in range(states)]
        if single:
            return x.squeeze(1), [e.squeeze(1) for e in ends]
        return (x.transpose(0, 1) if self.batch_first else x), ends

    def _looped(self, time: Any, device: str) -> bool:
        """True if so many steps are a loop on the device."""
        if not isinstance(time, int) or time < _LOOPED or device == "cpu":
            return not isinstance(time, int) or time >= _LOOPED
        if self._unrolled is None:
            self._unrolled = time
        return time >= _LOOPED_GPU or time != self._unrolled

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer and direction: weights, then biases.

        >>> [len(own) for own in LSTM(3, 4, num_layers=2).all_weights]
        [4, 4]
        """
        suffixes = [s for layer in range(self.num_layers) for s in self._suffixes(layer)]
        return [[getattr(self, kind + suffix) for kind in _KINDS[: 4 if self.bias else 2]] for suffix in suffixes]

    def flatten_parameters(self) -> None:
        """Does nothing: in torch it prepares weights for cuDNN."""


class _OfOneState(RNNBase):
    @overload
    def forward(self, x: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...
    @overload
    def forward(self, x: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]: ...
    @checked
    def forward(self, x: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, last = self._run(x, None if hx is None else [hx], 1)
        return output, last[0]


class RNN(_Elman, _OfOneState):
    """Elman's network, `h = tanh(W_ih x + b_ih + W_hh h + b_hh)`: (time, batch, in) to the outputs and the last states.

    Args:
        nonlinearity: "tanh" or "relu". batch_first: x and the outputs are (batch, time, ...). dropout: between layers.
        bidirectional: a second network runs from the end; the outputs stand side by side.

    >>> output, last = RNN(3, 4)(Tensor.ones(5, 2, 3))
    >>> output.shape, last.shape
    ((5, 2, 4), (1, 2, 4))
    """

    @checked
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        self._take(nonlinearity)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )


class GRU(_Unit, _OfOneState):
    """The gated recurrent unit: a reset gate r, an update gate z, `h = (1 - z)*tanh(in + r*hidden) + z*h`.

    Arguments and results as for `RNN`.

    >>> output, last = GRU(3, 4, num_layers=2, batch_first=True)(Tensor.ones(2, 5, 3))
    >>> output.shape, last.shape
    ((2, 5, 4), (2, 2, 4))
    """


class LSTM(_LongShort, RNNBase):
    """Long short-term memory: gates i, f, g, o; `c = f*c + i*g`, `h = o*tanh(c)`; the state is the pair (h, c).

    Arguments as for `RNN`; gives the outputs and the pair of the last states.

    >>> output, (h, c) = LSTM(3, 4)(Tensor.ones(5, 2, 3))
    >>> output.shape, h.shape, c.shape
    ((5, 2, 4), (1, 2, 4), (1, 2, 4))
    """

    @overload
    def forward(self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...
    @overload
    def forward(
        self, x: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...
    @checked
    def forward(self, x: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        output, (h, c) = self._run(x, None if hx is None else _pair(hx), 2)
        return output, (h, c)


def _pair(state: Any) -> list[Tensor]:
    """The two states of an LSTM."""
    pair = list(state) if hasattr(state, "__iter__") else [state]
    if len(pair) != 2 or not all(isinstance(s, Tensor) for s in pair):
        raise ShapeError(f"the state is a pair of tensors, (h, c), not {said(state)}")
    return pair


class RNNCellBase(_Gated):
    """The base of `RNNCell`, `LSTMCell` and `GRUCell`.

    >>> from anneal import nn
    >>> isinstance(nn.GRUCell(2, 3), RNNCellBase)
    True
    """

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None

    @checked
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        self.input_size, self.hidden_size = input_size, hidden_size
        self._weigh("", input_size, bias)
        self._place(device, dtype)

    def _next(self, x: Tensor, *states: Tensor | None) -> list[Tensor]:
        """The next state; absent states are zeros."""
        name, single = type(self).__name__, x.ndim == 1
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(f"{name}: x has shape (batch, {self.input_size}) or ({self.input_size},), not {x.shape}")
        if single:
            x = x.unsqueeze(0)
        shape = (x.shape[0], self.hidden_size)
        given = []
        for s in states:
            if s is None:
                s = Tensor.zeros(*shape, dtype=x.dtype, device=x.device)
            elif single:
                s = s.unsqueeze(0)
            if s.shape != shape:
                raise ShapeError(f"{name}: for x of this size a state has shape {shape}, not {s.shape}")
            given.append(s)
        new = self._cell(
            F.linear(x, self.weight_ih, self.bias_ih), F.linear(given[0], self.weight_hh, self.bias_hh), given
        )
        return [s.squeeze(0) for s in new] if single else new


class _CellOfOneState(RNNCellBase):
    @checked
    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._next(x, hx)[0]


class RNNCell(_Elman, _CellOfOneState):
    """Elman's step, `tanh(W_ih x + b_ih + W_hh h + b_hh)`: (batch, in) and a state (batch, hidden) to the next state.

    `nonlinearity` is "tanh" or "relu". Without a state it is zeros; without a batch both have one axis.

    >>> RNNCell(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    @checked
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        self._take(nonlinearity)
        super().__init__(input_size, hidden_size, bias, device, dtype)


class GRUCell(_Unit, _CellOfOneState):
    """A step of the gated recurrent unit; arguments and results as for `RNNCell`.

    >>> GRUCell(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """


class LSTMCell(_LongShort, RNNCellBase):
    """A step of long short-term memory: (batch, in) and the pair of states (h, c) to the next pair.

    >>> h, c = LSTMCell(3, 4)(Tensor.ones(2, 3))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    @checked
    def forward(self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = self._next(x, *((None, None) if hx is None else _pair(hx)))
        return h, c
