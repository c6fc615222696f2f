"""Functions of the gamma function's kin: lgamma and digamma, the normal distribution's tails, Bessel's functions."""

from __future__ import annotations

import math
from typing import Any

from anneal.names import Tensor
from anneal.ops.arguments import family, function
from anneal.ops.checks import is_tensor, need_tensor
from anneal.ops.elementwise import by_slopes, choose, floats_of, real_node
from anneal.ops.functions import Sloped, by_slope, numbers, polynomial
from anneal.uop import dtypes

_special = function("special method=no")
# log(gamma(z)) / ((z - 1) * (z - 2)) for 1 <= z <= 2 by powers of 2z - 3, the highest first: interpolation at
# Chebyshev's points, off by 3e-9 and 6e-18.
_NEAR_32 = numbers("""
    -2.90524285e-6 9.55759631e-6 -2.45135657e-5 8.32186249e-5 -0.000294762859 0.00105050611 -0.00391353415
    0.0157277635 -0.0729799485 0.483128952
""")
_NEAR_64 = numbers("""
    1.12733549551650479e-11 -3.53389816227587917e-11 5.18198984494435975e-11 -1.63938160099989034e-10
    6.53326852843441649e-10 -2.07328278423982132e-9 6.43415235729120174e-9 -2.05776116337301297e-8
    6.62360193972509949e-8 -2.13884356116115898e-7 6.9484401875500963e-7 -2.27424097113204102e-6
    7.51139153172965753e-6 -0.0000250943298484944584 0.0000851009037846805146 -0.000294550701400926531
    0.00104981866445087185 -0.00391356093763165898 0.0157278502686412116 -0.072979947957152969
    0.483128950540980889
""")
# Bernoulli's numbers b over 2k(2k-1), and over 2k: the series in 1/x^2, the highest first.
_STIRLING = (-3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_ASYMPTOTIC = (-3617 / 8160, 1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)

# `lgamma` has `digamma` for its slope; `digamma` is a formula that can be differentiated as it stands, so that
# polygamma needs nothing else. Bessel's functions, of orders 0 and 1, plain and modified, are the polynomials of
# Abramowitz and Stegun, 9.4 and 9.8, good to 1e-7 of the value (of the largest values nearby, where one goes through
# 0): float32.


@function("in_place special=gammaln")
@by_slope
def lgamma(x: Tensor) -> Sloped:
    """log(|gamma(x)|): gamma(n + 1) is the factorial of n. inf at 0, -1, -2, ...

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 5.0, 0.5]).lgamma().round(4)
    Tensor([0.    , 3.1781, 0.5724], dtype=float32)
    """
    return _value(x), _slope(x)


@function("in_place special=digamma,psi")
def digamma(x: Tensor) -> Tensor:
    """The derivative of `lgamma`: -inf at 0, nan at -1, -2, ...; its derivatives are the polygamma functions.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).digamma().round(4)
    Tensor([-0.5772,  0.4228], dtype=float32)
    """
    u = real_node(x)
    x = x._new(u if u.dtype.bits >= 32 else u.cast(dtypes.float32))
    return _slope(x).cast(u.dtype)


def _distance(x: Tensor) -> Tensor:
    """The distance from the nearest integer: sin(pi * x) from this keeps its digits where x is large."""
    return x - x.round()


def _value(x: Tensor) -> Tensor:
    """log|gamma(x)|: a polynomial between 1 and 2, reached by the recurrence; Stirling's series from 8 on."""
    below = x < 0.0
    y = choose(below, 1.0 - x, x)
    low, far = y < 1.0, y >= 8.0
    z = start = choose(low, y + 1.0, choose(far, 1.5, y))
    product: Any = 1.0
    for k in range(1, 7):
        above = start >= k + 1.0
        product = choose(above, start - k, 1.0) * product
        z = z - choose(above, 1.0, 0.0)
    table = _NEAR_64 if x.uop.dtype.bits == 64 else _NEAR_32
    # below 1 the differences are exact only as those of y
    from_1, from_2 = choose(low, y, z - 1.0), choose(low, y - 1.0, z - 2.0)
    near = from_1 * from_2 * polynomial(z * 2.0 - 3.0, table)
    near = near + choose(low, -choose(low, y, 1.0).log(), product.log())
    w = choose(far, y, 8.0)
    inverse = 1.0 / w
    series = polynomial(inverse * inverse, _STIRLING) * inverse
    stirling = (w - 0.5) * (w.log() - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5 + series)
    value = choose(far, stirling, near)
    r = choose(below, _distance(x), 0.5)
    mirrored = (math.pi / (r * math.pi).sin().abs()).log() - value
    # the poles, and with them every number so far below 0 that it is whole
    endless = x.isinf() | (below & r.eq(0.0))
    return choose(endless, math.inf, choose(below, mirrored, value))


def _slope(x: Tensor) -> Tensor:
    """digamma: the recurrence up to where the asymptotic series holds, and the reflection below 0."""
    below = x < 0.0
    y = choose(below, 1.0 - x, x)
    enough = 10 if x.uop.dtype.bits == 64 else 6
    steps: Any = 0.0
    w = y
    for k in range(enough):
        short = y < float(enough - k)
        steps = choose(short, 1.0 / choose(short, y + float(k) if k else y, 1.0), 0.0) + steps
        w = choose(short, w + 1.0, w)
    inverse = 1.0 / w
    square = inverse * inverse
    value = w.log() - inverse * 0.5 - polynomial(square, _ASYMPTOTIC) * square - steps
    r = _distance(x)
    inside = below & r.ne(0.0)
    mirrored = value - math.pi / (choose(inside, r, 0.25) * math.pi).tan()
    return choose(below, choose(inside, mirrored, math.nan), value)


# Pairs of polynomials, the highest power first. The first three are quantiles of the normal distribution, numerators
# and denominators: Wichura (1988), PPND7. The others are of order 0 and 1: near 0, by powers of (x / limit)**2; far, of
# limit / x.
_ROWS = [
    numbers(row)
    for row in """
    59.109374720 159.29113202 50.434271938 3.3871327179
    67.187563600 78.757757664 17.895169469 1.0
    0.17023821103 1.3067284816 2.7568153900 1.4234372777
    0.12021132975 0.73700164250 1.0
    0.017337203997 0.42868294337 3.0812263860 6.6579051150
    0.012258202635 0.24197894225 1.0
    0.0045813 0.0360768 0.2659732 1.2067492 3.0899424 3.5156229 1.0
    0.00032411 0.00301532 0.02658733 0.15084934 0.51498869 0.87890594 0.5
    0.00392377 -0.01647633 0.02635537 -0.02057706 0.00916281 -0.00157565 0.00225319 0.01328592 0.39894228
    -0.00420059 0.01787654 -0.02895312 0.02282967 -0.01031555 0.00163801 -0.00362018 -0.03988024 0.39894228
    0.00000740 0.00010750 0.00262698 0.03488590 0.23069756 0.42278420 -0.57721566
    -0.00004686 -0.00110404 -0.01919402 -0.18156897 -0.67278579 0.15443144 1.0
    0.00053208 -0.00251540 0.00587872 -0.01062446 0.02189568 -0.07832358 1.25331414
    -0.00068245 0.00325614 -0.00780353 0.01504268 -0.03655620 0.23498619 1.25331414
    0.0002100 -0.0039444 0.0444479 -0.3163866 1.2656208 -2.2499997 1.0
    0.00001109 -0.00031761 0.00443319 -0.03954289 0.21093573 -0.56249985 0.5
    -0.00024846 0.00427916 -0.04261214 0.25300117 -0.74350384 0.60559366 0.36746691
    0.0027873 -0.0400976 0.3123951 -1.3164827 2.1682709 0.2212091 -0.6366198
    0.00014476 -0.00072805 0.00137237 -0.00009512 -0.00552740 -0.00000077 0.79788456
    -0.00020033 0.00113653 -0.00249511 0.00017105 0.01659667 0.00000156 0.79788456
    0.00013558 -0.00029333 -0.00054125 0.00262573 -0.00003954 -0.04166397 -0.78539816
    -0.00029166 0.00079824 0.00074348 -0.00637879 0.00005650 0.12499612 -2.35619449
""".strip().split("\n")
]
_MIDDLE, _TAIL, _FAR, _I_NEAR, _I_FAR, _K_NEAR, _K_FAR, _J_NEAR, _Y_NEAR, _SIZE, _TURN = zip(_ROWS[::2], _ROWS[1::2])
# log(erfcx(x) * (1 + x/2)) by powers of 1 / (1 + x/2), the highest first: Press and others, Numerical Recipes, 6.2.
_ERFCX = numbers("""
    0.17087277 -0.82215223 1.48851587 -1.13520398 0.27886807 -0.18628806 0.09678418 0.37409196 1.00002368
    -1.26551223
""")


def _scaled_tail(x: Tensor) -> Tensor:
    """erfcx of what is not below 0."""
    t = 1.0 / (x * 0.5 + 1.0)
    return t * polynomial(t, _ERFCX).exp()


def _below(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The condition x < -1; the argument -min(x, -1) / sqrt(2); and the scaled complement erfcx of that argument."""
    low = x < -1.0
    t = choose(low, x, -1.0) * -math.sqrt(0.5)
    return low, t, _scaled_tail(t)


@_special
@by_slope
def erfcx(x: Tensor) -> Sloped:
    """exp(x**2) * erfc(x), which does not vanish for large x.

    >>> from anneal.tensor import Tensor
    >>> erfcx(Tensor([0.0, 100.0]))
    Tensor([1.    , 0.0056], dtype=float32)
    """
    tail, below = _scaled_tail(x.abs()), x < 0.0
    value = choose(below, choose(below, x * x, 0.0).exp() * 2.0 - tail, tail)
    return value, x * value * 2.0 - 2 / math.sqrt(math.pi)


@_special
@by_slope
def ndtr(x: Tensor) -> Sloped:
    """The fraction of a normal distribution that lies below x.

    >>> from anneal.tensor import Tensor
    >>> ndtr(Tensor([0.0, 1.0])).round(4)
    Tensor([0.5   , 0.8413], dtype=float32)
    """
    low, t, tail = _below(x)
    value = choose(low, tail * (-t * t).exp(), (x * -math.sqrt(0.5)).erfc()) * 0.5
    return value, (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))


@_special
@by_slope
def log_ndtr(x: Tensor) -> Sloped:
    """log(ndtr(x)), far below 0 too.

    >>> from anneal.tensor import Tensor
    >>> log_ndtr(Tensor([0.0, -10.0]))
    Tensor([ -0.6931, -53.2313], dtype=float32)
    """
    low, t, tail = _below(x)
    high = choose(low, 0.0, x)
    upper = (high * math.sqrt(0.5)).erfc() * -0.5
    value = choose(low, (tail * 0.5).log() - t * t, upper.log1p())
    slope = choose(
        low,
        math.sqrt(2 / math.pi) / tail,
        (high * high * -0.5).exp() * (1 / math.sqrt(2 * math.pi)) / (upper + 1.0),
    )
    return value, slope


@_special
@by_slope
def ndtri(x: Tensor) -> Sloped:
    """The number below which a fraction x of a normal distribution lies: -inf at 0, inf at 1, nan outside.

    >>> from anneal.tensor import Tensor
    >>> ndtri(Tensor([0.5, 0.975])).round(3)
    Tensor([0.  , 1.96], dtype=float32)
    """
    q = x - 0.5
    middle = q.abs() <= 0.425
    r = 0.180625 - choose(middle, q, 0.0) * choose(middle, q, 0.0)
    inner = q * polynomial(r, _MIDDLE[0]) / polynomial(r, _MIDDLE[1])
    inside = (x > 0.0) & (x < 1.0)
    rest = choose(inside, x.minimum(1.0 - x), 0.25)
    s = (-rest.log()).sqrt()
    tails = [polynomial(s - start, p) / polynomial(s - start, q) for start, (p, q) in ((1.6, _TAIL), (5.0, _FAR))]
    outer = choose(s > 5.0, tails[1], tails[0])
    outer = choose(q < 0.0, -outer, outer)
    ends = choose(x.eq(0.0), -math.inf, choose(x.eq(1.0), math.inf, math.nan))
    out = choose(inside, choose(middle, inner, outer), ends)
    return out, (out * out * 0.5).exp() * math.sqrt(2 * math.pi)


@_special("single")
def entr(x: Tensor) -> Tensor:
    """-x * log(x): 0 at 0, -inf below.

    >>> from anneal.tensor import Tensor
    >>> entr(Tensor([0.0, 0.5, 1.0])).round(4)
    Tensor([ 0.    ,  0.3466, -0.    ], dtype=float32)
    """
    x = floats_of(x)
    above = x > 0.0
    safe = choose(above, x, 1.0)
    out = choose(x.isnan(), x, choose(above, -safe * safe.log(), choose(x.eq(0.0), 0.0, -math.inf)))
    return by_slopes(out, (x, -x.log() - 1.0)) if out.requires_grad else out


@function("special single")
def xlog1py(x: Any, other: Any) -> Tensor:
    """x * log1p(other), 0 where x is 0 and `other` is no nan; one of both may be a number.

    >>> from anneal.tensor import Tensor
    >>> xlog1py(Tensor([0.0, 2.0]), Tensor([-1.0, 1.0])).round(4)
    Tensor([0.    , 1.3863], dtype=float32)
    """
    one = x if is_tensor(x) else need_tensor("x or other", other)
    a, b = one._lift(x), one._lift(other)
    a, b = floats_of(a), floats_of(b)
    zero = a.eq(0.0) & ~b.isnan() & (b.le(-1.0) | b.eq(math.inf))
    return choose(zero, 0.0, a * choose(zero, 0.0, b).log1p())


# -- modified ---------------------------------------------------------------------------------------------------------


def _scaled_i(x: Tensor, order: int) -> Tensor:
    """exp(-|x|) times I of an order."""
    size = x.abs()
    small = size < 3.75
    t = choose(small, size, 0.0) / 3.75
    near = polynomial(t * t, _I_NEAR[order]) * choose(small, -size, 0.0).exp()
    w = choose(small, 3.75, size)
    return _joined(x, order, small, near, polynomial(3.75 / w, _I_FAR[order]) * w.rsqrt())


def _joined(x: Tensor, order: int, small: Tensor, near: Tensor, far: Tensor) -> Tensor:
    """The part near 0, or the one far from it, both of |x|: even, or of order 1 odd, with the near one over x."""
    return choose(small, near * x, choose(x < 0, -far, far)) if order else choose(small, near, far)


def _i(x: Tensor, order: int) -> Tensor:
    half = (x.abs() * 0.5).exp()  # twice: exp(|x|) overflows before the function does
    return _scaled_i(x, order) * half * half


def _over(value: Tensor, x: Tensor) -> Tensor:
    """value / x, 1/2 at 0: I1's."""
    zero = x.eq(0.0)
    return choose(zero, 0.5, value / choose(zero, 1.0, x))


@function("function_alias=modified_bessel_i0 in_place special=i0,modified_bessel_i0")
@by_slope
def i0(x: Tensor) -> Sloped:
    """The modified Bessel function of the first kind of order 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).i0().round(4)
    Tensor([1.    , 1.2661], dtype=float32)
    """
    return _i(x, 0), _i(x, 1)


@_special
@by_slope
def i0e(x: Tensor) -> Sloped:
    """exp(-|x|) * i0(x), which does not overflow.

    >>> from anneal.tensor import Tensor
    >>> i0e(Tensor([0.5, 2.0]))
    Tensor([0.645 , 0.3085], dtype=float32)
    """
    return _scaled_i(x, 0), _scaled_i(x, 1) - x.sign() * _scaled_i(x, 0)


@function("function_alias=modified_bessel_i1 special=i1,modified_bessel_i1 method=no")
@by_slope
def i1(x: Tensor) -> Sloped:
    """The modified Bessel function of the first kind of order 1.

    >>> from anneal.tensor import Tensor
    >>> i1(Tensor([0.0, 1.0])).round(4)
    Tensor([0.    , 0.5652], dtype=float32)
    """
    return _i(x, 1), _i(x, 0) - _over(_i(x, 1), x)


@_special
@by_slope
def i1e(x: Tensor) -> Sloped:
    """exp(-|x|) * i1(x), which does not overflow.

    >>> from anneal.tensor import Tensor
    >>> i1e(Tensor([0.5, 2.0]))
    Tensor([0.1564, 0.2153], dtype=float32)
    """
    value = _scaled_i(x, 1)
    return value, _scaled_i(x, 0) - x.sign() * value - _over(value, x)


def _k(x: Tensor, order: int, scaled: bool) -> Tensor:
    """K of an order, times exp(x) if `scaled`; inf at 0, nan below."""
    small = x <= 2.0
    y = choose(small & (x > 0.0), x, 1.0)
    t = y * 0.5
    near = polynomial(t * t, _K_NEAR[order])
    near = near - t.log() * _i(y, 0) if order == 0 else near / y + t.log() * _i(y, 1)
    w = choose(small, 2.0, x)
    far = polynomial(2.0 / w, _K_FAR[order]) * w.rsqrt()
    near, far = (near * y.exp(), far) if scaled else (near, far * (-w).exp())
    return choose(x < 0.0, math.nan, choose(x.eq(0.0), math.inf, choose(small, near, far)))


@_special
@by_slope
def modified_bessel_k0(x: Tensor) -> Sloped:
    """The modified Bessel function of the second kind of order 0: inf at 0, nan below.

    >>> from anneal.tensor import Tensor
    >>> modified_bessel_k0(Tensor([1.0])).round(4)
    Tensor([0.421], dtype=float32)
    """
    return _k(x, 0, False), -_k(x, 1, False)


@_special
@by_slope
def modified_bessel_k1(x: Tensor) -> Sloped:
    """The modified Bessel function of the second kind of order 1: inf at 0, nan below.

    >>> from anneal.tensor import Tensor
    >>> modified_bessel_k1(Tensor([0.5, 2.0]))
    Tensor([1.6564, 0.1399], dtype=float32)
    """
    return _k(x, 1, False), -_k(x, 0, False) - _k(x, 1, False) / x


@_special
@by_slope
def scaled_modified_bessel_k0(x: Tensor) -> Sloped:
    """exp(x) * modified_bessel_k0(x).

    >>> from anneal.tensor import Tensor
    >>> scaled_modified_bessel_k0(Tensor([0.5, 2.0]))
    Tensor([1.5241, 0.8416], dtype=float32)
    """
    return _k(x, 0, True), _k(x, 0, True) - _k(x, 1, True)


@_special
@by_slope
def scaled_modified_bessel_k1(x: Tensor) -> Sloped:
    """exp(x) * modified_bessel_k1(x).

    >>> from anneal.tensor import Tensor
    >>> scaled_modified_bessel_k1(Tensor([0.5, 2.0]))
    Tensor([2.731 , 1.0335], dtype=float32)
    """
    return _k(x, 1, True), _k(x, 1, True) * (1.0 - 1.0 / x) - _k(x, 0, True)


# -- plain ------------------------------------------------------------------------------------------------------------


def _wave(x: Tensor, order: int, kind: str) -> Tensor:
    """J or Y of an order far from 0: a cosine or a sine of slowly turning phase."""
    t = 3.0 / x
    angle = x + polynomial(t, _TURN[order])
    return polynomial(t, _SIZE[order]) * x.rsqrt() * (angle.cos() if kind == "j" else angle.sin())


def _j(x: Tensor, order: int) -> Tensor:
    size = x.abs()
    small = size < 3.0
    t = choose(small, size, 0.0) / 3.0
    near = polynomial(t * t, _J_NEAR[order])
    far = _wave(choose(small, 3.0, size), order, "j")
    return _joined(x, order, small, near, choose(size.eq(math.inf), 0.0, far))


def _y(x: Tensor, order: int) -> Tensor:
    small = x < 3.0
    y = choose(small & (x > 0.0), x, 1.0)
    t = y / 3.0
    near = polynomial(t * t, _Y_NEAR[order])
    near = (near if order == 0 else near / y) + (2 / math.pi) * (y * 0.5).log() * _j(y, order)
    far = choose(x.eq(math.inf), 0.0, _wave(choose(small, 3.0, x), order, "y"))
    return choose(x < 0.0, math.nan, choose(x.eq(0.0), -math.inf, choose(small, near, far)))


def _bessel(kind: Any, order: int, x: Tensor) -> Tensor:
    def with_slope(x: Tensor) -> Sloped:
        zero, one = kind(x, 0), kind(x, 1)
        return (zero, -one) if order == 0 else (one, zero - _over(one, x))

    return by_slope(with_slope)(x)


bessel_j0, bessel_j1, bessel_y0, bessel_y1 = family(
    _bessel,
    "special method=no",
    """
    bessel_j0:
    The Bessel function of the first kind of order 0.

    >>> from anneal.tensor import Tensor
    >>> bessel_j0(Tensor([0.0, 5.0])).round(4)
    Tensor([ 1.    , -0.1776], dtype=float32)

    bessel_j1:
    The Bessel function of the first kind of order 1.

    >>> from anneal.tensor import Tensor
    >>> bessel_j1(Tensor([0.5, 2.0]))
    Tensor([0.2423, 0.5767], dtype=float32)

    bessel_y0:
    The Bessel function of the second kind of order 0: -inf at 0, nan below.

    >>> from anneal.tensor import Tensor
    >>> bessel_y0(Tensor([0.5, 2.0]))
    Tensor([-0.4445,  0.5104], dtype=float32)

    bessel_y1:
    The Bessel function of the second kind of order 1: -inf at 0, nan below.

    >>> from anneal.tensor import Tensor
    >>> bessel_y1(Tensor([0.5, 2.0]))
    Tensor([-1.4715, -0.107 ], dtype=float32)
    """,
    {
        "bessel_j0": (_j, 0),
        "bessel_j1": (_j, 1),
        "bessel_y0": (_y, 0),
        "bessel_y1": (_y, 1),
    },
)


@_special("single")
def spherical_bessel_j0(x: Tensor) -> Tensor:
    """sin(x) / x, 1 at 0.

    >>> from anneal.tensor import Tensor
    >>> spherical_bessel_j0(Tensor([0.0, 1.0])).round(4)
    Tensor([1.    , 0.8415], dtype=float32)
    """
    return (x * (1 / math.pi)).sinc()
