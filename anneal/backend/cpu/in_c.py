"""The choice of kernels of the cpu that run in C, and their functions: of this process, the cache, or the compiler."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.resources
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from anneal import cache
from anneal.backend import compiler
from anneal.backend.compiler import Compiler, Library, NotCompiled
from anneal.backend.cpu.primitives import SHARED
from anneal.backend.cpu.products import BlasProduct, Taken
from anneal.backend.cpu.workers import CPart, CProgram, blas
from anneal.codegen import C_TARGET, generate, kernel_info
from anneal.errors import AnnealError
from anneal.schedule import members_of, name_of, standalone
from anneal.uop import Nodes, Op, Recent, UOp, decode_value, encode_value, toposort
from anneal.uop.sizes import size_text, variables_of

_VECTORS = "/* vectors */\n"  # ends the part of a text's head that all have; what follows are lines of its own
_LARGEST = 8192  # nodes of a kernel that a compiler takes a few seconds for; of more it takes minutes
_REFUSED = 8  # kernels that a compiler may refuse until it is asked no more
_START = "\nvoid kernel("
_PER_NS, _FLOPS_IN_BLAS = 8, 40  # a core's operations in a nanosecond, or bytes; those of a product by BLAS

Programs = Mapping[UOp, CProgram | None]  # by their kernels; None where NumPy is to run one


class CKernels:
    """The kernels in C of this process; the device asks for programs, and gets None where NumPy is to run a kernel."""

    def __init__(self, threads: int) -> None:
        has = " ".join(compiler.machine())
        lanes = 16 if "avx512f" in has else 8 if "avx2" in has else 4
        self.threads, self.target = threads, replace(C_TARGET, lanes=lanes)
        self.failed = ""  # why nothing is compiled any more
        self.refused: dict[UOp, str] = {}  # kernels that the compiler did not take, and why
        self._programs: Recent[UOp, CProgram] = Recent(1024)
        self._libraries: WeakValueDictionary[str, Library] = WeakValueDictionary()  # by the names of their functions
        self.pool: Any = None  # the Library of pool.c, once there is one

    def programs(self, sinks: Nodes) -> Programs:
        """A program for each kernel, or None where NumPy runs it."""
        out = {s: self._programs[s] for s in sinks}
        new = [s for s, program in out.items() if program is None and s not in self.refused]
        if new and not self.failed:
            try:
                try:
                    out |= self._made(new)
                except subprocess.SubprocessError:
                    out |= self._each(new)
            except (OSError, subprocess.SubprocessError) as e:
                self.failed = str(e)
                print(f"anneal: NumPy runs the kernels of the cpu: {e}", file=sys.stderr)
        return out

    def _each(self, sinks: Nodes) -> Programs:
        """The programs of kernels one of which the compiler refuses: NumPy runs that one. Raises SubprocessError where
        it refuses the pool of threads, or many kernels: then the fault is the compiler's."""
        made: dict[UOp, CProgram | None] = {}
        if self.pool is None:
            self._made(())
        for sink in sinks:
            try:
                made |= self._made((sink,))
            except subprocess.SubprocessError as e:
                if len(self.refused) >= _REFUSED:
                    raise
                self.refused[sink] = str(e)
                print(f"anneal: NumPy runs {name_of(sink)}, which C's compiler refuses: {e}", file=sys.stderr)
        return made

    def _made(self, sinks: Nodes) -> Programs:
        tool = compiler.find()
        if tool is None:
            raise NotCompiled(compiler.why_none())
        identity = tool.identity, self.target, self.threads, blas().products[0] != 0
        made = {}
        fresh = []
        for sink in sinks:
            key = cache.disk_key("native", sink.key, identity)
            program = cache.load("native", key, partial(self._recalled, sink), private=True)
            if program is None and (program := self.planned(sink)) is not None:
                fresh.append((key, program))
            made[sink] = program
        self._load([p for _, program in fresh for p in program.parts], tool)
        for sink, found in made.items():
            self._programs[sink] = found
        for key, program in fresh:
            parts = tuple([(p.symbol, p.library.key, p.slots, p.sizes, p.worth) for p in program.parts])
            data = encode_value((parts, tuple(program.scratch.items())))
            cache.save("native", key, data, "a kernel in C", private=True)
        return made

    def _recalled(self, sink: UOp, data: Any) -> CProgram | None:
        """The program that an earlier process kept; None if a library with functions of it cannot be found."""
        parts, scratch = decode_value(data)
        made = []
        for symbol, key, slots, sizes, worth in parts:
            library = self._libraries.get(symbol) or compiler.known(key, SHARED.libraries)
            if not library:
                return None
            self._libraries[symbol] = library
            made.append(CPart(symbol, slots, sizes, worth, library))
        return CProgram(sink, made, dict(scratch), self.text)

    def planned(self, sink: UOp) -> CProgram | None:
        """The program of a kernel, whose functions are not compiled yet; None where NumPy is to run it."""
        nodes = toposort(sink)
        memory = [u.arg for u in nodes if u.op is Op.PARAM]
        other = any("legal" not in u.op.stages or (u.op is Op.CAST and u.tag is not None) for u in nodes)
        if other or len(nodes) > _LARGEST or any(elements >= 2**31 for _, (elements,) in memory):
            return None
        taken = Taken(1 + max([slot for slot, _ in memory]))
        try:
            for member in members_of(sink):
                taken.add(member, blas().products[0] != 0)
            return CProgram(sink, [self._part(p) for p in taken.parts], taken.scratch, self.text)
        except AnnealError:  # C lacks something
            return None

    def _part(self, sink: UOp | BlasProduct) -> CPart:
        if isinstance(sink, BlasProduct):
            sizes, slots = sink.sizes(self.threads), [o.slot for o in sink.operands]
            text = f"// a product by BLAS: [{', '.join(map(size_text, sizes[1:]))}]\n"
            return CPart("multiply", tuple(slots), sizes, sink.flops // _FLOPS_IN_BLAS, text=text)
        kernel, slots = standalone(sink)
        made, info = generate(kernel, self.target), kernel_info(kernel)
        head, _, body = made.source.partition(_START)
        symbol = "kernel_" + hashlib.blake2b(made.source.encode(), digest_size=12).hexdigest()
        worth = max(info.flops, info.bytes_read + info.bytes_written) // _PER_NS
        count = made.launch.workgroups if made.launch.needed is None else made.launch.needed
        variables = {v.arg[0]: v for v in variables_of(kernel)}
        sizes = count, *[variables[n] for n in made.variables]
        return CPart(symbol, tuple(slots), sizes, worth, head=head, text=f"void {symbol}({body}")

    def text(self, sink: UOp) -> str:
        """The C of a kernel, to be read; "" where NumPy runs it."""
        program = self.planned(sink)
        return "\n".join([p.text for p in program.parts]) if program else ""

    def _load(self, parts: Sequence[CPart], found: Compiler) -> None:
        """Compile the functions of parts, in a unit for each thread, and the pool if there is none yet."""
        pool = importlib.resources.files("anneal.backend.cpu").joinpath("pool.c").read_text()
        for p in parts:
            p.library = self._libraries.get(p.symbol)
        left = {p.symbol: p for p in parts if p.library is None and p.head}
        units: list[list[CPart]] = [[] for _ in range(min(self.threads, len(left)))]
        for p in sorted(left.values(), key=lambda p: -len(p.text)):
            min(units, key=lambda unit: sum([len(p.text) for p in unit])).append(p)
        first, *made = compiler.libraries([pool, *map(_unit, units)], found, SHARED.libraries)
        if self.pool is None:
            self._begin(first)
        for unit, library in zip(units, made, strict=True):
            self._libraries |= {p.symbol: library for p in unit}
        for p in parts:
            p.library = self._libraries[p.symbol]
            p.head = p.text = ""

    def _begin(self, pool: Library) -> None:
        """Have launches and products run by the pool, whose threads and text stay for as long as the process does."""
        self.pool = self._libraries["multiply"] = pool
        pool.run.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        pool.run.restype = None
        pool.use_blas.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
        pool.use_blas(*blas().products)
        os.register_at_fork(after_in_child=pool.forked)  # which holds the library


def _unit(parts: Sequence[CPart]) -> str:
    """The text of several functions: what their heads have in common once."""
    heads = [p.head.partition(_VECTORS) for p in parts]
    lines = dict.fromkeys([line for _, _, own in heads for line in own.splitlines()])
    return "\n".join([heads[0][0], *lines, *[p.text for p in parts]])
