"""Arguments and options that several commands take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from anneal.cli._complete import models, traceable

__all__ = [
    "LAST_SEED",
    "MOST",
    "MOST_AT_ONCE",
    "AdapterFlag",
    "Batch",
    "Device",
    "DeviceFlag",
    "Download",
    "Inputs",
    "Json",
    "Model",
    "NoOpen",
    "PlannedFlag",
    "Quiet",
    "Record",
    "Sizes",
    "Traceable",
    "readable"
]  # fmt: skip


class Device(StrEnum):
    """The values of --device."""

    auto = "auto"
    cpu = "cpu"
    webgpu = "webgpu"


def _hush(value: bool) -> None:
    if value:
        from anneal.cli._output import be_quiet

        be_quiet()


def readable(context: typer.Context, value: Any) -> Any:
    """An argument that may name a file; DataError now for one that cannot be opened: what reads it takes a second to
    be imported. Texts name one if they end with .onnx, those of a list behind an equals sign.
    """
    named = [t.rpartition("=")[2] for t in value or () if "=" in t] if isinstance(value, (list, tuple)) else [value]
    for x in () if context.resilient_parsing else named:
        if x and (named[0] is not value or isinstance(x, Path) or x.endswith(".onnx")) and x != "random":
            from anneal.errors import DataError
            from anneal.files import opened

            try:
                opened(x).close()
            except OSError as e:
                raise DataError(f"{x} cannot be read: {e.strerror or e}") from None
    return value


Quiet = Annotated[bool, typer.Option("--quiet", callback=_hush, help="Print only results and errors, no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")]
DeviceFlag = Annotated[
    Device | None, typer.Option("--device", help="Device to run on; default: ANNEAL_DEVICE, else auto.")
]
AdapterFlag = Annotated[
    str | None, typer.Option("--adapter", metavar="NAME", help="WebGPU adapter whose name contains NAME.")
]
PlannedFlag = Annotated[
    Device | None,
    typer.Option("--device", help="Device to plan for; auto: webgpu. No device is opened."),
]
Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="Example model; `anneal train --help` lists them.", autocompletion=models),
]
Traceable = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Example model (`anneal train --help`) or ONNX file.",
        autocompletion=traceable,
        callback=readable,
    ),
]
# The most that a flag takes: more is a slip of the keyboard, and would end as one deep in NumPy.
MOST, MOST_AT_ONCE, LAST_SEED = 10**9, 1 << 20, 2**63 - 1
Batch = Annotated[
    int | None,
    typer.Option("--batch", metavar="N", min=1, max=MOST_AT_ONCE, help="Batch size; default: the example's."),
]

Record = Annotated[
    Path | None,
    typer.Option("--record", metavar="FILE.zip", help="Save a recording of the generation for the studio."),
]

Download = Annotated[
    bool,
    typer.Option(
        "--download", help="Download CIFAR-10 (170 MB) without asking; without it, generated shapes are used."
    ),
]

Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=FILE.npy",
        help="Values of an input; NAME=random or no value: random.",
        callback=readable,
    ),
]
Sizes = Annotated[
    list[str] | None, typer.Option("--size", metavar="NAME=N", help="Value of a symbolic size; default: 1.")
]
