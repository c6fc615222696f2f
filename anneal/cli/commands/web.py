"""`anneal web`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def web(
    address: Annotated[
        str, typer.Argument(metavar="ADDR", help="HOST:PORT, :PORT or PORT; :0 takes a free port.")
    ] = ":3001",
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="HOST", help="Let others in at this address, with the token that is printed."),
    ] = None,
    script: Annotated[
        str | None,
        typer.Option(
            "--script", metavar="'FILE.py [ARGS]'", help="Run this program, and show every plan that it runs."
        ),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
) -> None:
    """Serve the studio to this machine's browser: graphs, kernels, rules, training, generation, history, devices."""
    from anneal.progress import silence
    from anneal.web import Options, serve

    run = [] if script is None else [script] if Path(script).is_file() else shlex.split(script)
    silence()  # it ends when it is told to
    serve(Options(address, host, opens=not no_open, script=run))
