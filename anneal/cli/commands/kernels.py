"""`anneal kernels`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from anneal import settings
from anneal.cli._flags import AdapterFlag, Batch, Device, Json, Quiet, Traceable
from anneal.errors import UserError

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def kernels(
    model: Traceable,
    step: Annotated[bool, typer.Option("--step", help="A whole training step instead of the forward pass.")] = False,
    batch: Batch = None,
    time: Annotated[bool, typer.Option("--time", help="Run the kernels and print their times, slowest first.")] = False,
    device: Annotated[
        Device | None,
        typer.Option(
            "--device",
            help="Device to plan for; auto: webgpu. With --time: device to run on.",
        ),
    ] = None,
    adapter: AdapterFlag = None,
    kernel: Annotated[
        str | None,
        typer.Option("--wgsl", "--kernel", metavar="N|NAME", help="Print one kernel: its buffers, cost and WGSL."),
    ] = None,
    whole: Annotated[bool, typer.Option("--all", help="Print every kernel, in a pager on a terminal.")] = False,
    lines: Annotated[
        bool,
        typer.Option("--lines", help="With --wgsl: print the rules, source lines and modules of each line."),
    ] = False,
    line: Annotated[
        str | None,
        typer.Option("--line", metavar="FILE:LINE", help="Only kernels, or lines, that come from this source line."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE.json", help="With --time: write a trace for ui.perfetto.dev."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Print the fused kernels of a model as a table: cost, phase, what they compute. --wgsl prints one, --time runs
    them.
    """
    from anneal.cli import _kernels as report
    from anneal.cli._choices import choose_device
    from anneal.cli._models import check_traceable

    check_traceable(model, step)
    where = report.line_given(line) if line is not None else None
    if lines and kernel is None:
        raise UserError("--lines shows one kernel: add --wgsl N")
    if time and (kernel is not None or where is not None or whole):
        raise UserError("--time runs all kernels; leave --wgsl, --all and --line out")
    if trace is not None and not time:
        raise UserError("--trace shows times; add --time")
    changes = choose_device(device.value if device else None, adapter)
    planned = str(changes.get("device", "auto"))
    shown: dict[str, Any] = {"step": step, "batch": batch, "as_json": as_json}
    if time:
        with settings.override(**changes):
            report.time_kernels(model, device=settings.current().device, trace=trace, **shown)
    elif lines and kernel is not None:
        report.print_lines(model, kernel, device=planned, where=where, **shown)
    else:
        report.kernels(model, device=planned, kernel=kernel, whole=whole, where=where, **shown)
