"""Movement nodes that cost nothing when nothing moves: each helper folds the trivial and the repeated case.

A cotangent may have shape `()`: it then stands for the same number at every position, and most movement leaves it as it
is. `spread` gives such a value its full shape where an op needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anneal.uop import SYMBOLIC, Op, UOp, dtypes
from anneal.uop.sizes import Size, sizes, symbolic_arg, widest

Pairs = tuple[tuple[Any, Any], ...]
Shape = tuple[Any, ...]


def reshape(x: UOp, shape: Shape) -> UOp:
    """`x` with `shape`; a reshape of a reshape is one reshape."""
    if SYMBOLIC.seen:
        shape = sizes(shape)
    if x.shape == shape:
        return x
    if x.op is Op.RESHAPE:
        x = x.src[0]
        if x.shape == shape:
            return x
    return UOp(Op.RESHAPE, x.dtype, (x,), shape)


def expand(x: UOp, shape: Shape) -> UOp:
    """`x` with its axes of size 1 repeated to `shape`."""
    if SYMBOLIC.seen:
        shape = sizes(shape)
    if x.shape == shape:
        return x
    if x.op is Op.EXPAND:
        x = x.src[0]
    return UOp(Op.EXPAND, x.dtype, (x,), shape)


def spread(x: UOp, shape: Shape) -> UOp:
    """`x` itself if it has `shape`; a scalar repeated to `shape` otherwise."""
    if x.shape == shape:
        return x
    return expand(reshape(x, (1,) * len(shape)), shape)


def permute(x: UOp, order: Sequence[int]) -> UOp:
    """`x` with axis `order[i]` at place i; a permutation of a permutation is one."""
    axes = tuple(order)
    if x.op is Op.PERMUTE:
        axes = tuple([x.arg[i] for i in axes])
        x = x.src[0]
    if axes == tuple(range(len(axes))):
        return x
    return UOp(Op.PERMUTE, x.dtype, (x,), axes)


def pad(x: UOp, pairs: Pairs) -> UOp:
    """`x` with zeros before and after on each axis."""
    if SYMBOLIC.seen:
        pairs = tuple([sizes(p) for p in pairs])
    return x if all(p == (0, 0) for p in pairs) else UOp(Op.PAD, x.dtype, (x,), pairs)


def shrink(x: UOp, pairs: Pairs) -> UOp:
    """The part [begin, end) of `x` on each axis."""
    if SYMBOLIC.seen:
        pairs = tuple([sizes(p) for p in pairs])
    if all(b == 0 and e == n for (b, e), n in zip(pairs, x.shape, strict=True)):
        return x
    return UOp(Op.SHRINK, x.dtype, (x,), pairs)


def from_memory(x: UOp, shape: Shape) -> UOp:
    """The array of `shape` that lies in the flat `x`, with room for its largest sizes."""
    if not (SYMBOLIC.seen and symbolic_arg(shape)):
        return reshape(x, shape)
    return shrink(reshape(x, widest(shape)), tuple([(0, n) for n in shape]))


def to_memory(x: UOp, shape: Shape) -> UOp:
    """The opposite: `x` in flat memory, with zeros where its sizes leave room; `shape` is that of the memory."""
    if SYMBOLIC.seen and symbolic_arg(x.shape):
        x = pad(x, tuple([(0, most - n) for most, n in zip(widest(x.shape), x.shape, strict=True)]))
    return reshape(x, shape)


def flip(x: UOp, axes: tuple[int, ...]) -> UOp:
    """`x` reversed along `axes`."""
    return UOp(Op.FLIP, x.dtype, (x,), axes) if axes else x


def reduce_axis(x: UOp, op: Op, axes: tuple[int, ...]) -> UOp:
    """`x` reduced by `op` along `axes`, which stay with size 1."""
    return UOp(Op.REDUCE_AXIS, x.dtype, (x,), (op, axes)) if axes else x


def reduce_node(u: UOp, op: Op, axes: tuple[int, ...], keepdim: bool) -> UOp:
    """`u` reduced along `axes`; axes of size 1 only disappear."""
    s = u.shape
    long = tuple([a for a in axes if s[a] != 1])
    u = reduce_axis(u, op, long)
    if keepdim:
        return u
    return reshape(u, tuple([n for i, n in enumerate(s) if i not in axes]))


def iota(n: Size, axis: int = 0, ndim: int = 1) -> UOp:
    """0 to n-1 along `axis` of `ndim` axes, the others of size 1."""
    u = UOp(Op.IOTA, dtypes.int32, (), (n,))
    return u if ndim == 1 else reshape(u, tuple([n if i == axis else 1 for i in range(ndim)]))


def every(u: UOp, axis: int, step: int) -> UOp:
    """The elements of one axis `step` apart, from the first."""
    if step == 1:
        return u
    s = u.shape
    out = -(-s[axis] // step)
    extra = out * step - s[axis]
    u = pad(u, tuple([(0, extra) if i == axis else (0, 0) for i in range(len(s))]))
    u = reshape(u, (*s[:axis], out, step, *s[axis + 1 :]))
    u = shrink(u, tuple([(0, 1) if i == axis + 1 else (0, n) for i, n in enumerate(u.shape)]))
    return reshape(u, (*s[:axis], out, *s[axis + 1 :]))
