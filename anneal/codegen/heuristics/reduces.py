"""Reduces that threads share: along memory, or down its columns."""

from __future__ import annotations

import math

from anneal.codegen.heuristics.facts import ENOUGH_GROUPS, ENOUGH_THREADS, Facts, power_of_two, row_of
from anneal.codegen.opts import Axis, Opt, Opts, split
from anneal.codegen.ranges import form, mask_of
from anneal.codegen.target import Target
from anneal.uop import Op, Src, toposort

_IN_FLIGHT = 16  # loads of a thread that are under way at once
_COLUMNS, _FEWEST_COLUMNS = 32, 4  # neighbouring threads that go down columns side by side
_THREADS = 64  # of a workgroup, at least
_ENOUGH_PRODUCTS = 64  # workgroups of a product of a vector and a matrix's columns
_PRODUCT_THREADS = 512  # of each
_MANY = 4096  # results of the same elements, and elements
_RESULTS = 4  # of a thread that reads the same elements for all of them
_TALL = 256  # rows that are worth several threads even where there are columns enough


def shared_reduce(facts: Facts, target: Target) -> Opts | None:
    """Long reduces for few outputs, or along contiguous memory: the elements go round the threads of a workgroup."""
    axes_by_range = {a.range: a for a in facts.axes}
    tuples = {}
    closed = 0
    for u in facts.reduces:
        axes = [axes_by_range[r] for r in u.src[1:]]
        if any(a.extent is None for a in axes):
            return None
        tuples[u.src[1:]] = math.prod(a.largest for a in axes)
        closed |= mask_of(u.src[1:])
    if not tuples or any(u.ranges & closed for u in facts.reduces):
        return None
    if len({r for t in tuples for r in t}) != sum(map(len, tuples)):
        return None  # reduces that have some of their ranges in common
    main = max(tuples, key=lambda t: (_read_over(facts, t), tuples[t]))
    extent = tuples[main]
    if extent < 16:
        return None
    indices = [form(u.src[1])[0] for u in facts.loads]
    loops = [a.range for _, a in facts.loops]
    # A load whose neighbours in memory are neighbouring outputs wants them on neighbouring threads; a load that only
    # the reduce range moves is small beside it.
    down_columns = bool(loops) and any(i.get(loops[-1]) == 1 and main[-1] in i for i in indices)
    contiguous = not down_columns and any(i.get(main[-1]) == 1 for i in indices)
    most = min(target.max_threads, target.workgroup_bytes // (4 * len(facts.reduces)))
    if contiguous:
        return _along_rows(facts, tuples, extent, min(most, 1024 if facts.outputs < 8 else 256))
    bits = mask_of(main)
    depends = [u.varies_over(loops[-1]) for u in facts.loads if u.ranges & bits] if down_columns else []
    if sum(depends) == 1 < len(depends):
        return _vector_by_columns(facts, tuples, extent, target)
    return _along_columns(facts, tuples, extent, most)


def _read_over(facts: Facts, ranges: Src) -> int:
    """Elements of memory that a reduce over `ranges` reads, of what it reads most of."""
    bits = mask_of(ranges)
    indices = [u.src[1].ranges for u in facts.loads if u.src[1].ranges & bits]
    return max((math.prod(a.largest or 1 for a in facts.axes if i >> a.range.arg[0] & 1) for i in indices), default=0)


def _vector_by_columns(facts: Facts, tuples: dict[Src, int], extent: int, target: Target) -> Opts | None:
    """A vector times a matrix that is read down its columns: large workgroups, a few neighbouring columns each."""
    number, axis = facts.loops[-1]
    columns = _COLUMNS
    while columns > _FEWEST_COLUMNS * 2 and facts.outputs < columns * _ENOUGH_PRODUCTS:
        columns //= 2
    columns = min(columns, power_of_two(axis.count))
    wide = min(facts.lanes([axis.range]), 2 if columns > 8 else 4, columns)
    local = columns // wide
    room = target.workgroup_bytes // (4 * columns * len(facts.reduces))
    group = power_of_two(min(room, min(_PRODUCT_THREADS, target.max_threads) // local, extent // 4))
    if group == 1:
        return None
    opts = split("VECTORIZE", number, wide) + split("LOCAL", number, local)
    for ranges in tuples:
        opts += _shared(facts, ranges, group, 1, wide)
    return tuple(opts)


def _along_rows(facts: Facts, tuples: dict[Src, int], extent: int, most: int) -> Opts | None:
    if extent < 32:
        return None
    if (several := _over_the_same(facts, tuples)) is not None:
        return several
    wide = min(facts.lanes([ranges[-1]]) for ranges in tuples)
    threads = threads_of_row(extent, facts.outputs, len(facts.loads), most, wide)
    opts = [opt for ranges in tuples for opt in _shared(facts, ranges, threads, facts.lanes([ranges[-1]]))]
    for number, axis in facts.loops[-1:]:
        opts += several_rows((number, axis), threads, facts.outputs)
        if len(facts.reduces) > 1 and facts.outputs // 2 * threads >= ENOUGH_THREADS and axis.count % 2 == 0:
            if any(not u.ranges for u in facts.reduces):
                opts.append(Opt("UPCAST", number, 2))  # what all rows need is computed once for two of them
    return tuple(opts)


def _along_columns(facts: Facts, tuples: dict[Src, int], extent: int, most: int) -> Opts | None:
    if facts.outputs >= (4 if extent >= _TALL else 1) * ENOUGH_THREADS:
        return None
    wide = local = group = 1
    opts = []
    for number, columns in facts.loops[-1:]:
        wide = facts.lanes([columns.range])
        while wide > 1 and facts.outputs < _COLUMNS * wide * 2 * ENOUGH_GROUPS:
            wide //= 2
        opts += split("VECTORIZE", number, wide)
        while local < _COLUMNS and local * wide < columns.count:
            local *= 2
        # With few columns each workgroup takes fewer: more workgroups, and less work for each thread.
        tall = power_of_two(extent // 4)
        while local > _FEWEST_COLUMNS and facts.outputs < local * wide * ENOUGH_GROUPS and local * tall > _THREADS:
            local //= 2
        opts += split("LOCAL", number, local)
    while group * 2 * local * wide <= most and group * 2 * local <= 256 and extent >= group * 8:
        if facts.outputs // wide * group >= 4 * ENOUGH_THREADS:
            break
        group *= 2
    if group == 1:
        return None
    for ranges in tuples:
        opts += _shared(facts, ranges, group, 1, wide)
    return tuple(opts)


def _over_the_same(facts: Facts, tuples: dict[Src, int]) -> Opts | None:
    """Many results of the same elements (ranks): what a thread loads is for several of them."""
    loops = facts.loops
    ends = mask_of([r for ranges in tuples for r in ranges])
    outer = mask_of([a.range for _, a in loops])
    if len(tuples) != 1 or not loops or any(u.ranges & ends and u.ranges & outer for u in facts.loads):
        return None
    ranges, number = next(iter(tuples)), loops[-1][0]
    if len(ranges) > 1 or loops[-1][1].count < _MANY or tuples[ranges] < _MANY:
        return None
    shared = _shared(facts, ranges, 32, facts.lanes(ranges), 2)
    return (*shared, Opt("UPCAST", number, _RESULTS), Opt("LOCAL", number, _RESULTS))


def _shared(facts: Facts, ranges: Src, threads: int, wide: int, words: int = 1) -> list[Opt]:
    """A reduce split over `threads` threads, in vectors of `wide` if its innermost range is long enough. A value of it
    has `words`. Shorter reduces than that are left to each thread.
    """
    first, last = facts.number(ranges[0]), facts.number(ranges[-1])
    total = math.prod(facts.axes[facts.number(r)].largest for r in ranges)
    if total < threads:
        return []
    inner = facts.axes[last].largest
    opts = []
    if len(ranges) > 1 and inner < 8 * threads and all(r.src[0].is_const for r in ranges):
        opts.append(Opt("MERGE", first, len(ranges) - 1))
        last, inner, wide = first, total, 1
    if wide > 1 and inner >= wide * power_of_two(threads):
        opts.append(Opt("VECTORIZE", last, wide))
        inner //= wide
    opts += split("GROUP", last, threads)
    # A reduce that needs another reads what is in registers by then; others need no more than enough loads under way.
    again = any(v.op is Op.REDUCE for u in facts.reduces for v in toposort(u.src[0]))
    left = -(-inner // threads)
    return opts + (unrolled(facts, last, left) if again else unrolled(facts, last, left, _IN_FLIGHT // words))


# ---------------------------------------------------------------------------------------------------------------------
# Softmax, norms and their gradients: reduces fused into the loop over the row of values made from them.


_ROW_THREADS = 128  # of a workgroup, where rows are short enough to share one
_WRITTEN = 64  # pieces of a row that one thread holds at most
_NODES = 2048  # ... and nodes of their unrolled text
# Three reduces and more (the gradient of a cross entropy) hold more than a row's values: their workgroups of 1,024 wait
# for each other, and what does not fit into registers is better read again. On an H200, ms of 4,096 rows of 16,384,
# 32,768 and 50,304 words with 1,024 threads and everything held: 0.82, 1.60, 3.11; with 256 threads: 0.58 (held), 1.43
# and 2.19 (read again, two vectors at once). 8,192 rows of 50,304 bfloat16 words: 4.92 and 1.72.
_SEVERAL_THREADS = 256
_SEVERAL_ROWS = 1024


def fused_reduces(facts: Facts, target: Target) -> Opts | None:
    """Reduces over an axis of the output: a thread keeps its part of a row in registers from the first load on."""
    row = row_of(facts.axes, facts.reduces)
    if row is None:
        return None
    number, axis, joined = row
    extent = axis.count
    over = {axis.range, *joined}
    whole = wide = facts.lanes(over)
    if wide == 1 and facts.packed:
        wide = facts.lanes(over, facts.packed)
    # Only loads of whole rows fill registers; the reduce and the store share a load.
    loads = {(u.src[0], tuple(sorted(t.arg[0] for t in form(u.src[1])[0] if t.op.name == "RANGE" and t not in over)))
             for u in facts.loads if any(u.varies_over(r) for r in over)}  # fmt: skip
    across = [form(u.src[1])[0].get(r, 0) for u in facts.loads for r in over if u.varies_over(r)]
    others = [(i, a) for i, a in facts.loops if i != number and a.count > 1]
    rows, units = facts.outputs // extent, max(extent, axis.largest) // wide
    opts = [Opt("FUSE_REDUCE", number, 1), *split("VECTORIZE", number, wide)]
    beside = 1
    if whole == 1 and across and 1 not in across and others:
        # Neighbours in memory are other rows: neighbouring threads take those.
        beside = min(32, power_of_two(others[-1][1].count))
        opts.append(Opt("LOCAL", others[-1][0], beside))
    threads = threads_of_row(extent, rows, len(loads), min(target.max_threads, 1024) // beside, wide)
    threads = _without_waste(units, min(threads, power_of_two(units)))
    if any(p.varies_over(r) for u in facts.loads for p in u.src[2:] for r in over):
        # Joined pieces: where each thread's vectors are the same distance apart in all of them, it knows their pieces.
        while threads > 32 and units % threads:
            threads //= 2
    several = len(facts.reduces) > 2
    if several and threads > _SEVERAL_THREADS * 2 and rows >= _SEVERAL_ROWS:
        threads = _SEVERAL_THREADS
    opts += split("GROUP", number, threads)
    left = -(-units // threads)
    opts += [Opt("UNROLL", number, 2)] if several and left * wide > _WRITTEN else unrolled(facts, number, left)
    if beside == 1 and others:
        opts += several_rows(max(others, key=lambda o: o[1].count), threads, rows)
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
    if left <= 1 or left <= most and left * facts.nodes <= _NODES:
        return split("UNROLL", number, left)
    several = (n for n in (16, 12, 8, 6, 5) if n <= most and left % n == 0 and n * facts.nodes <= _NODES // 2)
    amount = next(several, 4)
    return [Opt("UNROLL", number, amount)] if facts.nodes * amount <= _NODES else []


def several_rows(other: tuple[int, Axis], threads: int, rows: int) -> list[Opt]:
    number, axis = other
    together = 1
    while threads * together < (_ROW_THREADS if rows // together > ENOUGH_GROUPS else 32) and together < (axis.count):
        together *= 2
    return split("LOCAL", number, together)
