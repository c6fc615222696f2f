"""Running results along an axis: sums, products, extremes, differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from anneal.errors import ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import function
from anneal.ops.checks import axis_of
from anneal.ops.data import DTypeLike
from anneal.ops.elementwise import real_node
from anneal.ops.extremes import ValuesIndices, one_dim, selected
from anneal.ops.joining import slice_axis
from anneal.ops.nodes import Number, broadcast, iota, pad, permute, reduce_node, reshape, shrink
from anneal.ops.precision import in_single
from anneal.ops.reduce import folded
from anneal.uop import DType, Op, UOp, const, dtypes, reduce_identity
from anneal.uop.sizes import Size, most

_BLOCK = 32


@function(in_place=True, autocast="float32")
@in_single()
def cumsum(x: Tensor, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """The sum of the elements up to and including each, along an axis. Of integers it has the dtypes of `sum`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).cumsum(0)
    Tensor([1, 3, 6], dtype=int32)
    """
    return _total(x, "cumsum", Op.ADD, axis, dtype)


@function(in_place=True, autocast="float32")
@in_single()
def cumprod(x: Tensor, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """The product of the elements up to and including each, along an axis. Of integers it has the dtypes of `sum`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2, 3, 4]).cumprod(0)
    Tensor([ 2,  6, 24], dtype=int32)
    """
    return _total(x, "cumprod", Op.MUL, axis, dtype)


def _total(x: Tensor, name: str, op: Op, axis: int | None, dtype: DTypeLike | None) -> Tensor:
    return folded(x, name, op, axis, dtype, lambda u: _running(x, name, _fold(op), u, axis).uop)


@function
@in_single()
def logcumsumexp(x: Tensor, axis: int | None = None) -> Tensor:
    """The logarithm of the running sum of exponentials along an axis, without overflow.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1000.0, 1000.0, -5.0]).logcumsumexp(0).round(1)
    Tensor([1000. , 1000.7, 1000.7], dtype=float32)
    """
    return _running(x, "logcumsumexp", _LOG_SUM_EXP, real_node(x), axis)


@function
def cummax(x: Tensor, dim: Any = None, *, axis: int | None = None) -> Tensor | ValuesIndices:
    """The largest of the elements up to and including each, along an axis, with its index; nan from the first nan on.

    Args:
        dim: the axis, by position or by name as in torch: gives `(values, indices)`, of several largest the last, to
            which their gradient goes too.
        axis: the axis: gives the values; ties share the gradient.

    Raises ShapeError for an axis that is not there, or for both of dim and axis.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 3, 2]).cummax(dim=0)
    ValuesIndices(values=Tensor([1, 3, 3], dtype=int32), indices=Tensor([0, 1, 1], dtype=int32))
    >>> Tensor([1, 3, 2]).cummax(axis=0)
    Tensor([1, 3, 3], dtype=int32)
    """
    return _running_extreme(x, "cummax", Op.MAX, dim, axis)


@function
def cummin(x: Tensor, dim: Any = None, *, axis: int | None = None) -> Tensor | ValuesIndices:
    """The smallest of the elements up to and including each, along an axis, with its index; nan from the first nan on.

    Arguments, results and errors as for `cummax`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3, 1, 2]).cummin(dim=0).values
    Tensor([3, 1, 1], dtype=int32)
    """
    return _running_extreme(x, "cummin", Op.MIN, dim, axis)


def _running_extreme(x: Tensor, name: str, op: Op, dim: Any, axis: int | None) -> Tensor | ValuesIndices:
    if dim is None:
        return _running(x, name, _fold(op), x.uop, axis)
    at = one_dim(name, dim, axis, x.ndim)
    u = x._kept()
    values = _running(x, name, _fold(op), u, at)
    if not u.shape:
        return ValuesIndices(values, x._new_plain(const(dtypes.int32, 0)))
    # The last place up to here that was the extreme when its turn came: a running maximum of places.
    hit = u.eq(values.uop)
    if u.dtype.is_float:
        hit = hit | u.ne(u)
    place = broadcast(iota(u.shape[at], at, len(u.shape)), u.shape)
    places = hit.where(place, 0)
    indices = _running(x._new_plain(places), name, _fold(Op.MAX), places, at)
    return ValuesIndices(selected(x, values, indices, at), indices)


@function
def diff(x: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The difference of each element and the one before it along an axis, `n` times over; `prepend` and `append` are
    joined to it first.

    Gives a tensor of x's shape with `n` elements fewer along the axis, and those of `prepend` and `append` more.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 4, 9]).diff()
    Tensor([3, 5], dtype=int32)
    """
    at = axis_of("diff", dim, x.ndim)
    if not x.ndim or n < 0:
        raise ShapeError(f"diff: takes one axis or more and n >= 0, not shape {x.shape} and n = {n}")
    joined = [part for part in (prepend, x, append) if part is not None]
    out = joined[0].cat(*joined[1:], dim=at) if n and len(joined) > 1 else x
    for _ in range(n):
        length = out.shape[at]
        if not length:
            break
        after, before = slice_axis(out, at, 1, length), slice_axis(out, at, 0, length - 1)
        out = after ^ before if x.uop.dtype is dtypes.bool_ else after - before
    return out


def _running(x: Tensor, name: str, fold: _Fold, u: UOp, axis: int | None) -> Tensor:
    if axis is None:
        raise ShapeError(f"{name}: say along which axis, as dim=")
    at = axis_of(name, axis, len(u.shape))
    if not u.shape or most(u.shape[at]) < 2:
        return x._new(u)
    order = [i for i in range(len(u.shape)) if i != at] + [at]
    moved = permute(u, order)
    back = sorted(range(len(order)), key=order.__getitem__)
    n = moved.shape[-1]
    if isinstance(n, UOp):  # what follows the end changes nothing before it
        moved = _filled(moved, (0, most(n) - n), fold.nothing(u.dtype))
        scanned = shrink(_scan(moved, fold), tuple([(0, m) for m in (*moved.shape[:-1], n)]))
    else:
        scanned = _scan(moved, fold)
    return x._new(permute(scanned, back))


class _Fold(NamedTuple):
    """An operation that runs along an axis: its value for nothing, for all of an axis, and for two results."""

    nothing: Callable[[DType], Number]
    along: Callable[[UOp, int], UOp]
    join: Callable[[UOp, UOp], UOp]


def _fold(op: Op) -> _Fold:
    return _Fold(partial(reduce_identity, op), lambda u, axis: reduce_node(u, op, (axis,), False), op)


def _finite(top: UOp) -> UOp:
    """0 in place of infinities: less themselves they would be nan."""
    return Op.ABS(top).eq(math.inf).where(const(top.dtype, 0), top)


def _log_sum_exp(u: UOp, axis: int) -> UOp:
    top = _finite(reduce_node(UOp(Op.DETACH, u.dtype, (u,)), Op.MAX, (axis,), True))
    total = reduce_node(Op.EXP(u - broadcast(top, u.shape)), Op.ADD, (axis,), True)
    return reshape(Op.LOG(total) + top, tuple([n for i, n in enumerate(u.shape) if i != axis]))


def _log_add_exp(a: UOp, b: UOp) -> UOp:
    top = _finite(Op.MAX(UOp(Op.DETACH, a.dtype, (a,)), UOp(Op.DETACH, b.dtype, (b,))))
    return Op.LOG(Op.EXP(a - top) + Op.EXP(b - top)) + top


_LOG_SUM_EXP = _Fold(lambda _: -math.inf, _log_sum_exp, _log_add_exp)


def _scan(u: UOp, fold: _Fold) -> UOp:
    """Running `fold` along the last axis: inside blocks of 32, then over the blocks' totals, and so on up.

    Work and memory stay at 32 times the length, where the plain triangle would need its square.
    """
    fill = fold.nothing(u.dtype)
    levels: list[tuple[UOp, int]] = []  # what runs inside the blocks of each level, and the level's length
    while True:
        n = u.shape[-1]
        rest = u.shape[:-1]
        blocks = -(-n // _BLOCK)
        if blocks == 1:
            done = _triangle(u, fold, fill)
            break
        u = _filled(u, (0, blocks * _BLOCK - n), fill)
        inside = _triangle(reshape(u, (*rest, blocks, _BLOCK)), fold, fill)
        levels.append((inside, n))
        last = tuple([(0, m) for m in (*rest, blocks)])
        u = reshape(shrink(inside, (*last, (_BLOCK - 1, _BLOCK))), (*rest, blocks))
    for inside, n in reversed(levels):
        *rest_, blocks, _ = inside.shape
        rest = tuple(rest_)
        # each block goes on from the total of the blocks before it
        whole = tuple([(0, m) for m in rest])
        before = _filled(shrink(done, (*whole, (0, blocks - 1))), (1, 0), fill)
        carried = broadcast(reshape(before, (*rest, blocks, 1)), inside.shape)
        done = reshape(fold.join(carried, inside), (*rest, blocks * _BLOCK))
        done = shrink(done, (*whole, (0, n)))
    return done


def _filled(u: UOp, border: tuple[Size, Size], fill: Number) -> UOp:
    """`u` with elements of value `fill` before and after on its last axis."""
    pairs = (*((0, 0) for _ in u.shape[:-1]), border)
    padded = pad(u, pairs)
    if not fill or padded is u:
        return padded
    inside = pad(broadcast(const(dtypes.bool_, True), u.shape), pairs)
    return inside.where(padded, fill)


def _triangle(u: UOp, fold: _Fold, fill: Number) -> UOp:
    """Running `fold` along a short last axis: each position reduces what stands at or before it."""
    n = u.shape[-1]
    shape = (*u.shape[:-1], n, n)
    row = broadcast(iota(n, 0, 2), (n, n))
    column = broadcast(iota(n, 1, 2), (n, n))
    kept = broadcast(row >= column, shape)
    spread = broadcast(reshape(u, (*u.shape[:-1], 1, n)), shape)
    chosen = kept.where(spread, fill)
    return fold.along(chosen, len(shape) - 1)
