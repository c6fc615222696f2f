"""Loop coalescing: neighbouring ranges become one wherever every index uses them as one."""

from __future__ import annotations

import math

from anneal.codegen.ranges import ZERO, extent, form, merged, of_kind, with_sources
from anneal.rewrite import linear, rebuild
from anneal.schedule import fusible_reduces
from anneal.uop import Known, Nodes, Numbers, Op, Src, UOp, dtypes, of_op, ranged, toposort

_I32 = dtypes.int32


def _roots(order: Nodes) -> Nodes:
    """The int32 expressions over ranges that something other than affine arithmetic uses."""
    found: dict[UOp, None] = {}
    for u in order:
        if linear(u) or u.op is Op.RANGE:
            continue
        for s in u.src[:1] if u.op is Op.REDUCE else u.src:
            if s.ranges and s.dtype is _I32 and (s.op is Op.RANGE or linear(s)):
                found[s] = None
    return list(found)


def coalesce(sink: UOp) -> UOp:
    """Merge neighbouring ranges wherever every index uses them as one: `i*N + j` over (M, N) is `f` over M*N.

    Only ranges of constant extent take part. Of the loop ranges all neighbours are candidates, of the reduce ranges
    those that stand side by side in every reduce that has one of them.
    """
    order = toposort(sink)
    ranges = sorted([u for u in order if u.op is Op.RANGE and u.src[0].is_const], key=lambda r: r.arg[0])
    if len(ranges) < 2:
        return sink
    forms = [form(r)[0] for r in _roots(order)]
    forms += [form(r.src[0])[0] for r in order if r.op is Op.RANGE and not r.src[0].is_const]
    users: dict[UOp, list[Numbers]] = {r: [] for r in ranges}
    for f in forms:
        for t in f:
            if t in users:
                users[t].append(f)
    reduces = dict.fromkeys([u.src[1:] for u in order if u.op is Op.REDUCE])
    parent, extents = _coalesced(ranges, list(reduces), users)
    if not parent:
        return sink
    table = dict.fromkeys(parent, ZERO)
    for b in set(parent.values()):
        if b not in parent:
            table[b] = ranged(extents[b], b.arg)
    return _merged(sink, table, parent)


def _coalesced(ranges: Nodes, reduces: list[Src], users: dict[UOp, list[Numbers]]) -> tuple[Known, Numbers]:
    """A map from each merged range to the one that it is merged into; and the extents of the ranges afterwards.

    `users` are the affine forms that each range has a term of.
    """
    loops = of_kind(ranges, "loop")
    pairs = list(zip(loops, loops[1:]))
    for group in reduces:
        pairs += zip(group, group[1:])
    parent: Known = {}
    extents = {r: extent(r) for r in ranges}
    # Innermost pairs first: after (b, c) became c with extent b*c, (a, b) asks about (a, c).
    for a, b in reversed(pairs):
        if a not in extents or b not in extents or a in parent or a is b or not users[a]:
            continue
        while b in parent:
            b = parent[b]
        if a.arg[1] != b.arg[1] or (a.arg[1] == "reduce" and not _always_adjacent(a, b, reduces, parent)):
            continue
        n = extents[b]
        if all(f.get(a, 0) == n * f.get(b, 0) for f in (*users[a], *users[b])):
            parent[a] = b
            extents[b] = n * extents[a]
    return parent, extents


def _always_adjacent(a: UOp, b: UOp, reduces: list[Src], parent: Known) -> bool:
    for group in reduces:
        live = [r for r in group if r not in parent]
        if (a in live) != (b in live):
            return False
        if a in live and live.index(b) - live.index(a) != 1:
            return False
    return True


def _merged(sink: UOp, table: Known, parent: Known) -> UOp:
    """The kernel with the ranges of `table` replaced; those of `parent` are gone from its reduces."""

    def visit(u: UOp, src: Src) -> UOp:
        if u.op is not Op.REDUCE:
            return with_sources(u, src)
        return u.replace(src=(src[0], *[n for r, n in zip(u.src[1:], src[1:], strict=True) if r not in parent]))

    return rebuild(sink, visit, table)


# ---------------------------------------------------------------------------------------------------------------------
# FUSE_REDUCE: reduces fused into the loop over the values made from them.
#
# A softmax reduces its rows over a range of their own, `k`, and stores over the loop range `j`; both count the same
# elements. Once the reduces run over `j` itself, the pieces of `j` (threads, registers, vectors) are pieces of all of
# them: a thread keeps its part of the row in registers, since the load for the reduce and the load for the store are
# one node.


def merge_rows(sink: UOp) -> UOp:
    """The kernel with one range for a row that several count, of its loops and of each reduce: only then can
    they be fused.

    A group norm's rows are (channels of a group, height, width); what each channel has of its own, a weight, keeps the
    ranges over them from being merged by themselves.
    """
    order = toposort(sink)
    reduces = of_op(order, Op.REDUCE)
    ranges = of_op(order, Op.RANGE)
    if not reduces or any(not r.src[0].is_const for r in ranges):
        return sink
    lengths = {math.prod([extent(r) for r in u.src[1:]]) for u in reduces}
    if len(lengths) > 1:
        return sink
    row: Src = ()
    for r in sorted(of_kind(ranges, "loop"), key=lambda r: r.arg[0], reverse=True):
        row = (r, *row)
        if math.prod([extent(r) for r in row]) in lengths:
            break
    else:
        return sink
    groups = {row, *[u.src[1:] for u in reduces]}
    if all(len(g) == 1 for g in groups) or len({r for g in groups for r in g}) < sum(map(len, groups)):
        return sink
    one, wholes = merged(sink, groups)
    joined = fusible_reduces(of_op(toposort(one), Op.REDUCE), wholes[row])
    return one if joined.issuperset(wholes[u.src[1:]] for u in reduces) else sink
