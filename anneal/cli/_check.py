"""`anneal check`: kernels beside their graphs, and values beside the graph as it was written."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anneal import settings
from anneal.cli._choices import check_writable, write_file
from anneal.cli._models import check_model, load_example
from anneal.cli._output import data, json_report, message
from anneal.cli._scripts import check_script, run_script
from anneal.errors import AnnealError, DataError, UserError
from anneal.files import opened
from anneal.inspect import Checking, Limits, Report, check_gradients, replayed, repro_of, under_check

__all__ = ["Task", "check", "replay"]


@dataclass(frozen=True)
class Task:
    """The flags of the command: what is to be checked, and how."""

    target: str
    arguments: Sequence[str]
    step: bool
    batch: int | None
    inputs: Sequence[str]
    sizes: Sequence[str]
    seed: int
    gradients: bool
    times: int
    most: int
    repro: Path | None
    as_json: bool


def check(task: Task) -> None:
    """Check a model, a file or a script and print what was found; AnnealError if something differs."""
    if task.repro is not None:
        check_writable(task.repro)
    run = _job(task)
    limits, backwards = Limits(kernel=task.most, tensor=32 * task.most), task.gradients and task.target.endswith(".py")
    with under_check(limits, times=task.times, gradients=backwards) as state:
        run(state)
    report = state.report
    if not report.launches and not report.gradients:
        raise UserError(f"{task.target} computed nothing, so there is nothing to check")
    if task.repro is not None:
        _write(state, task.repro)
    if task.as_json:
        json_report({"target": task.target, **record(report)})
    else:
        _print(report)
    if backwards and not report.gradients:
        raise UserError(
            f"{task.target}: --gradients checks calls of backward(), and none of this script could be checked"
        )
    if not report.ok:
        raise AnnealError(f"{task.target}: {report.reason}")


def _job(task: Task) -> Callable[[Checking], None]:
    name = task.target
    if name.endswith(".py"):
        check_script(name)
        if task.step or task.batch is not None or task.inputs or task.sizes:
            raise UserError("a script says itself what it runs; leave --step, --batch, --input and --size out")
        return lambda state: run_script(name, task.arguments, task.as_json)
    if task.arguments:
        raise UserError(f"{task.arguments[0]!r}: only a script takes arguments")
    if name.endswith(".onnx"):
        if task.gradients or task.step:
            raise UserError("an ONNX file is run, not trained; leave --step and --gradients out")
        return lambda state: _onnx(task)
    check_model(name)
    if task.inputs or task.sizes:
        raise UserError("--input and --size are for ONNX files; a model of examples/ has batches of its own")
    return lambda state: _model(task, state)


def _model(task: Task, state: Checking) -> None:
    example = load_example(task.target)
    training = example.make(steps=example.STEPS, batch=task.batch or example.BATCH, seed=task.seed, lr=example.LR)
    batch = training.next_batch()
    if task.gradients:
        names = {id(p): name for name, p in training.model.named_parameters()}
        check_gradients(training.loss(*batch), names, state.report, seed=task.seed)
    (training.update if task.step else training.loss)(*batch).item()


def _onnx(task: Task) -> None:
    from anneal.cli._onnx import Job, feeds_of
    from anneal.onnx import load
    from anneal.tensor import Tensor

    model = load(Path(task.target), None)
    sizes = task.sizes
    if task.batch is not None:
        first = {v.shape[0] for v in model.inputs if v.shape}
        sizes = [*sizes, *[f"{d}={task.batch}" for d in first if isinstance(d, str)]]
    job = Job(Path(task.target), task.inputs, sizes, task.seed, None, task.as_json)
    for value in model.run(feeds_of(model, job)).values():
        for t in value if isinstance(value, list) else [value]:
            if isinstance(t, Tensor):
                t.numpy()


def record(report: Report) -> dict[str, Any]:
    """A report as `--json` has it."""
    found = {
        "ok": report.ok,
        "reason": report.reason,
        "text": str(report),
        **asdict(report),
        "elements": report.elements,
        "compared": report.compared,
        "tensor_elements": report.tensor_elements,
        "unjudged": report.unjudged,
    }
    out = _finite(found)
    assert isinstance(out, dict)
    return out


def _finite(x: Any) -> Any:
    """The same with text for numbers that JSON lacks."""
    if isinstance(x, dict):
        return {k: _finite(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [_finite(v) for v in x]
    return str(x) if isinstance(x, float) and not math.isfinite(x) else x


def _print(report: Report) -> None:
    for k in report.kernels:
        if k.note or not k.ok:
            data(f"kernel {k.kernel} {k.name} ({k.label}): {'' if k.ok else 'DIFFERS  '}{k.note}")
    data(str(report))


def _write(state: Checking, file: Path) -> None:
    if not state.found:
        message(f"nothing differs that a kernel could show, so {file} was not written")
        return
    packed = io.BytesIO()
    repro_of(state.found[0], packed)
    write_file(file, packed.getvalue())
    message(f"wrote {file}; run it anywhere: anneal check --replay {file}")


def replay(file: Path, *, as_json: bool) -> None:
    """Run the kernel of a `--repro` file on this machine; AnnealError if it differs from what is expected."""
    try:
        with opened(file) as f:
            raw = f.read()
    except OSError as e:
        raise DataError(f"{file} cannot be read: {e.strerror or e}") from None
    found = replayed(raw, str(file), settings.current().device)
    if as_json:
        json_report(_finite(asdict(found)))
    else:
        data(str(found))
    if not found.ok:
        raise AnnealError(f"{file}: the kernel differs on {found.device}")
