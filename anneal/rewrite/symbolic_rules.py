"""Generated from anneal/rewrite/symbolic.upat by `python -m anneal.rewrite.generate`; edit that file, not this one."""
# fmt: off
# mypy: allow-untyped-defs
from typing import Any

from anneal.uop import Op, dtypes
from anneal.rewrite.sums import compared, conjunction, disjunction, divided, equated, leftover, ordered, quotient
from anneal.rewrite.sums import remainder, unequal

_CONST = Op.CONST
_WHERE = Op.WHERE

def _symbolic_idiv(u):
    s0, s1 = u.src
    if s1.op is _CONST and s0.dtype.is_int:
        # x:int // c -> divided(x, c)
        r = divided(s0, s1)
        if r is not None and r is not u:
            return r, 'x:int // c -> divided(x, c)'
    if s0.dtype.is_int:
        # x:int // y -> quotient(x, y)
        r = quotient(s0, s1)
        if r is not None and r is not u:
            return r, 'x:int // y -> quotient(x, y)'
    if s1.op is _CONST and s0.op is Op.MOD:
        s0_0, s0_1 = s0.src
        if s0_1.op is _CONST and s0_0.dtype.is_int and s0_1.arg > 0 and s1.arg > 0 and (s0_1.arg % s1.arg == 0):
            # (x:int % c1) // c2 -> (x // c2) % (c1 // c2) if v(c1) > 0 and v(c2) > 0 and v(c1) % v(c2) == 0
            return s0_0 // s1 % (s0_1 // s1), '(x:int % c1) // c2 -> (x // c2) % (c1 // c2) if v(c1) > 0 and v(c2) > 0 and v(c1) % v(c2) == 0'


def _symbolic_mod(u):
    s0, s1 = u.src
    if s1.op is _CONST and s0.dtype.is_int:
        # x:int % c -> remainder(x, c)
        r = remainder(s0, s1)
        if r is not None and r is not u:
            return r, 'x:int % c -> remainder(x, c)'
    if s0.dtype.is_int:
        # x:int % y -> leftover(x, y)
        return leftover(s0, s1), 'x:int % y -> leftover(x, y)'


def _symbolic_where(u):
    s0, s1, s2 = u.src
    if s1.op is _WHERE:
        s1_0, s1_1, s1_2 = s1.src
        if s1_2 is s2:
            # where(p, where(q, a, b), b) -> where(p & q, a, b)
            return _WHERE(s0 & s1_0, s1_1, s2), 'where(p, where(q, a, b), b) -> where(p & q, a, b)'
    if s2.op is _WHERE:
        s2_0, s2_1, s2_2 = s2.src
        if s2_1 is s1:
            # where(p, a, where(q, a, b)) -> where(p | q, a, b)
            return _WHERE(s0 | s2_0, s1, s2_2), 'where(p, a, where(q, a, b)) -> where(p | q, a, b)'


SYMBOLIC: dict[Op, Any] = {
    Op.ADD: lambda u: (ordered(u), 'x:int + y -> ordered(u)') if u.src[0].dtype.is_int else None,  # x:int + y -> ordered(u)
    Op.SUB: lambda u: (ordered(u), 'x:int - y -> ordered(u)') if u.src[0].dtype.is_int else None,  # x:int - y -> ordered(u)
    Op.MUL: lambda u: (ordered(u), 'x:int * c -> ordered(u)') if u.src[1].op is _CONST and u.src[0].dtype.is_int else None,  # x:int * c -> ordered(u)
    Op.NEG: lambda u: (ordered(u), '-x:int -> ordered(u)') if u.src[0].dtype.is_int else None,  # -x:int -> ordered(u)
    Op.IDIV: _symbolic_idiv,
    Op.MOD: _symbolic_mod,
    Op.LT: lambda u: (compared(u.src[0], u.src[1]), 'x:int < y -> compared(x, y)') if u.src[0].dtype.is_int else None,  # x:int < y -> compared(x, y)
    Op.EQ: lambda u: (equated(u.src[0], u.src[1]), 'x:int == y -> equated(x, y)') if u.src[0].dtype.is_int else None,  # x:int == y -> equated(x, y)
    Op.NE: lambda u: (unequal(u.src[0], u.src[1]), 'x:int != y -> unequal(x, y)') if u.src[0].dtype.is_int else None,  # x:int != y -> unequal(x, y)
    Op.AND: lambda u: (conjunction(u), 'x:bool & y -> conjunction(u)') if u.src[0].dtype is dtypes.bool_ else None,  # x:bool & y -> conjunction(u)
    Op.OR: lambda u: (disjunction(u), 'x:bool | y -> disjunction(u)') if u.src[0].dtype is dtypes.bool_ else None,  # x:bool | y -> disjunction(u)
    Op.WHERE: _symbolic_where,
}
