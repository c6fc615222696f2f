"""Comparison, logic and bits, signs and rounding, element by element."""

from __future__ import annotations

import math

from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import family, function
from anneal.ops.elementwise import binary, choose, operands, unary
from anneal.ops.functions import Operand, by_slope
from anneal.ops.inputs import wholes
from anneal.ops.nodes import BOOL, INT32, broadcast, reduce_axis, reshape
from anneal.ops.precision import check_growth
from anneal.uop import Op, alu, const

_standard = function("in_place array_api")


# -- comparison -------------------------------------------------------------------------------------------------------


@wholes("other")
def _compared(op: Op | None, swap: bool, x: Tensor, other: Operand) -> Tensor:
    a, b, shape, _ = operands(x, other, swap)
    if op is not None:
        u = alu(op, (a, b))
    else:  # at most: nan is neither less, equal nor greater
        u = (a < b) | a.eq(b) if a.dtype.is_float else b >= a
    return x._new_plain(broadcast(u, shape))


eq, ne, lt, gt, le, ge = family(
    _compared,
    "in_place",
    """
    eq array_api=equal:
    x == other, as bool.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]) == 2
    Tensor([False,  True], dtype=bool)

    ne alias=not_equal array_api=not_equal:
    x != other, as bool; true for nan.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).ne(2)
    Tensor([ True, False,  True], dtype=bool)

    lt alias=less array_api=less:
    x < other, as bool.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).lt(2)
    Tensor([ True, False, False], dtype=bool)

    gt alias=greater array_api=greater:
    x > other, as bool.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).gt(2)
    Tensor([False, False,  True], dtype=bool)

    le alias=less_equal array_api=less_equal:
    x <= other, as bool; false for nan.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).le(2)
    Tensor([ True,  True, False], dtype=bool)

    ge alias=greater_equal array_api=greater_equal:
    x >= other, as bool; false for nan.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).ge(2)
    Tensor([False,  True,  True], dtype=bool)
    """,
    {
        "eq": (Op.EQ, False),
        "ne": (Op.NE, False),
        "lt": (Op.LT, False),
        "gt": (Op.LT, True),
        "le": (None, False),
        "ge": (None, True),
    },
)


@function
def isclose(x: Tensor, other: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Element-wise |x - other| <= atol + rtol * |other|, as bool; equal infinities are close (and nans, if equal_nan).

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 1.1]).isclose(Tensor([1.000001, 1.0]))
    Tensor([ True, False], dtype=bool)
    """
    if not (rtol >= 0 and atol >= 0):
        raise ShapeError(f"isclose: rtol and atol may not be negative: {rtol} and {atol}")
    o = x._lift(other)
    same = x == o
    if not (x.dtype.is_float or o.dtype.is_float):  # differences of integers may wrap around
        x, o = x.float(), o.float()
    near = same | (((x - o).abs() <= o.abs() * rtol + atol) & o.isfinite())
    return near | (x.isnan() & o.isnan()) if equal_nan else near


@function
def allclose(x: Tensor, other: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """True if `isclose` holds for all pairs of elements; the shapes broadcast. Gives a Python bool, computed now.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).allclose([1.0, 2.000001])
    True
    """
    near = x.isclose(other, rtol, atol, equal_nan)
    return bool(near.numpy().all())


@function("array_api lifts=number")
def isin(x: Tensor, values: Operand, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """True for each element that is one of `values`, which are compared one by one; with `invert` for each other one.
    `assume_unique` is ignored.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).isin(Tensor([3, 1]))
    Tensor([ True, False,  True], dtype=bool)
    """
    v = x._lift(values)
    n = math.prod(v.shape)
    mine = x._new(reshape(x.uop, (*x.shape, 1)))
    hit = mine.eq(v._new(reshape(v.uop, (n,)))).uop
    hit = broadcast(hit, (*x.shape, n))
    found = x._new_plain(reshape(reduce_axis(hit, Op.MAX, (x.ndim,)) if n != 1 else hit, x.shape))
    return ~found if invert else found


# -- logic and bits ---------------------------------------------------------------------------------------------------


def _bits(name: str, op: Op, x: Tensor, other: Operand) -> Tensor:
    return binary(op, x, other)


bitwise_and, bitwise_or, bitwise_xor, bitwise_left_shift, bitwise_right_shift = family(
    _bits,
    "in_place array_api lifts=number",
    """
    bitwise_and:
    The bitwise and; logical and on bools. Raises DTypeError for floats.

    >>> from anneal.tensor import Tensor
    >>> Tensor([6, 5]).bitwise_and(3)
    Tensor([2, 1], dtype=int32)

    bitwise_or:
    The bitwise or; logical or on bools. Raises DTypeError for floats.

    >>> from anneal.tensor import Tensor
    >>> Tensor([6, 5]).bitwise_or(3)
    Tensor([7, 7], dtype=int32)

    bitwise_xor:
    The bitwise exclusive or; logical xor on bools. Raises DTypeError for floats.

    >>> from anneal.tensor import Tensor
    >>> Tensor([6, 5]).bitwise_xor(3)
    Tensor([5, 6], dtype=int32)

    bitwise_left_shift:
    x << other, for shifts from 0 to the width minus one.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 3]) << 4
    Tensor([16, 48], dtype=int32)

    bitwise_right_shift:
    x >> other, for shifts from 0 to the width minus one; the sign is kept.

    >>> from anneal.tensor import Tensor
    >>> Tensor([8, -8]).bitwise_right_shift(1)
    Tensor([ 4, -4], dtype=int32)
    """,
    {
        "bitwise_and": Op.AND,
        "bitwise_or": Op.OR,
        "bitwise_xor": Op.XOR,
        "bitwise_left_shift": Op.SHL,
        "bitwise_right_shift": Op.SHR,
    },
)


@function("in_place array_api=bitwise_invert")
def bitwise_not(x: Tensor) -> Tensor:
    """The bits inverted; logical not on bools. Raises DTypeError for floats.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0, 5]).bitwise_not()
    Tensor([-1, -6], dtype=int32)
    """
    if x.uop.dtype.is_float:
        raise DTypeError(f"bitwise_not: takes integers or bools, not {x.dtype.name}; use .logical_not()")
    return x._new_plain(Op.NOT(x.uop))


def truth(x: Tensor) -> Tensor:
    return x._new_plain(x.uop if x.dtype is BOOL else x.uop.ne(0))


@_standard
def logical_not(x: Tensor) -> Tensor:
    """True for each element that is 0 (or False).

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 2.0]).logical_not()
    Tensor([ True, False], dtype=bool)
    """
    return x._new_plain(Op.NOT(truth(x).uop))


def _logical(name: str, op: Op, x: Tensor, other: Operand) -> Tensor:
    return binary(op, truth(x), truth(x._lift(other)))


logical_and, logical_or, logical_xor = family(
    _logical,
    "in_place array_api",
    """
    logical_and:
    True for each pair in which both elements differ from 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 0]).logical_and(Tensor([5, 5]))
    Tensor([ True, False], dtype=bool)

    logical_or:
    True for each pair in which either element differs from 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 0]).logical_or(Tensor([0, 0]))
    Tensor([ True, False], dtype=bool)

    logical_xor:
    True for each pair in which exactly one element differs from 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 0]).logical_xor(Tensor([5, 5]))
    Tensor([False,  True], dtype=bool)
    """,
    {
        "logical_and": Op.AND,
        "logical_or": Op.OR,
        "logical_xor": Op.XOR,
    },
)


# -- signs, rounding and what is finite, element by element -----------------------------------------------------------


@function("alias=negative in_place array_api=negative")
def neg(x: Tensor) -> Tensor:
    """-x; unsigned integers wrap. Raises DTypeError for bools. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 2.0]).neg()
    Tensor([ 1.5, -2. ], dtype=float32)
    """
    if x.uop.dtype is BOOL:
        raise DTypeError("neg: a bool has no negative; use ~ (logical_not), or .int() first")
    return _turned(x, Op.NEG)


def _turned(x: Tensor, op: Op) -> Tensor:
    if x.uop.dtype is INT32 and x.uop.vmax == INT32.min:
        check_growth(Op.SUB, const(INT32, 0), x.uop, op.name.lower())
    return unary(x, op)


@_standard("alias=absolute")
def abs(x: Tensor) -> Tensor:
    """The distance from 0; the lowest signed integer stays itself. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 2.0]).abs()
    Tensor([1.5, 2. ], dtype=float32)
    """
    return _turned(x, Op.ABS) if x.uop.dtype.kind in ("float", "int") else x.clone()


@_standard("alias=sgn")
def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1; nan stays nan. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 0.0, 2.0]).sign()
    Tensor([-1.,  0.,  1.], dtype=float32)
    """
    return x.clone() if x.uop.dtype is BOOL else unary(x, Op.SIGN)


def _rounded(name: str, op: Op, x: Tensor) -> Tensor:
    return unary(x, op) if x.uop.dtype.is_float else x.clone()


floor, ceil, trunc = family(
    _rounded,
    "in_place array_api",
    """
    floor:
    The whole number at or below; integers are themselves. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 1.2]).floor()
    Tensor([-2.,  1.], dtype=float32)

    ceil:
    The whole number at or above; integers are themselves. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 1.2]).ceil()
    Tensor([-1.,  2.], dtype=float32)

    trunc alias=fix:
    The whole number towards 0; integers are themselves. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 1.2]).trunc()
    Tensor([-1.,  1.], dtype=float32)
    """,
    {"floor": Op.FLOOR, "ceil": Op.CEIL, "trunc": Op.TRUNC},
)


@_standard("special")
def round(x: Tensor, decimals: int = 0) -> Tensor:
    """The nearest whole number, halves to even. With `decimals`, the multiple of 10**-decimals. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.5, 1.5, -2.5]).round()
    Tensor([ 0.,  2., -2.], dtype=float32)
    """
    if decimals and x.uop.dtype.is_float:
        scale = 10.0**decimals if decimals < 308 else math.inf
        wide = x.float() if x.uop.dtype.bits < 32 else x  # times 1000, float16 ends at 65
        return (unary(wide * scale, Op.ROUND) / scale).cast(x.uop.dtype)
    return _rounded("round", Op.ROUND, x)


@function("in_place")
def frac(x: Tensor) -> Tensor:
    """x minus its whole part towards 0. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.5, 1.25]).frac()
    Tensor([-0.5 ,  0.25], dtype=float32)
    """
    return x - x.trunc()


@function("array_api")
def isnan(x: Tensor) -> Tensor:
    """True for each element that is not a number. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("inf"), float("nan")]).isnan()
    Tensor([False, False,  True], dtype=bool)
    """
    return x._new_plain(broadcast(x.uop.ne(x.uop), x.shape))


@function("array_api")
def isinf(x: Tensor) -> Tensor:
    """True for each element that is plus or minus infinity. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("inf"), float("nan")]).isinf()
    Tensor([False,  True, False], dtype=bool)
    """
    if not x.uop.dtype.is_float:
        return x._new_plain(broadcast(const(BOOL, False), x.shape))
    return x.abs().eq(math.inf)


@function
def isposinf(x: Tensor) -> Tensor:
    """True for each element that is infinity. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([float("inf"), -float("inf")]).isposinf()
    Tensor([ True, False], dtype=bool)
    """
    return x.isinf() & (x > 0)


@function
def isneginf(x: Tensor) -> Tensor:
    """True for each element that is minus infinity. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([float("inf"), -float("inf")]).isneginf()
    Tensor([False,  True], dtype=bool)
    """
    return x.isinf() & (x < 0)


@function("array_api")
def isfinite(x: Tensor) -> Tensor:
    """True for each element that is neither infinite nor nan. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("inf"), float("nan")]).isfinite()
    Tensor([ True, False, False], dtype=bool)
    """
    if not x.uop.dtype.is_float:
        return x._new_plain(broadcast(const(BOOL, True), x.shape))
    return x.abs().lt(math.inf)


@function("in_place")
def nan_to_num(x: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """nan and the infinities replaced; by the dtype's ends where no number is given. Gives x's shape.

    Args:
        nan: the number that replaces nan; None: 0.
        posinf: the number that replaces inf; None: the dtype's largest number.
        neginf: the number that replaces -inf; None: the dtype's least number.

    >>> from anneal.tensor import Tensor
    >>> Tensor([float("nan"), float("inf")]).nan_to_num(posinf=9.0)
    Tensor([0., 9.], dtype=float32)
    """
    u = x.uop
    if not u.dtype.is_float:
        return x.clone()
    top = u.dtype.largest
    high, low = top if posinf is None else posinf, -top if neginf is None else neginf
    u = u.ne(u).where(const(u.dtype, nan or 0.0), u)
    u = u.eq(math.inf).where(const(u.dtype, high), u)
    return x._new(u.eq(-math.inf).where(const(u.dtype, low), u))


# -- torch's functions of complex numbers, for real ones --------------------------------------------------------------


@function("itself alias=conj_physical,resolve_conj,resolve_neg function_alias=real array_api=conj,real")
def conj(x: Tensor) -> Tensor:
    """The tensor itself: real numbers are their own conjugates. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> conj(Tensor([-1.5, 0.0, 2.0]))
    Tensor([-1.5,  0. ,  2. ], dtype=float32)
    """
    return x


@function
@by_slope
def angle(x: Tensor) -> tuple[Tensor, Tensor]:
    """0 for numbers from 0 on, pi below, nan for nan; the gradient is 0. Gives x's shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0, -2.0]).angle().round(4)
    Tensor([0.    , 3.1416], dtype=float32)
    """
    return choose(x.isnan(), x, choose(x < 0, x._lift(math.pi), 0.0)).detach(), x.detach() * 0.0
