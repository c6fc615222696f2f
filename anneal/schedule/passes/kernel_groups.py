"""From nodes to kernels, in four passes: nodes that get memory are chosen, kernels join, some are to compute values
again, and the graph is cut. The decisions are those of `anneal/schedule/fusion`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from anneal.rewrite import rebuild

from anneal.schedule.fusion import (  # isort: skip
    COST, LEAVES, CostModel, FusionGroup, Joining, Materialised, as_late_as_possible, by_level, chained_over, cone,
    consumers_of, find_chains, group_of, join_chained, materialised_nodes, memory_bytes, shared_launches, siblings,
)  # fmt: skip
from anneal.schedule.masks import Mask, masks_of
from anneal.schedule.records import Cut, Schedule, complete, places_of
from anneal.uop import MOVEMENT, Numbers, Op, Src, UOp, toposort
from anneal.uop.sizes import count


def materialise(s: Schedule) -> Schedule:
    """Choose the nodes that get memory (`anneal/schedule/fusion/materialisation.py` decides)."""
    cost_model = s.cost_model.fit_to(s.order)
    consumers = consumers_of(s.order)
    materialised = materialised_nodes(s.order, s.sink.src, cost_model, consumers)
    chained = find_chains(s.order, s.sink.src, consumers, materialised, cost_model)
    return replace(s, consumers=consumers, cost_model=cost_model, materialised=materialised, chained=chained)


def group(s: Schedule) -> Schedule:
    """Join kernels that share ranges and inputs."""
    if s.cost_model.concurrent and is_scarce(s.materialised):
        # of a product itself more can be computed again than of what others make of it
        s = replace(s, cost_model=replace(s.cost_model, keeps_functions=False))
    return replace(s, groups=group_kernels(s))


def group_kernels(s: Schedule) -> list[FusionGroup]:
    """The kernels that compute the materialised nodes, producers first; nodes that no kernel need store leave these.

    A kernel group is the materialised nodes that one kernel computes together, decided before any kernel is lowered.

    Each node is a group of its own at first. Then, with levels (the longest path from an input) to keep cycles out:

    - vertical fusion (`anneal/schedule/fusion/joining.py`): a group joins the group that makes its input, if it reads
      that input only where it is made: elementwise work joins any kernel of its shape (an activation beside the product
      that feeds it, Adam's update behind the gradient), and work along rows joins a kernel of the same rows (a softmax,
      a norm with its statistics);
    - a group that makes a piece of a concatenation joins the kernel that stores the pieces, as a member of it;
    - horizontal fusion (`anneal/schedule/fusion/groups.py`): groups of one level with the same ranges join if they read
      a large value in common (a norm's two parameter gradients), and so do sums over columns that are near each other
      (gradients of biases and norms);
    - elementwise groups that are left on one level share a launch, each as a member of it.

    A node that has joined its only readers is not stored any more.

    A node of no elements has no kernel: joined to others, it could be the root by which their kernel is judged.
    """
    materialised, cost_model = s.materialised, s.cost_model
    groups = []
    owner = {}
    for u in s.order:
        if u in materialised and u.size:
            g = owner[u] = group_of(u, materialised, cost_model)
            if s.chained:
                g.chained = chained_over(cone(u, materialised)[0], s.chained)
                g.opaque = g.opaque or g.chained is not None
            groups.append(g)
    groups = by_level(groups, owner)
    if s.chained:
        groups = by_level(join_chained(groups, owner), owner)
    of = (owner, materialised, s.sink.src, cost_model, s.consumers)
    groups = by_level(Joining(groups, *of).run(), owner)
    # Once more with every group as late as its readers let it be: an update for the end hinders no join.
    as_late_as_possible(groups, owner)
    joining = Joining(groups, *of)
    groups = by_level(joining.run(), owner)
    overwriting = set() if cost_model.keeps_inputs else _overwriting(groups, s.sink.src)
    groups = by_level(siblings(joining, groups, overwriting), owner)
    joining.groups = groups
    groups = by_level(joining.take_placed(), owner)
    return by_level(shared_launches(groups, owner, overwriting, cost_model), owner)


def _overwriting(groups: list[FusionGroup], outputs: Src) -> set[FusionGroup]:
    """Groups of outputs that might overwrite memory which others read later (a counter): joined to no other group, they
    can wait for those readers."""
    wanted = set(outputs)
    last: Numbers = {}
    for g in groups:
        last.update({i: max(g.level, last.get(i, 0)) for i in g.inputs if i.op in LEAVES})
    return {
        g
        for g in groups
        if not g.reduces
        and any(r in wanted and r.size == i.size and last.get(i, 0) > g.level for r in g.roots for i in g.inputs)
    }


# -- values computed again: the forward pass need not keep every value for the backward pass ---------------------------
#     h = x @ w;  a = gelu(h);  y = a @ v     backward:  dv = a.T @ dy,  dh = slope(h) * (dy @ v.T)
#
# `h` is kept for the slope, so `a` need not be: it goes once `y` is there, and is made of `h` again before `dv`. That
# is a launch more, and the time to move `a` and what it is made of once, for its memory all the way between.
#
# Only programs that keep more than `SCARCE` bytes do so, and for no more than a hundredth of their own time.

SCARCE = 64 << 30
_LARGE = 16 << 20
_SMALL = 16  # what is so many times smaller may stay longer for it
_PRICE = 64  # of an element: up to this it takes no longer than to write it
_OPERATIONS_OF_BYTE = 12  # that a GPU does while it moves a byte
_SHARE = 100  # of the program's time


def is_scarce(materialised: Collection[UOp]) -> bool:
    """True if a program with these nodes in memory may need so much that it should rather compute some of it again."""
    return sum(n for u in materialised if _is_forward(u) and (n := memory_bytes(u)) >= _LARGE) >= SCARCE


def compute_again(s: Schedule) -> Schedule:
    """Have kernels compute values a second time, before the first of their late readers, where memory is scarce.

    Late readers are kernels of the backward pass and of the update. A value is computed again if it is an elementwise
    function of what those keep anyway.
    """
    if not s.cost_model.concurrent or not is_scarce(s.materialised):
        return s
    groups = s.groups
    late: dict[UOp, list[FusionGroup]] = {}
    for g in groups:
        for i in () if _is_forward(g.roots[-1]) else g.inputs:
            late.setdefault(i, []).append(g)
    forward = [u for g in groups if _is_forward(g.roots[-1]) for u in g.roots]
    kept = {u: late[u] for u in forward if u in late and u not in s.sink.src}
    if sum(map(memory_bytes, kept)) < SCARCE:
        return s
    before: dict[FusionGroup, list[FusionGroup]] = {}
    for u, g in _chosen(groups, kept, s.materialised, s.cost_model).items():
        for r in kept[u]:
            r.second |= {u}
        before.setdefault(next(r for r in groups if u in r.second), []).append(g)
    return replace(s, groups=[g for r in groups for g in (*before.get(r, ()), r)])


def _chosen(
    groups: list[FusionGroup], kept: dict[UOp, list[FusionGroup]], materialised: Collection[UOp], cost_model: CostModel
) -> dict[UOp, FusionGroup]:
    """Values to compute again, each with the kernel that does; the cheapest for its size first."""
    changed = {x for u in materialised if u.op is Op.UPDATE for x in (u, u.src[0])}
    found = []
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
    operations = (2 * max([count(s) for s in g.reduces], default=0) for g in groups)
    left = sum(max(_moved(g), n // _OPERATIONS_OF_BYTE) for g, n in zip(groups, operations)) // _SHARE
    needed: set[UOp] = set()
    chosen = {}
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


# -- the cut -----------------------------------------------------------------------------------------------------------


def split(s: Schedule) -> Schedule:
    """Cut the graph: each group becomes one of its own over numbered parameters; equal pieces are the same object."""
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
    new = {}
    inputs: list[UOp] = []

    def outside(u: UOp) -> bool:
        if u in mine:
            return False
        if u in new:
            return True
        if u.op is Op.PARAM or u in materialised:
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
    parts = [UOp(Op.SINK, d, tuple([kept[r] for r in g.roots]), g.pieces) for g in group.members or (group,)]
    return Cut(parts[0] if len(parts) == 1 else UOp(Op.SINK, d, tuple(parts)), tuple(inputs), group, where)


def _cut(u: UOp, src: Src) -> UOp:
    if u.op is Op.CONTIGUOUS:
        return src[0]
    return u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag if u.op in (Op.CAST, Op.REDUCE_AXIS) else None)
