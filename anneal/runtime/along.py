"""Tensors that are computed along with those that are asked for: left lazy, their graphs would grow by all that a loop
does, or be computed several times."""

from __future__ import annotations

from typing import Any

from anneal.runtime.context import here
from anneal.runtime.handle import Handle, Handles
from anneal.runtime.numbering import LEARNED, Numbering, lazy_node, mask_of
from anneal.uop import Nodes, Op, toposort

_FEW = 64  # tensors that were noted, up to which all are looked at again
_LONG = 24  # nodes of a graph of constants that a tensor was assigned; `zeros` and `ones` have 4


def with_others(tensors: Handles, numbering: Numbering | None, but: Handles = ()) -> Handles:
    """`tensors`, and what is to be computed along with them: tensors that were assigned, and those from which a loop
    will go on. Left lazy, their graphs would grow by all that the loop does. Of `but` none is added.

    Args:
        tensors: those that are asked for.
        numbering: this thread's.
        but: tensors.
    """
    if here.assigned or here.depth or here.alone:
        return tensors
    others = []
    if here.pending:
        later = {}
        for r in here.pending.values():
            t = r()
            if t is None:
                continue
            late = t.late
            if t._wants and not (t._leaf and (here.grad or (late and not late.is_used()))):
                later[id(t)] = r  # a graph of it may be there, through which a gradient goes to what it is now
            elif _grows(t):
                others.append(t)
        here.pending = later
    others += _carried(numbering)
    if numbering:
        others += _left(numbering)
    if here.calls:
        # no backward passes these again, and who reads the results later would compute them a second time
        given = [r() for call in here.calls if call.spent for r in call.results]
        others += [t for t in given if t is not None]
    if not others:
        return tensors
    there = {id(t) for t in (*tensors, *but)}
    return [*tensors, *{id(t): t for t in others if id(t) not in there}.values()]


def _carried(n: Numbering | None) -> list[Handle]:
    """The live tensors, late in a numbering or lazy, made on lines whose results were used beyond a realize before."""
    lines = LEARNED.carried
    if not lines:
        return []
    noted = tuple(here.plain)  # a collection may add to it
    if len(noted) > _FEW:
        noted = _still_lazy(noted)
    made = [r() for r, line in noted if line in lines]
    plain = [t for t in made if t is not None and lazy_node(t) is not None]
    if n is None:
        return plain
    # one that requires a gradient keeps its graph as it is
    live = [(t, t.late) for r in n.tensors if (t := r()) is not None and not t._wants]
    return [*plain, *[t for t, late in live if late and late.line in lines and late.numbering is n]]


def _still_lazy(noted: tuple[Any, ...]) -> tuple[Any, ...]:
    """The records of `here.plain` that may be computed along. The others go: a loop whose steps are captured, or that
    reads what is computed already, ends no numbering, and would look at all that it made before in each round."""
    live = [(r, line) for r, line in noted if (t := r()) is not None and (t.late or lazy_node(t))]
    for _ in range(min(len(noted), len(here.plain))):
        here.plain.popleft()
    here.plain.extendleft(reversed(live))
    return tuple(live)


def note_computed(roots: Nodes) -> None:
    """Look in graphs that are to be computed for those that a realize before left lazy: a loop goes on from them."""
    if LEARNED.outlived:
        below = set(toposort(roots))
        outlived = LEARNED.outlived.copy()  # a collection may end a numbering meanwhile
        LEARNED.carry([line for r, line in outlived if r() in below])


def _left(numbering: Numbering) -> list[Handle]:
    """The tensors that an earlier realize left late though it computed a part of what they need, as what is used now
    shows: that part would be computed for each of them."""
    found = []
    for late in numbering.behind:
        old = late.numbering
        sums = {u for u in toposort((late.template,)) if u.op is Op.REDUCE_AXIS}
        live = [(t, t.late) for r in old.tensors if (t := r()) is not None and not t._wants]
        same = [
            t
            for t, other in live
            if other and other.numbering is old and not sums.isdisjoint(toposort((other.template,)))
        ]
        if len(same) <= 1:
            old.tensors = []  # nothing is shared there, and it is not looked for again
        found += same
    numbering.behind.clear()
    return found


def _grows(t: Handle) -> bool:
    """True if a lazy tensor that a loop assigns in each round would have another graph each time: it reads memory, or
    counts, or has many nodes, like a value that a loop started from a constant and built on.
    """
    u = t._looks
    if (mask_of(u) if t.late else u.weak) or (u.dtype.is_int and u.size == 1):
        return True
    seen, stack = {u}, [u]
    while stack and len(seen) <= _LONG:
        new = [s for s in stack.pop().src if s not in seen]
        seen.update(new)
        stack += new
    return len(seen) > _LONG
