"""The six movement ops as arithmetic on indices: nothing is ever copied to move data.

`source_index(node, index)` answers: to read `node` at `index`, where must its source be read, and when is that read
inside the source? An index is a tuple of int32 expressions, one per axis; axes of size 1 are always read at 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anneal.uop import Nodes, Op, Src, UOp
from anneal.uop.sizes import Size, divided_size, least, most, size, size_node

Index = Src


def linear_index(index: Nodes, shape: Sequence[Size]) -> UOp:
    """The row-major position of `index` in an array of `shape`.

    >>> from anneal.uop import const, dtypes
    >>> linear_index((const(dtypes.int32, 1), const(dtypes.int32, 2)), (3, 4)).arg
    6
    """
    total = None
    stride: Size = 1
    for i, n in zip(reversed(index), reversed(shape), strict=True):
        if n != 1:
            term = i if stride == 1 else i * size_node(stride)
            total = term if total is None else term + total
        stride = stride * n
    return size_node(0) if total is None else total


def unflatten(position: UOp, shape: Sequence[Size]) -> Index:
    """The index at row-major `position` of an array of `shape`; inverse of `linear_index`."""
    out: list[UOp] = []
    rest = position
    big = sum([s != 1 for s in shape])  # axes of more than one element still to produce
    for n in reversed(shape):
        if n == 1:
            out.append(size_node(0))
            continue
        big -= 1
        if big == 0:
            out.append(rest)
        else:
            out.append(rest % size_node(n))
            rest = rest // size_node(n)
    return tuple(reversed(out))


def reshaped_index(index: Nodes, shape: Sequence[Size], other: Sequence[Size]) -> Index:
    """The index in an array of shape `other` of the element at `index` of its reshape to `shape`.

    Axes are matched in the smallest groups of equal product, so that a reshape that only splits, merges, adds or drops
    axes costs div and mod on the axes it touches alone.
    """
    out: list[UOp] = []
    for mine, its in matched_axes(shape, other):
        if not mine:
            out.append(size_node(0))
        elif len(mine) == len(its) == 1:
            out.append(index[mine.start])
        else:
            position = _position(index[mine.start : mine.stop], shape[mine.start : mine.stop])
            out.extend(unflatten(position, other[its.start : its.stop]))
    return tuple(out)


def _position(index: Nodes, shape: Sequence[Size]) -> UOp:
    """The `linear_index` of an index; if the index is the `unflatten` of a position, that position, so that the index
    does not grow with reshapes to and fro.
    """
    last = next((i for i, n in zip(reversed(index), reversed(shape), strict=True) if n != 1), None)
    if last is not None and last.op is Op.MOD:
        whole = last.src[0]
        if all(a is b for a, b in zip(index, unflatten(whole, shape), strict=True)):
            return whole
    return linear_index(index, shape)


def matched_axes(shape: Sequence[Size], other: Sequence[Size]) -> Iterator[tuple[range, range]]:
    """The axes of two shapes of the same elements, none of size 0, in the smallest groups of equal product.

    An axis of size 1 of `other` has no axes of `shape` beside it; those of `shape` are left out.

    >>> list(matched_axes((2, 12), (2, 1, 3, 4)))
    [(range(0, 1), range(0, 1)), (range(0, 0), range(1, 2)), (range(1, 2), range(2, 4))]
    """
    i = j = 0
    n, m = len(other), len(shape)
    while i < n or j < m:
        if i < n and other[i] == 1:
            yield range(0), range(i, i + 1)
            i += 1
            continue
        if j < m and shape[j] == 1:
            j += 1
            continue
        i0, j0 = i, j
        a, b = other[i], shape[j]
        i, j = i + 1, j + 1
        while a != b:
            if j == m or i < n and _goes_on(a, b):
                a = _times(a, other[i])
                i += 1
            else:
                b = _times(b, shape[j])
                j += 1
        yield range(j0, j), range(i0, i)


def _times(a: Size, b: Size) -> Size:
    return a * b if isinstance(a, int) and isinstance(b, int) else size(a * b)


def _goes_on(a: Size, b: Size) -> bool:
    """True if the group of product `a`, rather than the group of product `b`, takes in the next axis, so that the
    products meet.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if divided_size(b, a) is not None:
        return True
    if divided_size(a, b) is not None:
        return False
    return (most(a), least(a)) < (most(b), least(b))


def source_index(node: UOp, index: Index) -> tuple[Index, UOp | None]:
    """The index at which `node.src[0]` is read when movement node `node` is read at `index`, and a gate.

    The gate (bool expression, or None for always true) is false where a PAD supplies its zero.
    """
    op, arg = node.op, node.arg
    old = node.src[0].shape
    if op is Op.RESHAPE:
        return reshaped_index(index, node.shape, old), None
    if op is Op.PERMUTE:
        out = list(index)
        for to, frm in enumerate(arg):
            out[frm] = index[to]
        return tuple(out), None
    if op is Op.EXPAND:
        zero = size_node(0)
        return tuple([zero if s == 1 else i for i, s in zip(index, old, strict=True)]), None
    if op is Op.SHRINK:
        return tuple([i + b if b.__class__ is not int or b else i for i, (b, _) in zip(index, arg, strict=True)]), None
    if op is Op.FLIP:
        return tuple(
            [size_node(s - 1) - i if a in arg else i for a, (i, s) in enumerate(zip(index, old, strict=True))]
        ), None
    assert op is Op.PAD, op
    gate: UOp | None = None
    moved: list[UOp] = []
    for i, s, (before, after) in zip(index, old, arg, strict=True):
        shifted = i
        if before.__class__ is not int or before:
            gate, shifted = both(gate, size_node(before - 1) < i), i - before
        if after.__class__ is not int or after:
            gate = both(gate, i < size_node(before + s))
        moved.append(size_node(0) if s == 1 and (shifted is not i or after != 0) else shifted)
    return tuple(moved), gate


def both(a: UOp | None, b: UOp | None) -> UOp | None:
    """The gate that is true where both gates are; None is always true."""
    return b if a is None else a if b is None else a & b
