"""A kernel graph by its meaning: every node over all of its ranges at once, in NumPy, sums in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from anneal.backend import numpy_dtype
from anneal.uop import Op, UOp, toposort

Array = npt.NDArray[Any]

_ALU: dict[Op, Any] = {
    Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide, Op.LT: np.less, Op.WHERE: np.where,
    Op.EXP: np.exp, Op.NEG: np.negative, Op.IDIV: np.floor_divide, Op.MOD: np.mod, Op.MAX: np.maximum,
    Op.NOT: np.logical_not, Op.AND: np.logical_and,
}  # fmt: skip
_REDUCE: dict[Op, Any] = {Op.ADD: np.sum, Op.MAX: np.max}


def evaluated(sink: UOp, inputs: dict[int, Array]) -> dict[int, Array]:
    """The memory that the kernel stores, by slot; nan where it stores nothing."""
    order = toposort((sink,))
    ranges = [u for u in order if u.op is Op.RANGE]
    extents = [int(r.src[0].arg) for r in ranges]
    axis = {r: n for n, r in enumerate(ranges)}
    values: dict[UOp, Array] = {}
    out: dict[int, Array] = {}
    for u in order:
        if u.op is Op.RANGE:
            values[u] = np.arange(extents[axis[u]]).reshape([-1 if n == axis[u] else 1 for n in range(len(ranges))])
        elif u.op is Op.CONST:
            values[u] = np.array(u.arg, np.float64 if u.dtype.is_float else numpy_dtype(u.dtype))
        elif u.op is Op.LOAD:
            values[u] = inputs[u.src[0].arg[0]].reshape(-1)[values[u.src[1]]]
            values[u] = values[u].astype(np.float64) if u.dtype.is_float else values[u]
        elif u.op is Op.REDUCE:
            over = tuple(axis[r] for r in u.src[1:])
            shape = [extents[n] if n in over else m for n, m in enumerate(values[u.src[0]].shape)]
            values[u] = _REDUCE[u.arg](np.broadcast_to(values[u.src[0]], shape), axis=over, keepdims=True)
        elif u.op is Op.STORE:
            slot, size = u.src[0].arg[0], u.src[0].arg[1]
            at, value = np.broadcast_arrays(values[u.src[1]], values[u.src[2]])
            out.setdefault(slot, np.full(size, np.nan))[at.ravel()] = value.ravel()
        elif u.op is Op.CAST:
            values[u] = values[u.src[0]]
        elif u.op not in (Op.PARAM, Op.SINK):
            values[u] = _ALU[u.op](*[values[s] for s in u.src])
    return out
