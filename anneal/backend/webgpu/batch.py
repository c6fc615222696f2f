"""A batch: dispatches bound to their buffers, recorded and run as one submission."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import wgpu

from anneal.backend.device import Batch, Timed
from anneal.backend.webgpu.opened import OpenAdapter
from anneal.backend.webgpu.queue import Buffers, DeviceBuffer, Dispatch, Transfer, WebGpuProgram, gpu_errors, translated
from anneal.errors import DeviceError
from anneal.frozen import frozen
from anneal.uop.sizes import Sizes, evaluator

_CUT_SPARES = 3  # a command buffer costs more than a wait: it must spare this many

# ---------------------------------------------------------------------------------------------------------------------
# Barriers: between which dispatches the GPU must wait, and how one wait serves several.
#
# wgpu follows every buffer by itself: a dispatch waits for all work before it if a buffer it binds was written
# before, or is written now and was used before in the same command buffer. So two dispatches that are independent of
# each other still run one after the other if each reads something that was written since. Two remedies, for a run of
# independent dispatches:
#
# - a fence: a dispatch of no workgroups that binds everything the run reads; the run itself then waits no more;
# - a cut: at the begin of a command buffer wgpu waits once for all uses in it, writes too.


State = dict[Any, Literal["read", "written"]]  # of buffers, which are told apart alone


@frozen
class BufferUse:
    """The buffers that a dispatch binds, to read and to write."""

    reads: Sequence[Any]
    writes: Sequence[Any]


@dataclass(slots=True)
class Section:
    """The dispatches from `begin` to `end`, in a command buffer of their own if `cut`, after a fence over `fence`."""

    begin: int
    end: int
    cut: bool = False
    fence: tuple[Any, ...] = ()


def _runs(uses: Sequence[BufferUse]) -> Iterator[tuple[int, int]]:
    """Ranges of dispatches in a row that are independent of each other."""
    begin = 0
    read: set[Any] = set()
    written: set[Any] = set()
    for n, use in enumerate(uses):
        if not written.isdisjoint(use.reads) or not written.isdisjoint(use.writes) or not read.isdisjoint(use.writes):
            yield begin, n
            begin, read, written = n, set(), set()
        read.update(use.reads)
        written.update(use.writes)
    if begin < len(uses):
        yield begin, len(uses)


def _waits(uses: Sequence[BufferUse], state: State) -> int:
    """The number of `uses` that wait, in a command buffer that has left its buffers in `state`; updates `state`."""
    waits = 0
    for use in uses:
        waits += any(state.get(b) == "written" for b in use.reads) or any(b in state for b in use.writes)
        state.update(dict.fromkeys(use.reads, "read"))
        state.update(dict.fromkeys(use.writes, "written"))
    return waits


def sections(uses: Sequence[BufferUse]) -> list[Section]:
    """Cuts and fences for a sequence of dispatches."""
    out = []
    state: State = {}
    for begin, end in _runs(uses):
        run = uses[begin:end]
        section = Section(begin, end)
        if end - begin > 1:
            plain = _waits(run, dict(state))
            stale = tuple(dict.fromkeys(b for use in run for b in use.reads if state.get(b) == "written"))
            fenced = 1 + _waits(run, state | dict.fromkeys(stale, "read")) if stale else plain
            if min(plain, fenced) > _CUT_SPARES:
                section.cut = True
                state = {}
            elif fenced < plain:
                section.fence = stale
                state.update(dict.fromkeys(stale, "read"))
        _waits(run, state)
        out.append(section)
    return out


# ---------------------------------------------------------------------------------------------------------------------


# A program, its buffers by slot, and its bind group on them.
BoundCall = tuple[WebGpuProgram, Buffers, Any]

Pieces = Sequence[tuple[Any, int]]  # buffers that are read, and the bytes of each
Copies = tuple[Pieces, Transfer]
Recorded = tuple[Callable[[], list[Any]], Copies | None]  # what finishes the commands of a run, and the copies in them

# A workgroup that leaves at once costs about a nanosecond; commands recorded anew cost microseconds.
_MANY_WORKGROUPS = 4096
_QUERIES = 4096  # the most that one query set may hold
_IN_FLIGHT = 2  # runs whose commands are recorded before they are asked for
# A loop that reads its loss after each step is spared a submission: the step's own copies the loss for the host.
_READ_BYTES = 1 << 16  # at most
_UNREAD = 3  # runs in a row whose copies nobody read, after which none are made
# The copies come early, in a submission of their own before what they need not wait for, where the host waited so many
# seconds for so many more reads than it did not: it prepares the next step while the rest of this one is computed.
_WAIT, _WAITS = 150e-6, 8


def _use(program: WebGpuProgram, buffers: Buffers) -> BufferUse:
    reads, writes = ([buffers[p.slot] for p in program.kernel.params if p.written is kind] for kind in (False, True))
    return BufferUse(reads, writes)


class WebGpuBatch(Batch[DeviceBuffer]):
    """Dispatches in order, as one submission.

    A command buffer serves once, so each run needs new ones. A batch that runs again is worth some thought: fences let
    independent dispatches run side by side, and the commands of the next runs are recorded while the GPU works: here
    the part that Python drives, in another thread the part that needs no Python. That thread is slow to wake and to be
    waited for, so it works on the run after the next.
    """

    waits = False

    def __init__(self, device: OpenAdapter, calls: Sequence[BoundCall], values: Sizes) -> None:
        self.device = device
        self._calls = calls  # the buffers are kept alive for as long as they may be used
        self.names = [program.name for program, *_ in calls]
        self._variables: dict[tuple[str, ...], tuple[int, ...]] = {
            p.kernel.variables: () for p, *_ in calls if p.kernel.variables
        }
        self.dispatches: list[Dispatch] = [(p.pipeline, group, *p.kernel.grid) for p, _, group in calls]
        self._handles = device.queue.handles(self.dispatches)
        self._passes = [self._handles]
        self._places = [(self._handles, n) for n in range(len(calls))]
        self._fences: list[Dispatch] = []
        # the commands of the next runs, each with the copies that it makes for the host
        self._ready: deque[Recorded] = deque()
        self._runs = self._unread = 0
        self._read: Pieces | None = None  # the buffers that the next runs copy for the host: it reads them after each
        self._asked: Pieces | None = None  # those that it read last
        self._copied: Copies | None = None  # by the last run
        self._waits = 0  # of the host for copies of these buffers, less the reads that it did not wait for
        self._early = 1  # command buffers up to the copies
        # dispatches of so many workgroups that it is worth launching no more than the values of variables ask for
        self._large = [
            (n, evaluator((kernel.launch.needed,)), kernel.grid)
            for n, (program, *_) in enumerate(calls)
            if (kernel := program.kernel).launch.needed is not None and kernel.launch.workgroups > _MANY_WORKGROUPS
        ]
        self.give(values)

    def give(self, values: Sizes) -> None:
        for names in self._variables:
            self._variables[names] = tuple([values[n] for n in names])
        # launch as many workgroups as these values need
        for n, needed, (nx, _, nz) in self._large:
            (count,) = needed(values)
            grid = (count, 1, 1) if count <= nx else (nx, -(-count // nx), 1)
            if nz > 1 or grid == self.dispatches[n][2:]:
                continue
            self._ready.clear()
            self.dispatches[n] = (*self.dispatches[n][:2], *grid)
            self._handles[n] = self.device.queue.handles([self.dispatches[n]])[0]
            handles, place = self._places[n]
            handles[place] = self._handles[n]
            handles.packed = None

    def _set_variables(self) -> None:
        for names, values in self._variables.items():
            self.device.set_variables(names, values)

    def run(self) -> None:
        if not self.dispatches:
            return
        queue = self.device.queue
        self._set_variables()
        try:
            if self._copied is not None:  # nobody read it
                queue.let_go(self._copied[1])
                self._unread += 1
                if self._unread == _UNREAD:
                    self._read = self._asked = None
            elif self._read and self._waits == _WAITS:
                self._waits += 1
                self._arrange(self._read)
            finished, copies = self._ready.popleft() if self._ready else self._recorded()
            commands = finished()
            early = self._early if copies else len(commands)
            queue.submit(*commands[:early])
            made = copies and (copies[0], queue.submitted(copies[1]))
            if commands[early:]:
                queue.submit(*commands[early:])
            queue.latest, self._copied = self, made
            self._runs += 1
            if self._runs == 2:
                self._arrange()
            while self._runs > 1 and len(self._ready) < _IN_FLIGHT:
                finished, copies = self._recorded()
                self._ready.append((self.device.finisher.submit(finished).result, copies))
        except gpu_errors() as e:
            with translated(lambda: f"in kernel {self._culprit()}"):
                raise e

    def _waited(self, seconds: float) -> None:
        """Note how long the host waited for copies that it was given."""
        if self._waits < _WAITS:
            self._waits = self._waits + 1 if seconds > _WAIT else max(0, self._waits - 1)

    def _recorded(self) -> Recorded:
        queue = self.device.queue
        encoders = [queue.encode(p) for p in self._passes]
        copies = (self._read, queue.staged(self._read, encoder=encoders[self._early - 1])) if self._read else None
        return partial(self._finish, encoders), copies

    def copied(self, pieces: Pieces) -> Transfer | None:
        """The copies that the last run made of these buffers, if it did; the host reads them now."""
        found, self._copied, self._unread = self._copied, None, 0
        if pieces == self._asked != self._read and sum([nbytes for _, nbytes in pieces]) <= _READ_BYTES:
            if self._waits > _WAITS:  # it is others that come early
                self._arrange()
            self._read, self._waits = pieces, 0
        self._asked = pieces
        if found is None:
            return None
        copied, made = found
        if copied == pieces:
            return made._replace(told=self._waited)
        self.device.queue.let_go(made)
        return None

    def _finish(self, encoders: list[Any]) -> list[Any]:
        return [self.device.queue.finish(e) for e in encoders]

    def _arrange(self, early: Pieces = ()) -> None:
        """Distribute the dispatches over command buffers, with fences between them. Those up to the last that writes
        the buffers `early` have command buffers of their own."""
        self.device.record_in_c()
        self._ready.clear()
        uses = [_use(program, buffers) for program, buffers, _ in self._calls]
        there = {id(buffer) for buffer, _ in early}
        last = max([n for n, use in enumerate(uses) for b in use.writes if id(b.gpu) in there], default=len(uses))
        order = sections(uses) if self.device.waits_by_buffer else [Section(n, n + 1) for n in range(len(uses))]
        self._passes, self._fences, self._early = [self.device.queue.handles([])], [], 0
        first: dict[int, int] = {}
        for pipeline, *_ in self.dispatches:
            first.setdefault(id(pipeline), len(first))
        for section in order:
            ends = not self._early and section.begin > last
            if ends:
                self._early = len(self._passes)
            if section.cut or ends:
                self._passes.append(self.device.queue.handles([]))
            if section.fence:
                fences = self.device.fences(section.fence)
                self._fences += fences
                self._passes[-1] += self.device.queue.handles(fences)
            # the section's dispatches are independent: group them by pipeline
            for n in sorted(range(section.begin, section.end), key=lambda n: first[id(self.dispatches[n][0])]):
                self._places[n] = (self._passes[-1], len(self._passes[-1]))
                self._passes[-1].append(self._handles[n])
        self._early = self._early or len(self._passes)

    def _culprit(self) -> str:
        """The first kernel that cannot be recorded by itself."""
        queue = self.device.queue
        for d, name in zip(self.dispatches, self.names, strict=True):
            try:
                queue.finish(queue.encode(queue.handles([d])))
            except gpu_errors():
                return name
        return f"{self.names[0]} or one of the {len(self.names) - 1} after it" if len(self.names) > 1 else self.names[0]

    def seconds(self) -> float:
        """Run every call in one pass, timed by the GPU's clock; by the host's where the adapter has no timestamps."""
        if "timestamp-query" not in self.device.features:
            self.device.synchronize()
            start = time.perf_counter()
            self.run()
            self.device.synchronize()
            return time.perf_counter() - start
        with translated(lambda: "while timing kernels"):
            return self._timed([self._handles])[0]

    def timed(self) -> Timed:
        """Run every call once in a pass of its own, timed by the GPU's clock."""
        if "timestamp-query" not in self.device.features:
            raise DeviceError(f"{self.device.info.name} has no timestamp queries: kernels cannot be timed one by one")
        begun = time.perf_counter()
        out = []
        step = _QUERIES // 2
        handles = self.device.queue.handles(self.dispatches)
        with translated(lambda: "while timing kernels"):
            for i in range(0, len(handles), step):
                out += self._timed([[h] for h in handles[i : i + step]])
        return Timed(time.perf_counter() - begun, out)

    def _timed(self, passes: Sequence[list[Dispatch]]) -> list[float]:
        """The seconds of each of `passes`, all of them one submission."""
        gpu, queue = self.device.gpu, self.device.queue
        self._set_variables()
        count = 2 * len(passes)
        queries = gpu.create_query_set(type=wgpu.QueryType.timestamp, count=count)
        ticks = gpu.create_buffer(size=8 * count, usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC)
        encoder = gpu.create_command_encoder()
        for i, dispatches in enumerate(passes):
            compute_pass = encoder.begin_compute_pass(
                timestamp_writes={
                    "query_set": queries,
                    "beginning_of_pass_write_index": 2 * i,
                    "end_of_pass_write_index": 2 * i + 1,
                }
            )
            queue.record(compute_pass, dispatches)
            compute_pass.end()
        encoder.resolve_query_set(queries, 0, count, ticks, 0)
        queue.submit()  # copies that wait come first
        gpu.queue.submit([encoder.finish()])
        read = queue.read([(ticks, 8 * count)])[0].view(np.uint64).reshape(-1, 2)
        period = self.device.made_by.timestamp_period(gpu) * 1e-9
        return [float(end - start) * period if end > start else 0.0 for start, end in read]
