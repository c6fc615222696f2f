"""Facts about a kernel, which the rules decide by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anneal.codegen.opts import Axis
from anneal.codegen.ranges import form, mask_of, predicate_of
from anneal.codegen.target import per_word
from anneal.frozen import frozen
from anneal.schedule import fusible_reduces
from anneal.uop import Nodes, Op, Src, UOp, toposort
from anneal.uop.sizes import content

ENOUGH_GROUPS = 128  # workgroups that keep a large GPU busy
ENOUGH_THREADS = 65536


Numbered = list[tuple[int, Axis]]  # axes with their numbers


def loops_of(axes: Sequence[Axis]) -> Numbered:
    return [(i, a) for i, a in enumerate(axes) if a.is_loop]


def row_of(axes: Sequence[Axis], reduces: Nodes) -> tuple[int, Axis, set[UOp]] | None:
    """The innermost loop into which all reduces can be fused, with its number, and their ranges."""
    for number, axis in reversed(loops_of(axes)):
        joined = fusible_reduces(reduces, axis.range) if reduces and axis.count > 1 else set()
        if joined and all(joined.issuperset(u.src[1:]) for u in reduces):
            return number, axis, joined
    return None


@frozen
class Facts:
    """A kernel with coalesced loops: its axes, elements stored, reduces, loads, stores and comparisons of indices."""

    axes: list[Axis]
    outputs: int
    reduces: list[UOp]
    loads: list[UOp]
    stores: Src
    nodes: int
    comparisons: list[UOp]

    def number(self, r: UOp) -> int:
        return next(i for i, a in enumerate(self.axes) if a.range is r)

    @property
    def loops(self) -> Numbered:
        return loops_of(self.axes)

    @property
    def packed(self) -> Src:
        """Stores of elements of which several make a word: whole vectors of them need no atomics."""
        return tuple([u for u in self.stores if per_word(u.dtype) > 1])

    def lanes(self, ranges: Iterable[UOp], accesses: Iterable[UOp] = ()) -> int:
        """The number of neighbours along `ranges`, which count the same elements, that each of `accesses` (all, if none
        are given) takes as one vector: 4, 2 or 1. Neighbours whose loops differ are none.
        """
        ranges = tuple(ranges)
        extent = content(e.arg if (e := ranges[0].src[0]).is_const else e)
        bits = mask_of(ranges)
        wide = 1 if any(r.src[0].ranges & bits for u in self.reduces for r in u.src[1:]) else 4
        for u in accesses or (*self.loads, *self.stores):
            while wide > 1 and (extent % wide or not _whole(u, ranges, bits, wide)):
                wide //= 2
        return wide


def _whole(u: UOp, ranges: Src, bits: int, wide: int) -> bool:
    """True if an access along `ranges` takes whole aligned vectors, or does not depend on them."""
    index, predicate = u.src[1], predicate_of(u)
    if not (index.ranges & bits or predicate and predicate[0].ranges & bits):
        return True
    if u.dtype.bits not in (8, 16, 32) or wide % per_word(u.dtype):
        return False
    if predicate and _along(predicate[0], ranges, bits, wide)[0] != 0:
        return False
    terms, constant = form(index)
    moved = 0
    for term, factor in terms.items():
        step, first = _along(term, ranges, bits, wide)
        if (step, first, factor) == (1, 0, 1):
            moved += 1
        elif step != 0 or factor % wide:
            return False
    return moved == 1 and not constant % wide


def _along(u: UOp, ranges: Src, bits: int, wide: int) -> tuple[int | None, int | None]:
    """The step of `u` between the `wide` neighbours of an aligned vector, 0 or 1 (None: neither), and the remainder by
    `wide` of the first neighbour's value, if that is known.

    `x // 64` stays and `x % 64` goes on where x does, since no vector crosses a multiple of 64; `x < 768` stays.
    """
    if not u.ranges & bits:
        return 0, None
    found: dict[UOp, tuple[int | None, int | None]] = {}
    for n in toposort(u):
        steps = [found[s] for s in n.src]
        if n in ranges:
            found[n] = (1, 0)
        elif n.op is Op.CONST:
            found[n] = (0, int(n.arg) % wide)
        elif not n.ranges & bits or all(step == 0 for step, _ in steps):
            found[n] = (0, None)
        elif n.op in (Op.IDIV, Op.MOD) and steps == [(1, 0), (0, 0)] and n.src[1].op is Op.CONST:
            found[n] = (0, None) if n.op is Op.IDIV else (1, 0)
        elif n.op is Op.LT and steps in ([(1, 0), (0, 0)], [(0, wide - 1), (1, 0)]):
            found[n] = (0, None)
        else:
            found[n] = (None, None)
    return found[u]


def power_of_two(n: int) -> int:
    """The largest power of two up to `n`, or 1."""
    return 1 << max(0, n.bit_length() - 1)
