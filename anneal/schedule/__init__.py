"""Tensor graph -> kernels: the pass pipeline, fusion decisions, memory planning and the plan cache."""

from anneal.schedule.donation import donate
from anneal.schedule.fusion import Policy
from anneal.schedule.plan import BUILDING, PASSES, clear_cache, graph, plan_for, run_passes
from anneal.schedule.records import Call, Kernel, Plan, Schedule, name_of

__all__ = [
    "BUILDING",
    "PASSES",
    "Call",
    "Kernel",
    "Plan",
    "Policy",
    "Schedule",
    "clear_cache",
    "donate",
    "graph",
    "name_of",
    "plan_for",
    "run_passes",
]
