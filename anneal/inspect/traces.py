"""The times of launches as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def chrome_trace(
    title: str, launches: Iterable[Mapping[str, Any]], device: str = "", live: Sequence[int] = ()
) -> dict[str, Any]:
    """The launches one after the other, each as long as it takes alone, in a lane for each phase.

    Args:
        title: the name of the process in the trace.
        launches: in order; each has `seconds`, `name`, `label`, `phase`, and what else is known of it (`flops`,
            `bytes`, `gflops`, `gbs`, `opts`, `fused`, `lines`, as `anneal kernels --time --json` has them).
        device: what they ran on.
        live: the bytes that are needed while each launch runs, for a curve beneath.

    Returns:
        The trace-event format's JSON object: times in microseconds.

    >>> found = chrome_trace("mlp", [{"seconds": 2e-6, "name": "k", "label": "fc: linear", "phase": "forward"}])
    >>> [(e["name"], e["ts"], e["dur"]) for e in found["traceEvents"] if e["ph"] == "X"]
    [('fc: linear', 0.0, 2.0)]
    """
    events: list[dict[str, Any]] = [_named("process_name", 0, " on ".join([x for x in (title, device) if x]))]
    lanes: dict[str, int] = {}
    at = 0.0
    for n, launch in enumerate(launches):
        phase = str(launch["phase"])
        if phase not in lanes:
            lanes[phase] = len(lanes) + 1
            events.append(_named("thread_name", lanes[phase], phase))
        duration = float(launch["seconds"]) * 1e6
        events.append(
            {
                "name": launch.get("label") or launch["name"], "cat": phase, "ph": "X", "ts": at, "dur": duration,
                "pid": 1, "tid": lanes[phase], "args": {"launch": n, **_arguments(launch)},
            }
        )  # fmt: skip
        if n < len(live):
            counted = {"temporaries and results": live[n]}
            events.append({"name": "bytes", "ph": "C", "ts": at, "pid": 1, "tid": 0, "args": counted})
        at += duration
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _named(what: str, lane: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 1, "tid": lane, "args": {"name": name}}


def _arguments(launch: Mapping[str, Any]) -> dict[str, Any]:
    found = {k: launch[k] for k in ("name", "flops", "bytes", "gflops", "gbs", "opts") if k in launch}
    found["fused"] = " + ".join(launch.get("fused", ()))
    lines = [x if isinstance(x, Mapping) else {"file": x.file, "line": x.line} for x in launch.get("lines", ())]
    found["lines"] = ", ".join([f"{x['file']}:{x['line']}" for x in lines])
    return found
