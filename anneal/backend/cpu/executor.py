"""The cpu device: memory, programs, and batches that replay flat lists of calls."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import platform
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from anneal import settings
from anneal.backend import cost_models
from anneal.backend.arrays import Array, numpy_dtype
from anneal.backend.cpu.binding import BoundProgram
from anneal.backend.cpu.layout import ALIGN, CpuProgram, SymbolicProgram
from anneal.backend.cpu.primitives import SHARED, Step
from anneal.backend.cpu.workers import CLaunch, CProgram, Workers, apart, blas_obeys, numpy_settings, run_all
from anneal.backend.device import Batch, Call, Device, Limits, Program, Timed
from anneal.errors import RangeError, ShapeError
from anneal.progress import work
from anneal.schedule import Kernel, name_of
from anneal.uop import DTYPES, SYMBOLIC, WRAPS, DType, Ints, Nodes, UOp, Weighed, uncollected
from anneal.uop.sizes import Sizes, variables_of

if TYPE_CHECKING:
    from anneal.backend.cpu.in_c import CKernels

# The cost of compiling a kernel as C, in nanoseconds of NumPy's work until it pays; and what a launch, and each call of
# NumPy, takes besides.
_COMPILING_NS = 150_000_000
_LAUNCH_NS = 3_000
_CALL_NS = 800
# The fraction of a batch's work from which on matrix-vector products decide how it is run.
_MOSTLY = 0.9


def _aligned(nbytes: int) -> Array:
    raw = np.empty(nbytes + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + nbytes]


def _chosen(program: Program, values: Sizes, one_worker: bool) -> Program:
    """The calls of `program` that run with these values, if need be for one worker."""
    if isinstance(program, SymbolicProgram):
        program = program.program(values)
    return program.for_one_worker if one_worker and isinstance(program, CpuProgram) else program


def _mostly_gemv(chosen: Sequence[Program]) -> bool:
    """True if nearly all of the work is matrix-vector products (GEMV). They run at the speed of memory, and BLAS's own
    threads, which start sooner than workers, are faster for them; for other work one worker is enough.
    """
    programs = [p for p in chosen if isinstance(p, CpuProgram)]
    return sum([p.gemv_worth for p in programs]) > _MOSTLY * sum([p.worth for p in programs])


class CpuBatch(Batch[Array]):
    """Flat calls, replayed in order."""

    def __init__(self, device: CpuDevice, calls: Sequence[Call[Array]], values: Sizes) -> None:
        self._device = device
        # kept only where other values may be given
        self._calls = list(calls) if values else []
        self._values = dict(values)
        # or in one, and BLAS in threads of its own; from the first run on, so that every run gives the same values
        self._on_workers = device.workers.count > 1 and not _mostly_gemv([_chosen(p, values, False) for p, _ in calls])
        self._bind(calls)

    def _bind(self, calls: Sequence[Call[Array]]) -> None:
        self.names = [p.name for p, _ in calls]
        made: dict[tuple[int, ...], BoundProgram | CLaunch] = {}  # turns of a loop are the same calls
        self._bound = []
        for p, buffers in calls:
            key = id(p), *map(id, buffers)
            if key not in made:
                chosen = _chosen(p, self._values, not self._on_workers)
                made[key] = self._device.bind(chosen, buffers, self._values)
            self._bound.append(made[key])
        self._steps = list(itertools.chain.from_iterable(self._by_kernel()))

    def give(self, values: Sizes) -> None:
        if values == self._values:
            return
        self._values = dict(values)
        chosen = [_chosen(p, values, not self._on_workers) for p, _ in self._calls]
        if chosen != [b.program for b in self._bound]:
            self._bind(self._calls)
            return
        for b in self._bound:
            b.give(values)

    def run(self) -> None:
        with numpy_settings(self._on_workers):
            run_all(self._steps)
        self._check()

    @staticmethod
    def _check() -> None:
        """Raise RangeError, or warn, where a result does not fit its dtype."""
        # the whole batch has run, so memory that it writes in place is consistent
        unfit, SHARED.unfit = SHARED.unfit, []
        for (_, name, text), dtype in sorted(unfit, key=lambda x: bool(x[0][2] != WRAPS)):
            if text == WRAPS:
                warnings.warn(
                    f"{name}: a result does not fit {dtype}, the dtype that the array API gives it, and wraps "
                    f"around; give dtype=int64 if {name} takes a dtype, or cast its input",
                    RuntimeWarning,
                    stacklevel=3,
                )
            elif text:
                raise ShapeError(f"{name}: {text}")
            else:
                raise RangeError(
                    f"{name}: the result of {name} does not fit {dtype}, which was chosen without knowing the values; "
                    f"give dtype=an.int64 if {name} takes a dtype, or cast its input: .cast(an.int64)"
                )

    def _by_kernel(self, apart: bool = False) -> list[list[Step]]:
        """The steps of each kernel. Kernels in C that follow each other are one, the last one's, unless they are to be
        `apart`."""
        out = []
        rows = []
        for b, after in zip(self._bound, [*self._bound[1:], None]):
            if not isinstance(b, CLaunch):
                out.append(b.steps)
                continue
            rows += b.rows
            out.append([])
            if apart or not isinstance(after, CLaunch):
                kernels, table = self._device.kernels, np.array(rows, np.int64)
                # such a pointer keeps its table
                place = table.ctypes.data_as(ctypes.c_void_p)
                out[-1], rows = [(kernels.pool.run, (place, len(table), kernels.threads))], []
        return out

    def timed(self) -> Timed:
        clock = time.perf_counter
        kernels = self._by_kernel(apart=True)
        with numpy_settings(self._on_workers):
            ticks = [clock()]
            for steps in kernels:
                run_all(steps)
                ticks.append(clock())
        self._check()
        return Timed(ticks[-1] - ticks[0], [end - begun for begun, end in itertools.pairwise(ticks)])


class CpuDevice(Device[Array]):
    """NumPy on the host. Buffers are flat arrays; the holder of the device's lock runs batches."""

    name = "cpu"
    survives_fork = True
    cost_model = cost_models.CPU
    _POOL = 256 << 20
    _CALLS = 4096

    def __init__(self) -> None:
        super().__init__(self._POOL)
        self.limits = Limits(
            max_buffers=1 << 16,
            max_binding_bytes=1 << 40,
            dtypes=frozenset(DTYPES),
        )
        self._programs: Weighed[UOp, CpuProgram | SymbolicProgram] = Weighed(1024, 1024)
        self._bindings: WeakValueDictionary[Ints, BoundProgram] = (
            WeakValueDictionary()
        )  # a value holds the objects whose ids its key has
        self._arenas: dict[tuple[int, str], Array] = {}
        # if BLAS's threads cannot be limited, workers and BLAS would compete for the cores
        self.workers = Workers(None if blas_obeys() else 1)

    # -- memory
    def _kind(self, size: int, dtype: DType) -> tuple[tuple[int, DType], int]:
        return (size, dtype), size * dtype.itemsize

    def _kind_of(self, buffer: Array) -> tuple[tuple[int, DType], int]:
        return (buffer.size, _DTYPES[buffer.dtype]), buffer.nbytes

    def _create(self, size: int, dtype: DType) -> Array:
        held = numpy_dtype(dtype)
        return _aligned(size * held.itemsize).view(held)

    def upload(self, buffer: Array, data: Array) -> None:
        buffer[: data.size] = data.reshape(-1)

    def download(self, buffer: Array, size: int, dtype: DType) -> Array:
        return buffer[:size].copy()

    def host_view(self, buffer: Array, size: int, dtype: DType) -> Array:
        return buffer[:size]

    def copy(self, source: Array, destination: Array, size: int, dtype: DType) -> None:
        destination[:size] = source[:size]

    def synchronize(self) -> None:
        """Returns at once: batches run to the end."""

    def arena(self, key: tuple[int, str], nbytes: int) -> Array:
        """Scratch of one worker for one purpose, at least `nbytes`: kernels run one after another, so they can share
        it."""
        found = self._arenas.get(key)
        if found is None or found.nbytes < nbytes:
            more = 0 if found is None or key[1] else 2 * found.nbytes  # of a product as much as it needs
            found = self._arenas[key] = _aligned(max(nbytes, 1 << 16, more))
        return found

    def empty_cache(self) -> None:
        """Give back unused memory, scratch memory too: it is made again at the size that the next kernels need."""
        with self.lock:
            super().empty_cache()
            self._arenas.clear()
            SHARED.ones.clear()

    def _drop(self, buffer: Array) -> None:
        """Does nothing: NumPy frees memory with its last user."""

    # -- programs
    @functools.cached_property
    def kernels(self) -> CKernels:
        """The kernels in C."""
        from anneal.backend.cpu.in_c import CKernels  # with the code generator, which NumPy does not need

        return CKernels(self.workers.in_c)

    def why_numpy(self) -> str:
        """The reason why NumPy runs all kernels; "" if C runs those that run often."""
        if settings.current().cpu == "numpy":
            return "as ANNEAL_CPU says"
        from anneal.backend import compiler

        return compiler.why_none() if compiler.find() is None else self.kernels.failed

    def runs_before_often(self, programs: Sequence[Program]) -> int:
        # The search for a compiler comes after that many runs, so that a short program imports no code generator.
        work = sum([p.worth + _LAUNCH_NS + _CALL_NS * p.calls for p in programs if isinstance(p, CpuProgram)])
        if settings.current().cpu != "auto" or not work:
            return 0
        return -(-_COMPILING_NS * len(set(programs)) // work)

    def compile(self, sink: UOp) -> CProgram | CpuProgram | SymbolicProgram:
        return self._in_c([sink], often=False).get(sink) or self._in_numpy(sink)

    def compile_all(self, kernels: Sequence[Kernel], often: bool = False) -> list[Program]:
        made: list[Program] = []
        with uncollected(), work("compiling kernels", len(kernels)) as mine:
            in_c = self._in_c([k.sink for k in kernels], often)
            for k in kernels:
                made.append(in_c.get(k.sink) or self._in_numpy(k.sink))
                mine.step()
        return made

    def _in_c(self, sinks: Nodes, often: bool) -> Mapping[UOp, CProgram | None]:
        """The programs in C of those kernels that are to have one."""
        if settings.current().cpu == "c" or (often and not self.why_numpy()):
            return self.kernels.programs(sinks)
        return {}

    def _in_numpy(self, sink: UOp) -> CpuProgram | SymbolicProgram:
        found = self._programs.find(sink)
        if found is None:
            if SYMBOLIC.seen and (variables := variables_of(sink)):
                found = SymbolicProgram(sink, name_of(sink), variables, self.workers.count)
            else:
                found = CpuProgram(sink, name_of(sink), self.workers.count)
            self._programs.keep(sink, found, found.weight)
        return found

    def prepare(self, calls: Sequence[Call[Array]], values: Sizes | None = None) -> CpuBatch:
        with uncollected():
            return CpuBatch(self, calls, values or {})

    def bind(self, program: Program, buffers: Sequence[Array], values: Sizes) -> BoundProgram | CLaunch:
        """A program on its buffers, for these values of variables."""
        if isinstance(program, CProgram):
            if begins := apart(program, buffers):
                scratch = self.arena((-1, ""), sum(program.scratch.values()))
                return CLaunch(program, buffers, begins, scratch, values)
            program = _chosen(self._in_numpy(program.sink), values, False)
        assert isinstance(program, CpuProgram)
        key = (id(program), *map(id, buffers))
        if (found := self._bindings.get(key)) is None or program.names:  # batches differ in the values of Variables
            found = self._bindings[key] = BoundProgram(program, tuple(buffers), self, values)
        return found

    def _made_by(self) -> str:
        """The maker of the kernels' code, and why it is not another."""
        why = self.why_numpy()
        from anneal.backend import compiler

        found = compiler.find()
        if why or found is None:
            return f"NumPy ({why})"
        often = " once they run often, and NumPy before" if settings.current().cpu == "auto" else ""
        refused = vars(self)["kernels"].refused if "kernels" in vars(self) else {}
        but = "".join([f"; but NumPy runs {name_of(k)}, refused: {text}" for k, text in refused.items()])
        return f"C{often}, by {' '.join(found.command)}: {compiler.version(found)}{but}"

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "backend": "NumPy " + np.__version__,
            "kernels": self._made_by(),
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
        }


_DTYPES = {numpy_dtype(d): d for d in DTYPES}
