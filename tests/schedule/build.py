"""Small builders of tensor graphs, without the Tensor class."""

from __future__ import annotations

import math

from anneal.schedule import CostModel, Plan, graph, plan_for
from anneal.uop import DType, Op, UOp, dtypes

F32 = dtypes.float32


class FakeStorage:
    """A storage that only has a size."""

    def __init__(self, size: int) -> None:
        self.size = size


def buffer(*shape: int, dtype: DType = F32) -> UOp:
    flat = UOp(Op.BUFFER, dtype, (), FakeStorage(math.prod(shape)))
    return reshape(flat, *shape)


def reshape(x: UOp, *shape: int) -> UOp:
    return UOp(Op.RESHAPE, x.dtype, (x,), shape)


def expand(x: UOp, *shape: int) -> UOp:
    return UOp(Op.EXPAND, x.dtype, (x,), shape)


def permute(x: UOp, *order: int) -> UOp:
    return UOp(Op.PERMUTE, x.dtype, (x,), order)


def reduce(x: UOp, op: Op, *axes: int) -> UOp:
    return UOp(Op.REDUCE_AXIS, x.dtype, (x,), (op, axes))


def matmul(a: UOp, b: UOp) -> UOp:
    (m, k), n = a.shape, b.shape[1]
    left = expand(reshape(a, m, k, 1), m, k, n)
    right = expand(reshape(b, 1, k, n), m, k, n)
    return reshape(reduce(left * right, Op.ADD, 1), m, n)


def softmax(x: UOp) -> UOp:
    m = reduce(x, Op.MAX, 1)
    e = Op.EXP(x - expand(m, *x.shape))
    return e / expand(reduce(e, Op.ADD, 1), *x.shape)


def layer_norm(x: UOp, weight: UOp, bias: UOp) -> tuple[UOp, UOp, UOp]:
    """The result, the mean and one over the deviation."""
    n, f = x.shape[1], x.shape
    mean = reduce(x, Op.ADD, 1) * (1 / n)
    centred = x - expand(mean, *f)
    scale = Op.RSQRT(reduce(centred * centred, Op.ADD, 1) * (1 / n) + 1e-5)
    y = centred * expand(scale, *f) * expand(reshape(weight, 1, n), *f) + expand(reshape(bias, 1, n), *f)
    return y, mean, scale


def plan(*outputs: UOp, max_buffers: int = 8, row_fusion: int = 0) -> Plan:
    return plan_for(graph(outputs), CostModel(max_buffers=max_buffers, row_fusion=row_fusion))[0]
