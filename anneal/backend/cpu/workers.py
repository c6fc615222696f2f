"""Workers, threads that run the work items of one loop, and launches of kernels in C.

NumPy and BLAS release the interpreter lock while they compute. While workers run, BLAS itself uses one thread, where it
can be told to: its own threads and ours would fight over the cores, and a product split by rows together with its
epilogue needs one synchronisation instead of two.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anneal.backend.arrays import Array
from anneal.backend.cpu.primitives import Step
from anneal.backend.device import Program
from anneal.backend.promises import Crew
from anneal.schedule import name_of
from anneal.uop import UOp
from anneal.uop.sizes import Size, Sizes, evaluator

_MOST, _MOST_IN_C = 4, 16  # more threads only queue for the interpreter lock, which those in C do not take
# NumPy walks what is broadcast or strided in chunks of this many elements. With its own 8192 a row added to a matrix
# takes half again as long.
_CHUNK = 2048
# whether a block of np.errstate keeps chunks as they were set in it
_APART = np.__version__.startswith("1.")
_OF_BLAS = ("openblas_get_num_threads", "openblas_set_num_threads", "cblas_sgemm", "cblas_dgemm")


def run_all(steps: list[Step]) -> None:
    for f, args in steps:
        f(*args)


class Workers:
    """`count` workers, the caller's thread among them; threads start on first use. `in_c` is the number of threads of
    kernels in C."""

    def __init__(self, count: int | None = None) -> None:
        count = _cores() if count is None else count
        self.count, self.in_c = max(1, min(_MOST, count)), max(1, min(_MOST_IN_C, count))
        self._begin()
        if hasattr(os, "register_at_fork"):
            # threads do not survive a fork
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._crew = Crew(self.count, "anneal-cpu-worker", numpy_settings)

    def run(self, shares: Sequence[list[Step]]) -> None:
        """Run each list of steps on a worker of its own and wait for all of them."""
        self._crew.each(run_all, shares)


class numpy_settings(contextlib.AbstractContextManager[None]):
    """NumPy's settings in this thread inside the block: no warnings, and chunks of a size that suits rows.

    Args:
        one_blas_thread: have BLAS use one thread inside the block, as many as before afterwards; nothing is done where
            it cannot be told.
    """

    def __init__(self, one_blas_thread: bool = False) -> None:
        self._one = one_blas_thread and blas_obeys()

    def __enter__(self) -> None:
        self._errors = np.errstate(all="ignore")
        self._errors.__enter__()
        self._before = np.setbufsize(_CHUNK)
        if self._one:
            self._threads = blas().get()
            blas().set(1)

    def __exit__(self, *_: object) -> None:
        if self._one:
            blas().set(self._threads)
        if _APART:
            np.setbufsize(self._before)
        self._errors.__exit__(None, None, None)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def address(function: Any) -> int:
    """The address of a function in C."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class Blas(NamedTuple):
    """OpenBLAS's own thread count, in the library that NumPy's wheels bring along. `products` are the addresses of the
    functions for matrices of floats of 32 and 64 bits, 0 where C cannot call them, and whether their integers have 64
    bits."""

    get: Any = None
    set: Any = None
    products: tuple[int, int, bool] = (0, 0, False)


@functools.cache
def blas() -> Blas:
    """The BLAS of this process, as far as it can be reached."""
    package = Path(np.__file__).parent
    for path in (*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(str(path))
            for prefix, suffix in itertools.product(("scipy_", ""), ("64_", "")):
                get, put, *products = [getattr(library, f"{prefix}{name}{suffix}", None) for name in _OF_BLAS]
                if get and put:
                    single, double = map(address, products)
                    return Blas(get, put, (single, double, bool(suffix)))
    return Blas()


def blas_obeys() -> bool:
    """True when BLAS's thread count can be set."""
    return blas().set is not None


# -- kernels in C: programs in parts, and their launches, as rows of a table that is one call of Python ----------------


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
    fixed: tuple[Array, int] | None = None

    def placed(self) -> tuple[Array, int]:
        """Memory for the sizes, and its address. All launches share it, unless variables are in the sizes."""
        found = self.fixed
        if found is None:
            numbers = [s if isinstance(s, int) else 0 for s in self.sizes]
            sizes = np.array(numbers, np.int32)
            found = sizes, _address(sizes)
            if list(self.sizes) == numbers:
                self.fixed = found
        return found


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

    @cached_property
    def functions(self) -> list[int]:
        """The addresses of the functions of the parts."""
        return [address(p.library[p.symbol]) for p in self.parts]

    @cached_property
    def written(self) -> set[int]:
        """The slots that it writes."""
        return {s.slot for s in self.sink.src}


class CLaunch:
    """A program in C bound to a set of buffers. `rows` are its rows in a table of launches, as pool.c reads it: the
    addresses of a function, of the places of its memory and of its sizes, and what it is worth."""

    __slots__ = ("_sizes", "buffers", "program", "rows")

    def __init__(
        self, program: CProgram, buffers: Sequence[Array], begins: Sequence[int], scratch: Array, values: Sizes
    ) -> None:
        self.program, self.buffers = program, (*buffers, scratch)
        places = dict(enumerate(begins))
        at = _address(scratch)
        for slot, size in program.scratch.items():
            places[slot] = at
            at += size
        self.rows: list[tuple[int, int, int, int]] = []
        self._sizes: list[tuple[CPart, Array, Array]] = []
        for p, function in zip(program.parts, program.functions, strict=True):
            sizes, place = p.placed()
            # the function finds the sizes after the first in the last place
            memory = np.array([*[places[s] for s in p.slots], place + sizes.itemsize], np.uint64)
            self.rows.append((function, _address(memory), place, p.worth))
            self._sizes.append((p, sizes, memory))
        self.give(values)

    def give(self, values: Sizes) -> None:
        """Run with these values of variables."""
        for p, sizes, _ in self._sizes:
            if p.fixed is None:
                sizes[:] = evaluator(p.sizes)(values)


def _address(x: Array) -> int:
    return x.__array_interface__["data"][0]  # type: ignore[no-any-return]


def apart(program: CProgram, buffers: Sequence[Array]) -> list[int]:
    """The addresses of the buffers; none if memory that the program writes is also that of another slot: its text
    takes slots to be apart."""
    begins = [_address(b) for b in buffers]
    ends = [at + b.nbytes for at, b in zip(begins, buffers)]
    for w in program.written:
        first, last = begins[w], ends[w]
        if sum([at < last and first < end for at, end in zip(begins, ends)]) > (first < last):
            return []
    return begins
