"""Tensor graph -> kernels: the pass pipeline, fusion decisions, memory planning and the plan cache.

Files are imported when the first of their names is asked for: a program that only makes tensors starts without them.
"""

from typing import TYPE_CHECKING

from anneal.doors import opened_later
from anneal.schedule.shared import BUILDING, WITH_PLANS

if TYPE_CHECKING:
    from anneal.schedule.cost_model import CostModel
    from anneal.schedule.fusion import Reason, pieces_of
    from anneal.schedule.masks import dead_side, read_elements, wishes
    from anneal.schedule.passes import (
        PASSES,
        PERMUTATION,
        donate,
        fusible_reduces,
        indexed,
        kernel_graph,
        nbytes,
        overwrites_rows,
        run_passes,
        simplify_indices,
    )
    from anneal.schedule.plan import (
        PlanPart,
        Stage,
        clear_cache,
        graph,
        in_parts,
        live_nodes,
        origins,
        parametrise,
        plan_for,
        refused,
        stages,
    )
    from anneal.schedule.records import (  # isort: skip
        Call, Cut, Kernel, Origin, Plan, Plans, Schedule, members_of, name_of, standalone,
    )  # fmt: skip
else:
    __getattr__ = opened_later(__name__)
