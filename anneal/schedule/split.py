"""Long reductions for few results in two stages, where one stage would leave most of the device idle.

    sum over k of x[k, n]  ->  sum over s of kept(sum over j of x[s*J + j, n])

The partial results go to memory, and a second kernel reduces them; what follows joins that one. The order of a sum is
fixed by its shape alone, so it stays deterministic.
"""

from __future__ import annotations

import math

from anneal.schedule.fusion import Policy
from anneal.uop import MOVEMENT, Op, UOp, arena, toposort

__all__ = ["split_reduces"]

_TILE = 64 * 128  # results of a product that a workgroup computes
_COLUMNS = 32  # neighbouring columns that a workgroup sums
_LEAST_DEPTH = 128  # elements that one partial result of a product sums
_LEAST_ROWS = 128  # ... of a sum over columns
_LEAST_RUN = 4096  # ... of a sum of neighbours in memory
_WORTH = {"product": 1024, "columns": 4096, "run": 1 << 16}  # shorter reductions stay whole: a launch costs more


def split_reduces(sink: UOp, policy: Policy) -> UOp:
    """The graph with the reductions split that would not fill `policy.parallel` workgroups; all as it is if that is 0."""
    if not policy.parallel:
        return sink
    new: dict[UOp, UOp] = {}
    a = arena()
    for u in toposort((sink,)):
        src = tuple([new[s] for s in u.src])
        a.phase = u.provenance[0]
        v = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
        if u.op is Op.REDUCE_AXIS and (pieces := _pieces(v, policy)) > 1:
            v = _in_two_stages(v, pieces)
        new[u] = v
    return new[sink]


def _pieces(u: UOp, policy: Policy) -> int:
    """How many partial results each result of a reduction is worth."""
    body, axes = u.src[0], u.arg[1]
    depth: int = math.prod([body.shape[a] for a in axes])
    if depth < min(_WORTH.values()) or not u.size:
        return 1
    if _is_product(body):
        kind, least, groups = "product", _LEAST_DEPTH, -(-u.size // _TILE)
    elif all(n == 1 or a in axes for a, n in enumerate(body.shape) if a > min(axes)):
        kind, least, groups = "run", _LEAST_RUN, u.size
    else:
        kind, least, groups = "columns", _LEAST_ROWS, -(-u.size // _COLUMNS)
    if depth < _WORTH[kind] or groups * 2 > policy.parallel:
        return 1
    return min(-(-policy.parallel // groups), depth // least)


def _is_product(body: UOp) -> bool:
    """Whether the values to sum are products of repeated ones, as in a matrix product or a convolution."""
    while body.op is Op.CAST or body.op in MOVEMENT:
        body = body.src[0]
    return body.op is Op.MUL and all(_is_repeated(s) for s in body.src)


def _is_repeated(u: UOp) -> bool:
    while u.op in MOVEMENT or u.op is Op.CAST:
        if u.op is Op.EXPAND:
            return True
        u = u.src[0]
    return False


def _in_two_stages(u: UOp, pieces: int) -> UOp:
    """`u` as a reduction over the leading digits of its axes, of what the reduction over the other digits keeps."""
    body, (op, axes) = u.src[0], u.arg
    shape: list[int] = []
    outer: list[int] = []  # the new axes of the second stage
    inner: list[int] = []
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
    d = u.dtype
    split = UOp(Op.RESHAPE, d, (body,), tuple(shape))
    first = UOp(Op.REDUCE_AXIS, d, (split,), (op, tuple(inner)))
    order = (*outer, *[a for a in range(len(shape)) if a not in outer])
    kept = UOp(Op.CONTIGUOUS, d, (UOp(Op.PERMUTE, d, (first,), order),))
    second = UOp(Op.REDUCE_AXIS, d, (kept,), (op, tuple(range(len(outer)))))
    return UOp(Op.RESHAPE, d, (second,), u.shape)
