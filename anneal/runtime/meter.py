"""Times of plans as a program runs them, with a clock beside each kernel: `metered` shows how."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anneal.backend import Timed, nothing
from anneal.errors import DeviceError
from anneal.frozen import frozen
from anneal.runtime.context import modes
from anneal.runtime.launch import Execution, Staged
from anneal.runtime.steps import Launch
from anneal.schedule import Plan
from anneal.uop import UOp

FAR = 0.15  # two times that differ by more than this part of the larger need a reason
_RUNS = 2048  # of a plan whose times are kept: beyond, every second one, then every fourth
_SAMPLES = 64  # of its runs with a clock beside each kernel, or
_TIMES = 1 << 13  # this many times of kernels, where those are more runs
_PART = 0.2  # of the steps in which a device that works beside the program is waited for
_GOLDEN = 0.6180339887498949


@frozen
class Spread:
    """The median of `count` measured times, in seconds, with the quartiles about it: half of them are between `low` and
    `high`.
    """

    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(seconds: Sequence[float]) -> Spread | None:
        """The spread of some times; None of none.

        Args:
            seconds: the times, in any order.

        >>> Spread.of([3.0, 1.0, 2.0, 9.0, 2.5])
        Spread(median=2.5, low=2.0, high=3.0, count=5)
        """
        if not seconds:
            return None
        several = seconds if len(seconds) > 1 else [*seconds] * 2
        low, median, high = statistics.quantiles(several, n=4, method="inclusive")
        return Spread(median, low, high, len(seconds))

    def __str__(self) -> str:
        return f"{said(self.median)} ({said(self.low)} to {said(self.high)})" if self.count > 1 else said(self.median)


def said(seconds: float) -> str:
    """A time in words.

    >>> said(0.0000123), said(0.0123), said(1.23)
    ('12.3 us', '12.30 ms', '1.23 s')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def differ(a: float, b: float) -> bool:
    """True if two times differ by more than FAR of the larger."""
    return abs(a - b) > FAR * max(a, b)


@frozen
class Times:
    """The times of one plan, in seconds; what was not measured is None.

    `run` is from the first kernel's start to the last one's end; `step` from the start of one run to the start of the
    next, and so has all that the program does in between; `others` is the part of a step in which further plans run,
    `python` the part in which none does, by a clock of its own. `kernels` is the sum of all kernels in one run, over
    the runs in which each was timed, and `timed` what those runs took; `each` has, by launch, the times of single
    kernels. `total` is what all runs together took. `parts` are those of a step: "kernels", "other plans" and "between
    kernels", each measured by itself in the steps between the quartiles, as a part of these steps' time: their sum is 1
    but for what measuring takes. It is empty where the device works beside the program.
    """

    runs: int
    first: float | None
    run: Spread | None
    step: Spread | None
    others: Spread | None
    python: Spread | None
    kernels: Spread | None
    timed: Spread | None
    each: tuple[Spread, ...]
    share: tuple[float, ...]  # of each launch in the time of all kernels
    total: float | None
    waited: float  # the part of the time in which the program was ready to run, and other processes had the processor
    beside: bool  # whether the device works in parallel to the program
    launches: int
    parts: dict[str, float] = dataclasses.field(default_factory=dict)

    def reasons(self) -> list[str]:
        """The reasons why the times are not reliable, one sentence each: sums that do not agree, or too few runs. None
        if all agree.
        """
        found = []
        if self.runs == 1:
            found.append("it ran once: a first run also gets memory, and is slower than later ones")
        run, kernels, step = self.run, self.kernels, self.step
        if run and kernels and self.timed and differ(run.median, kernels.median):
            found.append(self._of_kernels(run, kernels, self.timed))
        if run and step and differ(step.median, run.median):
            if self.python is None:
                found.append(
                    f"a step takes {said(step.median)} and a run {said(run.median)}: the program works while the "
                    "device does, or waits for it"
                )
            else:
                rest = [f"Python between the runs {said(self.python.median)}"]
                if self.others and self.others.median > FAR / 3 * step.median:
                    rest.append(f"other plans {said(self.others.median)}")
                found.append(f"of a step of {said(step.median)} a run is {said(run.median)}, {', '.join(rest)}")
        if self.waited > 0.1:
            found.append(f"other processes had the processor for {self.waited:.0%} of the time")
        wide = run or step
        if wide and wide.count > 1 and wide.high - wide.low > 0.3 * wide.median:
            found.append(f"the runs differ: half of them took {said(wide.low)} to {said(wide.high)}")
        return found

    def _of_kernels(self, run: Spread, kernels: Spread, timed: Spread) -> str:
        both = f"the kernels together take {said(kernels.median)} and a run {said(run.median)}"
        if self.beside:
            if kernels.median > run.median:
                return f"{both}: each was timed in a pass of its own, and in a run they work side by side"
            return f"{both}: {self.launches} kernels are started, and waited for at the end"
        if not differ(timed.median, run.median):
            return f"{both}: the rest is starting and ending {self.launches} launches"
        return f"{both}: the {timed.count} runs in which kernels were timed took {timed}, all {run.count} {run}"

    def summary(self) -> dict[str, Any]:
        """The measurement without single kernels, ready for JSON."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("each", "share")}
        made = {k: dataclasses.asdict(v) if isinstance(v, Spread) else v for k, v in found.items()}
        return {**made, "reasons": self.reasons()}


_NEVER = Spread(0.0, 0.0, 0.0, 0)


class _Kept:
    """Rows in the order in which they were measured: all of them, until they are many, and then some of them, as dense
    at the end as at the beginning."""

    def __init__(self, most: int) -> None:
        self.most, self.rows = most, list[Any]()
        self.seen, self.every = 0, 1

    def add(self, row: Any) -> None:
        self.seen += 1
        if self.seen % self.every == 0:
            self.rows.append(row)
        if len(self.rows) >= self.most:
            self.every *= 2
            self.rows = self.rows[1::2]


class Track:
    """The times of one plan so far.

    Args:
        meter: what measures it.
        launches: the number of its launches.
    """

    runs, total, first, took = 0, 0.0, 0.0, 0.0  # all, the first, and the last
    beside = False
    round = -1  # the step in which it ran last
    _last = (0.0, 0.0, 0.0)  # when the run before began, and what had been launched, and lain between, by then
    _disturbed = -1

    def __init__(self, meter: Meter, launches: int) -> None:
        self.meter, self.launches = meter, launches
        self.own, self._steps = _Kept(_RUNS), _Kept(_RUNS)
        self.samples = _Kept(max(_SAMPLES, _TIMES // max(1, launches)))

    def begun(self, now: float) -> None:
        """Note that a run begins: the one before is a whole step ago.

        Args:
            now: the time.
        """
        before, was, lain = self._last
        m = self.meter
        if self._disturbed == m.disturbed:
            self._steps.add((now - before, m.lain - lain, m.launched - was - self.took, self.took))
        self._last, self._disturbed = (now, m.launched, m.lain), m.disturbed

    @property
    def counts(self) -> tuple[int, int]:
        """The number of runs in which kernels were timed, and of others that were measured."""
        return len(self.samples.rows), self.own.seen

    def _later(self) -> list[Timed]:
        """The runs whose kernels were timed, without the first, once there are others."""
        found = self.samples.rows
        return found[1:] if len(found) > 3 else found

    def of(self, launches: Sequence[int]) -> Spread | None:
        """The times that some of the launches take together in a run; None where no kernel was timed.

        Args:
            launches: their numbers.
        """
        return Spread.of([sum([x.each[n] for n in launches]) for x in self._later()])

    def times(self) -> Times:
        """The times as they are known by now."""
        later = self._later()
        sums = [sum(x.each) for x in later]
        # the runs in the middle: one in which another process came between says nothing of a kernel's part
        middle = [later[n].each for n in _middle(sums)]
        whole = sum(map(sum, middle)) or 1.0
        run = Spread.of(self.own.rows)
        if run is None and self.runs and not self.beside:
            run = Spread.of([self.first])
        step, between, others, _ = self._columns()
        return Times(
            runs=self.runs, first=None if self.beside else self.first, run=run, step=Spread.of(step),
            others=None if self.beside else Spread.of(others), python=None if self.beside else Spread.of(between),
            kernels=Spread.of(sums),
            timed=Spread.of([x.seconds for x in later]),
            each=tuple([Spread.of(x) or _NEVER for x in zip(*[x.each for x in later], strict=True)]),
            share=tuple([sum(x) / whole for x in zip(*middle, strict=True)]),
            total=None if self.beside else self.total, waited=self.meter.waited(), beside=self.beside,
            launches=self.launches, parts={} if self.beside else self._parts(),
        )  # fmt: skip

    def _columns(self) -> list[list[float]]:
        return list(map(list, zip(*self._steps.rows))) or [[]] * 4

    def _parts(self) -> dict[str, float]:
        """The parts of a step. Of the steps in the middle: medians of parts do not add up where steps differ."""
        step, between, others, took = self._columns()
        middle = _middle(step)
        whole = sum([step[n] for n in middle])
        if not whole:
            return {}
        named = (("kernels", took), ("other plans", others), ("between kernels", between))
        found = {name: sum([part[n] for n in middle]) / whole for name, part in named}
        return {name: x for name, x in found.items() if x >= 0.005 or name != "other plans"}


def _middle(times: Sequence[float]) -> list[int]:
    """The numbers of the times between the quartiles, from the smallest on."""
    order = sorted(range(len(times)), key=times.__getitem__)
    return order[len(order) // 4 : len(order) - len(order) // 4]


class Meter:
    """The times of every plan that a thread runs, in `tracks`.

    Every run is measured in its place in the program, with its memory, its neighbours and whatever else the machine
    does. Nothing is run again for the sake of a time, and no time is multiplied by a count. A device that works beside
    the program (webgpu) is waited for in some of the steps, whole in one of them and kernel by kernel in the next; of
    the others only the program's clock is known.

    `shown` is called with the graph of each plan (`SINK(outputs...)`) when it runs for the first time, and the launch.
    What is captured already runs once as it stands, so that its graphs are shown.

    Args:
        kernels: whether kernels are timed in some of the runs.
        shown: a function of a graph and a Launch.
        between: called after a call that may have run plans, while no device is held.
        part: the part of the steps in which a device that works beside the program is waited for.
    """

    launched = 0.0  # what all runs took so far
    lain = _ended = 0.0  # what lay between them, and when the last one ended
    disturbed = 0  # counts what a step has of the meter's own work
    _round, _chosen, _how = 0, 0, ""  # a step; how many were chosen, and how this one is measured
    _end: tuple[float, float] | None = None

    def __init__(
        self, kernels: bool = True, shown: Callable[[UOp, Launch], None] | None = None,
        between: Callable[[], None] = nothing, part: float = _PART,
    ) -> None:  # fmt: skip
        self.tracks: dict[Plan, Track] = {}
        self.ran: dict[Plan, None] = {}  # the plans that ran since this dict was emptied
        self._kernels, self._shown, self.between, self._part = kernels, shown, between, part
        self._known: set[Plan] = set()
        self._captures: set[int] = set()
        self._delays = _delays()

    # -- graphs

    def knows(self, plan: Plan) -> bool:
        """True if a plan's graph was shown.

        Args:
            plan: the plan.
        """
        return plan in self._known

    def asks_for(self, captured: object, plans: Sequence[Plan]) -> bool:
        """True if a captured function has to run its Python once, because no graph of it was shown yet.

        Args:
            captured: the capture.
            plans: the plans of its launches.
        """
        if self._known.issuperset(plans) or id(captured) in self._captures:
            return False
        self._captures.add(id(captured))
        return True

    def show(self, sink: UOp, step: Launch) -> None:
        """Show the graph of a plan that has just run, if it is new.

        Args:
            sink: the graph.
            step: the launch.
        """
        if step.plan not in self._known:
            self._known.add(step.plan)
            self.disturb()
            if self._shown:
                self._shown(sink, step)

    def show_again(self, plan: Plan) -> None:
        """Show the graph of a plan once more, when it is computed next.

        Args:
            plan: one that was shown.
        """
        self._known.discard(plan)
        self._captures.clear()

    def disturb(self) -> None:
        """Do not measure the steps under way: something outside the program has come between."""
        self.disturbed += 1

    # -- runs

    def chooses(self, plan: Plan, run: Execution | Staged) -> str:
        """The way in which the coming run is measured: "kernels", each timed; "whole", waited for; or "", as it is.

        Kernels are timed in every run, where that costs next to nothing; else in a plan's first, and in some steps.

        Args:
            plan: the plan.
            run: the launch, bound to memory.
        """
        if not (self._kernels and plan.calls):
            return ""
        if run.batch.waits:
            return "kernels"
        track = self._track(plan)
        if track.round == self._round:  # it comes again: a step is over
            self._round += 1
            # by count, since a choice by the clock prefers what comes after slow steps; in no rhythm of the program's
            chosen = self._round * _GOLDEN % 1.0 < self._part
            self._chosen += chosen
            self._how = ("kernels" if self._chosen % 2 else "whole") if chosen else ""
        track.round = self._round
        return self._how if track.runs else "kernels"

    def _track(self, plan: Plan) -> Track:
        track = self.tracks.get(plan)
        if track is None:
            track = self.tracks[plan] = Track(self, len(plan.calls))
        return track

    def run(self, plan: Plan, run: Execution | Staged) -> None:
        """Run a launch of a plan, measured.

        Args:
            plan: the plan, as its graph is known.
            run: the launch, bound to memory.
        """
        how = self.chooses(plan, run)
        track, batch, clock = self._track(plan), run.batch, time.perf_counter
        self.ran[plan] = None
        now = clock()
        if self._ended:
            self.lain += now - self._ended
        track.begun(now)
        if how and not batch.waits:
            self.disturb()
            run.device.synchronize()
        begun, timed = clock(), None
        if how == "kernels":
            try:
                timed = batch.timed()
                track.samples.add(timed)
            except DeviceError:  # one that cannot time single kernels
                how = "whole"
        if timed is None:
            run.run()
            if how == "whole" and not batch.waits:
                run.device.synchronize()
        self._ended = clock()
        took = self._ended - begun if timed is None else timed.seconds
        if not track.runs:
            track.first, track.beside = took, not batch.waits
        elif batch.waits or how == "whole":
            track.own.add(took)
        track.runs += 1
        track.took = took
        track.total += took
        self.launched += took

    def stop(self) -> None:
        """Stop measuring."""
        self._end = self._end or _delays()

    def waited(self) -> float:
        """The part of the time from the beginning to `stop` in which this thread could have run, and did not."""
        now = self._end or _delays()
        return (now[1] - self._delays[1]) / max(now[0] - self._delays[0], 1e-9)


def _delays() -> tuple[float, float]:
    """The time now, and for how long this thread has waited for a processor; 0 where the system does not tell."""
    try:
        return time.perf_counter(), int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return time.perf_counter(), 0.0


@contextmanager
def metered(meter: Meter | None = None) -> Iterator[Meter]:
    """Measure the plans that this thread runs inside the block. It goes on as fast as before, to a few microseconds a
    run and what timing kernels costs on a device that works beside the program.

    Args:
        meter: what measures; a new one if left out.

    >>> from anneal.tensor import Tensor
    >>> with metered() as meter:
    ...     for _ in range(5):
    ...         x = (Tensor([1.0, 2.0], device="cpu") + 1.0).realize()
    >>> [track.times().runs for track in meter.tracks.values()]
    [5]
    """
    meter = meter or Meter()
    with modes(meter=meter):
        yield meter
