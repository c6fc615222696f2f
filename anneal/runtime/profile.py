"""The time of each kernel of a plan on its device: `anneal kernels --time` and ANNEAL_DEBUG=2 show it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anneal import progress
from anneal.backend import AnyDevice, Storage
from anneal.codegen import fused_ops, kernel_info
from anneal.runtime.launch import Execution, compiled, new_outputs
from anneal.runtime.steps import Launch
from anneal.schedule import Plan

__all__ = ["LaunchTime", "Profile", "aligned", "profile"]


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One launch of a kernel: estimated work (see `kernel_info`), measured seconds, and the opts that shaped it."""

    name: str
    phase: str
    fused: str
    opts: str
    seconds: float
    flops: int
    nbytes: int
    calls: int = 1  # how many launches of this kernel the figures are the sum of

    @property
    def gflops(self) -> float:
        """Float operations a nanosecond."""
        return self.flops / max(self.seconds, 1e-12) / 1e9

    @property
    def gbs(self) -> float:
        """Bytes a nanosecond that had to cross the kernel's boundary."""
        return self.nbytes / max(self.seconds, 1e-12) / 1e9


@dataclass(frozen=True, slots=True)
class Profile:
    """A plan's launches in order, each alone, and the seconds of the whole plan when it runs again and again."""

    launches: tuple[LaunchTime, ...]
    plan_seconds: float

    @property
    def seconds(self) -> float:
        """The launches' own seconds, added up."""
        return sum(x.seconds for x in self.launches)

    def rows(self) -> list[LaunchTime]:
        """Launches of one kernel added up, the dearest first."""
        same: dict[tuple[str, str], LaunchTime] = {}
        for x in self.launches:
            y = same.get((x.name, x.phase))
            if y is not None:
                seconds, flops, nbytes = x.seconds + y.seconds, x.flops + y.flops, x.nbytes + y.nbytes
                x = replace(x, seconds=seconds, flops=flops, nbytes=nbytes, calls=1 + y.calls)
            same[x.name, x.phase] = x
        return sorted(same.values(), key=lambda x: -x.seconds)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The heads of the columns, and the rows as text."""
        heads = ["share", "us", "calls", "GFLOP/s", "GB/s", "kernel", "phase", "fused", "opts"]
        whole = self.seconds or 1.0
        return heads, [
            [
                f"{100 * x.seconds / whole:.1f}%", f"{x.seconds * 1e6:.1f}", str(x.calls), f"{x.gflops:.1f}",
                f"{x.gbs:.1f}", x.name, x.phase, x.fused, x.opts,
            ]
            for x in self.rows()
        ]  # fmt: skip

    def total(self) -> str:
        """One line about all of it."""
        flops, nbytes = sum(x.flops for x in self.launches), sum(x.nbytes for x in self.launches)
        seconds = self.plan_seconds or 1e-12
        return (
            f"{len(self.launches)} kernels, {len({x.name for x in self.launches})} distinct: "
            f"{self.seconds * 1e3:.3f} ms one by one, {self.plan_seconds * 1e3:.3f} ms a run; "
            f"{flops / seconds / 1e9:.1f} GFLOP/s, {nbytes / seconds / 1e9:.1f} GB/s"
        )

    def text(self) -> list[str]:
        """The table as aligned lines, and the total."""
        return [*aligned(*self.table(), words=5), self.total()]


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
    inputs: Sequence[Storage],
    values: Mapping[str, int] | None = None,
    heat: float = 0.1,
    rounds: int = 5,
) -> Profile:
    """Run a plan into memory of its own, for `heat` seconds so that clocks rise, then `rounds` times kernel by kernel.

    `values` are those of its Variables.

    Raises DeviceError if the device cannot time single kernels.

    Args:
        inputs: the storages of the inputs.
    """
    programs = compiled(plan, device)
    step = Launch(plan, inputs, new_outputs(plan, device), values or {})
    with device.lock, progress.work("timing kernels", rounds) as timing:
        run = Execution(step, device, programs)
        try:
            together = _repeated(run, device, heat)
            if together > 1.0:
                rounds = 1
            taken = []
            for _ in range(rounds):
                taken.append([s for _, s in run.batch.profile()])
                timing.step()
        finally:
            run.close()
    launches = []
    for call, *seconds in zip(plan.calls, *taken, strict=True):
        kernel = call.kernel
        info = kernel_info(kernel.sink)
        launches.append(
            LaunchTime(
                name=kernel.name,
                phase=call.phase,
                fused=_brief(fused_ops(kernel.sink)),
                opts=device.compile(kernel.sink).opts,
                seconds=statistics.median(seconds),
                flops=info.flops,
                nbytes=info.bytes_read + info.bytes_written,
            )
        )
    return Profile(tuple(launches), together)


def _repeated(run: Execution, device: AnyDevice, least: float) -> float:
    """Seconds of a run when only the last of many is waited for: at least `least` seconds of them."""
    run.run()
    device.synchronize()
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            run.run()
        device.synchronize()
        spent = time.perf_counter() - start
        if spent >= least:
            return spent / count
        count *= 2


def _brief(fused: Sequence[str], most: int = 4) -> str:
    return " + ".join(fused[:most]) + (" + ..." if len(fused) > most else "")
