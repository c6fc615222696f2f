"""Tensor graph -> kernels: the pass pipeline, fusion decisions, memory planning and the plan cache."""

from anneal.schedule.donation import donate
from anneal.schedule.fusion import CostModel, Reason
from anneal.schedule.inplace import overwrites_rows
from anneal.schedule.masks import dead_side, read_elements
from anneal.schedule.members import members_of, standalone
from anneal.schedule.passes import PASSES, PERMUTATION, indexed, kernel_graph, run_passes, simplify_indices
from anneal.schedule.places import Origin
from anneal.schedule.plan import (
    BUILDING,
    clear_cache,
    graph,
    live_nodes,
    origins,
    parametrise,
    plan_for,
    refused,
)
from anneal.schedule.records import Call, Cut, Kernel, Plan, Schedule, name_of

__all__ = [
    "BUILDING",
    "PASSES",
    "PERMUTATION",
    "Call",
    "CostModel",
    "Cut",
    "Kernel",
    "Origin",
    "Plan",
    "Reason",
    "Schedule",
    "clear_cache",
    "dead_side",
    "donate",
    "graph",
    "indexed",
    "kernel_graph",
    "live_nodes",
    "members_of",
    "name_of",
    "origins",
    "overwrites_rows",
    "parametrise",
    "plan_for",
    "read_elements",
    "refused",
    "run_passes",
    "simplify_indices",
    "standalone",
]
