"""`anneal check`."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anneal import settings
from anneal.cli import _flags as flags
from anneal.cli._flags import check_script, check_writable, on_device, refuse_option, run_script, runnable, write_file
from anneal.cli._output import message
from anneal.cli.commands.onnx import feeds_of
from anneal.errors import AnnealError, UserError
from anneal.frozen import Json, frozen
from anneal.training import check_model, load_example

if TYPE_CHECKING:
    from anneal.inspect import Checking, Report

app = flags.alone()


@frozen
class _Task(flags.Reporting, flags.OnDevice):
    """The flags of the command: what is to be checked, and how."""

    context: typer.Context
    target: str | None = flags.argument(
        "Example model, ONNX file, or your program.",
        "MODEL|FILE.onnx|SCRIPT.py",
        autocompletion=runnable,
        callback=flags.openable,
    )
    arguments: flags.Arguments = None
    step: bool = flags.switch("--step", "Check a whole training step instead of the forward pass.")
    batch: flags.Batch = None
    gradients: bool = flags.switch("--gradients", "Compare gradients with finite differences in float64, too.")
    input: flags.Inputs = None
    size: flags.Sizes = None
    seed: int = flags.seed("weights and inputs", default=1)
    times: int = flags.number("How many runs of each plan are checked.", default=2)
    elements: int = flags.number(
        "Elements compared per store of a kernel; beyond N, a random sample.", 64, default=1 << 21
    )
    repro: Path | None = flags.option("Write the first kernel that differs to FILE.")
    replay: Path | None = flags.option("Run the kernel that --repro wrote to FILE.", callback=flags.openable)

    @property
    def name(self) -> str:
        """The target, of which there is one unless --replay is given."""
        return self.target or ""


@flags.command(app, context_settings={"ignore_unknown_options": True})
def check(task: _Task) -> None:
    """Compare kernels with their graphs, and values with the graph as it was written, in float64. Exit code 1: one
    differs, a result is nan or overflows, or nothing could be compared.
    """
    for text in (task.target, *(task.arguments or ())[: 0 if task.name.endswith(".py") else None]):
        refuse_option(task.context, text)
    if (task.target is None) == (task.replay is None):
        raise UserError("check takes a MODEL, a FILE.onnx or a SCRIPT.py, or --replay FILE")
    with on_device(task.device, task.adapter):
        if task.replay is not None:
            replay(task, task.replay)
        else:
            _check(task)


def _check(task: _Task) -> None:
    """Check a model, a file or a script and print what was found; AnnealError if something differs."""
    from anneal.inspect import CheckLimits, under_check

    check_writable(task.repro)
    run = _job(task)
    limits = CheckLimits(kernel=task.elements, tensor=32 * task.elements)
    backwards = task.gradients and task.name.endswith(".py")
    with under_check(limits, times=task.times, gradients=backwards) as state:
        run(state)
    report = state.report
    if not report.launches and not report.gradients:
        raise UserError(f"{task.name} computed nothing, so there is nothing to check")
    if task.repro is not None:
        _write(state, task.repro)
    notes = [
        f"kernel {k.kernel} {k.name} ({k.label}): {'' if k.ok else 'DIFFERS  '}{k.note}"
        for k in report.kernels
        if k.note or not k.ok
    ]
    task.tell(lambda: {"target": task.name, **record(report)}, *notes, report)
    if backwards and not report.gradients:
        raise UserError(
            f"{task.name}: --gradients checks calls of backward(), and none of this script could be checked"
        )
    if not report.ok:
        raise AnnealError(f"{task.name}: {report.reason}")


def _job(task: _Task) -> Callable[[Checking], None]:
    name = task.name
    if name.endswith(".py"):
        check_script(name)
        if task.step or task.batch is not None or task.input or task.size:
            raise UserError("a script says itself what it runs; leave --step, --batch, --input and --size out")
        return lambda state: run_script(name, task.arguments or (), task.as_json)
    if task.arguments:
        raise UserError(f"{task.arguments[0]!r}: only a script takes arguments")
    if name.endswith(".onnx"):
        if task.gradients or task.step:
            raise UserError("an ONNX file is run, not trained; leave --step and --gradients out")
        return lambda state: _onnx(task)
    check_model(name)
    if task.input or task.size:
        raise UserError("--input and --size are for ONNX files; a model of examples/ has batches of its own")
    return lambda state: _model(task, state)


def _model(task: _Task, state: Checking) -> None:
    from anneal.inspect import check_gradients

    example = load_example(task.name)
    training = example.make(steps=example.STEPS, batch=task.batch or example.BATCH, seed=task.seed, lr=example.LR)
    batch = training.next_batch()
    if task.gradients:
        names = {id(p): name for name, p in training.model.named_parameters()}
        check_gradients(training.loss(*batch), names, state.report, seed=task.seed)
    (training.update if task.step else training.loss)(*batch).item()


def _onnx(task: _Task) -> None:
    from anneal.onnx import load
    from anneal.tensor import Tensor, tree_leaves

    model = load(Path(task.name), None)
    sizes = list(task.size or ())
    if task.batch is not None:
        first = {v.shape[0] for v in model.inputs if v.shape}
        sizes += [f"{d}={task.batch}" for d in first if isinstance(d, str)]
    for t in tree_leaves(model.run(feeds_of(model, task.input, sizes, task.seed))):
        if isinstance(t, Tensor):
            t.numpy()


def record(report: Report) -> Json:
    """A report as `--json` has it."""
    first, last = ("ok", "reason"), ("elements", "compared", "tensor_elements", "unjudged")
    parts = [{name: getattr(report, name) for name in names} for names in (first, last)]
    found: Json = _finite({**parts[0], "text": str(report), **asdict(report), **parts[1]})
    return found


def _finite(x: Any) -> Any:
    """The same with text for numbers that JSON lacks."""
    if isinstance(x, dict):
        return {k: _finite(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [_finite(v) for v in x]
    return str(x) if isinstance(x, float) and not math.isfinite(x) else x


def _write(state: Checking, file: Path) -> None:
    from anneal.inspect import repro_of

    if not state.found:
        message(f"nothing differs that a kernel could show, so {file} was not written")
        return
    packed = io.BytesIO()
    repro_of(state.found[0], packed)
    write_file(file, packed.getvalue())
    message(f"wrote {file}; run it anywhere: anneal check --replay {file}")


def replay(task: flags.Reporting, file: Path) -> None:
    """Run the kernel of a `--repro` file on this machine; AnnealError if it differs from what is expected."""
    from anneal.inspect import replayed

    with flags.reading(file) as f:
        raw = f.read()
    found = replayed(raw, str(file), settings.current().device)
    task.tell(_finite(asdict(found)), found)
    if not found.ok:
        raise AnnealError(f"{file}: the kernel differs on {found.device}")
