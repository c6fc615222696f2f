"""Kernel split: each group as a graph of its own over numbered parameters; equal pieces become the same object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anneal.rewrite import rebuild
from anneal.schedule.fusion import FusionGroup, Materialised
from anneal.schedule.masks import Mask, masks_of
from anneal.schedule.places import complete, places_of
from anneal.schedule.records import CONCATENATION, Cut, Schedule
from anneal.uop import Op, UOp, toposort


def run(s: Schedule) -> Schedule:
    masks = masks_of(s.order, s.materialised) if s.cost_model.masks else {}
    dead = {u: m for u, m in masks.items() if u not in s.sink.src}
    complete(s.places, s.materialised, s.order)
    return replace(s, cuts=[cut(g, s.materialised, masks, dead, s.places) for g in s.groups])


def cut(
    group: FusionGroup,
    materialised: Materialised,
    masks: Mapping[UOp, Mask],
    dead: Mapping[UOp, Mask],
    places: Mapping[UOp, int],
) -> Cut:
    """The group's own graph with numbered parameters for everything it reads, what those parameters are, and the
    places of what it computes.

    Masked parameters are read through their masks; values of `dead` are stored for such readers, without dead lanes.
    """
    roots = group.roots
    mine = set(roots)
    new: dict[UOp, UOp] = {}
    inputs: list[UOp] = []

    def outside(u: UOp) -> bool:
        if u in mine:
            return False
        if u in new:
            return True
        if u.op is Op.PARAM or u in materialised:
            if u not in new:
                param = UOp(Op.PARAM, u.dtype, (), (len(roots) + len(inputs), u.shape))
                new[u] = masks[u].on(param) if u in masks else param
                inputs.append(u)
            return True
        return False

    for n, r in enumerate(roots):
        if r.op is Op.UPDATE:
            new[r.src[0]] = UOp(Op.PARAM, r.dtype, (), (n, r.shape))
    order = [u for u in toposort(roots, until=outside) if u not in new]
    where = places_of(roots, order, places)
    rebuild(roots[-1], _cut, new, order)
    d = roots[0].dtype
    kept = {r: dead[r].on(new[r], dead=True) if r in dead else new[r] for r in roots}
    parts = [
        UOp(Op.SINK, d, tuple([kept[r] for r in g.roots]), CONCATENATION if g.concatenates else None)
        for g in group.members or (group,)
    ]
    return Cut(parts[0] if len(parts) == 1 else UOp(Op.SINK, d, tuple(parts)), tuple(inputs), group, where)


def _cut(u: UOp, src: tuple[UOp, ...]) -> UOp:
    if u.op is Op.CONTIGUOUS:
        return src[0]
    return u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag if u.op in (Op.CAST, Op.REDUCE_AXIS) else None)
