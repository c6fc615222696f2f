"""Generated from anneal/uop/fold.upat by `python -m anneal.rewrite.generate`; edit that file, not this one."""
# fmt: off
# mypy: allow-untyped-defs
import math
from typing import Any

from anneal.uop.dtype import dtypes
from anneal.uop.node import const
from anneal.uop.ops import Op
from math import gcd
from anneal.uop.bounds import below, calculated, divides, exact, extreme, inverse, sign

_CONST = Op.CONST
_NEG = Op.NEG
_NOT = Op.NOT
_ADD = Op.ADD
_MUL = Op.MUL
_IDIV = Op.IDIV
_MAX = Op.MAX
_MIN = Op.MIN
_EQ = Op.EQ
_NE = Op.NE
_WHERE = Op.WHERE

def _fold_add(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if o0 is _CONST:
        if o1 is _CONST:
            # c1 + c2 -> {v(c1) + v(c2)}
            return const(dtype, s0.arg + s1.arg)
        # c + x -> x + c
        return s1 + s0
    if dtype.is_int:
        if o1 is _CONST:
            if s1.arg == 0:
                # x:int + 0 -> x
                return s0
            if o0 is _ADD:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST:
                    # (x:int + c1) + c2 -> x + (c1 + c2)
                    return s0_0 + (s0_1 + s1)
        if o0 is _ADD:
            s0_0, s0_1 = s0.src
            if s0_1.op is _CONST:
                # (x:int + c) + y -> (x + y) + c
                return s0_0 + s1 + s0_1
        if o1 is _ADD:
            s1_0, s1_1 = s1.src
            if s1_1.op is _CONST:
                # (x:int + c) + y -> (x + y) + c
                return s1_0 + s0 + s1_1
        if s1 is s0:
            # x:int + x -> x * 2
            return s0 * 2
        if o0 is _MUL:
            s0_0, s0_1 = s0.src
            if s0_1.op is _CONST and s0_0 is s1:
                # x:int * c + x -> x * (c + 1)
                return s1 * (s0_1 + 1)
        if o1 is _MUL:
            s1_0, s1_1 = s1.src
            if s1_1.op is _CONST and s1_0 is s0:
                # x:int * c + x -> x * (c + 1)
                return s0 * (s1_1 + 1)
            if o0 is _MUL:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST:
                    s1_0, s1_1 = s1.src
                    if s1_1.op is _CONST and s1_0 is s0_0:
                        # x:int * c1 + x * c2 -> x * (c1 + c2)
                        return s0_0 * (s0_1 + s1_1)
    if dtype.is_float and o1 is _CONST and s1.arg == 0 and math.copysign(1.0, s1.arg) < 0:
        # x:float + c -> x if v(c) == 0 and math.copysign(1.0, v(c)) < 0
        return s0
    if o1 is _NEG:
        s1_0, = s1.src
        # x + -y -> x - y
        return s0 - s1_0
    if o0 is _NEG:
        s0_0, = s0.src
        # x + -y -> x - y
        return s1 - s0_0


def _fold_sub(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if o0 is _CONST and o1 is _CONST:
        # c1 - c2 -> {v(c1) - v(c2)}
        return const(dtype, s0.arg - s1.arg)
    if dtype.is_int:
        if s1 is s0 and not s0.shape:
            # x:int - x -> 0
            return const(dtype, 0)
        if o1 is _CONST and s0.dtype.kind == 'int':
            # x:int - c -> x + {-v(c)} if x.dtype.kind == 'int'
            return s0 + -s1.arg
        if o1 is _MUL:
            s1_0, s1_1 = s1.src
            if s1_1.op is _CONST and s0.dtype.kind == 'int':
                # x:int - y * c -> x + y * {-v(c)} if x.dtype.kind == 'int'
                return s0 + s1_0 * -s1_1.arg
        if o0 is _ADD:
            s0_0, s0_1 = s0.src
            if s0_1.op is _CONST:
                # (x:int + c) - y -> (x - y) + c
                return s0_0 - s1 + s0_1
        if o1 is _ADD:
            s1_0, s1_1 = s1.src
            if s1_1.op is _CONST and s0.dtype.kind == 'int':
                # x:int - (y + c) -> (x - y) + {-v(c)} if x.dtype.kind == 'int'
                return s0 - s1_0 + -s1_1.arg
        if o0 is _ADD:
            s0_0, s0_1 = s0.src
            if s0_0 is s1 and (not s1.shape or s1.shape == s0_1.shape):
                # (x:int + y) - x -> y
                return s0_1
            if s0_1 is s1 and (not s1.shape or s1.shape == s0_0.shape):
                # (x:int + y) - x -> y
                return s0_0
    if dtype.is_float and o1 is _CONST and s1.arg == 0 and math.copysign(1.0, s1.arg) > 0:
        # x:float - c -> x if v(c) == 0 and math.copysign(1.0, v(c)) > 0
        return s0
    if o1 is _NEG:
        s1_0, = s1.src
        # x - -y -> x + y
        return s0 + s1_0


def _fold_mul(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if o0 is _CONST:
        if o1 is _CONST:
            # c1 * c2 -> {v(c1) * v(c2)}
            return const(dtype, s0.arg * s1.arg)
        # c * x -> x * c
        return s1 * s0
    if o1 is _CONST and s1.arg == 1:
        # x * 1 -> x
        return s0
    if dtype.is_int:
        if o1 is _CONST:
            if o0 is _MUL:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST:
                    # (x:int * c1) * c2 -> x * (c1 * c2)
                    return s0_0 * (s0_1 * s1)
            if o0 is _ADD:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST:
                    # (x:int + c1) * c2 -> x * c2 + c1 * c2
                    return s0_0 * s1 + s0_1 * s1
            if o0 is _NEG:
                s0_0, = s0.src
                if s0_0.dtype.kind == 'int':
                    # -x:int * c -> x * {-v(c)} if x.dtype.kind == 'int'
                    return s0_0 * -s1.arg


def _fold_div(dtype, src):
    s0, s1 = src
    o1 = s1.op
    if s0.op is _CONST and o1 is _CONST and s1.arg != 0:
        # c1 / c2 -> {v(c1) / v(c2)} if v(c2) != 0
        return const(dtype, s0.arg / s1.arg)
    if o1 is _CONST:
        if s1.arg == 1:
            # x / 1 -> x
            return s0
        if inverse(dtype, s1.arg):
            # x / c -> x * {inverse(dtype, v(c))} if inverse(dtype, v(c))
            return s0 * inverse(dtype, s1.arg)


def _fold_idiv(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if dtype.is_int:
        if o0 is _CONST and o1 is _CONST and s1.arg != 0:
            # c1:int // c2 -> {v(c1) // v(c2)} if v(c2) != 0
            return const(dtype, s0.arg // s1.arg)
        if o1 is _CONST:
            if s1.arg == 1:
                # x:int // 1 -> x
                return s0
            if o0 is _MUL:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST and s1.arg > 0 and gcd(s0_1.arg, s1.arg) > 1 and exact(s0):
                    # (x:int * c1) // c2 -> (x * {v(c1) // gcd(v(c1), v(c2))}) // {v(c2) // gcd(v(c1), v(c2))} if v(c2) > 0 and gcd(v(c1), v(c2)) > 1 and exact(s0)
                    return s0_0 * (s0_1.arg // gcd(s0_1.arg, s1.arg)) // (s1.arg // gcd(s0_1.arg, s1.arg))
            if o0 is _IDIV:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST and s0_1.arg > 0 and s1.arg > 0 and (s0_1.arg * s1.arg <= dtype.max):
                    # (x:int // c1) // c2 -> x // {v(c1) * v(c2)} if v(c1) > 0 and v(c2) > 0 and v(c1) * v(c2) <= dtype.max
                    return s0_0 // (s0_1.arg * s1.arg)
            if o0 is _ADD:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST and s1.arg > 0 and (not 0 <= s0_1.arg < s1.arg) and exact(s0) and (dtype.min <= s0_0.vmin + s0_1.arg % s1.arg) and (s0_0.vmax + s0_1.arg % s1.arg <= dtype.max):
                    # (x:int + c1) // c2 -> (x + {v(c1) % v(c2)}) // c2 + {v(c1) // v(c2)} if v(c2) > 0 and not 0 <= v(c1) < v(c2) and exact(s0) and dtype.min <= lo(x) + v(c1) % v(c2) and hi(x) + v(c1) % v(c2) <= dtype.max
                    return (s0_0 + s0_1.arg % s1.arg) // s1 + s0_1.arg // s1.arg
                if s0_0.op is _MUL:
                    s0_0_0, s0_0_1 = s0_0.src
                    if s0_0_1.op is _CONST and divides(s1, s0_0_1) and exact(s0) and exact(s0_0_0 * s0_0_1):
                        # (x:int * c1 + y) // c2 -> x * (c1 // c2) + y // c2 if divides(c2, c1) and exact(s0) and exact(x * c1)
                        return s0_0_0 * (s0_0_1 // s1) + s0_1 // s1
                if s0_1.op is _MUL:
                    s0_1_0, s0_1_1 = s0_1.src
                    if s0_1_1.op is _CONST and divides(s1, s0_1_1) and exact(s0) and exact(s0_1_0 * s0_1_1):
                        # (x:int * c1 + y) // c2 -> x * (c1 // c2) + y // c2 if divides(c2, c1) and exact(s0) and exact(x * c1)
                        return s0_1_0 * (s0_1_1 // s1) + s0_0 // s1
                if s0_0.op is _MUL:
                    s0_0_0, s0_0_1 = s0_0.src
                    if s0_0_1.op is _CONST and s1.arg > 0 and divides(s0_0_1, s1) and below(s0_1, s0_0_1) and exact(s0) and exact(s0_0_0 * s0_0_1) and (not s0_1.shape or s0_1.shape == s0_0_0.shape):
                        # (x:int * c1 + y) // c2 -> x // (c2 // c1) if v(c2) > 0 and divides(c1, c2) and below(y, c1) and exact(s0) and exact(x * c1)
                        return s0_0_0 // (s1 // s0_0_1)
                if s0_1.op is _MUL:
                    s0_1_0, s0_1_1 = s0_1.src
                    if s0_1_1.op is _CONST and s1.arg > 0 and divides(s0_1_1, s1) and below(s0_0, s0_1_1) and exact(s0) and exact(s0_1_0 * s0_1_1) and (not s0_0.shape or s0_0.shape == s0_1_0.shape):
                        # (x:int * c1 + y) // c2 -> x // (c2 // c1) if v(c2) > 0 and divides(c1, c2) and below(y, c1) and exact(s0) and exact(x * c1)
                        return s0_1_0 // (s1 // s0_1_1)


def _fold_mod(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if dtype.is_int:
        if o0 is _CONST and o1 is _CONST and s1.arg != 0:
            # c1:int % c2 -> {v(c1) % v(c2)} if v(c2) != 0
            return const(dtype, s0.arg % s1.arg)
        if o1 is _CONST:
            if s1.arg > 0 and s0.vmin // s1.arg == s0.vmax // s1.arg:
                # x:int % c -> x + {-(lo(x) // v(c)) * v(c)} if v(c) > 0 and lo(x) // v(c) == hi(x) // v(c)
                return s0 + -(s0.vmin // s1.arg) * s1.arg
            if o0 is Op.MOD:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST and s0_1.arg > 0 and divides(s1, s0_1):
                    # (x:int % c1) % c2 -> x % c2 if v(c1) > 0 and divides(c2, c1)
                    return s0_0 % s1
            if o0 is _MUL:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST and s1.arg > 0 and gcd(s0_1.arg, s1.arg) > 1 and exact(s0):
                    # (x:int * c1) % c2 -> (x * {v(c1) // gcd(v(c1), v(c2))} % {v(c2) // gcd(v(c1), v(c2))}) * {gcd(v(c1), v(c2))} if v(c2) > 0 and gcd(v(c1), v(c2)) > 1 and exact(s0)
                    return s0_0 * (s0_1.arg // gcd(s0_1.arg, s1.arg)) % (s1.arg // gcd(s0_1.arg, s1.arg)) * gcd(s0_1.arg, s1.arg)
            if o0 is _ADD:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST and s1.arg > 0 and (not 0 <= s0_1.arg < s1.arg) and exact(s0) and (dtype.min <= s0_0.vmin + s0_1.arg % s1.arg) and (s0_0.vmax + s0_1.arg % s1.arg <= dtype.max):
                    # (x:int + c1) % c2 -> (x + {v(c1) % v(c2)}) % c2 if v(c2) > 0 and not 0 <= v(c1) < v(c2) and exact(s0) and dtype.min <= lo(x) + v(c1) % v(c2) and hi(x) + v(c1) % v(c2) <= dtype.max
                    return (s0_0 + s0_1.arg % s1.arg) % s1
                if s0_0.op is _MUL:
                    s0_0_0, s0_0_1 = s0_0.src
                    if s0_0_1.op is _CONST and divides(s1, s0_0_1) and exact(s0) and exact(s0_0_0 * s0_0_1) and (not s0_0_0.shape or s0_0_0.shape == s0_1.shape):
                        # (x:int * c1 + y) % c2 -> y % c2 if divides(c2, c1) and exact(s0) and exact(x * c1)
                        return s0_1 % s1
                if s0_1.op is _MUL:
                    s0_1_0, s0_1_1 = s0_1.src
                    if s0_1_1.op is _CONST and divides(s1, s0_1_1) and exact(s0) and exact(s0_1_0 * s0_1_1) and (not s0_1_0.shape or s0_1_0.shape == s0_0.shape):
                        # (x:int * c1 + y) % c2 -> y % c2 if divides(c2, c1) and exact(s0) and exact(x * c1)
                        return s0_0 % s1
                if s0_0.op is _MUL:
                    s0_0_0, s0_0_1 = s0_0.src
                    if s0_0_1.op is _CONST and s1.arg > 0 and divides(s0_0_1, s1) and below(s0_1, s0_0_1) and exact(s0) and exact(s0_0_0 * s0_0_1):
                        # (x:int * c1 + y) % c2 -> (x % (c2 // c1)) * c1 + y if v(c2) > 0 and divides(c1, c2) and below(y, c1) and exact(s0) and exact(x * c1)
                        return s0_0_0 % (s1 // s0_0_1) * s0_0_1 + s0_1
                if s0_1.op is _MUL:
                    s0_1_0, s0_1_1 = s0_1.src
                    if s0_1_1.op is _CONST and s1.arg > 0 and divides(s0_1_1, s1) and below(s0_0, s0_1_1) and exact(s0) and exact(s0_1_0 * s0_1_1):
                        # (x:int * c1 + y) % c2 -> (x % (c2 // c1)) * c1 + y if v(c2) > 0 and divides(c1, c2) and below(y, c1) and exact(s0) and exact(x * c1)
                        return s0_1_0 % (s1 // s0_1_1) * s0_1_1 + s0_0


def _fold_max(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if o0 is _CONST:
        if o1 is _CONST:
            # max(c1, c2) -> {extreme(v(c1), v(c2), max)}
            r = extreme(s0.arg, s1.arg, max)
            if r is not None:
                return const(dtype, r)
        if s0.arg != 0 or not dtype.is_float:
            # max(c, x) -> max(x, c) if v(c) != 0 or not dtype.is_float
            return _MAX(s1, s0)
    if s1 is s0:
        # max(x, x) -> x
        return s0
    if dtype.is_int:
        if s0.vmin >= s1.vmax and (not s1.shape or s1.shape == s0.shape):
            # max(x:int, y) -> x if lo(x) >= hi(y)
            return s0
        if s1.vmin >= s0.vmax and (not s0.shape or s0.shape == s1.shape):
            # max(x:int, y) -> x if lo(x) >= hi(y)
            return s1
    if o1 is _CONST and o0 is _MAX:
        s0_0, s0_1 = s0.src
        if s0_1.op is _CONST:
            # max(max(x, c1), c2) -> max(x, max(c1, c2))
            return _MAX(s0_0, _MAX(s0_1, s1))


def _fold_min(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if o0 is _CONST:
        if o1 is _CONST:
            # min(c1, c2) -> {extreme(v(c1), v(c2), min)}
            r = extreme(s0.arg, s1.arg, min)
            if r is not None:
                return const(dtype, r)
        if s0.arg != 0 or not dtype.is_float:
            # min(c, x) -> min(x, c) if v(c) != 0 or not dtype.is_float
            return _MIN(s1, s0)
    if s1 is s0:
        # min(x, x) -> x
        return s0
    if dtype.is_int:
        if s0.vmax <= s1.vmin and (not s1.shape or s1.shape == s0.shape):
            # min(x:int, y) -> x if hi(x) <= lo(y)
            return s0
        if s1.vmax <= s0.vmin and (not s0.shape or s0.shape == s1.shape):
            # min(x:int, y) -> x if hi(x) <= lo(y)
            return s1
    if o1 is _CONST and o0 is _MIN:
        s0_0, s0_1 = s0.src
        if s0_1.op is _CONST:
            # min(min(x, c1), c2) -> min(x, min(c1, c2))
            return _MIN(s0_0, _MIN(s0_1, s1))


def _fold_eq(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if o0 is _CONST:
        if o1 is _CONST:
            # c1 == c2 -> {v(c1) == v(c2)}
            return const(dtype, s0.arg == s1.arg)
        # c == x -> x == c
        return _EQ(s1, s0)
    if s0.dtype.is_int and s1 is s0 and not s0.shape:
        # x:int == x -> True
        return const(dtype, True)
    if o1 is _CONST:
        if s1.arg is True and s0.dtype is dtypes.bool_:
            # x:bool == True -> x
            return s0
        if s1.arg is False and s0.dtype is dtypes.bool_:
            # x:bool == False -> ~x
            return _NOT(s0)
    if s0.dtype.is_int:
        if o1 is _CONST:
            if o0 is _ADD:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST:
                    # (x:int + c1) == c2 -> x == {v(c2) - v(c1)}
                    return _EQ(s0_0, const(s0_0.dtype, s1.arg - s0_1.arg))
            if o0 is _MUL:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST and s0_1.arg != 0 and s1.arg % s0_1.arg == 0 and exact(s0):
                    # (x:int * c1) == c2 -> x == (c2 // c1) if v(c1) != 0 and v(c2) % v(c1) == 0 and exact(s0)
                    return _EQ(s0_0, s1 // s0_1)


def _fold_ne(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if o0 is _CONST:
        if o1 is _CONST:
            # c1 != c2 -> {v(c1) != v(c2)}
            return const(dtype, s0.arg != s1.arg)
        # c != x -> x != c
        return _NE(s1, s0)
    if s0.dtype.is_int and s1 is s0 and not s0.shape:
        # x:int != x -> False
        return const(dtype, False)
    if o1 is _CONST:
        if s1.arg is True and s0.dtype is dtypes.bool_:
            # x:bool != True -> ~x
            return _NOT(s0)
        if s1.arg is False and s0.dtype is dtypes.bool_:
            # x:bool != False -> x
            return s0
    if s0.dtype.is_int and o1 is _CONST and o0 is _ADD:
        s0_0, s0_1 = s0.src
        if s0_1.op is _CONST:
            # (x:int + c1) != c2 -> x != {v(c2) - v(c1)}
            return _NE(s0_0, const(s0_0.dtype, s1.arg - s0_1.arg))


def _fold_and(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if o0 is _CONST:
        if o1 is _CONST:
            # c1 & c2 -> {v(c1) & v(c2)}
            return const(dtype, s0.arg & s1.arg)
        # c & x -> x & c
        return s1 & s0
    if o1 is _CONST and s1.arg is True and s0.dtype is dtypes.bool_:
        # x:bool & True -> x
        return s0
    if s1 is s0:
        # x & x -> x
        return s0
    if o1 is _NOT:
        s1_0, = s1.src
        if s0.dtype is dtypes.bool_ and s1_0 is s0 and not s0.shape:
            # x:bool & ~x -> False
            return const(dtype, False)
    if o0 is _NOT:
        s0_0, = s0.src
        if s1.dtype is dtypes.bool_ and s0_0 is s1 and not s1.shape:
            # x:bool & ~x -> False
            return const(dtype, False)
    if dtype.is_int and o1 is _CONST and (s1.arg == -1 or (s0.vmin >= 0 and s1.arg >= s0.vmax and (s1.arg & s1.arg + 1 == 0))):
        # x:int & c -> x if v(c) == -1 or (lo(x) >= 0 and v(c) >= hi(x) and v(c) & (v(c) + 1) == 0)
        return s0
    if o1 is _CONST and o0 is Op.AND:
        s0_0, s0_1 = s0.src
        if s0_1.op is _CONST:
            # (x & c1) & c2 -> x & (c1 & c2)
            return s0_0 & (s0_1 & s1)


def _fold_or(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if o0 is _CONST:
        if o1 is _CONST:
            # c1 | c2 -> {v(c1) | v(c2)}
            return const(dtype, s0.arg | s1.arg)
        # c | x -> x | c
        return s1 | s0
    if o1 is _CONST and s1.arg is False and s0.dtype is dtypes.bool_:
        # x:bool | False -> x
        return s0
    if s1 is s0:
        # x | x -> x
        return s0
    if o1 is _NOT:
        s1_0, = s1.src
        if s0.dtype is dtypes.bool_ and s1_0 is s0 and not s0.shape:
            # x:bool | ~x -> True
            return const(dtype, True)
    if o0 is _NOT:
        s0_0, = s0.src
        if s1.dtype is dtypes.bool_ and s0_0 is s1 and not s1.shape:
            # x:bool | ~x -> True
            return const(dtype, True)
    if dtype.is_int and o1 is _CONST and s1.arg == 0:
        # x:int | 0 -> x
        return s0
    if o1 is _CONST and o0 is Op.OR:
        s0_0, s0_1 = s0.src
        if s0_1.op is _CONST:
            # (x | c1) | c2 -> x | (c1 | c2)
            return s0_0 | (s0_1 | s1)


def _fold_xor(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if o0 is _CONST:
        if o1 is _CONST:
            # c1 ^ c2 -> {v(c1) ^ v(c2)}
            return const(dtype, s0.arg ^ s1.arg)
        # c ^ x -> x ^ c
        return s1 ^ s0
    if o1 is _CONST:
        if s1.arg is False and s0.dtype is dtypes.bool_:
            # x:bool ^ False -> x
            return s0
        if s1.arg is True and s0.dtype is dtypes.bool_:
            # x:bool ^ True -> ~x
            return _NOT(s0)
    if dtype.is_int:
        if s1 is s0 and not s0.shape:
            # x:int ^ x -> 0
            return const(dtype, 0)
        if o1 is _CONST and s1.arg == 0:
            # x:int ^ 0 -> x
            return s0
    if o1 is _CONST and o0 is Op.XOR:
        s0_0, s0_1 = s0.src
        if s0_1.op is _CONST:
            # (x ^ c1) ^ c2 -> x ^ (c1 ^ c2)
            return s0_0 ^ (s0_1 ^ s1)


def _fold_shl(dtype, src):
    s0, s1 = src
    o1 = s1.op
    if s0.op is _CONST and o1 is _CONST and 0 <= s1.arg < dtype.bits:
        # c1 << c2 -> {v(c1) << v(c2)} if 0 <= v(c2) < dtype.bits
        return const(dtype, s0.arg << s1.arg)
    if o1 is _CONST and s1.arg == 0:
        # x << 0 -> x
        return s0


def _fold_neg(dtype, src):
    s0, = src
    o0 = s0.op
    if o0 is _CONST:
        # -c -> {-v(c)}
        return const(dtype, -s0.arg)
    if o0 is _NEG:
        s0_0, = s0.src
        # --x -> x
        return s0_0
    if dtype.is_int and o0 is Op.SUB:
        s0_0, s0_1 = s0.src
        # -(x:int - y) -> y - x
        return s0_1 - s0_0


def _fold_abs(dtype, src):
    s0, = src
    if s0.op is _CONST:
        # abs(c) -> {abs(v(c))}
        r = abs(s0.arg)
        if r is not None:
            return const(dtype, r)
    if dtype.is_int and s0.vmin >= 0:
        # abs(x:int) -> x if lo(x) >= 0
        return s0


def _fold_sign(dtype, src):
    s0, = src
    if s0.op is _CONST:
        # sign(c) -> {sign(v(c))}
        r = sign(s0.arg)
        if r is not None:
            return const(dtype, r)


def _fold_lt(dtype, src):
    s0, s1 = src
    o0 = s0.op
    o1 = s1.op
    if s0.dtype.is_int:
        if s1 is s0 and not s0.shape:
            # x:int < x -> False
            return const(dtype, False)
        if o1 is _CONST:
            if o0 is _ADD:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST and exact(s0) and s0_0.dtype.min <= s1.arg - s0_1.arg <= s0_0.dtype.max:
                    # (x:int + c1) < c2 -> x < {v(c2) - v(c1)} if exact(s0) and x.dtype.min <= v(c2) - v(c1) <= x.dtype.max
                    return s0_0 < s1.arg - s0_1.arg
                if s0_0.op is _MUL:
                    s0_0_0, s0_0_1 = s0_0.src
                    if s0_0_1.op is _CONST and divides(s0_0_1, s1) and below(s0_1, s0_0_1) and exact(s0) and exact(s0_0_0 * s0_0_1) and (not s0_1.shape or s0_1.shape == s0_0_0.shape):
                        # (x:int * c1 + y) < c2 -> x < (c2 // c1) if divides(c1, c2) and below(y, c1) and exact(s0) and exact(x * c1)
                        return s0_0_0 < s1 // s0_0_1
                if s0_1.op is _MUL:
                    s0_1_0, s0_1_1 = s0_1.src
                    if s0_1_1.op is _CONST and divides(s0_1_1, s1) and below(s0_0, s0_1_1) and exact(s0) and exact(s0_1_0 * s0_1_1) and (not s0_0.shape or s0_0.shape == s0_1_0.shape):
                        # (x:int * c1 + y) < c2 -> x < (c2 // c1) if divides(c1, c2) and below(y, c1) and exact(s0) and exact(x * c1)
                        return s0_1_0 < s1 // s0_1_1
            if o0 is _MUL:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST:
                    if s0_1.arg > 0 and exact(s0):
                        # (x:int * c1) < c2 -> x < {-(-v(c2) // v(c1))} if v(c1) > 0 and exact(s0)
                        return s0_0 < -(-s1.arg // s0_1.arg)
                    if s0_1.arg < 0 and exact(s0) and (s1.arg > s1.dtype.min):
                        # (x:int * c1) < c2 -> {-v(c2) // -v(c1)} < x if v(c1) < 0 and exact(s0) and v(c2) > s1.dtype.min
                        return const(s0_0.dtype, -s1.arg // -s0_1.arg) < s0_0
            if o0 is _IDIV:
                s0_0, s0_1 = s0.src
                if s0_1.op is _CONST and s0_1.arg > 0 and s0_0.dtype.min <= s0_1.arg * s1.arg <= s0_0.dtype.max:
                    # (x:int // c1) < c2 -> x < {v(c1) * v(c2)} if v(c1) > 0 and x.dtype.min <= v(c1) * v(c2) <= x.dtype.max
                    return s0_0 < s0_1.arg * s1.arg
        if o1 is _ADD:
            if o0 is _CONST:
                s1_0, s1_1 = s1.src
                if s1_1.op is _CONST and exact(s1) and s1_0.dtype.min <= s0.arg - s1_1.arg <= s1_0.dtype.max:
                    # c1 < (x:int + c2) -> {v(c1) - v(c2)} < x if exact(s1) and x.dtype.min <= v(c1) - v(c2) <= x.dtype.max
                    return const(s1_0.dtype, s0.arg - s1_1.arg) < s1_0
                if s1_0.op is _MUL:
                    s1_0_0, s1_0_1 = s1_0.src
                    if s1_0_1.op is _CONST and s1_0_1.arg > 0 and (s0.arg + 1) % s1_0_1.arg == 0 and below(s1_1, s1_0_1) and exact(s1) and exact(s1_0_0 * s1_0_1) and (not s1_1.shape or s1_1.shape == s1_0_0.shape):
                        # c1 < (x:int * c2 + y) -> {(v(c1) + 1) // v(c2) - 1} < x if v(c2) > 0 and (v(c1) + 1) % v(c2) == 0 and below(y, c2) and exact(s1) and exact(x * c2)
                        return const(s1_0_0.dtype, (s0.arg + 1) // s1_0_1.arg - 1) < s1_0_0
                if s1_1.op is _MUL:
                    s1_1_0, s1_1_1 = s1_1.src
                    if s1_1_1.op is _CONST and s1_1_1.arg > 0 and (s0.arg + 1) % s1_1_1.arg == 0 and below(s1_0, s1_1_1) and exact(s1) and exact(s1_1_0 * s1_1_1) and (not s1_0.shape or s1_0.shape == s1_1_0.shape):
                        # c1 < (x:int * c2 + y) -> {(v(c1) + 1) // v(c2) - 1} < x if v(c2) > 0 and (v(c1) + 1) % v(c2) == 0 and below(y, c2) and exact(s1) and exact(x * c2)
                        return const(s1_1_0.dtype, (s0.arg + 1) // s1_1_1.arg - 1) < s1_1_0
        if o1 is _MUL:
            if o0 is _CONST:
                s1_0, s1_1 = s1.src
                if s1_1.op is _CONST:
                    if s1_1.arg > 0 and exact(s1):
                        # c1 < (x:int * c2) -> {v(c1) // v(c2)} < x if v(c2) > 0 and exact(s1)
                        return const(s1_0.dtype, s0.arg // s1_1.arg) < s1_0
                    if s1_1.arg < 0 and exact(s1) and (s0.arg > s0.dtype.min):
                        # c1 < (x:int * c2) -> x < {-(v(c1) // -v(c2))} if v(c2) < 0 and exact(s1) and v(c1) > s0.dtype.min
                        return s1_0 < -(s0.arg // -s1_1.arg)
        if o1 is _IDIV and o0 is _CONST:
            s1_0, s1_1 = s1.src
            if s1_1.op is _CONST and s1_1.arg > 0 and s1_0.dtype.min <= (s0.arg + 1) * s1_1.arg - 1 <= s1_0.dtype.max:
                # c1 < (x:int // c2) -> {(v(c1) + 1) * v(c2) - 1} < x if v(c2) > 0 and x.dtype.min <= (v(c1) + 1) * v(c2) - 1 <= x.dtype.max
                return const(s1_0.dtype, (s0.arg + 1) * s1_1.arg - 1) < s1_0


def _fold_not(dtype, src):
    s0, = src
    o0 = s0.op
    if o0 is _NOT:
        s0_0, = s0.src
        # ~~x -> x
        return s0_0
    if o0 is Op.LT:
        s0_0, s0_1 = s0.src
        if s0_1.op is _CONST and s0_0.dtype.is_int and s0_1.arg > s0_0.dtype.min:
            # ~(x:int < c) -> {v(c) - 1} < x if v(c) > x.dtype.min
            return const(s0_0.dtype, s0_1.arg - 1) < s0_0
        if s0_0.op is _CONST and s0_1.dtype.is_int and s0_0.arg < s0_1.dtype.max:
            # ~(c < x:int) -> x < {v(c) + 1} if v(c) < x.dtype.max
            return s0_1 < s0_0.arg + 1
    if o0 is _EQ:
        s0_0, s0_1 = s0.src
        # ~(x == y) -> x != y
        return _NE(s0_0, s0_1)
    if o0 is _NE:
        s0_0, s0_1 = s0.src
        # ~(x != y) -> x == y
        return _EQ(s0_0, s0_1)


def _fold_shr(dtype, src):
    s0, s1 = src
    if s1.op is _CONST:
        if s1.arg == 0:
            # x >> 0 -> x
            return s0
        if s0.op is Op.SHR:
            s0_0, s0_1 = s0.src
            if s0_1.op is _CONST and s0_1.arg >= 0 and s1.arg >= 0 and (s0_1.arg + s1.arg < dtype.bits):
                # (x >> c1) >> c2 -> x >> (c1 + c2) if v(c1) >= 0 and v(c2) >= 0 and v(c1) + v(c2) < dtype.bits
                return s0_0 >> s0_1 + s1


def _fold_where(dtype, src):
    s0, s1, s2 = src
    o0 = s0.op
    o1 = s1.op
    o2 = s2.op
    if o0 is _CONST:
        if s0.arg is True and (not s2.shape or s2.shape == s1.shape):
            # where(True, a, b) -> a
            return s1
        if s0.arg is False and (not s1.shape or s1.shape == s2.shape):
            # where(False, a, b) -> b
            return s2
    if s2 is s1 and (not s0.shape or s0.shape == s1.shape):
        # where(p, x, x) -> x
        return s1
    if o0 is _NOT:
        s0_0, = s0.src
        # where(~p, a, b) -> where(p, b, a)
        return _WHERE(s0_0, s2, s1)
    if o2 is _CONST:
        if s2.arg is False and o1 is _CONST and s1.arg is True:
            # where(p, True, False) -> p
            return s0
        if s2.arg is True and o1 is _CONST and s1.arg is False:
            # where(p, False, True) -> ~p
            return _NOT(s0)
    if o1 is _WHERE:
        s1_0, s1_1, s1_2 = s1.src
        if s1_0 is s0 and (not s1_2.shape or s1_2.shape == s0.shape or s1_2.shape == s1_1.shape or s1_2.shape == s2.shape):
            # where(p, where(p, a, b), d) -> where(p, a, d)
            return _WHERE(s0, s1_1, s2)
    if o2 is _WHERE:
        s2_0, s2_1, s2_2 = s2.src
        if s2_0 is s0 and (not s2_1.shape or s2_1.shape == s0.shape or s2_1.shape == s1.shape or s2_1.shape == s2_2.shape):
            # where(p, a, where(p, b, d)) -> where(p, a, d)
            return _WHERE(s0, s1, s2_2)


FOLD: dict[Op, Any] = {
    Op.ADD: _fold_add,
    Op.SUB: _fold_sub,
    Op.MUL: _fold_mul,
    Op.DIV: _fold_div,
    Op.IDIV: _fold_idiv,
    Op.MOD: _fold_mod,
    Op.MAX: _fold_max,
    Op.MIN: _fold_min,
    Op.EQ: _fold_eq,
    Op.NE: _fold_ne,
    Op.AND: _fold_and,
    Op.OR: _fold_or,
    Op.XOR: _fold_xor,
    Op.SHL: _fold_shl,
    Op.NEG: _fold_neg,
    Op.ABS: _fold_abs,
    Op.SIGN: _fold_sign,
    Op.SQRT: lambda dtype, src: calculated(src[0], f=math.sqrt) if src[0].op is _CONST else None,  # sqrt(c) -> calculated(c, f=math.sqrt)
    Op.RECIP: lambda dtype, src: calculated(src[0], f=lambda a: 1 / a) if src[0].op is _CONST else None,  # recip(c) -> calculated(c, f=lambda a: 1 / a)
    Op.FLOOR: lambda dtype, src: calculated(src[0], f=math.floor, whole=True) if src[0].op is _CONST else None,  # floor(c) -> calculated(c, f=math.floor, whole=True)
    Op.CEIL: lambda dtype, src: calculated(src[0], f=math.ceil, whole=True) if src[0].op is _CONST else None,  # ceil(c) -> calculated(c, f=math.ceil, whole=True)
    Op.TRUNC: lambda dtype, src: calculated(src[0], f=math.trunc, whole=True) if src[0].op is _CONST else None,  # trunc(c) -> calculated(c, f=math.trunc, whole=True)
    Op.ROUND: lambda dtype, src: calculated(src[0], f=round, whole=True) if src[0].op is _CONST else None,  # round(c) -> calculated(c, f=round, whole=True)
    Op.POW: lambda dtype, src: src[0] if src[1].op is _CONST and src[1].arg == 1 else None,  # x ** 1 -> x
    Op.LT: _fold_lt,
    Op.NOT: _fold_not,
    Op.SHR: _fold_shr,
    Op.WHERE: _fold_where,
}
