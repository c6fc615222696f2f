"""Numbers of 32 bits read as another kind, by arithmetic: ONNX has no operator for that before opset 26.

A float is (-1)**sign * significand * 2**(exponent - 150), with the exponent in 8 bits and 23 of the significand's 24,
whose first is 1 unless the exponent is 0 (IEEE 754, section 3.4). All of it is exact in float64.
"""

from __future__ import annotations

import math

from anneal.onnx.exporting.graph_writer import GraphValue, GraphWriter
from anneal.onnx.exporting.pointwise import cast
from anneal.uop import UOp, dtypes

_F32, _F64, _I64 = dtypes.float32, dtypes.float64, dtypes.int64
_ONE = float(1 << 23)  # the significand's first bit
_SIGN = 1 << 31


def has_bits(u: UOp) -> bool:
    """True if a BITCAST is between dtypes that arithmetic can convert."""
    old, new = u.src[0].dtype, u.dtype
    return (old.is_int or old is _F32) and (new.is_int or new is _F32)


def same_bits(w: GraphWriter, u: UOp, given: list[GraphValue]) -> GraphValue:
    """BITCAST."""
    v = given[0]
    old, new = v.dtype, u.dtype
    if old.is_int and new.is_int:
        return GraphValue(cast(w, v.name, old, new), new, v.shape)
    if old is new:
        return v
    if new is _F32:
        return GraphValue(_float_of(w, cast(w, v.name, old, _I64)), new, v.shape)
    return GraphValue(cast(w, _bits_of(w, v.name), _I64, new), new, v.shape)


def _power(w: GraphWriter, exponent: str) -> str:
    return w.node("Pow", [w.scalar(_F64, 2.0), exponent])


def _bits_of(w: GraphWriter, x: str) -> str:
    """The bits of a float32 as int64, the sign not counted as negative."""
    zero, infinity = w.scalar(_F64, 0.0), w.scalar(_F64, math.inf)
    d = w.cast(x, _F64)
    size = w.node("Abs", [d])
    usual = w.node("And", [w.node("Less", [zero, size]), w.node("Less", [size, infinity])])
    held = w.node("Where", [usual, size, w.scalar(_F64, 1.0)])
    # the logarithm may be off by one where it is all but whole
    guess = w.node("Floor", [w.node("Div", [w.node("Log", [held]), w.scalar(_F64, math.log(2.0))])])
    power = _power(w, guess)
    above = w.cast(w.node("Less", [held, power]), _F64)
    below = w.cast(w.node("Not", [w.node("Less", [held, w.node("Mul", [power, w.scalar(_F64, 2.0)])])]), _F64)
    exponent = w.node("Add", [w.node("Sub", [guess, above]), below])
    exponent = w.node("Max", [exponent, w.scalar(_F64, -126.0)])
    digits = w.node("Mul", [held, _power(w, w.node("Sub", [w.scalar(_F64, 23.0), exponent]))])
    biased = w.node("Mul", [w.node("Add", [exponent, w.scalar(_F64, 126.0)]), w.scalar(_F64, _ONE)])
    bits = w.cast(w.node("Add", [biased, digits]), _I64)
    other = w.node("Where", [w.node("IsNaN", [d]), w.scalar(_I64, 0x7FC00000), w.scalar(_I64, 0x7F800000)])
    other = w.node("Where", [w.node("Equal", [size, zero]), w.scalar(_I64, 0), other])
    bits = w.node("Where", [usual, bits, other])
    # -0.0 is not less than 0, but its reciprocal is
    negative = w.node("Or", [w.node("Less", [d, zero]), w.node("Less", [w.node("Reciprocal", [d]), zero])])
    return w.node("Where", [negative, w.node("Add", [bits, w.scalar(_I64, _SIGN)]), bits])


def _float_of(w: GraphWriter, x: str) -> str:
    """The float32 of bits that int64 holds, by their lowest 32."""
    bits = w.node("Mod", [x, w.scalar(_I64, 1 << 32)])
    sign = w.node("Less", [w.scalar(_I64, _SIGN - 1), bits])
    bits = w.node("Mod", [bits, w.scalar(_I64, _SIGN)])
    exponent = w.cast(w.node("Div", [bits, w.scalar(_I64, 1 << 23)]), _F64)
    digits = w.cast(w.node("Mod", [bits, w.scalar(_I64, 1 << 23)]), _F64)
    first = w.node(
        "Where", [w.node("Equal", [exponent, w.scalar(_F64, 0.0)]), w.scalar(_F64, 0.0), w.scalar(_F64, _ONE)]
    )
    lifted = w.node("Max", [exponent, w.scalar(_F64, 1.0)])
    value = w.node("Mul", [w.node("Add", [digits, first]), _power(w, w.node("Sub", [lifted, w.scalar(_F64, 150.0)]))])
    nothing = w.node("Equal", [digits, w.scalar(_F64, 0.0)])
    other = w.node("Where", [nothing, w.scalar(_F64, math.inf), w.scalar(_F64, math.nan)])
    value = w.node("Where", [w.node("Equal", [exponent, w.scalar(_F64, 255.0)]), other, value])
    value = w.node("Where", [sign, w.node("Neg", [value]), value])
    return w.cast(value, _F32)
