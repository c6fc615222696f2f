"""Sums and their like along axes, searches, orders."""

from __future__ import annotations

from typing import Any

from anneal.array_api._dtypes import standards
from anneal.errors import ShapeError
from anneal.ops import as_dtype, axis_of
from anneal.tensor import DType, Tensor, dtypes


def _summed(x: Tensor, dtype: Any) -> DType:
    """The dtype to add up in: integers narrower than 32 bits widen to 32, by their kind."""
    if dtype is not None:
        return as_dtype(dtype)
    if x.dtype.is_float or x.dtype.bits >= 32:
        return x.dtype
    return dtypes.uint32 if x.dtype.kind == "uint" else dtypes.int32


@standards
def sum(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum along axes; 0 over nothing. Integers narrower than 32 bits give those of 32 bits, of their kind. One that
    the dtype does not hold wraps around and warns, where `Tensor.sum` is int64 or raises; with `dtype` it wraps around
    in that.

    >>> sum(Tensor([[1, 2], [3, 4]]), axis=0)
    Tensor([4, 6], dtype=int32)
    """
    kind = _summed(x, dtype)
    return x.cast(kind).sum(axis, keepdims, dtype=None if dtype is None else kind)


@standards
def prod(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product along axes; 1 over nothing. Dtypes as those of `sum`."""
    kind = _summed(x, dtype)
    return x.cast(kind).prod(axis, keepdims, dtype=None if dtype is None else kind)


def mean(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean along axes; nan over nothing."""
    return x.mean(axis, keepdims)


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance along axes, whose divisor is the count less `correction`."""
    return x.var(axis, correction, keepdims)


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of `var`."""
    return x.std(axis, correction, keepdims)


def max(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest value along axes; nan if there is one."""
    return x.amax(axis, keepdims)


def min(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest value along axes; nan if there is one."""
    return x.amin(axis, keepdims)


def all(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """A test that every element along axes differs from 0, as bool."""
    return x.all(axis, keepdims)


def any(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """A test that some element along axes differs from 0, as bool."""
    return x.any(axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The number of elements that differ from 0, int32: of the whole array, or along `axis`; `keepdims` keeps it with
    size 1.
    """
    return x.ne(0).cast(dtypes.int32).sum(axis, keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first largest element, int32: along `axis`, or in the flattened array where it is None;
    `keepdims` keeps reduced axes with size 1.
    """
    return x.argmax(axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first smallest element, int32: along `axis`, or in the flattened array where it is None;
    `keepdims` keeps reduced axes with size 1.
    """
    return x.argmin(axis, keepdims)


def _one_axis(name: str, x: Tensor, axis: int | None) -> int:
    if axis is None and x.ndim != 1:
        raise ShapeError(f"{name}: axis is needed for shape {x.shape}")
    at: int = axis_of(name, -1 if axis is None else axis, x.ndim)
    return at


@standards
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The sums of the elements so far, after a 0 if `include_initial`. Dtypes as those of `sum`."""
    at = _one_axis("cumulative_sum", x, axis)
    kind = _summed(x, dtype)
    return x.cast(kind).cumulative_sum(at, include_initial=include_initial).cast(kind)


@standards
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The products of the elements so far, after a 1 if `include_initial`. Dtypes as those of `sum`."""
    at = _one_axis("cumulative_prod", x, axis)
    kind = _summed(x, dtype)
    return x.cast(kind).cumulative_prod(at, include_initial=include_initial).cast(kind)


@standards
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The difference of each element and the one before, n times, after `prepend` and `append` are joined.

    >>> diff(Tensor([1, 4, 9]))
    Tensor([3, 5], dtype=int32)
    """
    parts = [part for part in (prepend, x, append) if part is not None]
    y = Tensor.cat(parts, dim=axis) if len(parts) > 1 else x
    at: int = axis_of("diff", axis, y.ndim)
    for _ in range(n):
        size = y.shape[at]
        if size == 0:
            break
        late, early = y.narrow(at, 1, size - 1), y.narrow(at, 0, size - 1)
        y = late.ne(early) if y.dtype is dtypes.bool_ else late - early
    return y


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
    row = x1 if sorter is None else x1.take(sorter)
    return row.searchsorted(x2, right=side == "right")
