"""CKernels in C on the cpu: programs in parts, their launches, and tables of launches that are one call of Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anneal.backend.cpu.compiler import Library
from anneal.backend.cpu.layout import ALIGN
from anneal.backend.cpu.ops import Array, Step
from anneal.backend.cpu.streams import WorkItem
from anneal.backend.cpu.workers import blas_product
from anneal.backend.device import Program
from anneal.schedule import name_of
from anneal.uop import UOp, decode_value, encode_value
from anneal.uop.sizes import Size, evaluator, most, size_text

# Work of less than so many nanoseconds is not worth another thread; a chunk of a launch has at least as much.
_CHUNK_NS = 10_000
_MOST_CHUNKS = 64


@dataclass(slots=True)
class CPart:
    """One launch of a program: a function in C, the slots of its memory, and its workgroups.

    `symbol` names the function, "" for a product, which `description` describes. `names` are the variables that a
    function asks for; `worth` is the estimated nanoseconds on one core. `head` and `body` are the text of a new one;
    `function` is its address in `library`, of this `key`, 0 until that is loaded.
    """

    symbol: str
    slots: Sequence[int]
    workgroups: Size
    worth: int
    names: Sequence[str] = ()
    description: Sequence[Size] = ()
    key: str = ""
    head: str = ""
    body: str = ""
    function: int = 0
    library: Library | None = None

    def load(self, library: Library) -> None:
        """Have its function from `library`; its text is no longer needed."""
        self.library, self.function, self.key = library, library.address(self.symbol), library.key.hex()
        self.head = self.body = ""

    @property
    def text(self) -> str:
        """The function under its own name, to stand in a unit with others."""
        words = ", ".join(map(size_text, self.description))
        return f"\nvoid {self.symbol}({self.body}" if self.body else f"\n// a product by BLAS: [{words}]\n"

    def row(self, memory: int, values: Mapping[str, int]) -> tuple[int, int, int, int]:
        """The row in a table of launches."""
        count = evaluator((self.workgroups,))(values)[0]
        return self.function, memory, count, max(1, min(count, self.worth // _CHUNK_NS, _MOST_CHUNKS))


@dataclass(slots=True)
class CPlan:
    """The parts of a kernel, which run one after another, with `scratch` between them: (elements, bytes of one) by
    slot."""

    parts: list[CPart] = field(default_factory=list)
    scratch: dict[int, tuple[int, int]] = field(default_factory=dict)


def encode_plan(plan: CPlan) -> list[Any]:
    """A plan whose parts are loaded as lists of strings and numbers."""
    parts = [
        (p.symbol, tuple(p.slots), p.workgroups, p.worth, tuple(p.names), tuple(p.description), p.key)
        for p in plan.parts
    ]
    return [encode_value(tuple(parts)), [[slot, *size] for slot, size in plan.scratch.items()]]


def decode_plan(data: list[Any]) -> CPlan:
    """The plan that `encode_plan` wrote down, whose parts know the keys of their libraries."""
    parts, scratch = data
    made = [CPart(*p) for p in decode_value(parts)]
    return CPlan(made, {slot: (size, itemsize) for slot, size, itemsize in scratch})


class CProgram(Program):
    """A kernel in C; `text` gives it to be read."""

    def __init__(self, sink: UOp, plan: CPlan, text: Callable[[], str]) -> None:
        self.sink, self.name, self.plan, self._text = sink, name_of(sink), plan, text
        self.scratch = sum([-(-size * itemsize // ALIGN) * ALIGN for size, itemsize in plan.scratch.values()])

    @property
    def source(self) -> str:  # type: ignore[override]
        """The C of the parts."""
        return self._text()


class CLaunch:
    """A program in C bound to a set of buffers."""

    __slots__ = ("buffers", "memory", "name", "program", "values", "waves")

    def __init__(self, program: CProgram, buffers: tuple[Array, ...], scratch: Array) -> None:
        self.program, self.name, self.buffers = program, program.name, (*buffers, scratch)
        self.waves: list[list[WorkItem]] = []
        places = {n: b.__array_interface__["data"][0] for n, b in enumerate(buffers)}
        at = scratch.__array_interface__["data"][0]
        for slot, (size, itemsize) in program.plan.scratch.items():
            places[slot] = at
            at += -(-size * itemsize // ALIGN) * ALIGN
        self.memory: list[Array] = []
        self.values: list[Array] = []  # of the variables of each part, or its description
        for p in program.plan.parts:
            if p.description:
                last = np.zeros(2 + len(p.description), np.int64)
                last[:2] = blas_product(most(p.description[0]))
            else:
                last = np.zeros(len(p.names) + 1, np.int32)
            self.values.append(last)
            self.memory.append(np.array([*[places[s] for s in p.slots], last.ctypes.data], np.uint64))

    def rows(self, values: Mapping[str, int]) -> list[tuple[int, int, int, int]]:
        """Its rows in a table of launches, for these values of variables."""
        out = []
        for p, memory, mine in zip(self.program.plan.parts, self.memory, self.values, strict=True):
            if p.description:
                mine[2:] = evaluator(tuple(p.description))(values)
            elif p.names:
                mine[:-1] = [values[n] for n in p.names]
            out.append(p.row(memory.ctypes.data, values))
        return out


class LaunchTable:
    """Launches that follow each other, as one call for these values of variables."""

    __slots__ = ("launches", "rows", "steps")

    def __init__(self, launches: Sequence[CLaunch], values: Mapping[str, int], run: Any, threads: int) -> None:
        self.launches = launches
        self.rows = np.array([row for launch in launches for row in launch.rows(values)], np.int64)
        self.steps: list[Step] = [(run, (self.rows.ctypes.data, len(self.rows), threads, None))]


def overlap(program: CProgram, buffers: Sequence[Array]) -> bool:
    """True if memory that the program writes is also that of another slot: its text takes slots to be apart."""
    written = {s.src[0].arg[0] for s in program.sink.src}
    places = [(b.__array_interface__["data"][0], b.nbytes) for b in buffers]
    return any(
        at < places[w][0] + places[w][1] and places[w][0] < at + size
        for w in written
        for n, (at, size) in enumerate(places)
        if n != w
    )
