"""The memory of a plan over its launches, and the launch itself: threads, opts, bindings; and the launches
in time, as a trace for ui.perfetto.dev.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anneal.codegen import Target, generate, opts_text
from anneal.errors import AnnealError
from anneal.schedule import Plan, nbytes
from anneal.uop import UOp


@dataclass(frozen=True, slots=True)
class Life:
    """A value of a plan: launches `first` to `last` need it, in piece `piece` of memory that temporaries share, or
    None where it has memory of its own.
    """

    buffer: str
    kind: str
    dtype: str
    bytes: int
    first: int
    last: int
    piece: int | None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`lives` of the values that the plan makes; `live` has the bytes of temporaries and outputs that are needed while
    each launch runs. `given` are the bytes of its inputs, `temporary` those of the pieces that temporaries share.
    """

    lives: tuple[Life, ...]
    live: tuple[int, ...]
    given: int
    temporary: int


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """A kernel's launch on a target: opts, workgroups (also as a grid), threads of each, and its bindings."""

    opts: str
    workgroups: int
    threads: int
    grid: tuple[int, int, int]
    bindings: tuple[str, ...]


def memory_plan(plan: Plan) -> MemoryPlan:
    """The lives of a plan's values.

    >>> from anneal.backend import planned_cost_model
    >>> from anneal.schedule import graph, plan_for
    >>> from anneal.tensor import Tensor
    >>> plan, _, _ = plan_for(graph([(Tensor([1.0, 2.0]) + 1.0).uop]), planned_cost_model("cpu"))
    >>> memory_plan(plan).lives
    (Life(buffer='v1', kind='output', dtype='float32', bytes=8, first=0, last=0, piece=None),)
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for n, call in enumerate(plan.calls):
        for v in call.args:
            first.setdefault(v, n)
            last[v] = n
    pieces = dict(plan.memory)
    end = len(plan.calls) - 1
    lives = []
    live = [0] * len(plan.calls)
    for v, value in enumerate(plan.values):
        if value.kind == "input" or v not in first:
            continue
        until = end if value.kind == "output" else last[v]
        size = nbytes(value)
        lives.append(Life(f"v{v}", value.kind, value.dtype.name, size, first[v], until, pieces.get(v)))
        for n in range(first[v], until + 1):
            live[n] += size
    given = sum(nbytes(value) for value in plan.values if value.kind == "input")
    temporary = sum(-(-size * dtype.device_itemsize // 4) * 4 for size, dtype in plan.temporaries)
    return MemoryPlan(tuple(lives), tuple(live), given, temporary)


def launch_facts(kernel: UOp, target: Target | None = None) -> LaunchFacts | None:
    """The launch of a kernel graph; None for one that has no WGSL, since only the cpu has its dtypes.

    Args:
        target: the limits of the device that kernels are made for.
    """
    try:
        made = generate(kernel, target or Target(f16=True))
    except AnnealError:
        return None
    bindings = [
        f"{p.slot}: {p.node.dtype.name}{list(p.node.arg[1])} {'written' if p.written else 'read'}" for p in made.params
    ]
    return LaunchFacts(opts_text(made.opts), made.launch.workgroups, made.launch.threads, made.grid, tuple(bindings))


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
