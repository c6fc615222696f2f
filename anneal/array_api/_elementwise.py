"""Functions element by element: the standard's names for ops of tensors.

One operand may be a Python number, which takes the dtype of the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from anneal import ops
from anneal.array_api._dtypes import standards
from anneal.errors import DTypeError
from anneal.tensor import Tensor, dtypes

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign", "cos",
    "cosh", "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot", "imag",
    "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log1p", "log2", "log10", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter", "not_equal",
    "positive", "pow", "real", "reciprocal", "remainder", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square",
    "subtract", "tan", "tanh", "trunc",
]  # fmt: skip

Unary = Callable[[Tensor], Tensor]
Binary = Callable[[Any, Any], Tensor]


def _one(name: str, op: Callable[..., Tensor], said: str) -> Unary:
    def function(x: Tensor, /) -> Tensor:
        return op(x)

    named: Unary = _named(function, name, said)
    return named


def _two(name: str, op: Callable[..., Tensor], said: str) -> Binary:
    def function(x1: Any, x2: Any, /) -> Tensor:
        if isinstance(x1, Tensor):
            return op(x1, x2)
        if not isinstance(x2, Tensor):
            raise DTypeError(f"{name}: one of the two is an array; asarray makes one of a number")
        return op(x2._lift(name, x1), x2)

    named: Binary = _named(function, name, said)
    return named


def _named(function: Any, name: str, said: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__module__ = "anneal.array_api"
    function.__doc__ = said
    return function


def _floored(x: Tensor, y: Any) -> Tensor:
    """The floor of a quotient, by the standard's table of infinities: inf // 2 is inf, 1 // -inf is -0.0."""
    q: Tensor = ops.floor_divide(x, y)
    if not q.dtype.is_float:
        return q
    far = ops.isinf(x)
    if isinstance(y, Tensor) or math.isinf(y):
        far = far | ops.isinf(x._lift("floor_divide", y))
    return far.where(ops.div(x, y), q)


def _of_integers(op: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """An op that leaves integers as they are."""
    return lambda x: op(x) if x.dtype.is_float else x


abs = _one("abs", ops.abs, "The size of each element.")
acos = _one("acos", ops.acos, "The inverse cosine.")
acosh = _one("acosh", ops.acosh, "The inverse hyperbolic cosine.")
asin = _one("asin", ops.asin, "The inverse sine.")
asinh = _one("asinh", ops.asinh, "The inverse hyperbolic sine.")
atan = _one("atan", ops.atan, "The inverse tangent.")
atanh = _one("atanh", ops.atanh, "The inverse hyperbolic tangent.")
bitwise_invert = _one("bitwise_invert", ops.bitwise_not, "Every bit the other way; of bools, not.")
ceil = _one("ceil", _of_integers(ops.ceil), "The least integer that is not below.")
conj = _one("conj", lambda x: x, "The complex conjugate: of real numbers, themselves.")
cos = _one("cos", ops.cos, "The cosine.")
cosh = _one("cosh", ops.cosh, "The hyperbolic cosine.")
exp = _one("exp", ops.exp, "e to the power of each element.")
expm1 = _one("expm1", ops.expm1, "exp(x) - 1, with its digits near 0.")
floor = _one("floor", _of_integers(ops.floor), "The largest integer that is not above.")
imag = _one("imag", ops.zeros_like, "The imaginary part: of real numbers, 0.")
isfinite = _one("isfinite", ops.isfinite, "True where an element is neither infinite nor nan.")
isinf = _one("isinf", ops.isinf, "True where an element is infinite.")
isnan = _one("isnan", ops.isnan, "True where an element is nan.")
log = _one("log", ops.log, "The natural logarithm.")
log1p = _one("log1p", ops.log1p, "log(1 + x), with its digits near 0.")
log2 = _one("log2", ops.log2, "The logarithm to base 2.")
log10 = _one("log10", ops.log10, "The logarithm to base 10.")
logical_not = _one("logical_not", ops.logical_not, "True where an element is 0.")
negative = _one("negative", ops.neg, "Minus each element.")
positive = _one("positive", ops.positive, "Each element as it is.")
real = _one("real", lambda x: x, "The real part: of real numbers, themselves.")
reciprocal = _one("reciprocal", ops.reciprocal, "1 over each element.")
round = _one("round", _of_integers(ops.round), "The nearest integer, of two the even one.")
sign = _one("sign", ops.sign, "-1, 0 or 1.")
signbit = _one("signbit", ops.signbit, "True where the sign is minus, also of -0.0 and nan.")
sin = _one("sin", ops.sin, "The sine.")
sinh = _one("sinh", ops.sinh, "The hyperbolic sine.")
sqrt = _one("sqrt", ops.sqrt, "The square root.")
square = _one("square", standards(ops.square), "Each element times itself.")
tan = _one("tan", ops.tan, "The tangent.")
tanh = _one("tanh", ops.tanh, "The hyperbolic tangent.")
trunc = _one("trunc", _of_integers(ops.trunc), "The nearest integer that is not farther from 0.")

add = _two("add", standards(ops.add), "x1 + x2.")
atan2 = _two("atan2", ops.atan2, "The angle of the point (x2, x1).")
bitwise_and = _two("bitwise_and", ops.bitwise_and, "The bits that both have.")
bitwise_left_shift = _two(
    "bitwise_left_shift", standards(ops.bitwise_left_shift), "The bits of x1 moved up by x2 places."
)
bitwise_or = _two("bitwise_or", ops.bitwise_or, "The bits that either has.")
bitwise_right_shift = _two("bitwise_right_shift", ops.bitwise_right_shift, "The bits of x1 moved down by x2 places.")
bitwise_xor = _two("bitwise_xor", ops.bitwise_xor, "The bits that one of both has.")
copysign = _two("copysign", ops.copysign, "The size of x1 with the sign of x2.")
divide = _two("divide", ops.div, "x1 / x2, a float.")
equal = _two("equal", ops.eq, "True where x1 == x2.")
floor_divide = _two(
    "floor_divide",
    _floored,
    "The largest integer that is not above x1 / x2; of infinities x1 / x2, where `x1 // x2` is Python's.",
)
greater = _two("greater", ops.gt, "True where x1 > x2.")
greater_equal = _two("greater_equal", ops.ge, "True where x1 >= x2.")
hypot = _two("hypot", ops.hypot, "The square root of x1**2 + x2**2, without overflow.")
less = _two("less", ops.lt, "True where x1 < x2.")
less_equal = _two("less_equal", ops.le, "True where x1 <= x2.")
logaddexp = _two("logaddexp", ops.logaddexp, "log(exp(x1) + exp(x2)), without overflow.")
logical_and = _two("logical_and", ops.logical_and, "True where both differ from 0.")
logical_or = _two("logical_or", ops.logical_or, "True where either differs from 0.")
logical_xor = _two("logical_xor", ops.logical_xor, "True where exactly one differs from 0.")
maximum = _two("maximum", ops.maximum, "The larger one; nan if either is.")
minimum = _two("minimum", ops.minimum, "The smaller one; nan if either is.")
multiply = _two("multiply", standards(ops.mul), "x1 * x2.")
nextafter = _two("nextafter", ops.nextafter, "The float next to x1, towards x2.")
not_equal = _two("not_equal", ops.ne, "True where x1 != x2.")
pow = _two("pow", standards(ops.pow), "x1 to the power of x2.")
remainder = _two("remainder", ops.remainder, "The remainder of floor_divide, with the sign of x2.")
subtract = _two("subtract", standards(ops.sub), "x1 - x2.")


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """The elements clamped to [min, max], in the dtype of x; either may be left out, or be an array that broadcasts.

    >>> clip(Tensor([1, 5, 9]), 2, 6)
    Tensor([2, 5, 6], dtype=int32)
    """
    for bound in (min, max):
        if isinstance(bound, Tensor) and bound.dtype is not x.dtype and bound.dtype.is_float and not x.dtype.is_float:
            raise DTypeError(f"clip: bounds of {bound.dtype.name} for {x.dtype.name}; use astype")
    if min is None and max is None:
        return x
    return x.clamp(min, max).cast(x.dtype) if x.dtype is not dtypes.bool_ else x
