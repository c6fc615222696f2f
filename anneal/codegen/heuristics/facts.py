"""What the rules ask about a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from anneal.codegen.opts import Axis
from anneal.uop import UOp

__all__ = ["ENOUGH_GROUPS", "ENOUGH_THREADS", "Facts"]

ENOUGH_GROUPS = 128  # workgroups that keep a large GPU busy
ENOUGH_THREADS = 65536


@dataclass(frozen=True, slots=True)
class Facts:
    """A collapsed kernel: its axes, elements stored, reduces and loads."""

    axes: list[Axis]
    outputs: int
    reduces: list[UOp]
    loads: list[UOp]
    nodes: int

    def number(self, r: UOp) -> int:
        return next(i for i, a in enumerate(self.axes) if a.range is r)
