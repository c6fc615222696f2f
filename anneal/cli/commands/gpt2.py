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
    help="Generate text with GPT-2 small, or another checkpoint.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def group() -> None:
    """Make a group of what has one command."""


@app.command("sample")
def gpt2_sample(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="Text to continue.")],
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", min=1, max=MOST, help="Maximum number of new tokens.")
    ] = 100,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most probable token at each step.")] = False,
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="X", help="Sampling temperature; lower is less random.")
    ] = 1.0,
    top_k: Annotated[
        int,
        typer.Option(
            "--top-k", metavar="N", min=0, max=MOST, help="Sample from the N most probable tokens; 0: from all."
        ),
    ] = 40,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, max=LAST_SEED, help="Random seed of the sampling.")
    ] = 0,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    model_dir: Annotated[
        Path | None,
        typer.Option(
            "--model-dir",
            metavar="DIR",
            help="Directory of another checkpoint in Hugging Face's layout (model.safetensors).",
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print no escape codes, even on a terminal.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print a line of JSON per token, with its probability.")
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
