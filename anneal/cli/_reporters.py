"""Reports of a training: JSON lines, plain lines (`_dashboard.py` has the third way), and a run bundle."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from anneal import __version__, settings
from anneal.cli._output import data, harmless, json_line, kernel_record, message, show
from anneal.errors import DataError
from anneal.frozen import Json, frozen

if TYPE_CHECKING:
    from anneal.backend import AnyDevice
    from anneal.inspect import StepGraph

LAST = 50  # steps whose mean is the final loss


@frozen
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


@frozen
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
    measured: Json = field(default_factory=dict)  # of the step's plan (`Times.summary`)
    ranks: list[dict[str, float]] = field(default_factory=list)  # of each process that trained, where there are several
    rank_times: list[list[float]] = field(default_factory=list)  # milliseconds of each step, of each of them
    compile_s: float = 0.0  # what making plans and kernels, or reading them from disk, has taken so far
    sample: str = ""  # what the model showed last
    picture: Picture | None = None  # and drew
    stopped: bool = False  # before its last step

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


@frozen
class Picture:
    """A picture that a model has drawn: the PNG file that was asked for, if any, and its pixels, uint8 (h, w, 3)."""

    path: Path | None
    pixels: Any


def picture_kept(path: Path | None) -> str:
    """The place where a picture was written, or how to ask for it."""
    return f"picture {path}" if path is not None else "picture shown only; --picture FILE.png keeps it"


def _written(picture: Picture | None) -> str | None:
    return str(picture.path) if picture and picture.path else None


class Reporter:
    """Told of a training's events; it says what its methods say, which have the events' names:

        start(start)               the facts are known
        step(progress)             a step is done
        saved(progress, folder)    a checkpoint is in the folder
        ranked(progress)           `progress.ranks` are those of now
        timed(progress)            `progress.slowest` and `progress.measured` are of more steps now
        sampled(progress)          the model shows on the way what it learnt: `progress.sample` and `picture`
        ended(progress)            the steps are done; what the model has to show is being made
        done(progress)             all is done
        close()                    the end, by an error too: the terminal is given back

    `measures`: it shows learning rate, gradients' norm, memory and the slowest kernels, so they are to be measured.
    """

    measures: bool = False

    def tell(self, event: str, *facts: Any) -> None:
        """Report an event with its facts."""
        if (method := getattr(self, event, None)) is not None:
            method(*facts)


class JsonLines(Reporter):
    """One JSON object per event, on stdout."""

    def line(self, **fields: Any) -> None:
        """Write one event."""
        json_line(**fields)

    def start(self, start: Start) -> None:
        names = ("model", "device", "adapter", "params", "steps", "batch", "seed", "lr", "data")
        self.line(event="start", **{name: getattr(start, name) for name in names})

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

    def sampled(self, progress: Progress) -> None:
        self.line(event="sample", step=progress.count, sample=progress.sample, picture=_written(progress.picture))

    def done(self, progress: Progress) -> None:
        self.line(
            event="done", steps=progress.count, final_loss=progress.final_loss, final_loss_steps=progress.final_steps,
            median_ms=round(progress.median_ms, 3), compile_s=round(progress.compile_s, 3), kernels=progress.kernels,
            kernels_unwatched=progress.kernels_unwatched, uops_forward=progress.uops_forward,
            uops_backward=progress.uops_backward, sample=progress.sample,
            picture=_written(progress.picture), stopped=progress.stopped, **told_of(progress.ranks),
        )  # fmt: skip


def told_of(ranks: list[dict[str, float]]) -> Json:
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

    def sampled(self, progress: Progress) -> None:
        data(f"sample after step {progress.count}:")
        _show(progress)

    def done(self, progress: Progress) -> None:
        if self._start:
            _footer(self._start, progress)


def header(start: Start) -> list[str]:
    on = f"{start.device} ({start.adapter})" if start.adapter else start.device
    done = f", where {start.before} steps are done already" if start.before else ""
    return [
        f"model   {start.model}: {start.info}, {start.params:,} parameters",
        f"data    {start.data}",
        f"device  {on}",
        f"run     {start.steps} steps of {start.batch}, lr {start.lr:g}, seed {start.seed}; Ctrl-C stops with a sample",
        *([] if start.checkpoint is None else [f"saves   {start.checkpoint}{done}"]),
    ]


def _show(progress: Progress) -> None:
    """The last sample, and its picture."""
    data(harmless(progress.sample))
    if progress.picture is not None:
        show(progress.picture.pixels)


def _footer(start: Start, progress: Progress) -> None:
    if progress.losses:
        rate = start.examples_per_step / progress.median_ms * 1e3
        data(
            f"{'stopped after' if progress.stopped else 'done:'} {progress.count} steps  "
            f"final loss {progress.final_loss:.4f} (mean of the last {progress.final_steps})  "
            f"median {progress.median_ms:.1f} ms  {rate:,.0f} {start.unit}/s"
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
    _show(progress)


FOLDER = Path("runs")


class Several(Reporter):
    """A reporter that passes every event on to several others."""

    def __init__(self, *reporters: Reporter) -> None:
        self.reporters = reporters

    def tell(self, event: str, *facts: Any) -> None:
        for r in self.reporters:
            r.tell(event, *facts)


class Bundle(JsonLines):
    """A run bundle that is being written: what a training run was and did; `finish` moves it into place, whole.

        runs/20260314T150926-nanogpt-a1b2c3/
            manifest.json    what ran, where, how it ended; size and SHA-256 of every other file
            config.json      the options, and the settings in force
            events.jsonl     what `--json` prints
            loss.csv         step, loss, milliseconds
            ranks.csv        of several processes: the milliseconds of each step in each
            graph.txt        the tensor graph of one step, before any pass
            schedule.json    the step's kernels in order: what each reads and writes, its cost, its phase
            kernels/*.wgsl   their text, in C where the cpu compiles that

    While the run goes on the folder has a name that begins with a dot; what a killed process leaves keeps it. Raises
    DataError if the folder cannot be made or written.
    """

    def __init__(self, model: str, config: Json, folder: Path = FOLDER) -> None:
        self.begun = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self.begun))
        self.path = folder / f"{stamp}-{model}-{secrets.token_hex(3)}"
        self._place = self.path.with_name(f".{self.path.name}")
        self._facts: Json = {"model": model}
        self._status, self._finished = "failed", False
        self._open: list[IO[str]] = []
        with self._writing():
            (self._place / "kernels").mkdir(parents=True)
            self._write("config.json", _json({"options": config, "settings": asdict(settings.current())}))
            self._events = self._opened("events.jsonl")
            self._losses = self._opened("loss.csv")
            self._losses.write("step,loss,ms\n")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Take the bundle away if it cannot be written, as on a disk that is full, and say so: half of one is none."""
        try:
            yield
        except OSError as error:
            self._finished = True
            for file in self._open:
                with contextlib.suppress(OSError):
                    file.close()
            shutil.rmtree(self._place, ignore_errors=True)
            raise DataError(
                f"the bundle {self.path} cannot be written ({error.strerror or error}); leave out --bundle"
            ) from error

    def _opened(self, name: str) -> IO[str]:
        self._open.append((self._place / name).open("w", encoding="utf-8"))
        return self._open[-1]

    def _write(self, name: str, text: str) -> None:
        (self._place / name).write_text(text, encoding="utf-8")

    # -- a reporter

    def line(self, **fields: Any) -> None:
        """An event, as `--json` prints it."""
        with self._writing():
            self._events.write(json.dumps(fields) + "\n")

    def start(self, start: Start) -> None:
        self._facts |= {k: v for k, v in asdict(start).items() if isinstance(v, (int, float, str))}
        super().start(start)

    def step(self, progress: Progress) -> None:
        with self._writing():
            self._losses.write(f"{progress.count},{progress.losses[-1]!r},{progress.times[-1]:.3f}\n")
        super().step(progress)

    def done(self, progress: Progress) -> None:
        self._status = "stopped" if progress.stopped else "done"
        self._facts |= {"steps_done": progress.count, "final_loss": progress.final_loss}
        if progress.rank_times:
            rows = [["step", *[f"rank {n} ms" for n in range(len(progress.rank_times))]]]
            for n, row in enumerate(zip(*progress.rank_times), progress.before + 1):
                rows.append([str(n), *[f"{t:.3f}" for t in row]])
            with self._writing():
                self._write("ranks.csv", "".join(",".join(row) + "\n" for row in rows))
        if progress.picture is not None:
            from anneal.training import png

            with self._writing():
                (self._place / "picture.png").write_bytes(png(progress.picture.pixels))
        super().done(progress)

    # -- the rest of it

    def describe(self, traced: StepGraph, device: AnyDevice) -> None:
        """Write the graph of a step, its schedule and its kernels."""
        from anneal.inspect import kernel_calls, nodes, wgsl_for
        from anneal.schedule import graph, origins, plan_for

        sink = graph(traced.outputs)
        plan, _, _ = plan_for(sink, device.cost_model)
        found = [kernel_record(k) for k in kernel_calls(plan, origins(sink), wgsl_for(device, plan))]
        with self._writing():
            self._write("graph.txt", "\n".join(map(str, nodes(traced.nodes))) + "\n")
            for kernel in found:
                self._write(f"kernels/{kernel['name']}.wgsl", kernel.pop("wgsl"))
            self._write("schedule.json", _json({"kernels": found}))

    def finish(self, error: BaseException | None = None) -> Path:
        """Write the manifest and give the folder its name; the second time nothing."""
        if self._finished:
            return self.path
        self._finished = True
        with self._writing():
            self._finish(error)
        return self.path

    def _finish(self, error: BaseException | None) -> None:
        for f in self._open:
            f.flush()
            os.fsync(f.fileno())
            f.close()
        files = {}
        for p in sorted(self._place.rglob("*")):
            if p.is_file():
                data = p.read_bytes()
                name = p.relative_to(self._place).as_posix()
                files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        facts = {
            "format": 1, "anneal": __version__, "python": sys.version.split()[0], "command": sys.argv[1:],
            "begun": _when(self.begun), "ended": _when(time.time()), "status": self._status,
            "error": None if error is None else f"{type(error).__name__}: {error}", **self._facts, "files": files,
        }  # fmt: skip
        self._write("manifest.json", _json(facts))
        self._place.rename(self.path)


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"
