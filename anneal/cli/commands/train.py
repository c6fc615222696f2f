"""`anneal train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anneal.cli._flags import LAST_SEED, MOST, AdapterFlag, Batch, DeviceFlag, Download, Json, Model, Quiet, readable
from anneal.cli._groups import ModelCommand

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Samples = Annotated[
    int,
    typer.Option("--samples", metavar="N", min=0, max=1000, help="Number of samples to show during training."),
]
Start = Annotated[
    Path | None,
    typer.Option("--start", metavar="FILE", help="Start from the weights that --save wrote.", callback=readable),
]
Vitals = Annotated[
    bool,
    typer.Option(
        "--vitals",
        help="With --json or --bundle: learning rate, gradient norm, memory by step; the slowest kernels.",
    ),
]


@app.command(cls=ModelCommand)
def train(
    model: Model,
    steps: Annotated[
        int | None,
        typer.Option("--steps", metavar="N", min=1, max=MOST, help="Optimiser steps; default: the example's."),
    ] = None,
    batch: Batch = None,
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", min=0, max=LAST_SEED, help="Random seed of weights, batches and sampling."),
    ] = 1,
    lr: Annotated[
        float | None, typer.Option("--lr", metavar="X", help="Peak learning rate; default: the example's.")
    ] = None,
    log_every: Annotated[
        int, typer.Option("--log-every", metavar="N", min=1, max=MOST, help="Steps between log lines.")
    ] = 100,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain lines, even on a terminal.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Write the trained weights as safetensors.")
    ] = None,
    start: Start = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.png", help="Write the model's picture to this file.")
    ] = None,
    model_dir: Annotated[
        Path | None, typer.Option("--model-dir", metavar="DIR", help="gpt2: start from the checkpoint in DIR.")
    ] = None,
    scratch: Annotated[bool, typer.Option("--scratch", help="gpt2: a small model with random weights.")] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="gpt2: save checkpoints in DIR; resume from the one there."),
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option("--checkpoint-every", metavar="N", min=1, max=MOST, help="gpt2: steps between checkpoints.")
    ] = 200,
    bundle: Annotated[
        bool, typer.Option("--bundle", help="Save config, losses, graph and kernels in a new folder in runs/.")
    ] = False,
    vitals: Vitals = False,
    samples: Samples = 0,
    download: Download = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an example model, then show a sample. Ctrl-C stops early, with the sample."""
    from anneal.cli._train import Options
    from anneal.cli._train import train as run

    options = Options(
        model=model, steps=steps, batch=batch, seed=seed, lr=lr, log_every=log_every, plain=plain, save=save,
        picture=picture, as_json=as_json, device=device.value if device else None, adapter=adapter,
        model_dir=model_dir, scratch=scratch, checkpoint=checkpoint, checkpoint_every=checkpoint_every,
        bundle=bundle, vitals=vitals, samples=samples, start=start, download=download,
    )  # fmt: skip
    raise typer.Exit(run(options))
