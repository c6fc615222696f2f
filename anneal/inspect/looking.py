"""The answers for a viewer about one graph and its plan: each a dict of records, ready for JSON.

    graph()          the tensor graph, each node with the kernels that compute it
    passes(), of()   what each pass made of the graph, or of one kernel
    kernels()        the launches, why neighbours are two, memory over the launches
    kernel(N)        one launch: its text line by line, and how it is launched

The studio asks this of a model; a recording keeps the answers for each plan that a program ran.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from anneal.codegen import Target
from anneal.errors import AnnealError
from anneal.inspect.kernel_list import kernel_calls, refusals
from anneal.inspect.lifetimes import launch_facts, memory_plan
from anneal.inspect.lines import KernelTexts, launch
from anneal.inspect.pipelines import passes
from anneal.inspect.structure import PassGraph, graph_nodes, kernel_pass_graphs, pass_graphs
from anneal.rewrite import Event
from anneal.schedule import CostModel, origins, plan_for
from anneal.training import suggest
from anneal.uop import UOp


class Looked:
    """Answers about `SINK(outputs...)`, planned for a device; `fired` are the rules that fired while it was made.

    Args:
        model: the name of the model.
        sink: the node `SINK(outputs...)`.
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
        target: the limits of the device that kernels are made for.
    """

    def __init__(
        self,
        model: str,
        sink: UOp,
        cost_model: CostModel,
        fired: Sequence[Event] = (),
        target: Target | None = None,
    ) -> None:
        self.model, self.sink, self.cost_model, self.fired = model, sink, cost_model, fired
        self.plan = plan_for(sink, cost_model, {})[0]
        self._origins = origins(sink)
        self._texts, self._target = KernelTexts(sink, cost_model, target), target
        self._passes: dict[int | None, list[PassGraph]] = {}

    def graph(self) -> dict[str, Any]:
        """The nodes, the names of the launches, and the names of the passes."""
        calls = kernel_calls(self.plan, self._origins, lambda _: "")
        return {
            "model": self.model,
            "nodes": graph_nodes(self.sink, self.plan, self.fired),
            "kernels": [{"name": k.name, "label": k.label, "phase": k.phase} for k in calls],
            "passes": passes(),
        }

    def passes(self, kernel: int | None = None) -> list[dict[str, Any]]:
        """The passes, each with the number of nodes that it changed, of the whole graph, or of launch `kernel`."""
        return [{**plain(p), "nodes": len(p.nodes), "text": len(p.text)} for p in self.after(kernel)]

    def one_pass(self, name: str, kernel: int | None = None) -> PassGraph:
        """The graph after pass `name`; of launch `kernel`, if one is named. Raises UserError for an unknown pass."""
        graphs = self.after(kernel)
        found = next((p for p in graphs if p.info.name == name), None)
        if found is None:
            raise suggest("pass", name, [p.info.name for p in graphs])
        return found

    def after(self, kernel: int | None = None) -> list[PassGraph]:
        """The graphs after each pass, in order; of launch `kernel`, if one is named."""
        if kernel not in self._passes:
            self._passes.clear()
            self._passes[kernel] = (
                pass_graphs(self.sink, self.cost_model)
                if kernel is None
                else kernel_pass_graphs(self.sink, self.cost_model, kernel)
            )
        return self._passes[kernel]

    def kernels(self) -> dict[str, Any]:
        """The launches in order."""
        return {
            "model": self.model,
            "kernels": kernel_calls(self.plan, self._origins, lambda _: ""),
            "refusals": refusals(self.sink, self.cost_model),
            "memory": memory_plan(self.plan),
        }

    def kernel(self, number: int) -> dict[str, Any]:
        """Launch `number`. Raises UserError for one that the plan does not have."""
        call = launch(self.sink, self.cost_model, number)
        text, error = None, ""
        try:
            text = self._texts.text(number)
        except AnnealError as e:  # a dtype that WGSL or C does not have
            error = str(e)
        return {"text": text, "error": error, "launch": launch_facts(call.kernel.sink, self._target)}

    @property
    def nodes(self) -> int:
        """The number of nodes of the graph."""
        return len(self._origins)

    @property
    def lines(self) -> set[tuple[str, int]]:
        """The lines that the nodes come from, each as a file and a number."""
        return {
            (code.co_filename, line)
            for _, code, line, _, _ in [o.provenance for o in self._origins]
            if code is not None
        }


def plain(value: Any) -> Any:
    """A record as JSON has it: what `json.dumps` asks for what it does not know.

    Args:
        value: the record.
    """
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)
