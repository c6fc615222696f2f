"""The values that a kernel graph's stores write, in float64 with bounds, at all points of its loops or at some.

The graph is the scheduler's, before any opt: the code generator and the driver have no part in this.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from anneal.backend import numpy_dtype
from anneal.errors import CompilerError
from anneal.inspect.checking.bounds import EXACT, Array, Bounded, apply, exactly
from anneal.inspect.checking.reductions import TermFacts, argsort, joined, part_of, reduced
from anneal.schedule import dead_side
from anneal.uop import ALU, Op, UOp, reduce_identity, toposort
from anneal.uop.sizes import evaluator

_LANES = 1 << 16  # elements of an array at once
_DRAWN = 1 << 19  # elements of arithmetic for the bounds of one store
_MOST_WIDE = 1 << 22  # elements of memory that is made wide as a whole


class StoredPoints(NamedTuple):
    """The result of one store at some points: the places in its memory, the values, and a mask of those read."""

    store: UOp
    places: Array
    value: Bounded
    live: Array


class _Frame:
    """Values of nodes where some ranges have values: an axis for points, and one for each reduce range."""

    def __init__(self, ranges: dict[UOp, Array], memo: dict[UOp, Bounded]) -> None:
        self.ranges, self.memo = ranges, memo

    def with_range(self, r: UOp, values: Array) -> _Frame:
        bit = 1 << r.arg[0]
        kept = {u: x for u, x in self.memo.items() if not u.ranges & bit}
        return _Frame({**self.ranges, r: values}, kept)


class KernelValues:
    """A kernel over its memory: `memory` are flat arrays by slot, as they are before the launch."""

    def __init__(self, sink: UOp, memory: Sequence[Array], values: Mapping[str, int]) -> None:
        self.sink, self.values = sink, dict(values)
        self.memory = memory
        self._known: dict[int, Bounded] = {}  # memory that is small, by slot
        self._axes: dict[UOp, int] = {}  # of reduce ranges
        self._longest: dict[UOp, int] = {}  # the largest extent of a range whose extent memory says
        self.reads: list[tuple[UOp, Array, Bounded]] | None = None  # loads that are noted

    def points(self, store: UOp) -> tuple[list[UOp], list[int], int]:
        """The loop ranges of a store, their extents, and the elements that one point of them makes work for."""
        order = _below(store)
        loops, extents, work = self._loops(order)
        for u in order:
            if u.op is Op.REDUCE:
                inside = {r for r in _below(u.src[0]) if r.op is Op.RANGE and r.arg[1] == "reduce"} | set(u.src[1:])
                work = max(work, math.prod([self._extent(r) for r in inside]))
        return loops, extents, work

    def _loops(self, order: Sequence[UOp]) -> tuple[list[UOp], list[int], int]:
        loops = sorted({u for u in order if u.op is Op.RANGE and u.arg[1] != "reduce"}, key=lambda r: int(r.arg[0]))
        return loops, [self._extent(r) for r in loops], 1

    def _pieces(self, chosen: Array, work: int) -> Iterator[Array]:
        step = max(1, _LANES // work)
        for i in range(0, chosen.size, step):
            yield chosen[i : i + step]

    def _frame(self, loops: Sequence[UOp], extents: Sequence[int], chosen: Array) -> _Frame:
        """The points with these numbers, an axis for each reduce range behind the first."""
        ones = (1,) * len(self._axes)
        digits = np.unravel_index(chosen, tuple(extents)) if loops else ()
        return _Frame({r: d.astype(np.int32).reshape(-1, *ones) for r, d in zip(loops, digits, strict=True)}, {})

    def stored(
        self, store: UOp, budget: int, seed: int = 0, only: Array | None = None
    ) -> Iterator[tuple[StoredPoints, bool]]:
        """The values that `store` writes, in pieces, and True if they are all of it. Points are drawn if all are more
        work than `budget` elements. `only` are points by number.
        """
        loops, extents, work = self.points(store)
        total = math.prod(extents)
        if only is not None:
            drawn, complete = only, False
        else:
            drawn = chosen(total, max(64, budget // work), seed)
            complete = drawn.size == total
        for piece in self._pieces(drawn, work):
            yield self.at(store, loops, extents, piece), complete

    def at(self, store: UOp, loops: Sequence[UOp], extents: Sequence[int], chosen: Array) -> StoredPoints:
        """The values that `store` writes at points of its loops, by number."""
        reduces = sorted(
            {u for u in _below(store) if u.op is Op.RANGE and u.arg[1] == "reduce"}, key=lambda r: int(r.arg[0])
        )
        self._axes = {r: 1 + n for n, r in enumerate(reduces)}
        frame = self._frame(loops, extents, chosen)
        count = chosen.size
        index = self._points(self._value(store.src[1], frame).value, count)
        value = self._value(store.src[2], frame)
        live = np.ones(count, np.bool_)
        if len(store.src) > 3:
            live &= self._points(self._value(store.src[3], frame).value, count)
        dead = dead_side(store.src[2])
        if dead is not None:
            chosen_first = self._points(self._value(store.src[2].src[0], frame).value, count)
            live &= ~chosen_first if dead == 1 else chosen_first
        found = self._points(value.value, count)
        error = EXACT if value.exact else self._points(np.broadcast_to(value.error, value.value.shape), count)
        return StoredPoints(store, index, Bounded(found, error), live)

    def point_of(self, store: UOp, element: int) -> int | None:
        """The number of a point of the loops at which `store` writes this element."""
        loops, extents, _ = self.points(store)
        self._axes = {}
        total = math.prod(extents)
        for chosen in self._pieces(np.arange(total), 1):
            frame = self._frame(loops, extents, chosen)
            index = self._points(self._value(store.src[1], frame).value, chosen.size)
            hits = np.flatnonzero(index == element)
            if hits.size:
                return int(chosen[hits[0]])
        return None

    def sides(self, a: UOp, b: UOp, points: int = 4096) -> tuple[Bounded, Bounded]:
        """The values of two scalars of a kernel graph at points of all the ranges that they stand under."""
        ranges = sorted({u for u in toposort((a, b)) if u.op is Op.RANGE}, key=lambda r: int(r.arg[0]))
        extents = [max(1, self._extent(r)) for r in ranges]
        self._axes = {}
        drawn = chosen(math.prod(extents), points, 0)
        frame = self._frame(ranges, extents, drawn)
        return self._value(a, frame), self._value(b, frame)

    def lives(self, store: UOp) -> Iterator[tuple[Array, Array]]:
        """The places in memory that `store` writes, and a mask of those that are read, in pieces."""
        loops, extents, _ = self.points(store)
        dead = dead_side(store.src[2])
        condition = None if dead is None else store.src[2].src[0]
        total = math.prod(extents)
        self._axes = {}
        for chosen in self._pieces(np.arange(total), 1):
            frame = self._frame(loops, extents, chosen)
            live = np.ones(chosen.size, np.bool_)
            if condition is not None:
                first = np.broadcast_to(self._value(condition, frame).value, (chosen.size,))
                live = ~first if dead == 1 else first
            yield self._points(self._value(store.src[1], frame).value, chosen.size), live

    def _points(self, a: Array, count: int) -> Array:
        return np.broadcast_to(a.reshape(a.shape[0] if a.ndim else 1, -1)[:, 0] if a.ndim else a.reshape(1), (count,))

    def _extent(self, r: UOp) -> int:
        e = r.src[0]
        if e.is_const:
            return int(e.arg)
        if not any(u.op is Op.LOAD for u in _below(e)):
            return int(evaluator((e,))(self.values)[0])
        loops, extents, _ = self._loops(_below(e))
        if r not in self._longest:
            longest = 0
            for chosen in self._pieces(np.arange(math.prod(extents)), 1):
                found = self._value(e, self._frame(loops, extents, chosen)).value
                longest = max(longest, int(found.max()) if found.size else 0)
            self._longest[r] = longest
        return self._longest[r]

    # -- one frame ---------------------------------------------------------------------------------------------------

    def _value(self, root: UOp, frame: _Frame) -> Bounded:
        memo = frame.memo
        for u in _down_to_reduces(root, memo):
            if u.op is Op.REDUCE:
                memo[u] = self._reduce(u, frame)
            else:
                memo[u] = self._one(u, frame)
        return memo[root]

    def _one(self, u: UOp, frame: _Frame) -> Bounded:
        ndim = 1 + len(self._axes)
        if u.op is Op.RANGE:
            return Bounded(frame.ranges[u], EXACT)
        if u.op is Op.CONST:
            d = np.dtype(np.float64) if u.dtype.is_float else numpy_dtype(u.dtype)
            return Bounded(np.array(u.arg, d).reshape((1,) * ndim), EXACT)
        if u.op is Op.VARIABLE:
            return Bounded(np.array(self.values[u.arg[0]], np.int32).reshape((1,) * ndim), EXACT)
        if u.op is Op.LOAD:
            return self._load(u, [frame.memo[s] for s in u.src[1:]])
        if u.op is Op.ARGSORT:
            order = argsort(self._read(u.src[0].arg[0], ...))
            at = frame.memo[u.src[1]].value
            return Bounded(order.value[at], EXACT if order.exact else order.whole()[at])
        if u.op in ALU:
            return apply(u.op, u.dtype, [frame.memo[s] for s in u.src], [s.dtype for s in u.src])
        raise CompilerError(f"check: {u.op.name} does not belong in a kernel graph", node=repr(u))

    def _load(self, u: UOp, src: list[Bounded]) -> Bounded:
        memory = self.memory[u.src[0].arg[0]]
        index = src[0]
        gate = src[1] if len(src) > 1 else None
        at = index.value
        if gate is not None:
            at, open_ = np.broadcast_arrays(at, gate.value)
        else:
            open_ = np.ones((), np.bool_)
        inside = (at >= 0) & (at < memory.size)
        if not memory.size:
            return Bounded(np.zeros(at.shape, exactly(memory).value.dtype), EXACT)
        found = self._read(u.src[0].arg[0], np.where(inside & open_, at, 0))
        value = np.where(inside & open_, found.value, np.zeros((), found.value.dtype))
        error = EXACT if found.exact else np.where(inside & open_, found.whole(), 0.0)
        astray = ~inside & open_
        if astray.any():
            error = np.where(astray, np.inf, error)
        if not index.exact:
            error = np.where(index.error > 0, np.inf, error)
        if gate is not None and not gate.exact:
            error = np.where(gate.error > 0, np.inf, error)
        if self.reads is not None:
            self.reads.append((u, np.where(open_, at, -1), Bounded(value, error)))
        return Bounded(value, error)

    def _read(self, slot: int, at: Any) -> Bounded:
        """Elements of memory. Of large memory often few are asked for: it is not made wide as a whole."""
        memory = self.memory[slot]
        if memory.size > _MOST_WIDE:
            return exactly(memory[at])
        if slot not in self._known:
            self._known[slot] = exactly(memory)
        return self._known[slot].moved(lambda a: a[at])

    def _reduce(self, u: UOp, frame: _Frame) -> Bounded:
        total: TermFacts | None = None
        for inner in self._blocks(u.src[1:], frame):
            valid = None
            for r in u.src[1:]:
                if not r.src[0].is_const:
                    extent = self._value(r.src[0], inner)
                    here = inner.ranges[r] < extent.value
                    valid = here if valid is None else valid & here
            x = self._value(u.src[0], inner)
            axes = tuple([self._axes[r] for r in u.src[1:]])
            # a source need not depend on every range that is summed over, nor be as long
            sizes = [inner.ranges[r].shape[self._axes[r]] for r in u.src[1:]]
            shape = list(np.broadcast_shapes(x.value.shape, valid.shape if valid is not None else ()))
            for a, n in zip(axes, sizes, strict=True):
                shape[a] = n
            sizes_now = tuple(shape)
            whole = x.moved(partial(np.broadcast_to, shape=sizes_now))
            part = part_of(u.arg, u.dtype, whole, axes, None if valid is None else np.broadcast_to(valid, shape))
            total = part if total is None else joined(u.arg, u.dtype, total, part)
        if total is None:
            d = np.dtype(np.float64) if u.dtype.is_float else numpy_dtype(u.dtype)
            return Bounded(np.full((1,) * (1 + len(self._axes)), reduce_identity(u.arg, u.dtype), d), EXACT)
        return reduced(u.arg, u.dtype, total)

    def _blocks(self, ranges: Sequence[UOp], frame: _Frame) -> Iterator[_Frame]:
        """Frames in which `ranges` take all their values, a block of the first one's at a time."""
        extents = []
        for r in ranges:
            e = r.src[0]
            if e.is_const or not any(x.op is Op.LOAD for x in _below(e)):
                extents.append(self._extent(r))
            else:
                found = self._value(e, frame).value
                extents.append(int(found.max()) if found.size else 0)
        if 0 in extents:
            return
        ndim = 1 + len(self._axes)
        for n, r in enumerate(ranges[1:], 1):
            frame = frame.with_range(r, _along(np.arange(extents[n]), self._axes[r], ndim))
        first = ranges[0]
        others = math.prod(extents[1:])
        step = max(1, 4 * _LANES // max(1, others))
        for begin in range(0, extents[0], step):
            block = np.arange(begin, min(begin + step, extents[0]))
            yield frame.with_range(first, _along(block, self._axes[first], ndim))


def _along(values: Array, axis: int, ndim: int) -> Array:
    return values.astype(np.int32).reshape([-1 if i == axis else 1 for i in range(ndim)])


def _below(root: UOp) -> list[UOp]:
    return toposort((root,))


def _down_to_reduces(root: UOp, memo: Mapping[UOp, Bounded]) -> list[UOp]:
    """The nodes to compute before `root`, sources first; nodes below a REDUCE are computed with it."""
    order: list[UOp] = []
    seen: set[UOp] = set()
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        u, left = stack.pop()
        if left:
            order.append(u)
        elif u not in seen and u not in memo and u.op is not Op.PARAM:
            seen.add(u)
            stack.append((u, True))
            if u.op is Op.RANGE or u.op is Op.REDUCE:
                continue
            stack.extend([(s, False) for s in reversed(u.src)])
    return order


def error_bounds(
    sink: UOp, memory: Sequence[Array], outputs: int, values: Mapping[str, int]
) -> list[tuple[Array, Array | None]]:
    """The bounds of what a kernel writes: how far elements may be, on a right device, from their values in float64.

    Args:
        sink: the kernel's graph. memory: flat arrays by slot, as they are before the launch; the first `outputs` are
            written. values: those of the Variables.

    Returns:
        For each output the bound of each element, and the places of those that are read, None for all. An element
        that is not written, or that has no finite bound, has 0. Of a large kernel some elements are drawn; the others
        get the largest bound of these.
    """
    kernel = KernelValues(sink, memory, values)
    found = []
    for slot in range(outputs):
        errors, whole = np.zeros(memory[slot].size), True
        drawn, read = np.zeros((2, errors.size), np.bool_)
        for store in [s for s in sink.src if s.src[0].arg[0] == slot]:
            for piece, complete in kernel.stored(store, _DRAWN):
                inside = (piece.places >= 0) & (piece.places < errors.size)
                places, error = piece.places[inside], piece.value.whole()[inside]
                errors[places] = np.where(np.isfinite(error), error, 0.0)
                drawn[places], read[places] = True, piece.live[inside]
                whole = whole and complete
        if not whole and drawn.any():
            errors[~drawn] = errors.max()
        found.append((errors, None if (drawn == read).all() else np.flatnonzero(read)))
    return found


def chosen(total: int, most: int, seed: int) -> Array:
    """The points by number, in order: all, or the first, the last, and a random one of each of equal parts between
    them.
    """
    if total <= most:
        return np.arange(total)
    edge = min(16, most // 4)
    parts = most - 2 * edge
    bounds = edge + np.arange(parts + 1) * (total - 2 * edge) // parts
    drawn = np.random.default_rng(seed).integers(bounds[:-1], bounds[1:])
    return np.concatenate([np.arange(edge), drawn, np.arange(total - edge, total)])
