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
    """A program in C bound to a set of buffers. `rows` are its rows in a table of launches, as pool.c reads it: the
    addresses of a function, of the places of its memory and of its sizes, and what it is worth."""

    __slots__ = ("_sizes", "buffers", "program", "rows")

    def __init__(
        self, program: CProgram, buffers: tuple[Array, ...], scratch: Array, values: Mapping[str, int]
    ) -> None:
        self.program, self.buffers = program, (*buffers, scratch)
        places = {n: _address(b) for n, b in enumerate(buffers)}
        at = _address(scratch)
        for slot, size in program.scratch.items():
            places[slot] = at
            at += size
        self.rows: list[tuple[int, int, int, int]] = []
        self._sizes: list[tuple[CPart, Array, Array]] = []
        for p in program.parts:
            sizes = np.zeros(len(p.sizes), np.int32)
            # the function finds the sizes after the first in the last place
            memory = np.array([*[places[s] for s in p.slots], _address(sizes) + sizes.itemsize], np.uint64)
            self.rows.append((address(p.library[p.symbol]), _address(memory), _address(sizes), p.worth))
            self._sizes.append((p, sizes, memory))
        self.give(values)

    def give(self, values: Mapping[str, int]) -> None:
        """Run with these values of variables."""
        for p, sizes, _ in self._sizes:
            sizes[:] = evaluator(p.sizes)(values)


def _address(x: Array) -> int:
    return x.__array_interface__["data"][0]  # type: ignore[no-any-return]


def overlap(program: CProgram, buffers: Sequence[Array]) -> bool:
    """True if memory that the program writes is also that of another slot: its text takes slots to be apart."""
    written = {s.src[0].arg[0] for s in program.sink.src}
    begins = [_address(b) for b in buffers]
    ends = [at + b.nbytes for at, b in zip(begins, buffers)]
    return any(begins[n] < ends[w] and begins[w] < ends[n] for w in written for n in range(len(ends)) if n != w)
