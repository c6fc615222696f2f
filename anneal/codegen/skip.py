"""Work that a whole workgroup would throw away is left out: of causal scores, the blocks above the diagonal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from anneal.codegen.ranges import ZERO, conjunction, extent, form, only_if, ranges_of, substituted, unform, with_sources
from anneal.rewrite import rebuild
from anneal.schedule import dead_side, wishes
from anneal.uop import Known, Nodes, Numbers, Op, Src, UOp, const, dtypes, of_op, ranged, ranks, toposort

_I32 = dtypes.int32
Choice = tuple[UOp, bool]  # a comparison of two indices, and its result

# ---------------------------------------------------------------------------------------------------------------------
# Comparisons of indices that have one result for a whole workgroup, and sums without the terms that are zero for it.
#
#     extreme          the largest or smallest difference of two indices in a workgroup, which all threads share
#     cut_iterations   sum over k of where(q < k, 0, p[q, k]) * v[k]: the loop ends with the last k the workgroup needs
#
# Conditions are compared as affine forms: over the pieces of a workgroup each term takes its extreme by itself.


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


def extreme(comparison: UOp, largest: bool, free: Nodes) -> UOp | None:
    """The largest or smallest difference of two indices that are compared, over every range but those of the workgroup
    and the `free` ones.

    None if it cannot be told: a term depends on data, or on ranges in a way that is not affine.
    """
    terms, constant = form(comparison.src[0] - comparison.src[1])
    outside: Numbers = {}
    work = list(terms.items())
    while work:
        t, k = work.pop()
        if t.op is Op.MIN and t.src[1].is_const and (k > 0) is largest:
            inner, more = form(t.src[0])  # an index held within its extent
            constant += k * more
            work += [(x, k * n) for x, n in inner.items()]
        elif t.op is Op.RANGE and t.arg[1] != "workgroup" and t not in free:
            if not t.src[0].is_const:
                return None
            if (k > 0) is largest:
                constant += k * (extent(t) - 1)
        elif t not in free and any(_varies(x) for x in toposort(t)):
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
    known = {}
    fresh = {}
    moved = {}
    for r, over in _loops(toposort(sink), None).items():
        for u in over:
            if u not in known:
                known[u] = list(zeros(u.src[0])) if u.arg is Op.ADD else []
        found = {_needed(known[u], r) for u in over}
        if len(found) != 1:
            continue
        start, end = found.pop()
        if start.is_const and end.is_const and (start.arg, end.arg) == (0, extent(r)):
            continue
        new = ranged(end - start, r.arg)
        fresh[r] = new
        moved[r] = new + start
    return _shifted(sink, fresh, moved) if fresh else sink


def _loops(order: Nodes, end: int | None) -> dict[UOp, list[UOp]]:
    """The loops of constant extent that are among the ranges of reduces up to number `end`, and the reduces of each;
    but not that of a fused reduce, which stores too."""
    stored = ranges_of(of_op(order, Op.STORE))
    found: dict[UOp, list[UOp]] = {}
    for u in order:
        for r in u.src[1:end] if u.op is Op.REDUCE else ():
            if r.arg[1] == "reduce" and r.src[0].is_const and not stored >> r.arg[0] & 1:
                found.setdefault(r, []).append(u)
    return found


def zeros(value: UOp) -> Iterator[Choice]:
    """Comparisons any one of which makes a term zero. In a tile they are those of the tile's elements."""
    stack = [value]
    while stack:
        u = stack.pop()
        if u.op is Op.MUL:
            stack += u.src
        elif u.op in (Op.CAST, Op.NEG, Op.BITCAST) or u.op is Op.AND and u.src[1].is_const:
            stack.append(u.src[0])
        elif u.op is Op.LOAD and u.src[0].op is Op.BUFFERIZE:
            stack.append(u.src[0].src[0])
        elif u.op is Op.WHERE:
            for at in (1, 2):
                if u.src[at].is_const and u.src[at].arg == 0:
                    yield from choices(u.src[0], at == 1)
                    stack.append(u.src[3 - at])


def _needed(without: Sequence[Choice], r: UOp) -> tuple[UOp, UOp]:
    """The first iteration of `r` that is not zero for the whole workgroup, and the one after the last."""
    count = extent(r)
    start, end = ZERO, const(_I32, count)
    for comparison, value in without:
        found = extreme(comparison, value, (r,))
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
            end = Op.MIN(end, last)
        else:
            first = rest // step * -1 if value else rest // -step + 1
            start = Op.MAX(start, first)
    if not start.is_const:
        start = Op.MIN(start, const(_I32, count - 1))
    return start, end if end.is_const else Op.MAX(end, start)


def _shifted(sink: UOp, fresh: Known, moved: Known) -> UOp:
    """The kernel with the ranges of `fresh`, whose values are `moved`. Which of two tiles an iteration uses is told by
    the range itself."""
    places = dict(fresh)  # the same for indices into tiles, by their own loop

    def visit(u: UOp, src: Src) -> UOp:
        if u.op is Op.REDUCE:
            src = (src[0], *[fresh.get(s, n) for s, n in zip(u.src[1:], src[1:], strict=True)])
        elif u.op is Op.LOAD and u.src[0].op is Op.BUFFERIZE:
            src = (src[0], rebuild(u.src[1], with_sources, places), *src[2:])
        return with_sources(u, src)

    return rebuild(sink, visit, dict(moved))


# ---------------------------------------------------------------------------------------------------------------------


def skip_unused(sink: UOp) -> UOp:
    """The kernel without loads, stores, loops and iterations whose results nothing uses.

    A result that is only used where a condition holds (`where(i < j, -inf, sum)`) is not needed by a workgroup if the
    condition fails for all of its elements: its loop has no iterations. A sum whose terms are zero where a condition
    holds has the iterations that are left. And a workgroup whose results are not read ends at once.
    """
    order = toposort(sink)
    if not of_op(order, Op.WHERE) or not any(u.op is Op.LT and u.src[0].dtype is _I32 for u in order):
        return sink
    return cut_iterations(_without_loops(_without_stores(_without_loads(sink))))


# -- stores -----------------------------------------------------------------------------------------------------------


def _without_stores(sink: UOp) -> UOp:
    """The kernel without stores of nothing but dead lanes, and without the masks of stores whose readers mask again."""
    stores = []
    for s in sink.src:
        value = s.src[2]
        dead = dead_side(value)
        if dead is None:
            stores.append(s)
            continue
        given = value.src[3 - dead]
        # Asked of the workgroup; without tiles also of each vector.
        free = () if of_op(toposort(sink), Op.BUFFERIZE) else _each_vector(s)
        masked = [_always(choices(value.src[0], dead == 1), f) for f in ((), free)]
        predicates = [Op.NOT(u) for u in dict.fromkeys(masked) if u is not None]
        stores.append(only_if(predicates, with_sources(s, (*s.src[:2], given, *s.src[3:]))))
    return sink.replace(src=tuple(stores))


def _always(wanted: Iterable[Choice], free: Nodes = ()) -> UOp | None:
    """The condition under which one of the choices is made by every element of a workgroup, or of the part of it that
    the `free` ranges leave; None if that cannot be told."""
    always = None
    for comparison, value in wanted:
        # `a < b` holds everywhere if a - b is always below 0, and fails everywhere if it never is.
        found = extreme(comparison, value, free)
        if found is None:
            continue
        made = found < 0 if value else const(_I32, -1) < found
        if not (made.is_const and not made.arg):
            always = made if always is None else always | made
    return always


# -- loads ------------------------------------------------------------------------------------------------------------


def _without_loads(sink: UOp) -> UOp:
    """The kernel without loads of vectors of which no element is used. Those of a product are left: their whole
    workgroup is asked alone, and an index that runs past an end is held there, where it costs nothing to read."""
    order = toposort(sink)
    if of_op(order, Op.BUFFERIZE):
        return sink
    known = wishes(order)
    place = ranks(order)  # a set's own order is another in each process
    table = {}
    for u in order:
        if u.op is Op.LOAD and known[u]:
            wanted = sorted(known[u], key=lambda choice: (place[choice[0]], choice[1]))
            others = [x for c, v in wanted for x in choices(c, not v) if all(not s.is_const for s in x[0].src)]
            dead = _always(others, _each_vector(u))
            if dead is not None and not dead.is_const:
                table[u] = only_if([Op.NOT(dead)], u)
    return substituted(sink, table) if table else sink


def _each_vector(access: UOp) -> Nodes:
    """The ranges that tell the vectors apart that an access is made of."""
    return [r for r in toposort(access.src[1]) if r.op is Op.RANGE and r.arg[1] != "vector"]


# -- loops ------------------------------------------------------------------------------------------------------------


def _without_loops(sink: UOp) -> UOp:
    """The kernel with loops of no iterations where nothing uses their results."""
    order = toposort(sink)
    loops = _loops(order, 2)  # the outermost of each reduce
    if not loops:
        return sink
    comparisons = [(u, value) for u in order if u.op is Op.LT and u.src[0].dtype is _I32 for value in (True, False)]
    known = wishes(order)
    table = {}
    for r, reduces in loops.items():
        unused = [
            x for u in reduces if (x := _always((c, not v) for c, v in comparisons if (c, v) in known[u])) is not None
        ]
        if len(unused) < len(reduces):
            continue
        (never,) = conjunction(unused)
        if not never.is_const:
            table[r] = ranged(never.where(ZERO, r.src[0]), r.arg)
    return substituted(sink, table) if table else sink
