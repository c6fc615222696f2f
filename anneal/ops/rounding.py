"""Signs, rounding and what is finite, element by element."""

from __future__ import annotations

import math

from anneal.errors import DTypeError
from anneal.names import Tensor
from anneal.ops.arguments import function
from anneal.ops.elementwise import choose, real_node, unary, where_node
from anneal.ops.functions import by_slope
from anneal.ops.nodes import broadcast
from anneal.ops.precision import check_growth
from anneal.uop import Op, const, dtypes

_BOOL = dtypes.bool_
_INT32 = dtypes.int32


@function(alias="negative", in_place=True)
def neg(x: Tensor) -> Tensor:
    """-x; unsigned integers wrap. Raises DTypeError for bools.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 2.0]).neg()
    Tensor([ 1.5, -2. ], dtype=float32)
    """
    if x.uop.dtype is _BOOL:
        raise DTypeError("neg: a bool has no negative; use ~ (logical_not), or .int() first")
    return _turned(x, "neg", Op.NEG)


def _turned(x: Tensor, name: str, op: Op) -> Tensor:
    if x.uop.dtype is _INT32 and x.uop.vmax == _INT32.min:
        check_growth(name, Op.SUB, const(_INT32, 0), x.uop)
    return unary(x, op)


@function(alias="absolute", in_place=True)
def abs(x: Tensor) -> Tensor:
    """The distance from 0; the lowest signed integer stays itself.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 2.0]).abs()
    Tensor([1.5, 2. ], dtype=float32)
    """
    return _turned(x, "abs", Op.ABS) if x.uop.dtype.kind in ("float", "int") else x


@function(in_place=True)
def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1; nan stays nan.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 0.0, 2.0]).sign()
    Tensor([-1.,  0.,  1.], dtype=float32)
    """
    return x if x.uop.dtype is _BOOL else unary(x, Op.SIGN)


def _rounded(x: Tensor, op: Op) -> Tensor:
    return unary(x, op) if x.uop.dtype.is_float else x


@function(in_place=True)
def floor(x: Tensor) -> Tensor:
    """The whole number at or below; integers are themselves.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 1.2]).floor()
    Tensor([-2.,  1.], dtype=float32)
    """
    return _rounded(x, Op.FLOOR)


@function(in_place=True)
def ceil(x: Tensor) -> Tensor:
    """The whole number at or above; integers are themselves.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 1.2]).ceil()
    Tensor([-1.,  2.], dtype=float32)
    """
    return _rounded(x, Op.CEIL)


@function(in_place=True)
def trunc(x: Tensor) -> Tensor:
    """The whole number towards 0; integers are themselves.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 1.2]).trunc()
    Tensor([-1.,  1.], dtype=float32)
    """
    return _rounded(x, Op.TRUNC)


@function(in_place=True, special=True)
def round(x: Tensor, decimals: int = 0) -> Tensor:
    """The nearest whole number (or multiple of 10**-decimals), halves to even.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.5, 1.5, -2.5]).round()
    Tensor([ 0.,  2., -2.], dtype=float32)
    """
    if decimals and x.uop.dtype.is_float:
        scale = 10.0**decimals if decimals < 308 else math.inf
        return unary(x * scale, Op.ROUND) / scale
    return _rounded(x, Op.ROUND)


@function(in_place=True)
def frac(x: Tensor) -> Tensor:
    """x minus its whole part towards 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 1.25]).frac()
    Tensor([-0.5 ,  0.25], dtype=float32)
    """
    return x - x.trunc()


@function
def isnan(x: Tensor) -> Tensor:
    """True for each element that is not a number.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("inf"), float("nan")]).isnan()
    Tensor([False, False,  True], dtype=bool)
    """
    return x._new_plain(broadcast(x.uop.ne(x.uop), x.shape))


@function
def isinf(x: Tensor) -> Tensor:
    """True for each element that is plus or minus infinity.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("inf"), float("nan")]).isinf()
    Tensor([False,  True, False], dtype=bool)
    """
    if not x.uop.dtype.is_float:
        return x._new_plain(broadcast(const(_BOOL, False), x.shape))
    return x.abs().eq(math.inf)


@function
def isposinf(x: Tensor) -> Tensor:
    """True for each element that is infinity.

    >>> from anneal.tensor import Tensor
    >>> Tensor([float("inf"), -float("inf")]).isposinf()
    Tensor([ True, False], dtype=bool)
    """
    return x.isinf() & (x > 0)


@function
def isneginf(x: Tensor) -> Tensor:
    """True for each element that is minus infinity.

    >>> from anneal.tensor import Tensor
    >>> Tensor([float("inf"), -float("inf")]).isneginf()
    Tensor([False,  True], dtype=bool)
    """
    return x.isinf() & (x < 0)


@function
def isfinite(x: Tensor) -> Tensor:
    """True for each element that is neither infinite nor nan.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("inf"), float("nan")]).isfinite()
    Tensor([ True, False, False], dtype=bool)
    """
    if not x.uop.dtype.is_float:
        return x._new_plain(broadcast(const(_BOOL, True), x.shape))
    return x.abs().lt(math.inf)


@function(in_place=True)
def nan_to_num(x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """nan and the infinities replaced; by the dtype's ends where no number is given.

    >>> from anneal.tensor import Tensor
    >>> Tensor([float("nan"), float("inf")]).nan_to_num(posinf=9.0)
    Tensor([0., 9.], dtype=float32)
    """
    u = x.uop
    if not u.dtype.is_float:
        return x
    top = u.dtype.largest
    high, low = top if posinf is None else posinf, -top if neginf is None else neginf
    u = where_node(u.ne(u), const(u.dtype, nan), u)
    u = where_node(u.eq(math.inf), const(u.dtype, high), u)
    return x._new(where_node(u.eq(-math.inf), const(u.dtype, low), u))


# -- torch's functions of complex numbers, for real ones --------------------------------------------------------------


@function(alias="conj_physical resolve_conj resolve_neg", function_alias="real")
def conj(x: Tensor) -> Tensor:
    """The tensor itself: real numbers are their own conjugates.

    >>> from anneal.tensor import Tensor
    >>> conj(Tensor([-1.5, 0.0, 2.0]))
    Tensor([-1.5,  0. ,  2. ], dtype=float32)
    """
    return x


@function(in_place=True)
def sgn(x: Tensor) -> Tensor:
    """`sign`, of x's shape.

    >>> from anneal.tensor import Tensor
    >>> sgn(Tensor([-1.5, 0.0, 2.0]))
    Tensor([-1.,  0.,  1.], dtype=float32)
    """
    return x.sign()


@function
def angle(x: Tensor) -> Tensor:
    """0 for numbers from 0 on, pi below, nan for nan; the gradient is 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0, -2.0]).angle().round(4)
    Tensor([0.    , 3.1416], dtype=float32)
    """
    floats = x._new(real_node(x))
    return by_slope(floats, lambda x: (choose(x.isnan(), x, choose(x < 0, math.pi, 0.0)).detach(), x.detach() * 0.0))
