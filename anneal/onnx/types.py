"""ONNX's element types, and the dtypes of arrays and tensors that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from anneal.errors import DTypeError
from anneal.ops import wrap_array
from anneal.runtime import storage_of
from anneal.tensor import Tensor, dtypes

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
PACKED_BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2, 27: 6, 28: 6}  # of elements of which several are in a byte
_CODES = {name: code for code, name in _NAMES.items()} | {"object": 8}
_ON_DEVICE = frozenset(getattr(dtypes, n).name for n in vars(dtypes) if not n.startswith("_"))
_PLAIN = frozenset(np.dtype(n) for n in _ON_DEVICE & {"bool", *np.sctypeDict})  # known without asking for a name
_NARROWED = {"int64": ("int32", -(1 << 31), (1 << 31) - 1), "uint64": ("uint32", 0, (1 << 32) - 1)}


@dataclass(frozen=True, eq=False)
class Map:
    """A map as a value of a graph: from whole numbers or texts to numbers or texts. Callers give and get dicts."""

    entries: Mapping[Any, Any]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of arrays of objects: no device holds maps."""
        return np.dtype(object)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of entries."""
        return (len(self.entries),)

    def view(self) -> Map:
        """The same map as another object."""
        return Map(self.entries)


def element_name(code: int) -> str:
    """The name of a TensorProto.DataType: "float32", "string"; "type 99" if there is none."""
    return _NAMES.get(code, f"type {code}")


def element_bits(code: int) -> int:
    """The bits of an element of a TensorProto.DataType; 0 for texts, and if there is no such type."""
    dtype = array_dtype(code)
    return PACKED_BITS.get(code) or (0 if dtype is None or dtype.kind == "O" else dtype.itemsize * 8)


@lru_cache(64)  # a file may name any code
def array_dtype(code: int) -> np.dtype[Any] | None:
    """NumPy's dtype of a TensorProto.DataType (objects for strings); None if there is none."""
    import ml_dtypes

    name = _NAMES.get(code)
    if name is None:
        return None
    if name == "string":
        return np.dtype(object)
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def array_code(name: str) -> int:
    """The TensorProto.DataType of a dtype by its name; 0 if there is none."""
    return _CODES.get(name, 0)


def fits_device(dtype: np.dtype[Any]) -> bool:
    """True if a Tensor can hold elements of this dtype."""
    return dtype in _PLAIN or dtype.name in _ON_DEVICE


def device_array(array: Any, device: str, float64: str = "float32", *, constant: bool = False) -> Tensor:
    """An array as a Tensor on a device. On one without 64-bit integers they become 32-bit ones if their values allow;
    float64 becomes float32 where the device has none, if `float64` says so. A `constant`, which nobody writes, is not
    copied before it is uploaded.

    Raises DTypeError for elements that the device cannot hold.
    """
    if not fits_device(array.dtype):
        what = "strings" if array.dtype.kind == "O" else array.dtype.name
        raise DTypeError(f"takes a value of {what}, which no device holds")
    array = np.ascontiguousarray(array).reshape(array.shape)
    try:
        return Tensor(wrap_array(array, device, constant=True) if constant else array, device=device)
    except DTypeError as e:
        name = array.dtype.name
        if name == "float64" and float64 == "float32":
            return Tensor(array.astype(np.float32), device=device)
        if name in _NARROWED:
            narrow, least, most = _NARROWED[name]
            if not array.size or (array.min() >= least and array.max() <= most):
                return Tensor(array.astype(narrow), device=device)
            raise DTypeError(f"{e}; its values do not fit {narrow}") from None
        raise


def uploaded(array: Any, device: str, float64: str = "float32") -> Tensor:
    """`device_array` of what its owner may change later: it is copied once, to the device, before this returns. One
    number is memory too, not a constant that kernels are made for.
    """
    t = device_array(np.atleast_1d(array), device, float64, constant=True)
    storage = storage_of(t.uop)
    if storage is not None:
        storage.ensure()
    return t if array.ndim else t.reshape(())
