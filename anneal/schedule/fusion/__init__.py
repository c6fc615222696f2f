"""Fusion decisions: the target's cost model, materialisation, and the kernels that join."""

from anneal.schedule.cost_model import COST, CostModel, memory_bytes
from anneal.schedule.fusion.chains import chained_over, find_chains, is_made_of, is_score, join_chained
from anneal.schedule.fusion.facts import (
    COPY,
    LEAVES,
    REORDER,
    REORDERED,
    WHOLE,
    base,
    cone,
    consumers_of,
    is_vector_product,
    long_axes,
    pieces_of,
    placed,
    sums_products,
)
from anneal.schedule.fusion.groups import (
    FusionGroup,
    as_late_as_possible,
    by_level,
    group_of,
    shared_launches,
    siblings,
)
from anneal.schedule.fusion.joining import Joining, Refusal, refusals
from anneal.schedule.fusion.materialisation import Materialised, Reason, materialised_nodes
