"""Products of matrices: tiles of results in registers, operands staged in workgroup memory.

One structure for all: a workgroup computes a block of results, each of its threads a few rows by a few vec4s of columns.
The parts of the operands for some steps of the reduce wait in workgroup memory, the next ones in registers, and those
steps are written out: a loop around them costs a third of the speed. Neighbouring vec4s of a thread lie as far apart as
the threads reach, and 32 neighbouring threads cover 8 vec4s by 4 rows of vec4s, so that they read from all memory banks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from anneal.codegen.heuristics.facts import Facts
from anneal.codegen.lower import Target
from anneal.codegen.opts import Axis, Opt
from anneal.uop import UOp

__all__ = ["matmul"]

_UNITS = 132  # multiprocessors of the GPU that the figures here were measured on, an H200
_STEPS = 16  # of the reduce between two barriers; 32 no longer fit the instruction cache
_LANES = 4
_BARRIERS = 1.5  # the time between two tiles of operands, in steps
_JOINING = 32  # the time for which threads that share a reduce meet, in steps, each time their number doubles
_REGISTERS = 65536  # of a multiprocessor


@dataclass(frozen=True, slots=True)
class _Tile:
    """Threads along m and n, rows and columns of each thread's results, and the speed in a large product (of 1)."""

    threads_m: int
    threads_n: int
    rows: int
    columns: int
    speed: float

    @property
    def m(self) -> int:
        return self.threads_m * self.rows

    @property
    def n(self) -> int:
        return self.threads_n * self.columns

    @property
    def threads(self) -> int:
        return self.threads_m * self.threads_n

    @property
    def results(self) -> int:
        return self.rows * self.columns


_TILES = (
    _Tile(8, 16, 8, 12, 0.95),
    _Tile(8, 16, 12, 8, 0.95),
    _Tile(8, 16, 8, 8, 0.92),
    _Tile(16, 8, 8, 8, 0.91),
    _Tile(8, 8, 8, 8, 0.88),
    _Tile(8, 16, 8, 4, 0.77),
    _Tile(16, 8, 8, 4, 0.76),
    _Tile(8, 8, 8, 4, 0.72),
    _Tile(8, 16, 4, 4, 0.58),
    _Tile(16, 8, 4, 4, 0.58),
    _Tile(8, 8, 4, 4, 0.55),
    _Tile(16, 4, 4, 4, 0.52),
    _Tile(32, 2, 4, 4, 0.45),
    _Tile(4, 16, 4, 4, 0.52),
    _Tile(2, 32, 4, 4, 0.45),
    _Tile(4, 8, 4, 4, 0.48),
    _Tile(2, 16, 4, 4, 0.42),
    _Tile(2, 8, 4, 4, 0.38),
)


@dataclass(frozen=True, slots=True)
class _Product:
    """A kernel's two tiled axes, the reduce range that is tiled, how many products it holds, and its batch."""

    m: Axis
    n: Axis
    depth: Axis
    products: int
    batch: int


def matmul(facts: Facts, target: Target) -> tuple[Opt, ...] | None:
    """Reduces in which one load needs the column but not the row, another the row but not the column."""
    product = _product(facts)
    if product is None:
        return None
    steps = _steps(product.depth.extent or 1)
    best = min(_choices(product, steps, target), default=None)
    if best is None:
        return None
    _, _, tile, share = best
    i, j, k = facts.number(product.m.range), facts.number(product.n.range), facts.number(product.depth.range)
    wide = min(8, tile.threads_n)
    high = min(32 // wide, tile.threads_m)
    quad = min(_LANES, tile.rows)
    # A thread's vec4s lie side by side with its warp's; three of them read faster when they lie a block apart.
    near = tile.results <= 64
    columns, rows = Opt("UPCAST", j, tile.columns // _LANES), Opt("UPCAST", i, tile.rows // quad)
    wanted = (
        Opt("VECTORIZE", j, _LANES),
        Opt("LOCAL", j, wide),
        *((columns,) if near else ()),
        Opt("UPCAST", i, quad),
        Opt("LOCAL", i, high),
        *((rows,) if near else ()),
        Opt("LOCAL", j, tile.threads_n // wide),
        Opt("LOCAL", i, tile.threads_m // high),
        *(() if near else (columns, rows)),
        Opt("UNROLL", k, steps),
        Opt("GROUP", k, share),
    )
    return (*(o for o in wanted if o.amount > 1), Opt("TILE", k, 1), Opt("PREFETCH", k, 1))


def _product(facts: Facts) -> _Product | None:
    if not facts.reduces or len({u.src[1:] for u in facts.reduces}) != 1:
        return None
    main = facts.reduces[0]
    inner = [a for a in facts.axes if a.range in main.src[1:]]
    bits = sum(1 << a.range.arg[0] for a in inner)
    if any(a.extent is None for a in inner) or any(u.ranges & bits for u in facts.reduces):
        return None
    if math.prod(a.extent or 0 for a in inner) < 8:
        return None
    used = [u.ranges for u in facts.loads if u.ranges & bits]
    loops = [a for a in facts.axes if a.is_loop and (a.extent or 0) >= 8]
    # The n that varies fastest in memory comes first; of the ms the longest.
    for n in reversed(loops):
        ms = [m for m in reversed(loops) if m is not n and _crossed(m.range, n.range, used)]
        if ms:
            m = max(ms, key=lambda a: a.extent or 0)
            batch = facts.outputs // ((m.extent or 1) * (n.extent or 1))
            return _Product(m, n, max(inner, key=lambda a: a.extent or 0), len(facts.reduces), batch)
    return None


def _crossed(m: UOp, n: UOp, used: list[int]) -> bool:
    """Does one load depend on `m` and not on `n`, another on `n` and not on `m`?"""
    both = [(u >> m.arg[0] & 1, u >> n.arg[0] & 1) for u in used]
    return (1, 0) in both and (0, 1) in both


def _steps(depth: int) -> int:
    """How many steps of the reduce to write out: about 16, whole vec4s if the depth is, with little beyond its end."""
    if depth <= 20:
        return depth
    whole = _LANES if depth % _LANES == 0 else 1
    return min(range(8, _STEPS + 1, whole), key=lambda s: -(-depth // s) * (s + _BARRIERS))


def _choices(product: _Product, steps: int, target: Target) -> Iterator[tuple[float, int, _Tile, int]]:
    """(time, rank, tile, threads that share the reduce) of what the target can launch; the time is an estimate."""
    for rank, tile in enumerate(_TILES):
        results = tile.results * product.products
        share = 1
        while share <= 16 and share * steps <= max(steps, product.depth.extent or 1) and results <= 128:
            threads = tile.threads * share
            sums = threads * results * 4 if share > 1 else 0
            room = 4 * (tile.m + tile.n + 8) * steps * share * product.products + sums
            if threads <= target.max_threads and room <= target.workgroup_bytes:
                yield _time(product, tile, steps, share), rank, tile, share
            share *= 2


def _time(product: _Product, tile: _Tile, steps: int, share: int) -> float:
    """About how long it takes: a multiprocessor holds as many workgroups as registers allow; with fewer it is slower."""
    m, n, depth = product.m.extent or 1, product.n.extent or 1, product.depth.extent or 1
    groups = -(-product.batch * -(-m // tile.m) * -(-n // tile.n) // _UNITS)
    warps = tile.threads * share / 32
    held = max(1, int(_REGISTERS / 32 / (1.5 * tile.results * product.products + 64) / warps))
    turns, rest = divmod(groups, held)
    time = turns * held + (rest * _busy(held * warps) / _busy(rest * warps) if rest else 0)
    deep = -(-depth // (steps * share)) * steps * share + _JOINING * math.log2(share)
    return time * tile.m * tile.n * deep / tile.speed


def _busy(warps: float) -> float:
    """The part of a multiprocessor's speed that so many warps reach: few of them wait more than they compute."""
    return min(warps / 4, 1 - math.exp(-0.4 * warps))
