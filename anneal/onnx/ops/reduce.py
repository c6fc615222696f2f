"""Reductions, running sums, softmax and the positions of the largest.

The axes are an attribute before version 18 (ReduceSum: 13), and an input since; none at all means all, or with
`noop_with_empty_axes=1` none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from anneal.onnx.execute import NodeCall
from anneal.onnx.ops._values import Array, Value, axis_of, counted, ints, iota, is_float, single
from anneal.onnx.registry import op
from anneal.tensor import Tensor, host_call

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


def _axes(node: NodeCall, ndim: int, given: Array | None, noop: int) -> Axes:
    if given is None or not given.size:
        return () if noop else tuple(range(ndim))
    return tuple(sorted({axis_of(node, a, ndim) for a in ints(given)}))


def _reduction(name: str, function: Callable[[Tensor, Axes, bool], Tensor]) -> None:
    """Register a reduction whose axes are an attribute at first, and an input later."""

    @op(name, since=13 if name == "ReduceSum" else 18, values=("axes",), was={"axes": "axes"})
    def reduced(
        node: NodeCall, x: Tensor, axes: Array | None = None, *, keepdims: int, noop_with_empty_axes: int = 0
    ) -> Tensor:
        return function(x, _axes(node, x.ndim, axes, noop_with_empty_axes), bool(keepdims))

    if name in ON_HOST:

        @reduced.host
        def _(node: NodeCall, x: Array, axes: Any = None, *, keepdims: int, noop_with_empty_axes: int = 0) -> Any:
            over = _axes(node, x.ndim, axes, noop_with_empty_axes)
            if name in ("ReduceMax", "ReduceMin") and any(not x.shape[a] for a in over):
                return function(node.tensor(x), over, bool(keepdims))
            return ON_HOST[name](x, over, bool(keepdims)) if over else x


for _name, _function in REDUCTIONS.items():
    _reduction(_name, _function)


# -- positions --------------------------------------------------------------------------------------------------------


@op("ArgMax", "ArgMin")
def position(node: NodeCall, x: Tensor, *, axis: int, keepdims: int, select_last_index: int = 0) -> Tensor:
    """The position of the largest, or the smallest, along an axis: the first, or since version 12 the last if asked."""
    axis = axis_of(node, axis, x.ndim)
    seen = x.flip(axis) if select_last_index else x
    found = (seen.argmax if node.op == "ArgMax" else seen.argmin)(axis, bool(keepdims))
    return counted(x.shape[axis] - 1 - found if select_last_index else found)


@op("TopK", since=10, values=("k",), was={"k": "k"})
def topk(node: NodeCall, x: Tensor, k: Array, *, axis: int, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    """The k largest, or since version 11 the smallest, in order (also where none is asked for), and their positions."""
    count, axis = int(single(k)), axis_of(node, axis, x.ndim)
    if not 0 <= count <= x.shape[axis]:
        raise node.fail(f"k is {count}, of {x.shape[axis]} elements along axis {axis}")
    values, places = x.topk(count, axis, bool(largest))
    return values, counted(places)


# -- running sums -----------------------------------------------------------------------------------------------------


@op("CumSum", "CumProd", values=("axis",))
def running(node: NodeCall, x: Tensor, axis: Array, *, exclusive: int, reverse: int) -> Tensor:
    """The sum, or the product, of the elements up to each, itself included or not, from either end."""
    product = node.op == "CumProd"
    along = axis_of(node, int(single(axis)), x.ndim)
    if not x.shape[along]:
        return x
    out = x.flip(along) if reverse else x
    if exclusive:
        sides = [(1, -1) if i == along else (0, 0) for i in range(x.ndim)]
        out = out.pad(sides, value=1 if product else 0).cast(x.dtype)
    out = out.cumprod(along, dtype=x.dtype) if product else out.cumsum(along, dtype=x.dtype)
    return out.flip(along) if reverse else out


# -- softmax ----------------------------------------------------------------------------------------------------------


def _hardmax(x: Tensor, axis: int) -> Tensor:
    place = x.argmax(axis, keepdim=True)
    return (iota(x, x.shape[axis], axis, x.ndim) == place).cast(x.dtype)


def _softmax(name: str, function: Callable[[Tensor, int], Tensor]) -> None:
    """Register a function of rows: before version 13 of the axes from `axis` on, laid flat, then of one axis."""

    def before(node: NodeCall, x: Tensor, *, axis: int) -> Tensor:
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


# -- products of matrices, and determinants ---------------------------------------------------------------------------


@op("MatMul")
def matmul(node: NodeCall, a: Tensor, b: Tensor) -> Tensor:
    """The matrix product as NumPy's; integers since version 9."""
    return a.matmul(b)


@op("Gemm")
def gemm(
    node: NodeCall,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float,
    beta: float,
    broadcast: int = 1,
    transA: int,
    transB: int,
) -> Tensor:
    """alpha * A @ B + beta * C; C broadcasts (before version 7 if `broadcast` is 1), and is optional since 11."""
    out = (a.T if transA else a) @ (b.T if transB else b)
    out = _scaled(out, alpha)
    return out if c is None or beta == 0 else out + _scaled(c, beta)


def _scaled(x: Tensor, by: float) -> Tensor:
    return x if by == 1 else x * by if is_float(x) else (x * by).cast(x.dtype)


@op("Einsum")
def einsum(node: NodeCall, *xs: Tensor, equation: str) -> Tensor:
    """Products and sums by named axes."""
    return Tensor.einsum(equation.replace(" ", ""), *xs)


@op("Det", raw=True)
def det(node: NodeCall, x: Value) -> Value:
    """The determinants of square matrices, the last two axes, by LAPACK on the host."""
    if isinstance(x, np.ndarray) or not x.shape[0]:
        return np.asarray(np.linalg.det(node.host(x)), node.host(x).dtype)
    dtype = np.dtype(x.dtype.name)

    def computed(values: Any) -> Any:
        return np.linalg.det(values).astype(dtype)

    found = host_call(computed, (x.shape[:-2], x.dtype), x, key=("onnx Det", x.dtype.name))
    return found
