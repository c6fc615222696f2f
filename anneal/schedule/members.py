"""Horizontally fused kernels: members share a launch but no loop range, and each has workgroups of its own."""

from __future__ import annotations

from anneal.rewrite import over, rebuild
from anneal.uop import Op, UOp, toposort


def members_of(sink: UOp) -> list[UOp]:
    """The members of a kernel in the order of their first stores; `[sink]` if it is not horizontally fused."""
    groups: list[tuple[int, list[UOp]]] = []  # loop ranges, stores
    for store in sink.src:
        ranges, stores = store.ranges, [store]
        rest = []
        for r, s in groups:
            if r & ranges or r == ranges:
                ranges, stores = r | ranges, s + stores
            else:
                rest.append((r, s))
        groups = [*rest, (ranges, stores)]
    if len(groups) == 1:
        return [sink]
    first = {s: n for n, s in enumerate(sink.src)}
    groups.sort(key=lambda g: first[g[1][0]])
    return [UOp(Op.SINK, sink.dtype, tuple(stores), sink.arg) for _, stores in groups]


def standalone(member: UOp) -> tuple[UOp, list[int]]:
    """A member as a kernel of its own, and the slots that its memory had: equal members become the same kernel.

    Memory is numbered from 0, outputs first; ranges too, loops first.
    """
    order = toposort((member,))
    written = list(dict.fromkeys(s.src[0].arg[0] for s in member.src))
    read = [u.arg[0] for u in order if u.op is Op.PARAM and u.arg[0] not in written]
    slots = [*written, *dict.fromkeys(read)]
    number = {slot: n for n, slot in enumerate(slots)}
    ranges = sorted([u for u in order if u.op is Op.RANGE], key=lambda r: (r.arg[1] != "loop", r.arg[0]))
    ids = {r: n for n, r in enumerate(ranges)}

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u.op is Op.PARAM:
            return UOp(Op.PARAM, u.dtype, (), (number[u.arg[0]], u.arg[1]))
        if u.op is Op.RANGE:
            return UOp(Op.RANGE, u.dtype, src, (ids[u], u.arg[1]))
        return over(u, src)

    return rebuild(member, visit, order=order), slots
