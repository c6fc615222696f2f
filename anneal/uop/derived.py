"""Facts that a node derives from its fields: the shape by op, and the bounds of ops that are not elementwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anneal.uop.dtype import DType
from anneal.uop.later import LATER, SYMBOLIC
from anneal.uop.ops import Op

if TYPE_CHECKING:
    from anneal.uop.node import UOp

__all__ = ["BOUNDS", "SHAPES", "Bound"]

Bound = int | float | None


def _keep(src: tuple[UOp, ...], _arg: Any) -> tuple[Any, ...]:
    return src[0].shape


def _padded(src: tuple[UOp, ...], arg: Any) -> tuple[Any, ...]:
    out = tuple([b + s + a for s, (b, a) in zip(src[0].shape, arg, strict=True)])
    return LATER.sizes(out) if SYMBOLIC.seen else out


def _shrunk(_: tuple[UOp, ...], arg: Any) -> tuple[Any, ...]:
    out = tuple([e - b for b, e in arg])
    return LATER.sizes(out) if SYMBOLIC.seen else out


SHAPES: dict[Op, Callable[[tuple[UOp, ...], Any], tuple[Any, ...]]] = {
    Op.BUFFER: lambda _, arg: (arg.size,),
    Op.PARAM: lambda _, arg: arg[1],
    Op.IOTA: lambda _, arg: arg,
    Op.RESHAPE: lambda _, arg: arg,
    Op.EXPAND: lambda _, arg: arg,
    Op.PERMUTE: lambda src, arg: tuple([src[0].shape[i] for i in arg]),
    Op.PAD: _padded,
    Op.SHRINK: _shrunk,
    Op.FLIP: _keep,
    Op.REDUCE_AXIS: lambda src, arg: tuple([1 if i in arg[1] else s for i, s in enumerate(src[0].shape)]),
    Op.GATHER: lambda src, _: src[1].shape,
    Op.SCATTER_ADD: lambda src, arg: (arg[0], *src[1].shape[1:]),
    Op.ARGSORT: lambda src, _: src[0].shape if len(src) == 1 else (),  # in a kernel: (keys, range)
    Op.SEGMENT_SUM: lambda src, _: (src[2].shape[0] - 1, *src[0].shape[1:]),
    Op.CONTIGUOUS: _keep,
    Op.UPDATE: _keep,
    Op.DETACH: _keep,
    Op.CALL: lambda src, arg: (arg[0].results or src)[arg[1]].shape,
    Op.HOST_CALL: lambda _, arg: arg[0].results[arg[1]][0],
}

BOUNDS: dict[Op, Callable[[DType, tuple[UOp, ...], Any], tuple[Bound, Bound]]] = {
    Op.CONST: lambda _, __, arg: (arg, arg),
    Op.VARIABLE: lambda _, __, arg: (arg[1], arg[2]),
    Op.BIND: lambda _, __, arg: (arg[1], arg[2]),
    Op.IOTA: lambda _, __, arg: (0, max(0, (arg[0] if arg[0].__class__ is int else arg[0].vmax) - 1)),
    Op.RANGE: lambda _, src, __: (0, max(0, (src[0].vmax or 1) - 1)),
    Op.SPECIAL: lambda _, __, arg: (0, arg[1] - 1),
    Op.ARGSORT: lambda _, src, __: (0, max(0, src[0].size - 1)),
}


def _called(dtype: DType, src: tuple[UOp, ...], arg: Any) -> tuple[Bound, Bound]:
    found = (arg[0].results or src)[arg[1]]
    return (None, None) if dtype.is_float else (found.vmin, found.vmax)


BOUNDS[Op.CALL] = _called
for _op in (Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SHRINK, Op.FLIP, Op.CONTIGUOUS, Op.DETACH):
    BOUNDS[_op] = lambda _, src, __: (src[0].vmin, src[0].vmax)
