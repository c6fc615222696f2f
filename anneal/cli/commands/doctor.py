"""`anneal doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from anneal.cli._flags import AdapterFlag, DeviceFlag, Json, Quiet
from anneal.errors import UserError

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(
    adapter: AdapterFlag = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every adapter's features and limits.")] = False,
    numerics: Annotated[
        bool, typer.Option("--numerics", help="Measure a device's rounding errors: functions, denormals, sums.")
    ] = False,
    device: DeviceFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """List this machine's devices, and say what to do if there is none. Exit code 3: no hardware WebGPU
    adapter.
    """
    from anneal.cli._doctor import doctor as run
    from anneal.cli._doctor import numerics_card

    if numerics:
        raise typer.Exit(numerics_card(device.value if device else None, adapter, as_json=as_json))
    if device is not None:
        raise UserError("--device says whose --numerics to measure; add --numerics")
    raise typer.Exit(run(adapter=adapter, verbose=verbose, as_json=as_json))
