"""Dtypes: small singletons, ordered for promotion as the array API and NumPy 2 order them."""

from __future__ import annotations

import struct
from typing import Literal

from anneal.errors import DTypeError

__all__ = ["DType", "by_name", "dtypes", "is_float", "is_int", "normalise_const", "promote"]

Kind = Literal["bool", "int", "uint", "float"]
Number = bool | int | float


class DType:
    """A scalar type. `kind` is bool, int, uint or float; `bits` its width."""

    __slots__ = ("bits", "is_float", "is_int", "kind", "max", "min", "name", "wgsl")

    def __init__(self, name: str, kind: Kind, bits: int) -> None:
        self.name, self.kind, self.bits = name, kind, bits
        self.is_float = kind == "float"
        self.is_int = kind in ("int", "uint")
        self.min: Number
        self.max: Number
        if kind == "bool":
            self.min, self.max = False, True
        elif kind == "uint":
            self.min, self.max = 0, 2**bits - 1
        elif kind == "int":
            self.min, self.max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        else:
            self.min, self.max = float("-inf"), float("inf")

    @property
    def itemsize(self) -> int:
        """Bytes of one element in host memory."""
        return max(1, self.bits // 8)

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return by_name, (self.name,)


class dtypes:
    """Namespace of every dtype, with torch's names."""

    bool_ = DType("bool", "bool", 1)
    int8 = DType("int8", "int", 8)
    uint8 = DType("uint8", "uint", 8)
    int16 = DType("int16", "int", 16)
    uint16 = DType("uint16", "uint", 16)
    int32 = DType("int32", "int", 32)
    uint32 = DType("uint32", "uint", 32)
    int64 = DType("int64", "int", 64)
    uint64 = DType("uint64", "uint", 64)
    float16 = DType("float16", "float", 16)
    float32 = DType("float32", "float", 32)
    float64 = DType("float64", "float", 64)


_NAMES: dict[str, DType] = {d.name: d for d in vars(dtypes).values() if isinstance(d, DType)}
_NAMES |= {
    "half": dtypes.float16,
    "float": dtypes.float32,
    "double": dtypes.float64,
    "int": dtypes.int32,
    "long": dtypes.int64,
}


def by_name(name: str) -> DType:
    """The dtype called `name`; raises DTypeError with the known names."""
    found = _NAMES.get(name)
    if found is None:
        raise DTypeError(f"unknown dtype {name!r}; known: {', '.join(_NAMES)}")
    return found


def is_float(d: DType) -> bool:
    return d.is_float


def is_int(d: DType) -> bool:
    return d.is_int


_ORDER = {"bool": 0, "uint": 1, "int": 1, "float": 2}


def promote(a: DType, b: DType) -> DType:
    """The common dtype of two arrays.

    The higher kind wins (bool < integer < float). Within floats and within one signedness the wider wins. A signed
    and an unsigned integer meet in the smallest signed integer that holds both (int64 for uint64: no float appears).
    """
    if a is b:
        return a
    ka, kb = _ORDER[a.kind], _ORDER[b.kind]
    if ka != kb:
        return a if ka > kb else b
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    bits = max(signed.bits, min(64, unsigned.bits * 2))
    return _NAMES[f"int{bits}"]


def normalise_const(dtype: DType, value: Number) -> Number:
    """`value` as the Python number that `dtype` would store: wrapped ints, rounded floats, bools."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.kind == "float":
        value = float(value)
        if dtype.bits == 32:
            try:
                return float(struct.unpack("f", struct.pack("f", value))[0])
            except OverflowError:
                return float("inf") if value > 0 else float("-inf")
        if dtype.bits == 16:
            try:
                return float(struct.unpack("e", struct.pack("e", value))[0])
            except OverflowError:
                return float("inf") if value > 0 else float("-inf")
        return value
    value = int(value)
    if dtype.min <= value <= dtype.max:
        return value
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "int" and value >> (dtype.bits - 1) else value
