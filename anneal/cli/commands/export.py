"""`anneal export`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from anneal.cli._flags import Json, Quiet, Sizes, Weights, alone, command, switch
from anneal.cli._output import data, json_report, message
from anneal.cli.commands._recipes import Labels, Steps, Train, What, of_user, recipe_of
from anneal.errors import SettingError
from anneal.runtime import Context

app = alone()


class Stored(StrEnum):
    """The values of --store."""

    f32 = "f32"
    f16 = "f16"
    int8 = "int8"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The flags of `anneal export`."""

    model: What
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write, or FILE.html.")]
    single_file: Annotated[bool, switch("--single-file", "One HTML file with all in it, below 30 MB.")] = False
    train: Train = False
    profiles: Annotated[
        list[str] | None,
        typer.Option(
            "--for", metavar="PROFILE", help="Variants for richer adapters, beside browser: desktop, m1, adreno."
        ),
    ] = None
    store: Annotated[
        Stored, typer.Option("--store", metavar="FORM", help="Numbers in the file of weights: f32, f16 or int8.")
    ] = Stored.f32
    steps: Steps = 0
    weights: Weights = None
    size: Sizes = None
    labels: Labels = None
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the page.")] = None
    quiet: Quiet = False
    as_json: Json = False


@command(app, ExportOptions)
def export(order: ExportOptions) -> None:
    """Write a model as a web page that runs it in any browser."""
    from anneal.pages import DEFAULT, export as write, page_device, profile

    wanted = (*[p for p in order.profiles or () if p not in DEFAULT], *DEFAULT)  # the plainest is always there
    for p in wanted:
        profile(p)
    if order.output.suffix == ".onnx":
        raise SettingError(
            f"export writes web pages; for an ONNX file: anneal onnx export {order.model} -o {order.output}"
        )
    if order.single_file != (order.output.suffix == ".html"):
        raise SettingError("--single-file writes FILE.html, and without it a folder is written; change one of the two")
    with Context(page_device()), of_user(order.model):
        recipe = recipe_of(order.model, order.train, order.steps, order.weights, order.size, order.labels)
        made = write(
            recipe.functions,
            recipe.examples,
            order.output,
            train=recipe.train,
            profiles=wanted,
            weights=recipe.weights or order.store.value,
            single_file=order.single_file,
            name=order.name or Path(order.model.partition(":")[0]).stem,
            page=recipe.page,
            data=recipe.data,
        )
    if order.as_json:
        json_report({**asdict(made), "path": str(made.path)})
        return
    data(str(made))
    if not order.single_file:
        message(f"open it: python -m http.server --directory {made.path}")
