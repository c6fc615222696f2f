"""Kernels over variables."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

from anneal.backend.cpu.analysis import share_ranges
from anneal.backend.cpu.dynamic import is_dynamic
from anneal.backend.cpu.index import Dims, Unsettled
from anneal.backend.cpu.layout import CpuProgram
from anneal.backend.cpu.planner import Planner
from anneal.backend.cpu.primitives import Block
from anneal.backend.device import Program
from anneal.rewrite import over, rebuild, substitute
from anneal.schedule import members_of, simplify_indices
from anneal.uop import Ints, Nodes, Op, Recent, Src, UOp, arena, ranged, toposort
from anneal.uop.sizes import Sizes, evaluator, most, size_node

_KEPT = 64
_LARGE_NS = 3_000_000  # estimated work above which a plan of its own is worth its time
_LARGE_VARIABLE = 1 << 16  # the values of a variable are listed: not of more


class SymbolicProgram(Program):
    """A kernel over variables. `program(values)` is what runs it with these values.

    Most have one plan for all values: that of the kernel with every size at its largest, of which a run takes a part. A
    range of symbolic extent is a dim of which it takes the first values; a variable itself is a dim of which it takes
    one. Memory is laid out for the largest sizes, so an index has constant strides, and other values only cut other
    views of the same arrays.

    Where the plan would depend on the values (an axis is taken apart, a size is 0), or where so much is computed that
    blocks and workers should fit it, each choice of values has a plan of its own.
    """

    def __init__(self, sink: UOp, name: str, variables: Nodes, workers: int) -> None:
        self.name, self.source, self.workers = name, "", workers
        self.sink, self.variables = sink, {v.arg[0]: v for v in variables}
        self.whole: PartialProgram | None = None
        if all(most(v) < _LARGE_VARIABLE for v in variables) and not is_dynamic(sink):
            with contextlib.suppress(Unsettled):
                whole = PartialProgram(sink, name, workers, [*self.variables])
                if whole.worth < _LARGE_NS:
                    self.whole = whole
        self._programs: Recent[Ints, CpuProgram] = Recent(_KEPT // 2)

    def program(self, values: Sizes) -> CpuProgram:
        """The program for these values."""
        if self.whole is not None and self.whole.fits(values):
            return self.whole
        key = tuple([values[n] for n in self.variables])
        found = self._programs[key]
        if found is None:
            with arena().untracked():
                sink = substitute(self.sink, {v: size_node(values[n]) for n, v in self.variables.items()})
                sink = simplify_indices(sink)
            found = self._programs[key] = CpuProgram(sink, self.name, self.workers)
        return found


class PartialProgram(CpuProgram):
    """The plan of a kernel with every size at its largest. Raises Unsettled where it would depend on the values."""

    def __init__(self, *args: Any) -> None:
        with arena().untracked():
            super().__init__(*args)

    def _plan(self, workers: int) -> None:
        self._bounds: list[tuple[Dims, Callable[[Sizes], Ints]]] = []
        limits: list[UOp] = []
        for part in members_of(self.sink):
            sink, variables = _largest(share_ranges(part))
            plan = Planner(sink, variables).plan()
            self._lay_out(plan, workers)
            ends = plan.dims.limits.values()
            self._bounds.append((plan.dims, evaluator((*ends, *plan.dims.points.values()))))
            limits += ends
        self._limits = evaluator(tuple(limits))

    def fits(self, values: Sizes) -> bool:
        """True if no size is 0: a reduction needs a first element."""
        return 0 not in self._limits(values)

    def taken(self, part: int, values: Sizes) -> Block:
        dims, ends = self._bounds[part]
        found = zip((*dims.limits, *dims.points), ends(values), strict=True)
        return {s: (0, n) if s in dims.limits else (n, n + 1) for s, n in found}


def _largest(sink: UOp) -> tuple[UOp, dict[int, UOp]]:
    """The kernel with every size at its largest and ranges for variables; for those ranges, and for those of symbolic
    extents, what a run takes of them."""
    order = toposort((sink,))
    fresh = itertools.count(1 + max((u.arg[0] for u in order if u.op is Op.RANGE), default=-1))
    variables = {}

    def visit(u: UOp, src: Src) -> UOp:
        if u.op is Op.VARIABLE:
            if most(u) == 0:
                raise Unsettled
            number = next(fresh)
            variables[number] = u
            return ranged(most(u) + 1, (number, "variable"))
        if u.op is Op.RANGE and not u.src[0].is_const:
            if most(u.src[0]) < 2:
                raise Unsettled
            variables[u.arg[0]] = u.src[0]
            return ranged(most(u.src[0]), u.arg)
        return over(u, src)

    return rebuild(sink, visit, order=order), variables
