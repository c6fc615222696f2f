"""Reduces that threads share."""

from __future__ import annotations

import math

from anneal.codegen.affine import form
from anneal.codegen.heuristics.facts import ENOUGH_THREADS, Facts
from anneal.codegen.lower import Target
from anneal.codegen.opts import Opt
from anneal.uop import UOp

__all__ = ["shared_reduce"]


def shared_reduce(facts: Facts, target: Target) -> tuple[Opt, ...] | None:
    """Long reduces for few outputs, or along contiguous memory: threads of a workgroup take turns at the elements."""
    axes_by_range = {a.range: a for a in facts.axes}
    tuples: dict[tuple[UOp, ...], int] = {}
    closed = 0
    for u in facts.reduces:
        extents = [axes_by_range[r].extent for r in u.src[1:]]
        if None in extents:
            return None
        tuples[u.src[1:]] = math.prod(e or 0 for e in extents)
        closed |= sum(1 << r.arg[0] for r in u.src[1:])
    if not tuples or any(u.ranges & closed for u in facts.reduces):
        return None
    if len({r for t in tuples for r in t}) != sum(map(len, tuples)):
        return None  # reduces that have some of their ranges in common
    main = max(tuples, key=lambda t: tuples[t])
    extent = tuples[main]
    if extent < 16:
        return None
    indices = [form(u.src[1])[0] for u in facts.loads]
    loops = [a.range for a in facts.axes if a.is_loop]
    # A load whose neighbours in memory are neighbouring outputs wants them on neighbouring threads; a load that only
    # the reduce range moves is small beside it.
    down_columns = bool(loops) and any(i.get(loops[-1]) == 1 and main[-1] in i for i in indices)
    contiguous = not down_columns and any(i.get(main[-1]) == 1 for i in indices)
    most = min(
        1024 if facts.outputs < 8 else 256, target.max_threads, target.workgroup_bytes // (4 * len(facts.reduces))
    )
    if contiguous:
        plan = _along_rows(facts, extent, most)
    else:
        plan = _along_columns(facts, extent, most)
    if plan is None:
        return None
    group, local, fastest = plan
    opts: list[Opt] = []
    for ranges, total in tuples.items():
        if group > 1 and total >= group:
            first_axis = facts.number(ranges[0])
            if len(ranges) > 1:
                opts.append(Opt("MERGE", first_axis, len(ranges) - 1))
            opts.append(Opt("GROUP", first_axis, group))
    if local > 1:
        axis = max((i for i, a in enumerate(facts.axes) if a.is_loop))
        opts.insert(0 if fastest else len(opts), Opt("LOCAL", axis, local))
    return tuple(opts)


def _along_rows(facts: Facts, extent: int, most: int) -> tuple[int, int, bool] | None:
    if extent < 32:
        return None
    limit = most if facts.outputs < 1024 else 64 if facts.outputs < 16384 else 32
    group = 1 << (min(limit, max(8, extent // 4)).bit_length() - 1)
    inner = _inner_extent(facts)
    local = 1
    while group * local < 64 and local * 2 <= inner:
        local *= 2
    return group, local, False


def _along_columns(facts: Facts, extent: int, most: int) -> tuple[int, int, bool] | None:
    if facts.outputs >= ENOUGH_THREADS:
        return None
    inner = _inner_extent(facts)
    local = 1
    while local < 32 and local < inner:
        local *= 2
    group = 1
    while group * 2 * local <= most and facts.outputs * group < ENOUGH_THREADS and extent >= group * 8:
        group *= 2
    return (group, local, True) if group > 1 else None


def _inner_extent(facts: Facts) -> int:
    loops = [a for a in facts.axes if a.is_loop]
    return loops[-1].extent or 1 if loops else 1
