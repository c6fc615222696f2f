"""`anneal graph`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anneal.cli._choices import check_traceable
from anneal.cli._complete import passes as complete_passes
from anneal.cli._flags import Batch, Json, PlannedFlag, Quiet, Traceable, alone, number
from anneal.cli._output import data, json_report
from anneal.errors import UserError
from anneal.training import suggest

if TYPE_CHECKING:
    from anneal.inspect import StepGraph


app = alone()


@app.command()
def graph(
    model: Traceable,
    batch: Batch = None,
    limit: Annotated[int, number("Number of nodes to print; 0: all.", 0)] = 60,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="PASS",
            help="Print the result of the compiler's passes up to PASS.",
            autocompletion=complete_passes,
        ),
    ] = None,
    kernel: Annotated[int | None, number("With --until: the passes of kernel N.", 0)] = None,
    device: PlannedFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Print the graph of one training step: its nodes, and their number by phase and op; or the result of a pass."""
    from anneal.inspect import nodes, traced_model

    if until is not None:
        _after(model, until, kernel, batch, device or "auto", as_json)
        return
    if kernel is not None:  # the graph is the same on every device
        raise UserError("--kernel belongs to --until PASS")
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


def _after(model: str, until: str, kernel: int | None, batch: int | None, device: str, as_json: bool) -> None:
    """Print what the passes up to `until` make of a training step of `model`, or of its kernel number `kernel`."""
    from anneal.backend import planned_cost_model
    from anneal.inspect import after_pass, passes, traced_model
    from anneal.schedule import graph as sink_of

    check_traceable(model)
    known = passes()
    if until not in [p.name for p in known]:
        raise suggest("pass", until, [p.name for p in known])
    sink = sink_of(traced_model(model, batch).outputs)
    state = after_pass(sink, planned_cost_model(device), until, kernel)
    if as_json:
        json_report({"model": model, "device": device, "passes": [asdict(p) for p in known], **asdict(state)})
        return
    of = f" of kernel {kernel}" if kernel is not None else ""
    data(f"// after {state.info.name}{of}: {state.info.reason}")
    for part in state.parts:
        data(part.text.rstrip("\n"))


def _report(traced: StepGraph) -> dict[str, Any]:
    from anneal.inspect import nodes

    numbers = {u: i for i, u in enumerate(traced.nodes)}
    return {
        "model": traced.model,
        "uops_forward": traced.forward,
        "uops_backward": traced.backward,
        "counts": {name: dict(sorted(c.items())) for name, c in sorted(traced.counts.items())},
        "outputs": [numbers[u] for u in traced.outputs],
        "nodes": [asdict(node) for node in nodes(traced.nodes)],
    }
