"""The order of rows of integers, as nodes.

One row is sorted by the ARGSORT op. Of many rows, those that are short are sorted by counting: every element counts
those that come before it (its rank). Longer ones are sorted as one row, by value and then, stably, by the row they are
of.
"""

from __future__ import annotations

import math

from anneal.ops.nodes.rows import take_rows
from anneal.ops.nodes.values import broadcast
from anneal.ops.nodes.views import iota, pad, reduce_node, reshape, shrink
from anneal.uop import Op, UOp, alu, const, dtypes

_INT32 = dtypes.int32
COUNTED = 256  # up to here the rank of an element in its row is counted


def keys(u: UOp, descending: bool) -> UOp:
    """Integers in the order of `u`, or the reverse; nan is the largest, and -0.0 equals 0.0."""
    if u.dtype.is_float:
        wide = u.dtype.bits == 64
        u = u if wide else u.cast(dtypes.float32)
        u = alu(Op.WHERE, (u.eq(0.0), const(u.dtype, 0.0), u))
        kind = dtypes.int64 if wide else _INT32
        bits = UOp(Op.BITCAST, kind, (u,))
        # negative floats grow with their magnitude's bits: inverting all but the sign turns them round
        top, last = const(kind, kind.max), const(kind, kind.bits - 1)
        bits = alu(Op.XOR, (bits, alu(Op.AND, (alu(Op.SHR, (bits, last)), top))))
        u = alu(Op.WHERE, (alu(Op.NE, (u, u)), top, bits))
    elif u.dtype is dtypes.uint32:
        u = UOp(Op.BITCAST, _INT32, (alu(Op.XOR, (u, const(u.dtype, 0x80000000))),))
    elif u.dtype.bits < 64:
        u = u.cast(_INT32)
    return alu(Op.NOT, (u,)) if descending else u


def first_by_blocks(ranked: UOp, k: int) -> UOp:
    """The positions of the `k` smallest of a row of int32, in order, of equal ones the first.

    They lie in the k blocks whose smallest come first: only those blocks are sorted, and before them the smallest ones.
    """
    n = ranked.shape[0]
    width = math.isqrt(n // k)  # as many blocks as elements in k blocks
    count = -(-n // width)
    filled = pad(ranked, ((0, count * width - n),))
    known = alu(Op.LT, (iota(count * width, 0, 1), const(_INT32, n)))
    filled = alu(Op.WHERE, (known, filled, const(_INT32, _INT32.max)))
    blocks = reshape(filled, (count, width))
    first = UOp(Op.ARGSORT, _INT32, (reduce_node(blocks, Op.MIN, (1,), False),))
    chosen = shrink(first, ((0, k),))
    chosen = take_rows(chosen, UOp(Op.ARGSORT, _INT32, (chosen,)))  # as they lie in the row
    order = UOp(Op.ARGSORT, _INT32, (reshape(take_rows(blocks, chosen), (k * width,)),))
    inside = broadcast(iota(width, 0, 1), (k, width))
    starts = alu(Op.MUL, (chosen, const(_INT32, width)))
    places = alu(Op.ADD, (broadcast(reshape(starts, (k, 1)), (k, width)), inside))
    return take_rows(reshape(places, (k * width,)), shrink(order, ((0, k),)))


def sorted_places(ranked: UOp) -> UOp:
    """The positions that sort each row (the last axis) of integers: equal ones keep their order."""
    shape = ranked.shape
    n = shape[-1]
    if len(shape) == 1:
        return UOp(Op.ARGSORT, _INT32, (ranked,))
    if isinstance(n, int) and n > COUNTED:
        return _sorted_together(ranked)
    square = (*shape, n)
    mine = broadcast(reshape(ranked, (*shape, 1)), square)
    other = broadcast(reshape(ranked, (*shape[:-1], 1, n)), square)
    i = broadcast(iota(n, 0, 2), square)
    j = broadcast(iota(n, 1, 2), square)
    tie = alu(Op.AND, (alu(Op.EQ, (other, mine)), alu(Op.LT, (j, i))))
    before = alu(Op.OR, (alu(Op.LT, (other, mine)), tie)).cast(_INT32)
    rank = reduce_node(before, Op.ADD, (len(square) - 1,), False)
    # position r of the result holds the one element whose rank is r
    here = alu(Op.EQ, (broadcast(reshape(rank, (*shape[:-1], 1, n)), square), i))
    return reduce_node(alu(Op.WHERE, (here, j, const(_INT32, 0))), Op.ADD, (len(square) - 1,), False)


def _sorted_together(ranked: UOp) -> UOp:
    """`sorted_places` of rows by one sort of all, and another that brings the rows together again."""
    shape, n = ranked.shape, ranked.shape[-1]
    order = UOp(Op.ARGSORT, _INT32, (reshape(ranked, (math.prod(shape),)),))
    length = const(_INT32, n)
    order = take_rows(order, UOp(Op.ARGSORT, _INT32, (alu(Op.IDIV, (order, length)),)))
    return reshape(alu(Op.MOD, (order, length)), shape)
