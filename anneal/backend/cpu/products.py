"""Kernels taken apart at their matrix products: BLAS computes those into scratch, kernels before and after do the rest.

out[i, j] = relu(sum over k of (x[i, k] * scale[i]) * w[k, j])
->  s0[i, k] = x[i, k] * scale[i]      a factor that is no plain memory
    s1 = s0 @ w                        BLAS
    out[i, j] = relu(s1[i, j])
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from anneal.codegen import affine_form, coalesce_loops
from anneal.rewrite import over, rebuild
from anneal.uop import Op, UOp, const, dtypes, toposort
from anneal.uop.sizes import Size, is_symbolic, least, most, product

# A product with a shorter side, or of fewer multiplications, is not BLAS's; nor is one in many small ones.
_SHORTEST, _FEWEST, _EACH = 8, 1 << 15, 1 << 12
# Up to so many multiplications C is as fast, and does the rest of the kernel meanwhile: of dot products of lines, and
# of others, whose second matrix stays in cache.
_FEW_DOTS, _FEW, _NEAR = 1 << 20, 24 << 20, 1 << 18
# ... unless its rows, if they are no few, are so many elements apart: all fall into the same few lines of the cache.
_APART = 1 << 10
# A sum over windows is many products of few terms each, which BLAS adds to memory one after another.
_TERMS = 16
# A call of BLAS computes at least so many multiplications, and so many rows or columns; so many where there are enough.
_BLOCK, _ROWS, _MANY_ROWS = 1 << 18, 32, 192

# Ranges that are as one in all operands, outermost first.
Axis = tuple[UOp, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """Memory that a product reads or writes: its slot, where it begins, and its steps along ranges, in elements."""

    slot: int
    offset: int
    steps: dict[UOp, int]

    def step(self, axis: Axis) -> int:
        return self.steps.get(axis[-1], 0)


@dataclass(frozen=True, slots=True)
class BlasProduct:
    """c = a @ b, matrices that are m by k and k by n, for each value of the axes of `batch`; sums over `outer`, too."""

    a: Operand
    b: Operand
    c: Operand
    m: Axis
    n: Axis
    k: Axis
    batch: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    itemsize: int

    @property
    def slots(self) -> tuple[int, int, int]:
        return self.a.slot, self.b.slot, self.c.slot

    @property
    def flops(self) -> int:
        return 2 * math.prod(map(_extent, (self.m, self.n, self.k, *self.batch, *self.outer)))

    @property
    def batches(self) -> Size:
        return _size(sum(self.batch, ()))

    def blocks(self, threads: int) -> int:
        """Into how many blocks of rows or columns each product is cut. BLAS arranges the other factor anew for each, so
        few are better, but every thread should have one, if they are not too small."""
        m, n, k = map(_extent, (self.m, self.n, self.k))
        each = -(-threads // most(self.batches))
        each *= 1 + (max(m, n) >= 2 * each * _MANY_ROWS)
        return max(1, min(each, max(m, n) // _ROWS, m * n * k // _BLOCK))

    def description(self, threads: int) -> list[Size]:
        """The words that `multiply` in pool.c reads, after those for the function of BLAS. Memory is laid out for the
        largest sizes, so only extents may depend on variables."""
        a, b, c, m, n, k = self.a, self.b, self.c, self.m, self.n, self.k
        by_rows_a, lda = _lines(a.step(m), a.step(k), m, k)
        by_rows_b, ldb = _lines(b.step(k), b.step(n), k, n)
        out: list[Size] = [self.itemsize, _size(m), _size(n), _size(k), self.blocks(threads)]
        out += [int(not by_rows_a), int(not by_rows_b), lda, ldb, c.step(m), a.offset, b.offset, c.offset]
        for axes in (self.batch, self.outer):
            out.append(len(axes))
            for x in axes:
                out += [_size(x), a.step(x), b.step(x), c.step(x)]
        return out


def _extent(ranges: Iterable[UOp]) -> int:
    """The largest extent of an axis of these ranges."""
    return math.prod([most(r.src[0]) for r in ranges])


def _size(ranges: Iterable[UOp]) -> Size:
    return product(r.src[0] for r in ranges)  # type: ignore[no-any-return]


def _lines(rows: int, columns: int, m: Axis, n: Axis) -> tuple[bool, int]:
    """True if a matrix of m by n lies row by row; and the step from one line to the next."""
    return (True, max(rows, _extent(n))) if columns == 1 else (False, max(columns, _extent(m)))


def split(kernel: UOp, slots: int) -> Taken:
    """The parts of a kernel that binds `slots` buffers: itself if it has no product for BLAS."""
    sink, made = coalesce_loops(kernel), Taken(slots)
    for u in toposort((sink,)):
        if u.op is Op.REDUCE and (found := made.product(u)) is not None:
            made.table[u] = found
    if not made.table:
        made.parts = [kernel]
    elif not made.direct(sink):
        made.parts.append(rebuild(sink, over, made.table))
    return made


@dataclass(slots=True)
class Taken:
    """A kernel as kernels and products, in order; `scratch` is the memory between them: elements and their bytes, by
    slot. `slots` is the number of the next one, `table` has what stands for each product in the parts after it."""

    slots: int
    parts: list[UOp | BlasProduct] = field(default_factory=list)
    scratch: dict[int, tuple[int, int]] = field(default_factory=dict)
    table: dict[UOp, UOp] = field(default_factory=dict)

    def product(self, u: UOp) -> UOp | None:
        """A load of what BLAS computes, in the place of a reduce; None if it is not for BLAS."""
        ranges = [r for r in toposort((u,)) if r.op is Op.RANGE]
        if (
            u.arg is not Op.ADD
            or u.src[0].op is not Op.MUL
            or u.dtype not in (dtypes.float32, dtypes.float64)
            or any(
                r.op is not Op.RANGE or not is_symbolic(r.src[0]) or least(r.src[0]) < 1 for r in (*u.src[1:], *ranges)
            )
        ):
            return None
        ranges.sort(key=lambda r: r.arg[0])
        a, b = u.src[0].src
        in_a, in_b = ([r for r in ranges if x.ranges >> r.arg[0] & 1] for x in (a, b))
        along = [r for r in ranges if r in u.src[1:]]
        batch = [r for r in in_a if r in in_b and r not in along]
        rows, columns = [r for r in in_a if r not in in_b], [r for r in in_b if r not in in_a]
        sides = [_extent(s) for s in (rows, columns, along)]
        if (
            any(r not in in_a or r not in in_b for r in along)
            or min(sides) < _SHORTEST
            or math.prod(sides) * _extent(batch) < _FEWEST
        ):
            return None
        factors: list[Operand] = []
        before: list[UOp] = []
        slots = self.slots
        places, sums = _sums(a, b, rows, columns, along)
        if scattered := all(sums) and not sums[0] & sums[1] and _scattered(places, ranges):
            other = int(_windows(b) or (_extent(rows) < _extent(columns) and not _windows(a)))
            along.sort(key=sums[other].__contains__)
            sums[1 - other].clear()
        for x, found, lines, own in zip((a, b), places, (rows, columns), sums, strict=True):
            if found is None or not own:
                if _windows(x):
                    return None
                found, kernel = self._computed(x, batch, lines, along)
                before.append(kernel)
            factors.append(found)
        left, right = factors
        groups = [_joined(group, factors) for group in (rows, columns, along, batch)]
        made = _matrices(left, right, *groups[:3])
        if made is None and scattered:  # lines that overlap are no matrix, but those of a part of each are
            groups[2] = [(r,) for r in along]
            made = _matrices(left, right, *groups[:3])
        if made is None:
            self.slots = slots
            return None
        m, n, k = made
        each = (*groups[3], *[x for x in groups[0] if x is not m], *[x for x in groups[1] if x is not n])
        outer = tuple([x for x in groups[2] if x is not k])
        shape = [r for axis in (*each, m, n) for r in axis]
        c = self._memory(u, shape)
        self.parts += [*before, BlasProduct(left, right, c, m, n, k, each, outer, u.dtype.itemsize)]
        for f in factors:
            if f.slot >= slots:
                self.scratch[f.slot] = _extent(f.steps), u.dtype.itemsize
        self.scratch[c.slot] = _extent(shape), u.dtype.itemsize
        return UOp(Op.LOAD, u.dtype, (_param(c, u), _index(c.steps)))

    def _memory(self, u: UOp, shape: Sequence[UOp]) -> Operand:
        """Scratch for a value of these ranges, the last one innermost."""
        steps = {r: _extent(shape[n + 1 :]) for n, r in enumerate(shape)}
        self.slots += 1
        return Operand(self.slots - 1, 0, steps)

    def _computed(self, x: UOp, batch: list[UOp], lines: list[UOp], along: list[UOp]) -> tuple[Operand, UOp]:
        """A factor that has to be computed first, and the kernel that does."""
        x = rebuild(x, over, dict(self.table))
        inner = {
            r for u in toposort((x,)) if u.op is Op.LOAD for r, step in affine_form(u.src[1])[0].items() if step == 1
        }
        last = inner & set(lines)
        found = self._memory(x, [*batch, *along, *lines] if last else [*batch, *lines, *along])
        loops = {r: UOp(Op.RANGE, r.dtype, r.src, (r.arg[0], "loop")) for r in found.steps}
        at = _index({loops[r]: step for r, step in found.steps.items()})
        store = UOp(Op.STORE, x.dtype, (_param(found, x), at, rebuild(x, over, dict(loops))))
        return found, UOp(Op.SINK, x.dtype, (store,))

    def direct(self, sink: UOp) -> bool:
        """Have the product write into the kernel's own memory, where storing it is all that is left to do."""
        store, p = sink.src[0], self.parts[-1]
        if len(sink.src) > 1 or len(store.src) > 3 or store.src[2] not in self.table or len(self.table) > 1:
            return False
        assert isinstance(p, BlasProduct)
        slot, (terms, offset) = store.src[0].arg[0], affine_form(store.src[1])
        if set(terms) - set(p.c.steps) or any(u.op is Op.PARAM and u.arg[0] == slot for u in toposort(store.src[2:])):
            return False
        c = Operand(slot, offset, terms)
        if not _readable(c, p.m, p.n) or any(x not in _joined(x, (c,)) for x in (*p.batch, p.m, p.n)):
            return False
        del self.scratch[p.c.slot]
        turned = c.step(p.n) != 1
        self.parts[-1] = replace(p, a=p.b, b=p.a, c=c, m=p.n, n=p.m) if turned else replace(p, c=c)
        return True


def _param(x: Operand, u: UOp) -> UOp:
    return UOp(Op.PARAM, u.dtype, (), (x.slot, (_extent(x.steps),)))


def _index(steps: dict[UOp, int]) -> UOp:
    return sum([r * step for r, step in steps.items()], const(dtypes.int32, 0))


def _in_memory(x: UOp) -> Operand | None:
    """A factor that is memory at an affine index."""
    if x.op is not Op.LOAD or len(x.src) != 2:
        return None
    terms, offset = affine_form(x.src[1])
    if any(t.op is not Op.RANGE or step < 0 for t, step in terms.items()):
        return None
    return Operand(x.src[0].arg[0], offset, terms)


def _sums(
    a: UOp, b: UOp, rows: Sequence[UOp], columns: Sequence[UOp], along: Sequence[UOp]
) -> tuple[list[Operand | None], list[set[UOp]]]:
    """Two factors in memory, None where one is computed, and the ranges along which BLAS can sum each as it lies."""
    places = [_in_memory(a), _in_memory(b)]
    return places, [
        {k for k in along if place and any(_readable(place, (r,), (k,)) for r in lines)}
        for place, lines in zip(places, (rows, columns), strict=True)
    ]


def _scattered(operands: Sequence[Operand | None], ranges: Sequence[UOp]) -> bool:
    """True if along every range one of the operands is no neighbours in memory, which C would read one by one."""
    return all(any(o is not None and o.steps.get(r, 0) > 1 for o in operands) for r in ranges)


def _windows(x: UOp) -> bool:
    """True if a factor reads windows of its memory, which overlap: writing them out would take many times as much."""
    ranges = {r: most(r.src[0]) for r in toposort((x,)) if r.op is Op.RANGE}
    loads = [u for u in toposort((x,)) if u.op is Op.LOAD]
    return any(
        u.src[0].arg[1][0] * 2 <= math.prod([e for r, e in ranges.items() if u.ranges >> r.arg[0] & 1]) for u in loads
    )


def _readable(x: Operand, lines: Axis, along: Axis) -> bool:
    """True if BLAS can take two axes of an operand as a matrix."""
    s, t = x.step(lines), x.step(along)
    return (t == 1 and s >= _extent(along)) or (s == 1 and t >= _extent(lines))


def _joined(group: Sequence[UOp], operands: Sequence[Operand]) -> list[Axis]:
    """Ranges as axes: those that are as one in all operands are one, whatever their extents are."""
    axes: list[Axis] = [(r,) for r in group]
    for x in list(axes):
        for y in list(axes):
            if x is not y and x in axes and y in axes and isinstance(_size(y), int):
                if all(o.step(x) == o.step(y) * _extent(y) for o in operands):
                    axes[axes.index(x)] = (*x, *y)
                    axes.remove(y)
                    x = (*x, *y)
    return axes


def _matrices(
    a: Operand, b: Operand, rows: Sequence[Axis], columns: Sequence[Axis], along: Sequence[Axis]
) -> tuple[Axis, Axis, Axis] | None:
    """The axes of the largest matrices that BLAS can read; None if they are too small for it."""
    found = [
        (_extent(m) * _extent(n) * _extent(k), m, n, k)
        for k in along
        for m in rows
        for n in columns
        if _readable(a, m, k) and _readable(b, n, k)
    ]
    if not found:
        return None
    size, m, n, k = max(found, key=lambda x: x[0])
    alike = a.step(k) == b.step(k) == 1  # dot products of lines: C has to turn one matrix around
    near = _extent(k) * min(_extent(m), _extent(n)) <= _NEAR
    near = near and (_extent(k) <= _TERMS or all(x.step(k) % _APART for x in (a, b)))
    small = size <= _FEW_DOTS if alike else size <= _FEW and near
    few = small if len(along) == 1 else _extent(k) < _TERMS
    return None if size < _EACH or few else (m, n, k)
