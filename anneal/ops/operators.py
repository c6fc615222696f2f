"""Python's operators: `x + y` is the op `add` without a look at its arguments by kind. Each is a name of this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anneal.doors import named
from anneal.names import Tensor
from anneal.ops.arguments import changing, deferred
from anneal.ops.elementwise import binary, difference, floor_quotient, modulo, power, quotient
from anneal.ops.inplace import changed, need_changeable
from anneal.ops.inputs import compares, computes, places
from anneal.ops.logic import bitwise, shift
from anneal.ops.precision import casts
from anneal.ops.subscripts import getitem, iterate, setitem
from anneal.runtime import Handle
from anneal.uop import Op

Operand = Any  # a tensor, an array or a Python number
Compute = Callable[["Tensor", str, Operand, bool], "Tensor"]  # with the name for messages; True: `other` comes first


def _of(function: Callable[..., Tensor], op: Op) -> Compute:
    return lambda x, name, other, swap: function(x, name, op, other, swap)


def _named(function: Callable[..., Tensor]) -> Compute:
    """Of a function that says its name itself."""
    return lambda x, name, other, swap: function(x, other, swap)


_over = casts(quotient, "float32")  # as a reciprocal


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


# operator: the op's name, what it computes, and what its numbers are
PAIRS: dict[str, tuple[str, Compute, Callable[..., Any]]] = {
    "add": ("add", _of(binary, Op.ADD), computes),
    "sub": ("sub", _named(difference), computes),
    "mul": ("mul", _of(binary, Op.MUL), computes),
    "truediv": ("div", _named(lambda x, other, swap: (_over if swap else quotient)(x, other, swap)), computes),
    "floordiv": ("floor_divide", _named(floor_quotient), _plain),
    "mod": ("remainder", _named(modulo), _plain),
    "pow": ("pow", _named(casts(power, "float32")), _plain),
    "and": ("bitwise_and", _of(bitwise, Op.AND), _plain),
    "or": ("bitwise_or", _of(bitwise, Op.OR), _plain),
    "xor": ("bitwise_xor", _of(bitwise, Op.XOR), _plain),
    "lshift": ("bitwise_left_shift", _of(shift, Op.SHL), _plain),
    "rshift": ("bitwise_right_shift", _of(shift, Op.SHR), _plain),
}
_OTHERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "neg": (lambda x: x.neg(), _plain),
    "pos": (lambda x: x, _plain),
    "abs": (lambda x: x.abs(), _plain),
    "invert": (lambda x: x.bitwise_not(), _plain),
    "round": (lambda x, ndigits=None: x.round(ndigits or 0), _plain),
    "matmul": (lambda x, other: x.matmul(other), _plain),
    "imatmul": (lambda x, other: x.matmul(other), _plain),  # a new tensor, as in torch, which has no such method
    "rmatmul": (lambda x, other: x._lift("matmul", other).matmul(x), _plain),
    "eq": (lambda x, other: x.eq(other) if _comparable(other) else NotImplemented, compares),
    "ne": (lambda x, other: x.ne(other) if _comparable(other) else NotImplemented, compares),
    "lt": (lambda x, other: x.lt(other), compares),
    "gt": (lambda x, other: x.gt(other), compares),
    "le": (lambda x, other: x.le(other), compares),
    "ge": (lambda x, other: x.ge(other), compares),
    "getitem": (getitem, places(lambda x, index: index)),
}


def _operators(title: str, compute: Compute) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """`x + y`, `y + x` where only x is a tensor, and `x += y`."""

    def operate(x: Tensor, other: Operand) -> Tensor:
        return compute(x, title, other, False)

    def reflected(x: Tensor, other: Operand) -> Tensor:
        return compute(x, title, other, True)

    def in_place(x: Tensor, other: Operand) -> Tensor:
        need_changeable(x, f"{title}_")
        return changed(x, f"{title}_", compute(x, f"{title}_", other, False))

    return operate, reflected, in_place


def _comparable(other: object) -> bool:
    """True if == compares values; beside None, text and the like it compares identity."""
    return isinstance(other, (Handle, bool, int, float, np.generic, np.ndarray, list, tuple))


def _define(name: str, function: Callable[..., Any], mark: Callable[..., Any], late: Callable[..., Any]) -> None:
    globals()[f"__{name}__"] = late(mark(named(function, name)))


for _name, (_title, _compute, _mark) in PAIRS.items():
    for _prefix, _function in zip(("", "r", "i"), _operators(_title, _compute), strict=True):
        _define(_prefix + _name, _function, _mark, changing if _prefix == "i" else deferred)
for _name, (_function, _mark) in _OTHERS.items():
    _define(_name, _function, _mark, deferred)


def __divmod__(x: Tensor, other: Operand) -> tuple[Tensor, Tensor]:
    return x.divmod(other)


def __rdivmod__(x: Tensor, other: Operand) -> tuple[Tensor, Tensor]:
    return floor_quotient(x, other, True), modulo(x, other, True)


__rdiv__ = globals()["__rtruediv__"]  # of Python 2, which torch has still
__setitem__, __iter__ = setitem, iterate
