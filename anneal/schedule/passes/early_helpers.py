"""Functions that the rules of `early.upat` call."""

from __future__ import annotations

import functools
import operator

from anneal.schedule.fusion import base
from anneal.schedule.passes.vocabulary import along, everywhere, kept, numbers, spread, summed, taken
from anneal.uop import MOVEMENT, Ints, Op, UOp, const, dtypes

_I32 = dtypes.int32
# More comparisons than this are not made to find where each row's run starts.
_MANY = 1 << 30


def composed(outer: Ints, inner: Ints) -> Ints:
    """The order of PERMUTE(inner) followed by PERMUTE(outer)."""
    return tuple([inner[i] for i in outer])


def is_identity(order: Ints) -> bool:
    """True if a PERMUTE by `order` moves nothing."""
    return all(i == n for n, i in enumerate(order))


def is_view(u: UOp) -> bool:
    """True if `u` is memory, whole and in order, under any shape."""
    return base(u, (Op.RESHAPE,)).op in (Op.BUFFER, Op.PARAM, Op.CONTIGUOUS)


def materialised(u: UOp) -> UOp:
    """`u` as an opaque kernel reads it: flat, in order, in memory."""
    return u if is_view(u) else kept(u)


def reduced_wide(u: UOp, x: UOp) -> UOp:
    """The sum or product of a float narrower than float32, rounded once, at its end; products that it sums are not."""
    f32 = dtypes.float32
    wide = x.src[0].cast(f32) * x.src[1].cast(f32) if x.op is Op.MUL else x.cast(f32)
    return wide.then(Op.REDUCE_AXIS, u.arg).cast(u.dtype)


def is_sized(u: UOp) -> bool:
    """True for a value whose sizes are numbers, of a dtype that devices compute in."""
    return not u.dtype.is_narrow and all(isinstance(n, int) for n in u.shape)


def scattered(u: UOp, serial: bool) -> UOp:
    """A scatter, which adds the rows of a destination in row order: one kernel, if there are such; else a sort by
    destination, and a sum of each destination's run."""
    index, value = u.src
    if u.dtype.is_narrow:
        wide = UOp(Op.SCATTER_ADD, dtypes.float32, (index, value.cast(dtypes.float32)), u.arg)
        return scattered(wide, serial).cast(u.dtype)
    rows, n = u.arg[0], index.shape[0]
    if serial and not isinstance(n, int):  # rows for the largest size; an index that is no row's number is ignored
        index, value = taken(index + 1, numbers(int(index.size))) - 1, kept(value)
    index = materialised(index)
    if serial:
        return UOp(Op.SCATTER_ADD, u.dtype, (index, materialised(value)), u.arg)
    order = index.then(Op.ARGSORT)
    if isinstance(n, int) and isinstance(rows, int) and (rows + 1) * n > _MANY:
        return UOp(Op.SEGMENT_SUM, u.dtype, (value, order, _starts(index, order, rows, n)))
    # starts[v] = how many indices are smaller than v
    table = (rows + 1, n)
    smaller = spread(index, table, 0) < along(table, 0)
    return UOp(Op.SEGMENT_SUM, u.dtype, (value, order, summed(smaller.cast(_I32), 1)))


def _starts(index: UOp, order: UOp, rows: int, n: int) -> UOp:
    """The starts by binary search in the sorted indices: for every row the number of smaller ones."""
    keys, row = kept(taken(index, order)), numbers(rows + 1)
    below = row - row
    step = 1 << (n.bit_length() - 1)
    while step:
        last = below + (step - 1)
        smaller = (taken(keys, last) < row) & (last < n)
        below = below + smaller.where(const(_I32, step), 0)
        step >>= 1
    return below


UNMOVED = MOVEMENT | {Op.CAST}


def is_product(body: UOp) -> bool:
    """True if the values to sum are products of repeated ones, as in a matrix product or a convolution."""
    body = base(body, UNMOVED)
    return body.op is Op.MUL and all(base(s, UNMOVED - {Op.EXPAND}).op is Op.EXPAND for s in body.src)


def products(u: UOp) -> tuple[list[UOp], list[UOp]]:
    """The addends of a sum that are products as in `is_product`, and the others."""
    found: list[UOp] = []
    others: list[UOp] = []
    left = [u]
    while left:
        x = left.pop()
        if x.op is Op.ADD:
            left += reversed(x.src)
        else:
            (found if is_product(x) else others).append(x)
    return found, others


def has_products(u: UOp) -> bool:
    """True if several addends of a sum are products."""
    return len(products(u)[0]) > 1


def summed_apart(u: UOp) -> UOp:
    """A reduction of added products as added reductions of each; what is no product is reduced together."""
    shape = u.src[0].shape
    found, others = products(u.src[0])
    if others:
        rest = functools.reduce(operator.add, others)
        if rest.shape != shape:  # constants, which have no axes among addends
            rest = everywhere(rest, shape)
        found.append(rest)
    return functools.reduce(operator.add, [x.then(Op.REDUCE_AXIS, u.arg) for x in found])
