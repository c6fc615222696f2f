"""Groups: kernels to be, as the materialised nodes that each stores, and the facts by which they are joined."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from anneal.schedule.cost_model import CostModel
from anneal.schedule.fusion.facts import COPY, WHOLE, Consumers, cone, is_vector_product, pieces_of, row_length
from anneal.schedule.fusion.materialisation import Materialised
from anneal.uop import Nodes, Op, Src, UOp
from anneal.uop.sizes import count, most

_SHORT = 64  # elements of a reduce that one thread takes in


@dataclass(eq=False)
class FusionGroup:
    """A kernel to be: the nodes it stores, in structural order."""

    roots: list[UOp]
    inputs: dict[UOp, None] = field(default_factory=dict)  # leaves and roots of other groups that it reads
    reduces: tuple[tuple[Any, ...], ...] = ()  # shapes of the values it reduces; empty if elementwise
    opaque: bool = False  # ARGSORT and the like, never merged
    size: int = 0  # values that it computes, or reduces row by row
    row: int = 0  # length of a row, if all it reduces are rows of `size` values in memory order
    product: bool = False  # what it reduces is larger than all it reads, as in a matrix product
    nodes: int = 0  # of the graph that one kernel computes
    level: int = 0
    vector: bool = False  # it multiplies a matrix with a vector
    in_pieces: frozenset[UOp] = frozenset()  # roots that are stored piece by piece
    members: tuple[FusionGroup, ...] = ()  # the members, if each has its own ranges
    again: bool = False  # it computes a second time what another group has computed
    chained: tuple[frozenset[UOp], int] | None = None  # the scores that it computes for itself, and their axis
    second: frozenset[UOp] = frozenset()  # inputs that are read as they were computed then

    @property
    def sums_columns(self) -> bool:
        """True if it reduces values it reads, rather than products of them, along other axes than rows."""
        return bool(self.reduces) and not self.row and not self.product

    @property
    def concatenates(self) -> bool:
        """True if it stores in pieces alone, each over ranges of its own."""
        return all(r in self.in_pieces for r in self.roots)

    @property
    def pieces(self) -> tuple[int, ...] | None:
        """The numbers of the roots that are stored in pieces, if there are any."""
        return tuple([n for n, r in enumerate(self.roots) if r in self.in_pieces]) or None

    @property
    def is_light(self) -> bool:
        """True if a thread alone may compute each value."""
        return not self.row and all(count(s) <= _SHORT * self.size for s in self.reduces)

    @property
    def computes_rows(self) -> bool:
        """True if no reduce, or one along rows only, stands between its inputs and its values."""
        return not self.reduces or self.row > 0


Owner = dict[UOp, FusionGroup]  # the group that makes each materialised node


def group_of(root: UOp, materialised: Materialised, cost_model: CostModel) -> FusionGroup:
    concatenates = bool(pieces_of(root, materialised))
    # a copy is alone, so that it can be left out where the update may overwrite what it copies
    opaque = concatenates or is_copy(root) or root.op in (*WHOLE, Op.SEGMENT_SUM, Op.UPDATE)
    inside, inputs, nodes = cone(root, materialised)
    in_pieces = frozenset((root,) if concatenates else ())
    g = FusionGroup([root], inputs, opaque=opaque, in_pieces=in_pieces, nodes=nodes)
    reduces = [u for u in inside if u.op is Op.REDUCE_AXIS or u.op is Op.SEGMENT_SUM]
    g.reduces = in_order({r.src[0].shape for r in reduces})
    g.size = root.size if root.op is not Op.UPDATE else root.src[1].size
    if reduces:
        rows = {(r.src[0].size, row_length(r)) for r in reduces}
        body = max(size for size, _ in rows)
        g.product = not any(i.size * 2 > body for i in g.inputs)
        g.vector = any(r.src[0].size == body and is_vector_product(r) for r in reduces)
        size, row = rows.pop()
        whole = root.size == size or root.size * row == size
        if not rows and 0 < row <= cost_model.row_fusion and whole and not g.product:
            g.size, g.row = size, row
    return g


def is_copy(root: UOp) -> bool:
    """True if `root` is a copy of the memory that an update writes into."""
    return root.op is Op.CONTIGUOUS and isinstance(root.tag, tuple) and root.tag[0] == COPY


def bound(cost_model: CostModel, inputs: Iterable[UOp], roots: Nodes) -> int:
    """The bindings of a kernel; an update and the memory that it changes are one."""
    changed = {r.src[0] for r in roots if r.op is Op.UPDATE}
    return cost_model.bindings([*[i for i in inputs if i not in changed], *roots])


def in_order(shapes: set[tuple[Any, ...]]) -> tuple[tuple[Any, ...], ...]:
    return tuple(sorted(shapes, key=lambda shape: [(most(n), str(n)) for n in shape]))


class Groups:
    """The groups of a program as they are joined: who makes a value (`owner`), and who reads it (`readers`)."""

    def __init__(
        self,
        groups: list[FusionGroup],
        owner: Owner,
        materialised: Materialised,
        outputs: Src,
        cost_model: CostModel,
        consumers: Consumers,
    ) -> None:
        self.consumers = consumers
        self.groups, self.owner, self.materialised, self.cost_model = groups, owner, materialised, cost_model
        self.outputs = set(outputs)
        self.patient = False  # whether other readers of a producer may be moved behind the join
        self.gone: set[FusionGroup] = set()
        self.readers: dict[UOp, dict[FusionGroup, None]] = {}
        for g in groups:
            for i in g.inputs:
                self.readers.setdefault(i, {})[g] = None

    def reads_instead(self, h: FusionGroup, g: FusionGroup, inputs: Iterable[UOp]) -> None:
        """Note that h, instead of g, reads `inputs`."""
        for i in inputs:
            self.readers[i].pop(g, None)
            self.readers[i][h] = None

    def put_behind(self, g: FusionGroup, level: int) -> None:
        """Raise g, and with it all that depends on it, above `level`."""
        stack = [(g, level)]
        while stack:
            g, level = stack.pop()
            if g.level <= level:
                g.level = level + 1
                stack += [(r, g.level) for root in g.roots for r in self.readers.get(root, ())]


def depends(groups: Iterable[FusionGroup], on: Collection[FusionGroup], owner: Owner) -> bool:
    """True if one of the groups depends on one of `on`, found in one walk."""
    if not on:
        return False
    lowest = min([g.level for g in on])
    seen = set()
    stack = [*groups]
    while stack:
        for i in stack.pop().inputs:
            p = owner.get(i)
            if p in on:
                return True
            if p is not None and p.level > lowest and p not in seen:
                seen.add(p)
                stack.append(p)
    return False


def extent(g: FusionGroup) -> int:
    """The number of elements that a group walks over."""
    return max((g.roots[0].size, *[count(s) for s in g.reduces]))


def as_late_as_possible(groups: list[FusionGroup], owner: Owner) -> None:
    """Set each `level` to the latest one that does not move a group's readers; `groups` are sorted."""
    level = dict.fromkeys(groups, max((g.level for g in groups), default=0))
    for g in reversed(groups):
        g.level = level[g]
        for i in g.inputs:
            if (p := owner.get(i)) is not None:
                level[p] = min(level[p], g.level - 1)


def level_above(owner: Owner, inputs: Iterable[UOp], least: int, but: FusionGroup | None = None) -> int:
    """The lowest level, from `least` on, above those of the groups that make `inputs`."""
    return max([least, *[q.level + 1 for i in inputs if (q := owner.get(i)) not in (None, but)]])


def by_level(groups: list[FusionGroup], owner: Owner) -> list[FusionGroup]:
    """Groups sorted so that producers come first, with `level` = longest path from an input."""
    out = []
    state = set()
    for g0 in groups:
        stack = [(g0, False)]
        while stack:
            g, ready = stack.pop()
            if ready:
                first = -1 if is_copy(g.roots[0]) else 0  # it is left out where the update may overwrite the memory
                g.level = level_above(owner, g.inputs, first, g)
                out.append(g)
            elif g not in state:
                state.add(g)
                stack.append((g, True))
                stack += [(p, False) for i in g.inputs if (p := owner.get(i)) is not None and p not in state]
    return out


# ---------------------------------------------------------------------------------------------------------------------
# Horizontal fusion: kernels that do not need each other share a launch, over the same ranges or each with its own.


_NEAR = 4  # levels that a sum over columns may wait for another; four times that if it reads few elements:
_SMALL = 1 << 20
_LARGE = 1 << 22  # elements of results from which on a launch of its own costs nothing, and memory is needed later
_TINY = 1 << 14  # elements of results up to which a launch is what takes the time
_PRODUCTS = 4  # products with one vector in one kernel
_OPEN = 64  # groups with room for others, the last that came: one that joins none of these stays alone


def siblings(at: Groups, groups: list[FusionGroup], overwriting: set[FusionGroup]) -> list[FusionGroup]:
    """`groups` with those fused that are over the same ranges, but for those of `overwriting`.

    Groups of one level are fused if they read the same large value. Sums over columns are fused if they are a few
    levels from each other, since each alone leaves most of the device idle: they have little in common, so that each
    becomes a member of the kernel, unless it reads the same large value as another one.
    """
    gone = set()
    waiting = _Waiting(at.cost_model)
    for g in sorted(groups, key=lambda g: g.level):
        if g in overwriting or (g.opaque and not (g.vector and g.roots[0].op is Op.UPDATE)):
            continue
        for h in waiting.for_(g):
            if beside(at, g, h):
                gone.add(g)
                waiting.add(h, g)
                break
        else:
            waiting.add(g, g)
    return [g for g in groups if g not in gone]


class _Waiting:
    """Groups that wait for others to join them, by what the others must have in common with them.

    A program may have thousands of groups over the same ranges, as the graphs of many losses have that are read
    together. Each group looks only at those that read what it reads, or sum columns as it does, and of these at the
    last that came.
    """

    def __init__(self, cost_model: CostModel) -> None:
        self._cost_model = cost_model
        self._by: dict[Any, dict[FusionGroup, None]] = {}
        self._come: dict[FusionGroup, int] = {}  # the order in which they came

    def for_(self, g: FusionGroup) -> list[FusionGroup]:
        """The groups that g may join, in the order in which they came."""
        size, ranges = extent(g), _ranges(g)
        near = _NEAR if size > _SMALL else 4 * _NEAR
        keys: list[Any] = [(ranges, i) for i in g.inputs if g.vector or i.size * 2 > size]
        if g.sums_columns:
            keys.append((ranges, None))
        found: dict[FusionGroup, None] = {}
        for key in keys:
            known = self._by.get(key, {})
            for h in list(known):
                if abs(g.level - h.level) > near or self._room(h, h) <= 0:
                    del known[h]  # for good: what comes later is farther away
                elif self._room(h, g) >= 0:
                    found[h] = None
        return sorted(found, key=self._come.__getitem__)

    def add(self, h: FusionGroup, g: FusionGroup) -> None:
        """Let `h`, which is `g` or has taken it in, wait where `g` would."""
        self._come.setdefault(h, len(self._come))
        ranges = _ranges(g)
        for key in (*g.inputs, None) if h.sums_columns else g.inputs:
            known = self._by.setdefault((ranges, key), {})
            known[h] = None
            if len(known) > _OPEN:
                del known[next(iter(known))]

    def _room(self, h: FusionGroup, g: FusionGroup) -> int:
        """The number of bindings that a kernel of both groups would leave free."""
        memory = [*{**h.inputs, **g.inputs}, *dict.fromkeys([*h.roots, *g.roots])]
        return self._cost_model.member_buffers - self._cost_model.bindings(memory)


def _ranges(g: FusionGroup) -> tuple[object, ...]:
    return g.roots[0].dtype, g.size if g.vector else g.roots[0].shape, g.reduces


def beside(at: Groups, g: FusionGroup, h: FusionGroup) -> bool:
    """Let h take in g, which is over the same ranges, if that is right."""
    level = max(g.level, h.level)
    readers = [r for root in (*g.roots, *h.roots) for r in at.readers.get(root, ()) if r.level <= level]
    if g.level != h.level or h.members or not _shares(g, h):
        if not (g.sums_columns and h.sums_columns):
            return False
        if g in readers or h in readers or depends((g, h), {*readers}, at.owner):
            return False
    body = next((p for p in h.members or (h,) if _shares(g, p)), None)
    if body is None:
        h.members = (*(h.members or (replace(h),)), g)
    elif body is not h:
        body.roots, body.inputs = body.roots + g.roots, {**body.inputs, **g.inputs}
    # a kernel stores its roots member by member: a root that joins one of the first members is not the last one
    h.roots = [r for p in h.members for r in p.roots] if h.members else h.roots + g.roots
    h.inputs, h.level = {**h.inputs, **g.inputs}, level
    for root in g.roots:
        at.owner[root] = h
    at.reads_instead(h, g, g.inputs)
    for r in readers:
        at.put_behind(r, level)
    return True


def _shares(g: FusionGroup, h: FusionGroup) -> bool:
    """True if g and h read a large value in common, or multiply matrices with one vector."""
    if g.vector and h.vector and len(g.roots) + len(h.roots) <= _PRODUCTS:
        return any(i in h.inputs for i in g.inputs)
    return any(i in h.inputs and i.size * 2 > extent(g) for i in g.inputs)


def shared_launches(
    groups: list[FusionGroup], owner: Owner, overwriting: set[FusionGroup], cost_model: CostModel
) -> list[FusionGroup]:
    """`groups` with the elementwise ones of a level as members of one kernel, as far as the buffer limit allows; not
    those of `overwriting`.

    A tiny one waits for the last such kernel that its readers leave it, rather than be a launch of its own.
    """
    out = []
    open_: dict[int, FusionGroup] = {}
    needed = {i: g.level for g in sorted(groups, key=lambda g: -g.level) for i in g.inputs}
    end = max((g.level for g in groups), default=0) + 1
    waits = {}  # levels that a group can wait
    for g in groups:
        size = sum([(r.src[1] if r.op is Op.UPDATE else r).size for r in g.roots])
        written = g.roots[0].op is Op.UPDATE  # a part of memory: an elementwise store like others
        if g.reduces or g in overwriting or (g.opaque and not g.concatenates and not written) or size > _LARGE:
            out.append(g)
        else:
            waits[g] = min([needed.get(r, end) for r in g.roots]) - 1 - g.level if size <= _TINY else 0
    for g in sorted(waits, key=waits.__getitem__):
        for level in range(g.level + waits[g], g.level - 1, -1):
            h = open_.get(level)
            inputs = {**h.inputs, **g.inputs} if h is not None else g.inputs
            if h is not None and bound(cost_model, inputs, [*h.roots, *g.roots]) <= cost_model.max_buffers:
                break
        else:
            h = open_[g.level] = FusionGroup([], level=g.level)
            inputs = g.inputs
            out.append(h)
        h.members, h.inputs, h.roots = (*h.members, g), inputs, h.roots + g.roots
        for root in g.roots:
            owner[root] = h
    return out
