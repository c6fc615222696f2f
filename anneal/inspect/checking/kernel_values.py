"""The values that a kernel's stores write, in float64 with bounds; reductions of such values, products, sorts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from anneal.backend import MEANINGS, numpy_dtype

from anneal.inspect.checking.bounds import (  # isort: skip
    EXACT, MOST_TERMS, Array, Bounded, apply, exactly, rounded, smallest, terms, tight, unheard, unit, wide_dtype,
)  # fmt: skip
from anneal.schedule import dead_side
from anneal.uop import DType, Ints, Nodes, Op, UOp, dtypes, of_op, reduce_identity, toposort
from anneal.uop.sizes import Sizes, evaluator


class TermFacts(NamedTuple):
    """The facts that a reduction needs about its terms, or about some of them.

    `value` is of the terms, `size` the sum of their magnitudes (of a product: the product of magnitudes and bounds; of
    an extreme: its upper end), `error` the sum of their bounds (of a product: that of the magnitudes below 1; of an
    extreme: its lower end), `many` how many there are. `whole` says that all are whole numbers.
    """

    value: Array
    size: Array
    error: Array
    many: float
    whole: bool


def part_of(op: Op, dtype: DType, x: Bounded, axes: Ints, valid: Array | None = None) -> TermFacts:
    """The terms along `axes`, which stay with size 1; those where `valid` is false do not count."""
    op, value = _of_bools(op, dtype), x.value
    if dtype.kind == "bool":
        value = value.astype(np.int8)
        identity: Any = 0 if op is Op.MAX else 1
    else:
        identity = reduce_identity(op, dtype)
    error = x.whole()
    if valid is not None:
        value, error = np.where(valid, value, np.array(identity, value.dtype)), np.where(valid, error, 0.0)
    count = math.prod(value.shape[a] for a in axes)
    if op in (Op.MAX, Op.MIN):
        start = np.array(identity, value.dtype)
        best = partial(MEANINGS[op].reduce, axis=axes, keepdims=True)  # type: ignore[attr-defined]
        made = best(value, initial=start)
        upper, lower = [made if x.exact else best(value + s * error, initial=float(start)) for s in (1, -1)]
        return TermFacts(made, upper, lower, count, True)
    total: Any = partial(np.sum if op is Op.ADD else np.prod, axis=axes, keepdims=True)
    errors = EXACT if x.exact else total(error)
    if not dtype.is_float:
        if op is Op.MUL and not x.exact:  # if a factor may be another number, any product is possible
            errors = np.where(np.any(error, axis=axes, keepdims=True), np.inf, 0.0)
        return TermFacts(total(value, dtype=value.dtype), EXACT, errors, count, True)
    size = np.abs(value)
    if op is Op.MUL:
        return TermFacts(total(value), total(size + error), total(np.minimum(size, 1.0)), count, False)
    if x.mass is not None:
        size = x.mass if valid is None else np.where(valid, x.mass, 0.0)
        count *= x.many
    return TermFacts(total(value), total(size), errors, count, x.exact and bool((value == np.rint(value)).all()))


def _of_bools(op: Op, dtype: DType) -> Op:
    """The op of a reduction: a sum of bools is their maximum, a product their minimum."""
    return {Op.ADD: Op.MAX, Op.MUL: Op.MIN}.get(op, op) if dtype.kind == "bool" else op


def joined(op: Op, dtype: DType, a: TermFacts, b: TermFacts) -> TermFacts:
    """The facts about the terms of both together."""
    meant = MEANINGS[_of_bools(op, dtype)]
    errors = np.maximum if op is Op.MUL and not dtype.is_float else meant
    both = meant(a.value, b.value), np.asarray(meant(a.size, b.size)), np.asarray(errors(a.error, b.error))
    return TermFacts(*both, a.many + b.many, a.whole and b.whole)


@unheard()
def reduced(op: Op, dtype: DType, part: TermFacts) -> Bounded:
    """The reduction of these terms, with its bound."""
    value = part.value
    if dtype.kind == "bool":
        return tight(value.astype(bool), np.where((part.size > 0) != (part.error > 0), 1.0, 0.0))
    if op in (Op.MAX, Op.MIN):
        wide = value.astype(float)
        error = np.maximum(*[np.where(end == wide, 0.0, np.abs(end - wide)) for end in (part.size, part.error)])
        return tight(value, np.where(np.isnan(error) & ~np.isnan(wide), np.inf, np.nan_to_num(error, posinf=np.inf)))
    if not dtype.is_float:
        return Bounded(value.astype(numpy_dtype(dtype), copy=False), part.error)
    inner = dtypes.float32 if dtype.is_narrow else dtype  # narrow floats are summed in float32, and rounded once
    if op is Op.MUL:
        change = np.where(part.size == np.abs(value), 0.0, part.size - np.abs(value))
        error = change + part.many * unit(inner) * part.size
        # in another order the product may become 0, or infinite, on its way
        least = smallest(inner)
        small = (part.error < least) & (part.size > 0)
        error = np.where(small, np.where(part.size <= part.error * 2, part.size + least, np.inf), error)
        error = np.where(part.size > inner.largest * part.error, np.where(part.size > 0, np.inf, error), error)
    elif part.whole and not dtype.is_narrow and bool((part.size < 2.0 ** min(inner.digits, 52)).all()):
        error = EXACT
    else:
        error = part.error + terms(part.many) * unit(inner) * (part.size + part.error)
        error = error + part.many * smallest(inner)  # subnormal products may become 0
        error = np.where(part.size == 0, part.error, error)
    if dtype.is_narrow:
        error = error + unit(dtype) * (np.abs(value) + error)
    odd = ~np.isfinite(value)
    if odd.any():  # an infinite term or a nan: so is the sum
        error = np.where(odd, np.where(np.isfinite(part.error) & (part.many > 0), 0.0, np.inf), error)
    overflow = (part.size > inner.largest) & ~odd
    if overflow.any():
        sure = overflow & (np.abs(value) - error > 2 * inner.largest) & dtype.has_infinity
        value = np.where(sure, np.copysign(np.inf, value), value)
        error = np.where(overflow, np.where(sure, 0.0, np.inf), error)
    found = rounded(value, error, dtype)
    if op is Op.MUL or dtype.is_narrow:
        return found
    return found._replace(mass=part.size, many=int(min(part.many, MOST_TERMS)))


# -- products of matrices ---------------------------------------------------------------------------------------------


@unheard()
def contracted(a: Bounded, b: Bounded, axes: Ints) -> TermFacts:
    """The terms of the sum over `axes` of a * b, two floats of one shape, without the products in memory."""
    shape = a.value.shape
    (x, dx, mine), (y, dy, its) = _thin(a), _thin(b)
    rest = [i for i in range(len(shape)) if i not in axes and i in (*mine, *its)]
    times = math.prod(n for i, n in enumerate(shape) if i in axes and i not in (*mine, *its))
    kept = [n if i in rest else 1 for i, n in enumerate(shape)]

    def summed(left: Array, right: Array) -> Array:
        out = np.einsum(left, mine, right, its, rest, optimize=True) * float(times)
        return np.broadcast_to(out.reshape(kept), [1 if i in axes else n for i, n in enumerate(shape)])

    size = summed(np.abs(x), np.abs(y))
    error = EXACT
    if not a.exact:
        error = error + summed(dx, np.abs(y) if np.isfinite(size).all() else y)
    if not b.exact:
        error = error + summed(np.abs(x) + dx, dy)
    whole = a.exact and b.exact and all(bool((t == np.rint(t)).all()) for t in (x, y))
    # a product is rounded, unless it is fused with the sum
    return TermFacts(summed(x, y), size, np.abs(error), math.prod(shape[i] for i in axes) + 1.0, whole)


def _thin(x: Bounded) -> tuple[Array, Array, list[int]]:
    """The values and their bounds without the axes along which both repeat themselves; the axes that are left."""
    value, error = x.value, x.whole()
    kept = [i for i, n in enumerate(value.shape) if n == 0 or (n > 1 and (value.strides[i] or error.strides[i]))]
    index = tuple(slice(None) if i in kept else 0 for i in range(value.ndim))
    return value[index], error[index], kept


# -- sorts ------------------------------------------------------------------------------------------------------------


def sums_of_rows(u: UOp, src: list[Bounded], place: int, most: float) -> Bounded:
    """Sums of rows of the source at `place`, each of at most so many terms; the others say which rows."""
    value = src[place]
    rows: Any = lambda of: MEANINGS[u.op](u, [of if n == place else s.value for n, s in enumerate(src)], of.dtype)
    found = rows(value.value)
    if not all(s.exact for n, s in enumerate(src) if n != place):
        return Bounded(found, np.full(u.shape, np.inf))
    if not u.dtype.is_float:
        return Bounded(found, EXACT if value.exact else np.full(u.shape, np.inf))
    error = EXACT if value.exact else rows(value.whole())
    return reduced(Op.ADD, u.dtype, TermFacts(found, rows(np.abs(value.value)), error, most, False))


def scattered(u: UOp, src: list[Bounded]) -> Bounded:
    """The sums of the rows of the second source by the first."""
    index = src[0].value
    at = index[(index >= 0) & (index < u.shape[0])]
    return sums_of_rows(u, src, 1, float(np.bincount(at).max()) if at.size else 0.0)


def running(u: UOp, x: Bounded) -> Bounded:
    """The running reduction of memory."""
    op, n, after = u.arg
    scanned: Any = lambda a: MEANINGS[op].accumulate(a.reshape(-1, n, after), 1, a.dtype)  # type: ignore[attr-defined]
    value = scanned(x.value)
    if not u.dtype.is_float or op in (Op.MAX, Op.MIN):
        return Bounded(value)
    size, less = np.abs(x.value), EXACT if op is Op.ADD else scanned(np.minimum(np.abs(x.value), 1.0))
    return reduced(op, u.dtype, TermFacts(value, scanned(size), less, n, False))


def argsort(keys: Bounded) -> Bounded:
    """The stable order of keys; unknown where two keys may be equal or in the other order."""
    value = keys.value.ravel()
    order = np.argsort(value, kind="stable").astype(np.int32)
    if keys.exact or value.size < 2:
        return Bounded(order)
    error = keys.whole().ravel()[order]
    wide = value[order].astype(float)
    above = np.maximum.accumulate(wide + error)
    below = np.minimum.accumulate((wide - error)[::-1])[::-1]
    close = (above[:-1] >= below[1:]) & (error[:-1] + error[1:] > 0)
    return tight(order, np.where(np.append(close, False) | np.append(False, close), np.inf, 0.0))


_OPEN = Bounded(np.ones((), bool))  # the gate of a load that has none
_LANES = 1 << 16  # elements of an array at once
_DRAWN = 1 << 19  # elements of arithmetic for the bounds of one store
_MOST_WIDE = 1 << 22  # elements of memory that is made wide as a whole


class _Frame(NamedTuple):
    """Values of nodes where some ranges have values: an axis for points, and one for each reduce range."""

    ranges: dict[UOp, Array]
    memo: dict[UOp, Bounded]


class KernelValues:
    """A kernel over its memory: `memory` are flat arrays by slot, as they are before the launch.

    The graph is the scheduler's, before any opt: the code generator and the driver have no part in this.
    """

    def __init__(self, sink: UOp, memory: Sequence[Array], values: Sizes) -> None:
        self.sink, self.values = sink, dict(values)
        self.memory = memory
        self._known: dict[int, Bounded] = {}  # memory that is small, by slot
        self._axes: dict[UOp, int] = {}  # of reduce ranges
        self._longest: dict[UOp, int] = {}  # the largest extent of a range whose extent memory says
        self.reads: list[tuple[UOp, Array, Bounded]] | None = None  # loads that are noted

    def points(self, store: UOp) -> tuple[list[UOp], list[int], int]:
        """The loop ranges of a store, their extents, and the elements that one point of them makes work for."""
        order = toposort(store)
        loops, extents = self._loops(order)
        work = 1
        for u in order:
            if u.op is Op.REDUCE:
                inside = {r for r in toposort(u.src[0]) if r.op is Op.RANGE and r.arg[1] == "reduce"} | set(u.src[1:])
                work = max(work, math.prod(self._extent(r) for r in inside))
        return loops, extents, work

    def _loops(self, order: Nodes) -> tuple[list[UOp], list[int]]:
        loops = [r for r in _ranges(order) if r.arg[1] != "reduce"]
        return loops, [self._extent(r) for r in loops]

    def _frames(
        self, loops: Nodes, extents: Sequence[int], points: Array | None = None, work: int = 1
    ) -> Iterator[tuple[_Frame, Array]]:
        """The points with these numbers, or all, in pieces with their numbers: an axis for each reduce range behind the
        first.
        """
        points, ones = np.arange(math.prod(extents)) if points is None else points, (1,) * len(self._axes)
        step = max(1, _LANES // work)
        for i in range(0, points.size, step):
            some = points[i : i + step]
            digits = np.unravel_index(some, tuple(extents)) if loops else ()
            places = {r: d.astype(np.int32).reshape(-1, *ones) for r, d in zip(loops, digits, strict=True)}
            yield _Frame(places, {}), some

    def written(self, slot: int, budget: int, seed: int = 0) -> tuple[Array, Bounded, Array, bool]:
        """The places in output `slot` that are written, the values there, a mask of those that are read, and True if
        that is all of it. Points are drawn if all are more work than `budget` elements.
        """
        whole = True
        nothing = np.zeros(0)
        found = [(nothing.astype(int), nothing, nothing, nothing.astype(bool))]
        for store in self.stores(slot):
            _, extents, work = self.points(store)
            total = math.prod(extents)
            drawn = chosen(total, max(64, budget // work), seed)
            whole = whole and drawn.size == total
            found += self.at(store, drawn)
        index, value, error, live = map(np.concatenate, zip(*(found[1:] or found)))
        inside = (index >= 0) & (index < self.memory[slot].size)
        return index[inside], Bounded(value[inside], error[inside]), live[inside], whole

    def at(self, store: UOp, points: Array) -> Iterator[tuple[Array, Array, Array, Array]]:
        """The places, the values, their bounds and the mask of `written` at points of the loops of `store`, by number,
        in pieces.
        """
        for frame, some, places in self._places(store, points):
            here, live = partial(spread, count=some.size), self._live(store, frame, some.size)
            if len(store.src) > 3:
                live = live & here(self._value(store.src[3], frame).value)
            value = self._value(store.src[2], frame).moved(here)
            yield places, value.value, value.whole(), live

    def sides(self, a: UOp, b: UOp, points: int = 4096) -> tuple[Bounded, Bounded]:
        """The values of two scalars of a kernel graph at points of all the ranges that they stand under."""
        ranges = _ranges(toposort((a, b)))
        extents = [max(1, self._extent(r)) for r in ranges]
        self._axes = {}
        frame, _ = next(self._frames(ranges, extents, chosen(math.prod(extents), points, 0)))
        return self._value(a, frame), self._value(b, frame)

    def lives(self, store: UOp) -> Iterator[tuple[Array, Array, Array]]:
        """The numbers of all points of `store`, the places in memory that it writes, and a mask of those that are read,
        in pieces.
        """
        for frame, points, places in self._places(store):
            yield points, places, self._live(store, frame, points.size)

    def _places(self, store: UOp, points: Array | None = None) -> Iterator[tuple[_Frame, Array, Array]]:
        """The points of a store with these numbers, or all, in pieces with their numbers, and the places in memory
        that it writes there.
        """
        loops, extents, work = self.points(store)
        self._axes = {r: 1 + n for n, r in enumerate([r for r in _ranges(toposort(store)) if r.arg[1] == "reduce"])}
        for frame, some in self._frames(loops, extents, points, 1 if points is None else work):
            yield frame, some, spread(self._value(store.src[1], frame).value, some.size)

    def _live(self, store: UOp, frame: _Frame, count: int) -> Array:
        """A mask of the points whose values are read."""
        dead = dead_side(store.src[2])
        if dead is None:
            return np.ones(count, bool)
        first = spread(self._value(store.src[2].src[0], frame).value, count)
        return ~first if dead == 1 else first

    def stores(self, slot: int) -> list[UOp]:
        """The stores that write output `slot`."""
        return [s for s in self.sink.src if s.slot == slot]

    def _extent(self, r: UOp) -> int:
        e = r.src[0]
        if e.is_const:
            return int(e.arg)
        if not of_op(toposort(e), Op.LOAD):
            return int(evaluator((e,))(self.values)[0])
        if r not in self._longest:
            loops, extents = self._loops(toposort(e))
            found = [self._value(e, frame).value for frame, _ in self._frames(loops, extents)]
            self._longest[r] = max([int(x.max(initial=0)) for x in found], default=0)
        return self._longest[r]

    # -- one frame ---------------------------------------------------------------------------------------------------

    def _value(self, root: UOp, frame: _Frame) -> Bounded:
        """The value of `root`; nodes below a REDUCE are computed with it."""
        memo = frame.memo
        sources = lambda u: () if u.op in (Op.RANGE, Op.REDUCE) else u.src
        for u in toposort(root, lambda u: u in memo or u.op is Op.PARAM, sources):
            memo[u] = self._reduce(u, frame) if u.op is Op.REDUCE else self._one(u, frame)
        return memo[root]

    def _one(self, u: UOp, frame: _Frame) -> Bounded:
        src = [frame.memo[s] for s in u.src if s in frame.memo]
        if u.op is Op.RANGE:
            return Bounded(frame.ranges[u])
        if u.op in (Op.CONST, Op.VARIABLE):
            number = u.arg if u.is_const else self.values[u.arg[0]]
            return Bounded(np.full((1,) * (1 + len(self._axes)), number, wide_dtype(u.dtype)))
        if u.op is Op.LOAD:
            return self._load(u, *src)
        if u.op is Op.ARGSORT:
            keys = self._read(u.slot, ...)
            known = Bounded(MEANINGS[u.op](u, [keys.value], None)) if keys.exact else argsort(keys)
            return known.moved(lambda a: a[src[0].value])
        if u.op is Op.SCAN:
            return running(u, self._read(u.slot, ...)).moved(lambda a: a.ravel()[src[0].value])
        if u.op is Op.SCATTER_ADD:
            (rows, (n,)), (values, (size,)) = u.src[0].arg, u.src[1].arg
            taken = UOp(Op.PARAM, u.dtype, (), (values, (n, size // n)))
            both = [self._read(rows, ...), self._read(values, ...).moved(lambda a: a.reshape(n, -1))]
            whole = scattered(UOp(u.op, u.dtype, (u.src[0], taken), u.arg), both)
            return whole.moved(lambda a: a[tuple(s.value for s in src)])
        return apply(u.op, u.dtype, src, [s.dtype for s in u.src])

    def _load(self, u: UOp, index: Bounded, gate: Bounded = _OPEN) -> Bounded:
        memory = self.memory[u.slot]
        at, open_ = np.broadcast_arrays(index.value, gate.value)
        inside = (at >= 0) & (at < memory.size)
        if not memory.size:
            return Bounded(np.zeros(at.shape, exactly(memory).value.dtype))
        read = inside & open_
        found = self._read(u.slot, np.where(read, at, 0)).gated(read)
        astray = ~inside & open_
        if astray.any():
            found = Bounded(found.value, np.where(astray, np.inf, found.error))
        loaded = found.doubted(index).doubted(gate)
        if self.reads is not None:
            self.reads.append((u, np.where(open_, at, -1), loaded))
        return loaded

    def _read(self, slot: int, at: Any) -> Bounded:
        """Elements of memory. Of large memory often few are asked for: it is not made wide as a whole."""
        memory = self.memory[slot]
        if memory.size > _MOST_WIDE:
            return exactly(memory[at])
        if slot not in self._known:
            self._known[slot] = exactly(memory)
        return self._known[slot].moved(lambda a: a[at])

    def _reduce(self, u: UOp, frame: _Frame) -> Bounded:
        parts = []
        for inner in self._blocks(u.src[1:], frame):
            valid = None
            for r in u.src[1:]:
                if not r.src[0].is_const:
                    here = inner.ranges[r] < self._value(r.src[0], inner).value
                    valid = here if valid is None else valid & here
            x = self._value(u.src[0], inner)
            # a source need not depend on every range that is summed over, nor be as long
            given = [x.value, *[inner.ranges[r] for r in u.src[1:]], *(() if valid is None else (valid,))]
            whole = partial(np.broadcast_to, shape=np.broadcast_shapes(*[a.shape for a in given]))
            axes = tuple(self._axes[r] for r in u.src[1:])
            parts.append(part_of(u.arg, u.dtype, x.moved(whole), axes, None if valid is None else whole(valid)))
        if not parts:
            identity = reduce_identity(u.arg, u.dtype)
            return Bounded(np.full((1,) * (1 + len(self._axes)), identity, wide_dtype(u.dtype)))
        return reduced(u.arg, u.dtype, reduce(partial(joined, u.arg, u.dtype), parts))

    def _blocks(self, ranges: Nodes, frame: _Frame) -> Iterator[_Frame]:
        """Frames in which `ranges` take all their values, a block of the first one's at a time."""
        first, *others = [self._extent(r) for r in ranges]
        if 0 in others:
            return

        def along(r: UOp, begin: int, end: int) -> _Frame:
            shape = [-1 if i == self._axes[r] else 1 for i in range(1 + len(self._axes))]
            values, bit = np.arange(begin, end, dtype=np.int32).reshape(shape), 1 << r.arg[0]
            return _Frame({**frame.ranges, r: values}, {u: x for u, x in frame.memo.items() if not u.ranges & bit})

        for r, n in zip(ranges[1:], others, strict=True):
            frame = along(r, 0, n)
        step = max(1, 4 * _LANES // math.prod(others))
        for begin in range(0, first, step):
            yield along(ranges[0], begin, min(begin + step, first))


def spread(a: Array, count: int) -> Array:
    """The values of the given number of points, from an array that may have one for all."""
    return np.broadcast_to(a.ravel(), (count,))


def _ranges(order: Nodes) -> list[UOp]:
    """The ranges among nodes, by number."""
    return sorted({u for u in order if u.op is Op.RANGE}, key=lambda r: int(r.arg[0]))


def error_bounds(sink: UOp, memory: Sequence[Array], outputs: int, values: Sizes) -> list[tuple[Array, Array | None]]:
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
        index, value, live, whole = kernel.written(slot, _DRAWN)
        errors = np.zeros(memory[slot].size)
        drawn, read = np.zeros((2, errors.size), bool)
        errors[index] = np.where(np.isfinite(value.error), value.error, 0.0)
        drawn[index], read[index] = True, live
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
