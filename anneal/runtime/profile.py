"""The time of each kernel of a plan on its device: `anneal kernels --time` and ANNEAL_DEBUG=2 show it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from anneal import progress
from anneal.backend import AnyDevice
from anneal.codegen import fused_ops, kernel_info
from anneal.frozen import frozen
from anneal.runtime.launch import Execution, compiled, new_outputs
from anneal.runtime.meter import Meter, Spread, Times, Track
from anneal.runtime.steps import Launch, Storages
from anneal.schedule import Plan

_LEAST = 5  # runs in which kernels are timed, and others
_MOST_S = 5.0  # beyond so many seconds one of each is enough


@frozen
class LaunchTime:
    """A launch of a kernel, or all of one kernel: estimated work (see `kernel_info`), what it took in the runs in which
    it was timed, its part in the time of all kernels, and the opts that shaped it."""

    name: str
    phase: str
    fused: str
    opts: str
    time: Spread
    share: float
    flops: int
    nbytes: int
    calls: int = 1  # how many launches the figures are of

    @property
    def seconds(self) -> float:
        """The median."""
        return self.time.median

    @property
    def gflops(self) -> float:
        """Float operations a nanosecond."""
        return self.flops / max(self.seconds, 1e-12) / 1e9

    @property
    def gbs(self) -> float:
        """Bytes a nanosecond that had to cross the kernel's boundary."""
        return self.nbytes / max(self.seconds, 1e-12) / 1e9


@frozen
class Profile:
    """A plan's launches in order, and the times of the whole plan when it runs again and again."""

    launches: tuple[LaunchTime, ...]
    track: Track
    times: Times

    @property
    def seconds(self) -> float:
        """The median of the sums of all kernels in one run."""
        return self.times.kernels.median if self.times.kernels else 0.0

    @property
    def plan_seconds(self) -> float:
        """The median of whole runs."""
        return self.times.run.median if self.times.run else 0.0

    def rows(self) -> list[LaunchTime]:
        """The launches of each kernel together, the slowest first."""
        same = defaultdict(list)
        for n, x in enumerate(self.launches):
            same[x.name, x.phase].append(n)
        rows = []
        for numbers in same.values():
            of = [self.launches[n] for n in numbers]
            rows.append(
                replace(
                    of[0], time=self.track.of(numbers) or of[0].time, share=sum(x.share for x in of), calls=len(of),
                    flops=sum(x.flops for x in of), nbytes=sum(x.nbytes for x in of),
                )
            )  # fmt: skip
        return sorted(rows, key=lambda x: -x.share)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The heads of the columns, and the rows as text."""
        heads = ["share", "us", "quartiles", "calls", "GFLOP/s", "GB/s", "kernel", "phase", "fused", "opts"]
        return heads, [
            [
                f"{100 * x.share:.1f}%", f"{x.seconds * 1e6:.1f}", f"{x.time.low * 1e6:.1f}-{x.time.high * 1e6:.1f}",
                str(x.calls), f"{x.gflops:.1f}", f"{x.gbs:.1f}", x.name, x.phase, x.fused, x.opts,
            ]
            for x in self.rows()
        ]  # fmt: skip

    def total(self) -> str:
        """The totals, as one line."""
        flops, nbytes = sum(x.flops for x in self.launches), sum(x.nbytes for x in self.launches)
        seconds = self.plan_seconds or 1e-12
        timed, whole = [0 if x is None else x.count for x in (self.times.kernels, self.times.run)]
        of = f"{timed} runs" + (f" kernel by kernel, {whole} whole" if self.times.beside else "")
        return (
            f"{len(self.launches)} kernels, {len({x.name for x in self.launches})} distinct: {self.times.kernels} in "
            f"the kernels, {self.times.run} a run, medians of {of}; "
            f"{flops / seconds / 1e9:.1f} GFLOP/s, {nbytes / seconds / 1e9:.1f} GB/s"
        )

    def text(self) -> list[str]:
        """The table as aligned lines, the total, and why figures do not agree, if they do not."""
        return [*aligned(*self.table(), words=6), self.total(), *self.times.reasons()]


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> list[str]:
    """Lines of columns: figures to the right, from column number `words` on text to the left.

    Args:
        heads: the heads of the columns.
        rows: the cells, as text.

    >>> aligned(["us", "kernel"], [["10.5", "a"], ["3.0", "bc"]], words=1)
    ['  us  kernel', '10.5  a', ' 3.0  bc']
    """
    lines = [heads, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return [
        "  ".join([c.ljust(w) if i >= words else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))]).rstrip()
        for line in lines
    ]


def profile(
    plan: Plan,
    device: AnyDevice,
    inputs: Storages,
    values: Mapping[str, int] | None = None,
    heat: float = 0.1,
    least: float = 0.5,
    often: bool = False,
) -> Profile:
    """Run a plan into memory of its own: for `heat` seconds so that clocks rise, then for `least` seconds, measured as
    `Meter` does it, and until kernels were timed in five runs.

    `values` are those of its Variables.

    Raises DeviceError if the device cannot time single kernels.

    Args:
        inputs: the storages of the inputs.
        often: whether to time what runs often, as in a jit function.
    """
    step = Launch(plan, inputs, new_outputs(plan, device), values or {})
    meter = Meter(part=0.5)
    with device.lock, progress.work("timing kernels", _LEAST) as timing:
        run = Execution(step, device, compiled(plan, device, often))
        try:
            if plan.calls:
                run.batch.profile()  # DeviceError at once, where that cannot be
            begun = time.perf_counter()
            while time.perf_counter() - begun < heat:
                run.run()
                device.synchronize()
            begun = time.perf_counter()
            while True:
                meter.run(plan, run)
                found = meter.tracks[plan].counts
                timing.at(min(_LEAST, found[0]))
                spent = time.perf_counter() - begun
                if (spent > least and min(found) >= _LEAST) or (spent > _MOST_S and min(found)) or not plan.calls:
                    break
        finally:
            run.close()
    track = meter.tracks[plan]
    times = track.times()
    launches = []
    for call, program, each, share in zip(plan.calls, run.programs, times.each, times.share, strict=True):
        kernel = call.kernel
        info, fused = kernel_info(kernel.sink), fused_ops(kernel.sink)
        launches.append(
            LaunchTime(
                kernel.name,
                call.phase,
                " + ".join([*fused[:4], *["..."] * (len(fused) > 4)]),
                program.opts,
                each,
                share,
                info.flops,
                info.bytes_read + info.bytes_written,
            )
        )
    return Profile(tuple(launches), track, times)
