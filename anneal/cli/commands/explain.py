"""`anneal explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from anneal.cli._complete import explained, traceable
from anneal.cli._flags import MOST, Batch, Json, PlannedFlag, Quiet, readable
from anneal.errors import UserError

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def explain(
    op: Annotated[
        str | None,
        typer.Argument(
            metavar="OP",
            help="Op of the intermediate language, such as ADD, or Tensor method.",
            autocompletion=explained,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Print the rules that fire for an example model or ONNX file.",
            autocompletion=traceable,
            callback=readable,
        ),
    ] = None,
    step: Annotated[
        bool, typer.Option("--step", help="With --model: a whole training step instead of the forward pass.")
    ] = False,
    batch: Batch = None,
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", min=0, max=MOST, help="With --model: number of rules to print; 0: all."),
    ] = 30,
    device: PlannedFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Print the rewrite rules of an op, or those that fire while a model is compiled: how often, in which passes, for
    which lines and modules. Without either, list the ops.
    """
    from anneal.cli._explain import explain as run
    from anneal.cli._explain import explain_model, list_ops

    if op is not None and model is not None:
        raise UserError("explain takes an OP, or --model MODEL: `anneal explain mul`, `anneal explain --model mlp`")
    if model is not None:
        planned = device.value if device else "auto"
        explain_model(model, step=step, batch=batch, device=planned, limit=limit, as_json=as_json)
        return
    if step or batch is not None or device is not None:
        raise UserError("--step, --batch and --device belong to --model")
    if op is not None:
        run(op, as_json=as_json)
    else:
        list_ops(as_json=as_json)
