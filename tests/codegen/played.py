"""A linear program played in NumPy: all threads of a workgroup in step, matrices held by subgroups as arrays.

Statements are carried out one after another as they stand, so that indices, layouts and the order around barriers are
held to what they say. Workgroup memory begins as nan, and what one thread or subgroup writes no other may touch before
the next barrier, nor write what another has read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anneal.backend import numpy_dtype
from anneal.codegen.lanes import is_whole
from anneal.codegen.linear import LinearProgram, Operand, Stmt
from anneal.codegen.ranges import SUBGROUP, factors, is_fragment, is_product
from anneal.uop import Op, UOp, dtypes
from anneal.uop.sizes import evaluator

Array = npt.NDArray[Any]

_ALU: dict[Op, Callable[..., Array]] = {
    Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.IDIV: np.floor_divide, Op.MOD: np.mod,
    Op.MAX: np.maximum, Op.MIN: np.minimum, Op.EXP: np.exp, Op.EXP2: np.exp2, Op.LT: np.less, Op.WHERE: np.where, Op.DIV: np.divide,
    Op.NEG: np.negative, Op.AND: np.bitwise_and, Op.SHL: np.left_shift,
    Op.SHR: np.right_shift,
}  # fmt: skip


def played(
    program: LinearProgram, inputs: dict[int, Array], sizes: Mapping[str, int] | None = None
) -> dict[int, Array]:
    """The contents of the memory that the program writes, after it ran; `inputs` are those of the others by slot, and
    `sizes` the values of Variables by name."""
    memory = {}
    for p in program.params:
        given = inputs.get(p.slot, np.full(p.node.arg[1], np.nan))
        memory[p.node] = given.reshape(-1).astype(numpy_dtype(p.node.dtype))
    launch, sizes = program.launch, sizes or {}
    workgroups = launch.workgroups if launch.needed is None else evaluator((launch.needed,))(sizes)[0]
    for workgroup in range(workgroups):
        _Workgroup(program, memory, workgroup, sizes).run(program.stmts)
    return {p.slot: memory[p.node] for p in program.params if p.written}


class _Workgroup:
    def __init__(self, program: LinearProgram, memory: dict[UOp, Array], number: int, sizes: Mapping[str, int]) -> None:
        threads = program.launch.threads
        self.program, self.number, self.sizes = program, number, sizes
        self.lid = np.arange(threads)
        self.subgroups = threads // SUBGROUP
        self.values: dict[int, Array] = {}
        self.memory = dict(memory)
        self.writer: dict[UOp, Array] = {}
        self.reader: dict[UOp, Array] = {}
        for t in program.tiles:
            self.memory[t] = np.full(t.arg[1], np.nan, numpy_dtype(t.dtype))
        self.barrier()

    def barrier(self) -> None:
        for t in self.program.tiles:
            self.writer[t], self.reader[t] = np.full(t.arg[1], -1), np.full(t.arg[1], -1)

    def run(self, stmts: Sequence[Stmt]) -> None:
        n = 0
        while n < len(stmts):
            s = stmts[n]
            n += 1
            if s.kind != "for":
                self.statement(s)
                continue
            end = n
            while stmts[end].kind != "end" or stmts[end].depth != s.depth:
                end += 1
            for i in range(int(self.value(s.src[0]))):
                self.values[s.number] = np.array(i)
                self.run(stmts[n:end])
            n = end + 1

    def value(self, o: Operand) -> Array:
        if isinstance(o, int):
            return self.values[o]
        if o.op is Op.RANGE:
            return np.arange(o.src[0].arg)
        if o.op is Op.VARIABLE:
            return np.array(self.sizes[o.arg[0]], np.int32)
        return np.array(o.arg, numpy_dtype(o.dtype))

    def statement(self, s: Stmt) -> None:
        u = s.node
        if s.kind == "barrier":
            self.barrier()
            return
        assert u is not None
        if s.kind == "let":
            self.values[s.number] = self.let(s, u)
        elif s.kind == "set" or (s.kind == "acc" and not is_product(u)):
            self.values[s.src[0] if s.kind == "set" else s.number] = self.value(s.src[-1])
        elif s.kind == "acc":
            left, right = (x.src[1] for x in factors(u.src[0]))
            rows, columns = left.src[1].src[0].arg, right.src[2].src[0].arg
            self.values[s.number] = np.zeros((self.subgroups, rows, columns), np.float32)
        elif s.kind == "update":
            acc, *parts = s.src
            assert isinstance(acc, int)
            if is_product(u):
                a, b = [self.value(x).astype(np.float32) for x in parts]
                self.values[acc] = self.value(acc) + a @ b
            else:
                into, *found = self.alike([acc, *parts], self.program.width(u))
                self.values[acc] = _ALU[u.arg](into, found[0] * found[1] if len(found) > 1 else found[0])
        else:
            assert s.kind == "store", s.kind
            self.store(s, u)

    def alike(self, operands: Sequence[Operand], wide: int) -> list[Array]:
        """Values side by side: those of threads have a second axis where a value beside them is a vector."""
        found = [self.value(o) for o in operands]
        return [a[:, None] if wide > 1 and a.ndim == 1 and len(a) != wide else a for a in found]

    def let(self, s: Stmt, u: UOp) -> Array:
        if u.op is Op.SPECIAL:
            return self.lid if u.arg[0] == "lid" else np.array(self.number)
        if u.op is Op.LOAD:
            memory, at, holders = self.place(s, u)
            if memory.op is Op.SHARED:
                self.note(memory, at, holders, self.writer, self.reader)
            if len(s.src) > 2:
                asked = np.broadcast_to(self.value(s.src[2]), at.shape)
                return np.where(asked, self.memory[memory][np.where(asked, at, 0)], 0)
            return self.memory[memory][at]
        if u.op is Op.CAST:
            return self.value(s.src[0]).astype(numpy_dtype(u.dtype))
        if u.op is Op.BITCAST:
            return np.ascontiguousarray(self.value(s.src[0])).view(numpy_dtype(u.dtype))
        if u.op is Op.LANES:  # an element of a vector
            index, lane = self.alike(s.src, self.program.width(u))
            return index * 4 + lane
        if u.op is Op.LANE:
            return self.value(s.src[0])[..., u.arg]
        return _ALU[u.op](*self.alike(s.src, max(self.program.width(x) for x in u.src)))

    def place(self, s: Stmt, u: UOp) -> tuple[UOp, Array, Array]:
        """The memory of an access, its indices, and by whom: numbers of threads, and above them those of subgroups."""
        memory, at, index = s.src[0], self.value(s.src[1]), u.src[1]
        if u.op is Op.LOAD and u.arg is not None:  # a lane of a vector for each lane
            at = at * 4 + u.arg
        assert isinstance(memory, UOp)
        if is_fragment(index):
            _, first, second, _ = index.src
            steps = index.arg[1]
            rows, columns = (np.arange(r.src[0].arg) * step for r, step in zip((first, second), steps, strict=True))
            held = np.broadcast_to(at, self.lid.shape).reshape(self.subgroups, SUBGROUP)
            assert (held == held[:, :1]).all(), "a subgroup's threads disagree about its matrix"
            holders = len(self.lid) + np.arange(self.subgroups)[:, None, None]
            at = held[:, :1, None] + rows[None, :, None] + columns
        elif is_whole(index):
            at = np.broadcast_to(at, self.lid.shape)[:, None] * 4 + np.arange(4)
            holders = self.lid[:, None]
        else:
            at = np.broadcast_to(at, self.lid.shape + at.shape[1:]) if at.ndim < 2 else at
            holders = self.lid.reshape(-1, *[1] * (at.ndim - 1))
        assert at.min() >= 0
        return memory, at, np.broadcast_to(holders, at.shape)

    def note(self, memory: UOp, at: Array, holders: Array, others: dict[UOp, Array], mine: dict[UOp, Array]) -> None:
        """Note an access since the last barrier, and that nobody else's stands against it."""
        found = others[memory][at]
        assert ((found == -1) | (found == holders)).all(), "no barrier between two accesses"
        known = mine[memory][at]
        mine[memory][at] = np.where((known == -1) | (known == holders), holders, -2)

    def store(self, s: Stmt, u: UOp) -> None:
        memory, at, holders = self.place(s, u)
        if memory.op is Op.SHARED:
            self.note(memory, at, holders, self.reader, self.writer)
        value = self.value(s.src[2])
        value = np.broadcast_to(
            value[:, None] if value.ndim == 1 < at.ndim and len(value) != at.shape[1] else value, at.shape
        )
        if len(s.src) > 3:
            asked = self.value(s.src[3])
            asked = np.broadcast_to(
                asked[:, None] if asked.ndim == 1 < at.ndim and len(asked) != at.shape[1] else asked, at.shape
            )
            at, value = at[asked], value[asked]
        assert len(np.unique(at)) == at.size, "two threads store one element"
        self.memory[memory][at] = value.astype(numpy_dtype(memory.dtype))
        assert memory.dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float32)
