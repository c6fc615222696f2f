"""Arithmetic and choices, element by element, with broadcasting and promotion."""

from __future__ import annotations

import builtins
import math
from typing import Any

from anneal.errors import DTypeError, RangeError
from anneal.names import Tensor
from anneal.ops.arguments import function
from anneal.ops.checks import broadcast_shapes, of_python
from anneal.ops.inputs import wholes
from anneal.ops.nodes import BOOL, FLOAT32, INT32, Number, broadcast, common_dtype, detached, elementwise, weak_const
from anneal.ops.precision import check_growth
from anneal.uop import Ints, Op, UOp, Varying, alu, by_rule, const, dtypes

_SCALARS = (bool, int, float)
# ops that integers of 32 bits may outgrow, and ops through which no gradient flows
_GROWING = {Op.ADD: "add", Op.SUB: "sub", Op.MUL: "mul", Op.SHL: "bitwise_left_shift"}
_PLAIN = frozenset((Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR))
_DIVISIONS, _SHIFTS = (Op.IDIV, Op.MOD), (Op.SHL, Op.SHR)
# the kinds of dtypes that an op does not take, and what is said of them
_REFUSED = {
    Op.SUB: ("bool", "sub: bools have no difference; use ^ (logical_xor), or .int() first"),
    **dict.fromkeys((*_DIVISIONS, Op.POW), ("bool", "takes integers or floats, not {}; use .cast first")),
    **dict.fromkeys((Op.AND, Op.OR, Op.XOR), ("float", "takes integers or bools, not {}; use .int() or .bool() first")),
    **dict.fromkeys(_SHIFTS, ("bool float", "takes integers, not {}; use .cast first")),
}
_EXPONENTIAL = frozenset((Op.ADD, Op.EXP, Op.SUB))  # ops that exp(x) + c may end in
Operand = Any  # a tensor, an array or a Python number


# -- how operands meet ------------------------------------------------------------------------------------------------

# Promotion. Two tensors meet in the dtype that holds both: bool < integer < float; within a kind the wider; a signed
# and an unsigned integer in the next wider signed one. A Python number is weak: it takes the tensor's dtype unless its
# kind is higher (a float beside an integer tensor gives float32, an int beside a bool tensor int32). `/` and the
# functions of real numbers turn integers into float32 first.


def operands(x: Tensor, other: Operand, swap: bool = False, op: Op | None = None) -> tuple[UOp, UOp, Ints, Tensor]:
    """The two operands in one dtype and one shape (or none), with `swap` the other one first; that shape, and the other
    tensor.
    """
    a, o = x.uop, x
    if isinstance(other, _SCALARS):
        # what is added to an exponential is a part of how its quotient's gradient stays finite
        b = weak_const(a.dtype, float(other) if a.op is Op.EXP and op in _EXPONENTIAL else other)
    else:
        o = x._lift(other)
        b = o.uop
    if a.dtype is not b.dtype:
        a, b = common_dtype(a, b)
    shape, sb = a.shape, b.shape
    if sb and shape != sb:
        if shape:
            shape = broadcast_shapes(shape, sb)
            a, b = broadcast(a, shape), broadcast(b, shape)
        else:
            shape = sb
    a, b = (b, a) if swap else (a, b)
    if op in _REFUSED:
        kinds, words = _REFUSED[op]
        if a.dtype.kind in kinds:
            raise DTypeError(words.format(a.dtype.name))
        none = b.vmin == b.vmax == 0 or (isinstance(other, _SCALARS) and not (swap or other))
        if op in _DIVISIONS and a.dtype.is_int and none and 0 not in shape:
            raise RangeError("integers have no quotient by 0; use floats, or where() to leave those elements out")
        places = other if isinstance(other, _SCALARS) else b.arg if b.is_const else 0
        if op in _SHIFTS and not swap and places < 0:
            raise DTypeError(f"a shift is by 0 places or more, not {places}")
    return a, b, shape, o


def binary(op: Op, x: Tensor, other: Operand, swap: bool = False) -> Tensor:
    a, b, shape, o = operands(x, other, swap, op)
    if op is Op.MUL and a.dtype is dtypes.float16 and _is_beyond(other):
        return binary(op, x.float(), other).half()
    if a.dtype is INT32 and op in _GROWING:
        check_growth(op, a, b, _GROWING[op])
    u = elementwise(op, (a, b), shape)
    return x._new_plain(u) if op in _PLAIN else x._new(u, o)


def _is_beyond(other: Operand) -> bool:
    """True for a number above float16's: torch multiplies and divides by it in float32."""
    return isinstance(other, (int, float)) and 65504 < abs(other) < math.inf


def unary(x: Tensor, op: Op) -> Tensor:
    return x._new(op(x.uop))


def real_node(x: Tensor) -> UOp:
    """The node as a float: integers and bools become float32."""
    u = x.uop
    return u if u.dtype.is_float else u.cast(FLOAT32)


def floats_of(x: Tensor) -> Tensor:
    """The tensor as floats: integers and bools become float32."""
    return x._new(real_node(x))


# -- arithmetic -------------------------------------------------------------------------------------------------------


@function("array_api lifts=numbers")
def add(x: Tensor, other: Operand, alpha: Number = 1) -> Tensor:
    """x + other; a logical or on bools. With `alpha`, x + alpha * other, which of bools and a whole number is one too.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]) + Tensor([[10], [20]])
    Tensor([[11, 12],
            [21, 22]], dtype=int32)
    """
    if alpha != 1:
        other = x._lift(other)
        both = x.uop.dtype is other.uop.dtype is BOOL and isinstance(alpha, int)
        other = binary(Op.MUL, other, bool(alpha) if both else alpha)
    return binary(Op.ADD, x, other)


@function("alias=subtract in_place array_api=subtract lifts=numbers")
def sub(x: Tensor, other: Operand, alpha: Number = 1) -> Tensor:
    """x - other. With `alpha`, x - alpha * other. Raises DTypeError for two bools.

    >>> from anneal.tensor import Tensor
    >>> 10 - Tensor([1, 2])
    Tensor([9, 8], dtype=int32)
    """
    if alpha != 1:
        other = binary(Op.MUL, x._lift(other), alpha)
    return binary(Op.SUB, x, other)


@function("alias=multiply in_place array_api=multiply lifts=numbers")
def mul(x: Tensor, other: Operand) -> Tensor:
    """x * other; a logical and on bools.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 5]).mul(2)
    Tensor([ 2, 10], dtype=int32)
    """
    return binary(Op.MUL, x, other)


@function("alias=divide,true_divide in_place array_api=divide lifts=numbers")
def div(x: Tensor, other: Operand, rounding_mode: str | None = None) -> Tensor:
    """x / other as floats. With rounding_mode "floor" or "trunc" the rounded quotient, in the operands' dtype.

    >>> from anneal.tensor import Tensor
    >>> Tensor([7, -7]) / 2, Tensor([7, -7]).div(2, rounding_mode="trunc")
    (Tensor([ 3.5, -3.5], dtype=float32), Tensor([ 3, -3], dtype=int32))
    """
    if rounding_mode in ("floor", "trunc"):
        return x.floor_divide(other) if rounding_mode == "floor" else _trunc_quotient(x, other)
    if rounding_mode is not None:
        raise DTypeError(f'div: rounding_mode is None, "floor" or "trunc", not {rounding_mode!r}')
    return quotient(x, other, False)


def quotient(x: Tensor, other: Operand, swap: bool) -> Tensor:
    a, b, shape, o = operands(x, other, swap)
    if not a.dtype.is_float:
        a, b = a.cast(FLOAT32), b.cast(FLOAT32)
    elif a.dtype is dtypes.float16 and _is_beyond(other):
        return quotient(x.float(), other, swap).half()
    u = elementwise(Op.DIV, (a, b), shape)
    below = (x if swap else o).uop
    if below.op in _EXPONENTIAL and (x._wants or o._wants):
        u = _over_exp(u, a, below)
    return x._new(u, o)


@function("in_place lifts=numbers")
@wholes("other")
def floor_divide(x: Tensor, other: Operand) -> Tensor:
    """The quotient rounded towards minus infinity, as Python's `//`. An integer divided by 0 gives 0, or RangeError
    where the 0 is known at the call.

    >>> from anneal.tensor import Tensor
    >>> Tensor([7, -7]) // 2
    Tensor([ 3, -4], dtype=int32)
    """
    return binary(Op.IDIV, x, other)


def _trunc_quotient(x: Tensor, other: Operand) -> Tensor:
    a, b, shape, o = operands(x, other, False, Op.IDIV)
    if a.dtype.is_float:
        # torch rounds the quotient, also one that is rounded to a whole number, where `//` stays below; exact by `//`
        # on a GPU, whose division is not
        n, m = _size(a), _size(b)
        near = n / m
        whole = detached(Op.FLOOR(near))
        quotient = whole.eq(near).where(whole, n // m)
        return x._new(broadcast(((a < 0) ^ (b < 0)).where(-quotient, quotient), shape), o)
    quotient = elementwise(Op.IDIV, (a, b), shape)
    if a.dtype.kind == "int":
        quotient = quotient + _off_by_one(a, b).cast(a.dtype)
    return x._new(broadcast(quotient, shape), o)


@function("in_place array_api lifts=number")
@wholes("other")
def remainder(x: Tensor, other: Operand) -> Tensor:
    """The remainder of floor division: it has the sign of `other`, as Python's `%`. An integer modulo 0 gives 0,
    or RangeError where the 0 is known at the call.

    >>> from anneal.tensor import Tensor
    >>> Tensor([7, -7]) % 3
    Tensor([1, 2], dtype=int32)
    """
    return binary(Op.MOD, x, other)


@function("in_place")
def fmod(x: Tensor, other: Operand) -> Tensor:
    """The remainder of division rounded towards zero: it has the sign of `x`, as C's fmod.

    >>> from anneal.tensor import Tensor
    >>> Tensor([7, -7]).fmod(3)
    Tensor([ 1, -1], dtype=int32)
    """
    a, b, shape, o = operands(x, other, False, Op.MOD)
    if a.dtype.is_float:
        rest = _size(a) % _size(b)
        out = x._new(broadcast(has_sign(a).where(-rest, rest), shape), o)
        if not out._wants:
            return out
        times = Op.TRUNC(elementwise(Op.DIV, (a, b), shape))
        same = elementwise(Op.SUB, (a, UOp(Op.DETACH, a.dtype, (times,)) * broadcast(b, shape)), shape)
        return out._new(by_rule("equal", out.uop, same))
    rest = elementwise(Op.MOD, (a, b), shape)
    if a.dtype.kind == "int":
        rest = elementwise(Op.SUB, (rest, _off_by_one(a, b).cast(a.dtype) * b), shape)
    return x._new(rest, o)


@function
def divmod(x: Tensor, other: Operand) -> tuple[Tensor, Tensor]:
    """`floor_divide` and `remainder`, as Python's divmod.

    >>> from anneal.tensor import Tensor
    >>> divmod(Tensor([7, -7]), 3)
    (Tensor([ 2, -3], dtype=int32), Tensor([1, 2], dtype=int32))
    """
    return binary(Op.IDIV, x, other), binary(Op.MOD, x, other)


def power(x: Tensor, other: Operand, swap: bool) -> Tensor:
    if isinstance(other, (bool, int)) and not swap:
        if other == -1 and x.uop.dtype.is_float:
            return one_over(x)
        u = _power(x.uop, int(other))
        if u is not None:
            if x.dtype is BOOL and isinstance(other, bool):
                u = u.cast(BOOL)
            if u.dtype is x.dtype is INT32:
                check_growth(Op.POW, x.uop, const(INT32, min(int(other), INT32.max)))
            return x._new(beside(broadcast(u, x.shape), x) if u.is_const else u)
    if isinstance(other, float) and not swap and x.dtype.is_float:
        if other == 0.5:
            return unary(x, Op.SQRT)
        if other == -0.5:
            return unary(x, Op.RSQRT)
        if other % 1 == 0 and builtins.abs(other) <= 4:
            return power(x, int(other), False)
    a, b, shape, o = operands(x, other, swap, Op.POW)
    if a.dtype.is_float:
        return x._new(elementwise(Op.POW, (a, b), shape), o)
    if isinstance(other, int) and not swap and other < 0:
        raise DTypeError(f"pow: an integer to the power {other} is no integer; use .float() first")
    if a.dtype is INT32:
        check_growth(Op.POW, a, b)
    return x._new(broadcast(_int_power(a, b), shape), o)


def one_over(x: Tensor) -> Tensor:
    """1 / x."""
    below = real_node(x)
    u = Op.RECIP(below)
    if below.op in _EXPONENTIAL and x._wants:
        u = _over_exp(u, const(u.dtype, 1), below)
    return x._new(u)


@function("in_place autocast=float32 array_api lifts=number")
def pow(x: Tensor, other: Operand) -> Tensor:
    """x ** other. Integers stay integers, and wrap around where that is not known beforehand; a negative power of an
    integer truncates towards 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2, 3]) ** 3, Tensor([4.0]) ** 0.5
    (Tensor([ 8, 27], dtype=int32), Tensor([2.], dtype=float32))
    """
    return power(x, other, False)


@function("array_api")
def maximum(x: Tensor, other: Operand) -> Tensor:
    """The larger of each pair; nan if either is nan. At a tie each side has half the gradient.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 5]).maximum(Tensor([3, 2]))
    Tensor([3, 5], dtype=int32)
    """
    return halved(binary(Op.MAX, x, other))


@function("array_api")
def minimum(x: Tensor, other: Operand) -> Tensor:
    """The smaller of each pair; nan if either is nan. At a tie each side has half the gradient.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 5]).minimum(3)
    Tensor([1, 3], dtype=int32)
    """
    return halved(binary(Op.MIN, x, other))


@function("in_place single")
def lerp(x: Tensor, end: Operand, weight: Operand) -> Tensor:
    """x + weight * (end - x), which is counted from the nearer end: a weight of 1 gives `end`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0]).lerp(Tensor([10.0]), 0.25)
    Tensor([2.5], dtype=float32)
    """
    end, w = x._lift(end), x._lift(weight)
    way = end - x
    near: Tensor = x + way * w
    return choose(w.abs() < 0.5, near, end - way * (1 - w))


@function("in_place autocast=widest single")
def addcmul(x: Tensor, a: Operand, b: Operand, value: Number = 1) -> Tensor:
    """x + value * a * b; of integers alone with the whole part of `value`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 1.0]).addcmul(Tensor([2.0, 3.0]), Tensor([4.0, 5.0]), value=10)
    Tensor([ 81., 151.], dtype=float32)
    """
    product = x._lift(a).mul(b)
    if isinstance(value, float) and x.dtype.is_int and product.dtype.is_int:
        value = int(value)
    return x + product.mul(value)


@function("in_place autocast=widest single")
def addcdiv(x: Tensor, a: Operand, b: Operand, value: Number = 1) -> Tensor:
    """x + value * a / b.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 1.0]).addcdiv(Tensor([2.0, 6.0]), Tensor([2.0, 3.0]), value=10)
    Tensor([11., 21.], dtype=float32)
    """
    return x + x._lift(a).div(b).mul(value)


# -- choosing ---------------------------------------------------------------------------------------------------------


@function("alias=clip in_place")
def clamp(x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """The elements clamped to [min, max]; either may be left out, or be a tensor. An element at a bound that is a
    number has no gradient; one that equals a bound's element shares it evenly with that.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-5, 0, 5]).clamp(-1, 2)
    Tensor([-1,  0,  2], dtype=int32)
    """
    if min is None and max is None:
        raise DTypeError("clamp: give min, max, or both")
    min, max = of_python(min), of_python(max)
    out = clipped(x, min, max)
    if not out._wants:
        return out
    if not isinstance(min, (*_SCALARS, type(None))) or not isinstance(max, (*_SCALARS, type(None))):
        within = x if min is None else halved(binary(Op.MAX, x, min))
        within = within if max is None else halved(binary(Op.MIN, within, max))
        if max is None or min is None:
            return within
        # where both ends are the element, all is its own, as in torch
        return standing_for(out, choose(x.eq(min) & x.eq(max), x, within))
    inside: Any = None if min is None else x > min
    if max is not None:
        inside = x < max if inside is None else inside & (x < max)
    chosen = choose(inside, x, 0).uop.cast(out.uop.dtype)
    return out._new(by_rule("equal", out.uop, chosen))


def clipped(x: Tensor, min: Operand | None, max: Operand | None) -> Tensor:
    """`clamp` whose gradient ends at a bound that is a number, as that of relu."""
    out = x if min is None else binary(Op.MAX, x, min)
    out = out if max is None else binary(Op.MIN, out, max)
    if not any(type(end) is Varying for end in (min, max)):
        return out
    ends: Any = [out.eq(end) for end in (min, max) if end is not None]
    return standing_for(out, choose(ends[0] | ends[-1], 0.0, x))


def halved(out: Tensor) -> Tensor:
    """The larger or smaller of two with half of the gradient for each at a tie, also where one is a constant."""
    u = out.uop
    if not out._wants or u.op not in (Op.MAX, Op.MIN) or not u.src[1].is_const:
        return out
    a, c = u.src
    beyond = alu(Op.LT, (a, c) if u.op is Op.MAX else (c, a))
    same = a.eq(c).where(a * 0.5, beyond.where(c, a))
    return out._new(by_rule("equal", u, same))


def sloped(value: Tensor, x: Tensor, slope: Tensor) -> Tensor:
    """`value`, whose slope in `x` is known."""
    return x._new(by_rule("slope", value.uop, x.uop, slope.uop))


def standing_for(value: Tensor, equal: Tensor) -> Tensor:
    """`value`, with the derivatives of `equal`."""
    return value._new(by_rule("equal", value.uop, equal.uop), equal)


def by_slopes(out: Tensor, *pairs: tuple[Tensor, Tensor]) -> Tensor:
    """`out` with a gradient of its own: a slope for each of the tensors that it was computed from."""
    total = None
    for x, slope in pairs:
        if x._wants:
            u, s = (broadcast(t.uop.cast(out.dtype), out.shape) for t in (x, slope))
            part = by_rule("slope", u, u, s)
            total = part if total is None else total + part
    return out if total is None else out._new(by_rule("equal", out.uop, total))


def choose(x: Tensor, a: Operand, b: Operand) -> Tensor:
    """`a` where this bool tensor is true, else `b`: both broadcast and promote."""
    p, number_a, number_b = x.uop, isinstance(a, _SCALARS), isinstance(b, _SCALARS)
    ta = tb = x if number_a and number_b else x._lift(b if number_a else a)
    if not (number_a or number_b):
        tb = x._lift(b)
    kind = ta.uop.dtype
    ua = weak_const(kind, a) if number_a else ta.uop
    ub = weak_const(kind, b) if number_b else tb.uop
    ua, ub = common_dtype(ua, ub)
    if p.shape == ua.shape == ub.shape:
        shape = p.shape
    else:
        shape = broadcast_shapes(p.shape, ua.shape, ub.shape)
        p, ua, ub = (broadcast(u, shape) if u.shape else u for u in (p, ua, ub))
    u = elementwise(Op.WHERE, (p, ua, ub), shape)
    for kept, left, t in ((ua, ub, tb), (ub, ua, ta)):
        if u is kept and u is not left and t._wants:
            # a constant condition leaves an operand out; its gradient is zero all the same
            u = by_rule("chosen", u, left)
    return x._new(u, ta, tb)


def beside(u: UOp, *left: Tensor) -> UOp:
    """`u`, which depends on none of `left`, though it was computed from them: their gradient is zero rather than
    missing.
    """
    for t in left:
        if t._wants:
            u = by_rule("beside", u, t.uop)
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
        return by_rule("inverse", u, e.src[0], e, arguments=c)
    inverse = by_rule("inverse", Op.RECIP(b), e.src[0], e, arguments=c)
    product = elementwise(Op.MUL, (a, broadcast(inverse, u.shape)), u.shape)
    return by_rule("equal", u, product)


def has_sign(u: UOp) -> UOp:
    """True for each float that is negative, -0.0 too."""
    wide = u if u.dtype.bits >= 32 else u.cast(FLOAT32)
    bits = INT32 if wide.dtype.bits == 32 else dtypes.int64
    return UOp(Op.BITCAST, bits, (wide,)) < 0


def _size(u: UOp) -> UOp:
    """|u|, with slope 1 at 0: it stands for u with its sign taken away and given back."""
    return (u < 0).where(-u, u)


def _off_by_one(a: UOp, b: UOp) -> UOp:
    """True where the floor and the truncated quotient of signed integers differ: signs differ and there is a
    remainder.
    """
    return (a % b).ne(0) & ((a < 0) ^ (b < 0))


def _power(x: UOp, n: int) -> UOp | None:
    """x ** n by repeated multiplication, where that is exact or as good as a power; None where it is not."""
    if x.dtype is BOOL:
        x = x.cast(INT32)
    if n < 0 or (x.dtype.is_float and n > 4):
        return None
    result = square = const(x.dtype, 1) if n == 0 else x
    while n > 1 and not n & 1:
        n >>= 1
        result = square = square * square
    while n := n >> 1:
        square = square * square
        result = result * square if n & 1 else result
    return result


def _int_power(x: UOp, n: UOp) -> UOp:
    """x ** n for integer nodes: square and multiply over the bits of n."""
    one, zero = const(x.dtype, 1), const(x.dtype, 0)
    result, square = one, x
    for bit in range(x.dtype.bits - (x.dtype.kind == "int")):
        result = (n & (1 << bit)).ne(zero).where(result * square, result)
        square = square * square
    if x.dtype.kind == "int":
        # 1 / x**|n| truncates to 0 unless x is 1 or -1, whose powers depend on the parity of n alone.
        unit = x.eq(one).where(one, (n & one).ne(zero).where(const(x.dtype, -1), one))
        result = (n < zero).where(Op.ABS(x).eq(one).where(unit, zero), result)
    return result
