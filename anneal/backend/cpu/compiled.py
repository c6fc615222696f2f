"""Kernels in C on the cpu: programs in parts, and their launches, as rows of a table that is one call of Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anneal.backend.cpu.ops import Array
from anneal.backend.cpu.workers import address
from anneal.backend.device import Program
from anneal.schedule import name_of
from anneal.uop import UOp
from anneal.uop.sizes import Size, evaluator

# Work of less than so many nanoseconds is not worth another thread; a chunk of a launch has at least as much.
_CHUNK_NS = 10_000
_MOST_CHUNKS = 64


@dataclass(slots=True)
class CPart:
    """One launch of a program: the name of a function in C, the slots of its memory, and its sizes.

    `sizes` are the number of workgroups, then the words that the function reads: the values of variables, or what
    describes a product to `multiply` in pool.c. `worth` is the estimated nanoseconds on one core. `library` has the
    function once that is compiled; until then `head` and `text` are its C.
    """

    symbol: str
    slots: tuple[int, ...]
    sizes: tuple[Size, ...]
    worth: int
    library: Any = None
    head: str = ""
    text: str = ""


class CProgram(Program):
    """A kernel in C: parts that run one after another, and `scratch` between them, aligned bytes by slot. `text` gives
    the C of a kernel to be read."""

    def __init__(
        self, sink: UOp, parts: Sequence[CPart], scratch: Mapping[int, int], text: Callable[[UOp], str]
    ) -> None:
        self.sink, self.name, self.parts, self.scratch, self._text = sink, name_of(sink), parts, scratch, text

    @property
    def source(self) -> str:  # type: ignore[override]
        """The C of the parts."""
        return self._text(self.sink)


class CLaunch:
    """A program in C bound to a set of buffers."""

    __slots__ = ("buffers", "name", "parts", "program")

    def __init__(self, program: CProgram, buffers: tuple[Array, ...], scratch: Array) -> None:
        self.program, self.name, self.buffers = program, program.name, (*buffers, scratch)
        places = {n: _address(b) for n, b in enumerate(buffers)}
        at = _address(scratch)
        for slot, size in program.scratch.items():
            places[slot] = at
            at += size
        # each part with the address of its function, its sizes, and the places of its memory, the last of which are
        # the sizes after the first
        self.parts: list[tuple[CPart, int, Array, Array]] = []
        for p in program.parts:
            sizes = np.zeros(len(p.sizes), np.int32)
            memory = np.array([*[places[s] for s in p.slots], _address(sizes) + sizes.itemsize], np.uint64)
            self.parts.append((p, address(p.library, p.symbol), sizes, memory))

    def rows(self, values: Mapping[str, int]) -> list[tuple[int, int, int, int]]:
        """Its rows in a table of launches, for these values of variables."""
        out = []
        for p, function, sizes, memory in self.parts:
            sizes[:] = evaluator(p.sizes)(values)
            count = int(sizes[0])
            out.append((function, _address(memory), count, max(1, min(count, p.worth // _CHUNK_NS, _MOST_CHUNKS))))
        return out


def _address(x: Array) -> int:
    return x.__array_interface__["data"][0]  # type: ignore[no-any-return]


def overlap(program: CProgram, buffers: Sequence[Array]) -> bool:
    """True if memory that the program writes is also that of another slot: its text takes slots to be apart."""
    written = {s.src[0].arg[0] for s in program.sink.src}
    places = [(_address(b), b.nbytes) for b in buffers]
    return any(
        at < places[w][0] + places[w][1] and places[w][0] < at + size
        for w in written
        for n, (at, size) in enumerate(places)
        if n != w
    )
