"""`anneal record`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anneal import settings
from anneal.cli._flags import AdapterFlag, DeviceFlag, Json, Quiet

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(context_settings={"ignore_unknown_options": True})
def record(
    context: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT.py", help="Python program to run.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of SCRIPT.py.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE.zip", help="Save the recording to this file; the studio opens it."
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE.json", help="Write the times as a trace for ui.perfetto.dev."),
    ] = None,
    plans: Annotated[
        int,
        typer.Option(
            "--plans", metavar="N", min=1, max=4096, help="Number of plans to keep; further ones are counted."
        ),
    ] = 64,
    no_times: Annotated[bool, typer.Option("--no-times", help="Do not time kernels.")] = False,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a script and list every plan that it runs: kernels, nodes, times, source line; with -o all that the studio
    shows of them.
    """
    from anneal.cli._choices import choose_device, refuse_option
    from anneal.cli._record import Task
    from anneal.cli._record import record as run

    refuse_option(context, script)
    with settings.override(**choose_device(device.value if device else None, adapter)):
        run(Task(script, arguments or (), output, trace, plans, not no_times, as_json))
