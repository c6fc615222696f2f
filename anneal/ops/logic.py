"""Comparison, logic and bits, element by element, with the broadcasting and promotion of `elementwise.py`."""

from __future__ import annotations

import math

from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import function
from anneal.ops.checks import number_first
from anneal.ops.elementwise import need, operands
from anneal.ops.functions import Operand
from anneal.ops.inputs import compares
from anneal.ops.nodes import broadcast, elementwise, reduce_axis, reshape
from anneal.ops.precision import check_growth
from anneal.uop import Op, UOp, dtypes

_BOOL = dtypes.bool_


# -- comparison -------------------------------------------------------------------------------------------------------


def comparison(x: Tensor, name: str, op: Op, other: Operand, swap: bool = False) -> Tensor:
    a, b, shape, _ = operands(x, name, other)
    return x._new_plain(elementwise(op, (b, a) if swap else (a, b), shape))


def at_most(x: Tensor, name: str, other: Operand, swap: bool) -> Tensor:
    a, b, shape, _ = operands(x, name, other)
    if swap:
        a, b = b, a
    if a.dtype.is_float:
        # nan is neither less, equal nor greater
        u = (a < b) | a.eq(b)
    else:
        u = b >= a
    return x._new_plain(broadcast(u, shape))


@function(in_place=True)
@compares
def eq(x: Tensor, other: Operand) -> Tensor:
    """Element-wise `input == other`, as bool.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]) == 2
    Tensor([False,  True], dtype=bool)
    """
    return comparison(x, "eq", Op.EQ, other)


@function(alias="not_equal", in_place=True)
@compares
def ne(x: Tensor, other: Operand) -> Tensor:
    """Element-wise `input != other`, as bool; true for nan.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).ne(2)
    Tensor([ True, False,  True], dtype=bool)
    """
    return comparison(x, "ne", Op.NE, other)


@function(alias="less", in_place=True)
@compares
def lt(x: Tensor, other: Operand) -> Tensor:
    """x < other, as bool.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).lt(2)
    Tensor([ True, False, False], dtype=bool)
    """
    return comparison(x, "lt", Op.LT, other)


@function(alias="greater", in_place=True)
@compares
def gt(x: Tensor, other: Operand) -> Tensor:
    """x > other, as bool.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).gt(2)
    Tensor([False, False,  True], dtype=bool)
    """
    return comparison(x, "gt", Op.LT, other, True)


@function(alias="less_equal", in_place=True)
@compares
def le(x: Tensor, other: Operand) -> Tensor:
    """x <= other, as bool; false for nan.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).le(2)
    Tensor([ True,  True, False], dtype=bool)
    """
    return at_most(x, "le", other, False)


@function(alias="greater_equal", in_place=True)
@compares
def ge(x: Tensor, other: Operand) -> Tensor:
    """x >= other, as bool; false for nan.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).ge(2)
    Tensor([False,  True,  True], dtype=bool)
    """
    return at_most(x, "ge", other, True)


@function
def isclose(x: Tensor, other: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Element-wise |x - other| <= atol + rtol * |other|, as bool; equal infinities are close (and nans, if equal_nan).

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 1.1]).isclose(Tensor([1.000001, 1.0]))
    Tensor([ True, False], dtype=bool)
    """
    if not (rtol >= 0 and atol >= 0):
        raise ShapeError(f"isclose: rtol and atol may not be negative: {rtol} and {atol}")
    o = x._lift("isclose", other)
    if x.dtype is dtypes.bool_:
        x = x.cast(dtypes.int32)
    near = (x == o) | (((x - o).abs() <= o.abs() * rtol + atol) & o.isfinite())
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


@function
@number_first
def isin(x: Tensor, values: Operand) -> Tensor:
    """True for each element that is one of `values`, which are compared one by one.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).isin(Tensor([3, 1]))
    Tensor([ True, False,  True], dtype=bool)
    """
    v = x._lift("isin", values)
    n = math.prod(v.shape)
    mine = x._new(reshape(x.uop, (*x.shape, 1)))
    hit = mine.eq(v._new(reshape(v.uop, (n,)))).uop
    hit = broadcast(hit, (*x.shape, n))
    return x._new_plain(reshape(reduce_axis(hit, Op.MAX, (x.ndim,)) if n != 1 else hit, x.shape))


# -- logic and bits ---------------------------------------------------------------------------------------------------


def bitwise(x: Tensor, name: str, op: Op, other: Operand, swap: bool = False) -> Tensor:
    a, b, shape, _ = operands(x, name, other)
    if a.dtype.is_float:
        raise DTypeError(f"{name}: takes integers or bools, not {a.dtype.name}; use .int() or .bool() first")
    return x._new_plain(elementwise(op, (b, a) if swap else (a, b), shape))


def shift(x: Tensor, name: str, op: Op, other: Operand, swap: bool = False) -> Tensor:
    a, b, shape, _ = operands(x, name, other)
    need(name, a.dtype, a.dtype.is_int, "integers")
    if b.is_const and not swap and b.arg < 0:
        raise DTypeError(f"{name}: a shift is by 0 places or more, not {b.arg}")
    if swap:
        a, b = b, a
    if op is Op.SHL and a.dtype is dtypes.int32:
        check_growth(name, op, a, b)
    return x._new_plain(elementwise(op, (a, b), shape))


@function(in_place=True)
@number_first
def bitwise_and(x: Tensor, other: Operand) -> Tensor:
    """The bitwise and; logical and on bools. Raises DTypeError for floats.

    >>> from anneal.tensor import Tensor
    >>> Tensor([6, 5]).bitwise_and(3)
    Tensor([2, 1], dtype=int32)
    """
    return bitwise(x, "bitwise_and", Op.AND, other)


@function(in_place=True)
@number_first
def bitwise_or(x: Tensor, other: Operand) -> Tensor:
    """The bitwise or; logical or on bools. Raises DTypeError for floats.

    >>> from anneal.tensor import Tensor
    >>> Tensor([6, 5]).bitwise_or(3)
    Tensor([7, 7], dtype=int32)
    """
    return bitwise(x, "bitwise_or", Op.OR, other)


@function(in_place=True)
@number_first
def bitwise_xor(x: Tensor, other: Operand) -> Tensor:
    """The bitwise exclusive or; logical xor on bools. Raises DTypeError for floats.

    >>> from anneal.tensor import Tensor
    >>> Tensor([6, 5]).bitwise_xor(3)
    Tensor([5, 6], dtype=int32)
    """
    return bitwise(x, "bitwise_xor", Op.XOR, other)


@function(in_place=True)
def bitwise_not(x: Tensor) -> Tensor:
    """The bits inverted; logical not on bools. Raises DTypeError for floats.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0, 5]).bitwise_not()
    Tensor([-1, -6], dtype=int32)
    """
    if x.uop.dtype.is_float:
        raise DTypeError(f"bitwise_not: takes integers or bools, not {x.dtype.name}; use .logical_not()")
    return x._new_plain(Op.NOT(x.uop))


@function(in_place=True)
@number_first
def bitwise_left_shift(x: Tensor, other: Operand) -> Tensor:
    """x << other, for shifts from 0 to the width minus one.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 3]) << 4
    Tensor([16, 48], dtype=int32)
    """
    return shift(x, "bitwise_left_shift", Op.SHL, other)


@function(in_place=True)
@number_first
def bitwise_right_shift(x: Tensor, other: Operand) -> Tensor:
    """x >> other, for shifts from 0 to the width minus one; the sign is kept.

    >>> from anneal.tensor import Tensor
    >>> Tensor([8, -8]).bitwise_right_shift(1)
    Tensor([ 4, -4], dtype=int32)
    """
    return shift(x, "bitwise_right_shift", Op.SHR, other)


def truth(x: Tensor) -> Tensor:
    return x._new_plain(_true(x.uop))


@function(in_place=True)
def logical_not(x: Tensor) -> Tensor:
    """True for each element that is 0 (or False).

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 2.0]).logical_not()
    Tensor([ True, False], dtype=bool)
    """
    return x._new_plain(Op.NOT(_true(x.uop)))


@function(in_place=True)
def logical_and(x: Tensor, other: Operand) -> Tensor:
    """True for each pair in which both elements differ from 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 0]).logical_and(Tensor([5, 5]))
    Tensor([ True, False], dtype=bool)
    """
    return bitwise(truth(x), "logical_and", Op.AND, truth(x._lift("logical_and", other)))


@function(in_place=True)
def logical_or(x: Tensor, other: Operand) -> Tensor:
    """True for each pair in which either element differs from 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 0]).logical_or(Tensor([0, 0]))
    Tensor([ True, False], dtype=bool)
    """
    return bitwise(truth(x), "logical_or", Op.OR, truth(x._lift("logical_or", other)))


@function(in_place=True)
def logical_xor(x: Tensor, other: Operand) -> Tensor:
    """True for each pair in which exactly one element differs from 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 0]).logical_xor(Tensor([5, 5]))
    Tensor([False,  True], dtype=bool)
    """
    return bitwise(truth(x), "logical_xor", Op.XOR, truth(x._lift("logical_xor", other)))


def _true(u: UOp) -> UOp:
    return u if u.dtype is _BOOL else u.ne(0)
