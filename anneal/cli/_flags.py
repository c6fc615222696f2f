"""The flags that commands share, and the ways in which a command is made of them.

A command with many flags is a dataclass of them, a line each, and a function that takes it: `command` makes a command
of the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from anneal.cli._complete import models, traceable

Run = TypeVar("Run", bound=Callable[[Any], int | None])


class CommandGroup(TyperGroup):
    """A group that lists its commands with their whole first sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list, folded where it is too wide."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, c.get_short_help_str(1000)) for name, c in commands if c is not None])


class ModelCommand(TyperCommand):
    """A command whose help lists the models of examples/."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the models before the options."""
        from anneal.training import MODELS

        with formatter.section("Models"):
            formatter.write_dl(list(MODELS.items()))
        super().format_options(ctx, formatter)


def alone() -> typer.Typer:
    """The app of a file with one command."""
    return typer.Typer(add_completion=False, rich_markup_mode=None)


def group(name: str, about: str) -> typer.Typer:
    """The app of a file with a group of commands."""
    return typer.Typer(
        name=name, cls=CommandGroup, help=about, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )


def command(app: typer.Typer, flags: type, name: str | None = None, **how: Any) -> Callable[[Run], Run]:
    """Make a command of a function: its flags are the fields of the dataclass `flags`, and what it returns is the exit
    code.
    """

    def take(run: Run) -> Run:
        def called(**given: Any) -> None:
            raise typer.Exit(run(flags(**given)) or 0)

        hints = get_type_hints(flags, include_extras=True)
        fields = inspect.signature(flags).parameters.values()
        parameters = [p.replace(annotation=hints[p.name]) for p in fields]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__, called.__doc__ = {p.name: p.annotation for p in parameters}, run.__doc__
        app.command(name or run.__name__, **how)(called)
        return run

    return take


class DeviceName(StrEnum):
    """The values of --device."""

    auto = "auto"
    cpu = "cpu"
    webgpu = "webgpu"


def _hush(value: bool) -> None:
    if value:
        from anneal.cli._output import be_quiet

        be_quiet()


def openable(context: typer.Context, value: Any) -> Any:
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


# The most that a flag takes: more is a slip of the keyboard, and would end as one deep in NumPy.
MOST, MOST_AT_ONCE, LAST_SEED = 10**9, 1 << 20, 2**63 - 1


def number(about: str, least: int = 1, most: int = MOST) -> Any:
    """The option for a whole number, named as its field is."""
    return typer.Option(metavar="N", min=least, max=most, help=about)


def seed(of: str) -> Any:
    """The option for a random seed."""
    return number(f"Random seed of {of}.", 0, LAST_SEED)


def file(about: str, metavar: str = "FILE", **how: Any) -> Any:
    """The option for a file, named as its field is."""
    return typer.Option(metavar=metavar, help=about, **how)


def switch(name: str, about: str) -> Any:
    """The option that is there or not."""
    return typer.Option(name, help=about)


Quiet = Annotated[bool, typer.Option("--quiet", callback=_hush, help="Print only results and errors, no progress.")]
Json = Annotated[bool, switch("--json", "Print JSON instead of text.")]
NoOpen = Annotated[bool, switch("--no-open", "Do not open a browser.")]
DeviceFlag = Annotated[DeviceName | None, switch("--device", "Device to run on; default: ANNEAL_DEVICE, else auto.")]
AdapterFlag = Annotated[
    str | None, typer.Option("--adapter", metavar="NAME", help="WebGPU adapter whose name contains NAME.")
]
PlannedFlag = Annotated[DeviceName | None, switch("--device", "Device to plan for; auto: webgpu. No device is opened.")]
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
        callback=openable,
    ),
]
Script = Annotated[str, typer.Argument(metavar="SCRIPT.py", help="Python program to run.")]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of SCRIPT.py.")]
Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="Text to continue.")]
Batch = Annotated[int | None, number("Batch size; default: the example's.", most=MOST_AT_ONCE)]
Step = Annotated[bool, switch("--step", "A whole training step instead of the forward pass.")]
Temperature = Annotated[float, typer.Option(metavar="X", help="Sampling temperature; lower is less random.")]
Weights = Annotated[
    Path | None, file("Trained weights, as `anneal train MODEL --save FILE` writes them.", callback=openable)
]
Scratch = Annotated[bool, switch("--scratch", "gpt2: a small model with random weights.")]
Plain = Annotated[bool, switch("--plain", "Print plain lines, even on a terminal.")]
Record = Annotated[Path | None, file("Save a recording of the generation for the studio.", "FILE.zip")]
Trace = Annotated[Path | None, file("Write the times as a trace for ui.perfetto.dev.", "FILE.json")]
Download = Annotated[
    bool,
    switch("--download", "Download CIFAR-10 (170 MB) without asking; without it, generated shapes are used."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=FILE.npy",
        help="Values of an input; NAME=random or no value: random.",
        callback=openable,
    ),
]
Sizes = Annotated[
    list[str] | None, typer.Option("--size", metavar="NAME=N", help="Value of a symbolic size; default: 1.")
]
