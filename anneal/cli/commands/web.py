"""`anneal web`, and `anneal viz`: the studio, and the studio at one graph."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from anneal.cli._flags import NoOpen, alone, openable, traceable

app = alone()


@app.command()
def web(
    address: Annotated[
        str, typer.Argument(metavar="ADDR", help="HOST:PORT, :PORT or PORT; :0: a free port.")
    ] = ":3001",
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="HOST", help="Accept other machines at this address, with the printed token."),
    ] = None,
    script: Annotated[
        str | None,
        typer.Option("--script", metavar="'FILE.py [ARGS]'", help="Run this program and show every plan that it runs."),
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot", metavar="VIEW", help="Write the view at this address to one file, and serve nothing."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE.html", help="File that --snapshot writes.")
    ] = Path("anneal.html"),
    no_open: NoOpen = False,
) -> None:
    """Serve the studio to this machine's browser: graphs, kernels, rules, training, generation, history, devices."""
    from anneal.progress import silence
    from anneal.web import Options, save, serve

    if snapshot is not None:
        from anneal.cli._output import message

        save(snapshot, output)
        message(f"wrote {output}")
        return
    run = [] if script is None else [script] if Path(script).is_file() else shlex.split(script)
    silence()  # it ends when it is told to
    serve(Options(address, host, opens=not no_open, script=run))


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
    from anneal.cli._flags import check_traceable
    from anneal.progress import silence
    from anneal.web import Options, serve

    check_traceable(model)
    silence()  # it ends when it is told to
    serve(Options(address, shows=model, opens=not no_open))
