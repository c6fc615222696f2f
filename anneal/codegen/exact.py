"""Rewrites that the lowering rules call by name because they compute with constants."""

from __future__ import annotations

import math

from anneal.uop import Op, UOp, const, dtypes


def is_nan(x: UOp) -> UOp:
    """True where a float of 32 or 64 bits is nan: where those of its size are more than those of infinity."""
    bits, infinity = (dtypes.uint64, 0x7FF << 52) if x.dtype.bits == 64 else (dtypes.uint32, 0xFF << 23)
    return const(bits, infinity) < (UOp(Op.BITCAST, bits, (x,)) & ((1 << bits.bits - 1) - 1))


def by_inverse(x: UOp, c: UOp) -> UOp | None:
    """`x / c` as a product, if c is a power of two so far from the ends of float16's range that 1/c is exact, too.

    >>> from anneal.uop import Op, const, dtypes
    >>> x = UOp(Op.PARAM, dtypes.float32, (), (0, ()))
    >>> by_inverse(x, const(dtypes.float32, 8)) is x * 0.125, by_inverse(x, const(dtypes.float32, 3))
    (True, None)
    """
    value = float(c.arg)
    if not 2.0**-14 <= abs(value) <= 2.0**14 or abs(math.frexp(value)[0]) != 0.5:
        return None
    return x * (1 / value)


def by_exp2(x: UOp) -> UOp | None:
    """`exp(x)` by exp2, which takes a few instructions less, if x is a product with a constant, or with one in its
    second factor: the constant takes in log2(e). Such an x is rounded already, so the result is as exact as it was.

    >>> from anneal.uop import const
    >>> x = UOp(Op.PARAM, dtypes.float32, (), (0, ()))
    >>> e = math.log2(math.e)
    >>> by_exp2(x * (x * x * 0.3 + 0.7)) is Op.EXP2(x * (x * x * (0.3 * e) + 0.7 * e))
    True
    >>> by_exp2(x), by_exp2(x * 2.0)
    (None, None)
    """
    if x.dtype is not dtypes.float32 or x.op is not Op.MUL:
        return None
    around = []
    u = x
    while u.op in (Op.MUL, Op.ADD, Op.SUB) and not (u.op is Op.MUL and u.src[1].is_const):
        if u.op is not Op.MUL and not u.src[1].is_const:
            return None
        around.append(u)
        u = u.src[1 if u.op is Op.MUL else 0]
    if u.op is not Op.MUL or (u is x and abs(math.frexp(u.src[1].arg)[0]) == 0.5):
        return None
    out: UOp = u.src[0] * (u.src[1].arg * math.log2(math.e))
    for v in reversed(around):
        if v.op is Op.MUL:
            out = v.src[0] * out
        else:
            out = v.op(out, v.src[1].const_like(v.src[1].arg * math.log2(math.e)))
    return Op.EXP2(out)
