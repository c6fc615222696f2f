"""Comparisons of indices that have one result for a whole workgroup, and sums without the terms that are zero for it.

    extreme          the largest or smallest value of an index within a workgroup, an expression that all threads share
    cut_iterations   sum over k of where(q < k, 0, p[q, k]) * v[k]: the loop ends with the last k the workgroup needs

Conditions are compared as affine forms: over the pieces of a workgroup each term takes its extreme by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anneal.codegen.affine import form, unform
from anneal.codegen.ranges import extent
from anneal.codegen.rebuilding import with_sources
from anneal.rewrite import rebuild
from anneal.uop import Op, UOp, const, dtypes, toposort

_I32 = dtypes.int32
Choice = tuple[UOp, bool]  # a comparison of two indices, and its result


def choices(condition: UOp, value: bool) -> Iterator[Choice]:
    """Comparisons any one of which makes `condition` be `value`."""
    stack = [(condition, value)]
    while stack:
        u, v = stack.pop()
        if u.op is Op.LT and u.src[0].dtype is _I32:
            yield u, v
        elif u.op is Op.NOT:
            stack.append((u.src[0], not v))
        elif u.op is (Op.OR if v else Op.AND):
            stack += ((s, v) for s in u.src)


def extreme(u: UOp, largest: bool, free: Sequence[UOp] = ()) -> UOp | None:
    """The largest or smallest value of `u` over every range but those of the workgroup and the `free` ones.

    None if it cannot be told: a term depends on data, or on ranges in a way that is not affine.
    """
    terms, constant = form(u)
    outside: dict[UOp, int] = {}
    work = list(terms.items())
    while work:
        t, k = work.pop()
        if t.op is Op.MIN and t.src[1].op is Op.CONST and (k > 0) is largest:
            inner, more = form(t.src[0])  # an index held within its extent
            constant += k * more
            work += [(x, k * n) for x, n in inner.items()]
        elif t.op is Op.RANGE and t.arg[1] != "workgroup" and t not in free:
            if t.src[0].op is not Op.CONST:
                return None
            if (k > 0) is largest:
                constant += k * (extent(t) - 1)
        elif t not in free and any(_varies(x) for x in toposort((t,))):
            return None
        else:
            outside[t] = outside.get(t, 0) + k
    return unform(outside, constant)


def _varies(u: UOp) -> bool:
    return u.op is Op.LOAD or u.op is Op.SPECIAL or (u.op is Op.RANGE and u.arg[1] != "workgroup")


def cut_iterations(sink: UOp) -> UOp:
    """The kernel with loops from the first iteration to the last in which a sum has terms other than zero.

    A term is zero where a factor is the zero of a `where` on indices; the other factor is not asked.
    """
    order = toposort((sink,))
    reduces: dict[UOp, list[UOp]] = {}  # loop -> the reduces over it
    stored = 0
    for u in order:
        if u.op is Op.REDUCE:
            for r in u.src[1:]:
                if r.arg[1] == "reduce" and r.src[0].op is Op.CONST:
                    reduces.setdefault(r, []).append(u)
        elif u.op is Op.STORE:
            stored |= u.ranges
    zeros: dict[UOp, list[Choice]] = {}
    fresh: dict[UOp, UOp] = {}
    moved: dict[UOp, UOp] = {}
    for r, over in reduces.items():
        if stored >> r.arg[0] & 1:
            continue  # the loop of a fused reduce, which stores too
        for u in over:
            if u not in zeros:
                zeros[u] = list(_zeros(u.src[0])) if u.arg is Op.ADD else []
        found = {_needed(zeros[u], r) for u in over}
        if len(found) != 1:
            continue
        start, end = found.pop()
        if start.is_const and end.is_const and (start.arg, end.arg) == (0, extent(r)):
            continue
        new = UOp(Op.RANGE, _I32, (end - start,), r.arg)
        fresh[r] = new
        moved[r] = new + start
    return _shifted(sink, fresh, moved) if fresh else sink


def _zeros(value: UOp) -> Iterator[Choice]:
    """Comparisons any one of which makes a term zero. In a tile they are those of the tile's elements."""
    stack = [value]
    while stack:
        u = stack.pop()
        if u.op is Op.MUL:
            stack += u.src
        elif u.op in (Op.CAST, Op.NEG):
            stack.append(u.src[0])
        elif u.op is Op.LOAD and u.src[0].op is Op.BUFFERIZE:
            stack.append(u.src[0].src[0])
        elif u.op is Op.WHERE:
            for at in (1, 2):
                if u.src[at].op is Op.CONST and u.src[at].arg == 0:
                    yield from choices(u.src[0], at == 1)
                    stack.append(u.src[3 - at])


def _needed(zeros: Sequence[Choice], r: UOp) -> tuple[UOp, UOp]:
    """The first iteration of `r` that is not zero for the whole workgroup, and the one after the last."""
    count = extent(r)
    start, end = const(_I32, 0), const(_I32, count)
    for comparison, value in zeros:
        found = extreme(comparison.src[0] - comparison.src[1], value, (r,))
        if found is None:
            continue
        terms, constant = form(found)
        step = terms.pop(r, 0)
        # Zero while step * r + rest < 0, or while it is not.
        rest = unform(terms, constant)
        if step == 0:
            continue
        if value is (step < 0):
            last = rest // -step + 1 if value else rest // step * -1
            end = end.alu(Op.MIN, last)
        else:
            first = rest // step * -1 if value else rest // -step + 1
            start = start.alu(Op.MAX, first)
    if not start.is_const:
        start = start.alu(Op.MIN, const(_I32, count - 1))
    return start, end if end.is_const else end.alu(Op.MAX, start)


def _shifted(sink: UOp, fresh: dict[UOp, UOp], moved: dict[UOp, UOp]) -> UOp:
    """The kernel with the ranges of `fresh`, whose values are `moved`. Which of two tiles an iteration uses is told by
    the range itself."""
    places: dict[UOp, UOp] = dict(fresh)  # the same for indices into tiles, by their own loop

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u.op is Op.REDUCE:
            src = (src[0], *[fresh.get(s, n) for s, n in zip(u.src[1:], src[1:], strict=True)])
        elif u.op is Op.LOAD and u.src[0].op is Op.BUFFERIZE:
            src = (src[0], rebuild(u.src[1], with_sources, places), *src[2:])
        return with_sources(u, src)

    return rebuild(sink, visit, dict(moved))
