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
