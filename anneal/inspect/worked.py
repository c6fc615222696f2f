"""A worked example of an op: the small graph of a Tensor method, what the compiler makes of it, and its gradient."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

import anneal
from anneal.inspect.graphs import Node, nodes
from anneal.inspect.kernels import kernel_calls
from anneal.inspect.rules import ops_of_method, outputs_of_method
from anneal.inspect.structure import PassGraph, pass_graphs
from anneal.schedule import CostModel, graph, origins, plan_for
from anneal.uop import Op, UOp, toposort

__all__ = ["Batching", "Worked", "batching", "worked"]

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
    """`Tensor.method` of small matrices: the `nodes` of its graph, what each pass makes of it, its kernels as WGSL."""

    method: str
    nodes: tuple[Node, ...]
    passes: tuple[PassGraph, ...]
    kernels: tuple[str, ...]


def batching(op: str) -> Batching | None:
    """How the op called `op` is batched; None where it is not.

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
    """An example of the op, or the Tensor method, called `name`; None where no method builds it of small matrices.

    >>> from anneal.backend import planned_cost_model
    >>> worked("EXP", planned_cost_model("cpu")).method
    'exp'
    """
    for method in dict.fromkeys((METHODS.get(name.upper(), name.lower()), name.lower())):
        outputs = outputs_of_method(method)
        if not outputs or (hasattr(Op, name) and name not in [*ops_of_method(method), *_ops(outputs)]):
            continue
        sink = graph(outputs)
        plan = plan_for(sink, cost_model)[0]
        texts = dict.fromkeys([k.text for k in kernel_calls(plan, origins(sink))])
        return Worked(method, tuple(nodes(toposort(outputs))), tuple(pass_graphs(sink, cost_model)), tuple(texts))
    return None


def _ops(outputs: list[UOp]) -> list[str]:
    return [u.op.name for u in toposort(outputs)]
