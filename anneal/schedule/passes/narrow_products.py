"""Narrow products: those of float32 and bfloat16 from float16 factors, where the device has matrices of such."""

from __future__ import annotations

import math

from anneal.frozen import frozen
from anneal.rewrite import rebuild, unchanged, unfolded
from anneal.schedule.fusion import CostModel, base, is_made_of, is_score, long_axes, sums_products
from anneal.schedule.passes.vocabulary import expanded, numbers, repeated, shaped
from anneal.uop import ALU, BY_MATRICES, MOVEMENT, Ints, Known, Nodes, Op, Src, UOp, const, dtypes, toposort

_I32, _F16, _F32 = dtypes.int32, dtypes.float16, dtypes.float32
_TILE = 64  # rows and columns of the smallest tile of matrices
_RAGGED = 256  # ... from which on tiles need not divide them: less repays no copies of the other factor
_STEP = 32  # its depth, which must divide that of the product
_FLUSHED = 512  # terms of a sum that the hardware sums, of float32 factors
_KEPT = 1 << 30  # bytes of such sums that may be kept; beyond, they have more terms
_WORTH = 1 << 26  # multiplications below which two more kernels cost more than they save
_LONG = 1 << 18  # scores of a head from which on chains of bfloat16 are as fast as stored scores of float32
_TOP = 14  # the power of two below the largest of a row
_LARGEST = 126  # the largest power of two to scale by, such that its inverse is a number, too
_BIAS, _MANTISSA = 127, 23
_SIZE, _INFINITE = 0x7FFFFFFF, 0x7F800000


def narrow_products(sink: UOp, order: Nodes, cost_model: CostModel) -> UOp:
    """The graph with the products that matrices of float16 shall compute, as `cost_model` says.

        sum of a * b  ->  2 ** k * sum of kept(a * 2 ** i) * kept(b * 2 ** j), with i by rows and j by columns

    Tensor cores multiply float16 numbers. Scaled by a power of two, such that the largest of its row is between 2 ** 14
    and 2 ** 15, a bfloat16 number is one; what is lost is less than 2 ** -39 of that largest. A float32 number is the
    sum of two, its upper and its lower half, and the product is three: lower by upper, upper by lower, upper by upper
    ("high"); or its upper half alone ("medium"). The halves of a row stand in turns in memory, so that the three are
    one sum. It goes to memory after each 512 terms or fewer, and those are summed in float32, since the hardware cuts
    off what a longer sum would round. Numbers that are not finite are in the last of the three alone: what they make is
    as in float32.

    Attention's products of bfloat16 stay in their axes, so that they still are chains (`fusion/chains.py`): each value
    has one copy in float16, scaled by its rows, and what a chain computes is scaled by the largest of its row, which is
    one more statistic of the chain.
    """
    if not cost_model.matrices:
        return sink
    sink, order = _cast_first(sink, order)
    chained = _chained(order, cost_model.matrix_bytes)
    products = [u for u in order if u not in chained and _is_large(u)]
    found = {u: how for u in products if (how := _how(u, cost_model.float32_products)) is not None}
    factors = [(f, u in found) for u in products for f in u.src[0].src if _alone(f).size < f.size]
    kept = {x for f, narrowed in factors if (x := _value(f)).size < f.size and _is_kept(x, narrowed)}
    if not found and not kept and not chained:
        return sink
    known, above = unchanged([*order, sink], {*found, *kept, *chained})

    def visit(u: UOp, src: Src) -> UOp:
        v = unfolded(u, src)
        if u in found:
            v = _narrow(v, *found[u])
        elif u in chained:
            v = _in_place(v, chained[u])
        return v.then(Op.CONTIGUOUS) if u in kept else v

    return rebuild(sink, visit, known, above)


@frozen
class _Axes:
    """The axes of a product's space: those of both factors, of the left one, of the right one, and summed ones."""

    batch: Ints
    rows: Ints
    columns: Ints
    depth: Ints
    shape: Ints

    def size(self, axes: Ints) -> int:
        return math.prod([self.shape[a] for a in axes])


def _cast_first(sink: UOp, order: Nodes) -> tuple[UOp, Nodes]:
    """The graph, and its order, with factors that are cast after they are repeated cast before."""
    casts = [f.src[0] for u in order if _is_sum(u) for f in u.src[0].src if f.op is Op.CAST]
    late = {c for c in casts if c.op is Op.CAST and c.src[0].op is Op.EXPAND}
    if not late:
        return sink, order
    known, above = unchanged([*order, sink], late)

    def visit(u: UOp, src: Src) -> UOp:
        if u not in late:
            return unfolded(u, src)
        shapes, x = [u.shape], src[0].src[0]
        while x.op is Op.RESHAPE:
            shapes.append(x.shape)
            x = x.src[0]
        x = x.cast(u.dtype)
        for shape in reversed(shapes[1:]):
            x = shaped(x, *shape)
        return x.then(Op.EXPAND, u.shape)

    sink = rebuild(sink, visit, known, above)
    return sink, toposort(sink)


def _is_sum(u: UOp) -> bool:
    """Is a node a sum of enough products to be worth more kernels?"""
    if not sums_products(u) or u.dtype is not _F32:
        return False
    shape = u.src[0].shape
    if any(f.shape != shape for f in u.src[0].src):
        return False  # a number is no factor
    return all(isinstance(n, int) for n in shape) and math.prod(shape) >= _WORTH


def _is_large(u: UOp) -> bool:
    """Is a node such a sum, and not one of attention's, which are one of several each, or read scores: its chains stay
    as they are (`fusion/chains.py`)."""
    return _is_sum(u) and not _axes(u).batch and not any(_scores_of(_value(f)) for f in u.src[0].src)


def _scores_of(x: UOp) -> Nodes:
    """The scores that a factor is elementwise work on: a chain may compute them again and never store them. None where
    another product is in it, too (the gradient of a residual stream, which a narrow head began)."""
    stack, seen, found = [x], {x}, []
    while stack:
        u = stack.pop()
        if is_score(u):
            found.append(u)
        elif u.op is Op.REDUCE_AXIS and u.src[0].op is Op.MUL:
            return []
        elif u.op in ALU or u.op in MOVEMENT:
            new = [s for s in u.src if s.size == x.size and s not in seen]
            seen.update(new)
            stack += new
    return found


def _chained(order: Nodes, least: int) -> dict[UOp, tuple[int | None, ...]]:
    """Attention's products of bfloat16 values whose scores have `least` bytes; for each factor the axis of the product
    along which its value has one scale, None for what is elementwise work on scores.

    That axis is the one that scores sum over, and which a product with work keeps: so a value has the same scales in
    both.
    """
    out = {}
    for u in order if least else ():
        if not _is_sum(u) or len(u.arg[1]) != 1:
            continue
        sides = [_alone(f) for f in u.src[0].src]
        found = [_scores_of(_value(f)) for f in u.src[0].src]
        work = found.index(max(found, key=len))
        value, scores = sides[1 - work], sides[work]
        kept = [a for a, n in enumerate(value.shape) if n != 1 and scores.shape[a] == 1]
        if scores.size * _F32.itemsize < least or bool(found[0]) == bool(found[1]) or len(kept) != 1:
            continue
        if any(axes.size(axes.rows + axes.columns) < _LONG for axes in map(_axes, found[work])):
            continue
        values = [value, *[f for x in found[work] for f in x.src[0].src]]
        if all(is_made_of(f, dtypes.bfloat16) for f in values):
            out.update({x: x.arg[1] * 2 for x in found[work]})
            out[u] = (None, kept[0]) if work == 0 else (kept[0], None)
    return out


def _base(x: UOp) -> tuple[UOp, list[int]]:
    """The value that `x` shows with its axes in another order, and axes of size 1 elsewhere; and for each axis of the
    value that of `x`, -1 for those of size 1."""
    places = [a if n != 1 else -1 for a, n in enumerate(x.shape)]
    while x.op is Op.PERMUTE or x.op is Op.RESHAPE and long_axes(x) == long_axes(x.src[0]):
        inner = x.src[0]
        if x.op is Op.PERMUTE:
            places = [places[x.arg.index(a)] for a in range(len(x.arg))]
        else:
            wide = iter([p for p in places if p >= 0])
            places = [next(wide) if n != 1 else -1 for n in inner.shape]
        x = inner
    return x, places


def _shown(x: UOp, places: list[int], rank: int) -> UOp:
    """`x` with its axes at their `places` among `rank` axes, of which others have size 1."""
    kept = [p for p in places if p >= 0]
    wide = sorted(kept)
    x = shaped(x, *[n for n, p in zip(x.shape, places, strict=True) if p >= 0])
    order = tuple([kept.index(p) for p in wide])
    if order != tuple(range(len(order))):
        x = x.then(Op.PERMUTE, order)
    sizes = dict(zip(wide, x.shape, strict=True))
    return shaped(x, *[sizes.get(a, 1) for a in range(rank)])


def _how(u: UOp, precision: str) -> tuple[_Axes, bool] | None:
    """The axes of a product that is to be narrow, and whether its factors are halved; None for other products."""
    kinds = [_value(f).dtype for f in u.src[0].src]
    if kinds == [_F16, _F16] or any(k is not dtypes.bfloat16 for k in kinds) and precision == "highest":
        return None
    axes = _axes(u)
    depth = axes.size(axes.depth)
    if not (axes.rows and axes.columns and axes.depth) or depth != axes.size(u.arg[1]) or depth % _STEP:
        return None
    if any(n % _TILE and n < _RAGGED for n in (axes.size(axes.rows), axes.size(axes.columns))):
        return None
    return axes, precision == "high" and any(k is _F32 for k in kinds)


def _value(factor: UOp) -> UOp:
    """The value below a factor, in the dtype that it is a cast of."""
    while factor.op in MOVEMENT or factor.op is Op.CAST and factor.src[0].dtype.is_narrow:
        factor = factor.src[0]
    return factor


def _is_kept(x: UOp, is_narrowed: bool) -> bool:
    """Is a factor's value to be stored? One that is made narrow is read for its largest, too; one of float16 is read by
    every workgroup of a row or a column, so that a cast is stored, of a parameter, say."""
    if not is_narrowed and x.dtype is not _F16:
        return False
    while x.op in MOVEMENT or is_narrowed and x.op is Op.CAST:
        x = x.src[0]
    return x.op not in (Op.BUFFER, Op.PARAM, Op.CONTIGUOUS)


def _alone(factor: UOp) -> UOp:
    """A factor before it is repeated, in float32."""
    x = factor.src[0] if factor.op is Op.CAST else factor
    return (x.src[0] if x.op is Op.EXPAND else x).cast(_F32)


# Kinds of axes: (summed, an axis of the left factor, an axis of the right factor) of batch, rows, columns and depth.
_KINDS = ((False, True, True), (False, True, False), (False, False, True), (True, True, True))


def _axes(u: UOp) -> _Axes:
    """The axes of a sum of products, as far as they are of these kinds."""
    shape = u.src[0].shape
    left, right = [_alone(f).shape for f in u.src[0].src]
    kinds = [(a in u.arg[1], left[a] == n, right[a] == n) for a, n in enumerate(shape)]
    batch, rows, columns, depth = [
        tuple([a for a, n in enumerate(shape) if n != 1 and kinds[a] == kind]) for kind in _KINDS
    ]
    return _Axes(batch, rows, columns, depth, shape)


# -- the product ------------------------------------------------------------------------------------------------------


def _narrow(u: UOp, axes: _Axes, halved: bool) -> UOp:
    """The product `u` from float16 factors."""
    b, m, n, k = (axes.size(a) for a in (axes.batch, axes.rows, axes.columns, axes.depth))
    pieces = _pieces(b * m * n, k) if halved else 1
    parts = 3 if halved else 1
    deep = k // pieces * parts
    sides = []
    for factor, own, first in zip(u.src[0].src, (axes.rows, axes.columns), (0, 1), strict=True):
        alone = _alone(factor)
        down = _is_down(alone, axes, own)
        x = _matrix(alone, axes, own, down)
        power = _power(x, 1 if down else 2)
        if halved:
            kept = _halves(x, power, pieces, first, down).then(Op.CONTIGUOUS)
        else:
            kept = (x * expanded(_to_the(power), x.shape)).cast(_F16).then(Op.CONTIGUOUS)
        size = axes.size(own)
        if down:
            kept = shaped(kept, b, pieces, deep, size).then(Op.PERMUTE, (0, 3, 1, 2))
        sides.append((kept, power))
    (left, up), (right, across) = sides
    space = (b, m, n, pieces, deep)
    a = repeated(left, (b, m, 1, pieces, deep), space).cast(_F32)
    c = repeated(right, (b, 1, n, pieces, deep), space).cast(_F32)
    total = (a * c).then(Op.REDUCE_AXIS, (Op.ADD, (4,)), BY_MATRICES)
    if pieces > 1:
        apart = shaped(total, *space[:4]).then(Op.PERMUTE, (3, 0, 1, 2))
        total = apart.then(Op.CONTIGUOUS).then(Op.REDUCE_AXIS, (Op.ADD, (0,)))
    whole = (b, m, n)
    powers = repeated(up, (b, m, 1), whole) + repeated(across, (b, 1, n), whole)
    return _put_back(_unscaled(shaped(total, *whole), powers), axes)


def _in_place(u: UOp, axes: tuple[int | None, ...]) -> UOp:
    """The product `u` of attention with values scaled over these `axes` of it, and work on scores over the axis that is
    summed; work is not stored. Where a value's scales are summed over, the work is divided by them.

    Powers are even, so that a scale is a square: what is multiplied by its root twice is neither too large nor too
    small in between.
    """
    shape, (depth,) = u.src[0].shape, u.arg[1]
    sides = [u, u]
    outer = []
    inner: list[UOp] = []
    for n in sorted((0, 1), key=lambda n: axes[n] is None):
        alone, axis = _alone(u.src[0].src[n]), axes[n]
        if axis is None:
            for root in inner * 2:
                alone = alone * expanded(root, alone.shape)
            half = _half(alone, depth)
            outer.append(_to_the(const(_I32, 0) - half))
            up = expanded(_to_the(half), alone.shape)
            x = (alone * up * up).cast(_F16)
        else:
            base, places = _base(alone)
            half = _half(base, places.index(axis))
            up = expanded(_to_the(half), base.shape)
            x = _shown((base * up * up).cast(_F16).then(Op.CONTIGUOUS), places, len(shape))
            root = _to_the(const(_I32, 0) - _shown(half, places, len(shape)))
            (outer if axis == depth else inner).append(root)
        sides[n] = expanded(x, shape).cast(_F32)
    total = (sides[0] * sides[1]).then(Op.REDUCE_AXIS, u.arg, u.tag)
    for root in outer * 2:
        total = total * expanded(root, total.shape)
    return total


def _half(x: UOp, axis: int) -> UOp:
    """Half the power of two that each row of `x` is multiplied by, with size 1 for `axis`."""
    return (_power(x, axis) >> 1).then(Op.CONTIGUOUS)


def _pieces(results: int, depth: int) -> int:
    """Pieces of a sum: each of 512 terms or fewer, unless they would take too much memory."""
    pieces = depth // max([d for d in range(_STEP, _FLUSHED + 1, _STEP) if depth % d == 0])
    most = max(1, _KEPT // (results * _F32.itemsize))
    return max(d for d in range(1, pieces + 1) if pieces % d == 0 and d <= most)


def _is_down(x: UOp, axes: _Axes, own: Ints) -> bool:
    """Do the sums run down the columns of a factor's memory, as far as its axes tell?"""
    down = axes.depth[-1] < own[-1]
    x = base(x, (Op.RESHAPE, Op.CAST))
    if x.op is Op.PERMUTE:
        turned = [a for a in x.arg if x.src[0].shape[a] != 1]
        down ^= len(turned) > 1 and turned[-1] < turned[0]
    return down


def _matrix(x: UOp, axes: _Axes, own: Ints, down: bool) -> UOp:
    """A factor as (batch, its own axes, depth), or as (batch, depth, its own axes), as it lies in memory."""
    parts = (axes.batch, axes.depth, own) if down else (axes.batch, own, axes.depth)
    order = [a for part in parts for a in part]
    rest = [a for a in range(len(axes.shape)) if a not in order]
    return shaped(x.then(Op.PERMUTE, (*order, *rest)), *[axes.size(part) for part in parts])


def _bits(x: UOp) -> UOp:
    """The bits of the size of float32 numbers: in the order of the sizes."""
    return UOp(Op.BITCAST, _I32, (x,)) & _SIZE


def _size(x: UOp) -> UOp:
    """The size of `x`; of a sum that of its terms, since two kernels may round a difference to different numbers."""
    made: Known = {}

    def parts(u: UOp) -> Src:
        return u.src if u.op in (Op.ADD, Op.SUB, Op.MUL, Op.RESHAPE) else u.src[1:] if u.op is Op.WHERE else ()

    for u in toposort(x, sources=parts):
        below = [made[p] for p in parts(u)]
        if u.is_const or u.op is Op.EXP:
            made[u] = const(_F32, abs(u.arg)) if u.is_const else u
        elif not below:
            made[u] = UOp(Op.BITCAST, _F32, (_bits(u),))
        elif u.op is Op.RESHAPE:
            made[u] = shaped(below[0], *u.shape)
        elif u.op is Op.WHERE:
            made[u] = u.src[0].where(*below)
        else:
            made[u] = (Op.MUL if u.op is Op.MUL else Op.ADD)(*below)
    return made[x]


def _power(x: UOp, axis: int) -> UOp:
    """The power of two that each row of a factor is multiplied by, with size 1 for the depth, its `axis`."""
    size = _size(x)
    finite = (size < math.inf).where(size, 0.0)
    most = finite.then(Op.REDUCE_AXIS, (Op.MAX, (axis,)))
    exponent = _bits(most) >> _MANTISSA
    return Op.MIN(const(_I32, _TOP + _BIAS) - exponent, const(_I32, _LARGEST)).then(Op.CONTIGUOUS)


def _to_the(power: UOp) -> UOp:
    """2 ** power, from -126 to 127."""
    shifted = (power + _BIAS) << _MANTISSA
    return UOp(Op.BITCAST, _F32, (shifted,))


def _halves(x: UOp, power: UOp, pieces: int, first: int, down: bool) -> UOp:
    """A factor with its depth in pieces of (3, depth / pieces): of the left one (`first` is 0) the lower halves, the
    upper halves that are finite, the upper halves; of the right one the first two in the other order."""

    def placed(batch: int, own: int, *deep: int) -> Ints:
        return (batch, *deep, own) if down else (batch, own, *deep)

    b, *size = x.shape
    k, m = size if down else reversed(size)
    shape = placed(b, m, pieces, 3, k // pieces)
    wide = repeated(x, placed(b, m, pieces, 1, k // pieces), shape)
    scale = repeated(_to_the(power), placed(b, m, 1, 1, 1), shape)
    turn = repeated(numbers(3), placed(1, 1, 1, 3, 1), shape)
    scaled, zero = wide * scale, const(_F16, 0)
    upper = scaled.cast(_F16)
    lower = (scaled - upper.cast(_F32)).cast(_F16)
    is_lower = turn < 1
    if first:
        is_lower = (turn - 1) * (turn - 1) < 1
    is_cross = turn < 2
    crossed = (_bits(wide) < _INFINITE).where(is_lower.where(lower, upper), zero)
    return is_cross.where(crossed, upper)


def _unscaled(total: UOp, powers: UOp) -> UOp:
    """The sums of scaled factors, divided by both scales: in two steps, as one may be no number."""
    exponent = const(_I32, 0) - powers
    half = exponent >> 1
    return total * _to_the(half) * _to_the(exponent - half)


def _put_back(x: UOp, axes: _Axes) -> UOp:
    """(batch, rows, columns) in the axes of the product, with size 1 for those that were summed."""
    order = (*axes.batch, *axes.rows, *axes.columns)
    rest = tuple([a for a in range(len(axes.shape)) if a not in order])
    spread = shaped(x, *[axes.shape[a] for a in order], *[1] * len(rest))
    back = (*order, *rest)
    return spread.then(Op.PERMUTE, tuple([back.index(a) for a in range(len(back))]))
