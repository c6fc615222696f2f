"""The standard's functions along axes, of shapes and positions, and of values, for which there is no op of the same
name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal import ops
from anneal.array_api._derived import of_two, widened
from anneal.array_api._dtypes import standards
from anneal.errors import DTypeError, ShapeError
from anneal.ops import axis_of, broadcast_shapes as _broadcast_shapes
from anneal.tensor import Tensor, broadcast_tensors, dtypes


def _floored(x: Tensor, y: Any) -> Tensor:
    """The floor of a quotient, by the standard's table of infinities: inf // 2 is inf, 1 // -inf is -0.0."""
    q = ops.floor_divide(x, y)
    if not q.dtype.is_float:
        return q
    far = ops.isinf(x)
    if isinstance(y, Tensor) or math.isinf(y):
        far = far | ops.isinf(x._lift(y, "floor_divide"))
    return far.where(ops.div(x, y), q)


def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """The largest integer that is not above x1 / x2; of infinities x1 / x2, where `x1 // x2` is Python's."""
    floored: Tensor = of_two(_floored, "floor_divide")(x1, x2)
    return floored


def imag(x: Tensor, /) -> Tensor:
    """The imaginary part: of real numbers, 0."""
    return ops.zeros_like(x)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """The elements clamped to [min, max], in the dtype of x; either may be left out, or be an array that broadcasts.

    >>> clip(Tensor([1, 5, 9]), 2, 6)
    Tensor([2, 5, 6], dtype=int32)
    """
    for bound in (min, max):
        if isinstance(bound, Tensor) and bound.dtype is not x.dtype and bound.dtype.is_float and not x.dtype.is_float:
            raise DTypeError(f"clip: bounds of {bound.dtype.name} for {x.dtype.name}; use astype")
    if min is None and max is None:
        return x
    return x.clamp(min, max).cast(x.dtype) if x.dtype is not dtypes.bool_ else x


# -- reductions and orders --------------------------------------------------------------------------------------------
# Sums and their like along axes, searches, orders.


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The number of elements that differ from 0, int32: of the whole array, or along `axis`; `keepdims` keeps it with
    size 1.
    """
    return x.ne(0).cast(dtypes.int32).sum(axis, keepdims)


def _one_axis(name: str, x: Tensor, axis: int | None) -> int:
    if axis is None and x.ndim != 1:
        raise ShapeError(f"{name}: axis is needed for shape {x.shape}")
    return axis_of(-1 if axis is None else axis, x.ndim, name)


def _cumulative(
    name: str,
    op: Any,
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
) -> Tensor:
    at = _one_axis(name, x, axis)
    kind = widened(x, dtype)
    running: Tensor = op(x.cast(kind), at, include_initial=include_initial)
    return running.cast(kind)


cumulative_sum, cumulative_prod = map(
    standards,
    ops.rows_of(
        _cumulative,
        """
    cumulative_sum:
    The sums of the elements so far, after a 0 if `include_initial`. Dtypes as those of `sum`.

    cumulative_prod:
    The products of the elements so far, after a 1 if `include_initial`. Dtypes as those of `sum`.
    """,
        {
            "cumulative_sum": ops.cumulative_sum,
            "cumulative_prod": ops.cumulative_prod,
        },
    ),
)


@standards
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The difference of each element and the one before it, n times, after `prepend` and `append` are joined.

    >>> diff(Tensor([1, 4, 9]))
    Tensor([3, 5], dtype=int32)
    """
    return x.diff(n, axis, prepend, append)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition holds, x2 elsewhere. One of both may be a number.

    >>> where(Tensor([True, False]), Tensor([1, 2]), 0)
    Tensor([1, 0], dtype=int32)
    """
    return condition.where(x1, x2)


# -- orders -----------------------------------------------------------------------------------------------------------


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The places of the elements in ascending order: int32. Equal ones keep their order, whatever `stable` says."""
    return x.argsort(axis, descending)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in ascending order along an axis."""
    return x.sort(axis, descending)[0]


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """The insertion points, int32 in x2's shape, that keep the ascending vector x1 in order: before equal elements, or
    after them by side="right". `sorter` has the indices that sort x1.

    >>> searchsorted(Tensor([1, 2, 2, 3]), Tensor([2, 9]), side="right")
    Tensor([3, 4], dtype=int32)
    """
    if side not in ("left", "right"):
        raise ShapeError(f'searchsorted: side is "left" or "right", not {side!r}')
    return x1.searchsorted(x2, side=side, sorter=sorter)


# -- shapes and positions ---------------------------------------------------------------------------------------------


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The arrays in one shape."""
    return list(broadcast_tensors(*arrays))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which arrays of these shapes meet."""
    return tuple(_broadcast_shapes(*shapes, name="broadcast_shapes"))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """x in a shape that it broadcasts to."""
    return x.broadcast_to(shape)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Arrays one after the other along an axis; flat ones if it is None.

    >>> concat([Tensor([1]), Tensor([2, 3])])
    Tensor([1, 2, 3], dtype=int32)
    """
    parts = [x.reshape(-1) for x in arrays] if axis is None else list(arrays)
    return Tensor.cat(parts, dim=axis or 0)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis."""
    return Tensor.stack(list(arrays), dim=axis)


def expand_dims(x: Tensor, /, axis: Any = 0) -> Tensor:
    """x with new axes of size 1 at these places of the result."""
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(axes)
    places = sorted([axis_of(a, ndim, "expand_dims") for a in axes])
    if len(set(places)) < len(places):
        raise ShapeError(f"expand_dims: an axis is named twice in {axis}")
    for at in places:
        x = x.unsqueeze(at)
    return x


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """x without these axes, whose size is 1. Raises ShapeError for another size. An array of shape () has one axis of
    size 1 here, as in NumPy."""
    axes = [axis_of(a, x.ndim, "squeeze") for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    for a in axes:
        if x.ndim and x.shape[a] != 1:
            raise ShapeError(f"squeeze: axis {a} of shape {x.shape} has {x.shape[a]} elements, not 1")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in axes])


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """x with these axes reversed, all of them if none is named."""
    return x.flip(axis=axis)


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """x moved along axes; elements that leave at one end enter at the other. Without an axis x is moved as one flat
    row.
    """
    return x.roll(shift, axis)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """x with its axes in this order."""
    return x.permute(axes)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements, in their order, in another shape; one size may be -1."""
    return x.reshape(shape)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element `repeats` times, along an axis or of the flat array. An array of counts has one for each
    element of the axis; its values are read at once.

    >>> repeat(Tensor([1, 2]), Tensor([1, 2]))
    Tensor([1, 2, 2], dtype=int32)
    """
    if axis is None or not x.ndim:
        x, axis = x.reshape(-1), axis_of(0 if axis is None else axis, min(x.ndim, 1), "repeat")
    if isinstance(repeats, Tensor) and repeats.numel() not in (1, x.shape[axis_of(axis, x.ndim, "repeat")]):
        raise ShapeError(f"repeat: {repeats.numel()} counts for axis {axis} of shape {x.shape}")
    return x.repeat_interleave(repeats, axis)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """Copies of x beside each other along its axes; missing counts are 1, further ones are of new axes in front."""
    return x.tile(tuple(repetitions))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The elements at the positions `indices` of an axis, which may be left out for a vector."""
    if axis is None and x.ndim != 1:
        raise ShapeError(f"take: axis is needed for shape {x.shape}")
    return x.index_select(-1 if axis is None else axis, indices)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements of x along an axis at `indices`, which has as many axes and broadcasts."""
    return x.take_along_dim(indices, axis)


# -- functions whose result's size depends on values ------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """The result of `unique_all`: `values`, the `indices` of their first occurrences, `inverse_indices` in the array's
    shape, and `counts`; indices are int32.
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`: the distinct `values`, and their `counts`, int32."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`: the distinct `values`, and `inverse_indices`, int32, with values[inverse_indices]
    equal to the array.
    """

    values: Tensor
    inverse_indices: Tensor


def _places(a: Any, x: Tensor) -> Tensor:
    return Tensor(np.asarray(a, np.int32), x.device)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The places of the elements that differ from 0, an int32 vector for each axis. Values are read at once.

    >>> nonzero(Tensor([0, 5, 7]))
    (Tensor([1, 2], dtype=int32),)
    """
    if not x.ndim:
        raise ShapeError("nonzero: an array of shape () has no axis")
    return x.nonzero(as_tuple=True)


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct values, ascending; the index of the first occurrence of each, the index of each element's value, and
    how often each occurs, int32. Every nan is a value of its own. Values are read at once.

    >>> unique_all(Tensor([3, 1, 3])).values
    Tensor([1, 3], dtype=int32)
    """
    values, first, inverse, counts = np.unique(
        x.numpy(), return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return UniqueAll(
        Tensor(values, x.device), _places(first, x), _places(inverse, x).reshape(x.shape), _places(counts, x)
    )


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct values, ascending, and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct values, ascending, and the index of each element's value among them."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct values, ascending."""
    return unique_all(x).values
