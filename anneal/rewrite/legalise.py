"""Legalised dtypes: a value stored in few bits is computed in more, by a rewrite of kernels that every device shares.

Afterwards a narrow dtype appears in memory, in LOAD, in CAST to and from it, and in BITCAST; an operation on it is one
on the wide dtype, whose result is rounded (or wraps around) to the narrow one at once. What a kernel fuses therefore
does not change a value.
"""

from __future__ import annotations

from collections.abc import Mapping

from anneal.rewrite.walk import over, rebuild
from anneal.uop import ALU, DType, Op, UOp, alu, dtypes, toposort

_F32 = dtypes.float32
FLOATS: Mapping[DType, DType] = {d: _F32 for d in vars(dtypes).values() if isinstance(d, DType) and d.is_narrow}
INTEGERS: Mapping[DType, DType] = {
    dtypes.int8: dtypes.int32,
    dtypes.int16: dtypes.int32,
    dtypes.uint8: dtypes.uint32,
    dtypes.uint16: dtypes.uint32,
}


def legalised(sink: UOp, wide: Mapping[DType, DType]) -> UOp:
    """The kernel with every operation on a dtype of `wide` done in the dtype that it names.

    >>> from anneal.uop import const
    >>> x = UOp(Op.LOAD, dtypes.int8, (UOp(Op.PARAM, dtypes.int8, (), (0, (1,))), const(dtypes.int32, 0)))
    >>> legalised(x + x, INTEGERS) is (x.cast(dtypes.int32) + x.cast(dtypes.int32)).cast(dtypes.int8)
    True
    """
    order = toposort((sink,))
    if not any(u.dtype in wide for u in order):
        return sink

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        narrow = u.dtype in wide
        if u.op in ALU and u.op is not Op.BITCAST and (narrow or any(s.dtype in wide for s in src)):
            return _computed(u, src, wide)
        if u.op is Op.REDUCE and narrow:
            total = UOp(Op.REDUCE, wide[u.dtype], (_wide(src[0], wide), *src[1:]), u.arg, u.tag)
            return total.cast(u.dtype)
        return over(u, src)

    return rebuild(sink, visit, order=order)


def _wide(u: UOp, wide: Mapping[DType, DType]) -> UOp:
    """`u` in the dtype it is computed in; without the way there and back if its bounds say that nothing was lost."""
    to = wide.get(u.dtype)
    if to is None:
        return u
    if u.op is Op.CAST and u.src[0].dtype is to and to.is_int:
        x = u.src[0]
        assert x.vmin is not None
        assert x.vmax is not None
        if u.dtype.min <= x.vmin and x.vmax <= u.dtype.max:
            return x
    return u.cast(to)


def _computed(u: UOp, src: tuple[UOp, ...], wide: Mapping[DType, DType]) -> UOp:
    x = tuple([_wide(s, wide) for s in src])
    if u.op is not Op.CAST:
        out = alu(u.op, x)
        return out if out.dtype is u.dtype else out.cast(u.dtype)
    # A number on its way to a float that only ml_dtypes or our own bits can make goes by float32, on every device.
    by_single = u.dtype.is_narrow and u.dtype is not dtypes.float16
    return (x[0].cast(_F32) if by_single else x[0]).cast(u.dtype)
