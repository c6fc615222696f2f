"""`anneal viz`."""

from __future__ import annotations

from typing import Annotated

import typer

from anneal.cli._complete import traceable
from anneal.cli._flags import NoOpen, alone, openable

app = alone()


@app.command()
def viz(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|FILE.onnx",
            help="Example model or ONNX file.",
            autocompletion=traceable,
            callback=openable,
        ),
    ] = "nanogpt",
    address: Annotated[
        str, typer.Option("--address", metavar="ADDR", help="HOST:PORT, :PORT or PORT; :0: a free port.")
    ] = ":0",
    no_open: NoOpen = False,
) -> None:
    """Open the studio at the graph of a model."""
    from anneal.cli._choices import check_traceable
    from anneal.progress import silence
    from anneal.web import Options, serve

    check_traceable(model)
    silence()  # it ends when it is told to
    serve(Options(address, shows=model, opens=not no_open))
