"""Values that follow from constants alone are computed once, when the file is made: masks, positions, tables."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

import numpy as np

from anneal.onnx.exporting.graph_writer import GraphValue, GraphWriter, broadcast, carrier, code_of
from anneal.onnx.types import array_dtype
from anneal.ops.nodes import shrink
from anneal.tensor import Tensor
from anneal.uop import ALU, DType, Op, UOp, toposort
from anneal.uop.sizes import symbolic_arg

MOST = 1 << 20  # bytes of a value that takes the place of the nodes that compute it
_VARIES = frozenset((Op.PARAM, Op.BIND, Op.VARIABLE, Op.HOST_CALL))
_VIEWS = frozenset((Op.RESHAPE, Op.PERMUTE, Op.CONTIGUOUS, Op.DETACH))


class Constant(NamedTuple):
    """A value that is known: an array, or a number, of a dtype."""

    array: Any
    dtype: DType

    def written(self, w: GraphWriter) -> GraphValue:
        """The constant as an initialiser, in its carrier dtype."""
        if not self.array.shape:
            return GraphValue(w.scalar(self.dtype, self.array.item()), self.dtype, ())
        return GraphValue(w.constant(carried(self.array, self.dtype)), self.dtype, self.array.shape)


def carried(array: Any, dtype: DType) -> Any:
    """An array of `dtype` as one of its carrier."""
    return array if carrier(dtype) is dtype else array.astype(array_dtype(code_of(carrier(dtype))))


class Constants:
    """The constant nodes of a graph, and their values.

    Args:
        device: where their memory is.
        named: nodes that are inputs or weights: they have names, and what depends on them is no constant.
        drawn: nodes made while the function was traced, whose random numbers are drawn anew in each run.
    """

    def __init__(self, device: str, named: Iterable[UOp], drawn: Container[UOp]) -> None:
        self._device = device
        self._named: set[UOp] = set(named)
        self._drawn = drawn
        self._known: dict[UOp, bool] = {}
        self._shapes: dict[UOp, Any] = {}

    def name(self, nodes: Iterable[UOp]) -> None:
        """These nodes have names, too."""
        self._named.update(nodes)

    def of(self, u: UOp) -> Constant | None:
        """The value of a node, of the axes along which it does not repeat, if it is a constant worth writing."""
        if u.op is Op.CONST:
            return Constant(np.array(u.arg, array_dtype(code_of(u.dtype))), u.dtype)
        if 0 in u.shape and not symbolic_arg(u.shape):  # it has no values that could change
            return Constant(np.zeros(u.shape, array_dtype(code_of(u.dtype))), u.dtype)
        if u.op is Op.EXPAND or not self.is_constant(u):
            return None
        shape = self._unrepeated(u)
        if not self._is_data(u) and math.prod(shape) * u.dtype.itemsize > MOST and not self._is_random(u):
            return None
        if shape != u.shape:
            u = shrink(u, tuple([(0, m) for m in shape]))
        return Constant(Tensor._from_uop(u, self._device).detach().numpy(), u.dtype)

    def is_constant(self, u: UOp) -> bool:
        """True if nothing below a node changes from run to run."""
        known = self._known
        if u not in known:
            for x in toposort((u,), until=known.__contains__):
                varies = x in self._named or x.op in _VARIES or (x.op is Op.THREEFRY and x in self._drawn)
                known[x] = (
                    not varies
                    and all(map(known.__getitem__, x.src))
                    and not symbolic_arg(x.shape)
                    and not symbolic_arg(x.arg)
                )
        return known[u]

    def _unrepeated(self, u: UOp) -> Any:
        """The shape of a constant with 1 where it repeats."""
        shapes = self._shapes
        for x in toposort((u,), until=shapes.__contains__):
            full = x.shape
            if x.op is Op.EXPAND:
                found = shapes[x.src[0]]
            elif x.op in ALU and full:
                found = broadcast([shapes[s] for s in x.src])
                found = (1,) * (len(full) - len(found)) + found
            else:
                found = full
            shapes[x] = found
        return shapes[u]

    def _is_data(self, u: UOp) -> bool:
        while u.op in _VIEWS:
            u = u.src[0]
        return u.op is Op.BUFFER

    def _is_random(self, u: UOp) -> bool:
        return any(x.op is Op.THREEFRY for x in toposort((u,)))
