"""`anneal check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anneal import settings
from anneal.cli._complete import runnable
from anneal.cli._flags import LAST_SEED, MOST, AdapterFlag, Batch, DeviceFlag, Inputs, Json, Quiet, Sizes, readable
from anneal.errors import UserError

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL|FILE.onnx|SCRIPT.py",
        help="Example model, ONNX file, or your program.",
        autocompletion=runnable,
        callback=readable,
    ),
]
Elements = Annotated[
    int,
    typer.Option(
        "--elements",
        metavar="N",
        min=64,
        max=MOST,
        help="Elements compared per store of a kernel; beyond N, a random sample.",
    ),
]


@app.command(context_settings={"ignore_unknown_options": True})
def check(
    context: typer.Context,
    target: Target = None,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of SCRIPT.py.")] = None,
    step: Annotated[
        bool, typer.Option("--step", help="Check a whole training step instead of the forward pass.")
    ] = False,
    batch: Batch = None,
    gradients: Annotated[
        bool, typer.Option("--gradients", help="Compare gradients with finite differences in float64, too.")
    ] = False,
    input: Inputs = None,
    size: Sizes = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, max=LAST_SEED, help="Random seed of weights and inputs.")
    ] = 1,
    times: Annotated[
        int,
        typer.Option("--times", metavar="N", min=1, max=MOST, help="How many runs of each plan are checked."),
    ] = 2,
    elements: Elements = 1 << 21,
    repro: Annotated[
        Path | None, typer.Option("--repro", metavar="FILE", help="Write the first kernel that differs to FILE.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option("--replay", metavar="FILE", help="Run the kernel that --repro wrote to FILE.", callback=readable),
    ] = None,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare kernels with their graphs, and values with the graph as it was written, in float64. Exit code 1: one
    differs, a result is nan or overflows, or nothing could be compared.
    """
    from anneal.cli._check import Task
    from anneal.cli._check import check as run
    from anneal.cli._check import replay as run_again
    from anneal.cli._choices import choose_device, refuse_option

    for text in (target, *(arguments or ())[: 0 if (target or "").endswith(".py") else None]):
        refuse_option(context, text)
    if (target is None) == (replay is None):
        raise UserError("check takes a MODEL, a FILE.onnx or a SCRIPT.py, or --replay FILE")
    with settings.override(**choose_device(device.value if device else None, adapter)):
        if replay is not None:
            run_again(replay, as_json=as_json)
        elif target is not None:
            run(
                Task(
                    target=target, arguments=arguments or (), step=step, batch=batch, inputs=input or (),
                    sizes=size or (), seed=seed, gradients=gradients, times=times, most=elements, repro=repro,
                    as_json=as_json,
                )
            )  # fmt: skip
