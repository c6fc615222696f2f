"""`anneal onnx`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anneal import settings
from anneal.cli._flags import (
    LAST_SEED,
    MOST_AT_ONCE,
    AdapterFlag,
    Device,
    DeviceFlag,
    Inputs,
    Json,
    Model,
    Quiet,
    Sizes,
    readable,
)
from anneal.cli._groups import Group

__all__ = ["app"]

app = typer.Typer(
    name="onnx",
    cls=Group,
    help="Import, run, check and export ONNX models.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

OnnxFile = Annotated[Path, typer.Argument(metavar="FILE.onnx", help="ONNX model.", callback=readable)]
Bounds = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="NAME=LOW:HIGH", help="Bounds of a symbolic size, for one plan that serves all; or NAME=N."
    ),
]


@app.command("info")
def onnx_info(
    file: OnnxFile,
    size: Sizes = None,
    device: Annotated[Device, typer.Option("--device", help="Device to plan for; none is opened.")] = Device.cpu,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Print inputs, outputs, operators, cost, and what is not supported. Exit code 4: something is not."""
    from anneal.cli._onnx import info

    raise typer.Exit(info(file, sizes=size or (), device=device.value, as_json=as_json))


@app.command("run")
def onnx_run(
    file: OnnxFile,
    input: Inputs = None,
    size: Sizes = None,
    shape: Bounds = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE.npz", help="Write the outputs to this file, by name.")
    ] = None,
    time: Annotated[bool, typer.Option("--time", help="Run repeatedly and print the time of a run.")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, max=LAST_SEED, help="Random seed of inputs.")] = 0,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a model and print its outputs: dtype, shape, the first values."""
    from anneal.cli._choices import choose_device
    from anneal.cli._onnx import Job
    from anneal.cli._onnx import run as run_model

    with settings.override(**choose_device(device.value if device else None, adapter)):
        job = Job(file, input or (), size or (), seed, None, as_json, shape or ())
        run_model(job, output=output, timed=time)


@app.command("check")
def onnx_check(
    file: OnnxFile,
    input: Inputs = None,
    size: Sizes = None,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            metavar="X",
            min=0,
            help="Largest difference allowed, relative to the reference's largest value.",
        ),
    ] = 1e-3,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, max=LAST_SEED, help="Random seed of inputs.")] = 0,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare every node's value with onnxruntime's, or with the onnx package's reference. Exit code 1: one
    differs.
    """
    from anneal.cli._choices import choose_device
    from anneal.cli._onnx import Job, check_model

    with settings.override(**choose_device(device.value if device else None, adapter)):
        job = Job(file, input or (), size or (), seed, None, as_json)
        check_model(job, tolerance=tolerance)


@app.command("export")
def onnx_export(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.onnx", help="File to write.")],
    batch: Annotated[
        int | None,
        typer.Option("--batch", metavar="N", min=1, max=MOST_AT_ONCE, help="Fixed batch size; default: any."),
    ] = None,
    opset: Annotated[
        int, typer.Option("--opset", metavar="N", min=17, max=23, help="Opset version of the operators.")
    ] = 20,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="Trained weights, as `anneal train MODEL --save FILE` writes them.",
            callback=readable,
        ),
    ] = None,
    model_dir: Annotated[
        Path | None, typer.Option("--model-dir", metavar="DIR", help="gpt2: directory of another checkpoint.")
    ] = None,
    scratch: Annotated[bool, typer.Option("--scratch", help="gpt2: a small model with random weights.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Export an example model, in evaluation mode, as an ONNX file."""
    from anneal.cli._export import Order, export_model

    export_model(Order(model, output, batch, opset, weights, model_dir, scratch, as_json))
