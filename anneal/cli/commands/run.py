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
    help="Run a trained model.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command("llama2c")
def run_llama2c(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL.bin", help="Checkpoint in llama2.c's first format.", callback=readable)
    ],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="Text to continue.")] = "",
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer", metavar="FILE", help="Tokenizer; default: tokenizer.bin beside the model.", callback=readable
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=1,
            max=MOST,
            help="Maximum number of tokens, with the prompt's; default: the context length.",
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature", metavar="X", min=0, help="Sampling temperature; lower is less random, 0: greedy."
        ),
    ] = 1.0,
    top_p: Annotated[
        float,
        typer.Option(
            "--top-p",
            metavar="X",
            help="Nucleus sampling: sample from the most probable tokens whose probabilities sum to X.",
        ),
    ] = 0.9,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, max=LAST_SEED, help="Random seed of the sampling.")
    ] = 1,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Generate a story with a llama2.c checkpoint. Ctrl-C stops and keeps the text so far."""
    from anneal.cli._run import Story, llama2c

    story = Story(
        model=model, prompt=prompt, tokenizer=tokenizer, max_tokens=max_tokens, temperature=temperature, top_p=top_p,
        seed=seed, device=device.value if device else None, adapter=adapter, as_json=as_json,
    )  # fmt: skip
    raise typer.Exit(llama2c(story))


@app.command("text")
def run_text(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"Text model: {', '.join(SPEAKING)}.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="Text to continue.")] = "",
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="Trained weights, as `anneal train MODEL --save FILE` writes them.",
            callback=readable,
        ),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", min=1, max=MOST, help="Number of new characters.")
    ] = 200,
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="X", help="Sampling temperature; lower is less random.")
    ] = 1.0,
    top_k: Annotated[
        int, typer.Option("--top-k", metavar="N", min=0, max=MOST, help="Sample from the N most probable; 0: from all.")
    ] = 0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most probable character at each step.")] = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, max=LAST_SEED, help="Random seed of the sampling.")
    ] = 0,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    record: Record = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print a line of JSON per character, with its probability.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Continue a text, character by character, with a trained example model. Ctrl-C stops."""
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
            "--weights",
            metavar="FILE",
            help="Trained weights, as `anneal train resnet9 --save FILE` writes them.",
            callback=readable,
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, max=10_000, help="Number of test pictures to classify.")
    ] = 256,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", min=0, max=LAST_SEED, help="Random seed of shapes, and of weights if none are given."
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
    """Classify test pictures of CIFAR-10, or generated shapes without it."""
    from anneal.cli._run import resnet9

    name = device.value if device else None
    resnet9(weights, count, seed, picture, device=name, adapter=adapter, download=download, as_json=as_json)
