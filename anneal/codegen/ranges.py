"""Facts of RANGE nodes that every pass asks for: their kinds, extents and the mask of their ids."""

from __future__ import annotations

from collections.abc import Iterable

from anneal.uop import UOp

SERIAL = frozenset(("reduce", "written"))  # kinds of ranges that are loops in the linear program


def extent(r: UOp) -> int:
    """The number of values of a range of constant extent."""
    return int(r.src[0].arg)


def mask_of(ranges: Iterable[UOp]) -> int:
    """The ids of `ranges` as bits, as `UOp.ranges` has them."""
    mask = 0
    for r in ranges:
        mask |= 1 << r.arg[0]
    return mask
