"""The launches of a plan, as values: what crosses each one's boundary, what it does and costs, its text, its
time; and its name for people: the module, the functions that were called there, the user's
lines. All answers for a viewer about one graph and its plan, ready for JSON.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath
from typing import Any

from anneal import cache
from anneal.backend import AnyDevice, get_device
from anneal.codegen import Target, fused_ops, generate, kernel_info, opts_text
from anneal.errors import AnnealError
from anneal.inspect.derivations import KernelTexts, launch
from anneal.inspect.graphs import PassGraph, graph_nodes, kernel_pass_graphs, pass_graphs, passes
from anneal.progress import told
from anneal.rewrite import Event
from anneal.schedule import CostModel, Origin, Plan, nbytes, origins, plan_for, refused
from anneal.training import suggest
from anneal.uop import MOVEMENT, Op, UOp

_WORTH = 0.005  # seconds of code generation below which the texts are not worth a file


@dataclass(frozen=True, slots=True)
class KernelBuffer:
    """A value of a plan as one launch sees it. `kernel` is the launch that wrote it last, None for what is given."""

    buffer: str
    size: int
    dtype: str
    kind: str  # "input", "output" or "temp"
    kernel: int | None


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch of a plan: `fused` says what its kernel does, `flops` and `bytes` estimate what that costs.

    `name` is the kernel's, which equal launches share. `label` is the launch's own, of modules and functions:
    "h.0.mlp: linear + gelu". `nodes` are the nodes of the tensor graph that it computes, by number, those of `writes`
    first (one for each, in their order). `lines`, `modules` and `functions` are where these come from; of a backward
    kernel those of the forward code whose gradient it is.
    """

    name: str
    reads: tuple[KernelBuffer, ...]
    writes: tuple[KernelBuffer, ...]
    flops: int
    bytes: int
    phase: str
    fused: tuple[str, ...]
    text: str
    label: str
    lines: tuple[Line, ...]
    modules: tuple[str, ...]
    functions: tuple[str, ...]
    nodes: tuple[int, ...]


def kernel_calls(plan: Plan, origins: Sequence[Origin], text: Callable[[UOp], str] | None = None) -> list[KernelCall]:
    """One record per launch of the plan, in order; equal kernels share their text.

    `origins` is what `anneal.schedule.origins` says of the graph that was planned. `text` gives a kernel's text; WGSL
    for a target with the usual limits if left out, or a comment where a dtype has none. The WGSL of a plan is kept on
    disk, so that a second process generates none.
    """
    text = text or _kept_wgsl(plan, Target())
    writer: dict[int, int] = {}
    texts: dict[UOp, str] = {}
    records = []
    for number, call in enumerate(plan.calls):
        sink = call.kernel.sink
        if sink not in texts:
            texts[sink] = text(sink)
        info = kernel_info(sink)
        found = placed(call.places, origins)
        reads = tuple([_buffer(plan, v, writer) for v in dict.fromkeys(call.args[call.outputs :])])
        for v in call.args[: call.outputs]:
            writer[v] = number
        records.append(
            KernelCall(
                name=call.kernel.name,
                reads=reads,
                writes=tuple([_buffer(plan, v, writer) for v in call.args[: call.outputs]]),
                flops=info.flops,
                bytes=info.bytes_read + info.bytes_written,
                phase=call.phase,
                fused=tuple(fused_ops(sink)),
                text=texts[sink],
                label=label_of(found),
                lines=lines_of(found),
                modules=modules_of(found),
                functions=functions_of(found),
                nodes=call.places,
            )
        )
    return records


def of_line(calls: Iterable[KernelCall], file: str, line: int) -> list[KernelCall]:
    """The launches that compute something that line `line` of `file` (a path, or its end) asks for, or its gradient.

    Args:
        calls: the launches of the plan.
    """
    return [c for c in calls if any(x.line == line and x.file.endswith(file) for x in c.lines)]


@dataclass(frozen=True, slots=True)
class KernelRefusal:
    """The reason why launch `reader` is not fused with launch `writer`, whose result it reads: they are two kernels."""

    writer: int
    reader: int
    reason: str


def refusals(sink: UOp, cost_model: CostModel) -> list[KernelRefusal]:
    """The reasons why neighbouring launches of the plan of `sink` are not fused, by their numbers; the passes run
    again.

    Neighbours between which the scheduler cut before it looked for kernels to join have none.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
    """
    return [KernelRefusal(*found) for found in refused(sink, cost_model)]


def c_target(device: str) -> Target | None:
    """The target of C on the device called `device`; None where it compiles none."""
    if device != "cpu":
        return None
    cpu: Any = get_device("cpu")
    return None if cpu.why_numpy() else cpu.kernels.target


def wgsl_for(device: AnyDevice, plan: Plan) -> Callable[[UOp], str]:
    """The text of each kernel of a plan: what `device` runs, WGSL or C, or, where it runs neither, what one with the
    usual limits would; a comment where a dtype has none: those that only the cpu has.
    """
    if c_target(device.name):
        return lambda sink: device.kernels.text(sink) or "// NumPy runs this kernel\n"  # type: ignore[attr-defined]
    if getattr(device, "target", None) is None:
        return _kept_wgsl(plan, Target(f16=True))
    return lambda sink: device.compile(sink).source


def _kept_wgsl(plan: Plan, target: Target) -> Callable[[UOp], str]:
    """WGSL for `target` of the kernels of `plan`, from the disk if a process before this one kept it."""
    kernels = {call.kernel.key: call.kernel.sink for call in plan.calls}
    key = cache.disk_key("texts", target, *kernels) if cache.enabled() else None
    texts = cache.load("texts", key, lambda found: dict(zip(kernels, found, strict=True)))
    if texts is None:
        begun = time.perf_counter()
        texts = {k: _wgsl(sink, target) for k, sink in told(kernels.items(), "generating kernels", len(kernels))}
        if time.perf_counter() - begun > _WORTH:
            cache.save("texts", key, [*texts.values()], f"WGSL of {len(texts)} kernels, to be read")
    return lambda sink: texts[sink.key]


def _wgsl(sink: UOp, target: Target) -> str:
    try:
        return generate(sink, target).source
    except AnnealError as error:
        return f"// no WGSL: {error}\n"


def _buffer(plan: Plan, number: int, writer: dict[int, int]) -> KernelBuffer:
    value = plan.values[number]
    return KernelBuffer(f"v{number}", value.size, value.dtype.name, value.kind, writer.get(number))


# Nodes that are no step of a computation: they show values, hold them or write them otherwise.
_SILENT = MOVEMENT | {Op.CONTIGUOUS, Op.DETACH, Op.CAST, Op.CALL, Op.SINK, Op.CONST, Op.IOTA}
_MOST = 4  # functions, and modules, that a label lists


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's code: its file, its number, and the function that it stands in."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{PurePath(self.file).name}:{self.line}"


def placed(places: Iterable[int], origins: Sequence[Origin]) -> list[Origin]:
    """The origins at `places`, sources first; those that are made of memory, if there are any."""
    found = [origins[at] for at in sorted(places)]
    return [o for o in found if o.grounded] or found


def lines_of(found: Iterable[Origin]) -> tuple[Line, ...]:
    """The user's lines, each once."""
    lines = []
    for o in found:
        _, code, line, _, _ = o.provenance
        if code is not None:
            lines.append(Line(code.co_filename, line, code.co_qualname))
    return tuple(dict.fromkeys(lines))


def modules_of(found: Iterable[Origin]) -> tuple[str, ...]:
    """The paths of the modules that were called, each once, from the module that was called first: "h.0.mlp"."""
    return tuple(dict.fromkeys([o.provenance[3] for o in found if o.provenance[3]]))


def functions_of(found: Iterable[Origin]) -> tuple[str, ...]:
    """The functions of anneal that the user or a module called, each once; an op's name where there is none."""
    return tuple(dict.fromkeys([_function(o) for o in _computing(found)]))


def label_of(found: Sequence[Origin]) -> str:
    """Modules and functions in one line.

    "h.0.mlp: linear + gelu" where all belongs to one module, else the modules one after the other:
    "h.0: add; h.1.ln_1: layer_norm".

    Args:
        found: the records that are described.
    """
    steps = [(o.provenance[3], _function(o)) for o in _computing(found)]
    if common := _common([path for path, _ in steps]):
        return f"{common}: {_sum([name for _, name in steps])}"
    parts = [
        (f"{path}: " if path else "") + _sum([name for _, name in group])
        for path, group in groupby(steps, key=lambda step: step[0])
    ]
    parts = list(dict.fromkeys(parts))
    return "; ".join(parts[:_MOST]) + ("; ..." if len(parts) > _MOST else "")


def _computing(found: Iterable[Origin]) -> list[Origin]:
    found = list(found)
    return [o for o in found if o.op not in _SILENT] or found


def _function(o: Origin) -> str:
    code = o.provenance[4]
    return o.op.name.lower() if code is None else code.co_name.strip("_")


def _common(paths: Sequence[str]) -> str:
    """The path of the innermost module that all of `paths` are in, or "".

    >>> _common(["h.0.mlp.c_fc", "h.0.mlp"]), _common(["h.0", "ln_f"])
    ('h.0.mlp', '')
    """
    names = []
    for each in zip(*[path.split(".") for path in paths]):
        if len(set(each)) > 1:
            break
        names.append(each[0])
    return ".".join(names)


def _sum(names: Iterable[str]) -> str:
    each = list(dict.fromkeys(names))
    return " + ".join(each[:_MOST]) + (" + ..." if len(each) > _MOST else "")


class Looked:
    """Answers about `SINK(outputs...)`, planned for a device; `fired` are the rules that fired while it was made.

        graph()          the tensor graph, each node with the kernels that compute it
        passes(), of()   what each pass made of the graph, or of one kernel
        kernels()        the launches, why neighbours are two, memory over the launches
        kernel(N)        one launch: its text line by line, and how it is launched

    The studio asks this of a model; a recording keeps the answers for each plan that a program ran.

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


# -- the memory of a plan over its launches, and the launch itself ----------------------------------------------------
# Threads, opts, bindings; and the launches in time, as a trace for ui.perfetto.dev.


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
    for n, each in enumerate(launches):
        phase = str(each["phase"])
        if phase not in lanes:
            lanes[phase] = len(lanes) + 1
            events.append(_named("thread_name", lanes[phase], phase))
        duration = float(each["seconds"]) * 1e6
        events.append(
            {
                "name": each.get("label") or each["name"], "cat": phase, "ph": "X", "ts": at, "dur": duration,
                "pid": 1, "tid": lanes[phase], "args": {"launch": n, **_arguments(each)},
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
