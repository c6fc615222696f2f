"""Products of matrices: register tiles."""

from __future__ import annotations

import math

from anneal.codegen.heuristics.facts import ENOUGH_GROUPS, Facts
from anneal.codegen.lower import Target
from anneal.codegen.opts import Opt

__all__ = ["matmul"]

# Register tiles for products of matrices, best first: threads and registers along m, then along n.
_TILES = ((16, 4, 16, 4), (8, 4, 8, 4), (8, 2, 8, 4), (8, 2, 8, 2))


def matmul(facts: Facts, target: Target) -> tuple[Opt, ...] | None:
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
    tile = next((t for t in fitting if groups(t) >= ENOUGH_GROUPS), None) or (fitting or _TILES)[-1]
    i, j = facts.number(m.range), facts.number(n.range)
    opts = [Opt("LOCAL", j, tile[2]), Opt("LOCAL", i, tile[0]), Opt("UPCAST", j, tile[3]), Opt("UPCAST", i, tile[1])]
    share = 1
    registers = tile[1] * tile[3] * len(facts.reduces)
    longest = max(inner, key=lambda a: a.extent or 0)
    while (
        groups(tile) * share < ENOUGH_GROUPS
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
