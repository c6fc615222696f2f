"""Cells of recurrent networks, with torch's names, arguments, parameter names and layouts."""

from __future__ import annotations

import math
from typing import ClassVar

from anneal.errors import ShapeError
from anneal.nn import init
from anneal.nn._module import Resettable
from anneal.ops import DTypeLike, checked
from anneal.tensor import Tensor
from anneal.tensor import functional as F

__all__ = ["GRUCell", "LSTMCell", "RNNCell"]


class _Cell(Resettable):
    gates: ClassVar[int]

    @checked
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        if hidden_size < 1:
            raise ShapeError(f"{type(self).__name__}: hidden_size is at least 1, not {hidden_size}")
        self.input_size, self.hidden_size = input_size, hidden_size
        bound, rows = 1 / math.sqrt(hidden_size), self.gates * hidden_size
        self.weight_ih: Tensor = init.uniform((rows, input_size), bound)
        self.weight_hh: Tensor = init.uniform((rows, hidden_size), bound)
        self.bias_ih: Tensor | None = init.uniform((rows,), bound) if bias else None
        self.bias_hh: Tensor | None = init.uniform((rows,), bound) if bias else None
        self._place(device, dtype)

    def _rows(self, x: Tensor, *states: Tensor | None) -> tuple[bool, Tensor, list[Tensor]]:
        """True if there is no batch, then x and the states with one; absent states are zeros."""
        name, single = type(self).__name__, x.ndim == 1
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(f"{name}: x has shape (batch, {self.input_size}) or ({self.input_size},), not {x.shape}")
        if single:
            x = x.unsqueeze(0)
        shape = (x.shape[0], self.hidden_size)
        out = []
        for s in states:
            if s is None:
                s = Tensor.zeros(*shape, dtype=x.dtype, device=x.device)
            elif single:
                s = s.unsqueeze(0)
            if s.shape != shape:
                raise ShapeError(f"{name}: for x of this size a state has shape {shape}, not {s.shape}")
            out.append(s)
        return single, x, out

    def _parts(self, x: Tensor) -> list[Tensor]:
        n = self.hidden_size
        return [x[:, k * n : (k + 1) * n] for k in range(self.gates)]


class RNNCell(_Cell):
    """Elman's step, `tanh(W_ih x + b_ih + W_hh h + b_hh)`: (batch, in) and a state (batch, hidden) to the next state.

    `nonlinearity` is "tanh" or "relu". Without a state it is zeros; without a batch both have one axis.

    >>> RNNCell(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    gates = 1

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
        if nonlinearity not in ("tanh", "relu"):
            raise ShapeError(f'RNNCell: nonlinearity is "tanh" or "relu", not {nonlinearity!r}')
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype)

    @checked
    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        single, x, (h,) = self._rows(x, hx)
        both = F.linear(x, self.weight_ih, self.bias_ih) + F.linear(h, self.weight_hh, self.bias_hh)
        out = both.tanh() if self.nonlinearity == "tanh" else both.relu()
        return out.squeeze(0) if single else out


class GRUCell(_Cell):
    """A step of the gated recurrent unit; arguments and results as for `RNNCell`.

    >>> GRUCell(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    gates = 3

    @checked
    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        single, x, (h,) = self._rows(x, hx)
        given = self._parts(F.linear(x, self.weight_ih, self.bias_ih))
        mine = self._parts(F.linear(h, self.weight_hh, self.bias_hh))
        r, z = (given[0] + mine[0]).sigmoid(), (given[1] + mine[1]).sigmoid()
        new = (given[2] + r * mine[2]).tanh()
        out = new + z * (h - new)
        return out.squeeze(0) if single else out


class LSTMCell(_Cell):
    """A step of long short-term memory: (batch, in) and the pair of states (h, c) to the next pair.

    >>> h, c = LSTMCell(3, 4)(Tensor.ones(2, 3))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    gates = 4

    @checked
    def forward(self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        single, x, (h, c) = self._rows(x, *(hx if hx is not None else (None, None)))
        i, f, g, o = self._parts(F.linear(x, self.weight_ih, self.bias_ih) + F.linear(h, self.weight_hh, self.bias_hh))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return (h.squeeze(0), c.squeeze(0)) if single else (h, c)
