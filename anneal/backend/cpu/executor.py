"""The NumPy device: memory, programs, and batches that replay flat lists of calls."""

from __future__ import annotations

import itertools
import os
import platform
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from anneal.backend.cpu.binding import Binder
from anneal.backend.cpu.lanes import Lanes, blas_obeys, one_blas_thread
from anneal.backend.cpu.layout import ALIGN, CpuProgram
from anneal.backend.cpu.ops import Array, Step
from anneal.backend.device import Batch, BufferPool, Call, Device, Limits, Program, numpy_dtype
from anneal.schedule import name_of
from anneal.uop import DType, UOp, dtypes

__all__ = ["CpuDevice", "CpuProgram"]


def _aligned(nbytes: int) -> Array:
    raw = np.empty(nbytes + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + nbytes]


class _Bound:
    """The calls of one program on one set of buffers."""

    __slots__ = ("buffers", "name", "program", "steps")

    def __init__(self, program: CpuProgram, steps: list[Step], buffers: tuple[Array, ...]) -> None:
        # the program stays: bindings are found by its id
        self.program, self.name, self.steps, self.buffers = program, program.name, steps, buffers


class CpuBatch(Batch):
    """Flat calls, replayed in order."""

    def __init__(self, bound: list[_Bound], lanes: int) -> None:
        self._bound = bound
        self._alone = lanes > 1
        self._steps = list(itertools.chain.from_iterable(b.steps for b in bound))

    def run(self) -> None:
        with np.errstate(all="ignore"), one_blas_thread() if self._alone else nullcontext():
            for f, args in self._steps:
                f(*args)

    def profile(self) -> list[tuple[str, float]]:
        out = []
        clock = time.perf_counter
        with np.errstate(all="ignore"), one_blas_thread() if self._alone else nullcontext():
            for b in self._bound:
                start = clock()
                for f, args in b.steps:
                    f(*args)
                out.append((b.name, clock() - start))
        return out


class CpuDevice(Device):
    """NumPy on the host. Buffers are flat arrays; one thread runs batches at a time."""

    name = "cpu"
    _POOL = 256 << 20
    _BINDINGS = 1024
    _PROGRAMS = 2048

    def __init__(self) -> None:
        self.limits = Limits(
            max_buffers=1 << 16,
            max_binding_bytes=1 << 40,
            dtypes=frozenset(d for d in vars(dtypes).values() if isinstance(d, DType)),
        )
        self._pool = BufferPool(self._POOL, self._dropped)
        self._programs: dict[UOp, CpuProgram] = {}
        self._bindings: dict[tuple[int, ...], _Bound] = {}
        self._users: dict[int, list[tuple[int, ...]]] = {}
        self._arena = _aligned(1 << 20)
        self._workspaces: dict[int, Array] = {}
        # without a say over BLAS's threads, lanes and BLAS would fight over the cores
        self.lanes = Lanes(None if blas_obeys() else 1)

    # -- memory
    def alloc(self, size: int, dtype: DType) -> Array:
        kind = (size, dtype)
        found = self._pool.take(kind)
        if found is not None:
            return found  # type: ignore[no-any-return]
        held = numpy_dtype(dtype)
        return _aligned(size * held.itemsize).view(held)

    def free(self, buffer: Array) -> None:
        self._pool.give((buffer.size, _DTYPES[buffer.dtype]), buffer.nbytes, buffer)

    def upload(self, buffer: Array, data: Array) -> None:
        np.copyto(buffer, data.reshape(-1), "unsafe")

    def download(self, buffer: Array, size: int, dtype: DType) -> Array:
        return buffer[:size].copy()

    def copy(self, source: Array, destination: Array, size: int, dtype: DType) -> None:
        np.copyto(destination[:size], source[:size])

    def synchronize(self) -> None:
        """Nothing to wait for: batches run to the end."""

    def arena(self, nbytes: int) -> Array:
        """Scratch shared by all kernels, at least `nbytes`. Kernels run one after another, so they can share."""
        if nbytes > self._arena.nbytes:
            self._arena = _aligned(max(nbytes, 2 * self._arena.nbytes))
        return self._arena

    def workspace(self, number: int, nbytes: int) -> Array:
        """Scratch of a single product, apart from the arena."""
        found = self._workspaces.get(number)
        if found is None or found.nbytes < nbytes:
            found = self._workspaces[number] = _aligned(max(nbytes, 1 << 16))
        return found

    def _dropped(self, buffer: Array) -> None:
        """A buffer left the pool: nothing may keep it alive."""
        for key in self._users.pop(id(buffer), ()):
            bound = self._bindings.pop(key, None)
            if bound is not None:
                self._forget(key, bound, id(buffer))

    def _forget(self, key: tuple[int, ...], bound: _Bound, but: int) -> None:
        for b in {id(b): b for b in bound.buffers}.values():
            users = self._users.get(id(b))
            if users is not None and id(b) != but:
                users.remove(key)
                if not users:
                    del self._users[id(b)]

    # -- programs
    def compile(self, sink: UOp) -> CpuProgram:
        found = self._programs.pop(sink, None)
        if found is None:
            found = CpuProgram(sink, name_of(sink), self.lanes.count)
            if len(self._programs) >= self._PROGRAMS:
                del self._programs[next(iter(self._programs))]
        self._programs[sink] = found  # reinserted last: most recently used
        return found

    def prepare(self, calls: Sequence[Call]) -> CpuBatch:
        return CpuBatch([self._bind(program, buffers) for program, buffers in calls], self.lanes.count)

    def _bind(self, program: Program, buffers: Sequence[Array]) -> _Bound:
        assert isinstance(program, CpuProgram)
        key = (id(program), *map(id, buffers))
        found = self._bindings.get(key)
        if found is not None:
            return found
        if program.ragged is not None:
            steps = [program.ragged(buffers)]
        else:
            steps = Binder(program, buffers, self).steps
        bound = _Bound(program, steps, tuple(buffers))
        while len(self._bindings) >= self._BINDINGS:
            old = next(iter(self._bindings))
            self._forget(old, self._bindings.pop(old), 0)
        self._bindings[key] = bound
        for b in {id(b): b for b in buffers}.values():
            self._users.setdefault(id(b), []).append(key)
        return bound

    def describe(self) -> dict[str, Any]:
        facts = super().describe()
        facts.update(
            backend="NumPy " + np.__version__,
            processor=platform.processor() or platform.machine(),
            cores=os.cpu_count(),
        )
        return facts


_DTYPES: dict[np.dtype[Any], DType] = {numpy_dtype(d): d for d in vars(dtypes).values() if isinstance(d, DType)}
