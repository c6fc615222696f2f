"""Interval arithmetic: inclusive bounds of integer and bool nodes from those of their sources; and the questions about
constants and casts that folding asks.

A result that may leave its dtype wraps around, so its bounds are the dtype's whole range; `exact` reads this back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from anneal.uop.dtype import DType

Pair = tuple[Any, Any]


def kept(_: DType, src: Any, _arg: Any) -> Pair:
    return src[0].vmin, src[0].vmax


def called(dtype: DType, src: Any, arg: Any) -> Pair:
    found = (arg[0].results or src)[arg[1]]
    return (None, None) if dtype.is_float else (found.vmin, found.vmax)


def _within(dtype: DType, lo: int, hi: int) -> Pair:
    if dtype.min <= lo and hi <= dtype.max:
        return lo, hi
    return dtype.min, dtype.max


def add(dtype: DType, src: Any) -> Pair:
    a, b = src
    if dtype.kind == "bool":
        return a.vmin or b.vmin, a.vmax or b.vmax
    return _within(dtype, a.vmin + b.vmin, a.vmax + b.vmax)


def sub(dtype: DType, src: Any) -> Pair:
    a, b = src
    return _within(dtype, a.vmin - b.vmax, a.vmax - b.vmin)


def mul(dtype: DType, src: Any) -> Pair:
    a, b = src
    if dtype.kind == "bool":
        return a.vmin and b.vmin, a.vmax and b.vmax
    corners = (a.vmin * b.vmin, a.vmin * b.vmax, a.vmax * b.vmin, a.vmax * b.vmax)
    return _within(dtype, min(corners), max(corners))


def idiv(dtype: DType, src: Any) -> Pair:
    a, b = src
    if b.vmin > 0 or b.vmax < 0:
        corners = (a.vmin // b.vmin, a.vmin // b.vmax, a.vmax // b.vmin, a.vmax // b.vmax)
        return _within(dtype, min(corners), max(corners))
    return dtype.min, dtype.max


def mod(dtype: DType, src: Any) -> Pair:
    a, b = src
    if b.vmin <= 0:
        return dtype.min, dtype.max
    if b.vmin == b.vmax:
        c = b.vmin
        if a.vmin // c == a.vmax // c:
            return a.vmin % c, a.vmax % c
    elif a.vmin >= 0 and a.vmax < b.vmin:
        return a.vmin, a.vmax
    return 0, b.vmax - 1


def greater(_: DType, src: Any) -> Pair:
    a, b = src
    return max(a.vmin, b.vmin), max(a.vmax, b.vmax)


def lesser(_: DType, src: Any) -> Pair:
    a, b = src
    return min(a.vmin, b.vmin), min(a.vmax, b.vmax)


def both(dtype: DType, src: Any) -> Pair:
    a, b = src
    if dtype.kind == "bool":
        return a.vmin and b.vmin, a.vmax and b.vmax
    if a.vmin >= 0:
        return 0, min(a.vmax, b.vmax) if b.vmin >= 0 else a.vmax
    return (0, b.vmax) if b.vmin >= 0 else (dtype.min, dtype.max)


def either(dtype: DType, src: Any) -> Pair:
    a, b = src
    if dtype.kind == "bool":
        return a.vmin or b.vmin, a.vmax or b.vmax
    if a.vmin >= 0 and b.vmin >= 0:
        return max(a.vmin, b.vmin), (1 << max(a.vmax, b.vmax).bit_length()) - 1
    return dtype.min, dtype.max


def xor(dtype: DType, src: Any) -> Pair:
    a, b = src
    if dtype.kind != "bool" and a.vmin >= 0 and b.vmin >= 0:
        return 0, (1 << max(a.vmax, b.vmax).bit_length()) - 1
    return dtype.min, dtype.max


def shl(dtype: DType, src: Any) -> Pair:
    a, b = src
    if b.vmin == b.vmax and 0 <= b.vmin < dtype.bits:
        return _within(dtype, a.vmin << b.vmin, a.vmax << b.vmin)
    return dtype.min, dtype.max


def shr(dtype: DType, src: Any) -> Pair:
    a, b = src
    if b.vmin == b.vmax and 0 <= b.vmin < dtype.bits:
        return a.vmin >> b.vmin, a.vmax >> b.vmin
    return dtype.min, dtype.max


def neg(dtype: DType, src: Any) -> Pair:
    (a,) = src
    return _within(dtype, -a.vmax, -a.vmin)


def magnitude(dtype: DType, src: Any) -> Pair:
    (a,) = src
    if a.vmin >= 0:
        return a.vmin, a.vmax
    return _within(dtype, 0 if a.vmax >= 0 else -a.vmax, max(-a.vmin, a.vmax))


def signum(_: DType, src: Any) -> Pair:
    (a,) = src
    return (a.vmin > 0) - (a.vmin < 0), (a.vmax > 0) - (a.vmax < 0)


def invert(dtype: DType, src: Any) -> Pair:
    (a,) = src
    if dtype.kind == "bool":
        return not a.vmax, not a.vmin
    return (~a.vmax, ~a.vmin) if dtype.kind == "int" else (dtype.max - a.vmax, dtype.max - a.vmin)


def cast(dtype: DType, src: Any) -> Pair:
    (a,) = src
    if a.dtype.is_float:
        return dtype.min, dtype.max
    if dtype.kind == "bool":
        return a.vmin > 0 or a.vmax < 0, a.vmin != 0 or a.vmax != 0
    return _within(dtype, int(a.vmin), int(a.vmax))


def lt(_: DType, src: Any) -> Pair:
    a, b = src
    if a.vmin is None or b.vmin is None:
        return False, True
    return a.vmax < b.vmin, a.vmin < b.vmax


def eq(_: DType, src: Any) -> Pair:
    a, b = src
    if a.vmin is None or b.vmin is None:
        return False, True
    return a.vmin == a.vmax == b.vmin == b.vmax, a.vmax >= b.vmin and b.vmax >= a.vmin


def ne(dtype: DType, src: Any) -> Pair:
    lo, hi = eq(dtype, src)
    return not hi, not lo


def where(_: DType, src: Any) -> Pair:
    p, a, b = src
    if p.vmin == p.vmax:
        return (a.vmin, a.vmax) if p.vmin else (b.vmin, b.vmax)
    return min(a.vmin, b.vmin), max(a.vmax, b.vmax)


def exact(u: Any) -> bool:
    """True if the integer node `u` is known not to wrap around.

    Bounds of a node that may wrap are the dtype's whole range (see `node.py`), so narrower ones are a proof.
    """
    return bool(u.vmin > u.dtype.min or u.vmax < u.dtype.max)


def divides(c: Any, d: Any) -> bool:
    """True if the constant `c` is positive and divides the constant `d`."""
    return bool(c.arg > 0 and d.arg % c.arg == 0)


def below(u: Any, c: Any) -> bool:
    """True if all values of `u` are at least 0 and less than the constant `c`."""
    return bool(u.vmin >= 0 and u.vmax < c.arg)


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
            # the smallest number matters too, and an infinity of `a` needs one in `b`
            reach = a.least - a.digits >= b.least - b.digits and a.largest <= b.largest
            return a.digits <= b.digits and reach and b.has_infinity >= a.has_infinity
        return a.bits <= b.digits and a.max <= b.largest
    return a.is_int and b.is_int and bool(b.min <= a.min and a.max <= b.max)


def calculated(c: Any, f: Callable[[float], float], whole: bool = False) -> Any:
    """The constant `f(c)`, with the sign of c if it is `whole`; None where Python raises: what the device does there is
    left to the device.
    """
    try:
        result = f(c.arg)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
    return c.const_like(math.copysign(result, c.arg) if whole else result)


def inverse(dtype: DType, value: float) -> float:
    """1/value when that is exact (powers of two well inside the range), else 0."""
    if value == 0 or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return 0.0
    return 1 / value if abs(math.frexp(value)[1] - 1) < -dtype.least else 0.0


def sign(value: float) -> float:
    """-1, 0 or 1; nan stays nan."""
    return value if value != value else (value > 0) - (value < 0)


def extreme(a: Any, b: Any, pick: Callable[..., Any]) -> Any:
    """`max` or `min` of two constants, as `pick` says: nan if either is; None for zeros of unlike signs, of which a
    device gives either.
    """
    if a != a or b != b:
        return math.nan
    if a == b == 0 and math.copysign(1.0, a) != math.copysign(1.0, b):
        return None
    return pick(a, b)
