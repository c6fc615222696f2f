"""Loop coalescing: neighbouring ranges become one wherever every index uses them as one."""

from __future__ import annotations

from anneal.codegen.affine import form, is_linear
from anneal.codegen.ranges import extent
from anneal.codegen.rebuilding import with_sources
from anneal.rewrite import rebuild
from anneal.uop import Op, UOp, const, dtypes, toposort

_I32 = dtypes.int32


def _roots(order: list[UOp]) -> list[UOp]:
    """The int32 expressions over ranges that something other than affine arithmetic uses."""
    found: dict[UOp, None] = {}
    for u in order:
        if is_linear(u) or u.op is Op.RANGE:
            continue
        sources = u.src[:1] if u.op is Op.REDUCE else u.src
        for s in sources:
            if s.ranges and s.dtype is _I32 and (s.op is Op.RANGE or is_linear(s)):
                found[s] = None
    return list(found)


def coalesce(sink: UOp) -> UOp:
    """Merge neighbouring ranges wherever every index uses them as one: `i*N + j` over (M, N) is `f` over M*N.

    Only ranges of constant extent take part. Of the loop ranges all neighbours are candidates, of the reduce ranges
    those that stand side by side in every reduce that has one of them.
    """
    order = toposort((sink,))
    ranges = sorted([u for u in order if u.op is Op.RANGE and u.src[0].op is Op.CONST], key=lambda r: r.arg[0])
    if len(ranges) < 2:
        return sink
    forms = [form(r)[0] for r in _roots(order)]
    forms += [form(r.src[0])[0] for r in order if r.op is Op.RANGE and r.src[0].op is not Op.CONST]
    users: dict[UOp, list[dict[UOp, int]]] = {r: [] for r in ranges}
    for f in forms:
        for t in f:
            if t in users:
                users[t].append(f)
    reduces = dict.fromkeys([u.src[1:] for u in order if u.op is Op.REDUCE])
    parent, extents = _coalesced(ranges, list(reduces), users)
    if not parent:
        return sink
    table: dict[UOp, UOp] = {a: const(_I32, 0) for a in parent}
    for b in set(parent.values()):
        if b not in parent:
            table[b] = UOp(Op.RANGE, _I32, (const(_I32, extents[b]),), b.arg)
    return _merged(sink, table, parent)


def _coalesced(
    ranges: list[UOp], reduces: list[tuple[UOp, ...]], users: dict[UOp, list[dict[UOp, int]]]
) -> tuple[dict[UOp, UOp], dict[UOp, int]]:
    """A map from each merged range to the one that it is merged into; and the extents of the ranges afterwards.

    `users` are the affine forms that each range has a term of.
    """
    loops = [r for r in ranges if r.arg[1] == "loop"]
    pairs = list(zip(loops, loops[1:], strict=False))
    for group in reduces:
        pairs += zip(group, group[1:], strict=False)
    parent: dict[UOp, UOp] = {}
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


def _always_adjacent(a: UOp, b: UOp, reduces: list[tuple[UOp, ...]], parent: dict[UOp, UOp]) -> bool:
    for group in reduces:
        live = [r for r in group if r not in parent]
        if (a in live) != (b in live):
            return False
        if a in live and live.index(b) - live.index(a) != 1:
            return False
    return True


def _merged(sink: UOp, table: dict[UOp, UOp], parent: dict[UOp, UOp]) -> UOp:
    """The kernel with the ranges of `table` replaced; those of `parent` are gone from its reduces."""

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u.op is not Op.REDUCE:
            return with_sources(u, src)
        ranges = [n for r, n in zip(u.src[1:], src[1:], strict=True) if r not in parent]
        return UOp(Op.REDUCE, u.dtype, (src[0], *ranges), u.arg, u.tag)

    return rebuild(sink, visit, table)
