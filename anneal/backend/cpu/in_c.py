"""The choice of kernels of the cpu that run in C, and their functions: of this process, the cache, or the compiler."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.resources
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from weakref import WeakValueDictionary

from anneal import cache
from anneal.backend.cpu import compiler
from anneal.backend.cpu.compiled import CLaunch, CPart, CPlan, CProgram, LaunchTable, decode_plan, encode_plan
from anneal.backend.cpu.compiler import Compiler, Library, NotCompiled
from anneal.backend.cpu.products import BlasProduct, Taken, split
from anneal.backend.cpu.workers import blas_product
from anneal.codegen import C_TARGET, Target, generate, kernel_info
from anneal.errors import AnnealError
from anneal.schedule import members_of, standalone
from anneal.uop import Op, UOp, toposort

_VECTORS = "/* vectors */\n"  # ends the part of a text's head that all have; what follows are lines of its own
_LARGEST = 8192  # nodes of a kernel that a compiler takes a few seconds for; of more it takes minutes
_START = "\nvoid kernel("
# The work of one core in a nanosecond: operations and bytes of a kernel, operations of a product by BLAS.
_FLOPS, _BYTES, _FLOPS_IN_BLAS = 8, 8, 40


class CKernels:
    """The kernels in C of this process; the device asks for programs, and gets None where NumPy is to run a kernel."""

    def __init__(self, threads: int) -> None:
        has = " ".join(compiler.machine())
        lanes = 16 if "avx512f" in has else 8 if "avx2" in has else 4
        self.threads, self.target = threads, replace(C_TARGET, lanes=lanes)
        self.failed = ""  # why nothing is compiled any more
        self._programs: dict[UOp, CProgram | None] = {}
        self._libraries: WeakValueDictionary[str, Library] = WeakValueDictionary()  # by the functions that they have
        self._multiply = 0  # the address of the pool's function for products
        self._pool: ctypes.CDLL | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        if self._pool is not None:
            self._pool.forked()

    def programs(self, sinks: Sequence[UOp], most: int) -> list[CProgram | None]:
        """A program for each kernel, or None where NumPy runs it; at most so many are kept."""
        new = [s for s in dict.fromkeys(sinks) if s not in self._programs]
        if new and not self.failed:
            try:
                self._make(new)
            except NotCompiled as e:
                self.failed = str(e)
                print(f"anneal: NumPy runs the kernels of the cpu: {e}", file=sys.stderr)
        out = [self._programs.get(s) for s in sinks]
        while len(self._programs) > most:
            del self._programs[next(iter(self._programs))]
        return out

    def table(self, launches: Sequence[CLaunch], values: Mapping[str, int]) -> LaunchTable:
        """Launches as one call."""
        assert self._pool is not None
        return LaunchTable(launches, values, self._pool.run, self.threads)

    def _make(self, sinks: Sequence[UOp]) -> None:
        found = compiler.find()
        if found is None:
            raise NotCompiled(compiler.why_none())
        identity = found.identity, self.target, self.threads, blas_product(4)[0] != 0
        plans: dict[UOp, CPlan] = {}
        fresh: list[UOp] = []
        for sink in sinks:
            key = cache.disk_key("native", sink.key, identity)
            plan = cache.load("native", key, decode_plan, private=True)
            if plan is not None and self._recalled(plan):
                plans[sink] = plan
            elif (made := self._planned(sink)) is not None:
                plans[sink] = made
                fresh.append(sink)
            else:
                self._programs[sink] = None
        self._load([p for sink in fresh for p in plans[sink].parts], found)
        for sink, plan in plans.items():
            for p in plan.parts:
                p.function = p.function or self._multiply
            self._programs[sink] = CProgram(sink, plan, partial(self.text, sink))
        for sink in fresh:
            key = cache.disk_key("native", sink.key, identity)
            cache.save("native", key, encode_plan(plans[sink]), "a kernel in C", private=True)

    def _planned(self, sink: UOp) -> CPlan | None:
        if not suits(sink):
            return None
        try:
            return planned(sink, self.target, self.threads)
        except AnnealError:
            return None

    def text(self, sink: UOp) -> str:
        """The C of a kernel, to be read; "" where NumPy runs it."""
        plan = self._planned(sink)
        return "" if plan is None else "".join([p.text for p in plan.parts]).lstrip("\n")

    def _recalled(self, plan: CPlan) -> bool:
        """True if all functions of a plan could be found, in libraries that an earlier process made."""
        for p in plan.parts:
            if p.symbol:
                library = self._libraries.get(p.symbol) or compiler.known(bytes.fromhex(p.key))
                if library is None:
                    return False
                self._libraries[p.symbol] = library
                p.load(library)
        return True

    def _load(self, parts: Sequence[CPart], found: Compiler) -> None:
        """Compile the functions of parts, in a unit for each thread, and the pool if there is none yet."""
        found_in = {p.symbol: library for p in parts if (library := self._libraries.get(p.symbol)) is not None}
        left = {p.symbol: p for p in parts if p.symbol and p.symbol not in found_in}
        units: list[list[CPart]] = [[] for _ in range(min(self.threads, len(left)))]
        for p in sorted(left.values(), key=lambda p: -len(p.body)):
            min(units, key=lambda unit: sum([len(p.body) for p in unit])).append(p)
        texts = [_unit(unit) for unit in units]
        if self._pool is None:
            texts.append(importlib.resources.files("anneal.backend.cpu").joinpath("pool.c").read_text())
        made = compiler.libraries(texts, found)
        if self._pool is None:
            made[-1].stays = True  # its threads run for as long as the process
            self._pool, self._multiply = made[-1].code, made[-1].address("multiply")
            self._pool.run.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
            self._pool.run.restype = None
        for unit, library in zip(units, made, strict=False):
            for p in unit:
                found_in[p.symbol] = self._libraries[p.symbol] = library
        for p in parts:
            if p.symbol:
                p.load(found_in[p.symbol])


def _unit(parts: Sequence[CPart]) -> str:
    """The text of several functions: what their heads have in common once."""
    heads = [p.head.partition(_VECTORS) for p in parts]
    lines = dict.fromkeys([line for _, _, own in heads for line in own.splitlines()])
    return "\n".join([heads[0][0], *lines, *[p.text for p in parts]])


def suits(sink: UOp) -> bool:
    """True if C is to run a kernel, as far as its graph tells."""
    nodes = toposort((sink,))
    if len(nodes) > _LARGEST:
        return False
    for u in nodes:
        if u.op is Op.ARGSORT or (u.op is Op.CAST and u.tag is not None):
            return False
        if u.op is Op.PARAM and u.arg[1][0] >= 2**31:
            return False
    return True


def planned(sink: UOp, target: Target, threads: int) -> CPlan:
    """The plan of a kernel graph for so many threads. Raises AnnealError where C lacks something."""
    out = CPlan()
    slots = 1 + max([u.arg[0] for u in toposort((sink,)) if u.op is Op.PARAM])
    for member in members_of(sink):
        found = split(member, slots) if blas_product(4)[0] else Taken(slots, [member])
        slots += len(found.scratch)
        out.scratch.update(found.scratch)
        out.parts += [_part(p, target, threads) for p in found.parts]
    return out


def _part(sink: UOp | BlasProduct, target: Target, threads: int) -> CPart:
    if isinstance(sink, BlasProduct):
        count, worth = sink.batches * sink.blocks(threads), sink.flops // _FLOPS_IN_BLAS
        return CPart("", sink.slots, count, worth, description=sink.description(threads))
    kernel, slots = standalone(sink)
    made, info = generate(kernel, target), kernel_info(kernel)
    head, _, body = made.source.partition(_START)
    symbol = "kernel_" + hashlib.blake2b(made.source.encode(), digest_size=12).hexdigest()
    worth = max(info.flops // _FLOPS, (info.bytes_read + info.bytes_written) // _BYTES)
    count = made.launch.workgroups if made.launch.needed is None else made.launch.needed
    return CPart(symbol, slots, count, worth, made.variables, head=head, body=body)
