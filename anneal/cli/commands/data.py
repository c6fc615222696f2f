"""`anneal data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anneal import progress
from anneal.cli._choices import check_writable
from anneal.cli._flags import Json, Quiet, file, group, openable
from anneal.cli._output import data, json_report
from anneal.cli.commands.gpt2 import VOCABULARY, places
from anneal.training import load_module

app = group("data", "Make files of tokens to train on.")


@app.callback()
def _group() -> None:
    """Make a group of what has one command."""


@app.command("tokenize")
def tokenize(
    text: Annotated[Path, typer.Argument(metavar="FILE", help="A text, UTF-8.", callback=openable)],
    output: Annotated[Path | None, file("Where to write; .npy: as NumPy's; default: FILE.bin.")] = None,
    model_dir: Annotated[Path | None, file("Directory of another vocabulary.", "DIR")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a text as GPT-2's tokens, in llm.c's layout, for gpt2 to train on."""
    from anneal.training import write_tokens

    place = text.with_name(f"{text.name}.bin") if output is None else output
    check_writable(place)
    _, words = places(model_dir, weights=False)
    with progress.work("encoding the text"):
        tokens = load_module("gpt2").Tokenizer.read(*[words / name for name in VOCABULARY]).encode(text.read_bytes())
    write_tokens(place, tokens)
    if as_json:
        json_report({"file": str(place), "tokens": len(tokens)})
    else:
        data(f"{place}: {len(tokens):,} tokens")
