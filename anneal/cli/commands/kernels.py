"""`anneal kernels`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anneal import settings
from anneal.cli._flags import (
    AdapterFlag,
    Batch,
    DeviceName,
    Json,
    Quiet,
    Step,
    Traceable,
    alone,
    check_traceable,
    check_writable,
    choose_device,
    file,
    switch,
    write_file,
)
from anneal.cli._output import code, data, json_report, kernel_record, message, paged, phase_colours, scaled, table
from anneal.errors import UserError

if TYPE_CHECKING:
    from anneal.inspect import KernelBuffer, KernelCall, KernelText, Line


app = alone()


@app.command()
def kernels(
    model: Traceable,
    step: Step = False,
    batch: Batch = None,
    time: Annotated[bool, switch("--time", "Run the kernels and print their times, slowest first.")] = False,
    device: Annotated[
        DeviceName | None, switch("--device", "Device to plan for; auto: webgpu. With --time: device to run on.")
    ] = None,
    adapter: AdapterFlag = None,
    kernel: Annotated[
        str | None,
        typer.Option("--wgsl", "--kernel", metavar="N|NAME", help="Print one kernel: its buffers, cost and WGSL."),
    ] = None,
    whole: Annotated[bool, switch("--all", "Print every kernel, in a pager on a terminal.")] = False,
    lines: Annotated[
        bool, switch("--lines", "With --wgsl: print the rules, source lines and modules of each line.")
    ] = False,
    line: Annotated[
        str | None,
        typer.Option(metavar="FILE:LINE", help="Only kernels, or lines, that come from this source line."),
    ] = None,
    trace: Annotated[Path | None, file("With --time: write a trace for ui.perfetto.dev.", "FILE.json")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Print the fused kernels of a model as a table: cost, phase, what they compute. --wgsl prints one, --time runs
    them.
    """
    check_traceable(model, step)
    where = None if line is None else _where(line)
    if lines and kernel is None:
        raise UserError("--lines shows one kernel: add --wgsl N")
    if time and (kernel is not None or where is not None or whole):
        raise UserError("--time runs all kernels; leave --wgsl, --all and --line out")
    if trace is not None and not time:
        raise UserError("--trace shows times; add --time")
    changes = choose_device(device, adapter)
    if time:
        with settings.override(**changes):
            _time(model, step, batch, settings.current().device, trace, as_json)
        return
    _show(model, step, batch, str(changes.get("device", "auto")), kernel, whole, lines, where, as_json)


def _show(
    model: str,
    step: bool,
    batch: int | None,
    planned: str,
    kernel: str | None,
    whole: bool,
    lines: bool,
    where: tuple[str, int] | None,
    as_json: bool,
) -> None:
    """Print a table of the kernels that come from the user's line `where`, or all of them; the one called `kernel`, or
    all if `whole`, in full; with `lines` each of its lines with where it comes from.
    """
    from anneal.backend import get_device, planned_cost_model
    from anneal.inspect import c_target, kernel_calls, kernel_text, of_line, traced_model, wgsl_for
    from anneal.schedule import graph as sink_of, origins, plan_for

    traced = traced_model(model, batch)
    told = {"model": model, "step": step, "device": planned}
    sink, cost_model = sink_of(traced.of(step)), planned_cost_model(planned)
    plan, _, _ = plan_for(sink, cost_model)
    number = None if kernel is None else _number(kernel, [call.kernel.name for call in plan.calls])
    if lines and number is not None:
        text = kernel_text(sink, cost_model, number, c_target(planned))
        text = text if where is None else replace(text, lines=tuple(text.of_line(*where)))
        if as_json:
            json_report({**told, **asdict(text)})
        else:
            _print_lines(number, text)
        return
    found = kernel_calls(plan, origins(sink), wgsl_for(get_device("cpu"), plan) if c_target(planned) else None)
    wanted = found if where is None else of_line(found, *where)
    shown = [(n, k) for n, k in enumerate(found) if k in wanted and number in (None, n)]
    if as_json:
        json_report({**told, "kernels": [kernel_record(k) for _, k in shown]})
        return
    if whole or kernel is not None:
        with paged(whole):
            for n, call in shown:
                _print(n, len(found), call)
    else:
        _print_table(shown)
    distinct = len({k.name for _, k in shown})
    data(
        f"{len(shown)} kernel{'s' if len(shown) != 1 else ''}, {distinct} distinct; "
        f"{sum(k.flops for _, k in shown):,} flops, "
        f"{sum(k.bytes for _, k in shown):,} bytes"
    )


def _where(text: str) -> tuple[str, int]:
    """FILE:LINE of the command line. UserError for anything else."""
    file, colon, number = text.rpartition(":")
    if not (file and colon and number.isdecimal()):
        raise UserError(f"--line takes FILE:LINE, such as model.py:12, not {text[:100]!r}")
    return file, int(number)


def _number(kernel: str, names: Sequence[str]) -> int:
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


def _print_lines(number: int, found: KernelText) -> None:
    """Print the WGSL of one kernel, each line with where it comes from."""
    data(f"// ==== kernel {number} {found.name}  {found.label}")
    said = None
    for line in found.lines:
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


def _time(model: str, step: bool, batch: int | None, device: str, trace: Path | None, as_json: bool) -> None:
    """Run the kernels of `model` on a device, each timed, and print what they took, the slowest first.

    `trace` is a file for a trace of it.
    """
    from anneal.backend import get_device
    from anneal.inspect import chrome_trace, kernel_calls, memory_plan, traced_model
    from anneal.runtime.profile import profile
    from anneal.schedule import graph as sink_of, origins, plan_for
    from anneal.uop.sizes import Values

    if trace is not None:
        check_writable(trace)
    opened = get_device(device)
    traced = traced_model(model, batch, opened.name)
    values = Values()
    sink = sink_of(traced.of(step))
    plan, inputs, _ = plan_for(sink, opened.cost_model, values)
    times = profile(plan, opened, inputs, values, often=True)
    adapter = opened.describe().get("adapter")
    found = [
        {
            **kernel_record(kernel),
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


def _print_buffer(word: str, b: KernelBuffer, origin: str) -> None:
    data(f"// {word:6s} {b.buffer}: {b.dtype}[{b.size}]  {origin}")
