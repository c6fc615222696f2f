"""`anneal run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anneal.cli._flags import LAST_SEED, MOST, AdapterFlag, DeviceFlag, Download, Json, Quiet, Record, readable
from anneal.cli._groups import Group
from anneal.training import SPEAKING

__all__ = ["app"]

app = typer.Typer(
    name="run",
    cls=Group,
    help="Run a model that has learnt already.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command("llama2c")
def run_llama2c(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL.bin", help="A checkpoint in llama2.c's first format.", callback=readable)
    ],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text to go on with.")] = "",
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer", metavar="FILE", help="Its tokens: tokenizer.bin beside the model.", callback=readable
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", metavar="N", min=1, max=MOST, help="Tokens at most, the prompt's counted: the context."
        ),
    ] = None,
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="X", min=0, help="0 takes the most likely token.")
    ] = 1.0,
    top_p: Annotated[
        float, typer.Option("--top-p", metavar="X", help="Sample from the likely tokens that add up to X.")
    ] = 0.9,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, max=LAST_SEED, help="Another seed, another text.")
    ] = 1,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Tell a story with a Llama from a file of llama2.c. Ctrl-C stops and keeps what was said."""
    from anneal.cli._run import Story, llama2c

    story = Story(
        model=model, prompt=prompt, tokenizer=tokenizer, max_tokens=max_tokens, temperature=temperature, top_p=top_p,
        seed=seed, device=device.value if device else None, adapter=adapter, as_json=as_json,
    )  # fmt: skip
    raise typer.Exit(llama2c(story))


@app.command("text")
def run_text(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"One that speaks: {', '.join(SPEAKING)}.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text to go on with.")] = "",
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights", metavar="FILE", help="What `anneal train MODEL --save FILE` wrote.", callback=readable
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, max=MOST, help="Characters to add.")] = 200,
    temperature: Annotated[float, typer.Option("--temperature", help="Below 1 tamer, above 1 wilder.")] = 1.0,
    top_k: Annotated[
        int, typer.Option("--top-k", min=0, max=MOST, help="Sample from the N most likely; 0: from all.")
    ] = 0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the most likely character.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, max=LAST_SEED, help="Another seed, another text.")] = 0,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    record: Record = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="JSON too: a line for each character, with its chance.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Continue a text, character by character, with a trained model of examples/. Ctrl-C stops."""
    from anneal.cli._text import Options, speak

    options = Options(
        model=model, prompt=prompt, weights=weights, max_tokens=max_tokens, temperature=temperature, top_k=top_k,
        greedy=greedy, seed=seed, device=device.value if device else None, adapter=adapter, record=record,
        stream=stream, as_json=as_json or stream,
    )  # fmt: skip
    raise typer.Exit(speak(options))


@app.command("resnet9")
def run_resnet9(
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights", metavar="FILE", help="What `anneal train resnet9 --save FILE` wrote.", callback=readable
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, max=10_000, help="Test pictures to name.")] = 256,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", min=0, max=LAST_SEED, help="Seed of weights and of shapes, where there are none."
        ),
    ] = 1,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE.png", help="Write the pictures to this file."),
    ] = None,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    download: Download = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Name the pictures of CIFAR-10's test set, or shapes where that cannot be had."""
    from anneal.cli._run import resnet9

    name = device.value if device else None
    resnet9(weights, count, seed, picture, device=name, adapter=adapter, download=download, as_json=as_json)
