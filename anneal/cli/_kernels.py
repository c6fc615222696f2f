"""`anneal kernels`: the kernels a model becomes, each with what crosses its boundary, its cost and its WGSL."""

from __future__ import annotations

from collections import Counter
from typing import Any

from anneal.cli._output import data, json_report
from anneal.cli._trace import trace
from anneal.codegen import generate, kernel_info
from anneal.schedule import Plan, Policy, plan_for
from anneal.schedule import graph as sink_of
from anneal.uop import ALU, Op, UOp, toposort

__all__ = ["fused_ops", "kernels", "report"]

_FREE = frozenset((Op.CAST, Op.BITCAST, Op.WHERE))


def kernels(model: str, *, step: bool, batch: int | None, device: str, as_json: bool) -> None:
    """Print the kernels of `model`'s forward pass, or of its whole training step."""
    traced = trace(model, batch)
    plan, _, _ = plan_for(sink_of(traced.outputs if step else [traced.loss]), _policy(device))
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


def _policy(device: str) -> Policy:
    """The fusion policy of the cpu device, or of an adapter whose storage buffers are no limit."""
    from anneal.backend import get_device
    from anneal.tensor.execution import gpu_policy, policy_for

    return policy_for(get_device("cpu")) if device == "cpu" else gpu_policy()


def report(plan: Plan) -> list[dict[str, Any]]:
    """One record per launch of the plan, in order; equal kernels share their text."""
    writer: dict[int, int] = {}
    texts: dict[UOp, str] = {}
    records = []
    for number, call in enumerate(plan.calls):
        sink = call.kernel.sink
        if sink not in texts:
            texts[sink] = generate(sink).source
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


def fused_ops(sink: UOp) -> list[str]:
    """What was fused into the kernel, sources first: "matmul" or a reduction's name, gathers, elementwise ops."""
    counts: Counter[str] = Counter()
    reads: dict[UOp, bool] = {}  # whether a value depends on memory
    for u in toposort((sink,)):
        reads[u] = u.op is Op.LOAD or any(reads[x] for x in u.src)
        if u.op is Op.REDUCE:
            product = u.arg is Op.ADD and u.src[0].op is Op.MUL and all(_is_load(x) for x in u.src[0].src)
            counts["matmul" if product else "sum" if u.arg is Op.ADD else u.arg.name.lower()] += 1
        elif u.op is Op.LOAD and reads[u.src[1]]:
            counts["gather"] += 1
        elif u.op is Op.ARGSORT:
            counts["argsort"] += 1
        elif _is_arithmetic(u):
            counts[u.op.name.lower()] += 1
    return [name if n == 1 else f"{name} x{n}" for name, n in counts.items()] or ["copy"]


def _is_arithmetic(u: UOp) -> bool:
    return u.op in ALU and u.op not in _FREE and (u.dtype.is_float or (bool(u.src) and u.src[0].dtype.is_float))


def _is_load(u: UOp) -> bool:
    while u.op is Op.CAST:
        u = u.src[0]
    return u.op is Op.LOAD


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
