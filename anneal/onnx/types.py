"""ONNX's element types, and the dtypes of arrays and tensors that hold them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from anneal.tensor import as_dtype, dtypes

__all__ = ["ON_DEVICE", "array_dtype", "element_name", "fits_device"]

# TensorProto.DataType -> the name of NumPy's or ml_dtypes' type.
_NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
    27: "float6_e2m3fn",
    28: "float6_e3m2fn",
}
ON_DEVICE = frozenset(getattr(dtypes, n).name for n in vars(dtypes) if not n.startswith("_"))


def element_name(code: int) -> str:
    """The name of a TensorProto.DataType: "float32", "string"; "type 99" if there is none."""
    return _NAMES.get(code, f"type {code}")


@cache
def array_dtype(code: int) -> np.dtype[Any] | None:
    """NumPy's dtype of a TensorProto.DataType (objects for strings); None if there is none."""
    import ml_dtypes

    name = _NAMES.get(code)
    if name is None:
        return None
    if name == "string":
        return np.dtype(object)
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def fits_device(dtype: np.dtype[Any]) -> bool:
    """Whether a Tensor can hold elements of this dtype."""
    return dtype.name in ON_DEVICE and as_dtype(dtype.name) is not None
