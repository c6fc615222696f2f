"""The passes of the scheduler, in order: from a parametrised tensor graph to a plan. This list is what runs."""

from __future__ import annotations

from collections.abc import Iterator

from anneal.rewrite import Pass, Pipeline
from anneal.schedule.fusion import CostModel

from anneal.schedule.passes import (  # isort: skip
    early_rewrites, kernel_groups, memory_plan, narrow_products, range_propagation, split_reduces,
)  # fmt: skip
from anneal.schedule.records import Schedule
from anneal.uop import UOp

# -- views: what a pass has made, as graphs and lines of text ----------------------------------------------------------


def _sink(s: Schedule) -> tuple[UOp]:
    return (s.sink,)


def _groups(s: Schedule) -> Iterator[UOp | str]:
    for g in s.groups:
        yield ", ".join(map(repr, g.roots)) + (" (again)" if g.again else "")


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
            "early-rewrites", early_rewrites.run, _sink, "drop what moves nothing, make compound ops simple", "tensor"
        ),
        Pass(
            "split-contractions",
            lambda s: s.changed(split_reduces.split_contractions),
            _sink,
            "matrix-vector products that are read in pieces become a product for each",
            "tensor",
        ),
        Pass(
            "narrow-products",
            lambda s: s.changed(narrow_products.narrow_products),
            _sink,
            "products of bfloat16, and of float32 where it was asked for, from float16 factors",
            "tensor",
        ),
        Pass(
            "split-reduces",
            lambda s: s.changed(split_reduces.split_reduces),
            _sink,
            "long reductions for few results in two stages",
            "tensor",
        ),
        Pass(
            "materialisation",
            kernel_groups.materialise,
            lambda s: [f"{u!r}: {reason.value}" for u, reason in s.materialised.items()],
            "choose the nodes that get memory",
        ),
        Pass(
            "kernel-groups",
            kernel_groups.group,
            _groups,
            "join kernels that share ranges and inputs: several stores, one launch",
        ),
        Pass(
            "compute-again",
            kernel_groups.compute_again,
            _groups,
            "where memory is scarce: kernels that compute values a second time instead of keeping them",
        ),
        Pass(
            "kernel-split",
            kernel_groups.split,
            lambda s: [f"{len(c.group.roots)} stores, {len(c.inputs)} inputs" for c in s.cuts],
            "cut the graph at those nodes; equal pieces become the same object",
        ),
        Pass(
            "range-propagation",
            range_propagation.run,
            _kernels,
            "each distinct piece: movement becomes index arithmetic, indices simplify",
            "kernel",
        ),
        Pass("memory-plan", memory_plan.run, _calls, "order calls, share temporaries whose lives do not overlap"),
    ),
)


def run_passes(sink: UOp, cost_model: CostModel, until: str | None = None) -> Schedule:
    """Run PASSES over a parametrised tensor graph, up to and including the pass called `until`.

    Raises UserError for an `until` that is no pass, with the names of all.
    """
    return PASSES.run(Schedule(sink, cost_model), until)
