"""`anneal graph`."""

from __future__ import annotations

from typing import Annotated

import typer

from anneal.cli._complete import passes
from anneal.cli._flags import MOST, Batch, Json, PlannedFlag, Quiet, Traceable
from anneal.errors import UserError

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def graph(
    model: Traceable,
    batch: Batch = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, max=MOST, help="Number of nodes to print; 0: all.")
    ] = 60,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="PASS",
            help="Print the result of the compiler's passes up to PASS.",
            autocompletion=passes,
        ),
    ] = None,
    kernel: Annotated[
        int | None,
        typer.Option("--kernel", metavar="N", min=0, max=MOST, help="With --until: the passes of kernel N."),
    ] = None,
    device: PlannedFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Print the graph of one training step: its nodes, and their number by phase and op; or the result of a pass."""
    from anneal.cli._graph import graph as run
    from anneal.cli._graph import graph_after

    if until is not None:
        graph_after(
            model, until, kernel=kernel, batch=batch, device=device.value if device else "auto", as_json=as_json
        )
        return
    if kernel is not None:  # the graph is the same on every device
        raise UserError("--kernel belongs to --until PASS")
    run(model, batch=batch, limit=limit, as_json=as_json)
