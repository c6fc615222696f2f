"""Horizontal fusion: kernels that do not need each other share a launch, over the same ranges or each with its own."""

from __future__ import annotations

from dataclasses import replace

from anneal.schedule.cost_model import CostModel
from anneal.schedule.fusion.groups import Group, Groups, depends, extent
from anneal.uop import Op, UOp

_NEAR = 4  # levels that a sum over columns may wait for another; four times that if it reads few elements:
_SMALL = 1 << 20
_PRODUCTS = 4  # with one vector in one kernel


def siblings(at: Groups, groups: list[Group], overwriting: set[Group]) -> list[Group]:
    """`groups` with those fused that are over the same ranges, but for those of `overwriting`.

    Groups of one level are fused if they read the same large value. Sums over columns are fused if they are a few
    levels from each other, since each alone leaves most of the device idle: they have little in common, so that each
    becomes a member of the kernel, unless it reads the same large value as another one.
    """
    gone: set[Group] = set()
    open_: dict[tuple[object, ...], list[Group]] = {}
    for g in sorted(groups, key=lambda g: g.level):
        if g in overwriting or (g.opaque and not (g.vector and g.roots[0].op is Op.UPDATE)):
            continue
        key = (g.roots[0].dtype, g.size if g.vector else g.roots[0].shape, g.reduces)
        near = _NEAR if extent(g) > _SMALL else 4 * _NEAR
        waiting = open_[key] = [h for h in open_.get(key, ()) if abs(g.level - h.level) <= near]
        for h in waiting:
            together = [*{**h.inputs, **g.inputs}, *h.roots, *g.roots]
            if at.cost_model.bindings(together) > at.cost_model.member_buffers:
                continue
            if beside(at, g, h):
                gone.add(g)
                break
        else:
            waiting.append(g)
    return [g for g in groups if g not in gone]


def beside(at: Groups, g: Group, h: Group) -> bool:
    """Let h take in g, which is over the same ranges, if that is right."""
    level = max(g.level, h.level)
    readers = [r for root in (*g.roots, *h.roots) for r in at.readers.get(root, ()) if r.level <= level]
    if g.level != h.level or h.members or not _shares(g, h):
        if not (at.cost_model.horizontal_fusion and g.sums_columns and h.sums_columns):
            return False
        if any(r is g or r is h or depends(g, r, at.owner) or depends(h, r, at.owner) for r in readers):
            return False
    body = next((p for p in h.members or (h,) if _shares(g, p)), None)
    if body is None:
        h.members = (*(h.members or (replace(h),)), g)
    elif body is not h:
        body.roots, body.inputs = body.roots + g.roots, {**body.inputs, **g.inputs}
    # a kernel stores its roots member by member: a root that joins one of the first members is not the last one
    h.roots = [r for p in h.members for r in p.roots] if h.members else h.roots + g.roots
    h.inputs, h.level = {**h.inputs, **g.inputs}, level
    for root in g.roots:
        at.owner[root] = h
    for i in g.inputs:
        at.readers[i].pop(g, None)
        at.readers[i][h] = None
    for r in readers:
        at.put_behind(r, level)
    return True


def _shares(g: Group, h: Group) -> bool:
    """True if g and h read a large value in common, or multiply matrices with one vector."""
    if g.vector and h.vector and len(g.roots) + len(h.roots) <= _PRODUCTS:
        return any(i in h.inputs for i in g.inputs)
    return any(i in h.inputs and i.size * 2 > extent(g) for i in g.inputs)


def shared_launches(
    groups: list[Group], owner: dict[UOp, Group], overwriting: set[Group], cost_model: CostModel
) -> list[Group]:
    """`groups` with the elementwise ones of a level as members of one kernel, as far as the buffer limit allows; not
    those of `overwriting`."""
    out: list[Group] = []
    open_: dict[int, Group] = {}
    for g in groups:
        written = g.roots[0].op is Op.UPDATE  # a part of memory: an elementwise store like others
        if g.reduces or g in overwriting or (g.opaque and not g.concatenates and not written):
            out.append(g)
            continue
        h = open_.get(g.level)
        inputs = {**h.inputs, **g.inputs} if h is not None else g.inputs
        if h is None or cost_model.bindings([*inputs, *h.roots, *g.roots]) > cost_model.max_buffers:
            h = open_[g.level] = Group([], level=g.level)
            inputs = g.inputs
            out.append(h)
        h.members, h.inputs, h.roots = (*h.members, g), inputs, h.roots + g.roots
        for root in g.roots:
            owner[root] = h
    return out
