"""Shapes and positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.array_api._dtypes import result_type, standards
from anneal.errors import ShapeError
from anneal.ops import axis_of, broadcast_shapes as _broadcast_shapes
from anneal.tensor import Tensor, broadcast_tensors

__all__ = [
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip", "isin", "matmul",
    "matrix_transpose", "moveaxis", "nonzero", "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "take",
    "take_along_axis", "tensordot", "tile", "unique_all", "unique_counts", "unique_inverse", "unique_values", "unstack",
    "vecdot",
]  # fmt: skip


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The arrays in one shape."""
    return list(broadcast_tensors(*arrays))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which arrays of these shapes meet."""
    return tuple(_broadcast_shapes("broadcast_shapes", *shapes))


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


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts of an axis, without it."""
    return tuple(x.unbind(axis))


def expand_dims(x: Tensor, /, axis: Any = 0) -> Tensor:
    """x with new axes of size 1 at these places of the result."""
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(axes)
    places = sorted([axis_of("expand_dims", a, ndim) for a in axes])
    if len(set(places)) < len(places):
        raise ShapeError(f"expand_dims: an axis is named twice in {axis}")
    for at in places:
        x = x.unsqueeze(at)
    return x


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """x without these axes, whose size is 1. Raises ShapeError for another size."""
    axes = [axis_of("squeeze", a, x.ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    for a in axes:
        if x.shape[a] != 1:
            raise ShapeError(f"squeeze: axis {a} of shape {x.shape} has {x.shape[a]} elements, not 1")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in axes])


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """x with these axes reversed, all of them if none is named."""
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return x.flip(axes) if axes else x


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """x moved along axes, what leaves at one end entering at the other; as one flat row without an axis."""
    return x.roll(shift, axis)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """x with axes moved; the others keep their order."""
    return x.movedim(source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """x with its axes in this order."""
    return x.permute(axes)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements, in their order, in another shape; one size may be -1."""
    return x.reshape(shape)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element `repeats` times in a row, along an axis or of the flat array. An array of counts has one for each
    element of the axis; its values are read at once.

    >>> repeat(Tensor([1, 2]), Tensor([1, 2]))
    Tensor([1, 2, 2], dtype=int32)
    """
    if axis is None:
        x, axis = x.reshape(-1), 0
    if not isinstance(repeats, Tensor):
        return x.repeat_interleave(repeats, axis)
    at = axis_of("repeat", axis, x.ndim)
    counts = repeats.tolist() if repeats.ndim else [repeats.item()]
    counts = counts * x.shape[at] if len(counts) == 1 else counts
    if len(counts) != x.shape[at]:
        raise ShapeError(f"repeat: {len(counts)} counts for axis {axis} of shape {x.shape}")
    return x.index_select(at, Tensor([i for i, n in enumerate(counts) for _ in range(n)], x.device, "int32"))


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """Copies of x beside each other along its axes; missing counts are 1, further ones are of new axes in front."""
    return x.tile(tuple(repetitions))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The positions `indices` of an axis, which may be left out for a vector."""
    if axis is None and x.ndim != 1:
        raise ShapeError(f"take: axis is needed for shape {x.shape}")
    return x.index_select(-1 if axis is None else axis, indices)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements of x along an axis at `indices`, which has as many axes and broadcasts."""
    return x.take_along_dim(indices, axis)


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """A test of each element of x1 for being among those of x2, as bool."""
    x = x1 if isinstance(x1, Tensor) else x2._lift("isin", x1)
    found = x.isin(x2)
    return ~found if invert else found


# -- products ---------------------------------------------------------------------------------------------------------


@standards
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product."""
    return x1.matmul(x2)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.mT


@standards
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Products summed over the last `axes` of x1 and the first of x2, or over two lists of axes in pairs."""
    return x1.tensordot(x2, axes)


@standards
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The inner products of vectors along an axis, counted from the end, which has one size in both. One of integers
    that their dtype does not hold wraps around and warns. Raises ShapeError for two sizes.
    """
    if -min(x1.ndim, x2.ndim) <= axis < 0 and x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(f"vecdot: axis {axis} of shapes {x1.shape} and {x2.shape} must have one size")
    made, kind = x1.vecdot(x2, axis), result_type(x1, x2)
    return made if kind.bits == 32 else made.cast(kind)


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
    return tuple([_places(a, x) for a in np.nonzero(x.numpy())])


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different values, ascending; where each was first, which of them each element is, and how often each occurs,
    int32. Every nan is another value. Values are read at once.

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
    """The different values, ascending, and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different values, ascending, and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The different values, ascending."""
    return unique_all(x).values
