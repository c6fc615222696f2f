"""Run bundles: what a training run was and did, in a folder of its own that appears whole or not at all.

    runs/20260314T150926-nanogpt-a1b2c3/
        manifest.json    what ran, where, how it ended; size and SHA-256 of every other file
        config.json      the options, and the settings in force
        events.jsonl     what `--json` prints
        loss.csv         step, loss, milliseconds
        ranks.csv        of several processes: the milliseconds of each step in each
        graph.txt        the tensor graph of one step, before any pass
        schedule.json    the step's kernels in order: what each reads and writes, its cost, its phase
        kernels/*.wgsl   their text, in C where the cpu compiles that

While the run goes on the folder has a name that begins with a dot; what a killed process leaves keeps it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from anneal import __version__, settings
from anneal.cli._reporters import JsonLines, Picture, Progress, Reporter, Start
from anneal.errors import DataError

if TYPE_CHECKING:
    from anneal.backend import AnyDevice
    from anneal.inspect import StepGraph

FOLDER = Path("runs")


class Several(Reporter):
    """Tells several reporters."""

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self._all = reporters
        self.measures = any(r.measures for r in reporters)

    def start(self, start: Start) -> None:
        for r in self._all:
            r.start(start)

    def step(self, progress: Progress) -> None:
        for r in self._all:
            r.step(progress)

    def saved(self, progress: Progress, folder: Path) -> None:
        for r in self._all:
            r.saved(progress, folder)

    def timed(self, progress: Progress) -> None:
        for r in self._all:
            r.timed(progress)

    def sampled(self, progress: Progress, sample: str, picture: Picture | None) -> None:
        for r in self._all:
            r.sampled(progress, sample, picture)

    def ended(self, progress: Progress) -> None:
        for r in self._all:
            r.ended(progress)

    def done(self, progress: Progress, sample: str, picture: Picture | None, stopped: bool) -> None:
        for r in self._all:
            r.done(progress, sample, picture, stopped)

    def close(self) -> None:
        for r in self._all:
            r.close()


class Bundle(JsonLines):
    """A bundle that is being written; `finish` moves it into place.

    Raises DataError if the folder cannot be made or written.
    """

    def __init__(self, model: str, config: dict[str, Any], folder: Path = FOLDER) -> None:
        self.begun = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self.begun))
        self.path = folder / f"{stamp}-{model}-{secrets.token_hex(3)}"
        self._place = self.path.with_name(f".{self.path.name}")
        self._facts: dict[str, Any] = {"model": model}
        self._status, self._finished = "failed", False
        self._open: list[IO[str]] = []
        with self._writing():
            (self._place / "kernels").mkdir(parents=True)
            self._write("config.json", _json({"options": config, "settings": dataclasses.asdict(settings.current())}))
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
        self._facts |= {k: v for k, v in dataclasses.asdict(start).items() if isinstance(v, (int, float, str))}
        super().start(start)

    def step(self, progress: Progress) -> None:
        with self._writing():
            self._losses.write(f"{progress.count},{progress.losses[-1]!r},{progress.times[-1]:.3f}\n")
        super().step(progress)

    def done(self, progress: Progress, sample: str, picture: Picture | None, stopped: bool) -> None:
        self._status = "stopped" if stopped else "done"
        self._facts |= {"steps_done": progress.count, "final_loss": progress.final_loss}
        if progress.rank_times:
            rows = [
                f"{progress.before + n + 1},{','.join(f'{t:.3f}' for t in row)}"
                for n, row in enumerate(zip(*progress.rank_times))
            ]
            names = ",".join([f"rank {n} ms" for n in range(len(progress.rank_times))])
            with self._writing():
                self._write("ranks.csv", "\n".join([f"step,{names}", *rows]) + "\n")
        if picture is not None:
            from anneal.training import png

            with self._writing():
                (self._place / "picture.png").write_bytes(png(picture.pixels))
        super().done(progress, sample, picture, stopped)

    # -- the rest of it

    def describe(self, traced: StepGraph, device: AnyDevice) -> None:
        """Write the graph of a step, its schedule and its kernels."""
        from anneal.cli._output import kernel_record
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
