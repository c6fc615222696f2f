"""Functions of real numbers and activations, element by element. Integers and bools become float32 first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from anneal.doors import named
from anneal.names import Tensor
from anneal.ops.arguments import family, function
from anneal.ops.checks import is_tensor

from anneal.ops.elementwise import (  # isort: skip
    beside, by_slopes, choose, floats_of, has_sign, one_over, operands, power, real_node, unary,
)  # fmt: skip
from anneal.ops.nodes import BOOL, FLOAT32, broadcast
from anneal.uop import DType, Op, by_rule

Operand = Any  # a tensor, an array or a Python number


def numbers(text: str) -> tuple[float, ...]:
    """The numbers of a table."""
    return tuple(map(float, text.split()))


_ARTANH = tuple([2 / (2 * n + 1) for n in range(11, -1, -1)])  # 2 artanh(s) / s by powers of s * s
_EXPM1 = tuple([1 / math.factorial(n) for n in range(9, 0, -1)])  # (exp(x) - 1) / x by powers of x
# erfc(x) = t exp(-x * x + T(4t - 2)) with t = 2 / (2 + x), for x >= 0: the Chebyshev series T (Numerical Recipes).
_ERFC = numbers("""
    -1.3026537197817094 6.4196979235649026e-1 1.9476473204185836e-2 -9.561514786808631e-3 -9.46595344482036e-4
    3.66839497852761e-4 4.2523324806907e-5 -2.0278578112534e-5 -1.624290004647e-6 1.303655835580e-6
    1.5626441722e-8 -8.5238095915e-8 6.529054439e-9 5.059343495e-9 -9.91364156e-10 -2.27365122e-10 9.6467911e-11
    2.394038e-12 -6.886027e-12 8.94487e-13 3.13092e-13 -1.12708e-13 3.81e-16 7.106e-15 -1.523e-15 -9.4e-17
    1.21e-16 -2.8e-17
""")
# erfinv(x) = x P(w - 2.5), or x P(sqrt(w) - 3) from w = 5, with w = -log(1 - x * x), to a float32 (Giles, 2010).
_ERFINV = numbers("""
    2.81022636e-08 3.43273939e-07 -3.5233877e-06 -4.39150654e-06 0.00021858087 -0.00125372503 -0.00417768164
    0.246640727 1.50140941
""")
_ERFINV_FAR = numbers("""
    -0.000200214257 0.000100950558 0.00134934322 -0.00367342844 0.00573950773 -0.0076224613 0.00943887047
    1.00167406 2.83297682
""")
_standard = function("in_place array_api")
_special = function("in_place special")


# -- functions of real numbers ----------------------------------------------------------------------------------------

# Functions that devices have are used as they are; the rest are formulas in these, which keep a value's digits near 0
# and near the ends of the domain. Where the slope is a short formula of its own, it stands beside the value (SPEC.md,
# section 4).


Sloped = tuple[Tensor, Tensor]  # a value, and its slope


class _Op(Protocol):
    def __call__(self, x: Tensor) -> Tensor: ...


def by_slope(function: Callable[[Tensor], Sloped]) -> _Op:
    """A function given as its value and its slope, both made of its tensor as float32 or wider."""

    def op(x: Tensor) -> Tensor:
        u = real_node(x)
        floats = x._new(u if u.dtype.bits >= 32 else u.cast(FLOAT32))
        value, slope = function(floats)
        return x._new(by_rule("slope", value.uop, floats.uop, slope.uop).cast(u.dtype))

    op.__doc__, op.__module__ = function.__doc__, function.__module__
    return named(op, function.__name__)


def _real(name: str, op: Op, x: Tensor) -> Tensor:
    """An op of floats; integers become float32."""
    return x._new(op(real_node(x)))


exp, exp2, log, log2, sqrt, rsqrt, erf, sin, cos, tan, tanh = family(
    _real,
    "in_place",
    """
    exp array_api autocast=float32:
    e ** x.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0, 1]).exp().round(4)
    Tensor([1.    , 2.7183], dtype=float32)

    exp2 special:
    2 ** x.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0, 3]).exp2()
    Tensor([1., 8.], dtype=float32)

    log array_api autocast=float32:
    The natural logarithm; -inf at 0, nan below.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 10.0]).log()
    Tensor([0.    , 2.3026], dtype=float32)

    log2 array_api autocast=float32:
    The logarithm to base 2.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 8.0]).log2()
    Tensor([0., 3.], dtype=float32)

    sqrt array_api:
    The square root; nan below 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([4.0, 16.0]).sqrt()
    Tensor([2., 4.], dtype=float32)

    rsqrt autocast=float32:
    1 / sqrt(x).

    >>> from anneal.tensor import Tensor
    >>> Tensor([4.0, 16.0]).rsqrt()
    Tensor([0.5 , 0.25], dtype=float32)

    erf special:
    The error function.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).erf()
    Tensor([0.    , 0.8427], dtype=float32)

    sin array_api:
    The sine of an angle in radians.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).sin()
    Tensor([0.    , 0.8415], dtype=float32)

    cos array_api:
    The cosine of an angle in radians.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).cos()
    Tensor([1.    , 0.5403], dtype=float32)

    tan array_api autocast=float32:
    The tangent of an angle in radians.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).tan()
    Tensor([0.    , 1.5574], dtype=float32)

    tanh array_api functional:
    The hyperbolic tangent.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).tanh()
    Tensor([0.    , 0.7616], dtype=float32)
    """,
    {
        "exp": Op.EXP,
        "exp2": Op.EXP2,
        "log": Op.LOG,
        "log2": Op.LOG2,
        "sqrt": Op.SQRT,
        "rsqrt": Op.RSQRT,
        "erf": Op.ERF,
        "sin": Op.SIN,
        "cos": Op.COS,
        "tan": Op.TAN,
        "tanh": Op.TANH,
    },
)


@_standard("special autocast=float32 single")
def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1, exact for small values too.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).expm1()
    Tensor([0.    , 1.7183], dtype=float32)
    """
    # Near 0 the difference cancels.
    x = floats_of(x)
    if x.uop.dtype.bits == 64:
        # 2t / (1 - t) with t = tanh(x / 2) is the same function and does not
        near = x.abs() < 1.0
        half = unary(choose(near, x, 0.0) * 0.5, Op.TANH)
        return choose(near, (half + half) / (1.0 - half), x.exp() - 1.0)
    # A GPU's tanh is coarse near 0: there, the series, to the last bit of a float32.
    near = x.abs() < 0.5
    inner = choose(near, x, 0.0)
    return choose(near, inner * polynomial(inner, _EXPM1), x.exp() - 1.0)


@_standard("autocast=float32 single")
def log10(x: Tensor) -> Tensor:
    """The logarithm to base 10.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 100.0]).log10()
    Tensor([0., 2.], dtype=float32)
    """
    return _real("log10", Op.LOG2, x) * math.log10(2)


@_standard("special autocast=float32 single")
def log1p(x: Tensor) -> Tensor:
    """log(1 + x), exact for small values too.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).log1p()
    Tensor([0.    , 0.6931], dtype=float32)
    """
    x = floats_of(x)
    # 1 + x is rounded, and a GPU's log is coarse next to 1: there, 2 artanh(x / (2 + x)) by its series, to the last
    # bit.
    near = x.abs() < 0.25
    inner = choose(near, x, 0.0)
    s = inner / (inner + 2.0)
    series = s * polynomial(s * s, _ARTANH if x.uop.dtype.bits == 64 else _ARTANH[-5:])
    return choose(near, series, (1.0 + x).log())


@_standard("autocast=float32")
def reciprocal(x: Tensor) -> Tensor:
    """1 / x.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0, 4.0]).reciprocal()
    Tensor([0.5 , 0.25], dtype=float32)
    """
    return one_over(x)


@_standard
def square(x: Tensor) -> Tensor:
    """x * x; of bools as int32.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2, -3]).square()
    Tensor([4, 9], dtype=int32)
    """
    return power(x, 2, False)


@_special
@by_slope
def erfc(x: Tensor) -> Sloped:
    """1 - erf(x), which keeps its digits where erf is near 1.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).erfc().round(4)
    Tensor([1.    , 0.1573], dtype=float32)
    """
    tail = _upper_tail(x.abs().minimum(40.0))
    return choose(x < 0.0, 2.0 - tail, tail), (x * x).neg().exp() * (-2 / math.sqrt(math.pi))


@_special("autocast=float32")
@by_slope
def erfinv(x: Tensor) -> Sloped:
    """The inverse of erf: infinite at -1 and 1, nan beyond.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 0.5]).erfinv().round(4)
    Tensor([0.    , 0.4769], dtype=float32)
    """
    end = x.abs().eq(1.0)
    inner = choose(end, 0.0, x)
    w = -((1.0 - inner) * (1.0 + inner)).log()
    far = w >= 5.0
    near = polynomial(choose(far, 0.0, w) - 2.5, _ERFINV)
    y = inner * choose(far, polynomial(choose(far, w, 5.0).sqrt() - 3.0, _ERFINV_FAR), near)
    if x.uop.dtype.bits == 64:
        for _ in range(2):  # Newton's steps, from the side that keeps its digits
            size, flat = y.abs(), (y * y).exp() * (math.sqrt(math.pi) / 2)
            lower, upper = size.erf() - inner.abs(), (1.0 - inner.abs()) - _upper_tail(size)
            step = choose(size < 0.5, lower, upper) * flat
            y = choose(y < 0.0, y + step, y - step)
    slope = (y * y).exp() * (math.sqrt(math.pi) / 2)
    return choose(end, x * math.inf, y), choose(end, math.inf, slope)


@function("array_api single")
def logaddexp(x: Tensor, other: Operand) -> Tensor:
    """log(exp(x) + exp(other)), without overflow.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1000.0]).logaddexp(Tensor([1000.0])).round(1)
    Tensor([1000.7], dtype=float32)
    """
    o = x._lift(other)
    top = x.maximum(o).detach()
    safe = choose(top.isinf(), 0.0, top)
    # the larger term is 1, and left out: what the smaller one adds keeps its digits
    mine, theirs, first = x - safe, o - safe, x >= o
    rest = choose(first, mine.expm1(), mine.exp()) + choose(first, theirs.exp(), theirs.expm1())
    out = rest.log1p() + safe
    return by_slopes(out, (x, (x - o).sigmoid()), (o, (o - x).sigmoid())) if out.requires_grad else out


# -- inverse and further functions ------------------------------------------------------------------------------------


@function
@by_slope
def cbrt(x: Tensor) -> Sloped:
    """The cube root, of negative numbers too.

    >>> from anneal.tensor import Tensor
    >>> Tensor([27.0, -8.0]).cbrt().round(4)
    Tensor([ 3., -2.], dtype=float32)
    """
    size = x.abs()
    plain = size.eq(0.0) | ~x.isfinite()
    a = choose(plain, 1.0, size)
    root = (a.log2() * (1 / 3)).exp2()
    root = root - (root - a / (root * root)) * (1 / 3)  # one step of Newton's: exact to the last bits
    return choose(plain, x, choose(x < 0.0, -root, root)), size ** (-2 / 3) * (1 / 3)


def as_reals(x: Tensor, other: Operand) -> tuple[Tensor, Tensor, DType]:
    """The two operands as floats of 32 bits or more, in one shape, and the dtype of the result."""
    a, b, shape, o = operands(x, other)
    dtype = a.dtype if a.dtype.is_float else FLOAT32
    wide = dtype if dtype.bits >= 32 else FLOAT32
    return x._new(broadcast(a.cast(wide), shape)), o._new(broadcast(b.cast(wide), shape)), dtype


@function("array_api")
def signbit(x: Tensor) -> Tensor:
    """True for each negative element, -0.0 too.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-0.0, 0.0, -2.0]).signbit()
    Tensor([ True, False,  True], dtype=bool)
    """
    return has_sign_bit(x) if x.uop.dtype.is_float else x < 0


@_standard
def copysign(x: Tensor, other: Operand) -> Tensor:
    """The size of x with the sign of other.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, -2.0]).copysign(-1.0)
    Tensor([-1., -2.], dtype=float32)
    """
    x, y, dtype = as_reals(x, other)
    apart = has_sign_bit(x) ^ has_sign_bit(y)
    # at 0 the size has no slope, as in torch
    slope = choose(x.eq(0.0), 0.0, choose(apart, -1.0, 1.0))
    u = by_rule("slope", choose(apart, -x, x).uop, x.uop, slope.uop)
    return x._new(beside(u, y), y).cast(dtype)


@_special("lifts=number")
def xlogy(x: Tensor, other: Operand) -> Tensor:
    """x * log(other), 0 where x is 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 2.0]).xlogy(Tensor([0.0, 1.0]))
    Tensor([0., 0.], dtype=float32)
    """
    x, y, dtype = as_reals(x, other)
    # where x is 0 and the logarithm is finite, it is the slope all the same
    still = x.eq(0.0) & (y.le(0.0) | y.eq(math.inf))
    return choose(still, 0.0, x * choose(still, 1.0, y).log()).cast(dtype)


@_special("single")
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of sigmoid; with `eps`, x is clipped to [eps, 1 - eps] first.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.5, 0.75]).logit().round(4)
    Tensor([0.    , 1.0986], dtype=float32)
    """
    x = floats_of(x)
    if eps is not None:
        x = choose(x < eps, eps, choose(x > 1 - eps, 1 - eps, x))
    out = x.log() - (-x).log1p()
    if not out.requires_grad:
        return out
    return by_slopes(out, (x, choose((x < 0.0) | (x > 1.0), math.nan, 1.0 / (x * (1.0 - x)).abs())))


@function("in_place")
def heaviside(x: Tensor, values: Operand) -> Tensor:
    """0 below 0, 1 above, `values` at 0; nan stays nan.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 0.0, 2.0]).heaviside(0.5)
    Tensor([0. , 0.5, 1. ], dtype=float32)
    """
    if x.dtype is BOOL and (is_tensor(values) and values.dtype is BOOL):
        return x | values
    return choose(x.eq(0), values, x.sign().maximum(0))


def _upper_tail(x: Tensor) -> Tensor:
    """erfc(x) for 0 <= x <= 40."""
    t = 2.0 / (x + 2.0)
    u = t * 4.0 - 2.0
    series = _ERFC if x.uop.dtype.bits == 64 else _ERFC[:12]
    a = b = t * 0.0
    for c in series[:0:-1]:  # Clenshaw's recurrence
        a, b = u * a - b + c, a
    # the square in two parts, of which the first is exact: a rounded one would cost digits of the result
    high = (x * 16.0).trunc() * (1 / 16)
    rest = (u * a + series[0]) * 0.5 - b - (x - high) * (x + high)
    return t * (high * high).neg().exp() * rest.exp()


def polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Horner's rule, the highest power first; two coefficients or more."""
    y = x * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        y = x * y + c
    return y


def has_sign_bit(x: Tensor) -> Tensor:
    """True for each element whose sign bit is set."""
    u = x.uop
    return x._new_plain(broadcast(has_sign(u), u.shape))
