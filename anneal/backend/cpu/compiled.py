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
from anneal.backend.cpu.layout import ALIGN
from anneal.backend.cpu.ops import Array, Step
from anneal.backend.cpu.products import Product, split
from anneal.backend.cpu.streams import WorkItem
from anneal.backend.cpu.workers import blas_product
from anneal.backend.device import Program
from anneal.codegen import Target, generate, kernel_info, opts_text
from anneal.codegen.dialects import C_TARGET
from anneal.errors import AnnealError
from anneal.schedule import members_of, name_of, standalone
from anneal.uop import Op, UOp, dtypes, toposort
from anneal.uop.sizes import evaluator

_START = "\nvoid kernel("
# Work of less than so many nanoseconds is not worth another thread; a chunk of a launch has at least as much.
_CHUNK_NS = 10_000
_MOST_CHUNKS = 64
_FLOPS_IN_BLAS = 40  # in a nanosecond


class Part:
    """One launch of a program in C: a function, the slots of its memory, and how many workgroups there are.

    `text` is the C, None for a product, which `description` describes. `function` is the address once there is one;
    `needed` gives the workgroups for values of variables, and `worth` is the estimated nanoseconds on one core.
    """

    __slots__ = ("body", "chunks", "description", "function", "head", "names", "needed", "slots", "symbol", "workgroups")

    def __init__(self, sink: UOp | Product, target: Target) -> None:
        self.function, self.needed, self.names = 0, None, ()
        self.head = self.body = self.symbol = ""
        self.description: Array | None = None
        if isinstance(sink, Product):
            blas, wide = blas_product(sink.itemsize)
            self.description = np.array(sink.description(blas, wide), np.int64)
            self.slots, self.workgroups = sink.slots, sink.batches * sink.blocks
            worth = sink.flops // _FLOPS_IN_BLAS
        else:
            kernel, self.slots = standalone(sink)
            made, info = generate(kernel, target), kernel_info(kernel)
            self.head, _, self.body = made.source.partition(_START)
            self.symbol = "kernel_" + hashlib.blake2b(self.body.encode(), digest_size=12).hexdigest()
            self.workgroups, self.names = made.launch.workgroups, made.variables
            if made.launch.needed is not None:
                self.needed = evaluator((made.launch.needed,))
            worth = max(info.flops // 8, (info.bytes_read + info.bytes_written) // 8)
        self.chunks = max(1, min(worth // _CHUNK_NS, _MOST_CHUNKS))

    @property
    def text(self) -> str:
        """The function under its own name, to stand in a unit with others."""
        return f"\nvoid {self.symbol}({self.body}"

    def row(self, memory: int, values: Mapping[str, int]) -> tuple[int, int, int, int]:
        """The row in a table of launches."""
        count = self.workgroups if self.needed is None else self.needed(values)[0]
        return self.function, memory, count, max(1, min(count, self.chunks))


class CProgram(Program):
    """A kernel in C, in parts that run one after another, with `scratch` between them: (elements, bytes) by slot."""

    def __init__(self, sink: UOp, target: Target) -> None:
        self.sink, self.name = sink, name_of(sink)
        self.parts: list[Part] = []
        self.scratch: dict[int, tuple[int, int]] = {}
        slots = 1 + max([u.arg[0] for u in toposort((sink,)) if u.op is Op.PARAM])
        for member in members_of(sink):
            found = split(member, slots) if blas_product(4)[0] else None
            if found is not None:
                slots += len(found.scratch)
                self.scratch.update(found.scratch)
            self.parts += [Part(p, target) for p in (found.parts if found is not None else [member])]

    @property
    def ready(self) -> bool:
        """True once all parts have functions."""
        return all([p.function for p in self.parts])

    @property
    def source(self) -> str:  # type: ignore[override]
        """The C of the parts."""
        return "\n".join([p.text for p in self.parts])


class Launch:
    """A program in C bound to a set of buffers."""

    __slots__ = ("buffers", "memory", "name", "program", "values", "waves")

    def __init__(self, program: CProgram, buffers: tuple[Array, ...], scratch: Array) -> None:
        self.program, self.name, self.buffers = program, program.name, (*buffers, scratch)
        self.waves: list[list[WorkItem]] = []
        places = {n: b.__array_interface__["data"][0] for n, b in enumerate(buffers)}
        at = scratch.__array_interface__["data"][0]
        for slot, (size, itemsize) in program.scratch.items():
            places[slot] = at
            at += -(-size * itemsize // ALIGN) * ALIGN
        self.values = [np.zeros(len(p.names) + 1, np.int32) for p in program.parts]
        self.memory = []
        for p, values in zip(program.parts, self.values, strict=True):
            last = values if p.description is None else p.description
            self.memory.append(np.array([*[places[s] for s in p.slots], last.ctypes.data], np.uint64))

    def rows(self, values: Mapping[str, int]) -> list[tuple[int, int, int, int]]:
        """Its rows in a table of launches, for these values of variables."""
        out = []
        for p, memory, mine in zip(self.program.parts, self.memory, self.values, strict=True):
            mine[: len(p.names)] = [values[n] for n in p.names]
            out.append(p.row(memory.ctypes.data, values))
        return out


def scratch_bytes(program: CProgram) -> int:
    """The bytes between the parts of a program."""
    return sum([-(-size * itemsize // ALIGN) * ALIGN for size, itemsize in program.scratch.values()])


class Table:
    """Launches that follow each other, as one call for these values of variables."""

    __slots__ = ("launches", "rows", "steps")

    def __init__(self, launches: Sequence[Launch], values: Mapping[str, int], run: Any, threads: int) -> None:
        self.launches = launches
        self.rows = np.array([row for launch in launches for row in launch.rows(values)], np.int64)
        self.steps: list[Step] = [(run, (self.rows.ctypes.data, len(self.rows), threads, None))]


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
        programs = {p: None for s in sinks if (p := self._programs[s]) is not None and not p.ready}
        if programs and not self._failed:
            found = compiler.find()
            try:
                if found is None:
                    raise NotCompiled("there is no C compiler: install gcc, clang or anneal-compiler[cc]")
                self._load([part for p in programs for part in p.parts], found)
            except NotCompiled as e:
                self._failed = str(e)
                print(f"anneal: NumPy runs the kernels of the cpu: {e}", file=sys.stderr)
        return [p if p is not None and p.ready else None for p in [self._programs[s] for s in sinks]]

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

    def _load(self, parts: Sequence[Part], found: Compiler) -> None:
        """Find or compile the functions of parts, in a unit for each thread, and the pool."""
        wanted = {p.symbol: p for p in parts if p.description is None and p.symbol not in self._functions}
        left = [p for p in wanted.values() if not self._recall(p, found)]
        texts = [_pool()] if self.run is None else []
        units: list[list[Part]] = [[] for _ in range(min(self.threads, len(left)))]
        for p in sorted(left, key=lambda p: -len(p.body)):
            min(units, key=lambda unit: sum(len(p.body) for p in unit)).append(p)
        texts += [unit[0].head + "\n" + "".join(p.text for p in unit) for unit in units]
        made = compiler.libraries(texts, found)
        if self.run is None:
            self._library = made.pop(0)[1]
            self.run = self._library.run
            self.run.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
            self.run.restype = None
            self._functions[""] = _address(self._library.multiply)
        for unit, (key, library) in zip(units, made, strict=True):
            for p in unit:
                self._functions[p.symbol] = _address(library[p.symbol])
                cache.save("native", self._key(p, found), key.hex(), "the library of a kernel")
        for p in parts:
            p.function = self._functions[p.symbol]

    def _key(self, p: Part, found: Compiler) -> bytes | None:
        return cache.disk_key(p.head, p.body, found.identity)

    def _recall(self, p: Part, found: Compiler) -> bool:
        """Find the function in a library that an earlier process made."""
        key = cache.load("native", self._key(p, found), bytes.fromhex)
        library = None if key is None else compiler.known(key)
        if library is not None:
            self._functions[p.symbol] = _address(library[p.symbol])
        return library is not None


def _address(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None
    return found


def _pool() -> str:
    return importlib.resources.files("anneal.backend.cpu").joinpath("pool.c").read_text()


def suits(sink: UOp) -> bool:
    """True if C is to run a kernel, as far as its graph tells."""
    for u in toposort((sink,)):
        if u.op is Op.ARGSORT or (u.op is Op.CAST and u.tag is not None):
            return False
        if u.op is Op.PARAM and u.arg[1][0] >= 2**31:
            return False
    return True
