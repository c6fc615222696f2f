"""Tensor graph -> kernels: the pass pipeline, fusion decisions, memory planning and the plan cache."""

from anneal.schedule.donation import donate
from anneal.schedule.fusion import CostModel
from anneal.schedule.places import Origin
from anneal.schedule.plan import (
    BUILDING,
    PASSES,
    clear_cache,
    graph,
    live_nodes,
    origins,
    plan_for,
    refused,
    run_passes,
)
from anneal.schedule.records import Call, Kernel, Plan, Schedule, name_of

__all__ = [
    "BUILDING",
    "PASSES",
    "Call",
    "CostModel",
    "Kernel",
    "Origin",
    "Plan",
    "Schedule",
    "clear_cache",
    "donate",
    "graph",
    "live_nodes",
    "name_of",
    "origins",
    "plan_for",
    "refused",
    "run_passes",
]
