"""Work that a whole workgroup would throw away is left out: of causal scores, the blocks above the diagonal.

A result that is only used where a condition holds (`where(i < j, -inf, sum)`) is not needed by a workgroup if the
condition fails for all of its elements: its loop has no iterations. A sum whose terms are zero where a condition holds
has the iterations that are left (`bounds.py`). And a workgroup whose results are not read ends at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from anneal.codegen.bounds import Choice, choices, cut_iterations, extreme
from anneal.codegen.predicates import conjunction
from anneal.codegen.ranges import mask_of
from anneal.codegen.rebuilding import substituted, with_sources
from anneal.schedule import dead_side
from anneal.uop import Op, UOp, alu, const, dtypes, toposort

_I32 = dtypes.int32


def skip_unused(sink: UOp) -> UOp:
    """The kernel without loads, stores, loops and iterations whose results nothing uses."""
    order = toposort((sink,))
    if not any(u.op is Op.WHERE for u in order) or not any(u.op is Op.LT and u.src[0].dtype is _I32 for u in order):
        return sink
    return cut_iterations(_without_loops(_without_stores(_without_loads(sink))))


# -- stores -----------------------------------------------------------------------------------------------------------


def _without_stores(sink: UOp) -> UOp:
    """The kernel without stores of nothing but dead lanes, and without the masks of stores whose readers mask again."""
    if all(dead_side(s.src[2]) is None for s in sink.src):
        return sink
    staged = any(u.op is Op.BUFFERIZE for u in toposort((sink,)))
    stores = []
    for s in sink.src:
        value = s.src[2]
        dead = dead_side(value)
        if dead is None:
            stores.append(s)
            continue
        given = value.src[3 - dead]
        # Asked of the workgroup; without tiles also of each vector.
        free = () if staged else _each_vector(s)
        masked = [_always(choices(value.src[0], dead == 1), f) for f in ((), free)]
        predicates = [u.alu(Op.NOT) for u in dict.fromkeys(masked) if u is not None]
        stores.append(with_sources(s, (*s.src[:2], given, *conjunction([*predicates, *s.src[3:]]))))
    return UOp(Op.SINK, sink.dtype, tuple(stores), sink.arg, sink.tag)


def _always(wanted: Iterable[Choice], free: Iterable[UOp] = ()) -> UOp | None:
    """The condition under which one of the choices is made by every element of a workgroup, or of the part of it that
    the `free` ranges leave; None if that cannot be told."""
    always: UOp | None = None
    for comparison, value in wanted:
        # `a < b` holds everywhere if a - b is always below 0, and fails everywhere if it never is.
        found = extreme(comparison.src[0] - comparison.src[1], value, tuple(free))
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
    order = toposort((sink,))
    if any(u.op is Op.BUFFERIZE for u in order):
        return sink
    wishes = _wishes(order)
    table: dict[UOp, UOp] = {}
    for u in order:
        if u.op is Op.LOAD and wishes[u]:
            others = [x for c, v in wishes[u] for x in choices(c, not v) if all(s.op is not Op.CONST for s in x[0].src)]
            dead = _always(others, _each_vector(u))
            if dead is not None and not dead.is_const:
                table[u] = UOp(
                    Op.LOAD, u.dtype, (*u.src[:2], *conjunction([dead.alu(Op.NOT), *u.src[2:]])), u.arg, u.tag
                )
    return substituted(sink, table) if table else sink


def _each_vector(access: UOp) -> list[UOp]:
    """The ranges that tell the vectors apart that an access is made of."""
    return [r for r in toposort((access.src[1],)) if r.op is Op.RANGE and r.arg[1] != "vector"]


# -- loops ------------------------------------------------------------------------------------------------------------


def _without_loops(sink: UOp) -> UOp:
    """The kernel with loops of no iterations where nothing uses their results."""
    order = toposort((sink,))
    loops: dict[UOp, list[UOp]] = {}  # the outermost loop of a reduce -> those reduces
    stored = 0
    for u in order:
        if u.op is Op.REDUCE and u.src[1].arg[1] == "reduce" and u.src[1].src[0].op is Op.CONST:
            loops.setdefault(u.src[1], []).append(u)
        elif u.op is Op.STORE:
            stored |= u.ranges
    if not loops or not any(u.op is Op.WHERE for u in order):
        return sink
    comparisons = [(u, value) for u in order if u.op is Op.LT and u.src[0].dtype is _I32 for value in (True, False)]
    if not comparisons:
        return sink
    wishes = _wishes(order)
    table: dict[UOp, UOp] = {}
    for r, reduces in loops.items():
        if stored >> r.arg[0] & 1:
            continue  # the loop of a fused reduce, which stores too
        unused = [
            x for u in reduces if (x := _always((c, not v) for c, v in comparisons if (c, v) in wishes[u])) is not None
        ]
        if len(unused) < len(reduces):
            continue
        (never,) = conjunction(unused)
        if not never.is_const:
            iterations = alu(Op.WHERE, (never, const(_I32, 0), r.src[0]))
            table[r] = UOp(Op.RANGE, _I32, (iterations,), r.arg)
    return substituted(sink, table) if table else sink


def _wishes(order: list[UOp]) -> dict[UOp, frozenset[Choice]]:
    """The conditions that hold wherever each value is looked at."""
    out: dict[UOp, frozenset[Choice]] = {}

    def note(u: UOp, wanted: frozenset[Choice]) -> None:
        known = out.get(u)
        out[u] = wanted if known is None else known & wanted

    for u in reversed(order):
        mine = out.setdefault(u, frozenset())
        if u.op is Op.WHERE:
            condition, a, b = u.src
            note(condition, mine)
            note(a, mine | {(condition, True)})
            note(b, mine | {(condition, False)})
        elif u.op is Op.RANGE:
            for s in u.src:
                note(s, frozenset())
        else:
            if u.op is Op.REDUCE and mine:
                # below it its ranges take all their values: a condition on one of them outside says nothing there
                closed = mask_of(u.src[1:])
                mine = frozenset([w for w in mine if not w[0].ranges & closed])
            for s in u.src:
                note(s, mine)
    return out
