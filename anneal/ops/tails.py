"""Functions of the normal distribution, and of entropy, that keep their digits in the tails."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from anneal.ops.arguments import function
from anneal.ops.elementwise import by_slopes, choose, real_node
from anneal.ops.facts import is_tensor, need_tensor
from anneal.ops.functions import by_slope, polynomial
from anneal.ops.precision import in_single

if TYPE_CHECKING:
    from anneal.tensor import Tensor

# log(erfcx(x) * (1 + x/2)) by powers of 1 / (1 + x/2), the highest first: Press and others, Numerical Recipes, 6.2.
_ERFCX = (
    *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196),
    *(1.00002368, -1.26551223),
)
# Quantiles of the normal distribution, numerators and denominators: Wichura (1988), PPND7; the highest power first.
_MIDDLE = (59.109374720, 159.29113202, 50.434271938, 3.3871327179), (67.187563600, 78.757757664, 17.895169469, 1.0)
_TAIL = (0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777), (0.12021132975, 0.73700164250, 1.0)
_FAR = (0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150), (0.012258202635, 0.24197894225, 1.0)


def _scaled_tail(x: Tensor) -> Tensor:
    """erfcx of what is not below 0."""
    t = 1.0 / (x * 0.5 + 1.0)
    return t * polynomial(t, _ERFCX).exp()


def _below(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The condition x < -1; the argument -min(x, -1) / sqrt(2); and the scaled complement erfcx of that argument."""
    low = x < -1.0
    t = choose(low, x, -1.0) * -math.sqrt(0.5)
    return low, t, _scaled_tail(t)


@function(special=True, method=False)
def erfcx(x: Tensor) -> Tensor:
    """exp(x**2) * erfc(x), which does not vanish for large x.

    >>> from anneal.tensor import Tensor
    >>> erfcx(Tensor([0.0, 100.0]))
    Tensor([1.    , 0.0056], dtype=float32)
    """

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        tail, below = _scaled_tail(x.abs()), x < 0.0
        value = choose(below, choose(below, x * x, 0.0).exp() * 2.0 - tail, tail)
        return value, x * value * 2.0 - 2 / math.sqrt(math.pi)

    return by_slope(x, both)


@function(special=True, method=False)
def ndtr(x: Tensor) -> Tensor:
    """The fraction of a normal distribution that lies below x.

    >>> from anneal.tensor import Tensor
    >>> ndtr(Tensor([0.0, 1.0])).round(4)
    Tensor([0.5   , 0.8413], dtype=float32)
    """

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        low, t, tail = _below(x)
        value = choose(low, tail * (-t * t).exp(), (x * -math.sqrt(0.5)).erfc()) * 0.5
        return value, (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))

    return by_slope(x, both)


@function(special=True, method=False)
def log_ndtr(x: Tensor) -> Tensor:
    """log(ndtr(x)), far below 0 too.

    >>> from anneal.tensor import Tensor
    >>> log_ndtr(Tensor([0.0, -10.0]))
    Tensor([ -0.6931, -53.2313], dtype=float32)
    """

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
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

    return by_slope(x, both)


@function(special=True, method=False)
def ndtri(x: Tensor) -> Tensor:
    """The number below which a fraction x of a normal distribution lies: -inf at 0, inf at 1, nan outside.

    >>> from anneal.tensor import Tensor
    >>> ndtri(Tensor([0.5, 0.975])).round(3)
    Tensor([0.  , 1.96], dtype=float32)
    """

    def both(p: Tensor) -> tuple[Tensor, Tensor]:
        q = p - 0.5
        middle = q.abs() <= 0.425
        r = 0.180625 - choose(middle, q, 0.0) * choose(middle, q, 0.0)
        inner = q * polynomial(r, _MIDDLE[0]) / polynomial(r, _MIDDLE[1])
        inside = (p > 0.0) & (p < 1.0)
        rest = choose(inside, p.minimum(1.0 - p), 0.25)
        s = (-rest.log()).sqrt()
        outer: Any = None
        for far, start, tables in ((False, 1.6, _TAIL), (True, 5.0, _FAR)):
            t = s - start
            value = polynomial(t, tables[0]) / polynomial(t, tables[1])
            outer = value if not far else choose(s > 5.0, value, outer)
        outer = choose(q < 0.0, -outer, outer)
        ends = choose(p.eq(0.0), -math.inf, choose(p.eq(1.0), math.inf, math.nan))
        out = choose(inside, choose(middle, inner, outer), ends)
        return out, (out * out * 0.5).exp() * math.sqrt(2 * math.pi)

    return by_slope(x, both)


@function(special=True, method=False)
@in_single()
def entr(x: Tensor) -> Tensor:
    """-x * log(x): 0 at 0, -inf below.

    >>> from anneal.tensor import Tensor
    >>> entr(Tensor([0.0, 0.5, 1.0])).round(4)
    Tensor([ 0.    ,  0.3466, -0.    ], dtype=float32)
    """
    x = x._new(real_node(x))
    above = x > 0.0
    safe = choose(above, x, 1.0)
    out = choose(x.isnan(), x, choose(above, -safe * safe.log(), choose(x.eq(0.0), 0.0, -math.inf)))
    return by_slopes(out, (x, -x.log() - 1.0)) if out.requires_grad else out


@function(special=True)
@in_single()
def xlog1py(x: Any, other: Any) -> Tensor:
    """x * log1p(other), 0 where x is 0 and `other` is no nan; one of both may be a number.

    >>> from anneal.tensor import Tensor
    >>> xlog1py(Tensor([0.0, 2.0]), Tensor([-1.0, 1.0])).round(4)
    Tensor([0.    , 1.3863], dtype=float32)
    """
    one = x if is_tensor(x) else need_tensor("xlog1py", "x or other", other)
    a, b = one._lift("xlog1py", x), one._lift("xlog1py", other)
    a, b = a._new(real_node(a)), b._new(real_node(b))
    zero = a.eq(0.0) & ~b.isnan() & (b.le(-1.0) | b.eq(math.inf))
    out: Tensor = choose(zero, 0.0, a * choose(zero, 0.0, b).log1p())
    return out
