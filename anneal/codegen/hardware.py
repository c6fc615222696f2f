"""Hardware indices: ranges of workgroups and threads become digits of the mixed-radix indices SPECIAL "wg" and "lid".

Afterwards the only ranges are loops, those that are yet to be written out, lanes of vectors, and the group ranges in
the sources of the reduces that threads share.
"""

from __future__ import annotations

import itertools
import math

from anneal.codegen.ranges import ZERO, extent, mask_of, only_if, serial_of, unused, with_sources
from anneal.codegen.stage import fill
from anneal.errors import CompilerError
from anneal.frozen import frozen
from anneal.rewrite import rebuild, unflatten
from anneal.uop import Known, Nodes, Op, Src, UOp, dtypes, of_op, ranged, toposort
from anneal.uop.sizes import most, product, size

_I32 = dtypes.int32


@frozen
class LaunchConfig:
    """Workgroups, threads of each, and how many neighbouring threads, how far apart, share a reduce (1 if none do).

    `needed`: how many of the workgroups have work, where that depends on variables; then `workgroups` is the most.
    """

    workgroups: int
    threads: int
    group: int = 1
    group_stride: int = 1
    needed: UOp | None = None


def grid(workgroups: int, limit: int = 65535) -> tuple[int, int, int]:
    """`workgroups` as a grid with no side over `limit`, with as few spare workgroups as a plain fold allows.

    >>> grid(1000)
    (1000, 1, 1)
    >>> grid(100_000)
    (50000, 2, 1)
    """
    x, y, z = max(1, workgroups), 1, 1
    if x > limit:
        y = -(-x // limit)
        x = -(-x // y)
    if y > limit:
        z = -(-y // limit)
        y = -(-y // z)
    if z > limit:
        raise CompilerError(f"a launch of {workgroups} workgroups does not fit a grid of side {limit}", stage="grid")
    return x, y, z


def to_hardware(sink: UOp) -> tuple[UOp, LaunchConfig]:
    """The kernel whose workgroup, local and group ranges are digits of hardware indices and whose tiles are filled; and
    its launch."""
    ranges = sorted(of_op(toposort(sink), Op.RANGE), key=lambda r: r.arg[0])
    by_kind: dict[str, list[UOp]] = {}
    for r in ranges:
        by_kind.setdefault(r.arg[1], []).append(r)
    table: Known = {}
    outer = by_kind.get("workgroup", [])[::-1]
    workgroups = _mixed_radix("wg", outer, table)
    extents = product([size(r.src[0]) for r in outer])
    needed = extents if isinstance(extents, UOp) else None
    groups = by_kind.get("group", [])
    threads = [r for r in ranges if r.arg[1] == "local" or r in groups[:1]]
    count = _mixed_radix("lid", threads, table)
    launch = LaunchConfig(workgroups, count, needed=needed)
    first = None
    if groups:
        stride = math.prod(extent(r) for r in threads[: threads.index(groups[0])])
        launch = LaunchConfig(workgroups, count, extent(groups[0]), stride, needed)
        for g in groups[1:]:
            table[g] = table[groups[0]]
        first = table[groups[0]].eq(0)
    lanes = _one_of_each(by_kind.get("vector", ()), table, unused(ranges))
    if not table:
        return sink, launch
    serial = serial_of(ranges)
    lid = UOp(Op.SPECIAL, _I32, (), ("lid", count)) if count > 1 else ZERO
    tiles = itertools.count()

    def visit(u: UOp, src: Src) -> UOp:
        if u.op is Op.REDUCE:  # a group range stays among its sources: it says how many threads share the reduce
            kept = [s if s.arg[1] == "group" else n for s, n in zip(u.src[1:], src[1:], strict=True)]
            return u.replace(src=(src[0], *kept))
        if u.op is Op.BUFFERIZE and u.arg[0] == "workgroup":
            return fill(u, src[0], lid, count, next(tiles), lanes)
        if u.op is Op.STORE and first is not None and not u.ranges & mask_of(groups):
            # a value that the threads of a group have in common is stored by the first of them
            return only_if((first,), with_sources(u, src, serial))
        return with_sources(u, src, serial)

    return rebuild(sink, visit, table), launch


def _one_of_each(vectors: Nodes, table: Known, fresh: int) -> UOp:
    """A single range for all vectors of one length, so that equal loads are one node; returns that of four lanes."""
    kept: dict[int, UOp] = {}
    for v in vectors:
        table[v] = kept.setdefault(extent(v), v)
    return kept.get(4) or ranged(4, (fresh, "vector"))


def _mixed_radix(name: str, ranges: Nodes, table: Known) -> int:
    """Make `ranges`, fastest first, the digits of one mixed-radix hardware index; returns the index's extent."""
    sizes = [size(r.src[0]) for r in ranges]
    total = math.prod(map(most, sizes))
    whole = UOp(Op.SPECIAL, _I32, (), (name, total)) if total > 1 else ZERO
    table.update(zip(ranges[::-1], unflatten(whole, sizes[::-1]), strict=True))
    return total
