"""`anneal gpt2`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anneal.cli._flags import LAST_SEED, MOST, AdapterFlag, DeviceFlag, Json, Quiet, Record
from anneal.cli._groups import Group

__all__ = ["app"]

app = typer.Typer(
    name="gpt2",
    cls=Group,
    help="GPT-2 small, from its published checkpoint or another.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def group() -> None:
    """Make a group of what has one command."""


@app.command("sample")
def gpt2_sample(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text to go on with.")],
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", min=1, max=MOST, help="Tokens to add at most.")
    ] = 100,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the most likely token.")] = False,
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="X", help="Below 1 tamer, above 1 wilder.")
    ] = 1.0,
    top_k: Annotated[
        int,
        typer.Option(
            "--top-k", metavar="N", min=0, max=MOST, help="Sample from the N most likely tokens; 0: from all."
        ),
    ] = 40,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, max=LAST_SEED, help="Another seed, another text.")
    ] = 0,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    model_dir: Annotated[
        Path | None,
        typer.Option(
            "--model-dir", metavar="DIR", help="Another checkpoint: model.safetensors as Hugging Face lays it out."
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="No escape codes even on a terminal.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="JSON too: a line for each token as it comes, with its chance.")
    ] = False,
    record: Record = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Continue a text. Downloads GPT-2 small the first time, 548 MB. Ctrl-C stops and keeps the text so far."""
    from anneal.cli._gpt2 import Options
    from anneal.cli._gpt2 import sample as run

    options = Options(
        prompt=prompt, max_tokens=max_tokens, greedy=greedy, temperature=temperature, top_k=top_k, seed=seed,
        device=device.value if device else None, adapter=adapter, model_dir=model_dir, plain=plain,
        as_json=as_json or stream, stream=stream,
        record=record,
    )  # fmt: skip
    raise typer.Exit(run(options))
