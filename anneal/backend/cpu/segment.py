"""Cut a kernel at constant bounds of predicates: where one says `r < 4`, the ranges 0..3 and 4.. become kernels of
their own.

A concatenation is a sum of padded parts, each predicated; split at the seams, every piece is a plain copy:

    out[r] = (a[r] if r < 4 else 0) + (b[r-4] if not r < 4 else 0)   for r in 0..11
    ->  out[r] = a[r] + 0  for r in 0..3,   out[r+4] = 0 + b[r]  for r in 0..7
"""

from __future__ import annotations

import itertools
import math

from anneal.rewrite import over, rebuild
from anneal.uop import Op, UOp, alu, const, dtypes, toposort

# More pieces than this cost more in calls than the predicates do.
_MOST = 12
# Kernels of fewer elements gain nothing.
_LEAST = 4096


def segments(sink: UOp) -> list[UOp]:
    """Kernels that together do what `sink` does, with predicates on loop ranges decided where constants decide them."""
    order = toposort((sink,))
    if math.prod(u.src[0].arg for u in order if u.op is Op.RANGE) < _LEAST:
        return [sink]
    seams: dict[UOp, set[int]] = {}
    predicates: list[UOp] = [u.src[2] for u in order if u.op is Op.LOAD and len(u.src) == 3]
    predicates += [u.src[0] for u in order if u.op is Op.WHERE]
    for u in toposort(predicates):
        if u.op is not Op.LT:
            continue
        a, b = u.src
        if b.is_const and (found := _range_plus(a)) is not None:
            r, shift = found
            seams.setdefault(r, set()).add(b.arg - shift)
        elif a.is_const and (found := _range_plus(b)) is not None:
            r, shift = found
            seams.setdefault(r, set()).add(a.arg - shift + 1)
    choices: list[list[tuple[UOp, int, int]]] = []
    for r, at in seams.items():
        extent = r.src[0].arg
        inside = sorted(s for s in at if 0 < s < extent)
        if inside:
            bounds = [0, *inside, extent]
            choices.append([(r, lo, hi) for lo, hi in itertools.pairwise(bounds)])
    if not choices or math.prod(len(c) for c in choices) > _MOST:
        return [sink]
    return [_restrict(order, combination) for combination in itertools.product(*choices)]


def _range_plus(u: UOp) -> tuple[UOp, int] | None:
    """(r, c) when `u` is a loop range r, or r + c."""
    shift = 0
    if u.op is Op.ADD and u.src[1].is_const:
        u, shift = u.src[0], u.src[1].arg
    if u.op is Op.RANGE and u.arg[1] == "loop" and u.src[0].is_const:
        return u, shift
    return None


def _restrict(order: list[UOp], part: tuple[tuple[UOp, int, int], ...]) -> UOp:
    new: dict[UOp, UOp] = {}
    for r, lo, hi in part:
        if hi - lo == 1:
            new[r] = const(dtypes.int32, lo)
        else:
            narrow = UOp(Op.RANGE, dtypes.int32, (const(dtypes.int32, hi - lo),), r.arg)
            new[r] = alu(Op.ADD, (narrow, const(dtypes.int32, lo)))

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u.op is Op.LOAD and len(src) == 3 and src[2].is_const:
            return UOp(Op.LOAD, u.dtype, src[:2]) if src[2].arg else const(u.dtype, 0)
        if u.op is Op.ADD and src[0].is_const and src[0].arg == 0:
            return src[1]
        if u.op is Op.ADD and src[1].is_const and src[1].arg == 0:
            return src[0]
        return over(u, src)

    return rebuild(order[-1], visit, new)
