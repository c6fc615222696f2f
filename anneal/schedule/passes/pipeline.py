"""The passes of the scheduler, in order: from a parametrised tensor graph to a plan. This list is what runs."""

from __future__ import annotations

from anneal.rewrite import Pass, Pipeline
from anneal.schedule.fusion import CostModel
from anneal.schedule.passes import (
    compute_again,
    early_rewrites,
    kernel_groups,
    kernel_split,
    materialisation,
    memory_plan,
    range_propagation,
    split_contractions,
    split_reduces,
    views,
)
from anneal.schedule.records import Schedule
from anneal.uop import UOp

PASSES: Pipeline[Schedule] = Pipeline(
    "schedule",
    (
        Pass(
            name="early-rewrites",
            run=early_rewrites.run,
            view=views.sink,
            stage="tensor",
            reason="drop what moves nothing, make compound ops simple",
        ),
        Pass(
            name="split-contractions",
            run=split_contractions.run,
            view=views.sink,
            stage="tensor",
            reason="matrix-vector products that are read in pieces become a product for each",
        ),
        Pass(
            name="split-reduces",
            run=split_reduces.run,
            view=views.sink,
            stage="tensor",
            reason="long reductions for few results in two stages",
        ),
        Pass(
            name="materialisation",
            run=materialisation.run,
            view=views.materialised,
            reason="choose the nodes that get memory",
        ),
        Pass(
            name="kernel-groups",
            run=kernel_groups.run,
            view=views.groups,
            reason="join kernels that share ranges and inputs: several stores, one launch",
        ),
        Pass(
            name="compute-again",
            run=compute_again.run,
            view=views.groups,
            reason="where memory is scarce: kernels that compute values a second time instead of keeping them",
        ),
        Pass(
            name="kernel-split",
            run=kernel_split.run,
            view=views.cuts,
            reason="cut the graph at those nodes; equal pieces become the same object",
        ),
        Pass(
            name="range-propagation",
            run=range_propagation.run,
            view=views.kernels,
            stage="kernel",
            reason="each distinct piece: movement becomes index arithmetic, indices simplify",
        ),
        Pass(
            name="memory-plan",
            run=memory_plan.run,
            view=views.calls,
            reason="order calls, share temporaries whose lives do not overlap",
        ),
    ),
)


def run_passes(sink: UOp, cost_model: CostModel, until: str | None = None) -> Schedule:
    """Run PASSES over a parametrised tensor graph, up to and including the pass called `until`.

    Raises UserError for an `until` that is no pass, with the names of all.
    """
    return PASSES.run(Schedule(sink, cost_model), until)
