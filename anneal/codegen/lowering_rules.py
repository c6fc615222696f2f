"""Generated from anneal/codegen/lowering.upat by `python -m anneal.rewrite.generate`; edit that file, not this one."""
# fmt: off

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anneal.uop import Op, UOp, const, dtypes
from anneal.codegen.exact import by_exp2, by_inverse

_BITCAST = Op.BITCAST
_NOT = Op.NOT

def _lowering_ne(u: Any, ctx: Any) -> Any:
    s0, s1 = u.src
    if s0.dtype.is_float:
        if s1 is s0:
            if s0.dtype.bits == 32:
                # x:float != x -> 0x7F800000 < (bitcast(x, dtypes.uint32) & 0x7FFFFFFF) if x.dtype.bits == 32
                return const(dtypes.uint32, 2139095040) < UOp(_BITCAST, dtypes.uint32, (s0,)) & 2147483647, 'x:float != x -> 0x7F800000 < (bitcast(x, dtypes.uint32) & 0x7FFFFFFF) if x.dtype.bits == 32'
            if s0.dtype.bits == 64:
                # x:float != x -> 0x7FF0000000000000 < (bitcast(x, dtypes.uint64) & 0x7FFFFFFFFFFFFFFF) if x.dtype.bits == 64
                return const(dtypes.uint64, 9218868437227405312) < UOp(_BITCAST, dtypes.uint64, (s0,)) & 9223372036854775807, 'x:float != x -> 0x7FF0000000000000 < (bitcast(x, dtypes.uint64) & 0x7FFFFFFFFFFFFFFF) if x.dtype.bits == 64'
    if s0.dtype is dtypes.bool_:
        # x:bool != y -> x ^ y
        return s0 ^ s1, 'x:bool != y -> x ^ y'


def _lowering_eq(u: Any, ctx: Any) -> Any:
    s0, s1 = u.src
    if s0.dtype.is_float:
        if s1 is s0:
            if s0.dtype.bits == 32:
                # x:float == x -> not (0x7F800000 < (bitcast(x, dtypes.uint32) & 0x7FFFFFFF)) if x.dtype.bits == 32
                return _NOT(const(dtypes.uint32, 2139095040) < UOp(_BITCAST, dtypes.uint32, (s0,)) & 2147483647), 'x:float == x -> not (0x7F800000 < (bitcast(x, dtypes.uint32) & 0x7FFFFFFF)) if x.dtype.bits == 32'
            if s0.dtype.bits == 64:
                # x:float == x -> not (0x7FF0000000000000 < (bitcast(x, dtypes.uint64) & 0x7FFFFFFFFFFFFFFF)) if x.dtype.bits == 64
                return _NOT(const(dtypes.uint64, 9218868437227405312) < UOp(_BITCAST, dtypes.uint64, (s0,)) & 9223372036854775807), 'x:float == x -> not (0x7FF0000000000000 < (bitcast(x, dtypes.uint64) & 0x7FFFFFFFFFFFFFFF)) if x.dtype.bits == 64'


def _lowering_add(u: Any, ctx: Any) -> Any:
    s0, s1 = u.src
    if s0.dtype is dtypes.bool_:
        # x:bool + y -> x | y
        return s0 | s1, 'x:bool + y -> x | y'


def _lowering_mul(u: Any, ctx: Any) -> Any:
    s0, s1 = u.src
    if s0.dtype is dtypes.bool_:
        # x:bool * y -> x & y
        return s0 & s1, 'x:bool * y -> x & y'


def _lowering_sub(u: Any, ctx: Any) -> Any:
    s0, s1 = u.src
    if s0.dtype is dtypes.bool_:
        # x:bool - y -> x ^ y
        return s0 ^ s1, 'x:bool - y -> x ^ y'


def _lowering_max(u: Any, ctx: Any) -> Any:
    s0, s1 = u.src
    if s0.dtype is dtypes.bool_:
        # max(x:bool, y) -> x | y
        return s0 | s1, 'max(x:bool, y) -> x | y'


def _lowering_min(u: Any, ctx: Any) -> Any:
    s0, s1 = u.src
    if s0.dtype is dtypes.bool_:
        # min(x:bool, y) -> x & y
        return s0 & s1, 'min(x:bool, y) -> x & y'


def _lowering_lt(u: Any, ctx: Any) -> Any:
    s0, s1 = u.src
    if s0.dtype is dtypes.bool_:
        # x:bool < y -> (not x) & y
        return _NOT(s0) & s1, 'x:bool < y -> (not x) & y'


def _lowering_floor(u: Any, ctx: Any) -> Any:
    s0, = u.src
    if s0.dtype.is_int:
        # floor(x:int) -> x
        return s0, 'floor(x:int) -> x'


def _lowering_ceil(u: Any, ctx: Any) -> Any:
    s0, = u.src
    if s0.dtype.is_int:
        # ceil(x:int) -> x
        return s0, 'ceil(x:int) -> x'


def _lowering_round(u: Any, ctx: Any) -> Any:
    s0, = u.src
    if s0.dtype.is_int:
        # round(x:int) -> x
        return s0, 'round(x:int) -> x'


def _lowering_trunc(u: Any, ctx: Any) -> Any:
    s0, = u.src
    if s0.dtype.is_int:
        # trunc(x:int) -> x
        return s0, 'trunc(x:int) -> x'


def _lowering_abs(u: Any, ctx: Any) -> Any:
    s0, = u.src
    if s0.dtype.kind == 'uint':
        # abs(x:uint) -> x
        return s0, 'abs(x:uint) -> x'


def _lowering_neg(u: Any, ctx: Any) -> Any:
    s0, = u.src
    if s0.dtype.kind == 'uint':
        # -x:uint -> 0 - x
        return const(s0.dtype, 0) - s0, '-x:uint -> 0 - x'


def _lowering_div(u: Any, ctx: Any) -> Any:
    s0, s1 = u.src
    if s1.op is Op.CONST and s0.dtype.is_float:
        # x:float / c -> by_inverse(x, c)
        return by_inverse(s0, s1), 'x:float / c -> by_inverse(x, c)'


def _lowering_exp(u: Any, ctx: Any) -> Any:
    s0, = u.src
    if s0.dtype.is_float:
        # exp(x:float) -> by_exp2(x)
        return by_exp2(s0), 'exp(x:float) -> by_exp2(x)'


LOWERING: dict[Op, Callable[[Any, Any], Any]] = {
    Op.NE: _lowering_ne,
    Op.EQ: _lowering_eq,
    Op.ADD: _lowering_add,
    Op.MUL: _lowering_mul,
    Op.SUB: _lowering_sub,
    Op.MAX: _lowering_max,
    Op.MIN: _lowering_min,
    Op.LT: _lowering_lt,
    Op.FLOOR: _lowering_floor,
    Op.CEIL: _lowering_ceil,
    Op.ROUND: _lowering_round,
    Op.TRUNC: _lowering_trunc,
    Op.ABS: _lowering_abs,
    Op.NEG: _lowering_neg,
    Op.DIV: _lowering_div,
    Op.EXP: _lowering_exp,
}
