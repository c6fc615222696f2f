"""Range propagation: one cut of the tensor graph becomes one kernel of stores over ranges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache
from typing import Any

from anneal.errors import CompilerError
from anneal.schedule.fusion import WHOLE, base, pieces_of, placed
from anneal.schedule.masks import nested, where
from anneal.schedule.records import Kernel, Schedule, members_of, name_of, renumbered
from anneal.schedule.shared import WITH_PLANS
from anneal.uop import ALU, MOVEMENT, Nodes, Numbers, Op, Src, UOp, arena, const, dtypes, of_op, ranged, toposort
from anneal.uop.sizes import Size, count, divided_size, is_symbolic, most, product, size_node, symbolic_arg, widest

from anneal.rewrite import (  # isort: skip
    HERE, Sum, answered, both, linear_index, over, rebuild, reshaped_index, simplify, source_index, unflatten,
)  # fmt: skip

Index = Src
Context = tuple[UOp, Index, UOp | None]

_I32 = dtypes.int32


def run(s: Schedule) -> Schedule:
    return replace(s, kernels=[_kernel_of(c.graph) for c in s.cuts])


_MAX_KERNELS = 4096


def kernel_graph(piece: UOp) -> UOp:
    """The kernel that a piece of the tensor graph (`Cut.graph`) becomes: a SINK of STOREs over RANGEs."""
    with arena().untracked():
        return renumber(nested(simplify_indices(split_ranges(rangeify(piece)))))


@lru_cache(_MAX_KERNELS)
def _kernel_of(piece: UOp) -> Kernel:
    return _named(kernel_graph(piece))  # pieces that differ only in the shapes of their leaves become one kernel


@lru_cache(_MAX_KERNELS)
def _named(sink: UOp) -> Kernel:
    return Kernel(sink, name_of(sink))


WITH_PLANS.extend((_kernel_of.cache_clear, _named.cache_clear))


class _Ranges:
    """Hands out range ids: siblings with equal extents at the same depth share them, nested ranges never do."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.shared: dict[tuple[int, int, Any], UOp] = {}

    def loop(self, extent: Size) -> UOp:
        return size_node(0) if extent == 1 else self.new(size_node(extent), "loop")

    def reduce(self, extent: UOp, open_ranges: int, position: int) -> UOp:
        if extent.is_const and extent.arg == 1:
            return size_node(0)
        if not extent.is_const and not is_symbolic(extent):
            return self.new(extent, "reduce")
        key = (open_ranges, position, extent.arg if extent.is_const else extent)
        found = self.shared.get(key)
        if found is None:
            found = self.shared[key] = self.new(extent, "reduce")
        return found

    def new(self, extent: UOp, kind: str) -> UOp:
        return ranged(extent, (next(self.numbers), kind))


def rangeify(cut: UOp) -> UOp:
    """`SINK(root, ...)` over PARAM(slot, shape) leaves -> `SINK(STORE, ...)` over RANGEs.

    Movement ops dissolve into index arithmetic on the way down from the outputs; a REDUCE_AXIS opens new ranges; leaves
    become loads. The work is iterative and memoised on (node, index, predicate), so a value read twice at the same
    place is one node, and a value read at two places is computed twice.

    Root i is stored to slot i; leaves have the slots that follow. All roots have the same elements in the same order,
    or one for each row of them: those are stored over the outer ranges alone. A SINK of SINKs is a horizontally
    fused kernel, whose members have ranges of their own; the arg of a SINK has the numbers of its roots that are stored
    in pieces.
    """
    ranges = _Ranges()
    stores = []
    slot = 0
    for part in cut.src if cut.src[0].op is Op.SINK else (cut,):
        stores += _stores(part.src, part.arg or (), slot, ranges)
        slot += len(part.src)
    return UOp(Op.SINK, cut.dtype, tuple(stores))


def _stores(roots: Src, in_pieces: Collection[int], slot: int, ranges: _Ranges) -> list[UOp]:
    """The stores of a member, the first to `slot`.

    `in_pieces` are the numbers of the roots that are concatenations, or updates with one. Where all are, each piece has
    ranges of its own; else the pieces have the elements of the other roots.
    """
    others = [_stored(r) for n, r in enumerate(roots) if n not in in_pieces]
    pieces = [pad.src[0] for n in in_pieces for pad in pieces_of(_stored(roots[n]))]
    shape = max((u.shape for u in (*others, *pieces)), key=count) if others else ()
    whole = tuple([ranges.loop(s) for s in shape])
    lower = _Lower(ranges)
    indices = {}

    def index_of(piece: UOp) -> Index:
        if others:
            return whole if piece.shape == shape else _same_place(whole, shape, piece.shape)
        if piece not in indices:
            indices[piece] = tuple([ranges.loop(s) for s in piece.shape])
        return indices[piece]

    def stored(n: int, root: UOp) -> Iterator[tuple[Index, UOp]]:
        made = _stored(root)
        for pad in pieces_of(made) if n in in_pieces else ():
            index = index_of(pad.src[0])
            yield placed(made, pad, index), lower.value(pad.src[0], index)
        if n not in in_pieces:
            index = index_of(made)
            if root.op is Op.ARGSORT and int(root.src[0].size) == 1:
                yield index, size_node(0)
            elif root.op in WHOLE:
                at = index if root.op is Op.SCATTER_ADD else (linear_index(index, root.shape),)
                yield index, UOp(root.op, root.dtype, (*map(lower.flat, root.src), *at), root.arg)
            else:
                yield index, lower.value(made, index if made.shape else ())

    stores = []
    for n, root in enumerate(roots):
        param = UOp(Op.PARAM, root.dtype, (), (slot + n, (int(root.size),)))
        for place, value in stored(n, root):
            # an update: the elements of its part in their places; the others are in that memory already
            at, inside = _place(root, place, lower) if root.op is Op.UPDATE else (place, ())
            stores.append(UOp(Op.STORE, root.dtype, (param, linear_index(at, widest(root.shape)), value, *inside)))
    return stores


def _stored(root: UOp) -> UOp:
    """The value that a root stores: of an update its part."""
    return root.src[1] if root.op is Op.UPDATE else root


def _place(update: UOp, index: Index, lower: _Lower) -> tuple[Index, Index]:
    """The index in the whole of an element of the part that an update replaces, and the predicate that it is none
    outside, if it may be."""
    starts = iter(update.src[2:])
    place = []
    inside: Index = ()
    for i, b, n, whole in zip(index, update.arg, update.src[1].shape, update.shape, strict=True):
        begin = b
        if b is None:  # what is looked up stays inside, whatever it says
            last = whole - n
            begin = Op.MAX(lower.value(next(starts), ()), size_node(0))
            begin = Op.MIN(begin, last if isinstance(last, UOp) else size_node(last))
        elif b.__class__ is int and b < 0:
            begin = lower.value(next(starts), ())
            at = i + begin
            within = (at >= 0) & (at < whole)
            inside = (inside[0] & within if inside else within,)
        place.append(i + begin if begin.__class__ is not int or begin else i)
    return tuple(place), inside


def _same_place(whole: Index, shape: tuple[Any, ...], other: tuple[Any, ...]) -> Index:
    """The index in an array of shape `other` of the element, or of the row, that `whole` is or is part of."""
    row = divided_size(product(shape), product(other)) if count(other) else 1
    assert row is not None, (shape, other)
    if row == 1:
        return reshaped_index(whole, shape, other)
    lead = _leading(shape, other)
    if lead is not None:
        return reshaped_index(whole[:lead], shape[:lead], other)
    return unflatten(linear_index(whole, shape) // size_node(row), other)


def _leading(shape: tuple[Any, ...], other: tuple[Any, ...]) -> int | None:
    """The number of leading axes of `shape` that hold the elements of `other`, if its rows are whole axes of symbolic
    sizes.
    """
    if not symbolic_arg(shape):
        return None
    wanted = product(other)
    return next((n for n in range(len(shape) + 1) if product(shape[:n]) == wanted), None)


def indexed() -> AbstractContextManager[list[dict[Context, UOp]]]:
    """Note, for each kernel made within the block, the node that every tensor-graph node became at each index."""
    return HERE.listening("indexed")


class _Lower:
    def __init__(self, ranges: _Ranges) -> None:
        self.ranges = ranges
        self.memo: dict[Context, UOp] = {}
        if HERE.indexed is not None:
            HERE.indexed.append(self.memo)

    def flat(self, leaf: UOp) -> UOp:
        leaf = base(leaf, (Op.RESHAPE,))
        return UOp(Op.PARAM, leaf.dtype, (), (leaf.arg[0], (int(leaf.size),)))

    def load(self, leaf: UOp, index: Index, predicate: UOp | None) -> UOp:
        src = (self.flat(leaf), linear_index(index, widest(leaf.shape)))
        return UOp(Op.LOAD, leaf.dtype, src if predicate is None else (*src, predicate))

    def value(self, root: UOp, index: Index) -> UOp:
        return answered((root, index, None), self.made, self.memo)

    def made(self, context: Context) -> Generator[Context, Any, UOp]:
        """The value of a node at an index."""
        node, index, predicate = context
        op = node.op
        if op is Op.CONST or op is Op.VARIABLE:
            return node
        if op is Op.PARAM or op is Op.RESHAPE and node.src[0].op is Op.PARAM and not symbolic_arg(node.src[0].shape):
            return self.load(node, index, predicate)
        if op is Op.IOTA:
            return index[0]
        if op in ALU:
            values = []
            for s in reversed(node.src):
                values.append((yield s, index if s.shape else (), predicate))
            src = tuple(values[::-1])
            if op is Op.WHERE:
                return where(src[0], src[1], src[2], node.tag)
            return node.replace(src=src) if op is not Op.BITCAST else UOp(op, node.dtype, src)
        if op in MOVEMENT:
            below, inside = source_index(node, index)
            full = both(predicate, inside)
            value = yield node.src[0], below, full
            return _or_zero(value, inside, full)
        if op is Op.GATHER:
            at = yield node.src[1], index, predicate
            size = node.src[0].shape[node.arg]
            inside = None
            if at.vmin is None or at.vmin < 0:
                inside = size_node(-1) < at
            if at.vmax is None or size.__class__ is not int or at.vmax >= size:
                inside = both(inside, at < size_node(size))
            full = both(predicate, inside)
            place = at if size != 1 else size_node(0)
            value = yield node.src[0], (*index[: node.arg], place, *index[node.arg + 1 :]), full
            return _or_zero(value, None if full is predicate else full, full)
        if op is Op.REDUCE_AXIS:
            open_ranges = predicate.ranges if predicate is not None else 0
            for i in index:
                open_ranges |= i.ranges
            inner = list(index)
            for n, a in enumerate(node.arg[1]):
                inner[a] = self.ranges.reduce(size_node(node.src[0].shape[a]), open_ranges, n)
            value = yield node.src[0], tuple(inner), predicate
            ranges = tuple([inner[a] for a in node.arg[1] if inner[a].op is Op.RANGE])
            return _reduce(node.arg[0], value, ranges, node.tag) if ranges else value
        if op is Op.SEGMENT_SUM:
            source, order, starts = node.src
            first = self.load(starts, (index[0],), predicate)
            r = self.ranges.reduce(self.load(starts, (index[0] + 1,), predicate) - first, 0, 0)
            value = yield source, (self.load(order, (first + r,), predicate), *index[1:]), predicate
            return _reduce(Op.ADD, value, (r,), node.tag)
        raise CompilerError(f"{op.name} cannot stand in a kernel", stage="rangeify", node=node)


def _or_zero(value: UOp, inside: UOp | None, full: UOp | None) -> UOp:
    """`value`, and 0 outside of what is read; a load under the whole predicate is zero there already."""
    if inside is None or (inside.is_const and inside.arg):
        return value
    if value.op is Op.LOAD and len(value.src) == 3 and value.src[2] is full:
        return value
    return inside.where(value, 0)


def _reduce(kind: Op, value: UOp, ranges: Src, tag: Any) -> UOp:
    """REDUCE over the ranges the value depends on; the others only repeat it."""
    used = tuple([r for r in ranges if value.varies_over(r) or not is_symbolic(r.src[0])])
    idle = product([r.src[0] if not r.src[0].is_const else r.src[0].arg for r in ranges if r not in used])
    if used:
        value = UOp(Op.REDUCE, value.dtype, (value, *used), kind, tag)
    if isinstance(idle, UOp) and kind is not Op.ADD and (kind is Op.MUL or not idle.vmin):
        # nothing may be left of it, or its power: summed up after all
        value = UOp(Op.REDUCE, value.dtype, (value, *[r for r in ranges if r not in used]), kind)
    elif idle != 1:
        if kind is Op.ADD:
            value = value * (size_node(idle).cast(value.dtype) if isinstance(idle, UOp) else const(value.dtype, idle))
        elif kind is Op.MUL:
            power, result = value, const(value.dtype, 1)
            while idle:  # square and multiply
                if idle & 1:
                    result = power * result
                power, idle = power * power, idle >> 1
            value = result
    return value


# -- splitting ranges -------------------------------------------------------------------------------------------------


def split_ranges(sink: UOp) -> UOp:
    """Split a range that occurs only in quotients and remainders: r of `r // 32` and `r % 32` becomes `r1 * 32 + r2`.

    Afterwards most indices are affine in their ranges. Before: `a[r // 32, r % 32]`; after: `a[r1, r2]`.
    """
    for _ in range(4):
        cuts: dict[UOp, set[int]] = {}
        order = toposort(sink)
        for u in order:
            if u.op is Op.IDIV or u.op is Op.MOD:
                x, c = u.src
                if not c.is_const or c.arg <= 0:
                    continue
                if x.op is Op.RANGE:
                    cuts.setdefault(x, set()).add(c.arg)
                elif u.op is Op.MOD and x.op is Op.IDIV and x.src[0].op is Op.RANGE and x.src[1].is_const:
                    cuts.setdefault(x.src[0], set()).update((x.src[1].arg, x.src[1].arg * c.arg))
        mapping = {}
        fresh = itertools.count(1 + max((u.arg[0] for u in order if u.op is Op.RANGE), default=-1))
        for r, divisors in cuts.items():
            if not r.src[0].is_const:
                continue
            extent = r.src[0].arg
            chain = [*sorted(d for d in divisors if 1 < d < extent), extent]
            if len(chain) == 1 or any(b % a for a, b in zip(chain, chain[1:])):
                continue
            parts = [ranged(high // low, (next(fresh), r.arg[1])) for low, high in zip([1, *chain], chain)]
            mapping[r] = parts[::-1]
        if not mapping:
            return sink
        sink = _substitute_ranges(order, mapping)
    return sink


def _substitute_ranges(order: Nodes, mapping: dict[UOp, list[UOp]]) -> UOp:
    def visit(u: UOp, src: Src) -> UOp:
        parts = mapping.get(u)
        if parts is not None:
            return linear_index(parts, [p.src[0].arg for p in parts])
        if u.op is Op.REDUCE:
            ranges = []
            for r, again in zip(u.src[1:], src[1:], strict=True):
                ranges.extend(mapping.get(r) or [again])
            return u.replace(src=(src[0], *ranges))
        return over(u, src)

    return rebuild(order[-1], visit, order=order)


def renumber(sink: UOp) -> UOp:
    """Give loop ranges the ids 0..n-1 in output order and reduce ranges those that follow, in first-use order."""
    order = toposort(sink)
    position = {id(u): n for n, u in enumerate(order)}
    ranges = of_op(order, Op.RANGE)
    loops = [r for r in ranges if r.arg[1] == "loop"]
    rank = {}
    for n, part in enumerate(members_of(sink)):
        strides = _strides(max(part.src, key=lambda st: st.src[0].arg[1][0]).src[1])
        for r in loops:
            if any(s.varies_over(r) for s in part.src):
                rank[r] = (n, -strides.get(r, 0))
    loops.sort(key=lambda r: (*rank.get(r, (0, 0)), position[id(r)]))
    number = {r: n for n, r in enumerate([*loops, *[r for r in ranges if r.arg[1] != "loop"]])}
    return sink if all(r.arg[0] == n for r, n in number.items()) else renumbered(order, {}, number)


def _strides(position: UOp) -> Numbers:
    """Coefficient of each range in an affine position; the largest it can be, where it is symbolic."""
    out: Numbers = {}
    stack = [(position, 1)]
    while stack:
        u, factor = stack.pop()
        for t, k in Sum.of(u).terms.items():
            if t.op is Op.RANGE:
                out[t] = out.get(t, 0) + factor * k
            elif t.op is Op.MUL and is_symbolic(t.src[1]):
                stack.append((t.src[0], factor * k * most(t.src[1])))
    return out


def simplify_indices(sink: UOp) -> UOp:
    """Run the index algebra over every load, store and predicate that still holds a division, modulo or comparison."""
    return rebuild(sink, _simplified)


def _simplified(u: UOp, src: Src) -> UOp:
    if u.op is Op.LOAD or u.op is Op.STORE:
        src = (src[0], simplify(src[1]), *src[2:])
        predicate = 2 if u.op is Op.LOAD else 3
        if len(src) > predicate:
            condition = simplify(src[predicate])
            src = src[:predicate] if condition.is_const and condition.arg else (*src[:predicate], condition)
        return UOp(u.op, u.dtype, src, u.arg)
    if u.op is Op.WHERE and not u.src[0].is_const:
        condition, value, zero = simplify(src[0]), src[1], src[2]
        if (
            value.op is Op.LOAD
            and len(value.src) == 3
            and value.src[2] is condition
            and zero.is_const
            and zero.arg == 0
            and math.copysign(1, zero.arg) > 0
        ):
            return value
        return where(condition, value, zero, u.tag)
    return over(u, src)
