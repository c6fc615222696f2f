"""What a kernel costs, from its graph: floating-point operations and bytes of memory traffic."""

from __future__ import annotations

from dataclasses import dataclass

from anneal.uop import ALU, Op, UOp, toposort

__all__ = ["KernelInfo", "kernel_info"]

_FREE = frozenset((Op.CAST, Op.BITCAST, Op.WHERE, Op.LT, Op.EQ, Op.NE, Op.NOT, Op.AND, Op.OR, Op.XOR))


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """Estimates for one run: float operations, bytes read and bytes written.

    An operation counts once for every value of the ranges it stands under; a buffer counts once however often it is
    read, and no more than the kernel can touch of it.
    """

    flops: int
    bytes_read: int
    bytes_written: int


def kernel_info(sink: UOp) -> KernelInfo:
    """Estimates for the kernel graph `sink`. A range whose extent depends on data counts with its upper bound, or 1."""
    order = toposort((sink,))
    extents = {u.arg[0]: _extent(u) for u in order if u.op is Op.RANGE}
    counts: dict[int, int] = {}

    def times(mask: int) -> int:
        found = counts.get(mask)
        if found is None:
            found = 1
            for ident, extent in extents.items():
                if mask >> ident & 1:
                    found *= extent
            counts[mask] = found
        return found

    flops = 0
    touched: dict[tuple[UOp, bool], int] = {}
    for u in order:
        if u.op in ALU and u.dtype.is_float and u.op not in _FREE:
            flops += times(u.ranges)
        elif u.op is Op.REDUCE and u.dtype.is_float:
            flops += times(u.src[0].ranges)
        elif u.op is Op.LOAD or u.op is Op.STORE:
            key = (u.src[0], u.op is Op.STORE)
            touched[key] = touched.get(key, 0) + times(u.ranges)
    read = written = 0
    for (param, stored), count in touched.items():
        size = min(count, param.arg[1][0]) * param.dtype.itemsize
        if stored:
            written += size
        else:
            read += size
    return KernelInfo(flops, read, written)


def _extent(r: UOp) -> int:
    e = r.src[0]
    if e.op is Op.CONST:
        return int(e.arg)
    return int(e.vmax) if e.vmax is not None and e.vmax < 2**31 - 1 else 1
