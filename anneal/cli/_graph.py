"""`anneal graph`: the tensor graph of a model's training step, before any pass has touched it."""

from __future__ import annotations

from typing import Any

from anneal.cli._output import data, json_report
from anneal.cli._trace import Trace, trace_model
from anneal.uop import UOp

__all__ = ["graph"]


def graph(model: str, *, batch: int | None, limit: int, as_json: bool) -> None:
    """Print the graph of one training step of `model`: every node, or the first `limit` in text."""
    trace = trace_model(model, batch)
    if as_json:
        json_report(_report(trace))
        return
    numbers = {u: i for i, u in enumerate(trace.nodes)}
    shown = trace.nodes if limit == 0 else trace.nodes[:limit]
    for u in shown:
        data(_line(u, numbers))
    if len(shown) < len(trace.nodes):
        data(f"... {len(trace.nodes) - len(shown)} more nodes; --limit 0 prints them all")
    data()
    width = max(len(name) for name in trace.counts)
    data(f"{'op'.ljust(width)}  forward  backward")
    for name, by_phase in sorted(trace.counts.items(), key=lambda item: (-sum(item[1].values()), item[0])):
        data(f"{name.ljust(width)}  {by_phase['forward']:7d}  {by_phase['backward']:8d}")
    data(f"{'total'.ljust(width)}  {trace.forward:7d}  {trace.backward:8d}")


def _line(u: UOp, numbers: dict[UOp, int]) -> str:
    shape = f"[{', '.join(map(str, u.shape))}]"
    arg = "" if u.arg is None else f" {u.arg!r}"
    sources = ", ".join(f"%{numbers[s]}" for s in u.src)
    phase, where = _origin(u)
    return (
        f"%{numbers[u]} = {u.op.name}{arg} {u.dtype.name}{shape} ({sources})  # {phase}{' ' + where if where else ''}"
    )


def _origin(u: UOp) -> tuple[str, str]:
    phase, code, line = u.provenance
    return phase, "" if code is None else f"{code.co_filename.rsplit('/', 1)[-1]}:{line}"


def _report(trace: Trace) -> dict[str, Any]:
    numbers = {u: i for i, u in enumerate(trace.nodes)}
    return {
        "model": trace.model,
        "uops_forward": trace.forward,
        "uops_backward": trace.backward,
        "counts": {name: dict(sorted(c.items())) for name, c in sorted(trace.counts.items())},
        "outputs": [numbers[u] for u in trace.outputs],
        "nodes": [
            {
                "id": numbers[u],
                "op": u.op.name,
                "dtype": u.dtype.name,
                "shape": list(u.shape),
                "arg": None if u.arg is None else repr(u.arg),
                "src": [numbers[s] for s in u.src],
                "phase": _origin(u)[0],
                "source": _origin(u)[1],
            }
            for u in trace.nodes
        ],
    }
