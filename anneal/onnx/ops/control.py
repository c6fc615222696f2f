"""Constants, identity, and control flow."""

from __future__ import annotations

from typing import Any

import numpy as np

from anneal.onnx.execute import Call
from anneal.onnx.registry import op


@op("Constant", raw=True)
def constant(
    node: Call,
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
    value_string: Any = None,
    value_strings: Any = None,
) -> Any:
    """The value of an attribute."""
    for found in (value, sparse_value):
        if found is not None:
            return found
    for found, dtype in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    ):
        if found is not None:
            return np.asarray(found, dtype)
    raise node.fail("has no value")


@op("Identity", raw=True)
def identity(node: Call, x: Any) -> Any:
    """The input itself."""
    return x


@op("Shape", raw=True)
def shape(node: Call, x: Any, *, start: int = 0, end: int | None = None) -> Any:
    """The sizes of the axes from `start` to `end`."""
    return np.asarray(x.shape[start:end], np.int64)


@op("Add", "Sub", "Mul", since=7, host=True)
def arithmetic(node: Call, a: Any, b: Any) -> Any:
    """Sums, differences and products, of shapes that broadcast."""
    return a + b if node.op == "Add" else a - b if node.op == "Sub" else a * b


@op("Reshape", since=5, values=("shape",), host=True)
def reshape(node: Call, x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    """The elements in another shape: 0 keeps an axis, -1 is what is left."""
    sizes = [int(s) if s or allowzero else x.shape[n] for n, s in enumerate(shape)]
    return x.reshape(sizes)
