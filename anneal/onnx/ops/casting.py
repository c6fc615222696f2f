"""Conversions between element types: numbers of every width, and text.

What no device holds (integers of 4 and 2 bits, floats of 6 and 4, three of the five of 8 bits, text) is an array of
ml_dtypes' or NumPy's types on the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anneal.onnx.execute import Call
from anneal.onnx.ops._values import Array, Value, counted, is_float
from anneal.onnx.registry import op
from anneal.onnx.sizes import Sizes
from anneal.onnx.types import array_dtype, element_name, fits_device
from anneal.tensor import Tensor

__all__ = ["array_dtype_of", "converted"]


def converted(node: Call, x: Value, dtype: np.dtype[Any], saturate: int = 1, round_mode: str = "up") -> Value:
    """x in another element type: on the device where both types are, else on the host."""
    if isinstance(x, Sizes):
        if dtype.name in ("int32", "int64"):
            return Sizes(x.items, dtype)  # type: ignore[return-value]  # a value like the others
        x = node.tensor(x)
    if isinstance(x, Tensor) and fits_device(dtype):
        if x.dtype.name == dtype.name:
            return x
        if dtype.name.startswith("float8") and saturate:
            high = float(_largest(dtype))
            x = x.float().clamp(-high, high)
        if dtype.name == "int64" and not is_float(x) and x.dtype.name != "uint64":
            return counted(x)
        return x.cast(dtype.name)
    return _on_host(node, node.host(x), dtype, saturate, round_mode)


def _on_host(node: Call, x: Array, dtype: np.dtype[Any], saturate: int, round_mode: str) -> Array:
    if dtype.hasobject:
        return np.array([_text(v) for v in x.reshape(-1)], object).reshape(x.shape)
    if x.dtype.hasobject:
        return _read(node, x, dtype)
    with np.errstate(all="ignore"):
        if dtype.name == "float8_e8m0fnu":
            return _power_of_two(x, dtype, saturate, round_mode)
        if dtype.name.startswith("float8") and saturate:
            high = np.float32(_largest(dtype))
            return np.clip(x.astype(np.float32), -high, high).astype(dtype)
        if dtype.name in ("int4", "uint4", "int2", "uint2") and is_float(x):
            return x.astype(np.int32).astype(dtype)
        if x.dtype.kind == "V" or dtype.kind == "V":
            # One of ml_dtypes' types is not converted into another one directly.
            return x.astype(np.float32).astype(dtype)
        return x.astype(dtype)


def _largest(dtype: np.dtype[Any]) -> Any:
    import ml_dtypes

    return ml_dtypes.finfo(dtype).max  # type: ignore[no-untyped-call]


def _text(value: Any) -> str:
    """A number as the standard writes it: floats with the digits that tell them apart."""
    return value if isinstance(value, str) else str(value)


def _read(node: Call, x: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers from text, as the standard reads them."""
    try:
        if dtype.kind in "iu":
            values: list[Any] = [int(v) if v.strip().lstrip("+-").isdigit() else int(float(v)) for v in x.reshape(-1)]
        else:
            values = [float(v) for v in x.reshape(-1)]
    except (ValueError, OverflowError) as e:
        raise node.fail(f"text that is no number: {e}") from e
    return np.array(values, np.float64 if dtype.kind not in "iu" else dtype).astype(dtype).reshape(x.shape)


def _power_of_two(x: Array, dtype: np.dtype[Any], saturate: int, round_mode: str) -> Array:
    """Scales: the power of two above, below or nearest; what is no positive number is the least one or nan."""
    wide = np.abs(x.astype(np.float64))
    mantissa, exponent = np.frexp(wide)
    exponent = exponent - 1
    over = mantissa * 2  # in [1, 2)
    if round_mode == "up":
        exponent = exponent + (over > 1)
    elif round_mode == "nearest":
        exponent = exponent + (over >= 1.5)
    exponent = np.where(wide == 0, -127, exponent)
    outside = (exponent > 127) | np.isinf(wide)
    value = np.ldexp(1.0, np.clip(exponent, -127, 127).astype(np.int32))
    value = np.where(np.isinf(wide), np.ldexp(1.0, 127), value)
    value = np.where(np.isnan(wide) | (outside & (not saturate)), np.nan, value)
    return value.astype(np.float32).astype(dtype)


def _named(node: Call, code: int) -> np.dtype[Any]:
    dtype = array_dtype(code)
    if dtype is None:
        raise node.fail(f"there is no element type {code}")
    if dtype.kind == "c":
        raise node.fail(f"there are no tensors of {element_name(code)}")
    return dtype


@op("Cast", raw=True, sizes=True)
def cast(node: Call, x: Value, *, to: Any, saturate: int = 1, round_mode: str = "up") -> Value:
    """Another element type. Version 1 names it by text; 8-bit floats stop at their ends unless `saturate` is 0."""
    if isinstance(to, str):
        dtype = np.dtype({"FLOAT": "float32", "DOUBLE": "float64"}.get(to, to.lower()))
    else:
        dtype = _named(node, to)
    return converted(node, x, dtype, saturate, round_mode)


@op("CastLike", raw=True)
def cast_like(node: Call, x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    """The element type of another value."""
    name = like.dtype.name
    dtype = like.dtype if isinstance(like, np.ndarray) else array_dtype_of(name)
    return converted(node, x, dtype, saturate, round_mode)


def array_dtype_of(name: str) -> np.dtype[Any]:
    """The array's dtype for a tensor's."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, None) or name)


_BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}


def _bits(dtype: np.dtype[Any]) -> int:
    return _BITS.get(dtype.name, 8 * dtype.itemsize)


@op("BitCast", raw=True)
def bitcast(node: Call, x: Value, *, to: int) -> Value:
    """The same bits read as another type of the same width; a bool is a byte of 0 or 1."""
    dtype = _named(node, to)
    was = x.dtype if isinstance(x, np.ndarray) else array_dtype_of(x.dtype.name)
    if _bits(was) != _bits(dtype):
        raise node.fail(f"{was.name} has {_bits(was)} bits and {dtype.name} {_bits(dtype)}")
    if isinstance(x, Tensor) and fits_device(dtype):
        if was == np.bool_ or dtype == np.bool_:
            through = x.cast("uint8") if was == np.bool_ else x.bitcast("uint8")
            return through.cast("bool") if dtype == np.bool_ else through.bitcast(dtype.name)
        return x.bitcast(dtype.name)
    return np.ascontiguousarray(node.host(x)).view(dtype).reshape(x.shape)
