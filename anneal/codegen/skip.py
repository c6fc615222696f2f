"""Reduces whose results a whole workgroup throws away are not computed: of causal scores, the blocks above the diagonal.

A result that is only looked at where a condition holds (`where(i < j, -inf, sum)`) is not needed by a workgroup if the
condition fails for all of its elements. Conditions are compared as affine forms: the largest and the smallest value that
a difference takes over the pieces of a workgroup is an expression in what is left of the ranges, the same for all threads.
"""

from __future__ import annotations

from anneal.codegen.affine import conjunction, extent, form, replaced, unform
from anneal.uop import Op, UOp, alu, const, dtypes, toposort

__all__ = ["skip_unused"]

_I32 = dtypes.int32
_WITHIN = frozenset(("local", "upcast", "vector", "group", "unroll"))  # kinds that vary within a workgroup
Wish = tuple[UOp, bool]  # a condition, and what it is where a value is looked at


def skip_unused(sink: UOp) -> UOp:
    """The kernel with loops of no turns where nothing looks at their results."""
    order = toposort((sink,))
    loops: dict[UOp, list[UOp]] = {}  # the outermost loop of a reduce -> those reduces
    for u in order:
        if u.op is Op.REDUCE and u.src[1].arg[1] == "reduce" and u.src[1].src[0].op is Op.CONST:
            loops.setdefault(u.src[1], []).append(u)
    if not loops or not any(u.op is Op.WHERE for u in order):
        return sink
    comparisons = [(u, value) for u in order if u.op is Op.LT and u.src[0].dtype is _I32 for value in (True, False)]
    if not comparisons:
        return sink
    wishes = _wishes(order)
    table: dict[UOp, UOp] = {}
    for r, reduces in loops.items():
        unused = [x for u in reduces if (x := _nowhere([w for w in comparisons if w in wishes[u]])) is not None]
        if len(unused) < len(reduces):
            continue
        (never,) = conjunction(unused)
        if not never.is_const:
            turns = alu(Op.WHERE, (never, const(_I32, 0), r.src[0]))
            table[r] = UOp(Op.RANGE, _I32, (turns,), r.arg)
    return replaced(sink, table) if table else sink


def _wishes(order: list[UOp]) -> dict[UOp, frozenset[Wish]]:
    """The conditions that hold wherever each value is looked at."""
    out: dict[UOp, frozenset[Wish]] = {}

    def note(u: UOp, wanted: frozenset[Wish]) -> None:
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
            for s in u.src:
                note(s, mine)
    return out


def _nowhere(wishes: list[Wish]) -> UOp | None:
    """When one of the wishes, comparisons, fails for every element of a workgroup; None if that cannot be told."""
    never: UOp | None = None
    for condition, value in wishes:
        # `a < b` fails everywhere if a - b is never below 0, and holds everywhere if it always is.
        at_most = not value
        found = _extreme(condition.src[0] - condition.src[1], at_most)
        if found is None:
            continue
        fails = found < 0 if at_most else const(_I32, -1) < found
        if not (fails.is_const and not fails.arg):
            never = fails if never is None else never | fails
    return never


def _extreme(u: UOp, largest: bool) -> UOp | None:
    """The largest or smallest value of `u` within a workgroup."""
    terms, constant = form(u)
    outside: dict[UOp, int] = {}
    for t, k in terms.items():
        if t.op is Op.RANGE and t.arg[1] in _WITHIN:
            if (k > 0) is largest:
                constant += k * (extent(t) - 1)
        elif any(x.op is Op.LOAD or (x.op is Op.RANGE and x.arg[1] != "workgroup") for x in toposort((t,))):
            return None
        else:
            outside[t] = k
    return unform(outside, constant)
