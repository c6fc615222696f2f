"""`anneal record`: a script, and every plan that it runs."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anneal.cli._choices import check_writable, write_file
from anneal.cli._output import data, json_line, message
from anneal.cli._scripts import check_script, run_script, trace_of
from anneal.errors import UserError
from anneal.inspect import RecordedPlan, Recording, chrome_trace, recording

__all__ = ["Task", "record"]

_REASONS = 4  # plans of which it is said why their times do not agree
SAVE_S = 1.0  # a recording that is watched meanwhile is at most so old when a plan is new


@dataclass(frozen=True, slots=True)
class Task:
    """The flags of the command."""

    script: str
    arguments: Sequence[str]
    output: Path | None
    trace: Path | None
    plans: int
    times: bool
    as_json: bool


def record(task: Task) -> None:
    """Run the script; UserError, once everything is written, if it fails."""
    check_script(task.script)
    if task.output is not None and task.output.suffix != ".zip":
        raise UserError(f"-o writes a .zip file, not {task.output.name}")
    if task.trace is not None and not task.times:
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
    with recording(Path(task.script).name, most=task.plans, times=task.times, told=told) as state:
        try:
            run_script(task.script, task.arguments, aside=task.as_json)
        except UserError as error:
            failed = error
            state.error = trace_of(error, task.script)
    _tell(task, state)
    if failed is not None:
        raise failed


def _tell(task: Task, state: Recording) -> None:
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
