"""`anneal record`."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anneal.cli import _flags as flags
from anneal.cli._choices import check_writable, on_device, refuse_option, write_file
from anneal.cli._output import data, json_line, message
from anneal.cli._scripts import check_script, run_script, trace_of
from anneal.errors import UserError

if TYPE_CHECKING:
    from anneal.inspect import PlanRecording, RecordedPlan


app = flags.alone()

_REASONS = 4  # plans of which it is said why their times do not agree
SAVE_S = 1.0  # a recording that is watched meanwhile is at most so old when a plan is new


@dataclass(frozen=True, slots=True)
class _Task:
    """The flags of the command."""

    context: typer.Context
    script: flags.Script
    arguments: flags.Arguments = None
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE.zip", help="Save the recording to this file; the studio opens it."
        ),
    ] = None
    trace: flags.Trace = None
    plans: Annotated[int, flags.number("Number of plans to keep; further ones are counted.", most=4096)] = 64
    no_times: Annotated[bool, flags.switch("--no-times", "Do not time kernels.")] = False
    device: flags.DeviceFlag = None
    adapter: flags.AdapterFlag = None
    quiet: flags.Quiet = False
    as_json: flags.Json = False


@flags.command(app, _Task, context_settings={"ignore_unknown_options": True})
def record(task: _Task) -> None:
    """Run a script and list every plan that it runs: kernels, nodes, times, source line; with -o all that the studio
    shows of them.
    """
    from anneal.inspect import recording

    refuse_option(task.context, task.script)
    check_script(task.script)
    if task.output is not None and task.output.suffix != ".zip":
        raise UserError(f"-o writes a .zip not {task.output.name}")
    if task.trace is not None and task.no_times:
        raise UserError("--trace shows times; leave --no-times out")
    for place in (task.output, task.trace):
        if place is not None:
            check_writable(place)
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

    failed: UserError | None = None
    name, times = Path(task.script).name, not task.no_times
    with on_device(task.device, task.adapter), recording(name, most=task.plans, times=times, told=told) as state:
        try:
            run_script(task.script, task.arguments or (), aside=task.as_json)
        except UserError as error:
            failed = error
            state.error = trace_of(error, task.script)
    _tell(task, state)
    if failed is not None:
        raise failed


def _tell(task: _Task, state: PlanRecording) -> None:
    from anneal.inspect import chrome_trace

    if task.output is not None:
        state.save(task.output)
    if task.trace is not None:
        events = []
        for plan in state.plans:
            answer = plan.answer("kernels")
            if answer["times"] is not None:
                launches = [{**k, **t} for k, t in zip(answer["kernels"], answer["times"]["kernels"], strict=True)]
                found = chrome_trace(
                    f"{state.name} plan {plan.number}", launches, plan.device, answer["memory"]["live"]
                )
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
            data(f"plan {plan.number}: of a step " + ", ".join([f"{name} {x:.0%}" for name, x in parts.items()]))
        for reason in times.get("reasons", ()):
            data(f"plan {plan.number}: {reason}")
    if state.left_out:
        message(f"{state.left_out} runs of further plans were not kept; --plans keeps more")
    if task.output is not None:
        message(f"wrote {task.output}; drop it on the page of `anneal web`")
