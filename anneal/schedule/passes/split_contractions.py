"""Split contractions: a matrix-vector product that is read in pieces becomes one for each, with its rows alone."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

from anneal.rewrite import answered, matched_axes, rebuild, unchanged, unfolded
from anneal.schedule.fusion import CostModel, consumers_of, is_vector_product
from anneal.uop import ALU, Nodes, Op, UOp

Bounds = tuple[tuple[int, int], ...]
_Part = tuple[UOp, Bounds]

_VIEWS = frozenset((Op.RESHAPE, Op.PERMUTE))


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
    found = {piece for u in products for piece in _pieces(u, consumers)}
    if not found:
        return sink
    known, above = unchanged([*order, sink], found)
    return rebuild(
        sink, lambda u, src: answered((src[0], u.arg), _part, {}) if u in found else unfolded(u, src), known, above
    )


def _pieces(product: UOp, consumers: dict[UOp, list[UOp]]) -> Nodes:
    """The SHRINKs through which alone the results of a product are read, if they read no element twice."""
    last = product
    while (
        len(consumers[last]) == 1 and consumers[last][0].size == last.size and consumers[last][0].op in (ALU | _VIEWS)
    ):
        last = consumers[last][0]
    out = []
    for c in consumers[last]:
        while c.op in _VIEWS and len(consumers[c]) == 1:
            c = consumers[c][0]
        if c.op is not Op.SHRINK:
            return []
        out.append(c)
    return out if len(out) > 1 and sum(c.size for c in out) <= last.size else []


def _part(part: _Part) -> Generator[_Part, Any, UOp]:
    """A part of a value, cut out as near to the inputs as that goes."""
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
