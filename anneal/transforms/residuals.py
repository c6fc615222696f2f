"""Residuals: the values of a forward pass that are kept for its backward pass, as few bytes of them as will do.

What the backward pass reads is computed again from what it reads in turn, down to values in memory, to values that are
dear (sums, gathers, random bits) and to values that are kept. The cheapest set to keep is a minimal cut of that graph.
Of two cuts of one size the later is taken, which leaves less to compute again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from anneal.uop import ALU, MOVEMENT, Op, UOp, toposort
from anneal.uop.sizes import product

__all__ = ["residuals"]

_CHEAP = (ALU | MOVEMENT) - {Op.THREEFRY}  # computed again
_VIEWS = MOVEMENT - {Op.SHRINK}  # no smaller than what they show, which is kept in their place
_INFINITE = 1 << 62

Gate = tuple[UOp, bool]  # the side of a node on which its sources are, or that of its readers


def residuals(gradients: Sequence[UOp], cotangents: Sequence[UOp]) -> list[UOp]:
    """The nodes to keep for these gradients, which are functions of memory (PARAM nodes) and of the cotangents."""
    late = set(cotangents)
    read: dict[UOp, None] = {}
    for u in toposort(gradients):
        if u not in late and not late.isdisjoint(u.src):
            late.add(u)
    for u in late:
        read.update(dict.fromkeys([s for s in u.src if s not in late]))
    below: list[UOp] = []
    there: set[UOp] = set()  # memory, and what is a function of no memory
    fixed: set[UOp] = set()
    for u in toposort(list(read)):
        if u.op is Op.PARAM:
            there.add(u)
        elif fixed.issuperset(u.src):
            fixed.add(u)
        else:
            below.append(u)
    return _Cut(below, read, there | fixed).nodes() if below else []


class _Cut:
    """The minimal cut between dear nodes and those that are `read`; what is `there` is no part of the graph. `room` is
    what more may flow, from gate to gate."""

    def __init__(self, below: Sequence[UOp], read: dict[UOp, None], there: set[UOp]) -> None:
        self.below, self.read = below, read
        self.room: dict[Gate, dict[Gate, int]] = {}
        for u in below:
            self._add((u, False), (u, True), _INFINITE if u.op in _VIEWS else product(u.shape) * u.dtype.itemsize)
            for s in u.src if u.op in _CHEAP else ():
                if s not in there:
                    self._add((s, True), (u, False), _INFINITE)

    def _add(self, a: Gate, b: Gate, room: int) -> None:
        self.room.setdefault(a, {})[b] = room
        self.room.setdefault(b, {}).setdefault(a, 0)

    def nodes(self) -> list[UOp]:
        """The nodes of the cut, sources first."""
        for u in self.below:
            if u.op not in _CHEAP:
                while self._push((u, False)):
                    pass
        reach: set[Gate] = {(u, True) for u in self.below if u in self.read}
        rest = deque(reach)
        while rest:
            b = rest.popleft()
            for a in self.room[b]:
                if a not in reach and self.room[a][b] > 0:
                    reach.add(a)
                    rest.append(a)
        return [u for u in self.below if (u, True) in reach and (u, False) not in reach and self._is_fed(u)]

    def _is_fed(self, u: UOp) -> bool:
        """True if something flows through a node: else it is computed of memory alone."""
        return self.room[u, True].get((u, False), 0) > 0

    def _push(self, start: Gate) -> bool:
        """Let as much as there is room for flow from one gate to a node that is read; whether there was some."""
        back: dict[Gate, Gate | None] = {start: None}
        rest = deque([start])
        while rest:
            a = rest.popleft()
            if a[1] and a[0] in self.read:
                way = [a]
                while (before := back[way[-1]]) is not None:
                    way.append(before)
                steps = list(zip(way[1:], way))
                most = min([self.room[x][y] for x, y in steps])
                for x, y in steps:
                    self.room[x][y] -= most
                    self.room[y][x] += most
                return True
            for b, room in self.room[a].items():
                if room > 0 and b not in back:
                    back[b] = a
                    rest.append(b)
        return False
