"""Questions of the creation rules: did this integer node wrap, may this cast go, what is f(constant)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from anneal.uop.dtype import DType, Number
from anneal.uop.ops import Op


def reduce_identity(op: Op, dtype: DType) -> Number:
    """The value that a reduction by `op` starts from, and gives over nothing.

    >>> from anneal.uop.dtype import dtypes
    >>> [reduce_identity(op, dtypes.int8) for op in (Op.ADD, Op.MUL, Op.MAX, Op.MIN)]
    [0, 1, -128, 127]
    """
    if op is Op.ADD:
        return 0
    if op is Op.MUL:
        return 1
    return dtype.min if op is Op.MAX else dtype.max


def exact(u: Any) -> bool:
    """True if the integer node `u` is known not to wrap around.

    Bounds of a node that may wrap are the dtype's whole range (see `node.py`), so narrower ones are a proof.
    """
    return bool(u.vmin > u.dtype.min or u.vmax < u.dtype.max)


def lossless(a: DType, b: DType) -> bool:
    """True if every value of `a` survives a cast to `b` unchanged.

    >>> from anneal.uop.dtype import dtypes
    >>> lossless(dtypes.uint8, dtypes.int16), lossless(dtypes.int32, dtypes.float32)
    (True, False)
    """
    if a is b or a.kind == "bool":
        return True
    if b.kind == "float":
        if a.kind == "float":
            # the smallest number of all counts too, and an infinity needs one
            reach = a.least - a.digits >= b.least - b.digits and a.largest <= b.largest
            return a.digits <= b.digits and reach and b.has_infinity >= a.has_infinity
        return a.bits <= b.digits and a.max <= b.largest
    return a.is_int and b.is_int and bool(b.min <= a.min and a.max <= b.max)


def calc(f: Callable[..., float], *values: float) -> float | None:
    """`f(*values)`, or None where Python raises: what the device does there is left to the device."""
    try:
        result = f(*values)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
    return None if isinstance(result, complex) else result


def inverse(dtype: DType, value: float) -> float:
    """1/value when that is exact (powers of two well inside the range), else 0."""
    if value == 0 or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return 0.0
    return 1 / value if abs(math.frexp(value)[1] - 1) < -dtype.least else 0.0


def sign(value: float) -> float:
    """-1, 0 or 1; nan stays nan."""
    return value if value != value else (value > 0) - (value < 0)


def greatest(a: Any, b: Any) -> Any:
    """The larger of two constants, nan if either is; None for zeros of unlike signs, of which a device gives either."""
    return _extreme(a, b, a > b)


def least(a: Any, b: Any) -> Any:
    """The smaller of two constants, nan if either is; None for zeros of unlike signs, of which a device gives
    either.
    """
    return _extreme(a, b, a < b)


def _extreme(a: Any, b: Any, first: bool) -> Any:
    if a != a or b != b:
        return math.nan
    if a == b == 0 and math.copysign(1.0, a) != math.copysign(1.0, b):
        return None
    return a if first else b
