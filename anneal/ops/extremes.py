"""The largest and the smallest of a tensor or along axes, with their positions or alone; `ValuesIndices` is both."""

from __future__ import annotations

import builtins
import math
from typing import Any, NamedTuple

from anneal.errors import PositionError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import function
from anneal.ops.checks import axes_of, axis_of, is_tensor, said, whole
from anneal.ops.elementwise import binary, choose, halved
from anneal.ops.indexing import gathered
from anneal.ops.nodes import broadcast, elementwise, iota, named, reduce_axis, reduce_node, reshape
from anneal.ops.reduce import Axes, reduced
from anneal.uop import Op, UOp, by_rule, const, dtypes

_INT32 = dtypes.int32


def _extreme(x: Tensor, name: str, op: Op, where: Any, keepdim: bool) -> Tensor:
    s = x.uop.shape
    if 0 in s and builtins.any(s[a] == 0 for a in axes_of(name, where, len(s))):
        raise PositionError(f"{name}: shape {s} has nothing to choose from along axis {where}")
    return reduced(x, name, op, x._kept(), where, keepdim)


@function
def max(
    x: Tensor, dim: int | Tensor | None = None, keepdim: bool = False, *, axis: Axes = None
) -> Tensor | ValuesIndices:
    """The largest value along an axis with its index; of all, or along `axis`, the values alone; nan if there is one.

    Args:
        dim: one axis, by position or by name as in torch: gives `(values, indices)`, of several largest the first, to
            which their gradient goes too. A tensor in its place is the other of two: `maximum`.
        keepdim: whether reduced axes stay, with size 1.
        axis: one axis or several: gives the values, as `amax` does. Ties share the gradient evenly.

    Raises ShapeError over nothing, or for both of dim and axis.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([[1, 5], [7, 3]])
    >>> x.max(dim=1)
    ValuesIndices(values=Tensor([5, 7], dtype=int32), indices=Tensor([1, 0], dtype=int32))
    >>> x.max(axis=1), x.max().item()
    (Tensor([5, 7], dtype=int32), 7)
    """
    return _extremes(x, "max", Op.MAX, dim, keepdim, axis)


@function
def min(
    x: Tensor, dim: int | Tensor | None = None, keepdim: bool = False, *, axis: Axes = None
) -> Tensor | ValuesIndices:
    """The smallest value along an axis with its index; of all, or along `axis`, the values alone; nan if there is one.

    Arguments, results and errors as for `max`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 5], [7, 3]]).min(dim=1).indices
    Tensor([0, 1], dtype=int32)
    """
    return _extremes(x, "min", Op.MIN, dim, keepdim, axis)


def _extremes(x: Tensor, name: str, op: Op, dim: Any, keepdim: bool, axis: Axes) -> Tensor | ValuesIndices:
    if is_tensor(dim):
        return _other(x, name, dim, keepdim, axis)
    if dim is None:
        return _extreme(x, name, op, axis, keepdim)
    at = one_dim(name, dim, axis, x.ndim)
    values = _extreme(x, name, op, at, keepdim)
    indices = _position(x, name, op, at, True)
    values = selected(x, values, indices, at)
    return ValuesIndices(values, x._new_plain(reshape(indices.uop, values.shape)))


def _other(x: Tensor, name: str, other: Tensor, keepdim: bool, axis: Axes) -> Tensor:
    """The larger or smaller of two: a tensor where an axis may stand."""
    if keepdim or axis is not None:
        raise ShapeError(f"{name}: an axis is an int, not {said(other)}; the {name}imum of two tensors keeps all axes")
    return halved(binary(x, f"{name}imum", Op.MAX if name == "max" else Op.MIN, other))


@function
def amax(x: Tensor, axis: Axes = None, keepdim: bool = False) -> Tensor:
    """The largest value along axes, or of all; nan if there is one. Ties share the gradient evenly.

    Raises ShapeError over nothing.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 5], [7, 3]]).amax(dim=(0, 1)).item()
    7
    """
    return _extreme(x, "amax", Op.MAX, axis, keepdim)


@function
def amin(x: Tensor, axis: Axes = None, keepdim: bool = False) -> Tensor:
    """The smallest value along axes, or of all; nan if there is one. Ties share the gradient evenly.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[3, 1], [2, 5]]).amin(axis=1)
    Tensor([1, 2], dtype=int32)
    """
    return _extreme(x, "amin", Op.MIN, axis, keepdim)


@function
def aminmax(x: Tensor, axis: Axes = None, keepdim: bool = False) -> MinMax:
    """`amin` and `amax`, as a pair `(min, max)`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 5], [7, 3]]).aminmax(dim=1)
    MinMax(min=Tensor([1, 3], dtype=int32), max=Tensor([5, 7], dtype=int32))
    """
    return MinMax(amin(x, axis, keepdim), amax(x, axis, keepdim))


@function
def nanmax(x: Tensor, axis: Axes = None, keepdim: bool = False) -> Tensor:
    """The largest element that is not nan; nan where every element is.

    >>> from anneal.tensor import Tensor
    >>> Tensor([float("nan"), 1.0, 3.0]).nanmax()
    Tensor(3., dtype=float32)
    """
    return _nan_extreme(x, "nanmax", Op.MAX, axis, keepdim)


@function
def nanmin(x: Tensor, axis: Axes = None, keepdim: bool = False) -> Tensor:
    """The smallest element that is not nan; nan where every element is.

    >>> from anneal.tensor import Tensor
    >>> Tensor([float("nan"), 1.0, 3.0]).nanmin()
    Tensor(1., dtype=float32)
    """
    return _nan_extreme(x, "nanmin", Op.MIN, axis, keepdim)


def _nan_extreme(x: Tensor, name: str, op: Op, axis: Axes, keepdim: bool) -> Tensor:
    if not x.uop.dtype.is_float:
        return _extreme(x, name, op, axis, keepdim)
    nan = x.isnan()
    best = _extreme(choose(nan, -math.inf if op is Op.MAX else math.inf, x), name, op, axis, keepdim)
    return choose(nan.all(axis, keepdim), math.nan, best)


def _position(x: Tensor, name: str, op: Op, axis: int | None, keepdim: bool) -> Tensor:
    u = x._kept()
    if axis is None:
        shape = u.shape
        u = reshape(u, (math.prod(shape),))
        at = 0
    else:
        at = axis_of(name, axis, len(u.shape))
        shape = u.shape
    if not u.shape:
        return x._new_plain(const(_INT32, 0))
    n = u.shape[at]
    if n == 0:
        raise PositionError(f"{name}: shape {shape} has nothing to choose from along axis {axis}")
    best = broadcast(reduce_axis(u, op, (at,)), u.shape)
    hit = u.eq(best)
    if u.dtype.is_float:
        hit = hit | u.ne(u)
    place = broadcast(iota(n, at, len(u.shape)), u.shape)
    none = n if isinstance(n, UOp) else const(_INT32, n)
    first = reduce_node(elementwise(Op.WHERE, (hit, place, none), u.shape), Op.MIN, (at,), True)
    first = named("argmax" if op is Op.MAX else "argmin", first, u, arguments=at)
    if axis is None:
        return x._new_plain(reshape(first, (1,) * len(shape) if keepdim else ()))
    return x._new_plain(first if keepdim else reshape(first, (*shape[:at], *shape[at + 1 :])))


@function
def argmax(x: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    """The position of the first largest value (or nan) along an axis, as int32; of the flat row without one.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 5], [7, 3]]).argmax(dim=1)
    Tensor([1, 0], dtype=int32)
    """
    return _position(x, "argmax", Op.MAX, axis, keepdim)


@function
def argmin(x: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    """The position of the first smallest value (or nan) along an axis, as int32.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[3, 1], [2, 5]]).argmin(axis=1)
    Tensor([1, 0], dtype=int32)
    """
    return _position(x, "argmin", Op.MIN, axis, keepdim)


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


def one_dim(name: str, dim: Any, axis: Any, ndim: int) -> int:
    """The axis that `dim` names, counted from 0. Raises ShapeError for several axes, for both spellings, or none."""
    if axis is not None:
        raise ShapeError(
            f"{name}: dim={dim} gives values with their indices, axis={axis} the values alone; give one of them"
        )
    if isinstance(dim, (list, tuple, range)):
        raise ShapeError(
            f"{name}: dim is one axis, whose values come with their indices, not {said(dim)}; axis={dim} gives the "
            "values along several"
        )
    return axis_of(name, whole(name, "dim is one axis, which", dim), ndim)


def selected(x: Tensor, values: Tensor, indices: Tensor, at: int) -> Tensor:
    """`values`, found in fewer steps than by reading `x` at `indices`, with the gradient that reading has."""
    if not values.requires_grad:
        return values
    same = gathered(x, at, indices.uop)
    read = reshape(same.uop, values.shape)
    return values._new(by_rule("equal", values.uop, read), same)
