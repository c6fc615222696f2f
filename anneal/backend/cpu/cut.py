"""Cut a kernel's loops where its gates change, so that each piece has none.

A concatenation arrives as a sum of gated loads, of which one is open at a time:

    load(a, i, i < 4) + load(b, i - 4, 3 < i)    ->    [0, 4): load(a, i)    [4, n): load(b, i - 4)

Done only for loops without reduces, where gates bound single loop ranges.
"""

from __future__ import annotations

import itertools
import math

from anneal.backend.cpu.index import NeedsSplit, NotLinear, Slots, box_of
from anneal.uop import Op, UOp, const, dtypes, toposort

__all__ = ["pieces"]

# Fewer elements than this are not worth a loop per piece, nor are more pieces than that.
LEAST = 4096
MOST = 8


def pieces(sink: UOp) -> list[UOp]:
    """Kernels that together do what `sink` does, each over a part of its loops; `[sink]` if there is nothing to cut."""
    order = toposort((sink,))
    gates = {u.src[2] for u in order if u.op is Op.LOAD and len(u.src) > 2}
    if not gates or any(u.op is Op.REDUCE for u in order):
        return [sink]
    ranges = [u for u in order if u.op is Op.RANGE]
    extents = {u: int(u.src[0].arg) for u in ranges}
    if math.prod(extents.values()) < LEAST:
        return [sink]
    slots = Slots()
    for u in ranges:
        slots.add(u.arg[0], extents[u])
    cuts: dict[UOp, set[int]] = {}
    for gate in gates:
        try:
            box = box_of(gate, slots)
        except (NeedsSplit, NotLinear):
            continue
        if box is None or any(list(b.slots.values()) != [1] for b in box):
            continue
        for b in box:
            u = ranges[next(iter(b.slots))]
            cuts.setdefault(u, set()).update(at for at in (b.low, b.high) if 0 < at < extents[u])
    cuts = {u: at for u, at in cuts.items() if at}
    if not cuts or math.prod(len(at) + 1 for at in cuts.values()) > MOST:
        return [sink]
    parts = []
    for u, at in cuts.items():
        ends = [0, *sorted(at), extents[u]]
        parts.append([(u, lo, hi) for lo, hi in itertools.pairwise(ends)])
    return [_restricted(order, choice) for choice in itertools.product(*parts)]


def _restricted(order: list[UOp], choice: tuple[tuple[UOp, int, int], ...]) -> UOp:
    """The kernel with each chosen range running from lo to hi only."""
    new: dict[UOp, UOp] = {}
    for u, lo, hi in choice:
        part = UOp(Op.RANGE, u.dtype, (const(dtypes.int32, hi - lo),), u.arg)
        new[u] = part + lo if hi - lo > 1 else const(u.dtype, lo)
    for u in order:
        if u in new:
            continue
        src = tuple([new[s] for s in u.src])
        if u.op is Op.LOAD and len(src) > 2 and src[2].is_const:
            new[u] = UOp(Op.LOAD, u.dtype, src[:2]) if src[2].arg else const(u.dtype, 0)
        elif u.op is Op.WHERE and src[0].is_const:
            new[u] = src[1] if src[0].arg else src[2]
        elif u.op is Op.ADD and any(s.is_const and s.arg == 0 for s in src):
            new[u] = src[1] if src[0].is_const and src[0].arg == 0 else src[0]
        else:
            new[u] = u.replace(src=src) if u.src else u
    return new[order[-1]]
