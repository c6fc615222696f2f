"""`anneal web`, and `anneal viz`: the studio, and the studio at one graph."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from anneal.cli._flags import NoOpen, alone, argument, check_traceable, openable, option, traceable

app = alone()


@app.command()
def web(
    address: Annotated[str, argument("HOST:PORT, :PORT or PORT; :0: a free port.", "ADDR")] = ":3001",
    host: Annotated[
        str | None,
        option("Accept other machines at this address, with the printed token.", "HOST", "--host"),
    ] = None,
    script: Annotated[
        str | None,
        option("Run this program and show every plan that it runs.", "'FILE.py [ARGS]'", "--script"),
    ] = None,
    snapshot: Annotated[
        str | None,
        option("Write the view at this address to one file, and serve nothing.", "VIEW", "--snapshot"),
    ] = None,
    output: Annotated[Path, option("File that --snapshot writes.", "FILE.html", "-o", "--output")] = Path(
        "anneal.html"
    ),
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
        argument(
            "Example model or ONNX file.",
            "MODEL|FILE.onnx",
            autocompletion=traceable,
            callback=openable,
        ),
    ] = "nanogpt",
    address: Annotated[str, option("HOST:PORT, :PORT or PORT; :0: a free port.", "ADDR", "--address")] = ":0",
    no_open: NoOpen = False,
) -> None:
    """Open the studio at the graph of a model."""
    from anneal.progress import silence
    from anneal.web import Options, serve

    check_traceable(model)
    silence()  # it ends when it is told to
    serve(Options(address, shows=model, opens=not no_open))
