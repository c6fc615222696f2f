"""The launches of a plan as values: boundaries, cost, text, and a name for people with the user's modules and lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, takewhile
from pathlib import PurePath
from typing import Any

from anneal import cache
from anneal.backend import AnyDevice, get_device
from anneal.codegen import Target, fused_ops, generate, kernel_info
from anneal.errors import AnnealError
from anneal.frozen import Texts, frozen
from anneal.progress import told
from anneal.schedule import CostModel, Origin, Plan, refused
from anneal.uop import MOVEMENT, Ints, Op, UOp

_WORTH = 0.005  # seconds of code generation below which the texts are not worth a file


@frozen
class KernelBuffer:
    """A value of a plan as one launch sees it. `kernel` is the launch that wrote it last, None for what is given."""

    buffer: str
    size: int
    dtype: str
    kind: str  # "input", "output" or "temp"
    kernel: int | None


@frozen
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
    fused: Texts
    text: str
    label: str
    lines: Lines
    modules: Texts
    functions: Texts
    nodes: Ints


def kernel_calls(plan: Plan, origins: Sequence[Origin], text: Callable[[UOp], str] | None = None) -> list[KernelCall]:
    """One record per launch of the plan, in order; equal kernels share their text.

    `origins` is what `anneal.schedule.origins` says of the graph that was planned. `text` gives a kernel's text; WGSL
    for a target with the usual limits if left out, or a comment where a dtype has none. The WGSL of a plan is kept on
    disk, so that a second process generates none.
    """
    text = text or _kept_wgsl(plan, Target())
    writer: dict[int, int] = {}
    texts = {}
    records = []
    for number, call in enumerate(plan.calls):
        sink = call.kernel.sink
        if sink not in texts:
            texts[sink] = text(sink)
        info = kernel_info(sink)
        found = placed(call.places, origins)
        reads = tuple(_buffer(plan, v, writer) for v in dict.fromkeys(call.args[call.outputs :]))
        for v in call.args[: call.outputs]:
            writer[v] = number
        records.append(
            KernelCall(
                name=call.kernel.name,
                reads=reads,
                writes=tuple(_buffer(plan, v, writer) for v in call.args[: call.outputs]),
                flops=info.flops,
                bytes=info.bytes_read + info.bytes_written,
                phase=call.phase,
                fused=tuple(fused_ops(sink)),
                text=texts[sink],
                label=label_of(found),
                lines=lines_of(found),
                modules=modules_of(found),
                functions=tuple(dict.fromkeys(_function(o) for o in _computing(found))),
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


@frozen
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
        texts = {k: _wgsl(sink, target) for k, sink in told(kernels.items(), "generating kernels")}
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


@frozen
class Line:
    """A line of the user's code: its file, its number, and the function that it stands in."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{PurePath(self.file).name}:{self.line}"


Lines = tuple[Line, ...]


def placed(places: Iterable[int], origins: Sequence[Origin]) -> list[Origin]:
    """The origins at `places`, sources first; those that are made of memory, if there are any."""
    found = [origins[at] for at in sorted(places)]
    return [o for o in found if o.grounded] or found


def lines_of(found: Iterable[Origin | UOp]) -> Lines:
    """The user's lines, each once."""
    lines = [(code, line) for _, code, line, _, _ in [o.provenance for o in found] if code is not None]
    return tuple(dict.fromkeys(Line(code.co_filename, line, code.co_qualname) for code, line in lines))


def modules_of(found: Iterable[Origin | UOp]) -> Texts:
    """The paths of the modules that were called, each once, from the module that was called first: "h.0.mlp"."""
    return tuple(dict.fromkeys(o.provenance[3] for o in found if o.provenance[3]))


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
    groups = groupby(steps, key=lambda step: step[0])
    parts = [(f"{path}: " if path else "") + _sum([name for _, name in group]) for path, group in groups]
    return _sum(parts, "; ")


def _computing(found: Iterable[Origin]) -> list[Origin]:
    found = list(found)
    return [o for o in found if o.op not in _SILENT] or found


def _function(o: Origin) -> str:
    """The function of anneal that the user or a module called; an op's name where there is none."""
    code = o.provenance[4]
    return o.op.name.lower() if code is None else code.co_name.strip("_")


def _common(paths: Sequence[str]) -> str:
    """The path of the innermost module that all of `paths` are in, or "".

    >>> _common(["h.0.mlp.c_fc", "h.0.mlp"]), _common(["h.0", "ln_f"])
    ('h.0.mlp', '')
    """
    same = takewhile(lambda names: len({*names}) == 1, zip(*[path.split(".") for path in paths]))
    return ".".join(names[0] for names in same)


def _sum(names: Iterable[str], between: str = " + ") -> str:
    each = list(dict.fromkeys(names))
    return between.join([*each[:_MOST], *["..."] * (len(each) > _MOST)])
