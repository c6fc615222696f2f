"""The tangents that need thought: they answer rules of `forward.upat` by name."""

from __future__ import annotations

from anneal.ops.nodes import expand, reduce_axis, reshape
from anneal.transforms.adjoints import first_of, others_product
from anneal.uop import Op, UOp, alu

__all__ = ["at_first", "reduced"]


def at_first(g: UOp, x: UOp, y: UOp, axes: tuple[int, ...]) -> UOp:
    """The tangent of the first of the largest along `axes`."""
    place, chosen = first_of(x, y, axes)
    hit = alu(Op.EQ, (place, expand(chosen, x.shape)))
    return reshape(reduce_axis(alu(Op.WHERE, (hit, g, g.const_like(0))), Op.ADD, axes), y.shape)


def reduced(g: UOp, x: UOp, y: UOp) -> UOp:
    """Max and min: the mean of `g` over the ties. Product: each factor's tangent times the product of the others."""
    op, axes = y.arg
    if op is Op.MUL:
        return reduce_axis(g * others_product(x, axes), Op.ADD, axes)
    hit = alu(Op.EQ, (x, expand(y, x.shape)))
    ties = reduce_axis(hit.cast(g.dtype), Op.ADD, axes)
    return reduce_axis(alu(Op.WHERE, (hit, g, g.const_like(0))), Op.ADD, axes) / ties
