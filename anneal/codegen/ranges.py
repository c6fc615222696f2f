"""Facts of RANGE nodes that every pass asks for: their kinds, extents and the mask of their ids."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence

from anneal.codegen.affine import normalise
from anneal.rewrite import rebuild, tell
from anneal.uop import Op, UOp, const, dtypes, toposort
from anneal.uop.sizes import Size, content, least, size

SERIAL = frozenset(("reduce", "written"))  # kinds of ranges that are loops in the linear program


def extent(r: UOp) -> int:
    """The number of values of a range of constant extent."""
    return int(r.src[0].arg)


def ceil_div(n: Size, amount: int) -> Size:
    """n / amount rounded up: the number of parts of `amount` that cover `n`."""
    if isinstance(n, int):
        return -(-n // amount)
    return size((n if content(n) % amount == 0 else n + (amount - 1)) // amount)


def held(value: UOp, end: Size) -> UOp:
    """`value` held below `end`; at 0 where there is nothing below it."""
    below = Op.MIN(value, const(_I32, 0) + (end - 1))
    return below if least(end) else Op.MAX(below, const(_I32, 0))


def mask_of(ranges: Iterable[UOp]) -> int:
    """The ids of `ranges` as bits, as `UOp.ranges` has them."""
    mask = 0
    for r in ranges:
        mask |= 1 << r.arg[0]
    return mask


def reads_stored(stores: Sequence[UOp], readers: Sequence[UOp] | None = None) -> bool:
    """True if `readers`, or the stores themselves, read memory that `stores` write."""
    written = {s.src[0] for s in stores}
    return any(u.op is Op.LOAD and u.src[0] in written for u in toposort(stores if readers is None else readers))


# ---------------------------------------------------------------------------------------------------------------------
# Predicates of loads and stores: the condition under which an access is made, as its last source.


def conjunction(conditions: Sequence[UOp]) -> tuple[UOp, ...]:
    """The predicate that asks for all of `conditions`, as the last source of an access: none for none."""
    return (functools.reduce(operator.and_, conditions),) if conditions else ()


def conjuncts(predicate: UOp) -> list[UOp]:
    """The conditions that a predicate asks for, from left to right."""
    out, stack = [], [predicate]
    while stack:
        u = stack.pop()
        if u.op is Op.AND:
            stack += (u.src[1], u.src[0])
        else:
            out.append(u)
    return out


# ---------------------------------------------------------------------------------------------------------------------
# Subgroup matrices in the IR: values that depend on ranges of the kinds "row", "column" and "depth".
#
# As a value that depends on a vector range is a vector, so is one that depends on two of these a matrix, which the
# threads of a subgroup hold together: the left factor over (row, depth), the right one over (depth, column), their
# product over (row, column). Such a matrix is read and stored as a whole: the index of its LOAD or STORE is
# LANES(index of the first element, range, range, number of the thread in its subgroup), whose arg has the dtype and the
# steps between two elements along each range, of which one is 1.


SUBGROUP = 32  # threads that hold a matrix together


def is_fragment(index: UOp) -> bool:
    """Is `index` that of a whole matrix?"""
    return index.op is Op.LANES and len(index.src) == 4


def run_of(index: UOp) -> int | None:
    """The step between lanes of an access whose index `to_runs` made; None where lanes have indices of their own."""
    return int(index.arg) if index.op is Op.LANES and index.arg is not None else None


def is_product(u: UOp) -> bool:
    """Does the REDUCE `u` multiply matrices?"""
    return u.op is Op.REDUCE and u.src[-1].op is Op.RANGE and u.src[-1].arg[1] == "depth"


def factors(product: UOp) -> tuple[UOp, UOp]:
    """The two matrices of which the first term of a sum is the product, without the casts to the sum's dtype."""
    while product.op is Op.ADD:
        product = product.src[0]
    left, right = (x.src[0] if x.op is Op.CAST else x for x in product.src)
    return left, right


# ---------------------------------------------------------------------------------------------------------------------
# Kernel graphs rebuilt over new sources, with the indices of memory accesses in normal form (`affine.py`).


_I32 = dtypes.int32


def with_sources(u: UOp, src: tuple[UOp, ...], serial: int = 0) -> UOp:
    """`u` over `src`, with the index of a memory access and the numerator of a division in normal form.

    `serial` masks the ids of ranges that become loops.
    """
    op = u.op
    if op is Op.LOAD or op is Op.STORE:
        src = (src[0], normalise(src[1], serial), *src[2:])
        return u if src == u.src else UOp(op, u.dtype, src, u.arg, u.tag)
    if src == u.src:
        return u
    out = u.replace(src=src)
    if out.dtype is _I32 and out.op in (Op.IDIV, Op.MOD):
        out = normalise(out, serial)
    return out


class Substitution:
    """Replaces nodes in one graph after another; what these share is rewritten once, and indices are normalised.

    Only nodes whose `ranges` meet `mask` are visited: the others cannot hold what is replaced.
    """

    __slots__ = ("_mask", "_new", "_serial")

    def __init__(self, table: Mapping[UOp, UOp], mask: int, serial: int = 0) -> None:
        self._new: dict[UOp, UOp] = dict(table)
        self._mask, self._serial = mask, serial

    def __call__(self, root: UOp) -> UOp:
        new, mask, serial = self._new, self._mask, self._serial

        def untouched(u: UOp) -> bool:
            return u in new or not u.ranges & mask and u.op not in _VISITED

        for u in toposort((root,), until=untouched):
            if u not in new:
                new[u] = with_sources(u, tuple([new.get(s, s) for s in u.src]), serial)
        tell(lambda: (new,))
        return new.get(root, root)


_VISITED = frozenset((Op.SINK, Op.STORE, Op.REDUCE))  # their `ranges` do not tell what is below


def substituted(sink: UOp, table: Mapping[UOp, UOp]) -> UOp:
    """The whole graph with the nodes in `table` replaced, also below reduces; indices are normalised on the way."""
    return rebuild(sink, with_sources, dict(table))
