"""Kernels in C on the cpu: generated, compiled in a few units, and launched from a table by one pool of threads."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.resources
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anneal import cache
from anneal.backend.cpu import compiler
from anneal.backend.cpu.compiler import Compiler, NotCompiled
from anneal.backend.cpu.ops import Array, Step
from anneal.backend.cpu.streams import WorkItem
from anneal.backend.device import Program
from anneal.codegen import Target, fused_ops, generate, kernel_info, opts_text
from anneal.codegen.dialects import C_TARGET
from anneal.errors import AnnealError
from anneal.schedule import members_of, name_of
from anneal.uop import Op, UOp, dtypes, toposort
from anneal.uop.sizes import evaluator

_START = "\nvoid kernel("
# Work of less than so many nanoseconds is not worth another thread; a chunk of a launch has at least as much.
_CHUNK_NS = 10_000
_MOST_CHUNKS = 64


class CProgram(Program):
    """A kernel in C. `function` is its address once it is compiled.

    `workgroups` is the number of those that there may be, `needed` gives how many there are for values of variables,
    `worth` the estimated nanoseconds on one core.
    """

    def __init__(self, sink: UOp, target: Target) -> None:
        kernel = generate(sink, target)
        info = kernel_info(sink)
        self.sink, self.name, self._opts = sink, name_of(sink), opts_text(kernel.opts)
        self.head, _, self.body = kernel.source.partition(_START)
        self.source = kernel.source
        self.symbol = "kernel_" + hashlib.blake2b(self.body.encode(), digest_size=12).hexdigest()
        self.workgroups = kernel.launch.workgroups
        self.needed = None if kernel.launch.needed is None else evaluator((kernel.launch.needed,))
        self.names = kernel.variables
        self.worth = max(info.flops // 8, (info.bytes_read + info.bytes_written) // 8)
        self.chunks = max(1, min(self.worth // _CHUNK_NS, _MOST_CHUNKS))
        self.function = 0

    @property
    def opts(self) -> str:
        return self._opts

    @property
    def text(self) -> str:
        """The function under its own name, to stand in a unit with others."""
        return f"\nvoid {self.symbol}({self.body}"


class Launch:
    """A program in C bound to a set of buffers; `row` is its row in a table of launches."""

    __slots__ = ("buffers", "memory", "name", "program", "values", "waves")

    def __init__(self, program: CProgram, buffers: tuple[Array, ...]) -> None:
        self.program, self.name, self.buffers = program, program.name, buffers
        self.values = np.zeros(max(1, len(program.names)), np.int32)
        places = [b.__array_interface__["data"][0] for b in (*buffers, self.values)]
        self.memory = np.array(places, np.uint64)
        self.waves: list[list[WorkItem]] = []

    def give(self, values: Mapping[str, int]) -> None:
        """Run with these values of the variables."""
        self.values[: len(self.program.names)] = [values[n] for n in self.program.names]

    def row(self, values: Mapping[str, int]) -> tuple[int, int, int, int]:
        p = self.program
        count = p.workgroups if p.needed is None else p.needed(values)[0]
        return p.function, self.memory.ctypes.data, count, max(1, min(count, p.chunks))


class Table:
    """Launches that follow each other, as one call for these values of variables."""

    __slots__ = ("launches", "rows", "steps")

    def __init__(self, launches: Sequence[Launch], values: Mapping[str, int], run: Any, threads: int) -> None:
        for launch in launches:
            if launch.program.names:
                launch.give(values)
        self.launches = launches
        self.rows = np.array([launch.row(values) for launch in launches], np.int64)
        self.steps: list[Step] = [(run, (self.rows.ctypes.data, len(launches), threads, None))]


class Kernels:
    """The kernels in C of this process; the device asks for programs, and gets None where NumPy is to run a kernel."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.target = C_TARGET
        self._programs: dict[UOp, CProgram | None] = {}
        self._functions: dict[str, int] = {}
        self._failed = ""
        self.run: Any = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        if self.run is not None:
            self._library.forked()

    def compile_all(self, sinks: Sequence[UOp]) -> list[CProgram | None]:
        """A program for each kernel, or None where NumPy runs it."""
        for sink in sinks:
            if sink not in self._programs:
                self._programs[sink] = self._program(sink)
        wanted = {p.symbol: p for s in sinks if (p := self._programs[s]) is not None and not p.function}
        if wanted and not self._failed:
            found = compiler.find()
            try:
                if found is None:
                    raise NotCompiled("there is no C compiler: install gcc, clang or anneal-compiler[cc]")
                self._load([*wanted.values()], found)
            except NotCompiled as e:
                self._failed = str(e)
                print(f"anneal: NumPy runs the kernels of the cpu: {e}", file=sys.stderr)
        for sink in sinks:
            p = self._programs[sink]
            if p is not None and not p.function:
                if p.symbol not in self._functions:
                    self._programs[sink] = None
                else:
                    p.function = self._functions[p.symbol]
        return [self._programs[s] for s in sinks]

    def table(self, launches: Sequence[Launch], values: Mapping[str, int]) -> Table:
        """Launches as one call."""
        return Table(launches, values, self.run, self.threads)

    def _program(self, sink: UOp) -> CProgram | None:
        if not suits(sink):
            return None
        try:
            return CProgram(sink, self.target)
        except AnnealError:
            return None

    def _load(self, programs: Sequence[CProgram], found: Compiler) -> None:
        """Find or compile the functions of programs, in a unit for each thread, and the pool."""
        left = []
        for p in programs:
            if p.symbol not in self._functions and not self._recall(p, found):
                left.append(p)
        texts = [_pool()] if self.run is None else []
        units: list[list[CProgram]] = [[] for _ in range(min(self.threads, len(left)))]
        for p in sorted(left, key=lambda p: -len(p.body)):
            min(units, key=lambda unit: sum(len(p.body) for p in unit)).append(p)
        texts += [unit[0].head + "\n" + "".join(p.text for p in unit) for unit in units]
        made = compiler.libraries(texts, found)
        if self.run is None:
            self._library = made.pop(0)[1]
            self.run = self._library.run
            self.run.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
            self.run.restype = None
        for unit, (key, library) in zip(units, made, strict=True):
            for p in unit:
                self._add(p, library)
                cache.save("native", self._key(p, found), key.hex(), f"the library of {p.name}")

    def _key(self, p: CProgram, found: Compiler) -> bytes | None:
        return cache.disk_key(p.head, p.body, found.identity)

    def _recall(self, p: CProgram, found: Compiler) -> bool:
        """Find the function in a library that an earlier process made."""
        key = cache.load("native", self._key(p, found), bytes.fromhex)
        library = None if key is None else compiler.known(key)
        if library is not None:
            self._add(p, library)
        return library is not None

    def _add(self, p: CProgram, library: ctypes.CDLL) -> None:
        address = ctypes.cast(getattr(library, p.symbol), ctypes.c_void_p).value
        assert address is not None
        self._functions[p.symbol] = address


def _pool() -> str:
    return importlib.resources.files("anneal.backend.cpu").joinpath("pool.c").read_text()


def suits(sink: UOp) -> bool:
    """True if C is to run a kernel, as far as its graph tells."""
    for u in toposort((sink,)):
        if u.op is Op.ARGSORT or (u.op is Op.CAST and u.tag is not None):
            return False
        if u.op is Op.PARAM and u.arg[1][0] >= 2**31:
            return False
    return not any("matmul" in name for name in fused_ops(sink))
