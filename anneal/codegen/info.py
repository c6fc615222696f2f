"""A kernel's work and costs, from its graph: the ops fused in it, float operations, bytes of memory traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from anneal.codegen.opts import Opt
from anneal.codegen.ranges import mask_of
from anneal.uop import ALU, Op, UOp, toposort

_FREE = frozenset((Op.CAST, Op.BITCAST, Op.WHERE, Op.LT, Op.EQ, Op.NE, Op.NOT, Op.AND, Op.OR, Op.XOR))
_SILENT = frozenset((Op.CAST, Op.BITCAST, Op.WHERE))  # not worth a word in a listing


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


def fused_ops(sink: UOp) -> list[str]:
    """The ops fused into the kernel, sources first: "matmul" or a reduction's name, gathers, elementwise ops."""
    counts: Counter[str] = Counter()
    reads: dict[UOp, bool] = {}  # whether a value depends on memory
    order = toposort((sink,))
    products = {u.src[0] for u in order if _is_product(u)}
    for u in order:
        reads[u] = u.op is Op.LOAD or any(reads[x] for x in u.src)
        if u in products:
            continue
        if u.op is Op.REDUCE:
            counts["matmul" if u.src[0] in products else "sum" if u.arg is Op.ADD else u.arg.name.lower()] += 1
        elif u.op is Op.LOAD and reads[u.src[1]]:
            counts["gather"] += 1
        elif u.op is Op.ARGSORT:
            counts["argsort"] += 1
        elif _is_arithmetic(u):
            counts[u.op.name.lower()] += 1
    return [name if n == 1 else f"{name} x{n}" for name, n in counts.items()] or ["copy"]


def _is_arithmetic(u: UOp) -> bool:
    return u.op in ALU and u.op not in _SILENT and (u.dtype.is_float or (bool(u.src) and u.src[0].dtype.is_float))


def _is_product(u: UOp) -> bool:
    """True if this is a sum of products of two operands that both run along it, each over loops of its own."""
    if u.op is not Op.REDUCE or u.arg is not Op.ADD or u.src[0].op is not Op.MUL:
        return False
    a, b = u.src[0].src
    along = mask_of(u.src[1:])
    return bool(a.ranges & along and b.ranges & along and a.ranges != b.ranges)


def opts_text(opts: Iterable[Opt]) -> str:
    """Opts on one line.

    >>> opts_text([Opt("LOCAL", 0, 16), Opt("UPCAST", 0, 4)])
    'LOCAL(0,16) UPCAST(0,4)'
    """
    return " ".join(f"{o.kind}({o.axis},{o.amount})" for o in opts)
