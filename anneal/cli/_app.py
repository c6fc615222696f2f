"""The commands, their flags, and what becomes of errors.

Exit codes: 0 done; 1 the compiler failed; 2 a mistake in the command or the program; 3 no usable device; 4 a file that
is missing, unwritable or corrupt; 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from anneal import settings
from anneal.errors import AnnealError, CompilerError, DataError, SettingError, UserError

__all__ = ["app", "run"]

app = typer.Typer(
    name="anneal",
    help="anneal: a lazy tensor compiler. Start with `anneal doctor`, then `anneal train nanogpt`.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 compiler failure, 2 wrong command, 3 no usable device, 4 bad file, 130 stopped.",
)


class Device(StrEnum):
    """What --device takes."""

    auto = "auto"
    cpu = "cpu"
    webgpu = "webgpu"


Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
DeviceFlag = Annotated[Device | None, typer.Option("--device", help="Where to run; default: ANNEAL_DEVICE, else auto.")]
AdapterFlag = Annotated[
    str | None, typer.Option("--adapter", metavar="NAME", help="The WebGPU adapter whose name contains NAME.")
]
PlannedFlag = Annotated[
    Device | None,
    typer.Option("--device", help="Whose fusion decisions to show; auto is webgpu, and none is opened."),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model of examples/; `anneal train --help` lists them.")]
Traceable = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model of examples/ (`anneal train --help`), or an ONNX file.")
]
# The most that a flag takes: more is a slip of the keyboard, and would end as one deep in NumPy.
MOST, MOST_AT_ONCE, LAST_SEED = 10**9, 1 << 20, 2**63 - 1
Batch = Annotated[int | None, typer.Option("--batch", min=1, max=MOST_AT_ONCE, help="Examples per step.")]

Download = Annotated[
    bool, typer.Option("--download", help="Fetch CIFAR-10 (170 MB) if it is not here, without asking; else shapes do.")
]


def _version(value: bool) -> None:
    if value:
        from anneal.cli._output import data
        from anneal.cli._version import version_line

        data(version_line())
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Train, look into, and check models compiled by anneal."""
    settings.current()  # a wrong variable is an error whatever the command, and before it does anything


@app.command()
def doctor(adapter: AdapterFlag = None, as_json: Json = False) -> None:
    """Say which devices this machine has, and what to do when there is none. Exit code 3: no hardware WebGPU
    adapter.
    """
    from anneal.cli._doctor import doctor as run

    raise typer.Exit(run(adapter=adapter, as_json=as_json))


def _train_help() -> str:
    from anneal.training import MODELS

    width = max(map(len, MODELS))
    # \b keeps click from making one paragraph of the lines.
    lines = [f"  {name:{width}}  {about}" for name, about in MODELS.items()]
    return "\n".join(
        [
            "Train a model of examples/ and show what it learnt. Ctrl-C stops early, with the sample.",
            "",
            "\b",
            "Models:",
            *lines,
        ]
    )


@app.command(help=_train_help())
def train(
    model: Model,
    steps: Annotated[int | None, typer.Option("--steps", min=1, max=MOST, help="Optimiser steps.")] = None,
    batch: Batch = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=LAST_SEED, help="Seed of weights, batches and sampling.")
    ] = 1,
    lr: Annotated[float | None, typer.Option("--lr", help="Peak learning rate.")] = None,
    log_every: Annotated[int, typer.Option("--log-every", min=1, max=MOST, help="Steps between plain lines.")] = 100,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines even on a terminal.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Write the trained weights as safetensors.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE", help="Where a model that makes pictures writes its PNG: MODEL.png."),
    ] = None,
    model_dir: Annotated[
        Path | None, typer.Option("--model-dir", metavar="DIR", help="gpt2: start from this checkpoint.")
    ] = None,
    scratch: Annotated[bool, typer.Option("--scratch", help="gpt2: a small model with random weights.")] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="gpt2: save there, and go on from what is there already."),
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option("--checkpoint-every", min=1, max=MOST, help="gpt2: steps between checkpoints.")
    ] = 200,
    bundle: Annotated[
        bool, typer.Option("--bundle", help="Keep what the run was and did in a folder of its own in runs/.")
    ] = False,
    vitals: Annotated[
        bool,
        typer.Option(
            "--vitals", help="With --json or --bundle: learning rate, gradients' norm and memory of each step."
        ),
    ] = False,
    download: Download = False,
    as_json: Json = False,
) -> None:
    from anneal.cli._train import Options
    from anneal.cli._train import train as run

    options = Options(
        model=model, steps=steps, batch=batch, seed=seed, lr=lr, log_every=log_every, plain=plain, save=save,
        picture=picture, as_json=as_json, device=device.value if device else None, adapter=adapter,
        model_dir=model_dir, scratch=scratch, checkpoint=checkpoint, checkpoint_every=checkpoint_every,
        bundle=bundle, vitals=vitals, download=download,
    )  # fmt: skip
    raise typer.Exit(run(options))


@app.command()
def graph(
    model: Traceable,
    batch: Batch = None,
    limit: Annotated[int, typer.Option("--limit", min=0, max=MOST, help="Nodes to print; 0 prints all.")] = 60,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="PASS", help="What the compiler's passes, up to this one, make of the graph."),
    ] = None,
    kernel: Annotated[
        int | None,
        typer.Option(
            "--kernel", metavar="N", min=0, max=MOST, help="With --until: the passes of kernel N of the step."
        ),
    ] = None,
    device: PlannedFlag = None,
    as_json: Json = False,
) -> None:
    """Print the graph of one training step: its nodes, and how many each phase and each op has; or what a pass has made
    of it.
    """
    from anneal.cli._graph import graph as run
    from anneal.cli._graph import graph_after

    if until is not None:
        graph_after(
            model, until, kernel=kernel, batch=batch, device=device.value if device else "auto", as_json=as_json
        )
        return
    if kernel is not None or device is not None:
        raise UserError("--kernel and --device belong to --until PASS")
    run(model, batch=batch, limit=limit, as_json=as_json)


@app.command()
def kernels(
    model: Traceable,
    step: Annotated[bool, typer.Option("--step", help="The whole training step instead of the forward pass.")] = False,
    batch: Batch = None,
    time: Annotated[
        bool, typer.Option("--time", help="Run the kernels and show what each takes, the dearest first.")
    ] = False,
    device: Annotated[
        Device | None,
        typer.Option(
            "--device",
            help="Whose fusion decisions to show; auto is webgpu, and none is opened. With --time: where to run.",
        ),
    ] = None,
    adapter: AdapterFlag = None,
    kernel: Annotated[
        int | None, typer.Option("--kernel", metavar="N", min=0, max=MOST, help="Only kernel N, as they are numbered.")
    ] = None,
    lines: Annotated[
        bool,
        typer.Option("--lines", help="With --kernel: where each line of its WGSL comes from: rules, lines, modules."),
    ] = False,
    line: Annotated[
        str | None,
        typer.Option("--line", metavar="FILE:LINE", help="Only kernels, or lines, that come from this line of yours."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the fused kernels of a model: what each reads and writes, its cost, its phase, and its WGSL; or their
    times.
    """
    from anneal.cli._choices import choose_device
    from anneal.cli._kernels import kernels as run
    from anneal.cli._kernels import line_given, print_lines, time_kernels
    from anneal.cli._models import check_traceable

    check_traceable(model)
    where = line_given(line) if line is not None else None
    if lines and kernel is None:
        raise UserError("--lines shows one kernel: add --kernel N")
    if time and (kernel is not None or where is not None):
        raise UserError("--time runs all kernels; leave --kernel and --line out")
    changes = choose_device(device.value if device else None, adapter)
    if not time:
        planned = str(changes.get("device", "auto"))
        if lines and kernel is not None:
            print_lines(model, kernel, step=step, batch=batch, device=planned, where=where, as_json=as_json)
        else:
            run(
                model, step=step, batch=batch, device=planned, as_json=as_json, kernel=kernel, where=where,
            )  # fmt: skip
        return
    with settings.override(**changes):
        time_kernels(model, step=step, batch=batch, device=settings.current().device, as_json=as_json)


@app.command()
def explain(
    op: Annotated[
        str | None, typer.Argument(metavar="OP", help="An op of the language, such as ADD, or a Tensor method.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="The rules that fire for a model of examples/.")
    ] = None,
    step: Annotated[
        bool, typer.Option("--step", help="With --model: the whole training step instead of the forward pass.")
    ] = False,
    batch: Batch = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, max=MOST, help="With --model: rules to print; 0 prints all.")
    ] = 30,
    device: PlannedFlag = None,
    as_json: Json = False,
) -> None:
    """Print the rules that concern an op, in the words of the rule files; or those that fire while a model is compiled:
    how often, in which passes, for which lines and modules.
    """
    from anneal.cli._explain import explain as run
    from anneal.cli._explain import explain_model

    if (op is None) == (model is None):
        raise UserError("explain takes an OP, or --model MODEL: `anneal explain mul`, `anneal explain --model mlp`")
    if model is not None:
        planned = device.value if device else "auto"
        explain_model(model, step=step, batch=batch, device=planned, limit=limit, as_json=as_json)
    elif op is not None:
        if step or batch is not None or device is not None:
            raise UserError("--step, --batch and --device belong to --model")
        run(op, as_json=as_json)


gpt2_app = typer.Typer(
    name="gpt2",
    help="GPT-2 small, from its published checkpoint or another.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(gpt2_app)


@gpt2_app.command("sample")
def gpt2_sample(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text to go on with.")],
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, max=MOST, help="Tokens to add at most.")] = 100,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the likeliest token.")] = False,
    temperature: Annotated[float, typer.Option("--temperature", help="Below 1 tamer, above 1 wilder.")] = 1.0,
    top_k: Annotated[
        int,
        typer.Option("--top-k", min=0, max=MOST, help="Choose among so many of the likeliest tokens; 0: among all."),
    ] = 40,
    seed: Annotated[int, typer.Option("--seed", min=0, max=LAST_SEED, help="Another seed, another text.")] = 0,
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
    as_json: Json = False,
) -> None:
    """Go on with a text. The first time GPT-2 small is downloaded, 548 MB. Ctrl-C stops and keeps what was said."""
    from anneal.cli._gpt2 import Options
    from anneal.cli._gpt2 import sample as run

    options = Options(
        prompt=prompt, max_tokens=max_tokens, greedy=greedy, temperature=temperature, top_k=top_k, seed=seed,
        device=device.value if device else None, adapter=adapter, model_dir=model_dir, plain=plain, as_json=as_json or stream, stream=stream,
    )  # fmt: skip
    raise typer.Exit(run(options))


run_app = typer.Typer(
    name="run", help="Run a model that has learnt already.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(run_app)


@run_app.command("llama2c")
def run_llama2c(
    model: Annotated[Path, typer.Argument(metavar="MODEL.bin", help="A checkpoint in llama2.c's first format.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text to go on with.")] = "",
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", metavar="FILE", help="Its tokens: tokenizer.bin beside the model.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, max=MOST, help="Tokens at most, the prompt's counted: the context."),
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", min=0, help="0 takes the likeliest token.")] = 1.0,
    top_p: Annotated[float, typer.Option("--top-p", help="Choose among the likeliest that have this much.")] = 0.9,
    seed: Annotated[int, typer.Option("--seed", min=0, max=LAST_SEED, help="Another seed, another text.")] = 1,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    as_json: Json = False,
) -> None:
    """Tell a story with a Llama from a file of llama2.c. Ctrl-C stops and keeps what was said."""
    from anneal.cli._run import Story, llama2c

    story = Story(
        model=model, prompt=prompt, tokenizer=tokenizer, max_tokens=max_tokens, temperature=temperature, top_p=top_p,
        seed=seed, device=device.value if device else None, adapter=adapter, as_json=as_json,
    )  # fmt: skip
    raise typer.Exit(llama2c(story))


@run_app.command("resnet9")
def run_resnet9(
    weights: Annotated[
        Path | None, typer.Option("--weights", metavar="FILE", help="What `anneal train resnet9 --save FILE` wrote.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=10_000, help="Test pictures to name.")] = 256,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=LAST_SEED, help="Seed of weights and of shapes, where there are none.")
    ] = 1,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE", help="Where the pictures are written as PNG: resnet9.png."),
    ] = None,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    download: Download = False,
    as_json: Json = False,
) -> None:
    """Name the pictures of CIFAR-10's test set, or shapes where that cannot be had."""
    from anneal.cli._run import resnet9

    name, place = device.value if device else None, picture or Path("resnet9.png")
    resnet9(weights, count, seed, place, device=name, adapter=adapter, download=download, as_json=as_json)


onnx_app = typer.Typer(
    name="onnx", help="Other people's models: ONNX files.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(onnx_app)

OnnxFile = Annotated[Path, typer.Argument(metavar="FILE.onnx", help="The model.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=FILE.npy", help="Values of an input, or NAME=random; random if not given."),
]
Sizes = Annotated[
    list[str] | None, typer.Option("--size", metavar="NAME=N", help="A symbolic size of random inputs; 1 if not given.")
]


@onnx_app.command("info")
def onnx_info(
    file: OnnxFile,
    size: Sizes = None,
    device: Annotated[
        Device, typer.Option("--device", help="Whose fusion decisions the cost is of; none is opened.")
    ] = Device.cpu,
    as_json: Json = False,
) -> None:
    """Print inputs, outputs, operators, cost, and all that cannot be run. Exit code 4: there is such."""
    from anneal.cli._onnx import info

    raise typer.Exit(info(file, sizes=size or (), device=device.value, as_json=as_json))


@onnx_app.command("run")
def onnx_run(
    file: OnnxFile,
    input: Inputs = None,
    size: Sizes = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE.npz", help="Where the outputs are written, by name.")
    ] = None,
    time: Annotated[bool, typer.Option("--time", help="Run it again and again, and say what a run takes.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, max=LAST_SEED, help="Seed of random inputs.")] = 0,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    as_json: Json = False,
) -> None:
    """Run a model and print its outputs: dtype, shape, the first values."""
    from anneal.cli._choices import choose_device
    from anneal.cli._onnx import Job
    from anneal.cli._onnx import run as run_model

    with settings.override(**choose_device(device.value if device else None, adapter)):
        run_model(Job(file, input or (), size or (), seed, None, as_json), output=output, timed=time)


@onnx_app.command("check")
def onnx_check(
    file: OnnxFile,
    input: Inputs = None,
    size: Sizes = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, help="Of a difference, by the reference's largest value.")
    ] = 1e-3,
    seed: Annotated[int, typer.Option("--seed", min=0, max=LAST_SEED, help="Seed of random inputs.")] = 0,
    device: DeviceFlag = None,
    adapter: AdapterFlag = None,
    as_json: Json = False,
) -> None:
    """Compare every node's value with onnxruntime's, or else with the onnx package's reference. Exit code 1: one
    differs.
    """
    from anneal.cli._choices import choose_device
    from anneal.cli._onnx import Job, check_model

    with settings.override(**choose_device(device.value if device else None, adapter)):
        job = Job(file, input or (), size or (), seed, None, as_json)
        check_model(job, tolerance=tolerance)


cache_app = typer.Typer(
    name="cache",
    help="Look into, and tidy, what was compiled and kept on disk for the next process.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(cache_app)


@cache_app.command("where")
def cache_where(as_json: Json = False) -> None:
    """Print the folder; ANNEAL_CACHE_DIR chooses another, ANNEAL_CACHE=0 does without."""
    from anneal.cli._cache import where

    where(as_json=as_json)


@cache_app.command("ls")
def cache_ls(as_json: Json = False) -> None:
    """Print the entries, last used first: size, age, kind, and what each is."""
    from anneal.cli._cache import ls

    ls(as_json=as_json)


@cache_app.command("prune")
def cache_prune(
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Entries unused for so long: 90s, 30m, 12h, 7d.")
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", metavar="SIZE", help="The longest unused, until SIZE is left: 100MB, 1GB."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every entry.")] = False,
    as_json: Json = False,
) -> None:
    """Remove entries; a program that needs one again makes it again."""
    from anneal.cli._cache import prune

    prune(older_than=older_than, max_size=max_size, everything=everything, as_json=as_json)


Host = Annotated[
    str | None,
    typer.Option("--host", metavar="HOST", help="Let others in at this address, with the token that is printed."),
]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Open no browser.")]


@app.command()
def web(
    address: Annotated[
        str, typer.Argument(metavar="ADDR", help="HOST:PORT, :PORT or PORT; :0 takes a free port.")
    ] = "127.0.0.1:3001",
    host: Host = None,
    no_open: NoOpen = False,
) -> None:
    """Serve the studio to this machine's browser: graphs, kernels, rules, training, generation, history, devices."""
    from anneal.web import Options, serve

    serve(Options(f":{address.rpartition(':')[2]}" if host else address, host, opens=not no_open))


@app.command()
def viz(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A model of examples/ (nanogpt), or an ONNX file.")
    ] = None,
    address: Annotated[str, typer.Option("--address", metavar="ADDR", help="As `anneal web` takes it.")] = ":0",
    no_open: NoOpen = False,
) -> None:
    """Open the studio at the graph of a model."""
    from anneal.cli._models import check_traceable
    from anneal.web import Options, serve

    wanted = model or "nanogpt"
    check_traceable(wanted)
    serve(Options(address, shows=wanted, opens=not no_open))


def run(argv: list[str] | None) -> int:
    """Run the command line; the documented exit code. A user's mistake prints one message and no traceback."""
    from anneal.cli._output import streams

    with streams() as verdict:
        return int(verdict(_run(argv)))


def _run(argv: list[str] | None) -> int:
    try:
        app(args=argv, prog_name="anneal")
    except SystemExit as end:
        # 1 is what typer makes of a reader of help that has left; our own failures come as errors.
        return 0 if end.code in (None, 1) else int(end.code)
    except CompilerError as error:
        return _fail(
            f"compiler failure: {error}\nThis is a fault of anneal, not of your program; please report it.", error
        )
    except AnnealError as error:
        return _fail(str(error), error)
    except OSError as error:  # of what nobody expected to fail: a disk, a name, a right
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        return _fail(f"{where}{error.strerror or error}", error, DataError.exit_code)
    except MemoryError as error:
        return _fail("this takes more memory than there is; try a smaller --batch, or a smaller model", error, 2)
    return 0


def _fail(text: str, error: BaseException, code: int = 1) -> int:
    from anneal.cli._output import message

    message(f"anneal: {text}")
    if not isinstance(error, SettingError) and settings.current().debug:
        import traceback

        message("".join(traceback.format_exception(error)))
    return error.exit_code if isinstance(error, AnnealError) else code
