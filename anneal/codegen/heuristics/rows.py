"""Rows: softmax, norms and their gradients, whose reduces run over the values that are stored."""

from __future__ import annotations

from anneal.codegen.affine import form
from anneal.codegen.heuristics.facts import ENOUGH_GROUPS, ENOUGH_THREADS, Facts
from anneal.codegen.lower import Target
from anneal.codegen.opts import Axis, Opt
from anneal.codegen.row import row_reduces
from anneal.uop import UOp

__all__ = ["row"]

_THREADS = 128  # of a workgroup, where rows are short enough to share one
_WRITTEN = 64  # pieces of a row that one thread holds at most
_NODES = 2048  # ... and nodes that they come to


def row(facts: Facts, target: Target) -> tuple[Opt, ...] | None:
    """Reduces over an axis of the output: a thread keeps its part of a row in registers from the first load on."""
    for number in reversed(range(len(facts.axes))):
        axis = facts.axes[number]
        if not axis.is_loop or not facts.reduces or (axis.extent or 0) < 2:
            continue
        joined = row_reduces(facts.reduces, axis.range)
        if joined and all(joined.issuperset(u.src[1:]) for u in facts.reduces):
            return _plan(facts, target, number, joined)
    return None


def _plan(facts: Facts, target: Target, number: int, joined: set[UOp]) -> tuple[Opt, ...]:
    axis = facts.axes[number]
    extent = axis.extent or 1
    over = {axis.range, *joined}
    # Of the loads only those of whole rows fill registers; a load for the reduce is the load for the store.
    loads = {(u.src[0], tuple(sorted(t.arg[0] for t in form(u.src[1])[0] if t.op.name == "RANGE" and t not in over)))
             for u in facts.loads if any(u.ranges >> r.arg[0] & 1 for r in over)}  # fmt: skip
    across = [form(u.src[1])[0].get(r, 0) for u in facts.loads for r in over if u.ranges >> r.arg[0] & 1]
    others = [(i, a) for i, a in enumerate(facts.axes) if a.is_loop and i != number and (a.extent or 0) > 1]
    rows = facts.outputs // extent
    opts = [Opt("ROW", number, 1)]
    beside = 1
    if across and 1 not in across and others:
        # Neighbours in memory are other rows: neighbouring threads take those.
        beside = min(32, _power(others[-1][1].extent or 1))
        opts.append(Opt("LOCAL", others[-1][0], beside))
    threads = _threads(extent, rows, len(loads), min(target.max_threads, 1024) // beside)
    if threads > 1:
        opts.append(Opt("GROUP", number, threads))
    left = -(-extent // threads)
    opts.append(Opt("UNROLL", number, left if left <= _WRITTEN and left * facts.nodes <= _NODES else 4))
    if beside == 1 and others:
        opts += _several_rows(max(others, key=lambda o: o[1].extent or 1), threads, rows)
    return tuple(opts)


def _threads(extent: int, rows: int, loads: int, most: int) -> int:
    """Threads of a row: few enough that each has work, so many that the parts fit their registers."""
    words = 16 if loads < 3 else 8
    threads = _power(extent // words)
    threads = max(threads, min(32, 2 * _power((extent + 3) // 4 - 1) if extent > 4 else 1))
    while threads * rows < ENOUGH_THREADS // 2 and threads * 8 <= extent and threads < 256:
        threads *= 2
    return max(1, min(threads, _power(most)))


def _several_rows(other: tuple[int, Axis], threads: int, rows: int) -> list[Opt]:
    number, axis = other
    together = 1
    while threads * together < _THREADS and together < (axis.extent or 1) and rows // together > ENOUGH_GROUPS:
        together *= 2
    return [Opt("LOCAL", number, together)] if together > 1 else []


def _power(n: int) -> int:
    """The largest power of two up to `n`, or 1."""
    return 1 << max(0, n.bit_length() - 1)
