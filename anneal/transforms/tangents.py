"""The tangents that need thought: they answer rules of `forward.upat` by name."""

from __future__ import annotations

from anneal.ops.nodes import expand, reduce_axis
from anneal.transforms.adjoints import others_product
from anneal.uop import Op, UOp, alu

__all__ = ["reduced"]


def reduced(g: UOp, x: UOp, y: UOp) -> UOp:
    """Max and min: the mean of `g` over the ties. Product: each factor's tangent times the product of the others."""
    op, axes = y.arg
    if op is Op.MUL:
        return reduce_axis(g * others_product(x, axes), Op.ADD, axes)
    hit = alu(Op.EQ, (x, expand(y, x.shape)))
    ties = reduce_axis(hit.cast(g.dtype), Op.ADD, axes)
    return reduce_axis(alu(Op.WHERE, (hit, g, g.const_like(0))), Op.ADD, axes) / ties
