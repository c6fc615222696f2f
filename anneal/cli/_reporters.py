"""Two ways to tell how training goes: JSON lines and plain lines; `_dashboard.py` has the third."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anneal.cli._output import data, harmless, json_line, message, show

LAST = 50  # steps whose mean is the final loss


@dataclass(frozen=True, slots=True)
class Start:
    """The facts known before the first step."""

    model: str
    info: str
    data: str
    device: str
    adapter: str | None
    params: int
    steps: int
    batch: int
    seed: int
    lr: float
    unit: str
    examples_per_step: int
    checkpoint: Path | None = None
    before: int = 0  # steps that earlier processes did


@dataclass(frozen=True, slots=True)
class Slow:
    """The time of all launches of one kernel of a step, the median of the steps in which kernels were timed; half of
    them are between `low` and `high`. `share` is of the step's kernels."""

    phase: str
    label: str
    seconds: float
    share: float
    low: float = 0.0
    high: float = 0.0


@dataclass(slots=True)
class Progress:
    """Measurements so far; times in milliseconds, one per step, beside the losses."""

    losses: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    kernels: int = 0
    kernels_unwatched: int | None = None  # of a step that keeps no norm of its gradients, if this one does
    uops_forward: int = 0
    uops_backward: int = 0
    before: int = 0  # steps that earlier processes did
    vitals: dict[str, float | int | None] = field(default_factory=dict)  # lr, norm, bytes, where they are asked for
    phases: dict[str, int] = field(default_factory=dict)  # kernels of a step, by phase
    timing: bool = False  # whether kernels are timed, in some of the steps
    slowest: list[Slow] = field(default_factory=list)  # those that take longest
    measured: dict[str, Any] = field(default_factory=dict)  # of the step's plan (`Times.summary`)
    ranks: list[dict[str, float]] = field(default_factory=list)  # of each process that trained, where there are several
    rank_times: list[list[float]] = field(default_factory=list)  # milliseconds of each step, of each of them
    compile_s: float = 0.0  # what making plans and kernels, or reading them from disk, has taken so far

    @property
    def count(self) -> int:
        """Steps done so far."""
        return self.before + len(self.losses)

    @property
    def median_ms(self) -> float:
        """The median step; the first ones, which compile, count only when there is nothing else."""
        return statistics.median(self.times[2:] or self.times or [0.0])

    @property
    def final_steps(self) -> int:
        """The number of steps whose mean is `final_loss`: the last LAST that this process did."""
        return min(LAST, len(self.losses))

    @property
    def final_loss(self) -> float | None:
        """The mean loss of the last steps: that of one batch tells little."""
        last = self.losses[-LAST:]
        return sum(last) / len(last) if last else None


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that a model has drawn: the PNG file that was asked for, if any, and its pixels, uint8 (h, w, 3)."""

    path: Path | None
    pixels: Any


def picture_kept(path: Path | None) -> str:
    """The place where a picture was written, or how to ask for it."""
    return f"picture {path}" if path is not None else "picture shown only; --picture FILE.png keeps it"


class Reporter:
    """Told of the start, of every step, and of the end, and says nothing of them. `measures`: it shows learning rate,
    gradients' norm, memory and the slowest kernels, so they are to be measured.
    """

    measures: bool = False

    def start(self, start: Start) -> None:
        """The facts are known."""

    def step(self, progress: Progress) -> None:
        """A step is done."""

    def saved(self, progress: Progress, folder: Path) -> None:
        """A checkpoint is in the folder."""

    def ranked(self, progress: Progress) -> None:
        """`progress.ranks` are those of now."""

    def timed(self, progress: Progress) -> None:
        """`progress.slowest` and `progress.measured` are of more steps now."""

    def sampled(self, progress: Progress, sample: str, picture: Picture | None) -> None:
        """The model shows on the way what it learnt."""

    def ended(self, progress: Progress) -> None:
        """The steps are done; what the model has to show is being made."""

    def done(self, progress: Progress, sample: str, picture: Picture | None, stopped: bool) -> None:
        """All is done."""

    def close(self) -> None:
        """Give the terminal back; called at the end, and when an error ends the run."""


class JsonLines(Reporter):
    """One JSON object per event, on stdout."""

    def line(self, **fields: Any) -> None:
        """Write one event."""
        json_line(**fields)

    def start(self, start: Start) -> None:
        self.line(
            event="start", model=start.model, device=start.device, adapter=start.adapter, params=start.params,
            steps=start.steps, batch=start.batch, seed=start.seed, lr=start.lr, data=start.data,
        )  # fmt: skip

    def step(self, progress: Progress) -> None:
        self.line(
            event="step", step=progress.count, loss=progress.losses[-1], ms=round(progress.times[-1], 3),
            **progress.vitals,
        )  # fmt: skip

    def saved(self, progress: Progress, folder: Path) -> None:
        self.line(event="checkpoint", step=progress.count, folder=str(folder))

    def ranked(self, progress: Progress) -> None:
        self.line(event="ranks", step=progress.count, **told_of(progress.ranks))

    def timed(self, progress: Progress) -> None:
        self.line(
            event="kernels", kernels=progress.kernels, slowest=[asdict(s) for s in progress.slowest],
            times=progress.measured,
        )  # fmt: skip

    def sampled(self, progress: Progress, sample: str, picture: Picture | None) -> None:
        self.line(
            event="sample",
            step=progress.count,
            sample=sample,
            picture=str(picture.path) if picture and picture.path else None,
        )

    def done(self, progress: Progress, sample: str, picture: Picture | None, stopped: bool) -> None:
        self.line(
            event="done", steps=progress.count, final_loss=progress.final_loss, final_loss_steps=progress.final_steps,
            median_ms=round(progress.median_ms, 3), compile_s=round(progress.compile_s, 3), kernels=progress.kernels,
            kernels_unwatched=progress.kernels_unwatched, uops_forward=progress.uops_forward,
            uops_backward=progress.uops_backward, sample=sample,
            picture=str(picture.path) if picture and picture.path else None, stopped=stopped, **told_of(progress.ranks),
        )  # fmt: skip


def told_of(ranks: list[dict[str, float]]) -> dict[str, Any]:
    """The field of an event for several processes; none for one."""
    return {"ranks": ranks} if ranks else {}


@dataclass(slots=True)
class PlainLines(Reporter):
    """A line every `every` steps, on stdout, or none if that is 0; what the run is about goes to stderr."""

    every: int
    measures: bool = False
    _start: Start | None = None

    def start(self, start: Start) -> None:
        self._start = start
        for line in header(start):
            message(line)

    def step(self, progress: Progress) -> None:
        count = progress.count
        total = self._start.steps if self._start else count
        if self.every and (len(progress.losses) == 1 or count % self.every == 0 or count == total):
            data(f"step {count:0{len(str(total))}d}  loss {progress.losses[-1]:.4f}  {progress.times[-1]:.1f} ms")

    def sampled(self, progress: Progress, sample: str, picture: Picture | None) -> None:
        data(f"sample after step {progress.count}:")
        data(harmless(sample))
        if picture is not None:
            show(picture.pixels)

    def done(self, progress: Progress, sample: str, picture: Picture | None, stopped: bool) -> None:
        if self._start:
            _footer(self._start, progress, sample, picture, stopped)


def header(start: Start) -> list[str]:
    on = f"{start.device} ({start.adapter})" if start.adapter else start.device
    return [
        f"model   {start.model}: {start.info}, {start.params:,} parameters",
        f"data    {start.data}",
        f"device  {on}",
        f"run     {start.steps} steps of {start.batch}, lr {start.lr:g}, seed {start.seed}; Ctrl-C stops with a sample",
        *([] if start.checkpoint is None else [f"saves   {start.checkpoint}{_from(start.before)}"]),
    ]


def _from(before: int) -> str:
    return f", where {before} steps are done already" if before else ""


def _footer(start: Start, progress: Progress, sample: str, picture: Picture | None, stopped: bool) -> None:
    if progress.losses:
        rate = start.examples_per_step / progress.median_ms * 1e3
        data(
            f"{'stopped after' if stopped else 'done:'} {progress.count} steps  final loss {progress.final_loss:.4f}"
            f" (mean of the last {progress.final_steps})  median {progress.median_ms:.1f} ms  {rate:,.0f} "
            f"{start.unit}/s"
        )
        data(
            f"forward {progress.uops_forward} uops  backward {progress.uops_backward} uops  "
            f"fused into {progress.kernels} kernels  compiled in {progress.compile_s:.1f} s"
        )
    for n, r in enumerate(progress.ranks):
        data(
            f"rank {n}  median {r['median_ms']:.1f} ms  waited {r['waiting']:.1%} of the time  "
            f"sent {r['sent_bytes'] / 1e6:.2f} MB a step"
        )
    data("sample:")
    data(harmless(sample))
    if picture is not None:
        show(picture.pixels)
