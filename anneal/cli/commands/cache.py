"""`anneal cache`."""

from __future__ import annotations

from typing import Annotated

import typer

from anneal.cli._flags import Json, Quiet
from anneal.cli._groups import Group

__all__ = ["app"]

app = typer.Typer(
    name="cache",
    cls=Group,
    help="Inspect and prune the compilation cache on disk.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command("where")
def cache_where(quiet: Quiet = False, as_json: Json = False) -> None:
    """Print the cache directory; ANNEAL_CACHE_DIR sets another, ANNEAL_CACHE=0 turns the cache off."""
    from anneal.cli._cache import where

    where(as_json=as_json)


@app.command("ls")
def cache_ls(quiet: Quiet = False, as_json: Json = False) -> None:
    """List the entries, most recently used first: size, age, kind, description."""
    from anneal.cli._cache import ls

    ls(as_json=as_json)


@app.command("prune")
def cache_prune(
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Remove entries not used for AGE: 90s, 30m, 12h, 7d."),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size", metavar="SIZE", help="Remove the least recently used until SIZE is left: 100MB, 1GB."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove every entry.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Remove entries; they are compiled again when needed."""
    from anneal.cli._cache import prune

    prune(older_than=older_than, max_size=max_size, everything=everything, as_json=as_json)
