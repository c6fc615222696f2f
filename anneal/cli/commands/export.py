"""`anneal export` and `anneal fit`: an example, an ONNX file or a function of a script as a web page."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anneal import nn, progress
from anneal.cli import _flags as flags
from anneal.cli._flags import option
from anneal.cli._output import message
from anneal.errors import AnnealError, SettingError, UserError
from anneal.frozen import frozen
from anneal.runtime import Context
from anneal.training import check_model, load_example

if TYPE_CHECKING:
    from anneal.pages import PageRecipe

app = flags.alone()

What = Annotated[
    str, flags.argument("Example model, ONNX file, or SCRIPT.py:FUNCTION (its EXAMPLE: arguments).", "MODEL")
]
Train = Annotated[bool, flags.switch("--train", "The training step too, which the page runs.")]


def recipe_of(
    what: str,
    train: bool,
    sizes: Sequence[str] | None,
    steps: int = 0,
    weights: Path | None = None,
    labels: Path | None = None,
) -> PageRecipe:
    """The recipe of a page. Raises UserError or DataError for a model that there is not, or flags that do not go
    with it."""
    script, colon, function = what.rpartition(":")
    if colon and script.endswith(".py"):
        _refuse(what, steps=steps, weights=weights, sizes=sizes, labels=labels)
        return _of_script(script, function, train)
    if what.endswith(".py"):
        raise SettingError(f"which function of {what}? Write {what}:FUNCTION")
    if what.endswith(".onnx"):
        _refuse(what, train=train, steps=steps, weights=weights)
        return _of_onnx(what, sizes, labels)
    check_model(what)
    _refuse(what, sizes=sizes, labels=labels)
    return _of_example(what, train, steps, weights)


@contextmanager
def of_user(what: str) -> Iterator[None]:
    """A block that calls the function of a script: what fails in the script itself is told in a line."""
    try:
        yield
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        if isinstance(error, AnnealError) or frame.filename != what.rpartition(":")[0]:
            raise
        raise UserError(
            f"{what} failed in line {frame.lineno}, `{frame.line}`: {type(error).__name__}: {error}"
        ) from error


def _refuse(what: str, **given: Any) -> None:
    for name, value in given.items():
        if value:
            raise SettingError(
                f"--{name.removesuffix('s') if name == 'sizes' else name} is not for {what}; leave it out"
            )


def _of_example(name: str, train: bool, steps: int, weights: Path | None) -> PageRecipe:
    from anneal.pages import of_gpt2, of_training
    from anneal.tensor.io import safe_load

    if name == "gpt2":
        _refuse(name, train=train, steps=steps, weights=weights)
        with progress.work("making gpt2"):
            return of_gpt2(nn.GPTConfig())
    example = load_example(name)
    with progress.work(f"making {name} and its data"):
        training: Any = example.make(steps=max(1, steps), batch=example.BATCH, seed=1, lr=example.LR)
    if weights is not None:
        training.model.load_state_dict(safe_load(weights))
    for _ in progress.told(range(steps), "training"):
        training.step()
    return of_training(name, training, train)


def _of_onnx(path: str, sizes: Sequence[str] | None, labels: Path | None) -> PageRecipe:
    from anneal.cli.commands.onnx import feeds_of
    from anneal.files import opened
    from anneal.onnx import load
    from anneal.pages import of_onnx

    model = load(path, "cpu")
    names = None
    if labels is not None:
        with opened(labels) as f:
            names = f.read(1 << 20).decode("utf-8", "replace").splitlines()
    return of_onnx(model, feeds_of(model, None, sizes, 0), names)


def _of_script(script: str, name: str, train: bool) -> PageRecipe:
    from anneal.pages import PageRecipe

    flags.check_script(script)
    try:
        found = runpy.run_path(script, run_name="anneal_export")
    except Exception as error:
        raise UserError(f"{script} failed: {type(error).__name__}: {error}") from error
    if not callable(found.get(name)):
        known = ", ".join(n for n, v in found.items() if callable(v) and not isinstance(v, type) and n[0] != "_")
        raise UserError(f"{script} has no function {name!r}; it has {known or 'none'}")
    if "EXAMPLE" not in found:
        raise UserError(
            f"{script} has no EXAMPLE: add EXAMPLE = (Tensor..., ), the arguments that {name} is called with"
        )
    given = found["EXAMPLE"]
    args = given if isinstance(given, tuple) else (given,)
    return PageRecipe({"run": found[name]}, {"run": args}, train=("run",) if train else ())


class Stored(StrEnum):
    """The values of --store."""

    f32 = "f32"
    f16 = "f16"
    int8 = "int8"


@frozen
class _Order(flags.Reporting):
    """The flags of `anneal export`."""

    model: What
    output: Annotated[Path, option("Folder to write, or FILE.html.", "DIR", "--output", "-o")]
    single_file: bool = flags.switch("--single-file", "One HTML file with all in it, below 30 MB.")
    train: Train = False
    profiles: list[str] | None = option("Kernels for more capable GPUs, too: desktop, m1, adreno.", "PROFILE", "--for")
    store: Stored = option("Numbers in the file of weights: f32, f16 or int8.", "FORM", "--store", default=Stored.f32)
    steps: int = flags.number("Train an example so many steps first.", 0, default=0)
    weights: flags.Weights = None
    size: flags.Sizes = None
    labels: Path | None = option("ONNX classifier: names of its classes, one a line.")
    name: str | None = option("Title of the page.", "TEXT")


@flags.command(app)
def export(order: _Order) -> None:
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
        recipe = recipe_of(order.model, order.train, order.size, order.steps, order.weights, order.labels)
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
    order.tell({**asdict(made), "path": str(made.path)}, made)
    if not (order.single_file or order.as_json):
        message(f"open it: python -m http.server --directory {made.path}")


@frozen
class _Question(flags.Reporting):
    """The flags of `anneal fit`."""

    model: What
    profiles: list[str] | None = option(
        "Limits to look at: browser, software, desktop, m1, adreno; default: all.", "PROFILE", "--for"
    )
    train: Train = False
    size: flags.Sizes = None


@flags.command(app)
def fit(question: _Question) -> None:
    """Say whether a model fits a browser's limits, and its memory. Exit code 2: it does not."""
    from anneal.pages import PROFILES, fit as fitted, page_device, profile

    wanted = question.profiles or list(PROFILES)
    for p in wanted:
        profile(p)
    with Context(page_device()), of_user(question.model):
        recipe = recipe_of(question.model, question.train, question.size)
        found = [fitted(recipe.functions, recipe.examples, p, recipe.train) for p in wanted]
    question.tell({"fits": [asdict(f) for f in found]}, *found)
    raise typer.Exit(UserError.exit_code if any(f.why for f in found) else 0)
