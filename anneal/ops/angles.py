"""Trigonometric and hyperbolic functions and their inverses, element by element. Angles are in radians."""

from __future__ import annotations

import math

from anneal.names import Tensor
from anneal.ops.arguments import function
from anneal.ops.elementwise import choose, floats_of
from anneal.ops.functions import Operand, Sloped, as_reals, by_slope, has_sign_bit, numbers, polynomial
from anneal.uop import const

_FAR = 2.0**28  # beyond this, sqrt(x * x + 1) is x to the last bit of a float64, and x * x may overflow a float32
# the derivative of sin(t) / t, over t, by powers of t * t
_SINC = tuple([(-1) ** n * 2 * n / math.factorial(2 * n + 1) for n in range(8, 0, -1)])
_SINH = tuple([1 / math.factorial(2 * n + 1) for n in range(10, -1, -1)])  # sinh(x) / x by powers of x * x
# atan(x) = x + x z P(z) / Q(z) with z = x * x, for |x| <= 0.66 (Moshier's Cephes).
_ATAN_P = numbers("""
    -8.750608600031904122785e-1 -1.615753718733365076637e1 -7.500855792314704667340e1 -1.228866684490136173410e2
    -6.485021904942025371773e1
""")
_ATAN_Q = numbers("""
    1.0 2.485846490142306297962e1 1.650270098316988542046e2 4.328810604912902668951e2 4.853903996359136964868e2
    1.945506571482613964425e2
""")
# The same for float32, |x| <= 0.42: atan(x) = x + x z P(z).
_ATAN_P32 = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_standard = function("in_place array_api")


@_standard("autocast=float32")
@by_slope
def sinh(x: Tensor) -> Sloped:
    """The hyperbolic sine.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).sinh()
    Tensor([0.    , 1.1752], dtype=float32)
    """
    return _sinh(x), _cosh(x)


@_standard("autocast=float32")
@by_slope
def cosh(x: Tensor) -> Sloped:
    """The hyperbolic cosine.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).cosh()
    Tensor([1.    , 1.5431], dtype=float32)
    """
    return _cosh(x), _sinh(x)


@_standard("alias=arcsin autocast=float32")
@by_slope
def asin(x: Tensor) -> Sloped:
    """The angle from -pi/2 to pi/2 with this sine; nan outside [-1, 1].

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 0.5, 1.0]).asin().round(4)
    Tensor([0.    , 0.5236, 1.5708], dtype=float32)
    """
    square = (1.0 - x) * (1.0 + x)
    return _arc(x / (1.0 + square.sqrt())) * 2.0, square.rsqrt()


@_standard("alias=arccos autocast=float32")
@by_slope
def acos(x: Tensor) -> Sloped:
    """The angle from 0 to pi with this cosine; nan outside [-1, 1].

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 0.5, -1.0]).acos().round(4)
    Tensor([0.    , 1.0472, 3.1416], dtype=float32)
    """
    # from the distance to 1, which keeps its digits: pi/2 - asin(x) would lose them
    size = x.abs()
    angle = _arc(((1.0 - size) / (1.0 + size)).sqrt()) * 2.0
    return choose(x < 0.0, math.pi - angle, angle), -((1.0 - x) * (1.0 + x)).rsqrt()


@_standard("alias=arctan")
@by_slope
def atan(x: Tensor) -> Sloped:
    """The angle from -pi/2 to pi/2 with this tangent.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0, -1e9]).atan().round(4)
    Tensor([ 0.    ,  0.7854, -1.5708], dtype=float32)
    """
    steep = x.abs() > 1.0
    angle = _arc(choose(steep, 1.0 / choose(steep, x, 1.0), x))
    return choose(steep, _signed(math.pi / 2, x) - angle, angle), 1.0 / (1.0 + x * x)


@_standard("alias=arctan2 autocast=widest")
def atan2(x: Tensor, other: Operand) -> Tensor:
    """The angle from -pi to pi of the point (other, x): its tangent is x / other.

    The signs of zeros and infinities count as in NumPy. At (0, 0) the gradient is 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 1.0]).atan2(Tensor([1.0, -1.0])).round(4)
    Tensor([0.7854, 2.3562], dtype=float32)
    """
    y, x, dtype = as_reals(x, other)
    height, width = y.abs(), x.abs()
    steep = height > width
    # the smaller over the larger; equal sizes (infinities among them) are 1 or -1, and (0, 0) has no slope
    same = height.eq(width) & (width.isinf() | width.eq(0.0))
    above, below = choose(steep, x, y), choose(same, 1.0, choose(steep, y, x))
    corner = choose(width.isinf(), choose(has_sign_bit(y) ^ has_sign_bit(x), -1.0, 1.0), y.detach())
    angle = choose(same, corner, choose(same, 0.0, above) / below).atan()
    quarter, half = _signed(math.pi / 2, y), _signed(math.pi, y)
    return choose(steep, quarter - angle, choose(has_sign_bit(x), angle + half, angle)).cast(dtype)


@_standard("alias=arcsinh")
@by_slope
def asinh(x: Tensor) -> Sloped:
    """The inverse of sinh.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0, -1e9]).asinh().round(4)
    Tensor([  0.    ,   0.8814, -21.4164], dtype=float32)
    """
    size = x.abs()
    far = size > _FAR
    a = choose(far, 1.0, size)
    square = a * a
    near = (a + square / (1.0 + (1.0 + square).sqrt())).log1p()
    value = choose(far, choose(far, size, 1.0).log() + math.log(2), near)
    return choose(has_sign_bit(x), -value, value), 1.0 / choose(far, size, (1.0 + square).sqrt())


@_standard("alias=arccosh")
@by_slope
def acosh(x: Tensor) -> Sloped:
    """The inverse of cosh for numbers from 1 on; nan below.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).acosh().round(4)
    Tensor([0.   , 1.317], dtype=float32)
    """
    far = x > _FAR
    a = choose(far, 1.0, x) - 1.0
    near = (a + (a * (a + 2.0)).sqrt()).log1p()
    value = choose(far, choose(far, x, 1.0).log() + math.log(2), near)
    below = choose(x <= -1.0, x, -2.0)  # what is not below -1 gets no part in its slope
    one_below = (-1.0 - below).rsqrt() * (1.0 - below).rsqrt()
    return choose(x < 1.0, math.nan, value), choose(x <= -1.0, one_below, (x - 1.0).rsqrt() * (x + 1.0).rsqrt())


@_standard("alias=arctanh")
@by_slope
def atanh(x: Tensor) -> Sloped:
    """The inverse of tanh; infinite at -1 and 1, nan beyond.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 0.5]).atanh().round(4)
    Tensor([0.    , 0.5493], dtype=float32)
    """
    size = x.abs()
    end = size >= 1.0
    a = choose(end, 0.0, size)
    value = (a * 2.0 / (1.0 - a)).log1p() * 0.5
    value = choose(end, choose(size > 1.0, x * 0.0 + math.nan, math.inf), value)
    return choose(has_sign_bit(x), -value, value), 1.0 / ((1.0 - x) * (1.0 + x))


@_standard
def hypot(x: Tensor, other: Operand) -> Tensor:
    """sqrt(x**2 + other**2), without overflow.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3.0, 3e30]).hypot(Tensor([4.0, 4e30]))
    Tensor([5.e+00, 5.e+30], dtype=float32)
    """
    x, y, dtype = as_reals(x, other)
    # Scaled by the larger of the two, which stands for a constant: the result does not depend on it.
    scale = x.detach().abs().maximum(y.detach().abs())
    scale = choose(scale.eq(0.0) | ~scale.isfinite(), 1.0, scale)
    a, b = x / scale, y / scale
    return choose(x.isinf() | y.isinf(), math.inf, (a * a + b * b).sqrt() * scale).cast(dtype)


@function("in_place special")
@by_slope
def sinc(x: Tensor) -> Sloped:
    """sin(pi x) / (pi x), 1 at 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 0.5]).sinc().round(4)
    Tensor([1.    , 0.6366], dtype=float32)
    """
    # from the distance to the nearest integer, which is exact, where pi * x would be rounded
    size = x.abs()
    whole = size.round()
    odd = (whole - (whole * 0.5).floor() * 2.0).ne(0.0)
    angle, t = choose(odd, whole - size, size - whole) * math.pi, size * math.pi
    near, zero = t < 0.5, t.eq(0.0)
    value, cosine = choose(zero, 1.0, angle.sin() / choose(zero, 1.0, t)), angle.cos()
    # next to 0 the difference cancels
    inner = choose(near, x, 0.0) * math.pi
    series = inner * polynomial(inner * inner, _SINC) * math.pi
    return value, choose(near, series, (choose(odd, -cosine, cosine) - value) / choose(near, 1.0, x))


@function("in_place")
def deg2rad(x: Tensor) -> Tensor:
    """Degrees as radians.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 180.0]).deg2rad()
    Tensor([0.    , 3.1416], dtype=float32)
    """
    return floats_of(x) * (math.pi / 180)


@function("in_place")
def rad2deg(x: Tensor) -> Tensor:
    """Radians as degrees.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 3.14159265]).rad2deg()
    Tensor([  0., 180.], dtype=float32)
    """
    return floats_of(x) * (180 / math.pi)


def _half_exp(x: Tensor) -> Tensor:
    """exp(x) / 2 for x >= 0, finite to the end of sinh and cosh. From 0.5 on, x - 1 is exact."""
    return (x - 1.0).exp() * (math.e / 2)


def _cosh(x: Tensor) -> Tensor:
    half = _half_exp(x.abs())
    return half + 0.25 / half


def _sinh(x: Tensor) -> Tensor:
    size = x.abs()
    near = size < 1.0
    inner, half = choose(near, x, 0.0), _half_exp(choose(near, 1.0, size))
    far = half - 0.25 / half
    table = _SINH if x.uop.dtype.bits == 64 else _SINH[-6:]
    return choose(near, inner * polynomial(inner * inner, table), choose(has_sign_bit(x), -far, far))


def _arc(x: Tensor) -> Tensor:
    """atan(x) for |x| <= 1."""
    size = x.abs()
    outer = size > 0.42
    t = choose(outer, (size - 1.0) / (size + 1.0), size)
    z = t * t
    bend = polynomial(z, _ATAN_P32) if x.uop.dtype.bits == 32 else polynomial(z, _ATAN_P) / polynomial(z, _ATAN_Q)
    angle = t + t * (z * bend)
    angle = choose(outer, angle + math.pi / 4, angle)
    return choose(has_sign_bit(x), -angle, angle)


def _signed(size: float, sign: Tensor) -> Tensor:
    """`size` with the sign of each element."""
    return choose(has_sign_bit(sign), sign._new_plain(const(sign.uop.dtype, -size)), size)
