"""Recordings: every plan that a program runs, with all that the studio shows of it.

    with anneal.inspect.recording() as r:
        train_one_step()
    r.save("step.zip")        # drop it on the studio's first page; or: anneal web, anneal record SCRIPT.py -o step.zip

A recording is saved as a zip file of JSON:

    recording.json           what ran, how it ended, and a line for each plan
    sources.json             of each file that nodes come from, the lines about those that they come from
    0/graph.json             the answers of `looking.py` for plan 0
    0/kernels.json           with the times of its launches, where they were measured
    0/passes.json, 0/pass/NAME.json
    0/kernel/N.json
"""

from __future__ import annotations

import dataclasses
import json
import linecache
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anneal import __version__, files
from anneal.backend import get_device
from anneal.errors import DataError, DeviceError, UserError
from anneal.inspect.looking import Looked, plain
from anneal.rewrite import Event, tracing
from anneal.runtime import Launch, here, watched
from anneal.runtime.profile import profile
from anneal.schedule import Plan
from anneal.uop import UOp

__all__ = ["RecordedPlan", "Recording", "recording"]

FORMAT = 1
CONTEXT = 8  # lines of source before and after each that a node comes from
_NOT_KEPT = "the recording has the texts of its first {} kernels, and this is a later one"


@dataclass(slots=True)
class RecordedPlan:
    """A plan that ran `runs` times. `line` is where its last result was asked for, as "file:line"; `seconds` what a run
    takes on `device` when it runs again and again, None where nothing was measured.
    """

    number: int
    device: str
    adapter: str | None
    nodes: int
    kernels: int
    distinct: int
    line: str
    seconds: float | None
    runs: int = 1
    packed: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # JSON: a plan of thousands of nodes has much

    def answer(self, name: str) -> Any:
        """An answer of `looking.py` by its name: "graph", "kernels", "passes", "pass/NAME", "kernel/N"."""
        return json.loads(zlib.decompress(self.packed[name]))

    def summary(self) -> dict[str, Any]:
        """All but the answers."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "packed"}


class Recording:
    """The plans that ran so far, in the order of their first runs.

    `left_out` counts runs of plans beyond the `most` that are kept. `told` is called with each plan that is new.

    Args:
        name: the name of the program.
        texts: the number of kernels whose text is kept.
        times: whether plans are timed.
        later: whether plans are looked at when the program has ended.
    """

    def __init__(
        self, name: str = "", *, most: int = 64, texts: int = 200, times: bool = True,
        told: Callable[[RecordedPlan], None] | None = None, later: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.begun, self.ended = name, time.time(), 0.0
        self.plans: list[RecordedPlan] = []
        self.left_out = 0
        self.error = ""
        self.sources: dict[str, dict[int, str]] = {}
        self._most, self._texts, self._times, self._told, self._later = most, texts, times, told, later
        self._waiting: list[tuple[UOp, Launch, list[Event]]] = []  # to be looked at
        self._runs: list[int] = []  # of each plan
        self._since: list[int] = []  # numbers of plans that ran since the last mark
        self._numbers: dict[Plan, int] = {}
        self.events: list[Event] = []

    def __call__(self, sink: UOp, step: Launch) -> None:
        number = self._numbers.get(step.plan)
        if number is not None:
            self._runs[number] += 1
            if number < len(self.plans):
                self.plans[number].runs += 1
        elif len(self._numbers) >= self._most:
            self.left_out += 1
        elif step.plan.calls:
            number = self._numbers[step.plan] = len(self._numbers)
            self._runs.append(1)
            self._waiting.append((sink, step, [*self.events]))
            if not self._later:
                self.look()
        self.events.clear()
        if number is not None:
            self._since.append(number)

    def mark(self) -> int | None:
        """The number of the largest plan that ran since the last mark; None where none ran that is kept."""
        since, self._since = self._since, []
        sizes = {n: len(plan.calls) for plan, n in self._numbers.items()}
        return max(since, key=lambda n: sizes[n], default=None)

    def look(self) -> None:
        """Look at the plans that wait for it, and time them."""
        outer, here.watchers = here.watchers, []
        try:
            for sink, step, fired in self._waiting:
                self._add(sink, step, fired)
        finally:
            here.watchers = outer
        self._waiting.clear()

    def _add(self, sink: UOp, step: Launch, fired: list[Event]) -> None:
        device = get_device(step.outputs[0].device)
        number = len(self.plans)
        looked = Looked(f"{self.name} plan {number}".strip(), sink, device.cost_model, fired)
        seconds, answers = None, self._answers(looked)
        if self._times:
            seconds, answers["kernels"]["times"] = _timed(step)
        adapter = device.describe().get("adapter")
        self.plans.append(
            RecordedPlan(
                number=number, device=device.name, adapter=None if adapter is None else str(adapter),
                nodes=looked.nodes, kernels=len(step.plan.calls),
                distinct=len({c.kernel.name for c in step.plan.calls}),
                line=_line(sink), seconds=seconds, runs=self._runs[number],
                packed={name: zlib.compress(_json(value), 1) for name, value in answers.items()},
            )
        )  # fmt: skip
        if self._told is not None:
            self._told(self.plans[-1])

    def _answers(self, looked: Looked) -> dict[str, Any]:
        found: dict[str, Any] = {"graph": looked.graph(), "kernels": looked.kernels(), "passes": looked.passes()}
        found |= {f"pass/{p.info.name}": p for p in looked.after()}
        for n in range(len(looked.plan.calls)):
            if n >= self._texts:
                found[f"kernel/{n}"] = {"text": None, "error": _NOT_KEPT.format(self._texts), "launch": None}
            else:
                found[f"kernel/{n}"] = looked.kernel(n)
        for file, line in looked.lines:
            self._keep_lines(file, line)
        return found

    def _keep_lines(self, file: str, line: int) -> None:
        kept = self.sources.setdefault(file, {})
        if line in kept and line + CONTEXT in kept:
            return
        text = linecache.getlines(file)
        for n in range(max(1, line - CONTEXT), min(len(text), line + CONTEXT) + 1):
            kept[n] = text[n - 1].rstrip("\n")

    def summary(self) -> dict[str, Any]:
        """The contents of recording.json."""
        return {
            "format": FORMAT, "anneal": __version__, "python": sys.version.split()[0], "name": self.name,
            "begun": self.begun, "ended": self.ended or time.time(), "error": self.error, "left_out": self.left_out,
            "plans": [p.summary() for p in self.plans],
        }  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write everything to `path`, a .zip file that the studio opens. Raises DataError where that cannot be."""
        place = Path(path)
        if place.suffix != ".zip":
            raise UserError(f"a recording is saved as a .zip file, not as {place.name}")
        made = {"recording.json": _json(self.summary()), "sources.json": _json(self.sources)}
        for p in self.plans:
            made |= {f"{p.number}/{name}.json": zlib.decompress(answer) for name, answer in p.packed.items()}

        def write(f: Any) -> None:
            with zipfile.ZipFile(f, "w", zipfile.ZIP_DEFLATED) as packed:
                for name, value in made.items():
                    packed.writestr(name, value)

        try:
            files.replace(place, write)
        except OSError as error:
            raise DataError(f"{place} cannot be written: {error.strerror or error}") from None
        return place

    def __str__(self) -> str:
        heads = ["plan", "runs", "ms a run", "kernels", "nodes", "device", "line"]
        rows = [
            [str(p.number), str(p.runs), "-" if p.seconds is None else f"{p.seconds * 1e3:.3f}", str(p.kernels),
             str(p.nodes), p.device, p.line]
            for p in self.plans
        ]  # fmt: skip
        from anneal.runtime.profile import aligned

        return "\n".join(aligned(heads, rows, words=5))


@contextmanager
def recording(name: str = "", **options: Any) -> Iterator[Recording]:
    """Record every plan that this thread runs inside the block: its graph after each pass, its kernels with where each
    line comes from, its memory, and the times of its launches.

    A plan is looked at and timed when it runs for the first time, in memory of its own; values are not kept. Functions
    under `jit` run as at their first call. Work of other threads is not seen.

    Args:
        name: what the studio calls it.
        most: plans that are kept; 64 if left out. Further ones are counted.
        texts: launches of a plan whose text is kept with where its lines come from; 200 if left out.
        times: whether launches are timed.
        told: called with each `RecordedPlan` when it is new.
        later: look at plans, and time them, not before `look` is called.

    Returns:
        A Recording: `plans`, as text a table of them, and `save`.

    >>> from anneal.tensor import Tensor
    >>> with recording() as r:
    ...     for _ in range(3):
    ...         x = (Tensor([1.0, 2.0], device="cpu") + 1.0).realize()
    >>> [(p.runs, p.kernels, p.nodes) for p in r.plans]
    [(3, 1, 4)]
    >>> r.plans[0].answer("graph")["nodes"][2]["op"]
    'ADD'
    """
    state = Recording(name, **options)
    with tracing() as state.events, watched(state):
        try:
            yield state
        finally:
            state.ended = time.time()


def _timed(step: Launch) -> tuple[float | None, dict[str, Any] | None]:
    """What a run takes, and the report that `anneal kernels --time --json` has of its launches."""
    device = get_device(step.outputs[0].device)
    try:
        times = profile(step.plan, device, step.inputs, step.values, heat=0.02, rounds=3)
    except DeviceError:  # one that cannot time single kernels
        return None, None
    whole = times.seconds or 1.0
    launches = [
        {"seconds": x.seconds, "share": x.seconds / whole, "gflops": x.gflops, "gbs": x.gbs, "opts": x.opts}
        for x in times.launches
    ]
    found = {
        "seconds": times.seconds, "plan_seconds": times.plan_seconds, "device": device.name,
        "adapter": device.describe().get("adapter"), "kernels": launches,
    }  # fmt: skip
    return times.plan_seconds, found


def _line(sink: UOp) -> str:
    """The user's line of the last result that has one."""
    for u in reversed(sink.src):
        _, code, line, _, _ = u.provenance
        if code is not None:
            return f"{code.co_filename}:{line}"
    return ""


def _json(value: Any) -> bytes:
    return json.dumps(value, default=plain, separators=(",", ":")).encode()
