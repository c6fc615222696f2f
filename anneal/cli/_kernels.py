"""`anneal kernels`: the kernels a model becomes, as a table; each with what crosses its boundary, its cost and its
WGSL; or timed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from anneal.cli._choices import check_writable, write_file
from anneal.cli._lines import scaled
from anneal.cli._models import traced_model
from anneal.cli._output import code, data, json_report, message, paged, phase_colours, table
from anneal.errors import UserError
from anneal.inspect import (
    Buffer,
    KernelCall,
    Line,
    chrome_trace,
    kernel_calls,
    kernel_text,
    memory_plan,
    of_line,
)
from anneal.schedule import graph as sink_of
from anneal.schedule import origins, plan_for

__all__ = ["kernels", "line_given", "print_lines", "record", "time_kernels"]


def line_given(text: str) -> tuple[str, int]:
    """FILE:LINE of the command line. UserError for anything else."""
    file, colon, number = text.rpartition(":")
    if not (file and colon and number.isdecimal()):
        raise UserError(f"--line takes FILE:LINE, such as model.py:12, not {text[:100]!r}")
    return file, int(number)


def kernels(
    model: str,
    *,
    step: bool,
    batch: int | None,
    device: str,
    as_json: bool,
    kernel: str | None = None,
    whole: bool = False,
    where: tuple[str, int] | None = None,
) -> None:
    """Print a table of the kernels of `model`'s forward pass, or of its whole training step.

    `kernel` is the number or the name of the only one, which is printed whole, as all are if `whole`; `where` the
    user's line that those to print come from.
    """
    from anneal.backend import planned_cost_model

    traced = traced_model(model, batch)
    sink = sink_of(traced.of(step))
    plan, _, _ = plan_for(sink, planned_cost_model(device))
    found = kernel_calls(plan, origins(sink))
    only = None if kernel is None else number_of(kernel, [k.name for k in found])
    wanted = found if where is None else of_line(found, *where)
    shown = [(n, k) for n, k in enumerate(found) if k in wanted and only in (None, n)]
    if as_json:
        json_report({"model": model, "step": step, "device": device, "kernels": [record(k) for _, k in shown]})
        return
    if whole or kernel is not None:
        with paged(whole):
            for number, call in shown:
                _print(number, len(found), call)
    else:
        _print_table(shown)
    distinct = len({k.name for _, k in shown})
    data(
        f"{len(shown)} kernel{'s' if len(shown) != 1 else ''}, {distinct} distinct; "
        f"{sum(k.flops for _, k in shown):,} flops, "
        f"{sum(k.bytes for _, k in shown):,} bytes"
    )


def number_of(kernel: str, names: Sequence[str]) -> int:
    """The number of the launch that the command line means by `kernel`: a number, or a name or its unique beginning.

    UserError for what the plan does not have.
    """
    if kernel.isdecimal():
        if int(kernel) < len(names):
            return int(kernel)
        raise UserError(f"there is no kernel {kernel}: the plan has {len(names)}, from 0 to {len(names) - 1}")
    meant = sorted({name for name in names if name.startswith(kernel)})
    if len(meant) == 1:
        return names.index(meant[0])
    near = f"several are: {', '.join(meant[:3])}" if meant else f"the plan has {names[0]} and others: see the table"
    raise UserError(f"there is no kernel {kernel[:100]!r}: {near}")


def print_lines(
    model: str,
    kernel: str,
    *,
    step: bool,
    batch: int | None,
    device: str,
    where: tuple[str, int] | None,
    as_json: bool,
) -> None:
    """Print the WGSL of one kernel of `model`, by number or name, each line with where it comes from."""
    from anneal.backend import planned_cost_model

    traced = traced_model(model, batch)
    sink, cost_model = sink_of(traced.of(step)), planned_cost_model(device)
    number = number_of(kernel, [call.kernel.name for call in plan_for(sink, cost_model)[0].calls])
    found = kernel_text(sink, cost_model, number)
    wanted = found.lines if where is None else tuple(found.of_line(*where))
    if as_json:
        json_report({"model": model, "step": step, "device": device, **asdict(replace(found, lines=wanted))})
        return
    data(f"// ==== kernel {number} {found.name}  {found.label}")
    said = None
    for line in wanted:
        origin = [x for x in (_shown(line.lines), ", ".join(line.modules[:3])) if x]
        if line.ops and (line.ops, origin, line.rules, line.passes) != said:
            data(f"    // {', '.join(line.ops[-3:])}: {'  '.join(origin)}")
            for rule in line.rules[:2]:
                data(f"    //   by {rule}")
            if len(line.rules) > 2:
                data(f"    //   and {len(line.rules) - 2} rules before")
            if line.passes:
                data(f"    //   made in {', '.join(line.passes)}")
            said = (line.ops, origin, line.rules, line.passes)
        data(f"{line.number:4d} {line.text}")


def time_kernels(model: str, *, step: bool, batch: int | None, device: str, trace: Path | None, as_json: bool) -> None:
    """Run the kernels of `model` on a device, each timed, and print what they took, the slowest first.

    `trace` is a file for a trace of it.
    """
    from anneal.backend import get_device
    from anneal.runtime.profile import profile
    from anneal.uop.sizes import Values

    if trace is not None:
        check_writable(trace)
    opened = get_device(device)
    traced = traced_model(model, batch, opened.name)
    values = Values()
    sink = sink_of(traced.of(step))
    plan, inputs, _ = plan_for(sink, opened.cost_model, values)
    times = profile(plan, opened, inputs, values)
    adapter = opened.describe().get("adapter")
    found = [
        {
            **record(kernel),
            "seconds": launch.seconds,
            "low": launch.time.low,
            "high": launch.time.high,
            "share": launch.share,
            "gflops": launch.gflops,
            "gbs": launch.gbs,
            "opts": launch.opts,
        }
        for kernel, launch in zip(
            kernel_calls(plan, origins(sink), lambda kernel: opened.compile(kernel).source), times.launches, strict=True
        )
    ]
    if trace is not None:
        events = chrome_trace(model, found, str(adapter or opened.name), memory_plan(plan).live)
        write_file(trace, json.dumps(events).encode())
        message(f"wrote {trace}; open it at https://ui.perfetto.dev")
    if not as_json:
        message(f"{model} on {opened.name}{f' ({adapter})' if adapter else ''}")
        table(*times.table(), words=6)
        data(times.total())
        for reason in times.times.reasons():
            message(reason)
        return
    json_report(
        {
            "model": model,
            "step": step,
            "device": opened.name,
            "adapter": adapter,
            "seconds": times.seconds,
            "plan_seconds": times.plan_seconds,
            "times": times.times.summary(),
            "kernels": found,
        }
    )


def record(kernel: KernelCall) -> dict[str, Any]:
    """A launch as `--json` and run bundles have it."""
    found = asdict(kernel)
    found["wgsl"] = found.pop("text")
    return found


def _print_table(shown: Sequence[tuple[int, KernelCall]]) -> None:
    """A row for each distinct kernel of a phase, in the order of their first launches, as many as a screen has."""
    same: dict[tuple[str, str], list[tuple[int, KernelCall]]] = {}
    for n, k in shown:
        same.setdefault((k.phase, k.name), []).append((n, k))
    fits = max(shutil.get_terminal_size((80, 45)).lines - 5, 10)
    left = len(same) - fits
    rows, colours, painted = [], [], phase_colours()
    for calls in list(same.values())[: fits if left > 1 else None]:
        n, k = calls[0]
        cost = [scaled(sum(k.flops for _, k in calls)), scaled(sum(k.bytes for _, k in calls))]
        rows.append([str(n), str(len(calls)), *cost, k.phase, k.label, k.name])
        colours.append(painted.get(k.phase, ""))
    table(["kernel", "calls", "flops", "bytes", "phase", "what it computes", "name"], rows, words=4, colours=colours)
    if left > 1:
        data(f"... and {left} more rows: --all prints everything, --json too")


def _print(number: int, total: int, kernel: KernelCall) -> None:
    data(f"// ==== kernel {number}/{total} {kernel.name} ({kernel.phase}) " + "=" * 40)
    data(f"// {kernel.label}" + (f"  [{_shown(kernel.lines)}]" if kernel.lines else ""))
    data(f"// fused: {' + '.join(kernel.fused)}")
    for b in kernel.reads:
        _print_buffer("reads", b, f"boundary: from kernel {b.kernel}" if b.kernel is not None else "given")
    for b in kernel.writes:
        origin = {"output": "a result", "temp": "boundary: for a later kernel"}.get(b.kind, b.kind)
        _print_buffer("writes", b, origin)
    data(f"// {kernel.flops:,} flops, {kernel.bytes:,} bytes")
    code(kernel.text.rstrip(), "wgsl")
    data()


def _shown(lines: Sequence[Line], most: int = 3) -> str:
    return ", ".join(map(str, lines[:most])) + (", ..." if len(lines) > most else "")


def _print_buffer(word: str, b: Buffer, origin: str) -> None:
    data(f"// {word:6s} {b.buffer}: {b.dtype}[{b.size}]  {origin}")
