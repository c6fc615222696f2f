"""Values computed again: the forward pass need not keep every value for the backward pass.

    h = x @ w;  a = gelu(h);  y = a @ v     backward:  dv = a.T @ dy,  dh = slope(h) * (dy @ v.T)

`h` is kept for the slope, so `a` need not be: it goes once `y` is there, and is made of `h` again before `dv`. That is
a launch more, and the time to move `a` and what it is made of once, for its memory all the way between.

Only programs that keep more than `SCARCE` bytes do so, and for no more than a hundredth of their own time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from anneal.schedule.fusion import COST, LEAVES, CostModel, FusionGroup, cone, memory_bytes
from anneal.schedule.records import Schedule
from anneal.uop import MOVEMENT, Op, UOp
from anneal.uop.sizes import count

SCARCE = 64 << 30
_LARGE = 16 << 20
_SMALL = 16  # what is so many times smaller may stay longer for it
_PRICE = 64  # of an element: up to this it takes no longer than to write it
_OPERATIONS_OF_BYTE = 12  # that a GPU does while it moves a byte
_SHARE = 100  # of the program's time


def run(s: Schedule) -> Schedule:
    if s.cost_model.concurrent:
        return replace(s, groups=with_values_again(s.groups, s.materialised, s.sink.src, s.cost_model))
    return s


def is_scarce(materialised: Collection[UOp]) -> bool:
    """True if a program with these nodes in memory may need so much that it should rather compute some of it again."""
    return sum(n for u in materialised if _is_forward(u) and (n := memory_bytes(u)) >= _LARGE) >= SCARCE


def with_values_again(
    groups: list[FusionGroup], materialised: Collection[UOp], outputs: Collection[UOp], cost_model: CostModel
) -> list[FusionGroup]:
    """`groups`, producers first, with those that compute values again before the first of their late readers.

    Late readers are kernels of the backward pass and of the update. A value is computed again if it is an elementwise
    function of what those keep anyway.
    """
    if not is_scarce(materialised):
        return groups
    readers: dict[UOp, list[FusionGroup]] = {}
    for g in groups:
        for i in g.inputs:
            readers.setdefault(i, []).append(g)
    kept: dict[UOp, list[FusionGroup]] = {}  # values of the forward pass, with their late readers
    for g in groups:
        for u in g.roots if _is_forward(g.roots[-1]) else ():
            late = [r for r in readers.get(u, ()) if not _is_forward(r.roots[-1])]
            if late and u not in outputs:
                kept[u] = late
    if sum(map(memory_bytes, kept)) < SCARCE:
        return groups
    chosen = _chosen(groups, kept, materialised, cost_model)
    before: dict[FusionGroup, list[FusionGroup]] = {}
    for u, g in chosen.items():
        for r in kept[u]:
            r.second |= {u}
        first = next(r for r in groups if u in r.second)
        before.setdefault(first, []).append(g)
    return [g for r in groups for g in (*before.get(r, ()), r)]


def _chosen(
    groups: list[FusionGroup], kept: dict[UOp, list[FusionGroup]], materialised: Collection[UOp], cost_model: CostModel
) -> dict[UOp, FusionGroup]:
    """Values to compute again, each with the kernel that does; the cheapest for its size first."""
    changed = {x for u in materialised if u.op is Op.UPDATE for x in (u, u.src[0])}
    found: list[tuple[float, int, UOp, FusionGroup]] = []
    for n, u in enumerate(kept):
        if memory_bytes(u) < _LARGE or u in changed:
            continue
        g = _recomputed(u, materialised)
        if (
            g is not None
            and cost_model.bindings([u, *g.inputs]) <= cost_model.member_buffers
            and changed.isdisjoint(g.inputs)
        ):
            found.append((_moved(g) / memory_bytes(u), n, u, g))
    left = sum(max(_moved(g), _operations(g) // _OPERATIONS_OF_BYTE) for g in groups) // _SHARE
    needed: set[UOp] = set()
    chosen: dict[UOp, FusionGroup] = {}
    for _, _, u, g in sorted(found, key=lambda f: f[:2]):
        large = [i for i in g.inputs if i.op not in LEAVES and memory_bytes(i) * _SMALL > memory_bytes(u)]
        if u in needed or _moved(g) > left or any(i not in kept or i in chosen for i in large):
            continue
        left -= _moved(g)
        needed.update(g.inputs)
        chosen[u] = g
    return chosen


def _recomputed(u: UOp, materialised: Collection[UOp]) -> FusionGroup | None:
    """The kernel that makes `u` of other values in memory, if it is elementwise and cheap."""
    inside, inputs, _ = cone(u, materialised)
    if not inputs or any(x.op not in COST and x.op not in MOVEMENT and x.op is not Op.CONTIGUOUS for x in inside):
        return None
    price = sum([COST.get(x.op, 0) for x in inside])
    return FusionGroup([u], inputs, size=u.size, again=True) if price <= _PRICE else None


def _is_forward(u: UOp) -> bool:
    return u.provenance[0] == "forward"


def _moved(g: FusionGroup) -> int:
    """The bytes that a group reads and writes."""
    return sum(map(memory_bytes, (*g.roots, *g.inputs)))


def _operations(g: FusionGroup) -> int:
    return 2 * max([count(s) for s in g.reduces], default=0)
