"""The passes of the scheduler, in order: from a parametrised tensor graph to a plan. This list is what runs."""

from __future__ import annotations

from collections.abc import Iterator

from anneal.rewrite import Pass, Pipeline
from anneal.schedule.fusion import CostModel

from anneal.schedule.passes import (  # isort: skip
    early_rewrites, kernel_groups, memory_plan, narrow_products, range_propagation, split_contractions, split_reduces,
)  # fmt: skip
from anneal.schedule.records import Schedule
from anneal.uop import UOp

# -- views: what a pass has made, as graphs and lines of text ----------------------------------------------------------


def _sink(s: Schedule) -> Iterator[UOp | str]:
    yield s.sink


def _materialised(s: Schedule) -> Iterator[UOp | str]:
    for u, reason in s.materialised.items():
        yield f"{u!r}: {reason.value}"


def _groups(s: Schedule) -> Iterator[UOp | str]:
    for g in s.groups:
        yield ", ".join(map(repr, g.roots)) + (" (again)" if g.again else "")


def _cuts(s: Schedule) -> Iterator[UOp | str]:
    for _, inputs, group, _ in s.cuts:
        yield f"{len(group.roots)} stores, {len(inputs)} inputs"


def _kernels(s: Schedule) -> Iterator[UOp | str]:
    for kernel in dict.fromkeys(s.kernels):
        yield f"-- {kernel.name}"
        yield kernel.sink


def _calls(s: Schedule) -> Iterator[UOp | str]:
    if s.plan is None:
        return
    for c in s.plan.calls:
        yield f"{c.kernel.name} {c.args[: c.outputs]} <- {c.args[c.outputs :]} ({c.phase})"
    yield f"{len(s.plan.memory)} temporaries in {len(s.plan.temporaries)} buffers"


# ---------------------------------------------------------------------------------------------------------------------


PASSES: Pipeline[Schedule] = Pipeline(
    "schedule",
    (
        Pass(
            name="early-rewrites",
            run=early_rewrites.run,
            view=_sink,
            stage="tensor",
            reason="drop what moves nothing, make compound ops simple",
        ),
        Pass(
            name="split-contractions",
            run=split_contractions.run,
            view=_sink,
            stage="tensor",
            reason="matrix-vector products that are read in pieces become a product for each",
        ),
        Pass(
            name="narrow-products",
            run=narrow_products.run,
            view=_sink,
            stage="tensor",
            reason="products of bfloat16, and of float32 where it was asked for, from float16 factors",
        ),
        Pass(
            name="split-reduces",
            run=split_reduces.run,
            view=_sink,
            stage="tensor",
            reason="long reductions for few results in two stages",
        ),
        Pass(
            name="materialisation",
            run=kernel_groups.materialise,
            view=_materialised,
            reason="choose the nodes that get memory",
        ),
        Pass(
            name="kernel-groups",
            run=kernel_groups.group,
            view=_groups,
            reason="join kernels that share ranges and inputs: several stores, one launch",
        ),
        Pass(
            name="compute-again",
            run=kernel_groups.compute_again,
            view=_groups,
            reason="where memory is scarce: kernels that compute values a second time instead of keeping them",
        ),
        Pass(
            name="kernel-split",
            run=kernel_groups.split,
            view=_cuts,
            reason="cut the graph at those nodes; equal pieces become the same object",
        ),
        Pass(
            name="range-propagation",
            run=range_propagation.run,
            view=_kernels,
            stage="kernel",
            reason="each distinct piece: movement becomes index arithmetic, indices simplify",
        ),
        Pass(
            name="memory-plan",
            run=memory_plan.run,
            view=_calls,
            reason="order calls, share temporaries whose lives do not overlap",
        ),
    ),
)


def run_passes(sink: UOp, cost_model: CostModel, until: str | None = None) -> Schedule:
    """Run PASSES over a parametrised tensor graph, up to and including the pass called `until`.

    Raises UserError for an `until` that is no pass, with the names of all.
    """
    return PASSES.run(Schedule(sink, cost_model), until)
