"""Softmax, norms and their gradients: reduces fused into the loop over the row of values made from them."""

from __future__ import annotations

from anneal.codegen.affine import form
from anneal.codegen.fused_reduces import fusible_reduces
from anneal.codegen.heuristics.facts import ENOUGH_GROUPS, ENOUGH_THREADS, Facts, power_of_two
from anneal.codegen.opts import Axis, Opt
from anneal.codegen.target import Target
from anneal.uop import UOp

_THREADS = 128  # of a workgroup, where rows are short enough to share one
_WRITTEN = 64  # pieces of a row that one thread holds at most
_NODES = 2048  # ... and nodes that they come to


def fused_reduces(facts: Facts, target: Target) -> tuple[Opt, ...] | None:
    """Reduces over an axis of the output: a thread keeps its part of a row in registers from the first load on."""
    for number in reversed(range(len(facts.axes))):
        axis = facts.axes[number]
        if not axis.is_loop or not facts.reduces or (axis.extent or 0) < 2:
            continue
        joined = fusible_reduces(facts.reduces, axis.range)
        if joined and all(joined.issuperset(u.src[1:]) for u in facts.reduces):
            return _plan(facts, target, number, joined)
    return None


def _plan(facts: Facts, target: Target, number: int, joined: set[UOp]) -> tuple[Opt, ...]:
    axis = facts.axes[number]
    extent = axis.extent or 1
    over = {axis.range, *joined}
    wide = facts.lanes(over)
    # Of the loads only those of whole rows fill registers; a load for the reduce is the load for the store.
    loads = {(u.src[0], tuple(sorted(t.arg[0] for t in form(u.src[1])[0] if t.op.name == "RANGE" and t not in over)))
             for u in facts.loads if any(u.ranges >> r.arg[0] & 1 for r in over)}  # fmt: skip
    across = [form(u.src[1])[0].get(r, 0) for u in facts.loads for r in over if u.ranges >> r.arg[0] & 1]
    others = [(i, a) for i, a in enumerate(facts.axes) if a.is_loop and i != number and (a.extent or 0) > 1]
    rows, units = facts.outputs // extent, max(extent, axis.largest) // wide
    opts = [Opt("FUSE_REDUCE", number, 1)] + ([Opt("VECTORIZE", number, wide)] if wide > 1 else [])
    beside = 1
    if across and 1 not in across and others:
        # Neighbours in memory are other rows: neighbouring threads take those.
        beside = min(32, power_of_two(others[-1][1].extent or 1))
        opts.append(Opt("LOCAL", others[-1][0], beside))
    threads = threads_of_row(extent, rows, len(loads), min(target.max_threads, 1024) // beside, wide)
    threads = _without_waste(units, min(threads, power_of_two(units)))
    if threads > 1:
        opts.append(Opt("GROUP", number, threads))
    opts += unrolled(facts, number, -(-units // threads))
    if beside == 1 and others:
        opts += several_rows(max(others, key=lambda o: o[1].extent or 1), threads, rows)
    return tuple(opts)


def threads_of_row(extent: int, rows: int, loads: int, most: int, wide: int) -> int:
    """Threads of a row: few enough that each has work, so many that the parts fit their registers."""
    words = 16 if loads < 3 else 8
    threads = power_of_two(extent // words)
    # A short row: one vector a thread, or eight words that are loaded one by one.
    least = 2 * power_of_two(extent // wide - 1) if wide > 1 and extent > wide else power_of_two(extent // 8)
    threads = max(threads, min(32, least))
    while threads * rows < ENOUGH_THREADS // 2 and threads * 8 <= extent and threads < 256:
        threads *= 2
    return max(1, min(threads, power_of_two(most)))


def _without_waste(units: int, threads: int) -> int:
    """Half of `threads`, or a quarter, if a third of them would have nothing to do in the last iteration."""

    def busy(t: int) -> float:
        return units / (t * -(-units // t))

    while threads > 1 and busy(threads) < 0.7 and -(-units // threads) <= 4:
        threads //= 2
    return threads


def unrolled(facts: Facts, number: int, left: int, most: int = _WRITTEN) -> list[Opt]:
    """A thread's part of a row unrolled: all of it, so that it stays in registers, or some iterations of a loop."""
    if left <= 1:
        return []
    if left <= most and left * facts.nodes <= _NODES:
        return [Opt("UNROLL", number, left)]
    several = (n for n in (16, 12, 8, 6, 5) if n <= most and left % n == 0 and n * facts.nodes <= _NODES // 2)
    amount = next(several, 4)
    return [Opt("UNROLL", number, amount)] if facts.nodes * amount <= _NODES else []


def several_rows(other: tuple[int, Axis], threads: int, rows: int) -> list[Opt]:
    number, axis = other
    together = 1
    while threads * together < (_THREADS if rows // together > ENOUGH_GROUPS else 32) and together < (axis.extent or 1):
        together *= 2
    return [Opt("LOCAL", number, together)] if together > 1 else []
