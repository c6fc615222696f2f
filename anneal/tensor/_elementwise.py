"""Arithmetic, comparison, logic, bits, rounding and choices, element by element, with broadcasting and promotion.

Promotion. Two tensors meet in the dtype that holds both: bool < integer < float; within a kind the wider; a signed
and an unsigned integer in the next wider signed one. A Python number is weak: it takes the tensor's dtype unless its
kind is higher (a float beside an integer tensor gives float32, an int beside a bool tensor int32). `/` and the
functions of real numbers turn integers into float32 first.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from anneal.errors import DTypeError
from anneal.ops import broadcast_shapes
from anneal.ops.nodes import Number, broadcast, common_dtype, elementwise, reduce_axis, reshape, weak_const
from anneal.tensor._base import TensorBase
from anneal.uop import DType, Op, UOp, alu, const, dtypes

__all__ = ["Elementwise", "beside"]

_SCALARS = (bool, int, float)
_FLOAT32 = dtypes.float32
_BOOL = dtypes.bool_
_DETACH = Op.DETACH
_EXPONENTIAL = frozenset((Op.ADD, Op.EXP, Op.SUB))  # ops that exp(x) + c may end in

Operand = Any  # a tensor, an array or a Python number


class Elementwise(TensorBase):
    """Elementwise operations; `other` is a tensor, an array or a Python number."""

    __slots__ = ()

    # -- how operands meet ----------------------------------------------------------------------------------------

    def _meet(self, name: str, other: Operand) -> tuple[UOp, UOp, tuple[int, ...], TensorBase]:
        """Both operands with one dtype and one shape (or none), that shape, and the other tensor."""
        a = self.uop
        if isinstance(other, _SCALARS):
            b = weak_const(name, a.dtype, other)
            return (a if a.dtype is b.dtype else a.cast(b.dtype)), b, a.shape, self
        o = self._lift(name, other)
        b = o.uop
        sa, sb = a.shape, b.shape
        if a.dtype is not b.dtype:
            a, b = common_dtype(a, b)
        if sa == sb or not sb:
            return a, b, sa, o
        if not sa:
            return a, b, sb, o
        shape = broadcast_shapes(name, sa, sb)
        return broadcast(a, shape), broadcast(b, shape), shape, o

    def _binary(self, name: str, op: Op, other: Operand, swap: bool = False) -> Self:
        a, b, shape, o = self._meet(name, other)
        return self._new(elementwise(op, (b, a) if swap else (a, b), shape), o)

    def _unary(self, op: Op) -> Self:
        return self._new(alu(op, (self.uop,)))

    def _real(self) -> UOp:
        """The node as a float: integers and bools become float32."""
        u = self.uop
        return u if u.dtype.is_float else u.cast(_FLOAT32)

    def _real_unary(self, op: Op) -> Self:
        return self._new(alu(op, (self._real(),)))

    def _need(self, name: str, dtype: DType, fits: bool, wanted: str) -> None:
        if not fits:
            raise DTypeError(f"{name}: takes {wanted}, not {dtype.name}; use .cast first")

    # -- arithmetic -----------------------------------------------------------------------------------------------

    def add(self, other: Operand, alpha: Number = 1) -> Self:
        """self + alpha * other; a logical or on bools.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2]) + Tensor([[10], [20]])
        Tensor([[11, 12],
                [21, 22]], dtype=int32)
        """
        if alpha != 1:
            other = self._lift("add", other)._binary("add", Op.MUL, alpha)
        return self._binary("add", Op.ADD, other)

    def sub(self, other: Operand, alpha: Number = 1) -> Self:
        """self - alpha * other. Raises DTypeError for two bools.

        >>> from anneal.tensor import Tensor
        >>> 10 - Tensor([1, 2])
        Tensor([9, 8], dtype=int32)
        """
        if alpha != 1:
            other = self._lift("sub", other)._binary("sub", Op.MUL, alpha)
        return self._sub(other, False)

    def _sub(self, other: Operand, swap: bool) -> Self:
        a, b, shape, o = self._meet("sub", other)
        if a.dtype is _BOOL:
            raise DTypeError("sub: bools have no difference; use ^ (logical_xor), or .int() first")
        return self._new(elementwise(Op.SUB, (b, a) if swap else (a, b), shape), o)

    def mul(self, other: Operand) -> Self:
        """self * other; a logical and on bools."""
        return self._binary("mul", Op.MUL, other)

    def div(self, other: Operand, rounding_mode: str | None = None) -> Self:
        """self / other as floats; with rounding_mode "floor" or "trunc" the rounded quotient, in the operands' dtype.

        >>> from anneal.tensor import Tensor
        >>> Tensor([7, -7]) / 2, Tensor([7, -7]).div(2, rounding_mode="trunc")
        (Tensor([ 3.5, -3.5], dtype=float32), Tensor([ 3, -3], dtype=int32))
        """
        if rounding_mode == "floor":
            return self.floor_divide(other)
        if rounding_mode == "trunc":
            return self._trunc_divide(other)
        if rounding_mode is not None:
            raise DTypeError(f'div: rounding_mode is None, "floor" or "trunc", not {rounding_mode!r}')
        return self._div(other, False)

    def _div(self, other: Operand, swap: bool) -> Self:
        a, b, shape, o = self._meet("div", other)
        if not a.dtype.is_float:
            a, b = a.cast(_FLOAT32), b.cast(_FLOAT32)
        if swap:
            a, b = b, a
        u = elementwise(Op.DIV, (a, b), shape)
        below = (self if swap else o).uop
        if below.op in _EXPONENTIAL and (self.requires_grad or o.requires_grad):
            u = _over_exp(u, a, below)
        return self._new(u, o)

    def _floor_divide(self, other: Operand, swap: bool) -> Self:
        a, b, shape, o = self._meet("floor_divide", other)
        if swap:
            a, b = b, a
        self._need("floor_divide", a.dtype, a.dtype is not _BOOL, "integers or floats")
        return self._new(elementwise(Op.IDIV, (a, b), shape), o)

    def floor_divide(self, other: Operand) -> Self:
        """The quotient rounded towards minus infinity, as Python's `//`. An integer divided by 0 gives 0.

        >>> from anneal.tensor import Tensor
        >>> Tensor([7, -7]) // 2
        Tensor([ 3, -4], dtype=int32)
        """
        return self._floor_divide(other, False)

    def _trunc_divide(self, other: Operand) -> Self:
        a, b, shape, o = self._meet("div", other)
        if a.dtype.is_float:
            below = alu(Op.XOR, (_below_zero(a), _below_zero(b)))
            quotient = alu(Op.IDIV, (_size(a), _size(b)))
            return self._new(broadcast(_where(below, alu(Op.NEG, (quotient,)), quotient), shape), o)
        self._need("div", a.dtype, a.dtype.is_int, "integers or floats")
        quotient = elementwise(Op.IDIV, (a, b), shape)
        if a.dtype.kind == "int":
            quotient = alu(Op.ADD, (quotient, _off_by_one(a, b).cast(a.dtype)))
        return self._new(broadcast(quotient, shape), o)

    def _remainder(self, other: Operand, swap: bool) -> Self:
        a, b, shape, o = self._meet("remainder", other)
        if swap:
            a, b = b, a
        self._need("remainder", a.dtype, a.dtype is not _BOOL, "integers or floats")
        return self._new(elementwise(Op.MOD, (a, b), shape), o)

    def remainder(self, other: Operand) -> Self:
        """What floor division leaves: the sign of `other`, as Python's `%`. An integer modulo 0 gives 0.

        >>> from anneal.tensor import Tensor
        >>> Tensor([7, -7]) % 3
        Tensor([1, 2], dtype=int32)
        """
        return self._remainder(other, False)

    def fmod(self, other: Operand) -> Self:
        """What division rounded towards zero leaves: the sign of `self`, as C's fmod.

        >>> from anneal.tensor import Tensor
        >>> Tensor([7, -7]).fmod(3)
        Tensor([ 1, -1], dtype=int32)
        """
        a, b, shape, o = self._meet("fmod", other)
        if a.dtype.is_float:
            rest = alu(Op.MOD, (_size(a), _size(b)))
            return self._new(broadcast(_where(_has_sign(a), alu(Op.NEG, (rest,)), rest), shape), o)
        self._need("fmod", a.dtype, a.dtype.is_int, "integers or floats")
        rest = elementwise(Op.MOD, (a, b), shape)
        if a.dtype.kind == "int":
            rest = elementwise(Op.SUB, (rest, alu(Op.MUL, (_off_by_one(a, b).cast(a.dtype), b))), shape)
        return self._new(rest, o)

    def divmod(self, other: Operand) -> tuple[Self, Self]:
        """`floor_divide` and `remainder`, as Python's divmod.

        >>> from anneal.tensor import Tensor
        >>> divmod(Tensor([7, -7]), 3)
        (Tensor([ 2, -3], dtype=int32), Tensor([1, 2], dtype=int32))
        """
        return self._floor_divide(other, False), self._remainder(other, False)

    def _pow(self, other: Operand, swap: bool) -> Self:
        if isinstance(other, (bool, int)) and not swap:
            if other == -1 and self.uop.dtype.is_float:
                return self._inverse()
            u = _power(self.uop, int(other))
            if u is not None:
                return self._new(beside(broadcast(u, self.shape), self) if u.is_const else u)
        if isinstance(other, float) and not swap and self.uop.dtype.is_float:
            if other == 0.5:
                return self._unary(Op.SQRT)
            if other == -0.5:
                return self._unary(Op.RSQRT)
            if other.is_integer() and abs(other) <= 4:
                return self._pow(int(other), False)
        a, b, shape, o = self._meet("pow", other)
        if swap:
            a, b = b, a
        if a.dtype.is_float:
            return self._new(elementwise(Op.POW, (a, b), shape), o)
        self._need("pow", a.dtype, a.dtype.is_int, "integers or floats")
        if isinstance(other, int) and not swap and other < 0:
            raise DTypeError(f"pow: an integer to the power {other} is no integer; use .float() first")
        return self._new(broadcast(_int_power(a, b), shape), o)

    def _inverse(self) -> Self:
        """1 / self."""
        below = self._real()
        u = alu(Op.RECIP, (below,))
        if below.op in _EXPONENTIAL and self.requires_grad:
            u = _over_exp(u, const(u.dtype, 1), below)
        return self._new(u)

    def pow(self, other: Operand) -> Self:
        """self ** other. Integers stay integers and wrap; a negative power of an integer truncates towards 0.

        >>> from anneal.tensor import Tensor
        >>> Tensor([2, 3]) ** 3, Tensor([4.0]) ** 0.5
        (Tensor([ 8, 27], dtype=int32), Tensor([2.], dtype=float32))
        """
        return self._pow(other, False)

    def maximum(self, other: Operand) -> Self:
        """The larger of each pair; nan if either is nan. At a tie each side has half the gradient."""
        return self._binary("maximum", Op.MAX, other)

    def minimum(self, other: Operand) -> Self:
        """The smaller of each pair; nan if either is nan. At a tie each side has half the gradient."""
        return self._binary("minimum", Op.MIN, other)

    def lerp(self, end: Operand, weight: Operand) -> Self:
        """self + weight * (end - self).

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0]).lerp(Tensor([10.0]), 0.25)
        Tensor([2.5], dtype=float32)
        """
        apart = self._lift("lerp", end) - self
        return self + apart.mul(weight)

    def addcmul(self, a: Operand, b: Operand, value: Number = 1) -> Self:
        """self + value * a * b."""
        return self + self._lift("addcmul", a).mul(b).mul(value)

    def addcdiv(self, a: Operand, b: Operand, value: Number = 1) -> Self:
        """self + value * a / b."""
        return self + self._lift("addcdiv", a).div(b).mul(value)

    subtract = sub
    multiply = mul
    divide = div
    true_divide = div

    def __add__(self, other: Operand) -> Self:
        return self._binary("add", Op.ADD, other)

    def __radd__(self, other: Operand) -> Self:
        return self._binary("add", Op.ADD, other, True)

    def __sub__(self, other: Operand) -> Self:
        return self._sub(other, False)

    def __rsub__(self, other: Operand) -> Self:
        return self._sub(other, True)

    def __mul__(self, other: Operand) -> Self:
        return self._binary("mul", Op.MUL, other)

    def __rmul__(self, other: Operand) -> Self:
        return self._binary("mul", Op.MUL, other, True)

    def __truediv__(self, other: Operand) -> Self:
        return self._div(other, False)

    def __rtruediv__(self, other: Operand) -> Self:
        return self._div(other, True)

    def __floordiv__(self, other: Operand) -> Self:
        return self._floor_divide(other, False)

    def __rfloordiv__(self, other: Operand) -> Self:
        return self._floor_divide(other, True)

    def __mod__(self, other: Operand) -> Self:
        return self._remainder(other, False)

    def __rmod__(self, other: Operand) -> Self:
        return self._remainder(other, True)

    def __divmod__(self, other: Operand) -> tuple[Self, Self]:
        return self.divmod(other)

    def __rdivmod__(self, other: Operand) -> tuple[Self, Self]:
        return self._floor_divide(other, True), self._remainder(other, True)

    def __pow__(self, other: Operand) -> Self:
        return self._pow(other, False)

    def __rpow__(self, other: Operand) -> Self:
        return self._pow(other, True)

    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self.abs()

    # -- comparison -----------------------------------------------------------------------------------------------

    def _compare(self, name: str, op: Op, other: Operand, swap: bool = False) -> Self:
        a, b, shape, _ = self._meet(name, other)
        return self._new_plain(elementwise(op, (b, a) if swap else (a, b), shape))

    def _at_most(self, name: str, other: Operand, swap: bool) -> Self:
        a, b, shape, _ = self._meet(name, other)
        if swap:
            a, b = b, a
        if a.dtype.is_float:
            # nan is neither less, equal nor greater
            u = alu(Op.OR, (alu(Op.LT, (a, b)), alu(Op.EQ, (a, b))))
        else:
            u = alu(Op.NOT, (alu(Op.LT, (b, a)),))
        return self._new_plain(broadcast(u, shape))

    def eq(self, other: Operand) -> Self:
        """Whether each pair is equal, as bool.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2]) == 2
        Tensor([False,  True], dtype=bool)
        """
        return self._compare("eq", Op.EQ, other)

    def ne(self, other: Operand) -> Self:
        """Whether each pair differs, as bool; true for nan."""
        return self._compare("ne", Op.NE, other)

    def lt(self, other: Operand) -> Self:
        """self < other, as bool."""
        return self._compare("lt", Op.LT, other)

    def gt(self, other: Operand) -> Self:
        """self > other, as bool."""
        return self._compare("gt", Op.LT, other, True)

    def le(self, other: Operand) -> Self:
        """self <= other, as bool; false for nan."""
        return self._at_most("le", other, False)

    def ge(self, other: Operand) -> Self:
        """self >= other, as bool; false for nan."""
        return self._at_most("ge", other, True)

    not_equal = ne
    less = lt
    greater = gt
    less_equal = le
    greater_equal = ge

    def __eq__(self, other: Operand) -> Self:  # type: ignore[override]
        return self.eq(other) if _comparable(other) else NotImplemented

    def __ne__(self, other: Operand) -> Self:  # type: ignore[override]
        return self.ne(other) if _comparable(other) else NotImplemented

    def __lt__(self, other: Operand) -> Self:
        return self.lt(other)

    def __gt__(self, other: Operand) -> Self:
        return self.gt(other)

    def __le__(self, other: Operand) -> Self:
        return self.le(other)

    def __ge__(self, other: Operand) -> Self:
        return self.ge(other)

    __hash__ = TensorBase.__hash__

    def isclose(self, other: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Self:
        """Whether |self - other| <= atol + rtol * |other|, or both are the same infinity (or nan, if equal_nan).

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 1.1]).isclose(Tensor([1.000001, 1.0]))
        Tensor([ True, False], dtype=bool)
        """
        o = self._lift("isclose", other)
        near = (self == o) | (((self - o).abs() <= o.abs() * rtol + atol) & o.isfinite())
        return near | (self.isnan() & o.isnan()) if equal_nan else near

    def allclose(self, other: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
        """Whether `isclose` holds for all pairs, as Python's bool: it is computed now.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 2.0]).allclose([1.0, 2.000001])
        True
        """
        near = self.isclose(other, rtol, atol, equal_nan)
        return bool(near.numpy().all())

    def isin(self, values: Operand) -> Self:
        """Whether each element is one of `values`, which are compared one by one.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2, 3]).isin(Tensor([3, 1]))
        Tensor([ True, False,  True], dtype=bool)
        """
        v = self._lift("isin", values)
        n = math.prod(v.shape)
        mine = self._new(reshape(self.uop, (*self.shape, 1)))
        hit = mine.eq(v._new(reshape(v.uop, (n,)))).uop
        hit = broadcast(hit, (*self.shape, n))
        return self._new_plain(reshape(reduce_axis(hit, Op.MAX, (self.ndim,)) if n != 1 else hit, self.shape))

    # -- logic and bits -------------------------------------------------------------------------------------------

    def _bits(self, name: str, op: Op, other: Operand, swap: bool = False) -> Self:
        a, b, shape, _ = self._meet(name, other)
        if a.dtype.is_float:
            raise DTypeError(f"{name}: takes integers or bools, not {a.dtype.name}; use .int() or .bool() first")
        return self._new_plain(elementwise(op, (b, a) if swap else (a, b), shape))

    def _shift(self, name: str, op: Op, other: Operand, swap: bool = False) -> Self:
        a, b, shape, _ = self._meet(name, other)
        self._need(name, a.dtype, a.dtype.is_int, "integers")
        if b.is_const and not swap and not 0 <= b.arg < a.dtype.bits:
            raise DTypeError(f"{name}: a shift of {a.dtype.name} is 0 to {a.dtype.bits - 1} places, not {b.arg}")
        return self._new_plain(elementwise(op, (b, a) if swap else (a, b), shape))

    def bitwise_and(self, other: Operand) -> Self:
        """Each bit of both; logical and on bools. Raises DTypeError for floats."""
        return self._bits("bitwise_and", Op.AND, other)

    def bitwise_or(self, other: Operand) -> Self:
        """Each bit of either; logical or on bools. Raises DTypeError for floats."""
        return self._bits("bitwise_or", Op.OR, other)

    def bitwise_xor(self, other: Operand) -> Self:
        """Each bit of exactly one; logical xor on bools. Raises DTypeError for floats."""
        return self._bits("bitwise_xor", Op.XOR, other)

    def bitwise_not(self) -> Self:
        """Every bit inverted; logical not on bools. Raises DTypeError for floats."""
        if self.uop.dtype.is_float:
            raise DTypeError(f"bitwise_not: takes integers or bools, not {self.dtype.name}; use .logical_not()")
        return self._new_plain(alu(Op.NOT, (self.uop,)))

    def bitwise_left_shift(self, other: Operand) -> Self:
        """self << other, for shifts from 0 to the width minus one.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 3]) << 4
        Tensor([16, 48], dtype=int32)
        """
        return self._shift("bitwise_left_shift", Op.SHL, other)

    def bitwise_right_shift(self, other: Operand) -> Self:
        """self >> other, for shifts from 0 to the width minus one; the sign is kept."""
        return self._shift("bitwise_right_shift", Op.SHR, other)

    def __and__(self, other: Operand) -> Self:
        return self._bits("bitwise_and", Op.AND, other)

    def __rand__(self, other: Operand) -> Self:
        return self._bits("bitwise_and", Op.AND, other, True)

    def __or__(self, other: Operand) -> Self:
        return self._bits("bitwise_or", Op.OR, other)

    def __ror__(self, other: Operand) -> Self:
        return self._bits("bitwise_or", Op.OR, other, True)

    def __xor__(self, other: Operand) -> Self:
        return self._bits("bitwise_xor", Op.XOR, other)

    def __rxor__(self, other: Operand) -> Self:
        return self._bits("bitwise_xor", Op.XOR, other, True)

    def __invert__(self) -> Self:
        return self.bitwise_not()

    def __lshift__(self, other: Operand) -> Self:
        return self._shift("bitwise_left_shift", Op.SHL, other)

    def __rlshift__(self, other: Operand) -> Self:
        return self._shift("bitwise_left_shift", Op.SHL, other, True)

    def __rshift__(self, other: Operand) -> Self:
        return self._shift("bitwise_right_shift", Op.SHR, other)

    def __rrshift__(self, other: Operand) -> Self:
        return self._shift("bitwise_right_shift", Op.SHR, other, True)

    def _truth(self) -> Self:
        return self._new_plain(_true(self.uop))

    def logical_not(self) -> Self:
        """Whether each element is 0 (or False).

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0, 2.0]).logical_not()
        Tensor([ True, False], dtype=bool)
        """
        return self._new_plain(alu(Op.NOT, (_true(self.uop),)))

    def logical_and(self, other: Operand) -> Self:
        """Whether both differ from 0."""
        return self._truth()._bits("logical_and", Op.AND, self._lift("logical_and", other)._truth())

    def logical_or(self, other: Operand) -> Self:
        """Whether either differs from 0."""
        return self._truth()._bits("logical_or", Op.OR, self._lift("logical_or", other)._truth())

    def logical_xor(self, other: Operand) -> Self:
        """Whether exactly one differs from 0."""
        return self._truth()._bits("logical_xor", Op.XOR, self._lift("logical_xor", other)._truth())

    # -- signs and rounding ---------------------------------------------------------------------------------------

    def neg(self) -> Self:
        """-self; unsigned integers wrap. Raises DTypeError for bools."""
        if self.uop.dtype is _BOOL:
            raise DTypeError("neg: a bool has no negative; use ~ (logical_not), or .int() first")
        return self._unary(Op.NEG)

    negative = neg

    def abs(self) -> Self:
        """The distance from 0; the lowest signed integer stays itself."""
        return self._unary(Op.ABS) if self.uop.dtype.kind in ("float", "int") else self

    absolute = abs

    def sign(self) -> Self:
        """-1, 0 or 1; nan stays nan."""
        return self if self.uop.dtype is _BOOL else self._unary(Op.SIGN)

    def _round(self, op: Op) -> Self:
        return self._unary(op) if self.uop.dtype.is_float else self

    def floor(self) -> Self:
        """The whole number at or below; integers are themselves."""
        return self._round(Op.FLOOR)

    def ceil(self) -> Self:
        """The whole number at or above; integers are themselves."""
        return self._round(Op.CEIL)

    def trunc(self) -> Self:
        """The whole number towards 0; integers are themselves."""
        return self._round(Op.TRUNC)

    def round(self, decimals: int = 0) -> Self:
        """The nearest whole number (or multiple of 10**-decimals), halves to even.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.5, 1.5, -2.5]).round()
        Tensor([ 0.,  2., -2.], dtype=float32)
        """
        if decimals and self.uop.dtype.is_float:
            scale = 10.0**decimals
            return (self * scale)._unary(Op.ROUND) / scale
        return self._round(Op.ROUND)

    def frac(self) -> Self:
        """self minus its whole part towards 0."""
        return self - self.trunc()

    def isnan(self) -> Self:
        """Whether each element is not a number."""
        return self._new_plain(broadcast(alu(Op.NE, (self.uop, self.uop)), self.shape))

    def isinf(self) -> Self:
        """Whether each element is plus or minus infinity."""
        if not self.uop.dtype.is_float:
            return self._new_plain(broadcast(const(_BOOL, False), self.shape))
        return self.abs().eq(math.inf)

    def isposinf(self) -> Self:
        """Whether each element is infinity."""
        return self.isinf() & (self > 0)

    def isneginf(self) -> Self:
        """Whether each element is minus infinity."""
        return self.isinf() & (self < 0)

    def isfinite(self) -> Self:
        """Whether each element is neither infinite nor nan."""
        if not self.uop.dtype.is_float:
            return self._new_plain(broadcast(const(_BOOL, True), self.shape))
        return self.abs().lt(math.inf)

    def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
        """nan and the infinities replaced; by the dtype's ends where no number is given.

        >>> from anneal.tensor import Tensor
        >>> Tensor([float("nan"), float("inf")]).nan_to_num(posinf=9.0)
        Tensor([0., 9.], dtype=float32)
        """
        u = self.uop
        if not u.dtype.is_float:
            return self
        top = u.dtype.largest
        high, low = top if posinf is None else posinf, -top if neginf is None else neginf
        u = _where(alu(Op.NE, (u, u)), const(u.dtype, nan), u)
        u = _where(alu(Op.EQ, (u, const(u.dtype, math.inf))), const(u.dtype, high), u)
        return self._new(_where(alu(Op.EQ, (u, const(u.dtype, -math.inf))), const(u.dtype, low), u))

    # -- choosing -------------------------------------------------------------------------------------------------

    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Self:
        """Every element moved into [min, max]; either may be left out, or be a tensor. At a bound the gradient passes.

        >>> from anneal.tensor import Tensor
        >>> Tensor([-5, 0, 5]).clamp(-1, 2)
        Tensor([-1,  0,  2], dtype=int32)
        """
        if min is None and max is None:
            raise DTypeError("clamp: give min, max, or both")
        out = self._clip(min, max)
        if not out.requires_grad:
            return out
        chosen: Any = self
        if min is not None:
            chosen = (chosen < min)._choose(min, chosen)
        if max is not None:
            chosen = (chosen > max)._choose(max, chosen)
        return out._new(UOp(Op.COMPOSITE, out.uop.dtype, (out.uop, chosen.uop), ("equal", ())))

    clip = clamp

    def _clip(self, min: Operand | None, max: Operand | None) -> Self:
        """`clamp` whose gradient ends at a constant bound, as that of relu."""
        out = self if min is None else self._binary("clamp", Op.MAX, min)
        return out if max is None else out._binary("clamp", Op.MIN, max)

    def _choose(self, a: Operand, b: Operand) -> Self:
        """`a` where this bool tensor is true, else `b`: both broadcast and promote."""
        p = self.uop
        if isinstance(a, _SCALARS) and isinstance(b, _SCALARS):
            first = weak_const("where", dtypes.bool_, a)
            second = weak_const("where", dtypes.bool_, b)
            ua, ub = common_dtype(first, second)
            return self._new_plain(elementwise(Op.WHERE, (p, ua, ub), p.shape))
        if isinstance(a, _SCALARS):
            tb = self._lift("where", b)
            ub = tb.uop
            ua = weak_const("where", ub.dtype, a)
            ub = ub.cast(ua.dtype)
            ta = tb
        elif isinstance(b, _SCALARS):
            ta = self._lift("where", a)
            ua = ta.uop
            ub = weak_const("where", ua.dtype, b)
            ua = ua.cast(ub.dtype)
            tb = ta
        else:
            ta, tb = self._lift("where", a), self._lift("where", b)
            ua, ub = common_dtype(ta.uop, tb.uop)
        if p.shape == ua.shape == ub.shape:
            shape = p.shape
        else:
            shape = broadcast_shapes("where", p.shape, ua.shape, ub.shape)
            p, ua, ub = (broadcast(u, shape) if u.shape else u for u in (p, ua, ub))
        u = elementwise(Op.WHERE, (p, ua, ub), shape)
        for kept, left, t in ((ua, ub, tb), (ub, ua, ta)):
            if u is kept and u is not left and t.requires_grad:
                # a constant condition leaves an operand out; its gradient is zero all the same
                u = UOp(Op.COMPOSITE, u.dtype, (u, left), ("chosen", ()))
        return self._new(u, ta, tb)


def beside(u: UOp, *left: TensorBase) -> UOp:
    """`u`, which depends on none of `left`, though it was computed from them: their gradient is zero rather than
    missing.
    """
    for t in left:
        if t.requires_grad:
            u = UOp(Op.COMPOSITE, u.dtype, (u, t.uop), ("beside", ()))
    return u


def _over_exp(u: UOp, a: UOp, b: UOp) -> UOp:
    """`u`, which is a / b, with a gradient that stays finite if `b` is an exponential, or one plus or less a constant.

    By the rules of division and exp, the slope of 1 / (1 + exp(-x)) is the inverse, squared, times exp(-x): for x below
    -88 that is 0 times infinity, and digits are lost from -44 on.
    """
    e, c = b, 0.0
    if b.op is not Op.EXP:
        e, last = b.src
        if e.op is not Op.EXP or not last.is_const:
            return u
        c = float(last.arg) if b.op is Op.ADD else -float(last.arg)
    if b.dtype is not u.dtype:
        return u
    if a.is_const and a.arg == 1 and b.shape == u.shape:
        return UOp(Op.COMPOSITE, u.dtype, (u, e.src[0], e), ("inverse", c))
    inverse = UOp(Op.COMPOSITE, u.dtype, (alu(Op.RECIP, (b,)), e.src[0], e), ("inverse", c))
    product = elementwise(Op.MUL, (a, broadcast(inverse, u.shape)), u.shape)
    return UOp(Op.COMPOSITE, u.dtype, (u, product), ("equal", ()))


def _comparable(other: object) -> bool:
    """Whether == is a question about values; beside None, text and the like it is one about identity."""
    return isinstance(other, (TensorBase, bool, int, float, np.generic, np.ndarray, list, tuple))


def _where(p: UOp, a: UOp, b: UOp) -> UOp:
    return alu(Op.WHERE, (p, a, b))


def _true(u: UOp) -> UOp:
    return u if u.dtype is _BOOL else alu(Op.NE, (u, const(u.dtype, 0)))


def _below_zero(u: UOp) -> UOp:
    return alu(Op.LT, (u, const(u.dtype, 0)))


def _has_sign(u: UOp) -> UOp:
    """Whether a float is negative; true of -0.0."""
    wide = u if u.dtype.bits >= 32 else u.cast(_FLOAT32)
    bits = dtypes.int32 if wide.dtype.bits == 32 else dtypes.int64
    return _below_zero(UOp(Op.BITCAST, bits, (wide,)))


def _size(u: UOp) -> UOp:
    """|u|, with slope 1 at 0: it stands for u with its sign taken away and given back."""
    return _where(_below_zero(u), alu(Op.NEG, (u,)), u)


def _off_by_one(a: UOp, b: UOp) -> UOp:
    """Whether the floor and the truncated quotient of signed integers differ: signs differ and something is left."""
    rest = alu(Op.MOD, (a, b))
    zero = const(a.dtype, 0)
    apart = alu(Op.XOR, (alu(Op.LT, (a, zero)), alu(Op.LT, (b, zero))))
    return alu(Op.AND, (alu(Op.NE, (rest, zero)), apart))


def _power(x: UOp, n: int) -> UOp | None:
    """x ** n by repeated multiplication, where that is exact or as good as a power; None where it is not."""
    if x.dtype is _BOOL:
        x = x.cast(dtypes.int32)
    if x.dtype.is_float:
        if not 0 <= n <= 4:
            return None
    elif n < 0:
        return None
    if n == 0:
        return const(x.dtype, 1)
    result: UOp | None = None
    square = x
    while True:
        if n & 1:
            result = square if result is None else alu(Op.MUL, (result, square))
        n >>= 1
        if not n:
            assert result is not None
            return result
        square = alu(Op.MUL, (square, square))


def _int_power(x: UOp, n: UOp) -> UOp:
    """x ** n for integer nodes: square and multiply over the bits of n."""
    one, zero = const(x.dtype, 1), const(x.dtype, 0)
    result: UOp = one
    square = x
    for bit in range(x.dtype.bits - (x.dtype.kind == "int")):
        odd = alu(Op.NE, (alu(Op.AND, (n, const(n.dtype, 1 << bit))), zero))
        result = _where(odd, alu(Op.MUL, (result, square)), result)
        square = alu(Op.MUL, (square, square))
    if x.dtype.kind == "int":
        # 1 / x**|n| truncates to 0 unless x is 1 or -1, whose powers depend on the parity of n alone.
        odd = alu(Op.NE, (alu(Op.AND, (n, one)), zero))
        unit = _where(alu(Op.EQ, (x, one)), one, _where(odd, const(x.dtype, -1), one))
        small = _where(alu(Op.EQ, (alu(Op.ABS, (x,)), one)), unit, zero)
        result = _where(alu(Op.LT, (n, zero)), small, result)
    return result
