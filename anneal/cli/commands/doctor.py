"""`anneal doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from anneal.cli._flags import AdapterFlag, Json, Quiet

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(
    adapter: AdapterFlag = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every adapter's features and limits.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Say which devices this machine has, and what to do when there is none. Exit code 3: no hardware WebGPU
    adapter.
    """
    from anneal.cli._doctor import doctor as run

    raise typer.Exit(run(adapter=adapter, verbose=verbose, as_json=as_json))
