"""Recordings: every plan that a program runs, with all that the studio shows of it."""

from __future__ import annotations

import json
import linecache
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from time import perf_counter, time
from typing import Any

from anneal import files
from anneal.backend import AnyDevice, Storage, get_device
from anneal.codegen import kernel_info
from anneal.errors import DataError, UserError
from anneal.frozen import Json, frozen
from anneal.inspect.kernel_list import c_target, lines_of
from anneal.inspect.looking import Looked, plain
from anneal.rewrite import Event, rebuild, tracing
from anneal.runtime import Launch, Meter, Times, metered
from anneal.runtime.profile import aligned
from anneal.schedule import Plan, origins
from anneal.uop import Known, Op, Src, UOp, arena
from anneal.version import __version__

FORMAT = 2
TOLD_S = 2.0  # from one telling of what is known to the next
LOOK_AFTER_S = 10.0  # a program that takes longer is looked at while it runs
LOOK_PART = 0.1  # for this part of the time
CALM = 8  # calls that run no new plan, until rules are listened to no longer
LISTEN_PART = 0.1  # the part of the time for which they are listened to again
CONTEXT = 8  # lines of source before and after each that a node comes from
_NOT_KEPT = "the recording has the texts of its first {} kernels, and this is a later one"


@dataclass(slots=True)
class RecordedPlan:
    """A plan that ran `runs` times. `line` is where its last result was asked for, as "file:line"; `seconds` what a run
    took on `device`, the median of those measured, None where nothing was; `times` has the rest of what was measured
    (`Times.summary`).
    """

    number: int
    device: str
    adapter: str | None
    nodes: int
    kernels: int
    distinct: int
    line: str
    seconds: float | None = None
    runs: int = 1
    times: Json | None = None
    looked: bool = False  # whether the plan was analysed
    packed: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # JSON: a plan of thousands of nodes has much

    def answer(self, name: str) -> Any:
        """An answer of `looking.py` by its name: "graph", "kernels", "passes", "pass/NAME", "kernel/N"."""
        return json.loads(zlib.decompress(self.packed[name]))

    def summary(self) -> Json:
        """The recording without its answers."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "packed"}


class PlanRecording:
    """The plans that ran so far, in the order of their first runs.

        with anneal.inspect.recording() as r:
            train_one_step()
        r.save("step.zip")    # drop it on the studio's first page; or: anneal web, anneal record SCRIPT.py -o step.zip

    A recording is saved as a zip file of JSON:

        recording.json           what ran, how it ended, and a line for each plan
        sources.json             of each file that nodes come from, the lines about those that they come from
        0/graph.json             the answers of `looking.py` for plan 0
        0/kernels.json           with the times of its launches, where they were measured
        0/passes.json, 0/pass/NAME.json
        0/kernel/N.json

    `left_out` counts runs of plans beyond the `most` that are kept. `told` is called with each plan that is new, and
    every two seconds with each that ran since.

    Args:
        name: the name of the program.
        texts: the number of kernels whose text is kept.
        times: whether plans are timed.
    """

    def __init__(
        self, name: str = "", *, most: int = 64, texts: int = 200, times: bool = True,
        told: Callable[[RecordedPlan], None] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.begun, self.ended = name, time(), 0.0
        self.plans: list[RecordedPlan] = []
        self.error = ""
        self.sources: dict[str, dict[int, str]] = {}
        self.meter = Meter(times, self._shown, self._between)
        self._most, self._texts, self._times, self._told = most, texts, times, told or (lambda plan: None)
        self._waiting: dict[int, tuple[UOp, list[Event]]] = {}  # by the plan's number: to be looked at
        self._numbers: dict[Plan, int] = {}
        self.events: list[Event] = []  # the rules that fired since the last call that may have run a plan
        self._ears, self._calm = ExitStack(), 0  # open while rules are listened to; calls since a plan was new
        self._listens = self._heard = 0.0  # since when, and for how long before
        self._clock = self._told_at = perf_counter()
        self._spent = 0.0  # seconds of looking while the program ran

    def listen(self) -> None:
        """Be told of the rules that fire: for that the program makes every node anew, so it is for new plans only."""
        if not self._listens:
            self._listens, self._calm = perf_counter(), 0
            self.events = self._ears.enter_context(tracing())

    def deafen(self) -> None:
        """Listen no longer."""
        if self._listens:
            self._heard += perf_counter() - self._listens
            self._listens, self.events = 0.0, []
            self._ears.close()

    def _shown(self, sink: UOp, step: Launch) -> None:
        fired, self._calm = [*self.events], 0
        self.events.clear()
        if step.plan in self._numbers:  # the plan is shown again to record its rules
            number = self._numbers[step.plan]
            if number in self._waiting:
                self._waiting[number] = _without_values(sink, fired)
            return
        if not step.plan.calls or len(self._numbers) >= self._most:
            return
        if not self._listens and self._heard < LISTEN_PART * (perf_counter() - self._clock):
            self.meter.show_again(step.plan)
            self.listen()
        device = get_device(step.outputs[0].device)
        plan = RecordedPlan(
            number=len(self.plans), device=device.name, adapter=device.adapter,
            nodes=len(origins(sink)), kernels=len(step.plan.calls),
            distinct=len({c.kernel.name for c in step.plan.calls}), line=_line(sink),
        )  # fmt: skip
        self._numbers[step.plan] = plan.number
        self.plans.append(plan)
        self._waiting[plan.number] = _without_values(sink, fired)
        self._measured(plan, step.plan)
        self._told(plan)

    def _between(self) -> None:
        """A plan has run: now and then what is known by now is told, and one of those that wait is looked at; the
        program has nine tenths of the time to itself."""
        now = perf_counter()
        if self._listens:
            self.events.clear()
            self.meter.disturb()
            self._calm += 1
            if self._calm > CALM:
                self.deafen()
        if now - self._told_at < TOLD_S:
            return
        if self._waiting and now - self._clock > LOOK_AFTER_S and self._spent < LOOK_PART * (now - self._clock):
            self._look(next(iter(self._waiting)))
            self._spent += perf_counter() - now
        for plan, number in self._numbers.items():
            if self.meter.tracks[plan].runs > self.plans[number].runs:
                self._measured(self.plans[number], plan)
                self._told(self.plans[number])
        self.meter.disturb()
        self._told_at = perf_counter()

    @property
    def left_out(self) -> int:
        """Runs of plans that are not kept."""
        return sum(t.runs for plan, t in self.meter.tracks.items() if t.launches and plan not in self._numbers)

    def mark(self) -> int | None:
        """The number of the largest plan that ran since the last mark; None where none ran that is kept."""
        since = [n for plan in self.meter.ran if (n := self._numbers.get(plan)) is not None]
        self.meter.ran.clear()
        return max(since, key=lambda n: self.plans[n].kernels, default=None)

    def look(self) -> None:
        """Look at the plans that wait for it, and note what was measured of all by now."""
        for number in [*self._waiting]:
            self._look(number)
        self.settle()

    def settle(self) -> None:
        """Note in `plans` what was measured by now, also beside the answers of those that were looked at."""
        for of, number in self._numbers.items():
            plan = self.plans[number]
            self._measured(plan, of)
            if plan.looked and self._times:
                device, times = get_device(plan.device), self.meter.tracks[of].times()
                opts = (device.compile(call.kernel.sink).opts for call in of.calls)
                timed = None if times.kernels is None else timed_launches(of, times, device, opts)
                kernels = {**plan.answer("kernels"), "times": timed}
                plan.packed = {**plan.packed, "kernels": zlib.compress(_json(kernels), 1)}

    def _measured(self, plan: RecordedPlan, of: Plan) -> None:
        times = self.meter.tracks[of].times()
        plan.runs = times.runs
        if self._times:
            plan.seconds, plan.times = times.run.median if times.run is not None else None, times.summary()

    def _look(self, number: int) -> None:
        plan, (sink, fired) = self.plans[number], self._waiting.pop(number)
        name, target = f"{self.name} plan {number}".strip(), c_target(plan.device)
        looked = Looked(name, sink, get_device(plan.device).cost_model, fired, target)
        plan.packed = {name: zlib.compress(_json(value), 1) for name, value in self._answers(looked).items()}
        plan.looked = True
        self.events.clear()

    def _answers(self, looked: Looked) -> Json:
        found: Json = {"graph": looked.graph(), "kernels": looked.kernels(), "passes": looked.passes()}
        found |= {f"pass/{p.info.name}": p for p in looked.after()}
        without = {"text": None, "error": _NOT_KEPT.format(self._texts), "launch": None}
        for n in range(len(looked.plan.calls)):
            found[f"kernel/{n}"] = looked.kernel(n) if n < self._texts else without
        for file, line in looked.lines:
            text = linecache.getlines(file)
            numbers = range(max(1, line - CONTEXT), min(len(text), line + CONTEXT) + 1)
            self.sources.setdefault(file, {}).update((n, text[n - 1].rstrip("\n")) for n in numbers)
        return found

    def summary(self) -> Json:
        """The contents of recording.json."""
        return {
            "format": FORMAT, "anneal": __version__, "python": sys.version.split()[0], "name": self.name,
            "begun": self.begun, "ended": self.ended or time(), "error": self.error, "left_out": self.left_out,
            "plans": [p.summary() for p in self.plans],
        }  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write everything to `path`, a .zip file that the studio opens. Raises DataError where that cannot be."""
        place = Path(path)
        if place.suffix != ".zip":
            raise UserError(f"a recording is saved as a .zip file, not as {place.name}")
        self.settle()
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
        heads = [
            "plan", "runs", "ms a run", "quartiles", "kernels", "Python", "ms a step", "launches", "nodes", "device",
            "line",
        ]  # fmt: skip
        rows = []
        for p in self.plans:
            t = p.times or {}
            run = t.get("run")
            rows.append([
                str(p.number), str(p.runs), _ms(run), "-" if run is None else f"{_ms(run, 'low')}-{_ms(run, 'high')}",
                _ms(t.get("kernels")), _ms(t.get("python")), _ms(t.get("step")), str(p.kernels), str(p.nodes), p.device,
                p.line,
            ])  # fmt: skip
        return "\n".join(aligned(heads, rows, words=9))


@contextmanager
def recording(name: str = "", *, later: bool = False, **options: Any) -> Iterator[PlanRecording]:
    """Record every plan that this thread runs inside the block: its graph after each pass, its kernels with where each
    line comes from, its memory, and the times of its launches.

    Runs are measured where they happen (`anneal.runtime.metered`), and plans are looked at when the block ends, or now
    and then where it takes long: the program goes on nearly as fast as without. Values are not kept. A function under
    `jit` that is captured already runs once as it stands. Work of other threads is not seen.

    Args:
        name: what the studio calls it.
        most: plans that are kept; 64 if left out. Further ones are counted.
        texts: launches of a plan whose text is kept with where its lines come from; 200 if left out.
        times: whether launches are timed.
        told: called with each `RecordedPlan` when it is new, and every two seconds when it has run since.
        later: look at plans not before `look` is called.

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
    state = PlanRecording(name, **options)
    try:
        with metered(state.meter):
            state.listen()
            try:
                yield state
            finally:
                state.deafen()
                state.ended = time()
    finally:
        state.meter.stop()
        if not later:
            state.look()


def _ms(spread: Json | None, part: str = "median") -> str:
    return "-" if spread is None else f"{spread[part] * 1e3:.3f}"


def _without_values(sink: UOp, fired: Sequence[Event]) -> tuple[UOp, list[Event]]:
    """A graph and the rules that made it, over placeholders in place of memory, so that the memory can be freed."""
    known: Known = {}

    def visit(u: UOp, src: Src) -> UOp:
        arg = Storage(u.arg.size, u.arg.dtype, u.arg.device) if u.op is Op.BUFFER else u.arg
        return u if arg is u.arg and src == u.src else arena().again(u, src, arg)

    def bare(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(bare, x))
        return x if x is None else rebuild(x, visit, known)

    return bare(sink), [replace(e, before=bare(e.before), after=bare(e.after)) for e in fired]


def _line(sink: UOp) -> str:
    """The user's line of the last result that has one."""
    return next((f"{x.file}:{x.line}" for x in lines_of(reversed(sink.src))), "")


def _json(value: Any) -> bytes:
    return json.dumps(value, default=plain, separators=(",", ":")).encode()


def timed_launches(plan: Plan, times: Times, device: AnyDevice, opts: Iterable[str]) -> Json:
    """The times of a plan and its launches on a device, as `anneal kernels --time --json` has them; `opts` are the
    launches'."""
    launches = []
    for call, each, share, opt in zip(plan.calls, times.each, times.share, opts, strict=True):
        info, seconds = kernel_info(call.kernel.sink), max(each.median, 1e-12)
        launches.append(
            {
                "seconds": each.median, "low": each.low, "high": each.high, "share": share,
                "gflops": info.flops / seconds / 1e9, "gbs": (info.bytes_read + info.bytes_written) / seconds / 1e9,
                "opts": opt,
            }
        )  # fmt: skip
    kernels, run = [None if x is None else x.median for x in (times.kernels, times.run)]
    return {
        "device": device.name, "adapter": device.adapter, "seconds": kernels, "plan_seconds": run,
        "times": times.summary(), "kernels": launches,
    }  # fmt: skip


LARGEST = 256 << 20  # bytes of one answer


@frozen
class KeptRecording:
    """A .zip file that `Recording.save` wrote. Nothing of it is unpacked to disk."""

    path: Path

    def summary(self) -> Json:
        """The summary of the recording: the program, its end, and the plans. Raises DataError for a file that is no
        recording.
        """
        found = self.read("recording.json")
        if not isinstance(found, dict) or not isinstance(found.get("plans"), list):
            raise DataError(f"{self.path.name}: this is no recording of anneal's")
        return found

    def plan(self, number: int) -> KeptPlan:
        """The answers about one plan. Raises UserError for one that there is not.

        Args:
            number: the number of the launch or plan, counted from 0.
        """
        count = len(self.summary()["plans"])
        if not 0 <= number < count:
            raise UserError(f"the recording has no plan {number}: it has {count}, from 0")
        return KeptPlan(self, number)

    def source(self, file: str, line: int, around: int) -> Json:
        """A line of the program that was recorded, with those about it that were kept.

        Args:
            file: the path, or its end.
            around: the number of lines before and after it.
        """
        sources = self.read("sources.json")
        kept = sources.get(file) if isinstance(sources, dict) else None
        if not isinstance(kept, dict) or str(line) not in kept:
            raise UserError("no node of this recording comes from that file")
        numbers = [n for n in range(max(1, line - around), line + around + 1) if str(n) in kept]
        return {"file": file, "first": numbers[0], "line": line, "lines": [str(kept[str(n)]) for n in numbers]}

    def read(self, name: str) -> Any:
        """A file of it as a value. Raises DataError for one that is missing, broken or too large.

        Args:
            name: the name of a file in the .zip file.
        """
        try:
            with zipfile.ZipFile(self.path) as packed:
                if packed.getinfo(name).file_size > LARGEST:
                    raise DataError(f"{self.path.name}: {name} is too large")
                return json.loads(packed.read(name))
        except KeyError:
            raise DataError(f"{self.path.name}: it has no {name}") from None
        except (OSError, ValueError, RecursionError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
            raise DataError(f"{self.path.name}: {name} cannot be read: {error}") from None


@frozen
class KeptPlan:
    """The answers of `Looked`, read from a plan of a recording."""

    recording: KeptRecording
    number: int

    def graph(self) -> Any:
        """The nodes, the names of the launches, and the names of the passes."""
        return self._read("graph")

    def passes(self, kernel: int | None = None) -> Any:
        """The passes, each with the number of nodes that it changed; of launch `kernel`, if one is named."""
        if kernel is not None:
            raise UserError("a recording keeps what the passes made of whole graphs, not of single kernels")
        return self._read("passes")

    def one_pass(self, name: str, kernel: int | None = None) -> Any:
        """The graph after pass `name`; of launch `kernel`, if one is named. Raises UserError for an unknown pass."""
        known = [p["info"]["name"] for p in self.passes(kernel)]
        if name not in known:
            raise UserError(f"there is no pass called {name[:60]!r}. There is: {', '.join(known)}")
        return self._read(f"pass/{name}")

    def kernels(self) -> Any:
        """The launches in order, with their times where they were measured."""
        return self._read("kernels")

    def kernel(self, number: int) -> Any:
        """The launch of that number. Raises UserError if the plan does not have it.

        Args:
            number: the number of the launch or plan, counted from 0.
        """
        count = len(self.kernels()["kernels"])
        if not 0 <= number < count:
            raise UserError(f"there is no kernel {number}: the plan has {count}, from 0")
        return self._read(f"kernel/{number}")

    def _read(self, name: str) -> Any:
        return self.recording.read(f"{self.number}/{name}.json")
