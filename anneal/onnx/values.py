"""The facts of any value: its parts, its dtype, whether it is small, its type as ONNX writes it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from anneal.onnx.host_sizes import Sizes
from anneal.onnx.types import array_code, fits_device
from anneal.tensor import Tensor
from anneal.uop import UOp
from anneal.uop.sizes import most as largest

_ON_HOST = 1 << 24  # elements that a result on the host may have, where the device can compute it


class Items(list[Any]):
    """A sequence that a loop may grow, with what is known of all its items, so that no turn has to ask each of them:
    whether one is loose, whether all are fixed, those that perhaps are yet to be computed, and the elements of all.
    """

    __slots__ = ("fixed", "fresh", "loose", "size")
    size: int
    loose: bool
    fixed: bool
    fresh: list[Any]


def leaves(value: Any) -> Iterator[Any]:
    """The arrays and tensors of a value: itself, or the items of sequences."""
    if isinstance(value, list):
        for v in value:
            yield from leaves(v)
    elif value is not None:
        yield value


def size_of(value: Any) -> int:
    """The number of elements that a tensor or an array has, or may have; 0 for anything else."""
    return math.prod([largest(n) for n in value.shape]) if hasattr(value, "shape") else 0


def is_small(arrays: list[Any], most: int) -> bool:
    """True if an operator's result from these arrays is small, and at most `most`: as long as they broadcast, or else
    as all pairs of their elements.
    """
    try:
        size = math.prod(np.broadcast_shapes(*[v.shape for v in arrays if isinstance(v, np.ndarray)]))
    except ValueError:
        size = _ON_HOST + 1
    if size > _ON_HOST:
        size = math.prod(max(v.size, 1) for v in arrays if isinstance(v, np.ndarray))
    return size <= min(_ON_HOST, most)


def fit_device(values: list[Any]) -> bool:
    """True if tensors can hold the elements of all these arrays."""
    return all(fits_device(v.dtype) for v in leaves(values) if isinstance(v, np.ndarray))


def dtype_name(value: Any) -> str:
    """The name of a tensor's or an array's dtype."""
    return str(getattr(value.dtype, "name", value.dtype))


def brief(value: Any) -> str:
    """A value's dtype and shape, for messages."""
    if isinstance(value, (Tensor, np.ndarray, Sizes)):
        return f"{dtype_name(value)}{list(value.shape)}"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    return "nothing" if value is None else type(value).__name__


def type_of(value: Any) -> Any:
    """The TypeProto of a value."""
    from onnx import TypeProto

    out = TypeProto()
    if isinstance(value, list):
        out.sequence_type.elem_type.CopyFrom(type_of(value[0]) if value else TypeProto())
    elif value is not None:
        out.tensor_type.elem_type = array_code(value.dtype.name)
        for d in value.shape:
            if isinstance(d, UOp):
                out.tensor_type.shape.dim.add()
            else:
                out.tensor_type.shape.dim.add().dim_value = int(d)
    return out
