"""Kernels over variables: what they are for each choice of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anneal.backend.cpu.layout import CpuProgram
from anneal.backend.device import Program
from anneal.schedule.rangeify import simplify_indices
from anneal.uop import Op, UOp, arena, const, dtypes, toposort

__all__ = ["SymbolicProgram"]

_KEPT = 64


class SymbolicProgram(Program):
    """A kernel over variables. `program(values)` is the program of the kernel that it is for these values."""

    def __init__(self, sink: UOp, name: str, variables: Sequence[UOp], lanes: int) -> None:
        self.sink, self.name, self.source, self.lanes = sink, name, "", lanes
        self.names = [v.arg[0] for v in variables]
        self.order = toposort((sink,))
        self._programs: dict[tuple[int, ...], CpuProgram] = {}

    def program(self, values: Mapping[str, int]) -> CpuProgram:
        """The program for these values."""
        key = tuple([values[n] for n in self.names])
        found = self._programs.pop(key, None)
        if found is None:
            while len(self._programs) >= _KEPT:
                del self._programs[next(iter(self._programs))]
            found = CpuProgram(self._sink(values), self.name, self.lanes)
        self._programs[key] = found  # reinserted last: most recently used
        return found

    def _sink(self, values: Mapping[str, int]) -> UOp:
        a = arena()
        track, a.track = a.track, False
        try:
            return simplify_indices(_without_ranges_of_one(self.order, values))
        finally:
            a.track = track


def _without_ranges_of_one(order: Sequence[UOp], values: Mapping[str, int]) -> UOp:
    """The kernel with constants for variables; a range of one value is that value."""
    new: dict[UOp, UOp] = {}
    for u in order:
        if u.op is Op.VARIABLE:
            new[u] = const(dtypes.int32, values[u.arg[0]])
        elif u.op is Op.RANGE:
            extent = new[u.src[0]]
            one = extent.is_const and extent.arg == 1
            new[u] = const(dtypes.int32, 0) if one else UOp(Op.RANGE, u.dtype, (extent,), u.arg)
        elif u.op is Op.REDUCE:
            ranges = [r for s in u.src[1:] if (r := new[s]).op is Op.RANGE]
            new[u] = UOp(Op.REDUCE, u.dtype, (new[u.src[0]], *ranges), u.arg) if ranges else new[u.src[0]]
        elif u.src:
            new[u] = u.replace(src=tuple([new[s] for s in u.src]))
        else:
            new[u] = u
    return new[order[-1]]
