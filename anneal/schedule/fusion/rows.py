"""Rows: neighbours in memory order that a reduce makes one number of, and products that read a row again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anneal.uop import ALU, MOVEMENT, Op, UOp
from anneal.uop.sizes import count

_SHORT = 4096  # elements of a row that is worth computing again: what the threads of a workgroup hold in registers
_REORDER = frozenset((Op.RESHAPE, Op.PERMUTE))


def row_length(reduce: UOp) -> int:
    """The number of neighbours in memory order that are reduced to one, or 0 if the reduced elements are no
    neighbours.
    """
    if reduce.op is Op.SEGMENT_SUM:
        return 0
    shape, axes = reduce.src[0].shape, reduce.arg[1]
    first = min(axes)
    if any(shape[a] != 1 for a in range(first, len(shape)) if a not in axes):
        return 0
    return count(shape[first:])


def goes_back(expand: UOp, row: int) -> bool:
    """True if an EXPAND gives the number of each row of `row` elements back to all of them."""
    before, after = expand.src[0].shape, expand.shape
    first = next((a for a, (m, n) in enumerate(zip(before, after, strict=True)) if m != n), None)
    return first is not None and count(before[first:]) == 1 and count(after[first:]) == row


def repeats_for_vectors(expand: UOp, reduce: UOp, consumers: Mapping[UOp, Sequence[UOp]]) -> bool:
    """True if an EXPAND repeats short rows, made of numbers like that of `reduce`, for products with vectors alone.

    Such a product reads an element of a matrix for each element of a row that it repeats.
    """
    if row_length(reduce) > _SHORT or reduce.src[0].size != expand.src[0].size:
        return False
    last = expand
    while len(consumers[last]) == 1 and consumers[last][0].op in _REORDER:
        last = consumers[last][0]
    products = consumers[last]
    return bool(products) and all(
        c.op is Op.MUL
        and all(x.op is Op.REDUCE_AXIS and x.arg[0] is Op.ADD for x in consumers[c])
        and any(_reads_whole(o) for o in c.src if o is not last)
        for c in products
    )


def repeats_beside_vectors(expand: UOp, reduce: UOp, consumers: Mapping[UOp, Sequence[UOp]]) -> bool:
    """True if an EXPAND repeats numbers of short rows only for the results of such products, as in a softmax that
    divides last: each result takes as many elements of a matrix as the row has that its number is made of.
    """
    row = row_length(reduce)
    if not 0 < row <= _SHORT or reduce.size != expand.src[0].size:
        return False
    last = expand
    while len(consumers[last]) == 1 and consumers[last][0].op in _REORDER:
        last = consumers[last][0]
    if len(consumers[last]) != 1 or consumers[last][0].op not in ALU:
        return False
    for other in consumers[last][0].src:
        while other.op in _REORDER:
            other = other.src[0]
        if other.op is Op.REDUCE_AXIS and other.src[0].op is Op.MUL and other.src[0].size == expand.size * row:
            return any(_reads_whole(x) for x in other.src[0].src)
    return False


def is_vector_product(reduce: UOp) -> bool:
    """True if a reduce sums the products of a matrix, each of whose elements it reads once, and a vector."""
    body = reduce.src[0]
    if reduce.op is not Op.REDUCE_AXIS or reduce.arg[0] is not Op.ADD or body.op is not Op.MUL:
        return False
    whole, vectors = 0, 0
    for s in body.src:
        base = s
        while base.op in _REORDER:
            base = base.src[0]
        if base.op is Op.EXPAND and base.src[0].size < body.size:
            vectors += 1
        elif _reads_whole(s):
            whole += 1
    return whole == vectors == 1


def _reads_whole(value: UOp) -> bool:
    """True if a value is memory of its own size in some order, or a part of more, perhaps after elementwise work."""
    seen = {value}
    stack = [value]
    while stack:
        u = stack.pop()
        if u.size < value.size or u.op is Op.EXPAND:
            continue
        if u.op is Op.UPDATE or (not u.src and u.op is not Op.CONST and u.op is not Op.IOTA):
            return True
        if len(seen) > 32 or not (u.op in ALU or u.op in MOVEMENT or u.op is Op.CONTIGUOUS):
            continue
        for s in u.src:
            if s not in seen:
                seen.add(s)
                stack.append(s)
    return False
