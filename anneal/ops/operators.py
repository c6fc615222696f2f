"""Python's operators: `x + y` is `operators.add(x, y)`, the op `add` without a look at its arguments by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.ops.arguments import deferred
from anneal.ops.elementwise import binary, difference, floor_quotient, modulo, power, quotient
from anneal.ops.inplace import iadd, iand, ifloordiv, ilshift, imod, imul, ior, ipow, irshift, isub, itruediv, ixor
from anneal.ops.inputs import compares, computes, places
from anneal.ops.logic import bitwise, shift
from anneal.ops.subscripts import getitem as _getitem
from anneal.ops.subscripts import iterate, setitem
from anneal.runtime import Handle
from anneal.uop import Op

if TYPE_CHECKING:
    from anneal.tensor import Tensor

__all__ = [
    "abs",
    "add",
    "and_",
    "divmod",
    "eq",
    "floordiv",
    "ge",
    "getitem",
    "gt",
    "iadd",
    "iand",
    "ifloordiv",
    "ilshift",
    "imod",
    "imul",
    "invert",
    "ior",
    "ipow",
    "irshift",
    "isub",
    "iterate",
    "itruediv",
    "ixor",
    "le",
    "lshift",
    "lt",
    "matmul",
    "mod",
    "mul",
    "ne",
    "neg",
    "or_",
    "pos",
    "pow",
    "radd",
    "rand",
    "rdivmod",
    "rfloordiv",
    "rlshift",
    "rmatmul",
    "rmod",
    "rmul",
    "ror",
    "round",
    "rpow",
    "rrshift",
    "rshift",
    "rsub",
    "rtruediv",
    "rxor",
    "setitem",
    "sub",
    "truediv",
    "xor",
]

Operand = Any  # a tensor, an array or a Python number
getitem = deferred(places(lambda x, index: index)(_getitem))


@deferred
@computes
def add(x: Tensor, other: Operand) -> Tensor:
    return binary(x, "add", Op.ADD, other)


@deferred
@computes
def radd(x: Tensor, other: Operand) -> Tensor:
    return binary(x, "add", Op.ADD, other, True)


@deferred
@computes
def sub(x: Tensor, other: Operand) -> Tensor:
    return difference(x, other, False)


@deferred
@computes
def rsub(x: Tensor, other: Operand) -> Tensor:
    return difference(x, other, True)


@deferred
@computes
def mul(x: Tensor, other: Operand) -> Tensor:
    return binary(x, "mul", Op.MUL, other)


@deferred
@computes
def rmul(x: Tensor, other: Operand) -> Tensor:
    return binary(x, "mul", Op.MUL, other, True)


@deferred
@computes
def truediv(x: Tensor, other: Operand) -> Tensor:
    return quotient(x, other, False)


@deferred
@computes
def rtruediv(x: Tensor, other: Operand) -> Tensor:
    return quotient(x, other, True)


@deferred
def floordiv(x: Tensor, other: Operand) -> Tensor:
    return floor_quotient(x, other, False)


@deferred
def rfloordiv(x: Tensor, other: Operand) -> Tensor:
    return floor_quotient(x, other, True)


@deferred
def mod(x: Tensor, other: Operand) -> Tensor:
    return modulo(x, other, False)


@deferred
def rmod(x: Tensor, other: Operand) -> Tensor:
    return modulo(x, other, True)


def divmod(x: Tensor, other: Operand) -> tuple[Tensor, Tensor]:
    return x.divmod(other)


def rdivmod(x: Tensor, other: Operand) -> tuple[Tensor, Tensor]:
    return floor_quotient(x, other, True), modulo(x, other, True)


@deferred
def pow(x: Tensor, other: Operand) -> Tensor:
    return power(x, other, False)


@deferred
def rpow(x: Tensor, other: Operand) -> Tensor:
    return power(x, other, True)


@deferred
def neg(x: Tensor) -> Tensor:
    return x.neg()


@deferred
def pos(x: Tensor) -> Tensor:
    return x


@deferred
def round(x: Tensor, ndigits: int | None = None) -> Tensor:
    return x.round(ndigits or 0)


@deferred
def abs(x: Tensor) -> Tensor:
    return x.abs()


@deferred
@compares
def eq(x: Tensor, other: Operand) -> Tensor:
    return x.eq(other) if _comparable(other) else NotImplemented


@deferred
@compares
def ne(x: Tensor, other: Operand) -> Tensor:
    return x.ne(other) if _comparable(other) else NotImplemented


@deferred
@compares
def lt(x: Tensor, other: Operand) -> Tensor:
    return x.lt(other)


@deferred
@compares
def gt(x: Tensor, other: Operand) -> Tensor:
    return x.gt(other)


@deferred
@compares
def le(x: Tensor, other: Operand) -> Tensor:
    return x.le(other)


@deferred
@compares
def ge(x: Tensor, other: Operand) -> Tensor:
    return x.ge(other)


@deferred
def and_(x: Tensor, other: Operand) -> Tensor:
    return bitwise(x, "bitwise_and", Op.AND, other)


@deferred
def rand(x: Tensor, other: Operand) -> Tensor:
    return bitwise(x, "bitwise_and", Op.AND, other, True)


@deferred
def or_(x: Tensor, other: Operand) -> Tensor:
    return bitwise(x, "bitwise_or", Op.OR, other)


@deferred
def ror(x: Tensor, other: Operand) -> Tensor:
    return bitwise(x, "bitwise_or", Op.OR, other, True)


@deferred
def xor(x: Tensor, other: Operand) -> Tensor:
    return bitwise(x, "bitwise_xor", Op.XOR, other)


@deferred
def rxor(x: Tensor, other: Operand) -> Tensor:
    return bitwise(x, "bitwise_xor", Op.XOR, other, True)


@deferred
def invert(x: Tensor) -> Tensor:
    return x.bitwise_not()


@deferred
def lshift(x: Tensor, other: Operand) -> Tensor:
    return shift(x, "bitwise_left_shift", Op.SHL, other)


@deferred
def rlshift(x: Tensor, other: Operand) -> Tensor:
    return shift(x, "bitwise_left_shift", Op.SHL, other, True)


@deferred
def rshift(x: Tensor, other: Operand) -> Tensor:
    return shift(x, "bitwise_right_shift", Op.SHR, other)


@deferred
def rrshift(x: Tensor, other: Operand) -> Tensor:
    return shift(x, "bitwise_right_shift", Op.SHR, other, True)


@deferred
def matmul(x: Tensor, other: Any) -> Tensor:
    return x.matmul(other)


@deferred
def rmatmul(x: Tensor, other: Any) -> Tensor:
    return x._lift("matmul", other).matmul(x)


def _comparable(other: object) -> bool:
    """True if == compares values; beside None, text and the like it compares identity."""
    return isinstance(other, (Handle, bool, int, float, np.generic, np.ndarray, list, tuple))
