"""`anneal graph`: the tensor graph of a model's training step, before any pass has touched it."""

from __future__ import annotations

from typing import Any

from anneal.cli._output import data, json_report
from anneal.cli._trace import Trace, trace
from anneal.uop import UOp

__all__ = ["graph", "lines"]


def graph(model: str, *, batch: int | None, limit: int, as_json: bool) -> None:
    """Print the graph of one training step of `model`: every node, or the first `limit` in text."""
    traced = trace(model, batch)
    if as_json:
        json_report(_report(traced))
        return
    shown = lines(traced, limit)
    for line in shown:
        data(line)
    if len(shown) < len(traced.nodes):
        data(f"... {len(traced.nodes) - len(shown)} more nodes; --limit 0 prints them all")
    data()
    width = max(len(name) for name in traced.counts)
    data(f"{'op'.ljust(width)}  forward  backward")
    for name, by_phase in sorted(traced.counts.items(), key=lambda item: (-sum(item[1].values()), item[0])):
        data(f"{name.ljust(width)}  {by_phase['forward']:7d}  {by_phase['backward']:8d}")
    data(f"{'total'.ljust(width)}  {traced.forward:7d}  {traced.backward:8d}")


def lines(traced: Trace, limit: int = 0) -> list[str]:
    """A line for every node, or for the first `limit`, sources first."""
    numbers = {u: i for i, u in enumerate(traced.nodes)}
    return [_line(u, numbers) for u in (traced.nodes if limit == 0 else traced.nodes[:limit])]


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


def _report(traced: Trace) -> dict[str, Any]:
    numbers = {u: i for i, u in enumerate(traced.nodes)}
    return {
        "model": traced.model,
        "uops_forward": traced.forward,
        "uops_backward": traced.backward,
        "counts": {name: dict(sorted(c.items())) for name, c in sorted(traced.counts.items())},
        "outputs": [numbers[u] for u in traced.outputs],
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
            for u in traced.nodes
        ],
    }
