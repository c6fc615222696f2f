"""FUSE_REDUCE: reduces fused into the loop over the values made from them.

A softmax reduces its rows over a range of their own, `k`, and stores over the loop range `j`; both count the same
elements. Once the reduces run over `j` itself, the pieces of `j` (threads, registers, vectors) are pieces of all of
them: a thread keeps its part of the row in registers, since the load for the reduce and the load for the store are one
node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from anneal.codegen.ranges import extent, mask_of
from anneal.codegen.rebuilding import substituted, with_sources
from anneal.rewrite import rebuild
from anneal.uop import Op, UOp, const, dtypes, toposort

_I32 = dtypes.int32


def merge_rows(sink: UOp) -> UOp:
    """The kernel with one range for a row that several count, of its loops and of each reduce: only then can
    they be fused.

    A group norm's rows are (channels of a group, height, width); what each channel has of its own, a weight, keeps the
    ranges over them from being merged by themselves.
    """
    order = toposort((sink,))
    reduces = [u for u in order if u.op is Op.REDUCE]
    ranges = [u for u in order if u.op is Op.RANGE]
    if not reduces or any(r.src[0].op is not Op.CONST for r in ranges):
        return sink
    lengths = {math.prod([extent(r) for r in u.src[1:]]) for u in reduces}
    if len(lengths) > 1:
        return sink
    row: tuple[UOp, ...] = ()
    for r in sorted([r for r in ranges if r.arg[1] == "loop"], key=lambda r: r.arg[0], reverse=True):
        row = (r, *row)
        if math.prod([extent(r) for r in row]) in lengths:
            break
    else:
        return sink
    groups = {row, *[u.src[1:] for u in reduces]}
    if all(len(g) == 1 for g in groups) or len({r for g in groups for r in g}) < sum(map(len, groups)):
        return sink
    new: dict[UOp, UOp] = {}
    wholes: dict[tuple[UOp, ...], UOp] = {}
    for group in groups:
        if len(group) > 1:
            inner = math.prod([extent(r) for r in group])
            whole = UOp(Op.RANGE, _I32, (const(_I32, inner),), group[-1].arg)
            for i, r in enumerate(group):
                inner //= extent(r)
                new[r] = whole // inner % extent(r) if i else whole // inner
            wholes[group] = whole
        else:
            wholes[group] = group[0]

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u.op is Op.REDUCE:
            return UOp(Op.REDUCE, u.dtype, (src[0], wholes[u.src[1:]]), u.arg, u.tag)
        return with_sources(u, src)

    merged = rebuild(sink, visit, new)
    joined = fusible_reduces([u for u in toposort((merged,)) if u.op is Op.REDUCE], wholes[row])
    return merged if joined.issuperset(wholes[u.src[1:]] for u in reduces) else sink


def fusible_reduces(reduces: Sequence[UOp], row: UOp) -> set[UOp]:
    """The ranges of `reduces` that may become the loop range `row`.

    Such a range is as long as the row and alone in its reduce, no term uses two of them, and the reduce is no part of a
    sum for each element of the row.
    """
    fit: set[UOp] = set()
    unfit: set[UOp] = set()
    for u in reduces:
        good = len(u.src) == 2 and u.src[1].src[0] is row.src[0] and u.src[1].arg[1] == "reduce"
        (fit if good else unfit).update(u.src[1:])
    fit -= unfit
    bits = mask_of((row, *fit))
    for u in reduces:
        if u.src[0].ranges & bits & ~(1 << u.src[1].arg[0]):
            fit -= {*u.src[1:]}
    for u in reduces:
        if fit and fit.isdisjoint(u.src[1:]) and u.src[0].ranges >> row.arg[0] & 1:
            fit -= {r for x in toposort((u.src[0],)) if x.op is Op.REDUCE for r in x.src[1:]}
    return fit


def fuse_reduces(sink: UOp, row: UOp, reduces: set[UOp]) -> UOp:
    """The kernel with `row` in the place of the ranges `reduces`: one loop for the reduces and for their consumers."""
    return substituted(sink, dict.fromkeys(reduces, row))
