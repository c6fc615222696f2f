"""ANNEAL_BEAM: opts by measurement. Candidates run on scratch memory, and the fastest that computes the same wins."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import numpy as np

from anneal import cache, codegen, settings
from anneal.backend.arrays import Array, numpy_dtype
from anneal.backend.webgpu.batch import WebGpuBatch
from anneal.backend.webgpu.opened import OpenAdapter
from anneal.backend.webgpu.queue import WebGpuProgram, translated
from anneal.errors import CompilerError, DeviceError
from anneal.frozen import frozen
from anneal.rewrite import over, rebuild
from anneal.schedule import members_of, name_of, overwrites_rows, read_elements
from anneal.uop import Op, Src, UOp, by_name, dtypes, toposort
from anneal.uop.sizes import variables_of

Opts = tuple[codegen.Opt, ...]

SECONDS = 2.5  # of search for one kernel, for each sequence that is kept
DEADLINE = 1.0  # seconds after which a candidate that still runs is given up
PATIENCE = 20.0  # seconds to wait for it to end; if it does not, the search ends
_SCRATCH = 1 << 30  # bytes of scratch memory for one kernel
_STEPS, _WORK = 1 << 20, 1 << 31  # of one thread, and of all: what does more, and more than the start, is not run
_BATCH = 2e-3  # seconds of runs that one measurement is made of
_GAIN = 0.98  # what is not faster than this is as good as equal
_CHUNK = 16  # pipelines that are built side by side
_TEXT = 96 << 10  # bytes of WGSL above which compiling takes too long


def best_opts(device: OpenAdapter, sink: UOp, width: int) -> Opts | None:
    """The fastest opts found for a kernel on `device`, or None for the heuristic's.

    The search starts from the heuristic's opts and from none, keeps the best few and tries what is one step away from
    them, until that gains nothing or the time is up. The heuristic's choice stays unless another is clearly faster, so
    a search never loses. What was found is kept on disk, found again by the kernel's graph, the device and the
    compiler's code.
    """
    key = cache.disk_key("beam", device.identity, width, sink.key)
    found: _Outcome | None = cache.load("beam", key, _found)
    if found is not None:
        return found.opts
    begun = time.perf_counter()
    try:
        outcome = _Search(device, sink, width).run()
    except (_Unsuitable, DeviceError) as e:  # no memory now, or a lost GPU, which the caller is about to find out
        outcome = _Outcome(None, f"not searched: {e}", final=isinstance(e, _Unsuitable))
    seconds = time.perf_counter() - begun
    if settings.current().debug >= 2:
        print(f"anneal: beam {name_of(sink)}: {outcome.text}, {seconds:.1f} s", file=sys.stderr)
    opts = None if outcome.opts is None else codegen.encode_opts(outcome.opts)
    if outcome.final:
        cache.save("beam", key, {"opts": opts}, f"{name_of(sink)}: {outcome.text}")
    return outcome.opts


def _found(data: dict[str, Any]) -> _Outcome:
    """The outcome on disk, if all its opts are valid."""
    opts = data["opts"]
    return _Outcome(None if opts is None else codegen.decode_opts(opts), "kept")


class _Unsuitable(Exception):
    """A kernel that cannot be searched; the message says why."""


@frozen
class _Outcome:
    opts: Opts | None
    text: str
    final: bool = True  # whether another search would find the same


class _Search:
    def __init__(self, device: OpenAdapter, sink: UOp, width: int) -> None:
        self.device, self.sink, self.width = device, sink, width
        if len(members_of(sink)) > 1:
            raise _Unsuitable("it is several kernels in one launch")
        if overwrites_rows(sink):
            raise _Unsuitable("it overwrites what it reads")
        self.ready = codegen.prepare(sink, device.target)
        self.axes = codegen.axes_of(self.ready)
        if any(a.extent is None for a in self.axes):
            raise _Unsuitable("its loops depend on data")
        if variables_of(sink):
            raise _Unsuitable("its loops depend on variables")
        self.first = codegen.choose(self.ready, device.target)
        self.times: dict[Opts, float] = {}
        self.seen: set[Opts] = set()
        self.texts: set[str] = set()
        self.stuck = False

    def run(self) -> _Outcome:
        scratch = _Scratch(self.device, self.sink)
        try:
            return self._run(scratch)
        finally:
            scratch.close()

    def _run(self, scratch: _Scratch) -> _Outcome:
        first, end = self.first, time.perf_counter() + SECONDS * self.width
        start = self._build([first])[0]
        if start is None:
            raise _Unsuitable("the heuristic's opts do not run")
        self._note_read(scratch)
        self.times[first] = self._time(start, scratch, inf)
        if self.times[first] == inf:
            raise _Unsuitable("the heuristic's opts cannot be timed")
        expected = scratch.values(start)
        if not all(np.isfinite(v).all() for v in expected):  # a logarithm, a root
            scratch.fill(0.25, 1.25)
            expected = scratch.values(start)
        if first and self._affordable(()):  # without opts the values are right for certain
            (plain,) = self._build([()])
            if plain is not None and (took := self._time(plain, scratch, inf)) < DEADLINE:
                right = scratch.values(plain)
                if not _close(expected, right):
                    raise _Unsuitable("the heuristic's opts and none differ in value")
                expected, self.times[()] = right, took
        pool = self._best()
        expanded = set()
        while not self.stuck and time.perf_counter() < end:
            todo = self._around(o for o in pool if o not in expanded)
            expanded.update(pool)
            before = self.times[pool[0]]
            for n in range(0, len(todo), _CHUNK):
                chunk = todo[n : n + _CHUNK]
                for opts, program in zip(chunk, self._build(chunk), strict=True):
                    if program is not None and not self.stuck:
                        self._try(opts, program, scratch, expected)
                if self.stuck or time.perf_counter() > end:
                    break
            pool = self._best()
            if self.times[pool[0]] > before * 0.99 and expanded.issuperset(pool):
                break
        return self._verdict(start, pool[0], scratch)

    def _note_read(self, scratch: _Scratch) -> None:
        """Candidates may store anything where it is not read."""
        marks = read_elements(self.sink)
        if marks is not None:
            program = self._pipeline(WebGpuProgram("marks", codegen.generate(marks, self.device.target, ())))
            if program is None:
                raise _Unsuitable("its reads cannot be determined")
            scratch.read = scratch.values(program)

    def _best(self) -> list[Opts]:
        return sorted(self.times, key=lambda o: self.times[o])[: self.width]

    def _around(self, pool: Iterable[Opts]) -> list[Opts]:
        todo = {
            o: None for p in pool for o in codegen.neighbours(self.axes, p, self.device.target) if o not in self.seen
        }
        order = [o for o in todo if self._affordable(o)]
        random.Random(0).shuffle(order)  # if the time is up, every kind of step had a chance
        return order

    def _affordable(self, opts: Opts) -> bool:
        (steps, total), (first_steps, first_total) = codegen.work(self.axes, opts), codegen.work(self.axes, self.first)
        return steps <= max(_STEPS, 4 * first_steps) and total <= max(_WORK, 4 * first_total)

    def _build(self, candidates: Sequence[Opts]) -> list[WebGpuProgram | None]:
        """Programs with pipelines, None for those that do not fit or say what another said; built side by side."""
        made = []
        for opts in candidates:
            self.seen.add(opts)
            program = None
            if (kernel := self._generate(opts)) is not None and kernel.source not in self.texts:
                self.texts.add(kernel.source)
                program = WebGpuProgram("candidate", kernel)
            made.append(program)
        return list(self.device.threads.map(self._pipeline, made))

    def _generate(self, opts: Opts) -> codegen.GeneratedKernel | None:
        with suppress(Exception):  # what does not fit says so in one way or another
            kernel = codegen.generate(self.sink, self.device.target, opts)
            if len(kernel.source) <= _TEXT:
                return kernel
        return None

    def _pipeline(self, program: WebGpuProgram | None) -> WebGpuProgram | None:
        if program is None:
            return None
        try:
            with translated(lambda: "while building a candidate"):
                program.pipeline, program.layout = self.device.build(program)
        except CompilerError:
            return None
        return program

    def _try(self, opts: Opts, program: WebGpuProgram, scratch: _Scratch, expected: list[Array]) -> None:
        kept = self._best()
        limit = self.times[kept[-1]] if len(kept) == self.width else inf
        took = self._time(program, scratch, limit)
        with suppress(CompilerError):
            if took < limit and _close(scratch.values(program), expected):
                self.times[opts] = took

    def _time(self, program: WebGpuProgram, scratch: _Scratch, limit: float) -> float:
        """Seconds of one run, the best of a few; inf if it fails, hangs, or is clearly slower than `limit`."""
        try:
            begun = time.perf_counter()
            scratch.batch(program, 1).run()
            if not self._ended(DEADLINE):
                self.stuck = not self._ended(PATIENCE)
                return inf
            once = min(scratch.batch(program, 1).seconds() or DEADLINE, time.perf_counter() - begun)
            if once > 4 * limit:
                return inf
            batch = scratch.batch(program, max(1, min(200, int(_BATCH / max(once, 1e-6)))))
            best = inf
            for _ in range(3):
                best = min(best, batch.seconds() / len(batch.dispatches) or best)
                if best > 1.3 * limit:
                    return inf
            return best
        except CompilerError:
            return inf

    def _ended(self, seconds: float) -> bool:
        with translated(lambda: "while a candidate ran"):
            return self.device.queue.wait_for(seconds)

    def _verdict(self, start: WebGpuProgram, best: Opts, scratch: _Scratch) -> _Outcome:
        first = self.first
        tried = f"{len(self.seen)} tried"
        if self.stuck:
            return _Outcome(None, f"given up: a candidate did not end ({tried})", final=False)
        if best == first:
            return _Outcome(None, f"{self.times[first] * 1e6:.1f} us, nothing better ({tried})")
        self.texts.clear()
        (winner,) = self._build([best])
        old = new = inf
        for _ in range(3):  # in turns: a clock that changes meanwhile changes for both
            old = min(old, self._time(start, scratch, inf))
            new = min(new, self._time(winner, scratch, inf) if winner is not None else inf)
        if new > old * _GAIN:
            return _Outcome(None, f"{old * 1e6:.1f} us, nothing better ({tried})")
        return _Outcome(
            best,
            f"{old * 1e6:.1f} -> {new * 1e6:.1f} us ({tried}): {codegen.opts_text(first)} -> {codegen.opts_text(best)}",
        )


class _Scratch:
    """Memory for a kernel's parameters, and what goes back in before values are compared."""

    def __init__(self, device: OpenAdapter, sink: UOp) -> None:
        self.device = device
        params = {u.arg[0]: u for u in toposort(sink) if u.op is Op.PARAM}
        if 4 * sum(u.size for u in params.values()) > _SCRATCH:
            raise _Unsuitable("its buffers are too large for scratch memory")
        self.bound = _index_bound(sink)
        self.written = {s.slot for s in sink.src}
        self.sizes = {slot: (u.size, u.dtype) for slot, u in sorted(params.items())}
        self.buffers = {slot: device.alloc(*size) for slot, size in self.sizes.items()}
        self.read: list[Array] | None = None  # where not 0: the elements of what is written that count
        self.fill(-0.5, 0.5)

    def fill(self, low: float, high: float) -> None:
        """Random floats from `low` to `high`, and integers that keep indices in bounds."""
        rng = np.random.default_rng(0)
        self.start = {}
        for slot, (size, dtype) in self.sizes.items():
            block, host = min(size, 1 << 20), numpy_dtype(dtype)
            top = 2 if dtype is dtypes.bool_ else self.bound
            data = rng.uniform(low, high, block) if dtype.is_float else rng.integers(0, top, block)
            self.start[slot] = np.resize(data.astype(host), size)
            self.device.upload(self.buffers[slot], self.start[slot])

    def batch(self, program: WebGpuProgram, times: int) -> WebGpuBatch:
        """A batch of `times` runs of `program` in a row."""
        bound = program, self.buffers, self.device.new_group(program, self.buffers)
        return WebGpuBatch(self.device, [bound] * times, {})

    def values(self, program: WebGpuProgram) -> list[Array]:
        """The values that one run writes, with 0 in places that are not read."""
        for slot in self.written:
            self.device.upload(self.buffers[slot], self.start[slot])
        self.batch(program, 1).run()
        found = [self.device.download(self.buffers[slot], *self.sizes[slot]) for slot in sorted(self.written)]
        return found if self.read is None else [np.where(r != 0, v, 0) for r, v in zip(self.read, found, strict=True)]

    def close(self) -> None:
        for b in self.buffers.values():
            self.device.free(b)


def _index_bound(sink: UOp) -> int:
    """A power of two such that integers below it, wherever the kernel loads one, keep its indices in bounds."""
    return next((1 << bits for bits in (16, 12, 8, 6, 4, 2, 1) if _inside(sink, 1 << bits)), 1)


def _inside(sink: UOp, bound: int) -> bool:
    """True if all indices of the kernel stay in bounds as long as the integers that it loads are below `bound`."""
    small = UOp(Op.VARIABLE, dtypes.int32, (), ("loaded", 0, bound - 1))
    loaded = set()  # what depends on a loaded integer
    inside = True

    def visit(u: UOp, src: Src) -> UOp:
        nonlocal inside
        if u.op in (Op.LOAD, Op.STORE) and u.src[1] in loaded:
            low, top = src[1].vmin, src[1].vmax
            inside &= low is not None and top is not None and low >= 0 and top < u.src[0].size
        if u.op is Op.LOAD and u.dtype.is_int:
            loaded.add(u)
            return small.cast(u.dtype)
        if not loaded.isdisjoint(u.src):
            loaded.add(u)
        return over(u, src)

    rebuild(sink, visit)
    return inside


def _close(got: Sequence[Array], expected: Sequence[Array]) -> bool:
    """Equal but for the order of sums."""
    for a, b in zip(got, expected, strict=True):
        if a.dtype.kind in "biu":
            if not np.array_equal(a, b):
                return False
            continue
        slack = max(1e-3, 2.0 ** (4 - by_name(a.dtype.name).digits))
        if a.itemsize < 4:
            a, b = a.astype(np.float32), b.astype(np.float32)
        finite = np.abs(b[np.isfinite(b)]).astype(np.float64)
        typical = float(np.median(finite)) if finite.size else 0.0
        if not np.allclose(a, b, rtol=slack, atol=slack * 0.1 * typical, equal_nan=True):
            return False
    return True
