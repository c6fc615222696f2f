"""Generated from anneal/transforms/forward.upat by `python -m anneal.rewrite.generate`; edit that file, not this one."""
# fmt: off

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anneal.uop import Op, UOp
from anneal.transforms.adjoints import around, at_first, placed, reduced_tangent

_RESHAPE = Op.RESHAPE
_PERMUTE = Op.PERMUTE
_EXPAND = Op.EXPAND
_PAD = Op.PAD
_SHRINK = Op.SHRINK
_FLIP = Op.FLIP
_REDUCE_AXIS = Op.REDUCE_AXIS
_GATHER = Op.GATHER
_SCATTER_ADD = Op.SCATTER_ADD
_ADD = Op.ADD

def _forward_cast(y: Any, g: Any, place: int) -> Any:
    s0, = y.src
    if s0.dtype.is_float:
        # cast(x:float) -> cast(g, y.dtype)
        return (g.cast(y.dtype),)


def _forward_reshape(y: Any, g: Any, place: int) -> Any:
    if len(y.src) == 1:
        # reshape[shape](x) -> reshape[shape](g)
        return (UOp(_RESHAPE, g.dtype, (g,), y.arg),)


def _forward_permute(y: Any, g: Any, place: int) -> Any:
    if len(y.src) == 1:
        # permute[axes](x) -> permute[axes](g)
        return (UOp(_PERMUTE, g.dtype, (g,), y.arg),)


def _forward_expand(y: Any, g: Any, place: int) -> Any:
    if len(y.src) == 1:
        # expand[shape](x) -> expand[shape](g)
        return (UOp(_EXPAND, g.dtype, (g,), y.arg),)


def _forward_pad(y: Any, g: Any, place: int) -> Any:
    if len(y.src) == 1:
        # pad[pairs](x) -> pad[pairs](g)
        return (UOp(_PAD, g.dtype, (g,), y.arg),)


def _forward_shrink(y: Any, g: Any, place: int) -> Any:
    if len(y.src) == 1:
        # shrink[pairs](x) -> shrink[pairs](g)
        return (UOp(_SHRINK, g.dtype, (g,), y.arg),)


def _forward_flip(y: Any, g: Any, place: int) -> Any:
    if len(y.src) == 1:
        # flip[axes](x) -> flip[axes](g)
        return (UOp(_FLIP, g.dtype, (g,), y.arg),)


def _forward_contiguous(y: Any, g: Any, place: int) -> Any:
    if len(y.src) == 1:
        # contiguous(x) -> g
        return (g,)


def _forward_reduce_axis(y: Any, g: Any, place: int) -> Any:
    if y.arg[0] is _ADD and len(y.src) == 1:
        s0, = y.src
        # reduce_axis[add, axes](x) -> reduce_axis[add, axes](g)
        return (UOp(_REDUCE_AXIS, g.dtype, (g,), (_ADD, y.arg[1])),)
    if len(y.src) == 1:
        s0, = y.src
        # reduce_axis(x) -> reduced_tangent(g, x, y)
        return (reduced_tangent(g, s0, y),)


def _forward_gather(y: Any, g: Any, place: int) -> Any:
    if len(y.src) == 2:
        s0, s1 = y.src
        # gather[axis](x, i) -> gather[axis](g, i), _
        return (UOp(_GATHER, g.dtype, (g, s1), y.arg) if place == 0 else None,)


def _forward_scatter_add(y: Any, g: Any, place: int) -> Any:
    if len(y.src) == 2:
        s0, s1 = y.src
        # scatter_add[rows](i, x) -> _, scatter_add[rows](i, g, dtype=y.dtype)
        return (None if place == 0 else UOp(_SCATTER_ADD, y.dtype, (s0, g), y.arg),)


def _forward_update(y: Any, g: Any, place: int) -> Any:
    if len(y.src) == 2:
        s0, s1 = y.src
        # update[begins](x, v) -> around(g, y, v, begins), placed(g, x, v, begins)
        return (around(g, y, s1, y.arg) if place == 0 else placed(g, s0, s1, y.arg),)


def _forward_call(y: Any, g: Any, place: int) -> Any:
    if y.arg[0].name == 'first' and len(y.src) == 2:
        s0, s1 = y.src
        # call["first", axes](v, x) -> _, at_first(g, x, y, axes)
        return (None if place == 0 else at_first(g, s1, y, y.arg[0].arguments),)


FORWARD: dict[Op, Callable[[Any, Any, int], Any]] = {Op.CAST: _forward_cast, Op.RESHAPE: _forward_reshape, Op.PERMUTE: _forward_permute, Op.EXPAND: _forward_expand, Op.PAD: _forward_pad, Op.SHRINK: _forward_shrink, Op.FLIP: _forward_flip, Op.CONTIGUOUS: _forward_contiguous, Op.REDUCE_AXIS: _forward_reduce_axis, Op.GATHER: _forward_gather, Op.SCATTER_ADD: _forward_scatter_add, Op.UPDATE: _forward_update, Op.CALL: _forward_call}
