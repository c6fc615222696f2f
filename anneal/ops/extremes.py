"""The largest and the smallest of a tensor or along axes, with or without positions; running results along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from anneal.errors import PositionError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import family, function
from anneal.ops.checks import Axes, axes_of, axis_in, axis_of, is_tensor, said, whole
from anneal.ops.elementwise import binary, choose, halved, real_node
from anneal.ops.indexing import gathered
from anneal.ops.joining import slice_axis
from anneal.ops.made import DTypeLike

from anneal.ops.nodes import (  # isort: skip
    INT32, Number, broadcast, detached, elementwise, expand, filled, moved, named, numbered, reduce_axis, reduce_node,
    reshape, resized, shrink,
)  # fmt: skip
from anneal.ops.reduce import folded
from anneal.uop import DType, Op, UOp, by_rule, const, dtypes, reduce_identity
from anneal.uop.sizes import most


def _extreme(name: str, op: Op, x: Tensor, axis: Axes = None, keepdim: bool = False) -> Tensor:
    s = x.shape
    axes = axes_of(axis, len(s))
    if 0 in [s[a] for a in axes]:
        raise PositionError(f"shape {s} has nothing to choose from along axis {axis}")
    return x._new(reduce_node(x._kept(), op, axes, keepdim))


def _extremes(
    name: str, op: Op, x: Tensor, dim: int | Tensor | None = None, keepdim: bool = False, *, axis: Axes = None
) -> Tensor | ValuesIndices:
    if is_tensor(dim):
        if keepdim or axis is not None:
            kept = f"the {name}imum of two tensors keeps all axes"
            raise ShapeError(f"{name}: an axis is an int, not {said(dim)}; {kept}")
        return halved(binary(op, x, dim))
    if dim is None:
        return _extreme(name, op, x, axis, keepdim)
    at = one_dim(dim, axis, x.ndim)
    values = _extreme(name, op, x, at, keepdim)
    indices = _position(name, op, x, at, True)
    values = selected(x, values, indices, at)
    return ValuesIndices(values, x._new_plain(reshape(indices.uop, values.shape)))


max, min = family(
    _extremes,
    "",
    """
    max:
    The largest value of all elements, or along an axis; nan if there is one. `max(y)` of a tensor y is
    `maximum`.

    Args:
        dim: one axis, by position or as `dim=`, as in torch: returns `(values, indices)`. Of several equal largest
            elements the first gives the index, and gets the gradient.
        keepdim: whether reduced axes stay, with size 1.
        axis: one axis or several: returns the values alone, as `amax` does. Ties share the gradient evenly.

    Raises ShapeError over nothing, or for both of dim and axis.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([[1, 5], [7, 3]])
    >>> x.max(dim=1)
    ValuesIndices(values=Tensor([5, 7], dtype=int32), indices=Tensor([1, 0], dtype=int32))
    >>> x.max(axis=1), x.max().item()
    (Tensor([5, 7], dtype=int32), 7)

    min:
    The smallest value of all elements, or along an axis; nan if there is one. `min(y)` of a tensor y is
    `minimum`.

    Arguments, results and errors as for `max`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 5], [7, 3]]).min(dim=1).indices
    Tensor([0, 1], dtype=int32)
    """,
    {
        "max": Op.MAX,
        "min": Op.MIN,
    },
)


amax, amin = family(
    _extreme,
    "",
    """
    amax array_api=max neutral=lowest:
    The largest value along axes, or of all; nan if there is one. Ties share the gradient evenly.

    Raises ShapeError over nothing.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 5], [7, 3]]).amax(dim=(0, 1)).item()
    7

    amin array_api=min neutral=highest:
    The smallest value along axes, or of all; nan if there is one. Ties share the gradient evenly.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[3, 1], [2, 5]]).amin(axis=1)
    Tensor([1, 2], dtype=int32)
    """,
    {
        "amax": Op.MAX,
        "amin": Op.MIN,
    },
)


@function
def aminmax(x: Tensor, axis: Axes = None, keepdim: bool = False) -> MinMax:
    """`amin` and `amax`, as a pair `(min, max)`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 5], [7, 3]]).aminmax(dim=1)
    MinMax(min=Tensor([1, 3], dtype=int32), max=Tensor([5, 7], dtype=int32))
    """
    return MinMax(amin(x, axis, keepdim), amax(x, axis, keepdim))


def _nan_extreme(op: Op, least: float, x: Tensor, axis: Axes = None, keepdim: bool = False) -> Tensor:
    if not x.uop.dtype.is_float:
        return _extreme("", op, x, axis, keepdim)
    nan = x.isnan()
    best = _extreme("", op, choose(nan, least, x), axis, keepdim)
    return choose(nan.all(axis, keepdim), math.nan, best)


nanmax, nanmin = family(
    _nan_extreme,
    "",
    """
    nanmax:
    The largest element that is not nan; nan where every element is.

    >>> from anneal.tensor import Tensor
    >>> Tensor([float("nan"), 1.0, 3.0]).nanmax()
    Tensor(3., dtype=float32)

    nanmin:
    The smallest element that is not nan; nan where every element is.

    >>> from anneal.tensor import Tensor
    >>> Tensor([float("nan"), 1.0, 3.0]).nanmin()
    Tensor(1., dtype=float32)
    """,
    {
        "nanmax": (Op.MAX, -math.inf),
        "nanmin": (Op.MIN, math.inf),
    },
)


def _position(name: str, op: Op, x: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    u = x._kept()
    shape = u.shape
    if axis is None:
        u = reshape(u, (math.prod(shape),))
    at = axis_of(axis or 0, len(u.shape))
    if not u.shape:
        return x._new_plain(const(INT32, 0))
    n = u.shape[at]
    if n == 0:
        raise PositionError(f"shape {shape} has nothing to choose from along axis {axis}")
    best = expand(reduce_axis(u, op, (at,)), u.shape)
    hit = u.eq(best) | u.ne(u) if u.dtype.is_float else u.eq(best)
    none = n if isinstance(n, UOp) else const(INT32, n)
    first = reduce_node(elementwise(Op.WHERE, (hit, numbered(u.shape, at), none), u.shape), Op.MIN, (at,), True)
    first = named("argmax" if op is Op.MAX else "argmin", first, u, arguments=at)
    kept, left = ((1,) * len(shape), ()) if axis is None else (first.shape, resized(shape, at))
    return x._new_plain(reshape(first, kept if keepdim else left))


argmax, argmin = family(
    _position,
    "array_api",
    """
    argmax neutral=lowest:
    The position of the first largest value (or nan) along an axis, as int32; of the flat row without one.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 5], [7, 3]]).argmax(dim=1)
    Tensor([1, 0], dtype=int32)

    argmin neutral=highest:
    The position of the first smallest value (or nan) along an axis, as int32.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[3, 1], [2, 5]]).argmin(axis=1)
    Tensor([1, 0], dtype=int32)
    """,
    {
        "argmax": Op.MAX,
        "argmin": Op.MIN,
    },
)


# -- values with their indices ----------------------------------------------------------------------------------------


class ValuesIndices(NamedTuple):
    """The values of an axis and their indices, int32, as `max(dim=...)`, `sort`, `topk` and others return them.

    A tuple of two, so `values, indices = x.max(dim=1)` works, and a tree for jit and the transforms.

    >>> from anneal.tensor import Tensor
    >>> pair = Tensor([[1, 5], [7, 3]]).max(dim=1)
    >>> pair.values, pair.indices
    (Tensor([5, 7], dtype=int32), Tensor([1, 0], dtype=int32))
    """

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The result of `aminmax`: `min`, the smallest value, and `max`, the largest.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3, 1, 2]).aminmax()
    MinMax(min=Tensor(1, dtype=int32), max=Tensor(3, dtype=int32))
    """

    min: Tensor
    max: Tensor


def one_dim(dim: Any, axis: Any, ndim: int) -> int:
    """The axis that `dim` names, counted from 0. Raises ShapeError for several axes, for both spellings, or none."""
    if axis is not None:
        raise ShapeError(f"dim={dim} gives values with their indices, axis={axis} the values alone; give one of them")
    if isinstance(dim, (list, tuple, range)):
        raise ShapeError(
            f"dim is one axis, whose values come with their indices, not {said(dim)}; axis={dim} gives the "
            "values along several"
        )
    return axis_of(whole("dim is one axis, which", dim), ndim)


def selected(x: Tensor, values: Tensor, indices: Tensor, at: int) -> Tensor:
    """`values`, found in fewer steps than by reading `x` at `indices`, with the gradient that reading has."""
    if not values.requires_grad:
        return values
    same = gathered(x, at, indices.uop)
    return values._new(by_rule("equal", values.uop, reshape(same.uop, values.shape)), same)


# -- running results along an axis: sums, products, extremes, differences ---------------------------------------------


_BLOCK = 32


def _total(name: str, op: Op, x: Tensor, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    return folded(x, name, op, axis, dtype, lambda u: _running(x, _fold(op), u, axis).uop)


cumsum, cumprod = family(
    _total,
    "in_place autocast=float32 single",
    """
    cumsum neutral=0:
    The sum of the elements up to and including each, along an axis, in x's shape; of integers in the dtypes
    of `sum`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).cumsum(0)
    Tensor([1, 3, 6], dtype=int32)

    cumprod neutral=1:
    The product of the elements up to and including each, along an axis, in x's shape; of integers in the
    dtypes of `sum`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2, 3, 4]).cumprod(0)
    Tensor([ 2,  6, 24], dtype=int32)
    """,
    {
        "cumsum": Op.ADD,
        "cumprod": Op.MUL,
    },
)


@function("single")
def logcumsumexp(x: Tensor, axis: int | None = None) -> Tensor:
    """The logarithm of the running sum of exponentials along an axis, without overflow. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1000.0, 1000.0, -5.0]).logcumsumexp(0).round(1)
    Tensor([1000. , 1000.7, 1000.7], dtype=float32)
    """
    return _running(x, _LOG_SUM_EXP, real_node(x), axis)


def _running_extreme(
    name: str, op: Op, x: Tensor, dim: Any = None, *, axis: int | None = None
) -> Tensor | ValuesIndices:
    if dim is None:
        return _running(x, _fold(op), x.uop, axis)
    at = one_dim(dim, axis, x.ndim)
    u = x._kept()
    values = _running(x, _fold(op), u, at)
    if not u.shape:
        return ValuesIndices(values, x._new_plain(const(INT32, 0)))
    # The last place up to here that was the extreme when its turn came: a running maximum of places.
    hit = u.eq(values.uop)
    hit = hit | u.ne(u) if u.dtype.is_float else hit
    places = hit.where(numbered(u.shape, at), 0)
    indices = _running(x._new_plain(places), _fold(Op.MAX), places, at)
    return ValuesIndices(selected(x, values, indices, at), indices)


cummax, cummin = family(
    _running_extreme,
    "",
    """
    cummax:
    The largest of the elements up to and including each, along an axis, with its index, in x's shape; nan
    from the first nan on.

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

    cummin:
    The smallest of the elements up to and including each, along an axis, with its index, in x's shape; nan
    from the first nan on.

    Arguments, results and errors as for `cummax`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3, 1, 2]).cummin(dim=0).values
    Tensor([3, 1, 1], dtype=int32)
    """,
    {
        "cummax": Op.MAX,
        "cummin": Op.MIN,
    },
)


@function
def diff(x: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The difference of each element and the one before it along an axis, `n` times over; `prepend` and `append` are
    joined to it first.

    Gives a tensor of x's shape with `n` elements fewer along the axis, and those of `prepend` and `append` more.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 4, 9]).diff()
    Tensor([3, 5], dtype=int32)
    """
    at = axis_in(dim, x)
    if not x.ndim or n < 0:
        raise ShapeError(f"diff: takes one axis or more and n >= 0, not shape {x.shape} and n = {n}")
    joined = [part for part in (prepend, x, append) if part is not None]
    out = joined[0].cat(*joined[1:], dim=at) if n and len(joined) > 1 else x
    for _ in range(n):
        length = out.shape[at]
        if not length:
            break
        after, before = slice_axis(out, at, 1, length), slice_axis(out, at, 0, length - 1)
        out = after ^ before if x.dtype is dtypes.bool_ else after - before
    return out.clone()


def _running(x: Tensor, fold: _Fold, u: UOp, axis: int | None) -> Tensor:
    if axis is None:
        raise ShapeError("say along which axis, as dim=")
    at = axis_of(axis, len(u.shape))
    return x._new(running(u, at, fold) if u.shape and most(u.shape[at]) > 1 else u)


class _Fold(NamedTuple):
    """An operation that runs along an axis: its value for nothing, for all of an axis, and for two results."""

    nothing: Callable[[DType], Number]
    along: Callable[[UOp, int], UOp]
    join: Callable[[UOp, UOp], UOp]


def _fold(op: Op) -> _Fold:
    return _Fold(partial(reduce_identity, op), lambda u, axis: reduce_node(u, op, (axis,), False), op)


_SUM = _fold(Op.ADD)


def running(u: UOp, at: int, fold: _Fold = _SUM) -> UOp:
    """Running sums, or running `fold`s, of a node along an axis.

    Args:
        u: of two elements or more along the axis. at: the axis, from 0. fold: an operation that runs along it.

    >>> from anneal.tensor import Tensor
    >>> running(Tensor([1.0, 2.0, 4.0]).uop, 0).shape
    (3,)
    """
    last = moved(u, at, -1)
    n, rows = last.shape[-1], u.shape
    # what follows the end changes nothing before it
    scanned = _scan(filled(last, ((0, most(n) - n),), fold.nothing(u.dtype)), fold)
    out = moved(shrink(scanned, ((0, n),)), -1, at)
    if not isinstance(fold.join, Op) or not all(isinstance(m, int) and m for m in rows):
        return out
    name = {Op.ADD: "sums", Op.MUL: "products"}.get(fold.join, "running")
    return by_rule(name, out, u, arguments=(fold.join, n, math.prod(rows[at + 1 :])))


def _finite(top: UOp) -> UOp:
    """0 in place of infinities: less themselves they would be nan."""
    return Op.ABS(top).eq(math.inf).where(const(top.dtype, 0), top)


def _log_sum_exp(u: UOp, axis: int) -> UOp:
    top = _finite(reduce_node(detached(u), Op.MAX, (axis,), True))
    total = reduce_node(Op.EXP(u - broadcast(top, u.shape)), Op.ADD, (axis,), True)
    return reshape(Op.LOG(total) + top, resized(u.shape, axis))


def _log_add_exp(a: UOp, b: UOp) -> UOp:
    top = _finite(Op.MAX(detached(a), detached(b)))
    return Op.LOG(Op.EXP(a - top) + Op.EXP(b - top)) + top


_LOG_SUM_EXP = _Fold(lambda _: -math.inf, _log_sum_exp, _log_add_exp)


def _scan(u: UOp, fold: _Fold) -> UOp:
    """Running `fold` along the last axis: inside blocks of 32, then over the blocks' totals, and so on up.

    Work and memory stay at 32 times the length, where the plain triangle would need its square. Blocks are of 8 where
    each of these terms is an exponential.
    """
    block = _BLOCK if isinstance(fold.join, Op) else 8
    fill = fold.nothing(u.dtype)
    *rest, n = u.shape
    blocks = -(-n // block)
    if blocks == 1:
        return _triangle(u, fold, fill)
    u = filled(u, ((0, blocks * block - n),), fill)
    inside = _triangle(reshape(u, (*rest, blocks, block)), fold, fill)
    last = shrink(inside, ((block - 1, block),))
    done = _scan(reshape(last, (*rest, blocks)), fold)
    # each block goes on from the total of the blocks before it
    before = filled(shrink(done, ((0, blocks - 1),)), ((1, 0),), fill)
    carried = broadcast(reshape(before, (*rest, blocks, 1)), inside.shape)
    return shrink(reshape(fold.join(carried, inside), (*rest, blocks * block)), ((0, n),))


def _triangle(u: UOp, fold: _Fold, fill: Number) -> UOp:
    """Running `fold` along a short last axis: each position reduces what stands at or before it."""
    *rest, n = u.shape
    shape = (*rest, n, n)
    below = numbered((n, n), 0) >= numbered((n, n), 1)
    spread = broadcast(reshape(u, (*rest, 1, n)), shape)
    return fold.along(broadcast(below, shape).where(spread, fill), len(shape) - 1)
