"""Kernels taken apart at their matrix products: BLAS computes those into scratch, kernels around them do the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, permutations

from anneal.backend.cpu.layout import aligned
from anneal.codegen import affine_form, coalesce_loops
from anneal.frozen import frozen
from anneal.rewrite import over, rebuild
from anneal.uop import Known, Nodes, Op, Src, UOp, const, dtypes, toposort
from anneal.uop.sizes import Size, is_symbolic, least, most, product

Axis = Src  # ranges that are as one in all operands, outermost first


@frozen
class Operand:
    """Memory that a product reads or writes: its slot, where it begins, and its steps along ranges, in elements."""

    slot: int
    offset: int
    steps: dict[UOp, int]

    def step(self, axis: Axis) -> int:
        return self.steps.get(axis[-1], 0)


_SHORTEST, _EACH = 8, 1 << 12  # a product with a shorter side is not BLAS's, nor one of fewer multiplications
# Up to so many multiplications C is as fast, and does the rest of the kernel meanwhile: of dot products of lines, and
# of others, whose second matrix stays in cache.
_FEW_DOTS, _FEW, _NEAR = 1 << 20, 24 << 20, 1 << 18
# ... unless its rows, if they are no few, are so many elements apart: all fall into the same few lines of the cache.
_APART = 1 << 10
_TERMS = 16  # a sum over windows is many products of few terms each, which BLAS adds to memory one after another
# A call of BLAS computes at least so many multiplications, and so many rows or columns; so many where there are enough.
_BLOCK, _ROWS, _MANY_ROWS = 1 << 18, 32, 192

# Whether the first factor, the second and the sum over `k` contain a range: of rows, of columns, of `k`, of the batch.
_KINDS = ((True, False, False), (False, True, False), (True, True, True), (True, True, False))


@frozen
class BlasProduct:
    """c = a @ b, matrices that are m by k and k by n, for each value of some axes; it may be a sum over further axes.

    `operands` are a, b and c; `axes` are m, n and k, then so many as `batches` says, then those of the sum.
    """

    operands: tuple[Operand, Operand, Operand]
    axes: tuple[Axis, ...]
    batches: int
    itemsize: int

    @property
    def flops(self) -> int:
        return 2 * _extent(sum(self.axes, ()))

    def sizes(self, threads: int) -> tuple[Size, ...]:
        """The number of workgroups, and the words that `multiply` in pool.c reads. Memory is laid out for the largest
        sizes, so only extents may depend on variables.

        Each product is cut into blocks of rows or columns. BLAS arranges the other factor anew for each, so few are
        better, but every thread should have one, if they are not too small.
        """
        m, n, k = map(_extent, self.axes[:3])
        batches = _size(sum(self.axes[3 : 3 + self.batches], ()))
        each = -(-threads // most(batches))
        each *= 1 + (max(m, n) >= 2 * each * _MANY_ROWS)
        blocks = max(1, min(each, max(m, n) // _ROWS, m * n * k // _BLOCK))
        out = [
            batches * blocks,
            self.itemsize,
            blocks,
            *[o.offset for o in self.operands],
            self.batches,
            len(self.axes),
        ]
        for x in self.axes:
            out += [_size(x), *[o.step(x) for o in self.operands]]
        return tuple(out)


def _extent(ranges: Iterable[UOp]) -> int:
    """The largest extent of an axis of these ranges."""
    return math.prod([most(r.src[0]) for r in ranges])


def _size(ranges: Iterable[UOp]) -> Size:
    return product(r.src[0] for r in ranges)  # type: ignore[no-any-return]


class Taken:
    """Kernels taken apart into kernels and products, in order. What stands between them has memory in slots from
    `first` on.

    out[i, j] = relu(sum over k of (x[i, k] * scale[i]) * w[k, j])
    ->  s0[i, k] = x[i, k] * scale[i]      a factor that is no plain memory
        s1 = s0 @ w                        BLAS
        out[i, j] = relu(s1[i, j])
    """

    def __init__(self, first: int) -> None:
        self.first, self._slots = first, count(first)
        self.parts: list[UOp | BlasProduct] = []
        self._table: Known = {}  # what stands for each product in the parts after it

    @property
    def scratch(self) -> dict[int, int]:
        """The memory between the parts: bytes by slot."""
        return {
            o.slot: aligned(_extent(o.steps) * p.itemsize)
            for p in self.parts
            if isinstance(p, BlasProduct)
            for o in p.operands
            if o.slot >= self.first
        }

    def add(self, kernel: UOp, has_blas: bool) -> None:
        """Take a kernel apart; it is one part if it has no product for BLAS."""
        sink, self._table = coalesce_loops(kernel), {}
        for u in toposort(sink):
            if has_blas and u.op is Op.REDUCE and (found := self._product(u)) is not None:
                self._table[u] = found
        if not self._table:
            self.parts.append(kernel)
        elif not self._direct(sink):
            self.parts.append(rebuild(sink, over, self._table))

    def _product(self, u: UOp) -> UOp | None:
        """A load of what BLAS computes, in the place of a reduce; None if it is not for BLAS."""
        if u.arg is not Op.ADD or u.src[0].op is not Op.MUL or u.dtype not in (dtypes.float32, dtypes.float64):
            return None
        ranges = sorted([r for r in toposort(u) if r.op is Op.RANGE], key=lambda r: r.arg[0])
        if not all(is_symbolic(r.src[0]) and least(r.src[0]) > 0 for r in ranges):
            return None
        factors = u.src[0].src
        has = [*map(_ranges, factors), u.src[1:]]
        rows, columns, along, batch = groups = [
            [r for r in ranges if tuple([r in x for x in has]) == kind] for kind in _KINDS
        ]
        if len(along) < len(u.src) - 1 or min(map(_extent, groups[:3])) < _SHORTEST:
            return None
        # as far as they are memory as it lies
        places = [_operand(*x.src) if x.op is Op.LOAD and len(x.src) == 2 else None for x in factors]
        # the ranges along which BLAS can sum each factor as it lies
        sums = [
            {k for k in along if place and any(_readable(place, (r,), (k,)) for r in lines)}
            for place, lines in zip(places, groups)
        ]
        # along every range one of them may be no neighbours in memory, which C would read one by one
        apart = all(any(o and o.step((r,)) > 1 for o in places) for r in ranges)
        if scattered := apart and all(sums) and not sums[0] & sums[1]:
            other = int(_windows(factors[1]) or (_extent(rows) < _extent(columns) and not _windows(factors[0])))
            along.sort(key=sums[other].__contains__)
            sums[1 - other].clear()
        operands = []
        before = []
        for x, place, lines, own in zip(factors, places, groups, sums):
            if place is None or not own:
                if _windows(x):
                    return None
                place, kernel = self._computed(x, batch, lines, along)
                before.append(kernel)
            operands.append(place)
        a, b = operands
        single: list[list[Axis]] = [[(r,) for r in group] for group in groups]
        axes = [_joined(group, operands) for group in single]
        made = _matrices(a, b, *axes[:3])
        if not made and scattered:  # lines that overlap are no matrix, but those of a part of each are
            axes[2] = single[2]
            made = _matrices(a, b, *axes[:3])
        if not made:
            return None
        rest = [[x for x in group if x not in made] for group in axes]
        each, terms = (*rest[3], *rest[0], *rest[1]), rest[2]
        c = self._memory(sum((*each, *made[:2]), ()))
        self.parts += [*before, BlasProduct((a, b, c), (*made, *each, *terms), len(each), u.dtype.itemsize)]
        return UOp(Op.LOAD, u.dtype, _place(c, u))

    def _memory(self, shape: Nodes) -> Operand:
        """Scratch for a value of these ranges, the last one innermost."""
        return Operand(next(self._slots), 0, {r: _extent(shape[n + 1 :]) for n, r in enumerate(shape)})

    def _computed(self, x: UOp, batch: list[UOp], lines: list[UOp], along: list[UOp]) -> tuple[Operand, UOp]:
        """A factor that has to be computed first, and the kernel that does."""
        x = rebuild(x, over, dict(self._table))
        loads = [affine_form(u.src[1])[0] for u in toposort(x) if u.op is Op.LOAD]
        inner = any(terms.get(r) == 1 for terms in loads for r in lines)
        found = self._memory([*batch, *along, *lines] if inner else [*batch, *lines, *along])
        store = UOp(Op.STORE, x.dtype, (*_place(found, x), x))
        loops = {r: UOp(Op.RANGE, r.dtype, r.src, (r.arg[0], "loop")) for r in found.steps}
        return found, rebuild(UOp(Op.SINK, x.dtype, (store,)), over, loops)

    def _direct(self, sink: UOp) -> bool:
        """Have the product write into the kernel's own memory, where storing it is all that is left to do."""
        store, p = sink.src[0], self.parts[-1]
        if len(sink.src) > 1 or len(store.src) > 3 or [*self._table] != [store.src[2]]:
            return False
        assert isinstance(p, BlasProduct)
        (a, b, old), (m, n, *rest), c = p.operands, p.axes, _operand(*store.src[:2])
        if c is None or c.steps.keys() - old.steps.keys() or c.slot in (a.slot, b.slot) or not _readable(c, m, n):
            return False
        if any(old.step(x) and _joined([(r,) for r in x], (c,)) != [x] for x in p.axes):
            return False
        turned = c.step(n) != 1
        self.parts[-1] = (
            replace(p, operands=(b, a, c), axes=(n, m, *rest)) if turned else replace(p, operands=(a, b, c))
        )
        return True


def _place(x: Operand, u: UOp) -> tuple[UOp, UOp]:
    """The memory of an operand that is a value like `u`, and the index into it."""
    index = sum([r * step for r, step in x.steps.items()], const(dtypes.int32, 0))
    return UOp(Op.PARAM, u.dtype, (), (x.slot, (_extent(x.steps),))), index


def _operand(memory: UOp, index: UOp) -> Operand | None:
    """Memory at an index that is affine in ranges."""
    terms, offset = affine_form(index)
    if any(t.op is not Op.RANGE or step < 0 for t, step in terms.items()):
        return None
    return Operand(memory.arg[0], offset, terms)


def _ranges(x: UOp) -> list[UOp]:
    """The ranges that a value depends on."""
    return [r for r in toposort(x) if r.op is Op.RANGE and x.varies_over(r)]


def _windows(x: UOp) -> bool:
    """True if a factor reads windows of its memory, which overlap: writing them out would take many times as much."""
    return any(u.op is Op.LOAD and u.src[0].arg[1][0] * 2 <= _extent(_ranges(u)) for u in toposort(x))


def _readable(x: Operand, lines: Axis, along: Axis) -> bool:
    """True if BLAS can take two axes of an operand as a matrix."""
    s, t = x.step(lines), x.step(along)
    return (t == 1 and s >= _extent(along)) or (s == 1 and t >= _extent(lines))


def _joined(axes: list[Axis], operands: Sequence[Operand]) -> list[Axis]:
    """Axes of which those that are as one in all operands are one, whatever their extents are."""
    for x, y in permutations(axes, 2):
        if isinstance(_size(y), int) and all(o.step(x) == o.step(y) * _extent(y) for o in operands):
            return _joined([z + y if z is x else z for z in axes if z is not y], operands)
    return axes


def _matrices(a: Operand, b: Operand, rows: list[Axis], columns: list[Axis], along: list[Axis]) -> tuple[Axis, ...]:
    """The axes of the largest matrices that BLAS can read, of rows, columns and sums; none if they are too small."""
    found = [(m, n, k) for k in along for m in rows for n in columns if _readable(a, m, k) and _readable(b, n, k)]
    if not found:
        return ()
    m, n, k = max(found, key=lambda axes: _extent(sum(axes, ())))
    terms, size = _extent(k), _extent(m + n + k)
    alike = a.step(k) == b.step(k) == 1  # dot products of lines: C has to turn one matrix around
    near = terms * min(_extent(m), _extent(n)) <= _NEAR
    near = near and (terms <= _TERMS or all(x.step(k) % _APART for x in (a, b)))
    small = size <= _FEW_DOTS if alike else size <= _FEW and near
    few = small if len(along) == 1 else terms < _TERMS
    return () if size < _EACH or few else (m, n, k)
