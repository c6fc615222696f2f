"""Orthogonal polynomials of a degree, by their recurrences, and Hurwitz's zeta function with polygamma and mvlgamma."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import family, function
from anneal.ops.checks import is_bool, is_tensor, said, whole
from anneal.ops.elementwise import choose, floats_of
from anneal.ops.functions import by_slope, polynomial
from anneal.ops.indexing import values_now

_HIGHEST = 1024  # a graph of more steps is not worth its kernel


def _polynomial(
    first: Callable[[Tensor], Tensor],
    step: Callable[[Tensor, float, Tensor, Tensor], Tensor],
    x: Any,
    n: Any,
) -> Tensor:
    """The polynomial of degree `n`: 1, `first(x)`, and `step(x, k, of k - 1, of k - 2)`; 0 for a degree below 0."""
    if not is_tensor(x):
        if not is_tensor(n) or not _is_number(x):
            raise DTypeError(f"x is a tensor, not {said(x)}")
        x = n._lift(float(x))
    floats = floats_of(x)
    if is_tensor(n):
        degrees = values_now(n, "give the degree as an int")
        whole = np.trunc(degrees.astype(np.float64))
        highest = int(whole.max(initial=0.0, where=np.isfinite(whole)))
        chosen = n.detach().trunc() if n.dtype.is_float else n
    elif _is_number(n) and math.isfinite(n):
        highest, chosen = int(n), None
    else:
        raise DTypeError(f"the degree is a finite number or a tensor of them, not {said(n)}")
    if highest > _HIGHEST:
        raise ShapeError(f"degrees up to {_HIGHEST}, not {highest}")
    before, now = floats * 0.0 + 1.0, first(floats)
    if chosen is None and highest < 1:
        return before if highest == 0 else floats * 0.0
    out = None if chosen is None else choose(chosen < 0, 0.0, choose(chosen.eq(0), 1.0, now))
    for k in range(2, highest + 1):
        before, now = now, step(floats, float(k), now, before)
        if chosen is not None:
            out = choose(chosen.eq(k), now, out)
    return now if out is None else out


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not is_bool(x)


def _chebyshev(x: Tensor, k: float, a: Tensor, b: Tensor) -> Tensor:
    """The polynomial that follows a, and b before it, of all four kinds."""
    return x * a * 2.0 - b


(
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
) = family(
    _polynomial,
    "special single",
    """
    chebyshev_polynomial_t:
    Chebyshev's polynomial of the first kind of degree `n`: cos(n * t) at x = cos(t).

    `n` is an int, or a tensor that broadcasts, which is computed now and refused by ShapeError inside jit. 0 for a
    degree below 0. Gradients go to x.

    >>> from anneal.tensor import Tensor
    >>> chebyshev_polynomial_t(Tensor([0.5, 2.0]), 3)
    Tensor([-1., 26.], dtype=float32)

    chebyshev_polynomial_u:
    Chebyshev's polynomial of the second kind of degree `n`; arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> chebyshev_polynomial_u(Tensor([0.5, 2.0]), 2)
    Tensor([ 0., 15.], dtype=float32)

    chebyshev_polynomial_v:
    Chebyshev's polynomial of the third kind of degree `n`; arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> chebyshev_polynomial_v(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 11.], dtype=float32)

    chebyshev_polynomial_w:
    Chebyshev's polynomial of the fourth kind of degree `n`; arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> chebyshev_polynomial_w(Tensor([0.5, 2.0]), 2)
    Tensor([ 1., 19.], dtype=float32)

    hermite_polynomial_h:
    Hermite's polynomial of degree `n` (the physicists'); arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> hermite_polynomial_h(Tensor([1.0]), 2)
    Tensor([2.], dtype=float32)

    hermite_polynomial_he:
    Hermite's polynomial of degree `n` (the statisticians'); arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> hermite_polynomial_he(Tensor([0.5, 2.0]), 2)
    Tensor([-0.75,  3.  ], dtype=float32)

    laguerre_polynomial_l:
    Laguerre's polynomial of degree `n`; arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> laguerre_polynomial_l(Tensor([0.5, 2.0]), 2)
    Tensor([ 0.125, -1.   ], dtype=float32)

    legendre_polynomial_p:
    Legendre's polynomial of degree `n`; arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> legendre_polynomial_p(Tensor([0.5, 2.0]), 2)
    Tensor([-0.125,  5.5  ], dtype=float32)
    """,
    {
        "chebyshev_polynomial_t": (lambda x: x, _chebyshev),
        "chebyshev_polynomial_u": (lambda x: x * 2.0, _chebyshev),
        "chebyshev_polynomial_v": (lambda x: x * 2.0 - 1.0, _chebyshev),
        "chebyshev_polynomial_w": (lambda x: x * 2.0 + 1.0, _chebyshev),
        "hermite_polynomial_h": (lambda x: x * 2.0, lambda x, k, a, b: (x * a - b * (k - 1.0)) * 2.0),
        "hermite_polynomial_he": (lambda x: x, lambda x, k, a, b: x * a - b * (k - 1.0)),
        "laguerre_polynomial_l": (
            lambda x: 1.0 - x,
            lambda x, k, a, b: ((2.0 * k - 1.0 - x) * a - b * (k - 1.0)) * (1 / k),
        ),
        "legendre_polynomial_p": (lambda x: x, lambda x, k, a, b: (x * a * (2.0 * k - 1.0) - b * (k - 1.0)) * (1 / k)),
    },
)


def _shifted(name: str, plain: Any, x: Any, n: Any) -> Tensor:
    return plain(x * 2.0 - 1.0 if is_tensor(x) or _is_number(x) else x, n)  # type: ignore[no-any-return]


(
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
) = family(
    _shifted,
    "special single",
    """
    shifted_chebyshev_polynomial_t:
    `chebyshev_polynomial_t` of 2x - 1: orthogonal between 0 and 1.

    >>> from anneal.tensor import Tensor
    >>> shifted_chebyshev_polynomial_t(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 17.], dtype=float32)

    shifted_chebyshev_polynomial_u:
    `chebyshev_polynomial_u` of 2x - 1.

    >>> from anneal.tensor import Tensor
    >>> shifted_chebyshev_polynomial_u(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 35.], dtype=float32)

    shifted_chebyshev_polynomial_v:
    `chebyshev_polynomial_v` of 2x - 1.

    >>> from anneal.tensor import Tensor
    >>> shifted_chebyshev_polynomial_v(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 29.], dtype=float32)

    shifted_chebyshev_polynomial_w:
    `chebyshev_polynomial_w` of 2x - 1.

    >>> from anneal.tensor import Tensor
    >>> shifted_chebyshev_polynomial_w(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 41.], dtype=float32)
    """,
    {
        "shifted_chebyshev_polynomial_t": chebyshev_polynomial_t,
        "shifted_chebyshev_polynomial_u": chebyshev_polynomial_u,
        "shifted_chebyshev_polynomial_v": chebyshev_polynomial_v,
        "shifted_chebyshev_polynomial_w": chebyshev_polynomial_w,
    },
)


_TERMS = 30  # that are added before Euler's and Maclaurin's formula gives the rest
_MOST = 128.0  # an exponent from which on what is left after these terms is 0, and whose 16 factors are finite
_LOWEST = -20.0
_NEAR = 10  # as many for what is above 0
# Bernoulli's numbers over factorials, of the second and every second one after it.
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)


def _rest(s: Any, w: Tensor) -> Tensor:
    """The sum of (w + k)**-s over all k from 0 on, for large w."""
    power = w ** (-s)
    total = power * 0.5 + power * w / (s - 1.0)
    rising, term = s, power / w
    for i, b in enumerate(_BERNOULLI):
        total = total + rising * term * b
        rising = rising * (s + (2.0 * i + 1.0)) * (s + (2.0 * i + 2.0))
        term = term / (w * w)
    return total  # type: ignore[no-any-return]


@function("special single")
def zeta(x: Any, q: Any) -> Tensor:
    """Hurwitz's zeta function, the sum of (q + k)**-x over k = 0, 1, ...

    It is inf for x = 1, nan below; inf for q = 0, -1, ... For other q < 0, x is whole and q above -20, or it is nan.
    One of both may be a number.

    >>> from anneal.tensor import Tensor
    >>> zeta(Tensor([2.0]), 1.0).round(4)
    Tensor([1.6449], dtype=float32)
    """
    one = x if is_tensor(x) else q
    if not is_tensor(one):
        raise DTypeError(f"zeta: x is a tensor, not {said(x)}")
    a, b = (one._lift(t) for t in (x, q))
    a, b = floats_of(a), floats_of(b)
    fine = (a > 1.0) & ((b > 0.0) | ((b > _LOWEST) & a.floor().eq(a) & b.floor().ne(b)))
    s, w = choose(fine, a, 2.0), choose(fine, b, 1.0)
    total: Any = 0.0
    for k in range(_TERMS):
        total = (w + float(k)) ** (-s) + total
    value = total + _rest(choose(s > _MOST, _MOST, s), w + float(_TERMS))
    endless = a.eq(1.0) | ((a > 1.0) & (b <= 0.0) & b.floor().eq(b))
    return choose(endless, math.inf, choose(fine, value, math.nan))


@function("special method")
def polygamma(n: Any, x: Any) -> Tensor:
    """The n-th derivative of `digamma`, for an int n from 0 on: `polygamma(n, x)` and `x.polygamma(n)`.

    Raises ShapeError for an n below 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).polygamma(1).round(4)
    Tensor([1.6449], dtype=float32)
    """
    if is_tensor(n):
        n, x = x, n
    if not is_tensor(x):
        raise DTypeError(f"polygamma: x is a tensor, not {said(x)}")
    order = whole("n", n)
    if not 0 <= order <= 30:
        raise ShapeError(f"polygamma: n is 0 to 30, not {order}")
    if order == 0:
        return x.digamma()
    return by_slope(lambda x: (_derivative(x, order), _derivative(x, order + 1)))(x)


def _derivative(x: Tensor, n: int) -> Tensor:
    """polygamma: of what is above 0 a zeta function, below by the reflection, whose cotangent is derived n times."""
    below = x < 0.0
    y = choose(below, 1.0 - x, x)
    total: Any = 0.0
    for k in range(_NEAR):
        total = (y + float(k)) ** (-(n + 1.0)) + total
    sign = 1.0 if n % 2 else -1.0
    value = (total + _rest(n + 1.0, y + float(_NEAR))) * (sign * math.factorial(n))
    r = x - x.round()
    inside = below & r.ne(0.0)
    turn = 1.0 / (choose(inside, r, 0.25) * math.pi).tan()
    mirrored = -sign * value - polynomial(turn, _cotangent(n)) * math.pi ** (n + 1)
    return choose(below, choose(inside, mirrored, math.inf if n % 2 else math.nan), value)


def _cotangent(n: int) -> tuple[float, ...]:
    """The n-th derivative of the cotangent as a polynomial in it, the highest power first."""
    now = [0.0, 1.0]  # the lowest first
    for _ in range(n):
        slope = [i * c for i, c in enumerate(now)][1:]
        now = [-(a + b) for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope])]
    return tuple(now[::-1])


@function("special=multigammaln single")
def mvlgamma(x: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p: a sum of `lgamma(x - j / 2)` for j below p,
    of x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0]).mvlgamma(2).round(4)
    Tensor([0.4516], dtype=float32)
    """
    if not 1 <= p <= 1024:
        raise ShapeError(f"mvlgamma: p is 1 or more, not {p}")
    x = floats_of(x)
    total: Any = 0.25 * p * (p - 1) * math.log(math.pi)
    for j in range(p):
        total = (x - 0.5 * j).lgamma() + total
    return total  # type: ignore[no-any-return]
