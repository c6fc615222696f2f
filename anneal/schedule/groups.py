"""Which materialised nodes are computed together: kernels as groups of nodes, before any is lowered.

One group a node at first. Then, with levels (the longest path from an input) to keep cycles out:

- a group joins the group that makes its input, if it reads that input only where it is made: elementwise work joins any
  kernel of its shape (an activation beside the product that feeds it, Adam's update behind the gradient), and what
  reduces or repeats along rows joins a kernel of the same rows (a softmax, a norm with its statistics);
- what makes a piece of a concatenation joins the kernel that stores the pieces, as one part of it;
- groups of one level with the same ranges join if they read a large value in common (a norm's two parameter gradients), and
  so do sums over columns that are near each other (gradients of biases and norms);
- elementwise groups that are left on one level share a launch, each as a part of it.

What is joined and read by nobody else is not stored any more.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from anneal.rewrite import Watch
from anneal.schedule.concat import pieces_of
from anneal.schedule.fusion import COPY, COST, LEAVES, CostModel
from anneal.schedule.rows import goes_back, is_vector_product, row_length
from anneal.uop import ALU, Op, UOp, toposort
from anneal.uop.sizes import count, most

__all__ = ["Group", "Refusal", "cone", "group_kernels", "refusals"]

_NEAR = 4  # levels that a sum over columns may wait for another; four times that if it reads few elements:
_SMALL = 1 << 20
_WORTH_KEEPING = 12  # the price of a function of a product that is stored in its place
_PRODUCTS = 4  # of a vector in one kernel
_SHORT = 64  # elements of a reduce that one thread takes in


@dataclass(eq=False)
class Group:
    """One kernel to be: the nodes it stores, in structural order."""

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
    concatenates: bool = False  # its root is stored piece by piece
    parts: tuple[Group, ...] = ()  # what it is made of, if each has ranges of its own
    again: bool = False  # it computes a second time what another group has computed
    second: frozenset[UOp] = frozenset()  # inputs that are read as they were computed then

    @property
    def sums_columns(self) -> bool:
        """Whether it reduces values it reads, rather than products of them, along other axes than rows."""
        return bool(self.reduces) and not self.row and not self.product

    @property
    def is_light(self) -> bool:
        """Whether a thread alone may compute each value."""
        return not self.row and all(count(s) <= _SHORT * self.size for s in self.reduces)

    @property
    def computes_rows(self) -> bool:
        """Whether no reduce, or one along rows only, stands between its inputs and its values."""
        return not self.reduces or self.row > 0


def group_kernels(
    order: list[UOp], real: dict[UOp, None], outputs: tuple[UOp, ...], cost_model: CostModel
) -> list[Group]:
    """The kernels that compute the nodes of `real`, producers first; nodes that none need store any more leave `real`.

    A node of no elements has no kernel: joined to others, it could be the root by which their kernel is judged.
    """
    groups: list[Group] = []
    owner: dict[UOp, Group] = {}
    for u in order:
        if u in real and u.size:
            g = owner[u] = _group_of(u, real, cost_model)
            groups.append(g)
    groups = _by_level(groups, owner)
    groups = _by_level(_Joining(groups, owner, real, outputs, cost_model).run(), owner)
    # Once more with every group as late as its readers let it be: what only has to be done by the end is in nobody's way.
    _as_late_as_possible(groups, owner)
    joining = _Joining(groups, owner, real, outputs, cost_model)
    groups = _by_level(joining.run(), owner)
    alone = _overwriting(groups, outputs)
    groups = _by_level(joining.siblings(groups, alone), owner)
    return _by_level(_shared_launches(groups, owner, alone, cost_model), owner) if cost_model.parts else groups


def _overwriting(groups: list[Group], outputs: tuple[UOp, ...]) -> set[Group]:
    """Groups of outputs that might take the place of memory which others read later (a counter): joined to nothing, they
    can wait for those."""
    wanted = set(outputs)
    last: dict[UOp, int] = {}
    for g in groups:
        last.update({i: max(g.level, last.get(i, 0)) for i in g.inputs if i.op in LEAVES})
    return {
        g
        for g in groups
        if not g.reduces
        and any(r in wanted and r.size == i.size and last.get(i, 0) > g.level for r in g.roots for i in g.inputs)
    }


def cone(root: UOp, real: Collection[UOp]) -> tuple[list[UOp], dict[UOp, None], int]:
    """Of a kernel that makes `root`: the nodes it computes, what it reads (leaves and nodes of `real`), and how many nodes these
    are, with constants."""
    inside: list[UOp] = []
    inputs: dict[UOp, None] = {}
    seen = {root}
    stack = [root]
    while stack:
        u = stack.pop()
        inside.append(u)
        for s in reversed(u.src):
            if s in seen:
                continue
            seen.add(s)
            if s in real or s.op in LEAVES:
                inputs[s] = None
            elif s.src:
                stack.append(s)
    return inside, inputs, len(seen)


def _group_of(root: UOp, real: dict[UOp, None], cost_model: CostModel) -> Group:
    concatenates = cost_model.parts and bool(pieces_of(root, real))
    opaque = concatenates or root.op in (Op.ARGSORT, Op.SEGMENT_SUM, Op.UPDATE)
    if root.op is Op.CONTIGUOUS and isinstance(root.tag, tuple) and root.tag[0] == COPY:
        opaque = True  # alone, so that it can be left out where the update may overwrite what it copies
    inside, inputs, nodes = cone(root, real)
    g = Group([root], inputs, opaque=opaque, concatenates=concatenates, nodes=nodes)
    reduces = [u for u in inside if u.op is Op.REDUCE_AXIS or u.op is Op.SEGMENT_SUM]
    g.reduces = _in_order({r.src[0].shape for r in reduces})
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


def _in_order(shapes: set[tuple[Any, ...]]) -> tuple[tuple[Any, ...], ...]:
    return tuple(sorted(shapes, key=lambda shape: [(most(n), str(n)) for n in shape]))


class Refusal(NamedTuple):
    """Why the kernel of `reader` did not take in the one of `producer`, whose result it reads."""

    producer: tuple[UOp, ...]
    reader: tuple[UOp, ...]
    reason: str


_REFUSALS = Watch[Refusal]()


def refusals() -> AbstractContextManager[list[Refusal]]:
    """Every refusal to join two kernels within the block, in order: of a pair that is tried twice the last one counts."""
    return _REFUSALS.listening()


class _Joining:
    """Groups join the producers of what they read."""

    def __init__(
        self,
        groups: list[Group],
        owner: dict[UOp, Group],
        real: dict[UOp, None],
        outputs: tuple[UOp, ...],
        cost_model: CostModel,
    ) -> None:
        self.groups, self.owner, self.real, self.cost_model = groups, owner, real, cost_model
        self.outputs = set(outputs)
        self.patient = False  # whether others who read a producer may be told to wait for the join
        self.gone: set[Group] = set()
        self.readers: dict[UOp, dict[Group, None]] = {}
        for g in groups:
            for i in g.inputs:
                self.readers.setdefault(i, {})[g] = None

    def run(self) -> list[Group]:
        for g in self.groups:
            if g.concatenates:
                self.take_pieces(g)
            self.join_producers(g)
        # Then with other readers of the producers put behind, the largest first: they gain most.
        self.patient = True
        for g in sorted(self.groups, key=lambda g: -g.size):
            self.join_producers(g)
        left = [g for g in self.groups if g not in self.gone]
        for g in left:
            if g.product and self.cost_model.keeps_functions:
                self.keep_functions(g)
        return left

    def join_producers(self, g: Group) -> None:
        again = g not in self.gone and not g.opaque
        while again:
            again = False
            for i in list(g.inputs):
                p = self.owner.get(i)
                if p is None or p is g:
                    continue
                if p.opaque:
                    self.refused(p, g, "a sort, or what moves rows of memory, is a kernel of its own")
                elif self.joined(p, g):
                    again = True
                    break

    def joined(self, p: Group, g: Group) -> bool:
        """Let g take in p, the producer of some of its inputs, if that is right."""
        row = _common_row(p, g, self.cost_model)
        if row is None:
            return self.refused(p, g, "they have neither a shape nor rows in common")
        if p.nodes + g.nodes > self.cost_model.kernel_steps:
            return self.refused(p, g, f"one kernel computes at most {self.cost_model.kernel_steps} nodes")
        # Where the joined kernel stands: after all it reads, before all who read it.
        level = max(
            [p.level, *[self.owner[i].level + 1 for i in g.inputs if i in self.owner and self.owner[i] is not p]]
        )
        others = [r for root in p.roots for r in self.readers.get(root, ()) if r is not g]
        if any(r.level <= level and not (self.patient and not _depends(g, r, self.owner)) for r in others):
            return self.refused(p, g, "another kernel reads the result, and could not run behind both")
        size = max(p.size, g.size)
        if not _in_place(g, p, self.real, size, row, self.cost_model.keeps_rows):
            return self.refused(p, g, "the result is read at other places than where it is made")
        if not self.takes(g, p):
            return self.refused(p, g, "together they bind more buffers than a kernel may")
        g.level, g.size, g.row = level, size, row
        for r in others:
            self.put_behind(r, level)
        return True

    def refused(self, p: Group, g: Group, reason: str) -> bool:
        """False: g does not take in p. Whoever asked is told why."""
        if _REFUSALS.found is not None:
            _REFUSALS.found.append(Refusal(tuple(p.roots), tuple(g.roots), reason))
        return False

    def put_behind(self, g: Group, level: int) -> None:
        """Raise g, and with it all that depends on it, above `level`."""
        stack = [(g, level)]
        while stack:
            g, level = stack.pop()
            if g.level <= level:
                g.level = level + 1
                stack += [(r, g.level) for root in g.roots for r in self.readers.get(root, ())]

    def takes(self, g: Group, p: Group) -> bool:
        """Make p part of g, unless that were too many buffers."""
        kept = [root for root in p.roots if root in self.outputs or any(r is not g for r in self.readers.get(root, ()))]
        mine = set(p.roots)
        inputs = {k: None for k in (*p.inputs, *g.inputs) if k not in mine}
        limit = self.cost_model.max_buffers if g.concatenates else self.cost_model.part_buffers
        if self.cost_model.bindings([*inputs, *kept, *g.roots]) > limit:
            return False
        for root in p.roots:
            self.readers.get(root, {}).pop(g, None)
            if root in kept:
                self.owner[root] = g
            else:
                del self.owner[root], self.real[root]
        for k in p.inputs:
            readers = self.readers[k]
            readers.pop(p, None)
            readers[g] = None
        g.roots, g.inputs = kept + g.roots, inputs
        g.reduces, g.product = _in_order({*g.reduces, *p.reduces}), g.product or p.product
        g.vector, g.nodes = g.vector or p.vector, g.nodes + p.nodes
        self.gone.add(p)
        return True

    def take_pieces(self, g: Group) -> None:
        """Let a concatenation take in what makes its pieces and is read by nobody else."""
        kinds: set[object] = set()
        for pad in pieces_of(g.roots[0], self.real):
            p = self.owner.get(_origin(pad.src[0], self.real))
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

    def keep_functions(self, g: Group) -> None:
        """Store what others make of a product's value in its place, where they all make the same of it and at some cost:
        an activation's slope, which the backward product then multiplies with."""
        for n, h in enumerate(g.roots):
            readers = self.readers.get(h)
            if not readers or h in self.outputs or g.concatenates:
                continue
            made = {_function_of(r, h, self.real) for r in readers}
            f = made.pop()
            if made or f is None or f in self.real:
                continue
            g.roots[n] = f
            del self.real[h], self.owner[h], self.readers[h]
            self.real[f], self.owner[f], self.readers[f] = None, g, readers
            for r in readers:
                r.inputs = {f if i is h else i: None for i in r.inputs}

    def siblings(self, groups: list[Group], alone: set[Group]) -> list[Group]:
        """Join groups over the same ranges, but those of `alone`: those of one level that read the same large value, and sums over columns that
        are not far from each other, since each alone leaves most of the device idle. Those have little in common: each
        becomes a part of the launch, unless it reads the same large value as another."""
        gone: set[Group] = set()
        open_: dict[tuple[object, ...], list[Group]] = {}
        for g in sorted(groups, key=lambda g: g.level):
            if g in alone or (g.opaque and not (g.vector and g.roots[0].op is Op.UPDATE)):
                continue
            key = (g.roots[0].dtype, g.size if g.vector else g.roots[0].shape, g.reduces)
            near = _NEAR if _extent(g) > _SMALL else 4 * _NEAR
            waiting = open_[key] = [h for h in open_.get(key, ()) if abs(g.level - h.level) <= near]
            for h in waiting:
                together = [*{**h.inputs, **g.inputs}, *h.roots, *g.roots]
                if self.cost_model.bindings(together) > self.cost_model.part_buffers:
                    continue
                if self.beside(g, h):
                    gone.add(g)
                    break
            else:
                waiting.append(g)
        return [g for g in groups if g not in gone]

    def beside(self, g: Group, h: Group) -> bool:
        """Let h take in g, which is over the same ranges, if that is right."""
        level = max(g.level, h.level)
        readers = [r for root in (*g.roots, *h.roots) for r in self.readers.get(root, ()) if r.level <= level]
        if g.level != h.level or h.parts or not _shares(g, h):
            if not (self.cost_model.parts and g.sums_columns and h.sums_columns):
                return False
            if any(r is g or r is h or _depends(g, r, self.owner) or _depends(h, r, self.owner) for r in readers):
                return False
        body = next((p for p in h.parts or (h,) if _shares(g, p)), None)
        if body is None:
            h.parts = (*(h.parts or (replace(h),)), g)
        elif body is not h:
            body.roots, body.inputs = body.roots + g.roots, {**body.inputs, **g.inputs}
        # a kernel stores its roots part by part: what joins one of the first parts is not the last root
        h.roots = [r for p in h.parts for r in p.roots] if h.parts else h.roots + g.roots
        h.inputs, h.level = {**h.inputs, **g.inputs}, level
        for root in g.roots:
            self.owner[root] = h
        for i in g.inputs:
            self.readers[i].pop(g, None)
            self.readers[i][h] = None
        for r in readers:
            self.put_behind(r, level)
        return True


def _shares(g: Group, h: Group) -> bool:
    """Whether g and h read a large value in common, or multiply matrices with one vector."""
    if g.vector and h.vector and len(g.roots) + len(h.roots) <= _PRODUCTS:
        return any(i in h.inputs for i in g.inputs)
    return any(i in h.inputs and i.size * 2 > _extent(g) for i in g.inputs)


def _function_of(r: Group, h: UOp, real: dict[UOp, None]) -> UOp | None:
    """The one elementwise function of `h` alone through which r reads it, if it is worth more than a read."""
    of_h: dict[UOp, bool | None] = {h: True}  # made of h alone; of something else; None: of constants
    price: dict[UOp, int] = {h: 0}
    frontier: set[UOp] = set()
    mine = set(r.roots)
    for u in toposort(r.roots, until=lambda u: u.op in LEAVES or (u in real and u not in mine)):
        if not u.src:
            of_h[u] = None if u.op is Op.CONST else False
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


def _depends(g: Group, on: Group, owner: dict[UOp, Group]) -> bool:
    """Whether what g reads is made from what `on` makes."""
    seen: set[Group] = set()
    stack = [g]
    while stack:
        for i in stack.pop().inputs:
            p = owner.get(i)
            if p is on:
                return True
            if p is not None and p.level > on.level and p not in seen:
                seen.add(p)
                stack.append(p)
    return False


def _origin(u: UOp, real: dict[UOp, None]) -> UOp:
    """What `u` shows in another order."""
    while u not in real and u.op in (Op.RESHAPE, Op.PERMUTE):
        u = u.src[0]
    return u


def _common_row(p: Group, g: Group, cost_model: CostModel) -> int | None:
    """The length of the rows that p and g have in common, 0 if they are of one shape, None if they do not go together."""
    if not p.computes_rows:
        return 0 if cost_model.join_epilogues and not g.reduces and g.size == p.size else None
    if not g.computes_rows:
        return None
    if p.row and g.row and p.row != g.row:
        return None
    row = p.row or g.row
    if p.size == g.size:
        return row
    small, large = min(p.size, g.size), max(p.size, g.size)
    lesser = p if p.size == small else g
    return row if row and not lesser.row and small * row == large else None


def _in_place(g: Group, p: Group, real: dict[UOp, None], size: int, row: int, may_reduce: bool) -> bool:
    """Whether g reads p's values only where they are made: at its own index, or as rows or numbers of a row."""
    targets = set(p.roots)
    below: dict[UOp, bool] = {}  # node of g -> whether it depends on p
    stack = list(g.roots)
    while stack:
        u = stack[-1]
        if u in below:
            stack.pop()
            continue
        todo = [s for s in u.src if s not in below and s not in targets and s not in real and s.op not in LEAVES]
        if u in real and u not in g.roots:
            todo = []
        if todo:
            stack.extend(todo)
            continue
        stack.pop()
        sources = [s for s in u.src if s in targets or below.get(s)]
        below[u] = bool(sources)
        for s in sources:
            if not _keeps_place(u, s, size, row) or (u.op is Op.REDUCE_AXIS and not may_reduce):
                return False
    return True


def _keeps_place(u: UOp, s: UOp, size: int, row: int) -> bool:
    """Whether u reads s in memory order: element by element, or the elements of a row for its number and back."""
    op = u.op
    if op in ALU or op is Op.RESHAPE or op is Op.CONTIGUOUS:
        return u.size == s.size
    if op is Op.PERMUTE:
        return [a for a in u.arg if s.shape[a] != 1] == [a for a, n in enumerate(s.shape) if n != 1]
    if not row or op not in (Op.EXPAND, Op.REDUCE_AXIS):
        return False
    if op is Op.REDUCE_AXIS:
        return s.size == size and row_length(u) == row
    return u.shape == s.shape or u.size == size and goes_back(u, row)


def _extent(g: Group) -> int:
    """The number of elements that a group walks over."""
    return max((g.roots[0].size, *[count(s) for s in g.reduces]))


def _shared_launches(
    groups: list[Group], owner: dict[UOp, Group], alone: set[Group], cost_model: CostModel
) -> list[Group]:
    """Elementwise groups of one level become the parts of one group, as far as the buffer limit allows; not those of
    `alone`."""
    out: list[Group] = []
    open_: dict[int, Group] = {}
    for g in groups:
        if g.reduces or g in alone or (g.opaque and not g.concatenates):
            out.append(g)
            continue
        h = open_.get(g.level)
        inputs = {**h.inputs, **g.inputs} if h is not None else g.inputs
        if h is None or cost_model.bindings([*inputs, *h.roots, *g.roots]) > cost_model.max_buffers:
            h = open_[g.level] = Group([], level=g.level)
            inputs = g.inputs
            out.append(h)
        h.parts, h.inputs, h.roots = (*h.parts, g), inputs, h.roots + g.roots
        for root in g.roots:
            owner[root] = h
    return out


def _as_late_as_possible(groups: list[Group], owner: dict[UOp, Group]) -> None:
    """Make `level` the last one that leaves its readers theirs; `groups` are sorted."""
    last = max((g.level for g in groups), default=0)
    level = dict.fromkeys(groups, last)
    for g in reversed(groups):
        g.level = level[g]
        for i in g.inputs:
            if (p := owner.get(i)) is not None:
                level[p] = min(level[p], g.level - 1)


def _by_level(groups: list[Group], owner: dict[UOp, Group]) -> list[Group]:
    """Groups sorted so that producers come first, with `level` = longest path from an input."""
    out: list[Group] = []
    state: set[Group] = set()
    for g0 in groups:
        stack = [(g0, False)]
        while stack:
            g, ready = stack.pop()
            if ready:
                needs = [owner[i].level for i in g.inputs if i in owner and owner[i] is not g]
                g.level = 1 + max(needs, default=-1)
                out.append(g)
                continue
            if g in state:
                continue
            state.add(g)
            stack.append((g, True))
            stack.extend((owner[i], False) for i in g.inputs if i in owner and owner[i] is not g)
    return out
