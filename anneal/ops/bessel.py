"""Bessel's functions of orders 0 and 1, plain and modified, by the polynomials of Abramowitz and Stegun, 9.4 and 9.8.

They are good to 1e-7 of the value (of the largest values nearby, where a function goes through 0): float32 throughout.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from anneal.ops.arguments import function
from anneal.ops.elementwise import choose
from anneal.ops.functions import by_slope, polynomial

if TYPE_CHECKING:
    from anneal.tensor import Tensor

# fmt: off
# The highest power first: near 0, by powers of (x / limit)**2; far, of limit / x.
_I0_NEAR = (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0)
_I0_FAR = (0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565,
           0.00225319, 0.01328592, 0.39894228)
_I1_NEAR = (0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5)
_I1_FAR = (-0.00420059, 0.01787654, -0.02895312, 0.02282967, -0.01031555, 0.00163801,
           -0.00362018, -0.03988024, 0.39894228)
_K0_NEAR = (0.00000740, 0.00010750, 0.00262698, 0.03488590, 0.23069756, 0.42278420, -0.57721566)
_K0_FAR = (0.00053208, -0.00251540, 0.00587872, -0.01062446, 0.02189568, -0.07832358, 1.25331414)
_K1_NEAR = (-0.00004686, -0.00110404, -0.01919402, -0.18156897, -0.67278579, 0.15443144, 1.0)
_K1_FAR = (-0.00068245, 0.00325614, -0.00780353, 0.01504268, -0.03655620, 0.23498619, 1.25331414)
_J0_NEAR = (0.0002100, -0.0039444, 0.0444479, -0.3163866, 1.2656208, -2.2499997, 1.0)
_J1_NEAR = (0.00001109, -0.00031761, 0.00443319, -0.03954289, 0.21093573, -0.56249985, 0.5)
_Y0_NEAR = (-0.00024846, 0.00427916, -0.04261214, 0.25300117, -0.74350384, 0.60559366, 0.36746691)
_Y1_NEAR = (0.0027873, -0.0400976, 0.3123951, -1.3164827, 2.1682709, 0.2212091, -0.6366198)
_SIZE_0 = (0.00014476, -0.00072805, 0.00137237, -0.00009512, -0.00552740, -0.00000077, 0.79788456)
_TURN_0 = (0.00013558, -0.00029333, -0.00054125, 0.00262573, -0.00003954, -0.04166397, -0.78539816)
_SIZE_1 = (-0.00020033, 0.00113653, -0.00249511, 0.00017105, 0.01659667, 0.00000156, 0.79788456)
_TURN_1 = (-0.00029166, 0.00079824, 0.00074348, -0.00637879, 0.00005650, 0.12499612, -2.35619449)
# fmt: on


# -- modified ---------------------------------------------------------------------------------------------------------


def _scaled_i(x: Tensor, order: int) -> Tensor:
    """exp(-|x|) times I of an order."""
    size = x.abs()
    near_, far_ = (_I0_NEAR, _I0_FAR) if order == 0 else (_I1_NEAR, _I1_FAR)
    small = size < 3.75
    t = choose(small, size, 0.0) / 3.75
    near = polynomial(t * t, near_) * choose(small, -size, 0.0).exp()
    w = choose(small, 3.75, size)
    far = polynomial(3.75 / w, far_) * w.rsqrt()
    if order == 0:
        return choose(small, near, far)
    return choose(small, near * x, choose(x < 0, -far, far))


def _i(x: Tensor, order: int) -> Tensor:
    half = (x.abs() * 0.5).exp()  # twice: exp(|x|) overflows before the function does
    return _scaled_i(x, order) * half * half


def _over(value: Tensor, x: Tensor) -> Tensor:
    """value / x, 1/2 at 0: I1's."""
    zero = x.eq(0.0)
    return choose(zero, 0.5, value / choose(zero, 1.0, x))


@function(function_alias="modified_bessel_i0", in_place=True, special="i0 modified_bessel_i0")
def i0(x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).i0().round(4)
    Tensor([1.    , 1.2661], dtype=float32)
    """
    return by_slope(x, lambda x: (_i(x, 0), _i(x, 1)))


@function(special=True, method=False)
def i0e(x: Tensor) -> Tensor:
    """exp(-|x|) * i0(x), which does not overflow.

    >>> from anneal.tensor import Tensor
    >>> i0e(Tensor([0.5, 2.0]))
    Tensor([0.645 , 0.3085], dtype=float32)
    """
    return by_slope(x, lambda x: (_scaled_i(x, 0), _scaled_i(x, 1) - x.sign() * _scaled_i(x, 0)))


@function(function_alias="modified_bessel_i1", special="i1 modified_bessel_i1", method=False)
def i1(x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 1.

    >>> from anneal.tensor import Tensor
    >>> i1(Tensor([0.0, 1.0])).round(4)
    Tensor([0.    , 0.5652], dtype=float32)
    """
    return by_slope(x, lambda x: (_i(x, 1), _i(x, 0) - _over(_i(x, 1), x)))


@function(special=True, method=False)
def i1e(x: Tensor) -> Tensor:
    """exp(-|x|) * i1(x), which does not overflow.

    >>> from anneal.tensor import Tensor
    >>> i1e(Tensor([0.5, 2.0]))
    Tensor([0.1564, 0.2153], dtype=float32)
    """

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        value = _scaled_i(x, 1)
        return value, _scaled_i(x, 0) - x.sign() * value - _over(value, x)

    return by_slope(x, both)


def _k(x: Tensor, order: int, scaled: bool) -> Tensor:
    """K of an order, times exp(x) if `scaled`; inf at 0, nan below."""
    small = x <= 2.0
    y = choose(small & (x > 0.0), x, 1.0)
    t = y * 0.5
    near = polynomial(t * t, _K0_NEAR if order == 0 else _K1_NEAR)
    near = near - t.log() * _i(y, 0) if order == 0 else near / y + t.log() * _i(y, 1)
    w = choose(small, 2.0, x)
    far = polynomial(2.0 / w, _K0_FAR if order == 0 else _K1_FAR) * w.rsqrt()
    near, far = (near * y.exp(), far) if scaled else (near, far * (-w).exp())
    return choose(x < 0.0, math.nan, choose(x.eq(0.0), math.inf, choose(small, near, far)))


@function(special=True, method=False)
def modified_bessel_k0(x: Tensor) -> Tensor:
    """The modified Bessel function of the second kind of order 0: inf at 0, nan below.

    >>> from anneal.tensor import Tensor
    >>> modified_bessel_k0(Tensor([1.0])).round(4)
    Tensor([0.421], dtype=float32)
    """
    return by_slope(x, lambda x: (_k(x, 0, False), -_k(x, 1, False)))


@function(special=True, method=False)
def modified_bessel_k1(x: Tensor) -> Tensor:
    """The modified Bessel function of the second kind of order 1: inf at 0, nan below.

    >>> from anneal.tensor import Tensor
    >>> modified_bessel_k1(Tensor([0.5, 2.0]))
    Tensor([1.6564, 0.1399], dtype=float32)
    """
    return by_slope(x, lambda x: (_k(x, 1, False), -_k(x, 0, False) - _k(x, 1, False) / x))


@function(special=True, method=False)
def scaled_modified_bessel_k0(x: Tensor) -> Tensor:
    """exp(x) * modified_bessel_k0(x).

    >>> from anneal.tensor import Tensor
    >>> scaled_modified_bessel_k0(Tensor([0.5, 2.0]))
    Tensor([1.5241, 0.8416], dtype=float32)
    """
    return by_slope(x, lambda x: (_k(x, 0, True), _k(x, 0, True) - _k(x, 1, True)))


@function(special=True, method=False)
def scaled_modified_bessel_k1(x: Tensor) -> Tensor:
    """exp(x) * modified_bessel_k1(x).

    >>> from anneal.tensor import Tensor
    >>> scaled_modified_bessel_k1(Tensor([0.5, 2.0]))
    Tensor([2.731 , 1.0335], dtype=float32)
    """
    return by_slope(x, lambda x: (_k(x, 1, True), _k(x, 1, True) * (1.0 - 1.0 / x) - _k(x, 0, True)))


# -- plain ------------------------------------------------------------------------------------------------------------


def _wave(x: Tensor, order: int, kind: str) -> Tensor:
    """J or Y of an order far from 0: a cosine or a sine of slowly turning phase."""
    t = 3.0 / x
    size, turn = (_SIZE_0, _TURN_0) if order == 0 else (_SIZE_1, _TURN_1)
    angle = x + polynomial(t, turn)
    return polynomial(t, size) * x.rsqrt() * (angle.cos() if kind == "j" else angle.sin())


def _j(x: Tensor, order: int) -> Tensor:
    size = x.abs()
    small = size < 3.0
    t = choose(small, size, 0.0) / 3.0
    near = polynomial(t * t, _J0_NEAR if order == 0 else _J1_NEAR)
    far = _wave(choose(small, 3.0, size), order, "j")
    far = choose(size.eq(math.inf), 0.0, far)
    if order == 0:
        return choose(small, near, far)
    return choose(small, near * x, choose(x < 0, -far, far))


def _y(x: Tensor, order: int) -> Tensor:
    small = x < 3.0
    y = choose(small & (x > 0.0), x, 1.0)
    t = y / 3.0
    near = polynomial(t * t, _Y0_NEAR if order == 0 else _Y1_NEAR)
    near = (near if order == 0 else near / y) + (2 / math.pi) * (y * 0.5).log() * _j(y, order)
    far = choose(x.eq(math.inf), 0.0, _wave(choose(small, 3.0, x), order, "y"))
    return choose(x < 0.0, math.nan, choose(x.eq(0.0), -math.inf, choose(small, near, far)))


def _pair(x: Tensor, function: Any, order: int) -> tuple[Tensor, Tensor]:
    """A function of an order, and its slope."""
    zero, one = function(x, 0), function(x, 1)
    if order == 0:
        return zero, -one
    at_0 = x.eq(0.0)
    return one, zero - choose(at_0, 0.5, one / choose(at_0, 1.0, x))


@function(special=True, method=False)
def bessel_j0(x: Tensor) -> Tensor:
    """The Bessel function of the first kind of order 0.

    >>> from anneal.tensor import Tensor
    >>> bessel_j0(Tensor([0.0, 5.0])).round(4)
    Tensor([ 1.    , -0.1776], dtype=float32)
    """
    return by_slope(x, lambda x: _pair(x, _j, 0))


@function(special=True, method=False)
def bessel_j1(x: Tensor) -> Tensor:
    """The Bessel function of the first kind of order 1.

    >>> from anneal.tensor import Tensor
    >>> bessel_j1(Tensor([0.5, 2.0]))
    Tensor([0.2423, 0.5767], dtype=float32)
    """
    return by_slope(x, lambda x: _pair(x, _j, 1))


@function(special=True, method=False)
def bessel_y0(x: Tensor) -> Tensor:
    """The Bessel function of the second kind of order 0: -inf at 0, nan below.

    >>> from anneal.tensor import Tensor
    >>> bessel_y0(Tensor([0.5, 2.0]))
    Tensor([-0.4445,  0.5104], dtype=float32)
    """
    return by_slope(x, lambda x: _pair(x, _y, 0))


@function(special=True, method=False)
def bessel_y1(x: Tensor) -> Tensor:
    """The Bessel function of the second kind of order 1: -inf at 0, nan below.

    >>> from anneal.tensor import Tensor
    >>> bessel_y1(Tensor([0.5, 2.0]))
    Tensor([-1.4715, -0.107 ], dtype=float32)
    """
    return by_slope(x, lambda x: _pair(x, _y, 1))


@function(special=True, method=False)
def spherical_bessel_j0(x: Tensor) -> Tensor:
    """sin(x) / x, 1 at 0.

    >>> from anneal.tensor import Tensor
    >>> spherical_bessel_j0(Tensor([0.0, 1.0])).round(4)
    Tensor([1.    , 0.8415], dtype=float32)
    """
    return (x * (1 / math.pi)).sinc()
