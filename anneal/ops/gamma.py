"""The logarithm of the gamma function and its derivative, digamma, element by element.

`lgamma` has `digamma` for its slope; `digamma` is a formula that can be differentiated as it stands, so that polygamma
functions are its derivatives.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from anneal.ops.arguments import function
from anneal.ops.elementwise import choose, real_node
from anneal.ops.functions import by_slope, polynomial
from anneal.uop import dtypes

if TYPE_CHECKING:
    from anneal.tensor import Tensor

# log(gamma(z)) / ((z - 1) * (z - 2)) for 1 <= z <= 2 by powers of 2z - 3, the highest first: interpolation at
# Chebyshev's points, off by 3e-9 and 6e-18.
_NEAR_32 = (
    -2.90524285e-6,
    9.55759631e-6,
    -2.45135657e-5,
    8.32186249e-5,
    -0.000294762859,
    0.00105050611,
    -0.00391353415,
    0.0157277635,
    -0.0729799485,
    0.483128952,
)
_NEAR_64 = (
    1.12733549551650479e-11,
    -3.53389816227587917e-11,
    5.18198984494435975e-11,
    -1.63938160099989034e-10,
    6.53326852843441649e-10,
    -2.07328278423982132e-9,
    6.43415235729120174e-9,
    -2.05776116337301297e-8,
    6.62360193972509949e-8,
    -2.13884356116115898e-7,
    6.9484401875500963e-7,
    -2.27424097113204102e-6,
    7.51139153172965753e-6,
    -0.0000250943298484944584,
    0.0000851009037846805146,
    -0.000294550701400926531,
    0.00104981866445087185,
    -0.00391356093763165898,
    0.0157278502686412116,
    -0.072979947957152969,
    0.483128950540980889,
)
# Bernoulli's numbers b over 2k(2k-1), and over 2k: the series in 1/x^2, the highest first.
_STIRLING = (-3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_ASYMPTOTIC = (-3617 / 8160, 1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)


@function(in_place=True, special="gammaln")
def lgamma(x: Tensor) -> Tensor:
    """log(|gamma(x)|): gamma(n + 1) is the factorial of n. inf at 0, -1, -2, ...

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 5.0, 0.5]).lgamma().round(4)
    Tensor([0.    , 3.1781, 0.5724], dtype=float32)
    """
    return by_slope(x, lambda x: (_value(x), _slope(x)))


@function(in_place=True, special="digamma psi")
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
