"""`anneal kernels`: the kernels a model becomes, each with what crosses its boundary, its cost and its WGSL;
or timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from anneal.cli._models import traced_model
from anneal.cli._output import data, json_report, message, table
from anneal.inspect import Buffer, KernelCall, Line, kernel_calls
from anneal.schedule import graph as sink_of
from anneal.schedule import origins, plan_for

__all__ = ["kernels", "record", "time_kernels"]


def kernels(model: str, *, step: bool, batch: int | None, device: str, as_json: bool) -> None:
    """Print the kernels of `model`'s forward pass, or of its whole training step."""
    from anneal.backend import planned_cost_model

    traced = traced_model(model, batch)
    sink = sink_of(traced.outputs if step else [traced.loss])
    plan, _, _ = plan_for(sink, planned_cost_model(device))
    found = kernel_calls(plan, origins(sink))
    if as_json:
        json_report({"model": model, "step": step, "device": device, "kernels": [record(k) for k in found]})
        return
    for number, kernel in enumerate(found):
        _print(number, len(found), kernel)
    distinct = len({k.name for k in found})
    data(
        f"{len(found)} kernels, {distinct} distinct; {sum(k.flops for k in found):,} flops, "
        f"{sum(k.bytes for k in found):,} bytes"
    )


def time_kernels(model: str, *, step: bool, batch: int | None, device: str, as_json: bool) -> None:
    """Run the kernels of `model` on a device, each timed, and print what they took, the dearest first."""
    from anneal.backend import get_device
    from anneal.runtime.profile import profile
    from anneal.uop.sizes import Values

    opened = get_device(device)
    traced = traced_model(model, batch, opened.name)
    values = Values()
    sink = sink_of(traced.outputs if step else [traced.loss])
    plan, inputs, _ = plan_for(sink, opened.cost_model, values)
    times = profile(plan, opened, inputs, values)
    adapter = opened.describe().get("adapter")
    if not as_json:
        message(f"{model} on {opened.name}{f' ({adapter})' if adapter else ''}")
        table(*times.table(), words=5)
        data(times.total())
        return
    found = [
        {
            **record(kernel),
            "seconds": launch.seconds,
            "share": launch.seconds / (times.seconds or 1.0),
            "gflops": launch.gflops,
            "gbs": launch.gbs,
            "opts": launch.opts,
        }
        for kernel, launch in zip(
            kernel_calls(plan, origins(sink), lambda kernel: opened.compile(kernel).source), times.launches, strict=True
        )
    ]
    json_report(
        {
            "model": model,
            "step": step,
            "device": opened.name,
            "adapter": adapter,
            "seconds": times.seconds,
            "plan_seconds": times.plan_seconds,
            "kernels": found,
        }
    )


def record(kernel: KernelCall) -> dict[str, Any]:
    """A launch as `--json` and run bundles have it."""
    found = asdict(kernel)
    found["wgsl"] = found.pop("text")
    return found


def _print(number: int, total: int, kernel: KernelCall) -> None:
    data(f"// ==== kernel {number}/{total} {kernel.name} ({kernel.phase}) " + "=" * 40)
    data(f"// {kernel.label}  [{_shown(kernel.lines)}]")
    data(f"// fused: {' + '.join(kernel.fused)}")
    for b in kernel.reads:
        _print_buffer("reads", b, f"boundary: from kernel {b.kernel}" if b.kernel is not None else "given")
    for b in kernel.writes:
        origin = {"output": "a result", "temp": "boundary: for a later kernel"}.get(b.kind, b.kind)
        _print_buffer("writes", b, origin)
    data(f"// {kernel.flops:,} flops, {kernel.bytes:,} bytes")
    data(kernel.text.rstrip())
    data()


def _shown(lines: Sequence[Line], most: int = 3) -> str:
    return ", ".join(map(str, lines[:most])) + (", ..." if len(lines) > most else "")


def _print_buffer(word: str, b: Buffer, origin: str) -> None:
    data(f"// {word:6s} {b.buffer}: {b.dtype}[{b.size}]  {origin}")
