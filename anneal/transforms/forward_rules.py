"""Generated from anneal/transforms/forward.upat by `python -m anneal.rewrite.generate`; edit that file, not this one."""
# fmt: off
# mypy: allow-untyped-defs
from typing import Any

from anneal.uop import Op, UOp
from anneal.transforms.adjoints import around, at_first, multiplied, nothing, placed, reduced_tangent, summed, updated


def _forward_reduce_axis(y, g, place):
    if y.arg[0] is Op.ADD:
        s0, = y.src
        # reduce_axis[add, axes](x) -> reduce_axis[add, axes](g)
        return g.then(Op.REDUCE_AXIS, (Op.ADD, y.arg[1])),
    s0, = y.src
    # reduce_axis(x) -> reduced_tangent(g, x, y)
    return reduced_tangent(g, s0, y),


def _forward_update(y, g, place):
    if len(y.src) == 2:
        s0, s1 = y.src
        # update[begins](x, v) -> around(g, y, v, begins), placed(g, x, v, begins)
        return around(g, y, s1, y.arg) if place == 0 else placed(g, s0, s1, y.arg),
    if len(y.src) == 3:
        s0, s1, s2 = y.src
        # update(x, v, i) -> updated(g, y, nothing(v)), updated(nothing(x), y, g), _
        return updated(g, y, nothing(s1)) if place == 0 else updated(nothing(s0), y, g) if place == 1 else None,
    if len(y.src) == 4:
        s0, s1, s2, s3 = y.src
        # update(x, v, i, j) -> updated(g, y, nothing(v)), updated(nothing(x), y, g), _, _
        return updated(g, y, nothing(s1)) if place == 0 else updated(nothing(s0), y, g) if place == 1 else None if place == 2 else None,


def _forward_call(y, g, place):
    y_function = y.arg[0]
    if y_function.name == 'first':
        s0, s1 = y.src
        # call["first", axes](v, x) -> _, at_first(g, x, y, axes)
        return None if place == 0 else at_first(g, s1, y, y_function.arguments),
    if y_function.name == 'sums':
        s0, s1 = y.src
        # call["sums", how](v, x) -> _, summed(g, x, how)
        return None if place == 0 else summed(g, s1, y_function.arguments),
    if y_function.name == 'products':
        s0, s1 = y.src
        # call["products", how](v, x) -> _, multiplied(g, x, y, how)
        return None if place == 0 else multiplied(g, s1, y, y_function.arguments),


FORWARD: dict[Op, Any] = {
    Op.CAST: lambda y, g, place: (g.cast(y.dtype),) if y.src[0].dtype.is_float else None,  # cast(x:float) -> cast(g, y.dtype)
    Op.CONTIGUOUS: lambda y, g, place: (g,),  # contiguous(x) -> g
    Op.REDUCE_AXIS: _forward_reduce_axis,
    Op.GATHER: lambda y, g, place: (UOp(Op.GATHER, g.dtype, (g, y.src[1]), y.arg) if place == 0 else None,),  # gather[axis](x, i) -> gather[axis](g, i), _
    Op.SCATTER_ADD: lambda y, g, place: (None if place == 0 else UOp(Op.SCATTER_ADD, y.dtype, (y.src[0], g), y.arg),) if len(y.src) == 2 else None,  # scatter_add[rows](i, x) -> _, scatter_add[rows](i, g, dtype=y.dtype)
    Op.UPDATE: _forward_update,
    Op.CALL: _forward_call,
}
