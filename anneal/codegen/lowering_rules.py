"""Generated from anneal/codegen/lowering.upat by `python -m anneal.rewrite.generate`; edit that file, not this one."""
# fmt: off
# mypy: allow-untyped-defs
from typing import Any

from anneal.uop import Op, const, dtypes
from anneal.codegen.exact import by_exp2, by_inverse, is_nan


def _lowering_ne(u):
    s0, s1 = u.src
    if s0.dtype.is_float and s1 is s0 and s0.dtype.bits >= 32:
        # x:float != x -> is_nan(x) if x.dtype.bits >= 32
        r = is_nan(s0)
        if r is not None and r is not u:
            return r, 'x:float != x -> is_nan(x) if x.dtype.bits >= 32'
    if s0.dtype is dtypes.bool_:
        # x:bool != y -> x ^ y
        return s0 ^ s1, 'x:bool != y -> x ^ y'


LOWERING: dict[Op, Any] = {
    Op.NE: _lowering_ne,
    Op.EQ: lambda u: (Op.NOT(is_nan(u.src[0])), 'x:float == x -> not is_nan(x) if x.dtype.bits >= 32') if u.src[0].dtype.is_float and u.src[1] is u.src[0] and u.src[0].dtype.bits >= 32 else None,  # x:float == x -> not is_nan(x) if x.dtype.bits >= 32
    Op.ADD: lambda u: (u.src[0] | u.src[1], 'x:bool + y -> x | y') if u.src[0].dtype is dtypes.bool_ else None,  # x:bool + y -> x | y
    Op.MUL: lambda u: (u.src[0] & u.src[1], 'x:bool * y -> x & y') if u.src[0].dtype is dtypes.bool_ else None,  # x:bool * y -> x & y
    Op.SUB: lambda u: (u.src[0] ^ u.src[1], 'x:bool - y -> x ^ y') if u.src[0].dtype is dtypes.bool_ else None,  # x:bool - y -> x ^ y
    Op.MAX: lambda u: (u.src[0] | u.src[1], 'max(x:bool, y) -> x | y') if u.src[0].dtype is dtypes.bool_ else None,  # max(x:bool, y) -> x | y
    Op.MIN: lambda u: (u.src[0] & u.src[1], 'min(x:bool, y) -> x & y') if u.src[0].dtype is dtypes.bool_ else None,  # min(x:bool, y) -> x & y
    Op.LT: lambda u: (Op.NOT(u.src[0]) & u.src[1], 'x:bool < y -> (not x) & y') if u.src[0].dtype is dtypes.bool_ else None,  # x:bool < y -> (not x) & y
    Op.FLOOR: lambda u: (u.src[0], 'floor(x:int) -> x') if u.src[0].dtype.is_int else None,  # floor(x:int) -> x
    Op.CEIL: lambda u: (u.src[0], 'ceil(x:int) -> x') if u.src[0].dtype.is_int else None,  # ceil(x:int) -> x
    Op.ROUND: lambda u: (u.src[0], 'round(x:int) -> x') if u.src[0].dtype.is_int else None,  # round(x:int) -> x
    Op.TRUNC: lambda u: (u.src[0], 'trunc(x:int) -> x') if u.src[0].dtype.is_int else None,  # trunc(x:int) -> x
    Op.ABS: lambda u: (u.src[0], 'abs(x:uint) -> x') if u.src[0].dtype.kind == 'uint' else None,  # abs(x:uint) -> x
    Op.NEG: lambda u: (const(u.src[0].dtype, 0) - u.src[0], '-x:uint -> 0 - x') if u.src[0].dtype.kind == 'uint' else None,  # -x:uint -> 0 - x
    Op.DIV: lambda u: (by_inverse(u.src[0], u.src[1]), 'x:float / c -> by_inverse(x, c)') if u.src[1].op is Op.CONST and u.src[0].dtype.is_float else None,  # x:float / c -> by_inverse(x, c)
    Op.EXP: lambda u: (by_exp2(u.src[0]), 'exp(x:float) -> by_exp2(x)') if u.src[0].dtype.is_float else None,  # exp(x:float) -> by_exp2(x)
}
