"""Dtypes: small singletons, ordered for promotion as the array API and NumPy 2 order them.

Floats of 8 and 16 bits are stored, not computed with: an operation on them is done in float32 and rounded to them once,
to the nearest and of two to the even one.
"""

from __future__ import annotations

import math
import struct
from typing import Literal

from anneal.errors import DTypeError

Kind = Literal["bool", "int", "uint", "float"]
Number = bool | int | float


class DType:
    """A scalar type. `name` is its text, such as "float32"; `kind` is bool, int, uint or float; `bits` its width.

    Of a float, `digits` are those of the significand with the leading one, `least` is the exponent of the smallest
    normal number, and `largest` the largest finite one; one without infinity has nan in its place. `is_narrow` floats
    are computed with in float32. An element takes `itemsize` bytes of host memory and `device_itemsize` of a GPU's,
    where a bool has a word. torch's names are `is_floating_point`, `is_signed` and `is_complex`, which none is.
    """

    def __init__(self, name: str, kind: Kind, bits: int, digits: int = 0, least: int = 0, largest: float = 0.0) -> None:
        self.name, self.kind, self.bits = name, kind, bits
        self.itemsize = max(1, bits // 8)
        self.device_itemsize = 4 if kind == "bool" else self.itemsize
        self.is_float = self.is_floating_point = kind == "float"
        self.is_signed, self.is_complex = kind in ("int", "float"), False
        self.digits, self.least, self.largest = digits, least, largest
        self.is_narrow = self.is_float and bits < 32
        # 1110 in binary is the largest significand where 1111 is nan
        self.has_infinity = self.is_float and math.frexp(largest)[0] == 1 - 2.0**-digits
        self.is_int = kind in ("int", "uint")
        half, end = 2**bits // 2, math.inf if self.has_infinity else largest
        ends: dict[Kind, tuple[Number, Number]] = {
            "bool": (False, True), "uint": (0, 2 * half - 1), "int": (-half, half - 1), "float": (-end, end),
        }  # fmt: skip
        self.min, self.max = ends[kind]

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __eq__(self, other: object) -> bool:
        """True for the same dtype, also as NumPy's or torch's type or name."""
        if self is other:
            return True
        if other is None or isinstance(other, DType):
            return False
        name = getattr(other, "name", None) or getattr(other, "__name__", None) or str(other)
        return isinstance(name, str) and name.removeprefix("torch.").rstrip("_") == self.name

    __hash__ = object.__hash__

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
    float8_e4m3fn = DType("float8_e4m3fn", "float", 8, 4, -6, 448.0)
    float8_e5m2 = DType("float8_e5m2", "float", 8, 3, -14, 57344.0)
    bfloat16 = DType("bfloat16", "float", 16, 8, -126, (2 - 2.0**-7) * 2.0**127)
    float16 = DType("float16", "float", 16, 11, -14, 65504.0)
    float32 = DType("float32", "float", 32, 24, -126, (2 - 2.0**-23) * 2.0**127)
    float64 = DType("float64", "float", 64, 53, -1022, (2 - 2.0**-52) * 2.0**1023)
    half, float, double = float16, float32, float64
    bool, int, long = bool_, int32, int64


_NAMES: dict[str, DType] = {n.rstrip("_"): d for n, d in vars(dtypes).items() if isinstance(d, DType)}
DTYPES = tuple(dict.fromkeys(_NAMES.values()))  # each once


def by_name(name: str) -> DType:
    """The dtype called `name`; raises DTypeError with the known names."""
    found = _NAMES.get(name)
    if found is None:
        raise DTypeError(f"unknown dtype {name!r}; known: {', '.join(_NAMES)}")
    return found


_ORDER = {"bool": 0, "uint": 1, "int": 1, "float": 2}


def promote(a: DType, b: DType) -> DType:
    """The common dtype of two arrays.

    The higher kind wins (bool < integer < float). Within floats and within one signedness the wider wins, and two
    floats of one width meet in float32. A signed and an unsigned integer meet in the smallest signed integer that holds
    both (int64 for uint64: no float appears).

    >>> promote(dtypes.float8_e4m3fn, dtypes.float16), promote(dtypes.float16, dtypes.bfloat16)
    (dtypes.float16, dtypes.float32)
    """
    if a is b:
        return a
    ka, kb = _ORDER[a.kind], _ORDER[b.kind]
    if ka != kb:
        return a if ka > kb else b
    if a.kind == b.kind:
        if a.bits == b.bits:
            return dtypes.float32
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    bits = max(signed.bits, min(64, unsigned.bits * 2))
    return _NAMES[f"int{bits}"]


def round_float(dtype: DType, value: float) -> float:
    """The float of `dtype` nearest to `value`, on a tie the even one; above the largest float infinity, or nan if the
    dtype has no infinity.

    >>> round_float(dtypes.bfloat16, 0.1), round_float(dtypes.float8_e4m3fn, 1000.0)
    (0.10009765625, nan)
    """
    if value == 0 or not math.isfinite(value):
        return value if dtype.has_infinity or value == 0 else math.nan
    if abs(value) >= 2 * dtype.largest:
        return math.copysign(math.inf, value) if dtype.has_infinity else math.nan
    exponent = max(math.frexp(value)[1] - 1, dtype.least) - dtype.digits + 1
    rounded = math.ldexp(round(math.ldexp(abs(value), -exponent)), exponent)
    if rounded <= dtype.largest:
        return math.copysign(rounded, value)
    return math.copysign(math.inf, value) if dtype.has_infinity else math.nan


def normalise_const(dtype: DType, value: Number) -> Number:
    """`value` as the Python number that `dtype` would store: wrapped ints, rounded floats, bools."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.kind == "float":
        if dtype.bits < 64 and value.__class__ is int and (spare := value.bit_length() - 53) > 0:
            # Rounded to odd, so that the second rounding is right: the last digit tells whether something was cut off.
            value = (value >> spare | (value & ((1 << spare) - 1) != 0)) << spare
        value = float(value)
        if dtype.bits == 64:
            return value
        if dtype is dtypes.float16:
            return round_float(dtype, value)
        try:
            value = float(struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            value = math.copysign(math.inf, value)
        return round_float(dtype, value) if dtype.is_narrow else value
    value = int(value)
    if dtype.min <= value <= dtype.max:
        return value
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "int" and value >> (dtype.bits - 1) else value
