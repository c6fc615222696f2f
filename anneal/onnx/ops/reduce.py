"""Reductions, running sums, softmax and the positions of the largest.

The axes are an attribute before version 18 (ReduceSum: 13), and an input since; none at all means all, or with
`noop_with_empty_axes=1` none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anneal.onnx.execute import Call
from anneal.onnx.ops._values import Array, axis_of, counted, ints, iota, is_float, single
from anneal.onnx.registry import op
from anneal.tensor import Tensor

Axes = tuple[int, ...]

# -- reductions -------------------------------------------------------------------------------------------------------


def _total(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return x.sum(axes, keep, dtype=x.dtype) if axes else x


def _mean(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    if not axes:
        return x
    if is_float(x):
        return x.mean(axes, keep)
    count = math.prod(x.shape[a] for a in axes)
    return _total(x, axes, keep).div(max(count, 1), rounding_mode="trunc").cast(x.dtype)


def _extreme(x: Tensor, axes: Axes, keep: bool, largest: bool) -> Tensor:
    """The largest or smallest; over nothing the other end of the dtype."""
    if not axes:
        return x
    if any(not x.shape[a] for a in axes):
        sizes = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
        return Tensor.full(sizes, _end(x.dtype, lowest=largest), dtype=x.dtype, device=x.device)
    return x.amax(axes, keep) if largest else x.amin(axes, keep)


def _end(dtype: Any, lowest: bool) -> Any:
    """The lowest or highest number of a dtype."""
    if dtype.is_float:
        return -math.inf if lowest else math.inf
    return dtype.min if lowest else dtype.max


def _as_float(function: Callable[[Tensor, Axes, bool], Tensor]) -> Callable[[Tensor, Axes, bool], Tensor]:
    """Integers go through float32 and are cut off again."""

    def computed(x: Tensor, axes: Axes, keep: bool) -> Tensor:
        return function(x, axes, keep) if is_float(x) else function(x.float(), axes, keep).cast(x.dtype)

    return computed


REDUCTIONS: dict[str, Callable[[Tensor, Axes, bool], Tensor]] = {
    "ReduceL1": lambda x, a, k: _total(x.abs(), a, k),
    "ReduceL2": _as_float(lambda x, a, k: _total(x * x, a, k).sqrt()),
    "ReduceLogSum": _as_float(lambda x, a, k: _total(x, a, k).log()),
    "ReduceLogSumExp": _as_float(lambda x, a, k: x.logsumexp(a, k) if a else x),
    "ReduceMax": lambda x, a, k: _extreme(x, a, k, True),
    "ReduceMean": _mean,
    "ReduceMin": lambda x, a, k: _extreme(x, a, k, False),
    "ReduceProd": lambda x, a, k: x.prod(a, k, dtype=x.dtype) if a else x,
    "ReduceSum": _total,
    "ReduceSumSquare": lambda x, a, k: _total(x * x, a, k),
}
ON_HOST: dict[str, Callable[[Array, Axes, bool], Any]] = {
    "ReduceMax": lambda x, a, k: np.max(x, axis=a, keepdims=k),
    "ReduceMin": lambda x, a, k: np.min(x, axis=a, keepdims=k),
    "ReduceProd": lambda x, a, k: np.prod(x, axis=a, keepdims=k, dtype=x.dtype),
    "ReduceSum": lambda x, a, k: np.sum(x, axis=a, keepdims=k, dtype=x.dtype),
}


def _axes(node: Call, ndim: int, given: Sequence[int] | None, noop: int) -> Axes:
    if not given:
        return () if noop else tuple(range(ndim))
    return tuple(sorted({axis_of(node, a, ndim) for a in given}))


def _reduction(name: str, function: Callable[[Tensor, Axes, bool], Tensor]) -> None:
    """Register a reduction whose axes are an attribute at first, and an input later."""

    def before(node: Call, x: Tensor, *, axes: Sequence[int] | None = None, keepdims: int) -> Tensor:
        return function(x, _axes(node, x.ndim, axes, 0), bool(keepdims))

    def now(node: Call, x: Tensor, axes: Array | None = None, *, keepdims: int, noop_with_empty_axes: int) -> Tensor:
        given = None if axes is None else ints(axes)
        return function(x, _axes(node, x.ndim, given, noop_with_empty_axes), bool(keepdims))

    first = op(name)(before)
    second = op(name, since=13 if name == "ReduceSum" else 18, values=("axes",))(now)
    if name not in ON_HOST:
        return
    on_host = ON_HOST[name]

    @first.host
    def before_on_host(node: Call, x: Array, *, axes: Sequence[int] | None = None, keepdims: int) -> Any:
        return _reduced_on_host(node, x, _axes(node, x.ndim, axes, 0), bool(keepdims))

    @second.host
    def now_on_host(node: Call, x: Array, axes: Any = None, *, keepdims: int, noop_with_empty_axes: int) -> Any:
        given = None if axes is None else ints(axes)
        return _reduced_on_host(node, x, _axes(node, x.ndim, given, noop_with_empty_axes), bool(keepdims))

    def _reduced_on_host(node: Call, x: Array, axes: Axes, keep: bool) -> Any:
        if "Max" in name or "Min" in name:
            if any(not x.shape[a] for a in axes):
                return function(node.tensor(x), axes, keep)
        return on_host(x, axes, keep) if axes else x


for _name, _function in REDUCTIONS.items():
    _reduction(_name, _function)


# -- positions --------------------------------------------------------------------------------------------------------


def _position(node: Call, x: Tensor, axis: int, keepdims: int, last: int, largest: bool) -> Tensor:
    axis = axis_of(node, axis, x.ndim)
    seen = x.flip(axis) if last else x
    found = (seen.argmax if largest else seen.argmin)(axis, bool(keepdims))
    return counted(x.shape[axis] - 1 - found if last else found)


@op("ArgMax")
def argmax(node: Call, x: Tensor, *, axis: int, keepdims: int, select_last_index: int = 0) -> Tensor:
    """The position of the largest along an axis, the first of several, or since version 12 the last if asked."""
    return _position(node, x, axis, keepdims, select_last_index, True)


@op("ArgMin")
def argmin(node: Call, x: Tensor, *, axis: int, keepdims: int, select_last_index: int = 0) -> Tensor:
    """The position of the smallest along an axis, the first of several, or since version 12 the last if asked."""
    return _position(node, x, axis, keepdims, select_last_index, False)


def _top(node: Call, x: Tensor, k: int, axis: int, largest: int) -> tuple[Tensor, Tensor]:
    axis = axis_of(node, axis, x.ndim)
    if not 0 <= k <= x.shape[axis]:
        raise node.fail(f"k is {k}, of {x.shape[axis]} elements along axis {axis}")
    values, places = x.topk(k, axis, bool(largest))
    return values, counted(places)


@op("TopK")
def topk_old(node: Call, x: Tensor, *, axis: int, k: int) -> tuple[Tensor, Tensor]:
    """The k largest in order, with their positions; k is an attribute in version 1."""
    return _top(node, x, k, axis, 1)


@op("TopK", since=10, values=("k",))
def topk(node: Call, x: Tensor, k: Array, *, axis: int, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    """The k largest, or since version 11 the smallest, in order (also where none is asked for), and their positions."""
    return _top(node, x, int(single(k)), axis, largest)


# -- running sums -----------------------------------------------------------------------------------------------------


def _running(node: Call, x: Tensor, axis: Array, exclusive: int, reverse: int, product: bool) -> Tensor:
    along = axis_of(node, int(single(axis)), x.ndim)
    if not x.shape[along]:
        return x
    out = x.flip(along) if reverse else x
    if exclusive:
        sides = [(1, -1) if i == along else (0, 0) for i in range(x.ndim)]
        out = out.pad(sides, value=1 if product else 0).cast(x.dtype)
    out = out.cumprod(along, dtype=x.dtype) if product else out.cumsum(along, dtype=x.dtype)
    return out.flip(along) if reverse else out


@op("CumSum", values=("axis",))
def cumsum(node: Call, x: Tensor, axis: Array, *, exclusive: int, reverse: int) -> Tensor:
    """The sum of the elements up to each, itself included or not, from either end."""
    return _running(node, x, axis, exclusive, reverse, False)


@op("CumProd", values=("axis",))
def cumprod(node: Call, x: Tensor, axis: Array, *, exclusive: int, reverse: int) -> Tensor:
    """The product of the elements up to each, itself included or not, from either end."""
    return _running(node, x, axis, exclusive, reverse, True)


# -- softmax ----------------------------------------------------------------------------------------------------------


def _hardmax(x: Tensor, axis: int) -> Tensor:
    place = x.argmax(axis, keepdim=True)
    return (iota(x, x.shape[axis], axis, x.ndim) == place).cast(x.dtype)


def _softmax(name: str, function: Callable[[Tensor, int], Tensor]) -> None:
    """Register a function of rows: before version 13 of the axes from `axis` on, laid flat, then of one axis."""

    def before(node: Call, x: Tensor, *, axis: int) -> Tensor:
        first = axis + x.ndim if axis < 0 else axis
        rows = x.reshape(math.prod(x.shape[:first]), math.prod(x.shape[first:]))
        return function(rows, 1).reshape(*x.shape)

    op(name)(before)
    op(name, since=13)(lambda node, x, *, axis: function(x, axis_of(node, axis, x.ndim)))


def _rows(x: Tensor, axis: int) -> Tensor:
    """softmax; floats of 16 bits are rounded after each step, as in the body that the standard gives."""
    if x.dtype.bits != 16:
        return x.softmax(axis)
    weights = (x - x.amax(axis, keepdim=True)).exp()
    return weights / weights.sum(axis, keepdim=True)


_softmax("Softmax", _rows)
_softmax("LogSoftmax", Tensor.log_softmax)
_softmax("Hardmax", _hardmax)
