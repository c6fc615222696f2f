"""Vertical fusion: a kernel takes in the kernels that make its inputs, where it reads these only in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from anneal.rewrite import HERE
from anneal.schedule.cost_model import COST, CostModel
from anneal.schedule.fusion.facts import LEAVES, REORDER, base, goes_back, pieces_of, row_length
from anneal.schedule.fusion.groups import FusionGroup, Groups, bound, depends, in_order, is_copy, level_above
from anneal.schedule.fusion.materialisation import Materialised, Reason
from anneal.uop import ALU, Nodes, Op, Src, UOp, toposort
from anneal.uop.sizes import count

_WORTH_KEEPING = 12  # the price of a function of a product that is stored in its place


class Refusal(NamedTuple):
    """The reason why the kernel of `reader` is not fused with that of `producer`, whose result it reads."""

    producer: Src
    reader: Src
    reason: str


def refusals() -> AbstractContextManager[list[Refusal]]:
    """A block that records each refusal to join two kernels, in order: of a pair tried twice the last one counts."""
    return HERE.listening("refusals")


class Joining(Groups):
    """Vertical fusion: each group takes in the groups that make its inputs, if that is right."""

    def run(self) -> list[FusionGroup]:
        for g in self.groups:
            if g.concatenates:
                self.take_pieces(g)
            self.join_producers(g)
        # Then again, and other readers of a producer may be moved behind the join; the largest groups first: they gain
        # most.
        self.patient = True
        for g in sorted(self.groups, key=lambda g: -g.size):
            self.join_producers(g)
        left = [g for g in self.groups if g not in self.gone]
        for g in left:
            if g.product and self.cost_model.keeps_functions:
                self.keep_functions(g)
        return left

    def join_producers(self, g: FusionGroup) -> None:
        again = g not in self.gone
        while again:
            again = False
            for i in list(g.inputs):
                p = self.owner.get(i)
                if p is None or p is g:
                    continue
                if p.opaque or g.opaque:
                    self.refused(p, g, partial(alone, p, g))
                elif self.joined(p, g):
                    again = True  # a joined group has other inputs, so it may join more
                    break

    def joined(self, p: FusionGroup, g: FusionGroup) -> bool:
        """Let g take in p, the producer of some of its inputs, if that is right."""
        costs = self.cost_model
        row = _common_row(p, g, costs)
        if not isinstance(row, int):
            return self.refused(p, g, row)
        if p.nodes + g.nodes > costs.kernel_steps:
            return self.refused(p, g, lambda: _NODES.format(p.nodes + g.nodes, costs.kernel_steps))
        # The joined kernel stands after all that it reads and before all that read it.
        level = level_above(self.owner, g.inputs, p.level, p)
        others = [r for root in p.roots for r in self.readers.get(root, ()) if r is not g]
        before = {r for r in others if r.level <= level}
        if before and (not self.patient or depends((g,), before, self.owner)):
            return self.refused(p, g, lambda: _BETWEEN)
        size = max(p.size, g.size)
        moves = _moved(g.roots, p, self.materialised, size, row, True)
        if moves is not None:
            return self.refused(p, g, lambda: moved(moves))
        if not self.takes(g, p):
            return self.refused(p, g, lambda: _BUFFERS.format(costs.member_buffers))
        g.level, g.size, g.row = level, size, row
        for r in others:
            self.put_behind(r, level)
        return True

    def refused(self, p: FusionGroup, g: FusionGroup, reason: Callable[[], str]) -> bool:
        """False, as g does not take in p; the reason goes to `refusals`, and is put in words for them alone."""
        if HERE.refusals is not None:
            HERE.refusals.append(Refusal(tuple(p.roots), tuple(g.roots), reason()))
        return False

    def needed_beside(self, p: FusionGroup, g: FusionGroup) -> list[UOp]:
        """The roots of p that are results, or have readers other than g."""
        return [r for r in p.roots if r in self.outputs or any(o is not g for o in self.readers.get(r, ()))]

    def takes(self, g: FusionGroup, p: FusionGroup) -> bool:
        """Let g take in p, unless that were too many buffers."""
        kept = self.needed_beside(p, g)
        mine = set(p.roots)
        inputs = {k: None for k in (*p.inputs, *g.inputs) if k not in mine}
        limit = self.cost_model.max_buffers if g.concatenates else self.cost_model.member_buffers
        if self.cost_model.bindings([*inputs, *kept, *g.roots]) > limit:
            return False
        for root in p.roots:
            self.readers.get(root, {}).pop(g, None)
            if root in kept:
                self.owner[root] = g
            else:
                del self.owner[root], self.materialised[root]
        self.reads_instead(g, p, p.inputs)
        g.roots, g.inputs = kept + g.roots, inputs
        g.reduces, g.product = in_order({*g.reduces, *p.reduces}), g.product or p.product
        g.vector, g.nodes = g.vector or p.vector, g.nodes + p.nodes
        self.gone.add(p)
        return True

    def take_pieces(self, g: FusionGroup) -> None:
        """Let a concatenation take in the producers of its pieces that have no other reader."""
        kinds = set()
        for pad in pieces_of(g.roots[0], self.materialised):
            p = self.owner.get(_origin(pad.src[0], self.materialised))
            if p is None or p.opaque or len(p.roots) > 1 or p.roots[0] in self.outputs:
                continue
            if list(self.readers[p.roots[0]]) != [g] or p.roots[0].size != pad.src[0].size:
                continue
            if not p.is_light:  # workgroups of one size compute products or rows of one kind
                kinds.add((p.size, tuple(sorted(map(count, p.reduces)))))
                if len(kinds) > 1:
                    kinds.pop()
                    continue
            self.takes(g, p)

    def take_placed(self) -> list[FusionGroup]:
        """Let kernels that compute what is written into a part of memory, or the pieces of a concatenation, store it
        there, too; the groups then.
        """
        for g in self.groups:
            u = g.roots[0]
            # kernels that read the memory's old values run before, and may need what the producer makes
            if g.concatenates or (
                u.op is Op.UPDATE and is_copy(u.src[0]) and len(self.readers.get(base(u.src[0].src[0]), ())) <= 1
            ):
                producers = dict.fromkeys(p for i in g.inputs if (p := self.owner.get(i)) and not is_copy(i))
                any(self.places(p, g, producers) for p in producers)
        return [g for g in self.groups if g not in self.gone]

    def places(self, p: FusionGroup, g: FusionGroup, producers: Iterable[FusionGroup]) -> bool:
        """Let p take in g, which writes what it makes of p's results into a part of memory, if that is right."""
        u = g.roots[0]
        parts = [u.src[1]] if u.op is Op.UPDATE else [pad.src[0] for pad in pieces_of(u, self.materialised)]
        in_pieces = g.in_pieces
        if u.op is Op.UPDATE and _origin(parts[0], self.materialised) in p.in_pieces:
            in_pieces = frozenset((u,))
        elif (
            p.opaque
            or p.members
            or g.reduces
            or any(x.size != p.size for x in parts)
            or not isinstance(_common_row(p, replace(g, size=p.size), self.cost_model), int)
            or _moved([x for x in parts if x not in p.roots], p, self.materialised, p.size, 0, False)
        ):
            return False
        mine = {*p.roots}
        if not mine.isdisjoint(toposort(u.src[2:], lambda x: x in self.materialised and x not in mine)):
            return False
        if depends([q for q in producers if q is not p], {p}, self.owner):
            return False
        kept = self.needed_beside(p, g)
        inputs = {**p.inputs, **{i: None for i in g.inputs if i not in p.roots}}
        if bound(self.cost_model, inputs, [*kept, u]) > self.cost_model.member_buffers:
            return False
        level = level_above(self.owner, inputs, p.level)
        for r in p.roots:
            readers = self.readers.get(r, {})
            readers.pop(g, None)
            for reader in readers:
                self.put_behind(reader, level)
            if r not in kept:
                del self.owner[r], self.materialised[r]
        self.reads_instead(p, g, inputs)
        p.roots, p.inputs, p.level, p.nodes = [*kept, u], inputs, level, p.nodes + g.nodes
        p.in_pieces |= in_pieces
        self.owner[u] = p
        self.gone.add(g)
        return True

    def keep_functions(self, g: FusionGroup) -> None:
        """Store a function of a product in the product's place, where all readers compute the same one at some cost: an
        activation's slope, which the backward product then multiplies with."""
        for n, h in enumerate(g.roots):
            readers = self.readers.get(h)
            if not readers or h in self.outputs or g.concatenates:
                continue
            if not any(_is_function(c, h) for c in self.consumers[h]):
                continue
            made = (_function_of(r, h, self.materialised) for r in readers)
            f = next(made)
            if f is None or f in self.materialised or any(other is not f for other in made):
                continue
            g.roots[n] = f
            del self.materialised[h], self.owner[h], self.readers[h]
            self.materialised[f], self.owner[f], self.readers[f] = Reason.FUNCTION, g, readers
            for r in readers:
                r.inputs = {f if i is h else i: None for i in r.inputs}


def _is_function(u: UOp, h: UOp) -> bool:
    """True if `u` may be an elementwise function of `h` and constants: where no node is, no reader makes one."""
    return u.op in ALU and all(s is h or (not s.shape and (s.is_const or s.op in ALU)) for s in u.src)


def _function_of(r: FusionGroup, h: UOp, materialised: Materialised) -> UOp | None:
    """The one elementwise function of `h` alone through which r reads it, if it is worth more than a read."""
    of_h: dict[UOp, bool | None] = {h: True}  # made of h alone; of something else; None: of constants
    price = {h: 0}
    frontier: set[UOp] = set()
    mine = set(r.roots)
    for u in toposort(r.roots, until=lambda u: u.op in LEAVES or (u in materialised and u not in mine)):
        if not u.src:
            of_h[u] = None if u.is_const else False
            continue
        sources = [of_h.get(s, False) for s in u.src]
        if u.op in ALU and True in sources and False not in sources and u.size == h.size:
            of_h[u] = True
            price[u] = COST[u.op] + sum({s: price.get(s, 0) for s in u.src}.values())
        else:
            of_h[u] = False if any(x is not None for x in sources) or u.op not in ALU else None
            frontier.update(s for s in u.src if of_h.get(s))
    if len(frontier) != 1 or any(of_h.get(root) for root in r.roots):
        return None
    f = frontier.pop()
    return f if f is not h and price[f] >= _WORTH_KEEPING and f.dtype.itemsize <= h.dtype.itemsize else None


def _origin(u: UOp, materialised: Materialised) -> UOp:
    """The value of which `u` is a reordered view."""
    while u not in materialised and u.op in REORDER:
        u = u.src[0]
    return u


def _common_row(p: FusionGroup, g: FusionGroup, costs: CostModel) -> int | Callable[[], str]:
    """The length of the rows that p and g have in common, 0 if they are of one shape; why not, if they cannot join."""
    if not p.computes_rows:
        if g.reduces:
            return lambda: (
                f"the reader is {_kind(g, costs)}, and each of its results needs several results of the producer, "
                f"{_kind(p, costs)}: they are stored first"
            )
        if g.size == p.size:
            return 0
        return lambda: (
            f"the producer is {_kind(p, costs)} with {p.size} results, and the reader computes {g.size} "
            "values: only elementwise work of the same size joins it"
        )
    if not g.computes_rows:
        return lambda: (
            f"the reader is {_kind(g, costs)}, which uses each value several times: fused, the producer would be "
            "computed anew for each use"
        )
    if p.row and g.row and p.row != g.row:
        return lambda: (
            f"the producer reduces rows of {p.row} and the reader rows of {g.row}: a kernel has rows of one length"
        )
    row = p.row or g.row
    if p.size == g.size:
        return row
    if not row:
        return lambda: f"the producer computes {p.size} values and the reader {g.size}: a kernel computes one size"
    small, large = min(p.size, g.size), max(p.size, g.size)
    lesser = p if p.size == small else g
    if not lesser.row and small * row == large:
        return row
    return lambda: (
        f"the producer computes {p.size} values and the reader {g.size}, with rows of {row}: they join with equal "
        "sizes, or with one value for each row"
    )


def _moved(
    roots: Nodes, p: FusionGroup, materialised: Materialised, size: int, row: int, may_reduce: bool
) -> UOp | None:
    """The first node below `roots` that reads p's values elsewhere than where they are made: at its own index, or as
    rows or numbers of a row. None where there is no such node."""
    targets = set(p.roots)
    made = set(targets)  # nodes that depend on p

    def inside(u: UOp) -> Src:
        return tuple([s for s in u.src[::-1] if s not in targets and s not in materialised and s.op not in LEAVES])

    for u in toposort(roots[::-1], sources=inside):
        for s in u.src:
            if s in made:
                made.add(u)
                if not _keeps_place(u, s, size, row) or (u.op is Op.REDUCE_AXIS and not may_reduce):
                    return u
    return None


def _keeps_place(u: UOp, s: UOp, size: int, row: int) -> bool:
    """True if u reads s in memory order: element by element, or the elements of a row for its number and back."""
    op = u.op
    if op in ALU or op is Op.RESHAPE or op is Op.CONTIGUOUS:
        return u.shape == s.shape or u.size == s.size
    if op is Op.PERMUTE:
        return [a for a in u.arg if s.shape[a] != 1] == [a for a, n in enumerate(s.shape) if n != 1]
    if op is Op.REDUCE_AXIS:
        return row > 0 and s.size == size and row_length(u) == row
    return op is Op.EXPAND and row > 0 and (u.shape == s.shape or u.size == size and goes_back(u, row))


# ---------------------------------------------------------------------------------------------------------------------
# The obstacles between two kernels, in words: each names what holds for this producer and this reader, and what would
# have to be otherwise. `joining.py` decides; nothing here is called except for a report (`refusals`).


_ALONE = {
    Op.ARGSORT: "a sort",
    Op.SCAN: "a running reduction",
    Op.SCATTER_ADD: "a sum of rows where an index says",
    Op.SEGMENT_SUM: "a sum of the rows that an index selects",
    Op.UPDATE: "a write into a part of memory",
    Op.CONTIGUOUS: "a copy of memory that is overwritten later",
}
_NODES = "together they compute {} nodes, and one kernel at most {}"
_BUFFERS = "together they bind more than {} buffers, the most that this device gives a kernel"
_BETWEEN = "another kernel reads the producer's result and makes something that the reader needs: it runs between them"
_MOVED = {
    Op.PERMUTE: "in another order of axes",
    Op.EXPAND: "repeated along an axis",
    Op.REDUCE_AXIS: "reduced along another axis than its rows",
    Op.PAD: "with padding around it",
    Op.SHRINK: "in part",
    Op.FLIP: "backwards",
}


def alone(p: FusionGroup, g: FusionGroup) -> str:
    """The refusal of a node that is always a kernel of its own."""
    who, group = ("the producer", p) if p.opaque else ("the reader", g)
    root = group.roots[0]
    if group.chained is not None:
        return f"{who} computes scores for itself, tile by tile, and multiplies them on: always a kernel of its own"
    what = (
        "a concatenation, which is stored piece by piece" if group.concatenates else _ALONE.get(root.op, root.op.name)
    )
    return f"{who} is {what}: always a kernel of its own"


def moved(by: UOp) -> str:
    """The reader reads the result elsewhere than where it is made.

    Args:
        by: the node that does.
    """
    how = _MOVED.get(by.op, f"through {by.op.name.lower()}")
    return (
        f"the reader takes the result {how}: a reader joins only if it reads each element, or each row, where it is "
        "computed"
    )


def _kind(g: FusionGroup, cost_model: CostModel) -> str:
    if g.vector:
        return "a product of a matrix and a vector"
    if g.product:
        return "a matrix product or a convolution"
    if g.row:
        return f"a reduction of rows of {g.row}"
    return f"a reduction over columns or over rows longer than {cost_model.row_fusion}"
