"""Ops whose result's size depends on values: positions of true elements, chosen elements, distinct elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from anneal.backend import Array
from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import function
from anneal.ops.checks import axis_in, broadcast_shapes
from anneal.ops.elementwise import choose
from anneal.ops.indexing import gathered, values_now
from anneal.ops.logic import truth
from anneal.ops.nodes import INT32, Number, iota
from anneal.uop import dtypes


@function
def nonzero(
    x: Tensor, *, as_tuple: bool = False, size: int | None = None, fill_value: int = -1
) -> Tensor | tuple[Tensor, ...]:
    """The positions of elements that are not 0, in order, as int32: (count, axes), or a vector for each axis.

    Outside jit the values are computed now. With `size` the result has so many rows whatever the values are: the first
    ones, and rows of `fill_value` after the last. Raises ShapeError inside jit without `size`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 0], [2, 3]]).nonzero().tolist()
    [[0, 0], [1, 0], [1, 1]]
    >>> Tensor([0.0, 5.0]).nonzero(size=3).tolist()
    [[1], [-1], [-1]]
    """
    if size is None:
        values = values_now(x, "give size=, the most that there can be")
        if as_tuple and x.ndim:
            return tuple([_whole(x, a) for a in np.nonzero(values)])
        rows = _whole(x, np.argwhere(values))
    else:
        rows = _first_positions(x, size, fill_value)
    if not as_tuple:
        return rows
    if not x.ndim:  # as torch: one axis
        return (_whole(x, np.zeros(rows.shape[0])),)
    return rows.unbind(1)


# Outside jit the values are looked at, so the result has its size at once. Inside jit shapes are static: `size=` says
# how many there are at most, and `fill_value` stands in the places that are left.
def _whole(x: Tensor, array: Array) -> Tensor:
    """An array as an int32 tensor on the device of `x`."""
    return x._made(array.astype(np.int32), device=x.device)


def _first_positions(x: Tensor, size: int, fill_value: int) -> Tensor:
    if size < 0:
        raise ShapeError(f"nonzero: size must not be negative, not {size}")
    places, count = _true_first(truth(x).reshape(-1), size)
    inside = x._new_plain(iota(size)) < count
    parts: list[Tensor] = []
    for n in reversed([1] * x.ndim if 0 in x.shape else x.shape):
        parts.insert(0, choose(inside, places % n, fill_value))
        places = places // n
    if not parts:
        return inside.cast(INT32).reshape(size, 1)[:, :0]
    return parts[0].stack(*parts[1:], dim=1)


def _true_first(mask: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """`size` positions of a row of truths, at first those of what is true, in order; and how many are true."""
    n = mask.shape[0]
    order = mask.argsort(descending=True)
    places = order[:size] if size <= n else order.pad((0, size - n))
    return places, mask.sum()


@function
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The positions of elements that are not 0, as `nonzero(size=size)` gives them.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0, 5, 6]).nonzero_static(size=3)
    Tensor([[ 1],
            [ 2],
            [-1]], dtype=int32)
    """
    return x.nonzero(size=size, fill_value=fill_value)


@function
def argwhere(x: Tensor, *, size: int | None = None, fill_value: int = -1) -> Tensor:
    """`nonzero`: the positions of elements that are not 0, (count, axes), int32.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0, 5, 6]).argwhere()
    Tensor([[1],
            [2]], dtype=int32)
    """
    return x.nonzero(size=size, fill_value=fill_value)


# -- elements ---------------------------------------------------------------------------------------------------------


@function
def masked_select(x: Tensor, mask: Any, *, size: int | None = None, fill_value: Number = 0) -> Tensor:
    """The elements where the mask is true, as a vector; both broadcast. Gradients go to the elements.

    Outside jit the mask is computed now. With `size` there are so many elements whatever the mask is, and `fill_value`
    after the last. Raises DTypeError for a mask that is not bool, ShapeError inside jit without `size`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True])).tolist()
    [1, 3]
    """
    m = x._lift(mask)
    if m.dtype is not dtypes.bool_:
        raise DTypeError(f"masked_select: a mask is bool, not {m.dtype.name}; compare first")
    shape = broadcast_shapes(x.shape, m.shape)
    row, chosen = x.expand(shape).reshape(-1), m.expand(shape).reshape(-1)
    if size is None:
        known = values_now(chosen, "give size=, the most that there can be, or use where or masked_fill")
        return row[np.flatnonzero(known).astype(np.int32)]
    places, count = _true_first(chosen, size)
    picked = gathered(row, 0, places.uop)
    return choose(x._new_plain(iota(size)) < count, picked, fill_value).cast(x.dtype)


# -- distinct elements ------------------------------------------------------------------------------------------------


# Distinct elements, the place among them of each element, and how often each occurs.
_Distinct = tuple[Tensor, Tensor, Tensor]


@function
def unique(
    x: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
    *,
    size: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The distinct elements in rising order (or slices of the axis `dim`), computed now; nan is distinct from nan.

    Args:
        sorted: they are sorted in any case.
        return_inverse: also the place of each element among the distinct ones, int32, in this tensor's shape.
        return_counts: also how often each occurs, int32.
        dim: an axis, whose slices are compared.
        size: the number of elements, whatever the values are: the first ones, then the last of all again, with a count
            of 0; not with `dim`.

    Raises ShapeError inside jit without `size`.

    >>> from anneal.tensor import Tensor
    >>> values, counts = Tensor([3, 1, 3]).unique(return_counts=True)
    >>> values.tolist(), counts.tolist()
    ([1, 3], [1, 2])
    """
    if size is not None:
        _flat_alone(dim, size)
        order = x.reshape(-1).argsort()
        values, inverse, counts = _runs(x.reshape(-1)[order], size)
        found = values, inverse.scatter(0, order, inverse), counts
    else:
        at = None if dim is None else axis_in(dim, x)
        apart = np.unique(_comparable(x), return_inverse=True, return_counts=True, axis=at, equal_nan=False)
        found = _made(x, *apart)
    return _asked(x, dim, found, return_inverse, return_counts)


@function
def unique_consecutive(
    x: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
    *,
    size: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The first of each run of equal elements (or slices of the axis `dim`), computed now.

    Arguments, results and errors as for `unique`.

    Args:
        return_inverse: whether to return the position of each element in the result.
        return_counts: whether to return the number of times that each element occurs.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 1, 2, 1]).unique_consecutive().tolist()
    [1, 2, 1]
    """
    if size is not None:
        _flat_alone(dim, size)
        return _asked(x, dim, _runs(x.reshape(-1), size), return_inverse, return_counts)
    values = _comparable(x)
    at = None if dim is None else axis_in(dim, x)
    rows = values.reshape(-1) if at is None else np.moveaxis(values, at, 0)
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]).any(axis=tuple(range(1, rows.ndim)))
    inverse = np.cumsum(new) - 1
    chosen = values.reshape(-1)[new] if at is None else np.compress(new, values, at)
    counts = np.bincount(inverse, minlength=int(new.sum()))
    return _asked(x, dim, _made(x, chosen, inverse, counts), return_inverse, return_counts)


def _comparable(x: Tensor) -> Array:
    values = values_now(x, "give size=, the most that there can be; bincount counts small integers")
    return values.astype(np.float32) if x.dtype.is_narrow else values


def _made(x: Tensor, values: Array, inverse: Array, counts: Array) -> _Distinct:
    made = x._made(np.ascontiguousarray(values), device=x.device).cast(x.dtype)
    return made, _whole(x, inverse.reshape(-1)), _whole(x, counts.reshape(-1))


def _flat_alone(dim: int | None, size: int) -> None:
    if dim is not None:
        raise ShapeError(f"size= is for all elements; with dim={dim} the result is computed now")
    if size < 1:
        raise ShapeError(f"size must be at least 1, not {size}")


def _runs(row: Tensor, size: int) -> _Distinct:
    """Runs of equal elements of a row, as many as `size`; the last element stands where there are fewer."""
    row = row.detach()
    n = row.shape[0]
    if not n:
        raise ShapeError("unique: size= needs an element")
    new = (row[1:].ne(row[:-1])).pad((1, 0), value=True)
    inverse = new.cast(INT32).cumsum(0) - 1
    places, count = _true_first(new, size)
    at = choose(row._new_plain(iota(size)) < count, places, n - 1)
    return gathered(row, 0, at.uop), inverse, inverse.bincount(None, size)


def _asked(
    x: Tensor, dim: int | None, found: _Distinct, return_inverse: bool, return_counts: bool
) -> Tensor | tuple[Tensor, ...]:
    values, inverse, counts = found
    inverse = inverse.reshape(x.shape) if dim is None else inverse
    out = [values, *[inverse] * return_inverse, *[counts] * return_counts]
    return out[0] if len(out) == 1 else tuple(out)
