"""Adjoints of several steps: each implements one rule of `gradient.upat` by name.

Every function takes `g`, the cotangent of node `y`, and gives what it contributes to one source. `g` has the shape of
`y`, or `()` if it is the same number everywhere."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence

import numpy as np

from anneal.backend import MEANINGS, Array

from anneal.ops.nodes import (  # isort: skip
    Pairs, broadcast, earlier, expand, flip, iota, is_looked_up, kept_within, numbered, pad, permute, picked,
    reciprocal, reduce_axis, reduce_node, reshape, shrink, spread, take_rows,
)  # fmt: skip
from anneal.ops import running
from anneal.uop import ALU, Ints, Op, UOp, by_rule, const, dtypes, promote, toposort
from anneal.uop.sizes import Size, divided_size, most, product

_PLACES = 16  # of a small window
_TOGETHER = 4  # places where one element is read, in a row
_ROW = (Op.IOTA, Op.CONST, Op.RESHAPE, Op.EXPAND, Op.ADD, Op.SUB, Op.MUL, Op.IDIV, Op.MOD, Op.MAX, Op.MIN)
_COMPARED = 1 << 20  # places, each with each element, to find where an element was read


# -- movement -----------------------------------------------------------------------------------------------------


def reshaped(g: UOp, x: UOp) -> UOp:
    """Reshape back."""
    return reshape(g, x.shape) if g.shape else g


def permuted(g: UOp, axes: Ints) -> UOp:
    """Permute by the inverse order."""
    return permute(g, _inverse(axes)) if g.shape else g


def _inverse(axes: Sequence[int]) -> list[int]:
    return sorted(range(len(axes)), key=axes.__getitem__)


def expanded(g: UOp, x: UOp, y: UOp) -> UOp:
    """Sum over the repeated axes."""
    if not g.shape:
        times = divided_size(product(y.shape), product(x.shape)) if x.size else 1
        if isinstance(times, UOp):
            return g * times.cast(g.dtype)
        # repeated not once: nobody reads it, whatever g is
        return g if times == 1 else g * times if times else nothing(g)
    return reduce_axis(g, Op.ADD, tuple([i for i, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)) if a != b]))


def begins(pairs: Pairs) -> tuple[Size, ...]:
    """The begin of the kept part along each axis: what was padded is cut off, and zeros lie around what was cut out."""
    return tuple([b for b, _ in pairs])


def around(g: UOp, y: UOp, v: UOp, begins: tuple[Size, ...]) -> UOp:
    """The part of `g` outside of the replaced part."""
    g = spread(g, y.shape)
    return placed(const(dtypes.bool_, True), y, v, begins).where(g.const_like(0), g)


def part(g: UOp, v: UOp, begins: tuple[Size, ...]) -> UOp:
    """The part of `g` inside the replaced part."""
    return shrink(g, tuple([(b, b + m) for b, m in zip(begins, v.shape, strict=True)])) if g.shape else g


def placed(g: UOp, x: UOp, v: UOp, begins: tuple[Size, ...]) -> UOp:
    """`g`, of the part that replaces another in `x`, in its place, zeros around it."""
    ends = zip(begins, v.shape, x.shape, strict=True)
    return pad(spread(g, v.shape), tuple([(b, n - (b + m)) for b, m, n in ends]))


def updated(g: UOp, y: UOp, v: UOp) -> UOp:
    """`g`, with `v` in the place of the part that replaces another."""
    x, part = y.src[:2]
    return UOp(Op.UPDATE, g.dtype, (spread(g, x.shape), spread(v.cast(g.dtype), part.shape), *y.src[2:]), y.arg)


def part_at(g: UOp, y: UOp) -> UOp:
    """The part of `g` in the place where another was replaced, which may be looked up; zeros for what lies outside."""
    g = spread(g, y.shape)
    starts = iter(y.src[2:])
    for axis, (b, m, whole) in enumerate(zip(y.arg, y.src[1].shape, y.shape, strict=True)):
        if not is_looked_up(b):
            g = shrink(g, tuple([(b, b + m) if a == axis else (0, n) for a, n in enumerate(g.shape)]))
            continue
        begin = next(starts)
        if b is None:
            begin = kept_within(begin, m, whole)
        shape = tuple([m if a == axis else n for a, n in enumerate(g.shape)])
        place = expand(iota(m, axis, len(shape)) + begin, shape)
        g = UOp(Op.GATHER, g.dtype, (g, place), axis)
    return g


def flipped(g: UOp, axes: Ints) -> UOp:
    """Flip back."""
    return flip(g, axes) if g.shape else g


def summed(g: UOp, x: UOp, how: tuple[Op, int, int], turned: Ints = ()) -> UOp:
    """Running sums along an axis of `how`'s length with so many elements after it; `turned` (1,): from the end."""
    return reshape(flip(running(flip(_rows(g, x, how), turned), 1), turned), x.shape)


def following(g: UOp, x: UOp, how: tuple[Op, int, int]) -> UOp:
    """Each running sum is of what stands before, so each term is in those that follow."""
    return summed(g, x, how, (1,))


def factors(g: UOp, x: UOp, y: UOp, how: tuple[Op, int, int]) -> UOp:
    """A factor of running products is in those that follow: in each with the product of the others.

    Those are the running product before the factor, and the factors between the two, over which a recurrence from the
    end sums up. Nothing is divided, so zeros are factors like others, also for derivatives of this. Behind a zero it is
    zero, whatever else is there.
    """
    rows = [_rows(u, x, how) for u in (g, x, y)]
    after = _recurrence(earlier(flip(rows[1], (1,)), 1, 1), flip(rows[0], (1,)))
    terms = flip(after, (1,)) * earlier(rows[2], 1, 1)
    zeros = earlier(running(rows[1].eq(0.0).cast(dtypes.int32), 1), 1, 0)
    return reshape(by_rule("equal", zeros.eq(0).where(terms, 0.0), terms), x.shape)


def multiplied(g: UOp, x: UOp, y: UOp, how: tuple[Op, int, int]) -> UOp:
    """The tangent of running products: each step has that of a product of two."""
    rows = [_rows(u, x, how) for u in (g, x, y)]
    return reshape(_recurrence(rows[1], rows[0] * earlier(rows[2], 1, 1)), x.shape)


def _rows(u: UOp, x: UOp, how: tuple[Op, int, int]) -> UOp:
    """A node of x's shape, or of one number, with the axis of a running reduction as the second of three."""
    _, n, after = how
    return reshape(spread(u, x.shape), (x.size // (n * after), n, after))


def _recurrence(a: UOp, b: UOp) -> UOp:
    """h[i] = a[i] * h[i - 1] + b[i] along axis 1, from zero on, in steps of 1, 2, 4, ...

    After each of them b[i] is the sum over so many places, and a[i] the product of their factors (W. D. Hillis, G. L.
    Steele: Data parallel algorithms, 1986).
    """
    step = 1
    while step < b.shape[1]:
        b = (b + a * earlier(b, step, 0)).then(Op.CONTIGUOUS)
        a = (a * earlier(a, step, 0)).then(Op.CONTIGUOUS)
        step *= 2
    return b


# -- elementwise --------------------------------------------------------------------------------------------------


def max_left(g: UOp, a: UOp, b: UOp) -> UOp:
    """The adjoint of max(a, b) for a, and of min(b, a): half of `g` at a tie, none where a < b, else all, also at
    nan.
    """
    return a.eq(b).where(g * 0.5, (a < b).where(g.const_like(0), g))


def _keep(condition: UOp, g: UOp) -> UOp:
    return condition.where(g, g.const_like(0))


def side(x: UOp) -> UOp:
    """The sign of x: 1 above 0, -1 below, 0 at 0 and at nan."""
    one = x.const_like(1)
    return (x > 0.0).where(one, (x < 0.0).where(-one, x.const_like(0)))


def power_base(g: UOp, x: UOp, n: UOp) -> UOp:
    """`g * n * x**(n-1)`, and zero where n is zero, also at x = 0."""
    if n.is_const:
        if n.arg == 0:
            return g.const_like(0)
        return g * (x if n.arg == 2 else Op.POW(x, n - 1.0)) * n
    slope = n * Op.POW(x, n - 1.0)
    return g * n.eq(0.0).where(n.const_like(0), slope)


def power_exponent(g: UOp, x: UOp, n: UOp, y: UOp) -> UOp:
    """`g * y * log(x)`; where x is zero, and y too or one, zero."""
    flat = x.eq(0.0) & (n >= 0.0)
    return g * y * Op.LOG(flat.where(x.const_like(1), x))


def widest(g: UOp, x: UOp, y: UOp) -> UOp:
    """The cotangent of a cast, in the wider of the two float types, or in its own if that is wider still."""
    return g.cast(promote(g.dtype, promote(x.dtype, y.dtype)))


# -- reductions ---------------------------------------------------------------------------------------------------


def reduced(g: UOp, x: UOp, y: UOp) -> UOp:
    """Sum: repeat. Max and min: share evenly among the ties. Product: the product of the others."""
    op, axes = y.arg
    if op is Op.ADD:
        return expand(g, x.shape) if g.shape else g
    g = spread(g, y.shape)
    if op is Op.MUL:
        return expand(g, x.shape) * others_product(x, axes)
    hit = x.eq(expand(y, x.shape))
    ties = reduce_axis(hit.cast(g.dtype), Op.ADD, axes)
    return _keep(hit, expand(g / ties, x.shape))


def first(g: UOp, x: UOp, y: UOp, axes: Ints) -> UOp:
    """The gradient `g` at the first place along `axes` that is not below the largest; none elsewhere."""
    place, chosen = first_of(x, y, axes)
    g = reshape(spread(g, y.shape), chosen.shape)
    return _keep(place.eq(expand(chosen, x.shape)), expand(g, x.shape))


def first_of(x: UOp, y: UOp, axes: Ints) -> tuple[UOp, UOp]:
    """The places along `axes`, counted row by row, and the first whose element is not below y.

    In a small window it is looked for place by place: that takes fewer steps than a reduction.
    """
    y = reshape(y, tuple([1 if i in axes else n for i, n in enumerate(x.shape)]))
    place: UOp = const(dtypes.int32, 0)
    for a in axes:
        n = x.shape[a]
        step = iota(n, a, len(x.shape))
        place = spread(place, x.shape) * n + expand(step, x.shape)
    sizes = [x.shape[a] for a in axes]
    count = product(sizes)
    if isinstance(count, int) and count <= _PLACES:
        place = place.cast(dtypes.uint8)  # the first is kept for the backward pass
        found = spread(const(dtypes.uint8, count - 1), y.shape)
        for p, at in reversed(list(enumerate(itertools.product(*map(range, sizes))))[:-1]):
            part = dict(zip(axes, at, strict=True))
            pairs = tuple([(part[i], part[i] + 1) if i in part else (0, n) for i, n in enumerate(x.shape)])
            found = (shrink(x, pairs) < y).where(found, found.const_like(p))
        return place, found
    beyond = place.const_like(count) if isinstance(count, int) else spread(count.cast(dtypes.int32), x.shape)
    below = x < expand(y, x.shape)
    return place, reduce_axis(below.where(beyond, place), Op.MIN, axes)


def others_product(x: UOp, axes: Ints) -> UOp:
    """The product of all other elements along `axes`, for each: its slope in the product of all.

    Zeros are set aside: with `p` the product of the elements that are not zero, the product of the others is `p/x` if
    none of them is zero (where x is zero itself: `p`), and zero otherwise. No division by zero takes place. Derivatives
    of that would be wrong at zeros; those of `_others_by_pairs`, which takes more steps, are not.
    """
    zero = x.eq(0.0)
    safe = zero.where(x.const_like(1), x)
    zeros = zero.cast(x.dtype)
    p = reduce_axis(safe, Op.MUL, axes)
    others = expand(reduce_axis(zeros, Op.ADD, axes), x.shape) - zeros
    v = _keep(others.eq(0.0), expand(p, x.shape) / safe)
    return by_rule("equal", v, _others_by_pairs(x, axes))


def _others_by_pairs(x: UOp, axes: Ints) -> UOp:
    """The result of `others_product` by multiplications alone: a tree of products of pairs, then back down, each node
    multiplied by its sibling.
    """
    order = [*[i for i in range(len(x.shape)) if i not in axes], *axes]
    lead, along = [x.shape[i] for i in order[: -len(axes)]], [x.shape[i] for i in order[-len(axes) :]]
    n, rest = product(along), product(lead)
    size = 1 << (most(n) - 1).bit_length() if most(n) else 0
    margin = ((0, 0), (0, size - n))
    p = pad(reshape(permute(x, order), (rest, n)), margin)
    if size != n:
        inside = pad(spread(const(x.dtype, 1), (rest, n)), margin)
        p = p + (1.0 - inside)
    levels = []
    while p.shape[1] > 1:
        pairs = reshape(p, (rest, p.shape[1] // 2, 2))
        levels.append(pairs)
        first, second = (shrink(pairs, ((0, rest), (0, pairs.shape[1]), (i, i + 1))) for i in (0, 1))
        p = reshape(first * second, pairs.shape[:2])
    others = spread(const(x.dtype, 1), p.shape)
    for pairs in reversed(levels):
        above = expand(reshape(others, (*pairs.shape[:2], 1)), pairs.shape)
        others = reshape(above * flip(pairs, (2,)), (rest, pairs.shape[1] * 2))
    others = shrink(others, ((0, rest), (0, n)))
    return permute(reshape(others, (*lead, *along)), _inverse(order))


# -- indexed reads and writes ----------------------------------------------------------------------------------------


def gathered(g: UOp, x: UOp, index: UOp, axis: int) -> UOp:
    """Add every element of `g` where it was read: one deterministic SCATTER_ADD of rows.

    Axes along which the index only repeats and which are read whole form the row (an embedding's width); the others
    are linearised with the index into the row's number.
    """
    shape = index.shape
    g = spread(g, shape)
    if (found := _in_order(g, x, index, axis)) is not None:
        return found
    repeats = index.op is Op.EXPAND
    row = [
        i
        for i, n in enumerate(x.shape)
        if i != axis and n == shape[i] and (n == 1 or (repeats and index.src[0].shape[i] == 1))
    ]
    outer = [i for i in range(len(x.shape)) if i != axis and i not in row]
    if repeats and row:  # before it was repeated along those axes
        index = expand(index.src[0], tuple([1 if i in row else n for i, n in enumerate(shape)]))
    lead = [*outer, axis]
    counts = [shape[i] for i in lead]
    rows = reshape(permute(index, [*lead, *row]), tuple(counts))
    # The number of the row: coordinates along `outer`, then the index itself.
    if outer:
        rows = _linear(rows, [x.shape[i] for i in lead])
    n, d = math.prod(counts), math.prod([x.shape[i] for i in row])
    height = math.prod([x.shape[i] for i in lead])
    value = reshape(permute(g, [*lead, *row]), (n, d))
    total = UOp(Op.SCATTER_ADD, g.dtype, (reshape(rows, (n,)), value), (height,))
    order = [*lead, *row]
    return permute(reshape(total, tuple([x.shape[i] for i in order])), _inverse(order))


def _in_order(g: UOp, x: UOp, index: UOp, axis: int) -> UOp | None:
    """The same for places along one axis that rise and follow from sizes alone, as those of windows and of images in
    another size do: each element has those few of `g` that stand together where it was read. None for other places.
    """
    n, m = x.shape[axis], index.shape[axis]
    row = index.src[0] if index.op is Op.EXPAND else index
    if row.size != m or g.size * n != x.size * m or not isinstance(n * m, int) or not 0 < n * m <= _COMPARED:
        return None
    row = reshape(row, (m,))
    values: dict[UOp, Array] = {}
    for u in toposort(row):
        if u.op not in _ROW:
            return None
        src = [values[s] for s in u.src]
        values[u] = MEANINGS[u.op](*src) if u.op in ALU else MEANINGS[u.op](u, src, np.int64)
    places = values[row]
    if places[0] < 0 or places[-1] >= n or (np.diff(places) < 0).any() or np.bincount(places).max() > _TOGETHER:
        return None
    before = (broadcast(row, (n, m)) < numbered((n, m), 0)).cast(dtypes.int32)
    first, number = reduce_node(before, Op.ADD, (1,), False), broadcast(iota(n), (n,))
    found = [
        picked(g, axis, take_rows(row, first + k).eq(number).where(first + k, -1))
        for k in range(np.bincount(places).max())
    ]
    return functools.reduce(operator.add, found)


def _linear(index: UOp, sizes: list[int]) -> UOp:
    """Row numbers from an index over the last axis; -1 (which SCATTER_ADD ignores) where it is out of range."""
    shape, last, flat = index.shape, sizes[-1], index
    stride = last
    for i in reversed(range(len(shape) - 1)):
        flat = flat + expand(iota(shape[i], i, len(shape)) * stride, shape)
        stride *= sizes[i]
    if index.vmin is not None and index.vmax is not None and index.vmin >= 0 and index.vmax < last:
        return flat
    return ((index >= 0) & (index < last)).where(flat, -1)


def scattered(g: UOp, index: UOp, value: UOp, y: UOp) -> UOp:
    """Read back the row that each value was added to; rows that were ignored read zero."""
    g = spread(g, y.shape)
    column = expand(reshape(index, (index.shape[0], 1)), value.shape)
    return UOp(Op.GATHER, g.dtype, (g, column), 0)


# -- custom derivatives -------------------------------------------------------------------------------------------


def nothing(x: UOp) -> UOp:
    """Zero everywhere."""
    return const(x.dtype, 0)


def standardized(g: UOp, y: UOp, r: UOp, axes: Ints) -> UOp:
    """The adjoint of y = (x - mean) * r with r = 1 / sqrt(variance + eps): r * (g - mean(g) - y * mean(g * y)), means
    over `axes`.

    Ioffe and Szegedy, "Batch Normalization" (2015), section 3, simplified.
    """
    if not g.shape:
        g = spread(g, y.shape)
    share = reciprocal(y.dtype, [y.shape[a] for a in axes])
    mean = reduce_axis(g, Op.ADD, axes) * share
    along = reduce_axis(g * y, Op.ADD, axes) * share
    return (g - expand(mean, y.shape) - y * expand(along, y.shape)) * expand(r, y.shape)


# -- tangents that need thought: rules of `forward.upat` --------------------------------------------------------------


def at_first(g: UOp, x: UOp, y: UOp, axes: Ints) -> UOp:
    """The tangent of the first of the largest along `axes`."""
    place, chosen = first_of(x, y, axes)
    hit = place.eq(expand(chosen, x.shape))
    return reshape(reduce_axis(_keep(hit, g), Op.ADD, axes), y.shape)


def reduced_tangent(g: UOp, x: UOp, y: UOp) -> UOp:
    """Max and min: the mean of `g` over the ties. Product: each factor's tangent times the product of the others."""
    op, axes = y.arg
    if op is Op.MUL:
        return reduce_axis(g * others_product(x, axes), Op.ADD, axes)
    hit = x.eq(expand(y, x.shape))
    ties = reduce_axis(hit.cast(g.dtype), Op.ADD, axes)
    return reduce_axis(_keep(hit, g), Op.ADD, axes) / ties
