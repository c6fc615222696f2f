"""Long reductions for few results in two stages, where one stage would leave most of the device idle; and
matrix-vector products that are read in pieces as one for each, with its rows alone."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any

from anneal.rewrite import answered, matched_axes, rebuild, unchanged, unfolded
from anneal.schedule.fusion import REORDER, CostModel, base, consumers_of, is_vector_product
from anneal.schedule.passes.early_helpers import UNMOVED, is_product
from anneal.schedule.passes.vocabulary import along, kept, shaped, spread, summed
from anneal.uop import ALU, SYMBOLIC, Nodes, Op, Src, UOp
from anneal.uop.sizes import symbolic_arg

_TILE = 64 * 128  # results of a product that a workgroup computes
_COLUMNS = 128  # neighbouring columns that a workgroup sums
_LEAST_DEPTH = 128  # elements that one partial result of a product sums
_LONG_DEPTH = 512  # ... where there are more pieces than the device runs at once
_ROUNDS = 3
_ALONE_DEPTH = 4096  # ... where each multiprocessor has a workgroup as it is
_LEAST_ROWS = 128  # ... of a sum over columns
_LEAST_RUN = 4096  # ... of a sum of neighbours in memory
_RUN = 64  # elements that one thread sums of each of several arrays
_SUMS = 3  # fewer whole sums are done one by one
_LONG_SEGMENTS = 1024  # with fewer elements segments stay whole
_SEGMENT_PART = 64  # elements in all for each part of a segment: some segments may be much longer than the mean
_MOST_PARTS = 32
_THREADS = 64  # of a workgroup
_WORTH = {"product": 1024, "columns": 4096, "run": 1 << 16}  # shorter reductions stay whole: a launch costs more


def split_reduces(sink: UOp, order: Nodes, cost_model: CostModel) -> UOp:
    """The graph with the reductions split that would not fill `cost_model.parallel` workgroups; all as it is if
    that is 0.

        sum over k of x[k, n]   ->  sum over s of kept(sum over j of x[s*J + j, n])
        sum(x) + sum(y) + ...   ->  sum of kept(concatenation of partial sums of x, of y, ...)
        sums of segments        ->  sums over the parts of each of kept(sums of shorter segments)

    The partial results go to memory, and a second kernel reduces them; what follows joins that one. The order of a sum
    is fixed by its shape alone, so it stays deterministic.
    """
    if not cost_model.parallel:
        return sink
    joint = _joint_sums(order)
    pieces = {u: n for u in order if u.op in _LONG and (n := _LONG[u.op](u, cost_model)) > 1}
    if not joint and not pieces:
        return sink
    new, above = unchanged([*order, sink], {*joint, *pieces})

    def visit(u: UOp, src: Src) -> UOp:
        if (terms := joint.get(u)) is not None:
            return _sum_of_all([new[b] for b in terms[0]], [new[r] for r in terms[1]], cost_model)
        v = unfolded(u, src)
        if u in pieces:
            return (_in_two_stages if u.op is Op.REDUCE_AXIS else _in_short_segments)(v, pieces[u])
        return v

    return rebuild(sink, visit, new, above)


def _pieces(u: UOp, cost_model: CostModel) -> int:
    """The number of partial results for each result of a reduction."""
    body, axes = u.src[0], u.arg[1]
    if SYMBOLIC.seen and symbolic_arg(tuple([body.shape[a] for a in axes])):
        return 1  # a sum is cut where its shape alone says so
    depth: int = math.prod([body.shape[a] for a in axes])
    if depth < min(_WORTH.values()) or not u.size:
        return 1
    if is_product(body):
        kind, least, groups = "product", _LEAST_DEPTH, -(-u.size // _TILE)
    elif all(n == 1 or a in axes for a, n in enumerate(body.shape) if a > min(axes)):
        kind, least, groups = "run", _LEAST_RUN, u.size
    else:
        kind, least, groups = "columns", _LEAST_ROWS, -(-u.size // _COLUMNS)
    if depth < _WORTH[kind]:
        return 1
    if 2 * groups > cost_model.parallel:
        # a product in one round of workgroups, or in little more, leaves a quarter of the device idle
        long = kind == "product" and depth >= _ALONE_DEPTH and not _is_narrow(body)
        some = long and 2 * groups <= _ROUNDS * cost_model.parallel
        return _many_pieces(groups, depth, cost_model) if some else 1
    if kind == "product":
        return _product_pieces(groups, depth, cost_model)
    return min(-(-cost_model.parallel // groups), depth // least)


def _product_pieces(tiles: int, depth: int, cost_model: CostModel) -> int:
    """Pieces of a product: as many workgroups as `parallel` at once, or a few times that of a long sum each.

    A device runs several workgroups of a product at once; a last round that does not fill it costs as much as a full
    one, so more rounds are better as long as a piece still sums enough to be worth its partial result. One workgroup
    alone reaches four fifths of a multiprocessor's speed, which is hard to beat unless the sum is long.
    """
    if 4 * tiles >= cost_model.parallel and depth < _ALONE_DEPTH:
        return 1
    few = min(-(-cost_model.parallel // tiles), depth // _LEAST_DEPTH)
    return max(few, _many_pieces(tiles, depth, cost_model))


def _many_pieces(tiles: int, depth: int, cost_model: CostModel) -> int:
    return min(-(-_ROUNDS * cost_model.parallel // tiles), depth // _LONG_DEPTH)


def _is_narrow(body: UOp) -> bool:
    """True for a product of factors of 16 bits, whose sums have other pieces (`narrow_products.py`)."""
    return any(base(u, UNMOVED).dtype.itemsize <= 2 for u in base(body, UNMOVED).src)


def _in_two_stages(u: UOp, pieces: int) -> UOp:
    """`u` as a reduction over the leading digits of its axes, of what the reduction over the other digits keeps."""
    body, (op, axes) = u.src[0], u.arg
    shape = []
    outer = []  # the new axes of the second stage
    inner = []
    for a, n in enumerate(body.shape):
        if a not in axes:
            shape.append(n)
            continue
        # Leading axes are taken whole while they fit, then the largest part of the next that divides it.
        part = next(d for d in range(min(pieces, n), 0, -1) if n % d == 0)
        pieces = pieces // part if part == n else 1
        outer.append(len(shape))
        inner.append(len(shape) + 1)
        shape += (part, n // part)
    if all(shape[a] == 1 for a in outer) or all(shape[a] == 1 for a in inner):
        return u
    first = shaped(body, *shape).then(Op.REDUCE_AXIS, (op, tuple(inner)))
    order = (*outer, *[a for a in range(len(shape)) if a not in outer])
    second = kept(first.then(Op.PERMUTE, order)).then(Op.REDUCE_AXIS, (op, tuple(range(len(outer)))))
    return shaped(second, *u.shape)


def _segment_pieces(u: UOp, cost_model: CostModel) -> int:
    """The number of parts for each segment: fewer the more sums there are, one to a thread."""
    elements = u.src[1].size
    if elements < _LONG_SEGMENTS or not u.size or symbolic_arg((*u.shape, elements)):
        return 1
    return min(_MOST_PARTS, elements // _SEGMENT_PART, cost_model.parallel * _THREADS * 8 // u.size)


def _in_short_segments(u: UOp, pieces: int) -> UOp:
    """A sum of segments with each segment cut into `pieces`, which threads of their own sum."""
    value, order, starts = u.src
    rows = u.shape[0]
    table = (rows, pieces)

    def column(first: int) -> UOp:
        return spread(starts.then(Op.SHRINK, ((first, first + rows),)), table, 1)

    shifted = (column(1) - column(0)) * along(table, 1)
    cuts = column(0) + shifted // pieces
    count = rows * pieces
    end = starts.then(Op.SHRINK, ((rows, rows + 1),)).then(Op.PAD, ((count, 0),))
    bounds = shaped(cuts, count).then(Op.PAD, ((0, 1),)) + end
    return summed(shaped(u.replace(src=(value, order, bounds)), *table, *u.shape[1:]), 1)


_LONG = {Op.REDUCE_AXIS: _pieces, Op.SEGMENT_SUM: _segment_pieces}


# -- sums of sums -----------------------------------------------------------------------------------------------------


def _joint_sums(order: Nodes) -> dict[UOp, tuple[list[UOp], list[UOp]]]:
    """Numbers that add up whole sums, as the norm of many gradients does: what the sums sum, and the other terms."""
    uses = Counter([s for u in order for s in u.src])
    adds = [u for u in order if u.op is Op.ADD and not u.shape and u.dtype.is_float and u.dtype.bits >= 32]
    inner = {s for u in adds for s in u.src if s.op is Op.ADD and uses[s] == 1}
    found = {}
    for u in adds:
        if u in inner:
            continue
        bodies = {}
        rest = []
        stack = [u.src[1], u.src[0]]
        while stack:
            t = stack.pop()
            if t in inner:
                stack += (t.src[1], t.src[0])
            elif (body := _summed_whole(t)) is not None and t not in bodies:
                bodies[t] = body
            else:
                rest.append(t)
        if len(bodies) >= _SUMS:
            found[u] = list(bodies.values()), rest
    return found


def _summed_whole(u: UOp) -> UOp | None:
    """The value of whose elements `u`, of shape (), is the sum."""
    u = base(u, (Op.RESHAPE,))
    if u.op is not Op.REDUCE_AXIS or u.arg[0] is not Op.ADD or symbolic_arg(u.src[0].shape):
        return None
    return u.src[0] if u.src[0].size else None


def _sum_of_all(bodies: Nodes, rest: Nodes, cost_model: CostModel) -> UOp:
    """A single sum over partial sums of all of `bodies`, plus `rest`."""
    parts = [_partial_sums(body) for body in bodies]
    rows = []
    step = max(1, cost_model.member_buffers - 2)
    length = max(sum(p.size for p in parts[i : i + step]) for i in range(0, len(parts), step))
    for i in range(0, len(parts), step):
        chunk = parts[i : i + step]
        *ends, size = itertools.accumulate([p.size for p in chunk])
        pieces = [p.then(Op.PAD, ((end - p.size, size - end),)) for p, end in zip(chunk, (*ends, size), strict=True)]
        row = kept(functools.reduce(operator.add, pieces))
        rows.append(row if size == length else row.then(Op.PAD, ((0, length - size),)))
    return sum(rest, summed(functools.reduce(operator.add, rows), 0))


def _partial_sums(body: UOp) -> UOp:
    """Sums of up to _RUN elements each that lie equally far apart, so that neighbours read neighbours."""
    depth = next(n for n in range(min(_RUN, body.size), 0, -1) if body.size % n == 0 and body.size >= n * 32 or n == 1)
    return summed(shaped(body, depth, body.size // depth), 0)


# -- contractions that are read in pieces ------------------------------------------------------------------------------


Bounds = tuple[tuple[int, int], ...]
_Part = tuple[UOp, Bounds]


def split_contractions(sink: UOp, order: Nodes, cost_model: CostModel) -> UOp:
    """The graph with such products in pieces, where `cost_model` computes rows again.

        SHRINK of ... x @ W + b  ->  x @ (SHRINK of W) + (SHRINK of b)

    Queries, keys and values come from one product, and each goes its own way: keys and values straight into the memory
    that keeps them. The pieces share a launch again (`groups.py`), as do products that were written one by one.
    """
    most = cost_model.repeated_rows
    if not most:
        return sink
    products = [u for u in order if u.op is Op.REDUCE_AXIS and u.src[0].size <= most and is_vector_product(u)]
    if not products:
        return sink
    consumers = consumers_of([*order, sink])
    found = {piece for u in products for piece in _shrinks(u, consumers)}
    if not found:
        return sink
    known, above = unchanged([*order, sink], found)
    return rebuild(
        sink, lambda u, src: answered((src[0], u.arg), _part, {}) if u in found else unfolded(u, src), known, above
    )


def _shrinks(product: UOp, consumers: dict[UOp, list[UOp]]) -> Nodes:
    """The SHRINKs through which alone the results of a product are read, if they read no element twice."""
    last = product
    while (
        len(consumers[last]) == 1 and consumers[last][0].size == last.size and consumers[last][0].op in (ALU | REORDER)
    ):
        last = consumers[last][0]
    out = []
    for c in consumers[last]:
        while c.op in REORDER and len(consumers[c]) == 1:
            c = consumers[c][0]
        if c.op is not Op.SHRINK:
            return []
        out.append(c)
    return out if len(out) > 1 and sum(c.size for c in out) <= last.size else []


def _part(part: _Part) -> Generator[_Part, Any, UOp]:
    """A part of a value, cut out as near to the inputs as possible."""
    u, at = part
    below = _below(u, at)
    if not below:
        whole = all(b == 0 and e == n for (b, e), n in zip(at, u.shape, strict=True))
        return u if whole else u.then(Op.SHRINK, at)
    src = []
    for s, inner in zip(u.src, below, strict=True):
        src.append(s if inner is None else (yield s, inner))
    shape = tuple([e - b for b, e in at])
    return UOp(u.op, u.dtype, tuple(src), shape if u.op is Op.RESHAPE or u.op is Op.EXPAND else u.arg, u.tag)


def _below(u: UOp, at: Bounds) -> list[Bounds | None]:
    """The parts of u's sources that its part `at` is made of, None for a scalar; nothing if that is no such part."""
    if u.op in ALU:
        return [at if s.shape else None for s in u.src]
    shape = u.src[0].shape if u.src else ()
    if u.op is Op.PERMUTE:
        return [tuple([at[u.arg.index(axis)] for axis in range(len(at))])]
    if u.op is Op.EXPAND:
        return [tuple([(0, 1) if n == 1 else b for n, b in zip(shape, at, strict=True)])]
    if u.op is Op.REDUCE_AXIS:
        return [tuple([(0, n) if a in u.arg[1] else at[a] for a, n in enumerate(shape)])]
    reshaped = _reshaped(at, u.shape, shape) if u.op is Op.RESHAPE else None
    return [] if reshaped is None else [reshaped]


def _reshaped(at: Bounds, shape: Sequence[int], other: Sequence[int]) -> Bounds | None:
    """`at`, bounds in `shape`, as bounds in the shape `other` of the same elements; None if these are no box there."""
    if not all(isinstance(n, int) and n for n in (*shape, *other)):
        return None
    out = []
    for mine, its in matched_axes(shape, other):
        if not mine:
            out.append((0, 1))
            continue
        # Within the axes that belong together only the first may be cut: what is cut out is one run of neighbours.
        if any(at[k] != (0, shape[k]) for k in mine[1:]):
            return None
        begin, end = at[mine[0]]
        step, steps = (math.prod(x[k] for k in axes[1:]) for x, axes in ((shape, mine), (other, its)))
        if begin * step % steps or end * step % steps:
            return None
        out += [(begin * step // steps, end * step // steps), *[(0, other[k]) for k in its[1:]]]
    return tuple(out)
