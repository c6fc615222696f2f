"""Helpers that several families share, for values and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from anneal.errors import DTypeError
from anneal.onnx.execute import NodeCall
from anneal.onnx.values import Sizes, fits_device
from anneal.tensor import Tensor, dtypes

Array = np.ndarray[Any, Any]
Value = Tensor | Array


def is_float(x: Value) -> bool:
    """True if the elements are floats, of any width."""
    if isinstance(x, Tensor):
        return bool(x.dtype.is_float)
    return str(x.dtype.name).startswith(("bfloat", "float"))


def single(x: Array) -> Any:
    """The one element of an array, as Python's number; of `Sizes` it may be a node."""
    if isinstance(x, Sizes):
        return x.items.reshape(())[()]
    return x.reshape(()).item()


def ints(x: Array | Sequence[int]) -> list[Any]:
    """The elements of an array of one axis (or of none) as Python's integers; those of `Sizes` may be nodes."""
    if isinstance(x, Sizes):
        return list(x.items.reshape(-1))
    return [int(v) for v in np.asarray(x).reshape(-1)]


def operand(node: NodeCall, x: Value) -> Tensor:
    """A value as a Tensor; one number that is known becomes part of the kernel, not memory that the kernel reads."""
    # What a device has no 64 bits for is narrowed on its way there.
    if isinstance(x, np.ndarray) and x.size == 1 and fits_device(x.dtype) and x.dtype.itemsize < 8:
        return Tensor.full(x.shape, x.item(), dtype=x.dtype.name, device=node.device)
    return node.tensor(x)  # type: ignore[no-any-return]


def plus(x: Tensor, more: Tensor | None) -> Tensor:
    """x and what an optional input adds to it."""
    return x if more is None else x + more


def total_of(parts: Sequence[Tensor]) -> Tensor:
    """The sum of values of which there is one at least."""
    return reduce(Tensor.add, parts)


def counted(x: Tensor) -> Tensor:
    """Positions as int64, which the standard has for them; as they are where a device has no integers of 64 bits."""
    try:
        return x.cast(dtypes.int64)
    except DTypeError:
        return x


def axis_of(node: NodeCall, axis: int, ndim: int) -> int:
    """An axis counted from 0; an error that names the node for one that does not exist."""
    if not -ndim <= axis < max(ndim, 1):
        raise node.fail(f"axis {axis} of a value of {ndim} axes")
    return axis + ndim if axis < 0 else axis


def axes_of(node: NodeCall, axes: Sequence[int] | None, ndim: int) -> list[int]:
    """Axes counted from 0, all of them if none are named."""
    return list(range(ndim)) if axes is None else [axis_of(node, a, ndim) for a in axes]


def iota(x: Tensor, count: int, axis: int, ndim: int) -> Tensor:
    """0 to count - 1 along one of `ndim` axes, as int32 on the device of x."""
    row = Tensor.arange(count, device=x.device)
    return row.reshape(*[count if i == axis else 1 for i in range(ndim)])
