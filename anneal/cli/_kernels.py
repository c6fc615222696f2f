"""`anneal kernels`: the kernels a model becomes, each with what crosses its boundary, its cost and its WGSL; or timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anneal.cli._output import data, json_report, message, table
from anneal.cli._trace import trace
from anneal.codegen import fused_ops, generate, kernel_info
from anneal.schedule import Plan, plan_for
from anneal.schedule import graph as sink_of
from anneal.uop import UOp

__all__ = ["kernels", "report", "time_kernels"]


def kernels(model: str, *, step: bool, batch: int | None, device: str, as_json: bool) -> None:
    """Print the kernels of `model`'s forward pass, or of its whole training step."""
    from anneal.backend import planned_cost_model

    traced = trace(model, batch)
    plan, _, _ = plan_for(sink_of(traced.outputs if step else [traced.loss]), planned_cost_model(device))
    found = report(plan)
    if as_json:
        json_report({"model": model, "step": step, "device": device, "kernels": found})
        return
    for number, kernel in enumerate(found):
        _print(number, len(found), kernel)
    distinct = len({k["name"] for k in found})
    data(
        f"{len(found)} kernels, {distinct} distinct; {sum(k['flops'] for k in found):,} flops, "
        f"{sum(k['bytes'] for k in found):,} bytes"
    )


def time_kernels(model: str, *, step: bool, batch: int | None, device: str, as_json: bool) -> None:
    """Run the kernels of `model` on a device, each timed, and print what they took, the dearest first."""
    from anneal.backend import get_device
    from anneal.runtime.profile import profile
    from anneal.uop.sizes import Values

    opened = get_device(device)
    traced = trace(model, batch, opened.name)
    values = Values()
    plan, inputs, _ = plan_for(sink_of(traced.outputs if step else [traced.loss]), opened.cost_model, values)
    times = profile(plan, opened, inputs, values)
    adapter = opened.describe().get("adapter")
    if not as_json:
        message(f"{model} on {opened.name}{f' ({adapter})' if adapter else ''}")
        table(*times.table(), words=5)
        data(times.total())
        return
    found = report(plan, lambda sink: opened.compile(sink).source)
    for record, launch in zip(found, times.launches, strict=True):
        record |= {
            "seconds": launch.seconds,
            "share": launch.seconds / (times.seconds or 1.0),
            "gflops": launch.gflops,
            "gbs": launch.gbs,
            "opts": launch.opts,
        }
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


def report(plan: Plan, source: Callable[[UOp], str] | None = None) -> list[dict[str, Any]]:
    """One record per launch of the plan, in order; equal kernels share their text.

    `source` gives a kernel's text; WGSL for a target with the usual limits if left out.
    """
    source = source or (lambda sink: generate(sink).source)
    writer: dict[int, int] = {}
    texts: dict[UOp, str] = {}
    records = []
    for number, call in enumerate(plan.calls):
        sink = call.kernel.sink
        if sink not in texts:
            texts[sink] = source(sink)
        info = kernel_info(sink)
        reads = [_buffer(plan, v, writer) for v in dict.fromkeys(call.args[call.outputs :])]
        for v in call.args[: call.outputs]:
            writer[v] = number
        records.append(
            {
                "name": call.kernel.name,
                "reads": reads,
                "writes": [_buffer(plan, v, writer) for v in call.args[: call.outputs]],
                "flops": info.flops,
                "bytes": info.bytes_read + info.bytes_written,
                "phase": call.phase,
                "fused": fused_ops(sink),
                "wgsl": texts[sink],
            }
        )
    return records


def _buffer(plan: Plan, number: int, writer: dict[int, int]) -> dict[str, Any]:
    value = plan.values[number]
    return {
        "buffer": f"v{number}",
        "size": value.size,
        "dtype": value.dtype.name,
        "kind": value.kind,
        "kernel": writer.get(number),
    }


def _print(number: int, total: int, kernel: dict[str, Any]) -> None:
    data(f"// ==== kernel {number}/{total} {kernel['name']} ({kernel['phase']}) " + "=" * 40)
    data(f"// fused: {' + '.join(kernel['fused'])}")
    for word in ("reads", "writes"):
        for b in kernel[word]:
            if word == "writes":
                origin = {"output": "a result", "temp": "boundary: for a later kernel"}.get(b["kind"], b["kind"])
            else:
                origin = f"boundary: from kernel {b['kernel']}" if b["kernel"] is not None else "given"
            data(f"// {word:6s} {b['buffer']}: {b['dtype']}[{b['size']}]  {origin}")
    data(f"// {kernel['flops']:,} flops, {kernel['bytes']:,} bytes")
    data(kernel["wgsl"].rstrip())
    data()
