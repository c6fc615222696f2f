"""Kernel groups: the materialised nodes that one kernel computes together, decided before any kernel is lowered.

Each node is a group of its own at first. Then, with levels (the longest path from an input) to keep cycles out:

- vertical fusion (`anneal/schedule/fusion/joining.py`): a group joins the group that makes its input, if it reads that
  input only where it is made: elementwise work joins any kernel of its shape (an activation beside the product that
  feeds it, Adam's update behind the gradient), and work along rows joins a kernel of the same rows (a softmax, a norm
  with its statistics);
- a group that makes a piece of a concatenation joins the kernel that stores the pieces, as a member of it;
- horizontal fusion (`anneal/schedule/fusion/groups.py`): groups of one level with the same ranges join if they read
  a large value in common (a norm's two parameter gradients), and so do sums over columns that are near each other
  (gradients of biases and norms);
- elementwise groups that are left on one level share a launch, each as a member of it.

A node that has joined its only readers is not stored any more.
"""

from __future__ import annotations

from dataclasses import replace

from anneal.schedule import fusion
from anneal.schedule.passes.compute_again import is_scarce
from anneal.schedule.records import Schedule
from anneal.uop import UOp


def run(s: Schedule) -> Schedule:
    cost_model = s.cost_model
    if cost_model.concurrent and is_scarce(s.materialised):
        # of a product itself more can be computed again than of what others make of it
        cost_model = replace(cost_model, keeps_functions=False)
    return replace(s, cost_model=cost_model, groups=group_kernels(s, cost_model))


def group_kernels(s: Schedule, cost_model: fusion.CostModel) -> list[fusion.FusionGroup]:
    """The kernels that compute the materialised nodes, producers first; nodes that no kernel need store leave these.

    A node of no elements has no kernel: joined to others, it could be the root by which their kernel is judged.
    """
    materialised, outputs = s.materialised, s.sink.src
    groups: list[fusion.FusionGroup] = []
    owner: dict[UOp, fusion.FusionGroup] = {}
    for u in s.order:
        if u in materialised and u.size:
            g = owner[u] = fusion.group_of(u, materialised, cost_model)
            if s.chained:
                g.chained = fusion.chained_over(fusion.cone(u, materialised)[0], s.chained)
                g.opaque = g.opaque or g.chained is not None
            groups.append(g)
    groups = fusion.by_level(groups, owner)
    if s.chained:
        groups = fusion.by_level(fusion.join_chained(groups, owner), owner)
    groups = fusion.by_level(fusion.Joining(groups, owner, materialised, outputs, cost_model, s.consumers).run(), owner)
    # Once more with every group as late as its readers let it be: an update for the end hinders no join.
    fusion.as_late_as_possible(groups, owner)
    joining = fusion.Joining(groups, owner, materialised, outputs, cost_model, s.consumers)
    groups = fusion.by_level(joining.run(), owner)
    overwriting = set() if cost_model.keeps_inputs else _overwriting(groups, outputs)
    groups = fusion.by_level(fusion.siblings(joining, groups, overwriting), owner)
    return (
        fusion.by_level(fusion.shared_launches(groups, owner, overwriting, cost_model), owner)
        if cost_model.horizontal_fusion
        else groups
    )


def _overwriting(groups: list[fusion.FusionGroup], outputs: tuple[UOp, ...]) -> set[fusion.FusionGroup]:
    """Groups of outputs that might overwrite memory which others read later (a counter): joined to no other group, they
    can wait for those readers."""
    wanted = set(outputs)
    last: dict[UOp, int] = {}
    for g in groups:
        last.update({i: max(g.level, last.get(i, 0)) for i in g.inputs if i.op in fusion.LEAVES})
    return {
        g
        for g in groups
        if not g.reduces
        and any(r in wanted and r.size == i.size and last.get(i, 0) > g.level for r in g.roots for i in g.inputs)
    }
