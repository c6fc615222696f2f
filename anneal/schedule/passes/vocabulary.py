"""Nodes of the tensor graph that passes make: a value in another shape, repeated, summed, kept in memory."""

from __future__ import annotations

from anneal.uop import Ints, Op, UOp, dtypes


def shaped(u: UOp, *shape: int) -> UOp:
    return u if u.shape == shape else u.then(Op.RESHAPE, shape)


def expanded(u: UOp, shape: Ints) -> UOp:
    return u if u.shape == shape else u.then(Op.EXPAND, shape)


def repeated(u: UOp, ones: Ints, shape: Ints) -> UOp:
    """`u` in the shape `ones`, repeated to `shape`."""
    return expanded(shaped(u, *ones), shape)


def everywhere(scalar: UOp, shape: Ints) -> UOp:
    """The rank-0 value `scalar` at every index of `shape`."""
    return repeated(scalar, (1,) * len(shape), shape)


def spread(u: UOp, shape: Ints, axis: int) -> UOp:
    """`u`, which lacks `axis`, repeated along it."""
    return repeated(u, (*shape[:axis], 1, *shape[axis + 1 :]), shape)


def numbers(count: int) -> UOp:
    """The numbers from 0 up to `count`."""
    return UOp(Op.IOTA, dtypes.int32, (), (count,))


def along(shape: Ints, axis: int) -> UOp:
    """The coordinate along `axis` of every place of `shape`."""
    return repeated(numbers(shape[axis]), tuple([n if i == axis else 1 for i, n in enumerate(shape)]), shape)


def summed(u: UOp, axis: int) -> UOp:
    """The sum over `axis`, which is gone."""
    return shaped(u.then(Op.REDUCE_AXIS, (Op.ADD, (axis,))), *[n for i, n in enumerate(u.shape) if i != axis])


def taken(u: UOp, places: UOp) -> UOp:
    """The elements, or rows, of `u` at `places`."""
    return UOp(Op.GATHER, u.dtype, (u, places), 0)


def kept(u: UOp) -> UOp:
    return u.then(Op.CONTIGUOUS)
