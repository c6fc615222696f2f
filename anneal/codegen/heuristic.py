"""A good sequence of opts for every kernel, by hand-made rules and without a search."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anneal.codegen.affine import form
from anneal.codegen.lower import Target
from anneal.codegen.opts import Axis, Opt, axes_of
from anneal.uop import Op, UOp, toposort

__all__ = ["choose"]

_ENOUGH_GROUPS = 128  # workgroups that keep a large GPU busy
_ENOUGH_THREADS = 65536

# Register tiles for products of matrices, best first: threads and registers along m, then along n.
_TILES = ((16, 4, 16, 4), (8, 4, 8, 4), (8, 2, 8, 4), (8, 2, 8, 2))


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the rules ask about a kernel."""

    axes: list[Axis]
    outputs: int
    reduces: list[UOp]
    loads: list[UOp]

    def number(self, r: UOp) -> int:
        return next(i for i, a in enumerate(self.axes) if a.range is r)


def choose(sink: UOp, target: Target) -> tuple[Opt, ...]:
    """Opts for a collapsed kernel."""
    order = toposort((sink,))
    axes = axes_of(sink)
    if any(a.is_loop and a.extent is None for a in axes):
        return ()
    facts = _Facts(
        axes,
        math.prod(a.extent or 1 for a in axes if a.is_loop),
        [u for u in order if u.op is Op.REDUCE],
        [u for u in order if u.op is Op.LOAD],
    )
    for rule in (_matmul, _shared_reduce):
        opts = rule(facts, target)
        if opts is not None:
            return opts
    return (*_short_reduces(facts, len(order)), *_flat(facts, target))


def _flat(facts: _Facts, target: Target) -> tuple[Opt, ...]:
    if not any(a.is_loop for a in facts.axes):
        return ()
    wide = 256 if facts.outputs >= _ENOUGH_THREADS else 64
    return (Opt("FLAT", 0, min(wide, target.max_threads, max(1, facts.outputs))),)


def _short_reduces(facts: _Facts, nodes: int) -> list[Opt]:
    """Write out reduces of a few elements: a loop costs more than its body, and indices become constants."""
    opts = []
    for i, a in enumerate(facts.axes):
        if not a.is_loop and a.extent and a.extent <= 5 and nodes * a.extent <= 512:
            opts.append(Opt("UNROLL", i, a.extent))
            nodes *= a.extent
    return opts


# -- products of matrices ---------------------------------------------------------------------------------------------


def _matmul(facts: _Facts, target: Target) -> tuple[Opt, ...] | None:
    """Reduces in which one load needs the column but not the row, another the row but not the column, as a matrix
    product's do: a tile of results in each thread's registers uses every loaded number several times."""
    if not facts.reduces or len({u.src[1:] for u in facts.reduces}) != 1:
        return None
    main = facts.reduces[0]
    inner = [a for a in facts.axes if a.range in main.src[1:]]
    depth = math.prod(a.extent or 0 for a in inner)
    bits = sum(1 << a.range.arg[0] for a in inner)
    if depth < 8 or any(u.ranges & bits for u in facts.reduces):
        return None
    used = [u.ranges for u in facts.loads if u.ranges & bits]
    loops = [a for a in facts.axes if a.is_loop and (a.extent or 0) >= 8]
    pairs = [
        (m, n)
        for n in reversed(loops)
        for m in reversed(loops)
        if m is not n
        and any(u >> m.range.arg[0] & 1 and not u >> n.range.arg[0] & 1 for u in used)
        and any(u >> n.range.arg[0] & 1 and not u >> m.range.arg[0] & 1 for u in used)
    ]
    if not pairs:
        return None
    # The n that varies fastest in memory comes first; of the ms the longest.
    n = pairs[0][1]
    m = max((pair[0] for pair in pairs if pair[1] is n), key=lambda a: a.extent or 0)
    m_extent, n_extent = m.extent or 1, n.extent or 1
    batch = facts.outputs // (m_extent * n_extent)

    def groups(tile: tuple[int, int, int, int]) -> int:
        return batch * -(-m_extent // (tile[0] * tile[1])) * -(-n_extent // (tile[2] * tile[3]))

    fitting = [t for t in _TILES if t[0] * t[2] <= target.max_threads and _waste(m_extent, n_extent, t) < 1.5]
    tile = next((t for t in fitting if groups(t) >= _ENOUGH_GROUPS), None) or (fitting or _TILES)[-1]
    i, j = facts.number(m.range), facts.number(n.range)
    opts = [Opt("LOCAL", j, tile[2]), Opt("LOCAL", i, tile[0]), Opt("UPCAST", j, tile[3]), Opt("UPCAST", i, tile[1])]
    share = 1
    registers = tile[1] * tile[3] * len(facts.reduces)
    longest = max(inner, key=lambda a: a.extent or 0)
    while (
        groups(tile) * share < _ENOUGH_GROUPS
        and (longest.extent or 0) >= share * 64
        and tile[0] * tile[2] * share * 2 <= target.max_threads
        and tile[0] * tile[2] * share * 2 * registers * 4 <= target.workgroup_bytes
    ):
        share *= 2
    if share > 1:
        opts.append(Opt("GROUP", facts.number(longest.range), share))
    return tuple(opts)


def _waste(m: int, n: int, tile: tuple[int, int, int, int]) -> float:
    tm, tn = tile[0] * tile[1], tile[2] * tile[3]
    return (-(-m // tm) * tm * -(-n // tn) * tn) / (m * n)


# -- reduces that threads share ---------------------------------------------------------------------------------------


def _shared_reduce(facts: _Facts, target: Target) -> tuple[Opt, ...] | None:
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


def _along_rows(facts: _Facts, extent: int, most: int) -> tuple[int, int, bool] | None:
    if extent < 32:
        return None
    limit = most if facts.outputs < 1024 else 64 if facts.outputs < 16384 else 32
    group = 1 << (min(limit, max(8, extent // 4)).bit_length() - 1)
    inner = _inner_extent(facts)
    local = 1
    while group * local < 64 and local * 2 <= inner:
        local *= 2
    return group, local, False


def _along_columns(facts: _Facts, extent: int, most: int) -> tuple[int, int, bool] | None:
    if facts.outputs >= _ENOUGH_THREADS:
        return None
    inner = _inner_extent(facts)
    local = 1
    while local < 32 and local < inner:
        local *= 2
    group = 1
    while group * 2 * local <= most and facts.outputs * group < _ENOUGH_THREADS and extent >= group * 8:
        group *= 2
    return (group, local, True) if group > 1 else None


def _inner_extent(facts: _Facts) -> int:
    loops = [a for a in facts.axes if a.is_loop]
    return loops[-1].extent or 1 if loops else 1
