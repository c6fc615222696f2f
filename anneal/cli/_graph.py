"""`anneal graph`: the tensor graph of a model's training step, before any pass has touched it or after one of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from anneal.cli._models import check_traceable, suggest, traced_model
from anneal.cli._output import data, json_report
from anneal.inspect import PassState, StepGraph, after_pass, nodes, passes
from anneal.schedule import graph as sink_of

__all__ = ["graph", "graph_after"]


def graph(model: str, *, batch: int | None, limit: int, as_json: bool) -> None:
    """Print the graph of one training step of `model`: every node, or the first `limit` in text."""
    traced = traced_model(model, batch)
    if as_json:
        json_report(_report(traced))
        return
    shown = nodes(traced.nodes, limit)
    for node in shown:
        data(str(node))
    if len(shown) < len(traced.nodes):
        data(f"... {len(traced.nodes) - len(shown)} more nodes; --limit 0 prints them all")
    data()
    width = max(len(name) for name in traced.counts)
    data(f"{'op'.ljust(width)}  forward  backward")
    for name, by_phase in sorted(traced.counts.items(), key=lambda item: (-sum(item[1].values()), item[0])):
        data(f"{name.ljust(width)}  {by_phase['forward']:7d}  {by_phase['backward']:8d}")
    data(f"{'total'.ljust(width)}  {traced.forward:7d}  {traced.backward:8d}")


def graph_after(model: str, until: str, *, kernel: int | None, batch: int | None, device: str, as_json: bool) -> None:
    """Print what the passes up to `until` make of a training step of `model`, or of its kernel number `kernel`."""
    from anneal.backend import planned_cost_model

    check_traceable(model)
    known = passes()
    if until not in [p.name for p in known]:
        raise suggest("pass", until, [p.name for p in known])
    sink = sink_of(traced_model(model, batch).outputs)
    state = after_pass(sink, planned_cost_model(device), until, kernel)
    if as_json:
        json_report(_state_report(model, device, state))
        return
    of = f" of kernel {kernel}" if kernel is not None else ""
    data(f"// after {state.info.name}{of}: {state.info.reason}")
    for part in state.parts:
        data(part.text.rstrip("\n"))


def _state_report(model: str, device: str, state: PassState) -> dict[str, Any]:
    return {"model": model, "device": device, "passes": [asdict(p) for p in passes()], **asdict(state)}


def _report(traced: StepGraph) -> dict[str, Any]:
    numbers = {u: i for i, u in enumerate(traced.nodes)}
    return {
        "model": traced.model,
        "uops_forward": traced.forward,
        "uops_backward": traced.backward,
        "counts": {name: dict(sorted(c.items())) for name, c in sorted(traced.counts.items())},
        "outputs": [numbers[u] for u in traced.outputs],
        "nodes": [asdict(node) for node in nodes(traced.nodes)],
    }
