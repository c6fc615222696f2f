"""A worked example of an op: the small graph of a Tensor method, what the compiler makes of it, and its gradient."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anneal
from anneal.inspect.graphs import Node, nodes
from anneal.inspect.kernels import kernel_calls
from anneal.inspect.rules import example_of, tensor_methods
from anneal.inspect.structure import PassGraph, pass_graphs
from anneal.schedule import CostModel, graph, origins, plan_for
from anneal.uop import Op, UOp

ROOT = Path(anneal.__file__).resolve().parent.parent
# Methods that build an op whose name they do not have.
METHODS = {
    "REDUCE_AXIS": "sum", "IDIV": "floor_divide", "RECIP": "reciprocal", "CMPLT": "lt", "LT": "lt", "EQ": "eq",
    "MAX": "maximum", "MIN": "minimum", "SCATTER_ADD": "scatter_add", "WHERE": "relu", "EXPAND": "softmax",
    "SHRINK": "tril", "PAD": "cumsum", "CONTRACT": "matmul", "CAST": "int", "ARGSORT": "argsort", "IOTA": "tril",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Batching:
    """The function that batches an op (vmap): its first line, its place as "file:line", its text."""

    about: str
    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Worked:
    """A call of a Tensor method: the `nodes` of its graph, what each pass makes of it, its kernels as WGSL."""

    call: str
    nodes: tuple[Node, ...]
    passes: tuple[PassGraph, ...]
    kernels: tuple[str, ...]


def batching(op: str) -> Batching | None:
    """The rule by which `vmap` batches the op called `op`; None where there is none.

    >>> batching("FLIP").place.startswith("anneal/transforms/batching.py:")
    True
    """
    from anneal.transforms import BATCHING

    rule = BATCHING.get(getattr(Op, op))
    if rule is None:
        return None
    text, line = inspect.getsourcelines(rule)
    file = Path(inspect.getsourcefile(rule) or "").resolve()
    return Batching((rule.__doc__ or "").split("\n")[0], f"{file.relative_to(ROOT).as_posix()}:{line}", "".join(text))


def worked(name: str, cost_model: CostModel) -> Worked | None:
    """An example of the op, or the Tensor method, called `name`; None where no method builds it of small arguments.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).

    >>> from anneal.backend import planned_cost_model
    >>> worked("EXP", planned_cost_model("cpu")).call
    'Tensor([0, 1]).exp().round(4)'
    """
    methods = tensor_methods()
    for method in dict.fromkeys((METHODS.get(name.upper(), name.lower()), name.lower())):
        example = example_of(method) if method in methods else None
        if example is None or (hasattr(Op, name) and name not in [u.op.name for u in example.nodes]):
            continue
        sink = graph(_outputs(example.nodes))
        plan = plan_for(sink, cost_model)[0]
        texts = dict.fromkeys([k.text for k in kernel_calls(plan, origins(sink))])
        return Worked(
            example.source, tuple(nodes(list(example.nodes))), tuple(pass_graphs(sink, cost_model)), tuple(texts)
        )
    return None


def _outputs(order: Sequence[UOp]) -> list[UOp]:
    """The nodes that none of the others reads."""
    read = {s for u in order for s in u.src}
    return [u for u in order if u not in read]
