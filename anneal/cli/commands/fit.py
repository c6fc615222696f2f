"""`anneal fit`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from anneal.cli._flags import Json, Quiet, Sizes, alone, command
from anneal.cli._output import data, json_report
from anneal.cli.commands._recipes import Train, What, of_user, recipe_of
from anneal.errors import UserError
from anneal.runtime import Context

app = alone()


@dataclass(frozen=True, slots=True)
class Question:
    """The flags of `anneal fit`."""

    model: What
    profiles: Annotated[
        list[str] | None,
        typer.Option(
            "--for", metavar="PROFILE", help="Limits to look at: browser, software, desktop, m1, adreno; default: all."
        ),
    ] = None
    train: Train = False
    size: Sizes = None
    quiet: Quiet = False
    as_json: Json = False


@command(app, Question)
def fit(question: Question) -> None:
    """Say whether a model fits a browser's limits, and its memory. Exit code 2: no."""
    from anneal.pages import PROFILES, fit as fitted, page_device, profile

    wanted = question.profiles or list(PROFILES)
    for p in wanted:
        profile(p)
    with Context(page_device()), of_user(question.model):
        recipe = recipe_of(question.model, question.train, 0, None, question.size)
        found = [fitted(recipe.functions, recipe.examples, p, recipe.train) for p in wanted]
    if question.as_json:
        json_report({"fits": [asdict(f) for f in found]})
    else:
        for f in found:
            data(str(f))
    raise typer.Exit(UserError.exit_code if any(f.why for f in found) else 0)
