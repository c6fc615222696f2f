"""Products of matrices: tiles of results in registers, operands staged in workgroup memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from anneal.codegen.heuristics.facts import Facts
from anneal.codegen.matrices import over_one, product_of, room
from anneal.codegen.opts import Axis, Opt, Opts, split
from anneal.codegen.ranges import SUBGROUP, extent, form, mask_of, reads_stored
from anneal.codegen.target import HALVES, Target
from anneal.frozen import frozen
from anneal.uop import BY_MATRICES, Nodes, Op, UOp, dtypes, toposort
from anneal.uop.sizes import content

_UNITS = 132  # multiprocessors of the GPU that the figures here were measured on, an H200
_FEW = 12  # workgroups below which kernels of float32 arithmetic, of which more run at once, are as fast

# ---------------------------------------------------------------------------------------------------------------------
# Products of float16 matrices by subgroup matrices, where the target has them and the results are float16 too.
#
# The sums of such hardware are less exact than float32's (NUMERICS.md); rounded to float16 nobody can tell. So float32
# results are left to other kernels, but for those of a long sum in pieces (`anneal/schedule/passes/split_reduces.py`).
#
# Workgroups run side by side on a multiprocessor as far as their workgroup memory goes, which the H200's driver gives
# about 50 KiB of: two of the largest tile, whose loads one alone would wait for.


@frozen
class _Split:
    """Subgroups of a workgroup along rows and columns, matrices of a subgroup, and matrices deep.

    `speeds`: those of 1, 2, ... workgroups on each multiprocessor, as many as there is room for, in TFLOP/s of all.
    `start`: terms of a sum in whose time a workgroup fetches its first operands and stores its results.
    """

    subgroups: tuple[int, int]
    matrices: tuple[int, int]
    deep: int
    start: int
    speeds: Sequence[int]

    @property
    def block(self) -> tuple[int, int, int]:
        """Rows, columns and depth of a workgroup's part."""
        m, n = (16 * a * b for a, b in zip(self.subgroups, self.matrices, strict=True))
        return m, n, 16 * self.deep

    @property
    def threads(self) -> int:
        return SUBGROUP * self.subgroups[0] * self.subgroups[1]

    @property
    def room(self) -> int:
        """Bytes of workgroup memory, at most."""
        m, n, _ = self.block
        return room(m, n, 16 * self.deep, self.subgroups[0] * self.subgroups[1] * HALVES.m, HALVES.n)

    def groups(self, sizes: tuple[int, int, int], batch: int) -> int:
        """Workgroups."""
        m, n, _ = self.block
        return batch * -(-sizes[0] // m) * -(-sizes[1] // n)

    def time(self, sizes: tuple[int, int, int], batch: int) -> float:
        """The estimated time: full rounds of workgroups, and the last round."""
        whole, rest = divmod(-(-self.groups(sizes, batch) // _UNITS), len(self.speeds))
        rounds = whole * len(self.speeds) / self.speeds[-1] + (rest / self.speeds[rest - 1] if rest else 0)
        m, n, k = self.block
        return rounds * m * n * (-(-sizes[2] // k) * k + self.start)


def _table(text: str) -> list[list[Any]]:
    """The rows of a table of numbers."""
    return [[int(n) if n.isdigit() else float(n) for n in row.split()] for row in text.strip().splitlines()]


# subgroups, matrices, depth, start, speeds
_SPLITS = tuple(
    [
        _Split((s, t), (u, v), deep, start, speeds)
        for s, t, u, v, deep, start, *speeds in _table("""
    2 2  4 4  2  160  189 278
    2 2  4 6  1   80  160 232
    2 2  3 6  2   80  162 243
    2 4  3 2  2  160  204 258
    2 2  4 3  2   80  130 213
    2 2  3 4  2   80  159 226
    2 4  2 2  2   80  154 202
    2 2  4 2  2   80  141 197
    2 2  2 4  4   80  180
    2 2  2 3  2   80  114 160 195
    2 4  2 1  4   80  123
    2 2  2 2  4   80  101 168
    2 2  2 2  2   80  84 150 170
""")
    ]
)


def matrices(facts: Facts, target: Target) -> Opts | None:
    """Opts for the one product of a kernel, if its sizes are at least those of a tile."""
    if HALVES not in target.matrices or target.subgroup != SUBGROUP or len(facts.reduces) != 1:
        return None
    loops = [a.range for a in facts.axes if a.is_loop]
    if not _is_rounded(facts) and not _is_piece(facts, loops):
        return None
    stores = over_one(UOp(Op.SINK, dtypes.float32, facts.stores)).src
    order = toposort(stores)
    # The loop that varies fastest in memory becomes the columns; of the others the longest the rows.
    for j in reversed(loops):
        rows = [i for i in loops if i is not j and product_of(stores, order, i, j) is not None]
        if rows:
            return _opts(facts, target, max(rows, key=extent), j)
    return None


def _is_rounded(facts: Facts) -> bool:
    """Is the sum rounded to float16, by the stores or before anything else is done with it, or may it be inexact?"""
    total = facts.reduces[0]
    if total.tag == BY_MATRICES or all(s.src[0].dtype is dtypes.float16 for s in facts.stores):
        return True
    uses = [u for u in toposort(facts.stores) if total in u.src]
    return all(u.op is Op.CAST and u.dtype is dtypes.float16 for u in uses)


def _is_piece(facts: Facts, loops: Nodes) -> bool:
    """Is each sum a piece of a longer one? Then a loop goes on in every factor at the end of a range of the reduce."""
    ranges = facts.reduces[0].src[1:]
    if any(s.src[2] is not facts.reduces[0] for s in facts.stores) or any(not r.src[0].is_const for r in ranges):
        return False
    forms = [form(u.src[1])[0] for u in facts.loads]
    return any(all(f.get(z, 0) == extent(r) * f.get(r, 0) != 0 for f in forms) for z in loops for r in ranges)


def _opts(facts: Facts, target: Target, i: UOp, j: UOp) -> Opts | None:
    k, *others = facts.reduces[0].src[1:]
    sizes = extent(i), extent(j), extent(k) * math.prod(map(extent, others))
    batch = facts.outputs // (sizes[0] * sizes[1])
    whole = reads_stored(facts.stores)
    fit = [
        t
        for t in _SPLITS
        if not any(n < b for n, b in zip(sizes, t.block, strict=True))
        and not (whole and (sizes[0] % t.block[0] or sizes[1] % t.block[1]))
        and t.groups(sizes, batch) >= _FEW
        and t.threads <= target.max_threads
        and t.room <= target.workgroup_bytes
    ]
    if not fit:
        return None
    tile = min(fit, key=lambda t: t.time(sizes, batch))
    at, across, deep = facts.number(i), facts.number(j), facts.number(k)
    return (
        *((Opt("MERGE", deep, len(others)),) if others else ()),
        Opt("MATRIX", at, HALVES.m),
        Opt("MATRIX", across, HALVES.n),
        Opt("MATRIX", deep, HALVES.k),
        Opt("LOCAL", at, tile.subgroups[0]),
        Opt("LOCAL", across, tile.subgroups[1]),
        Opt("UPCAST", at, tile.matrices[0]),
        Opt("UPCAST", across, tile.matrices[1]),
        Opt("UNROLL", deep, tile.deep),
        Opt("TILE", deep, 1),
        Opt("PREFETCH", deep, 1),
    )


# ---------------------------------------------------------------------------------------------------------------------


_STEPS = 16  # of the reduce between two barriers; 32 no longer fit the instruction cache
_LANES = 4
_BARRIERS = 1.5  # the time between two tiles of operands, in steps
_JOINING = 32  # steps that threads which share a reduce wait for each other, each time their number doubles
_START = 16  # the first loads and the stores of a workgroup, in steps, which other workgroups fill
_REGISTERS = 65536  # of a multiprocessor
_WHOLE_TILES = 32  # a symbolic extent divisible by this is divisible by its tiles


@frozen
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


# threads along m and n, rows and columns, speed
_TILES = tuple(
    [
        _Tile(*row)
        for row in _table("""
     8 16   8 12  0.93
     8 16  12  8  0.93
    16  8   8 16  0.925
     8 16   8  8  0.92
    16  8   8  8  0.91
     8 16   8  4  0.83
    16  8   8  4  0.7
     8  8   8  4  0.66
     8 16   4  4  0.58
    16  8   4  4  0.58
     8  8   4  4  0.55
    16  4   4  4  0.52
    32  2   4  4  0.45
     4 16   4  4  0.52
     2 32   4  4  0.45
     4  8   4  4  0.4
     2 16   4  4  0.36
     2  8   4  4  0.3
""")
    ]
)


@frozen
class _Product:
    """A kernel's two tiled axes, its reduce ranges, which are tiled as one, how many products it holds, and its batch.

    `columns` and `rows` count the loads that may be staged: those that need n, and the others; `down` says that one of
    these runs along m in memory. `across` are the pairs of m, n and the reduce that a mask compares: above its diagonal
    nothing is computed. `itemsize` is that of what is summed.
    """

    m: Axis
    n: Axis
    inner: tuple[Axis, ...]
    products: int
    batch: int
    rows: int
    columns: int
    down: bool
    across: frozenset[str]
    itemsize: int

    @property
    def depth(self) -> int:
        return math.prod(a.count for a in self.inner)

    @property
    def steps(self) -> int:
        """The number of steps of the reduce to unroll: if possible, such that a tile ends where the last range does."""
        last = self.inner[-1].count
        if not isinstance(self.inner[-1].size, int) and content(self.inner[-1].size) >= 8:
            last = content(self.inner[-1].size)
        return _steps(last if last >= 8 and last % _steps(last) == 0 else self.depth)

    def groups(self, tile: _Tile) -> int:
        """Workgroups."""
        return self.batch * -(-self.m.count // tile.m) * -(-self.n.count // tile.n)

    def fraction(self, tile: _Tile) -> float:
        """The part of the work that is left below the diagonals of masks: the smaller the tile, the nearer to half."""
        m, n = min(1, tile.m / self.m.count), min(1, tile.n / self.n.count)
        return math.prod((1 + {"mn": max(m, n), "mk": m, "nk": n}[pair]) / 2 for pair in self.across)


def matmul(facts: Facts, target: Target) -> Opts | None:
    """Reduces in which one load needs the column but not the row, another the row but not the column.

    One structure for all: a workgroup computes a block of results, each thread a few rows by a few vec4s of columns.
    The parts of the operands for some steps of the reduce wait in workgroup memory, the next ones in registers, and
    those steps are written out: a loop around them costs a third of the speed. A thread's vec4s lie as far apart as the
    threads reach, and 32 neighbouring threads cover 8 vec4s by 4 rows of vec4s, so that they read from all memory
    banks.
    """
    product = _product(facts)
    if product is None:
        return None
    best = min(_choices(product, target), default=None)
    if best is None:
        return None
    _, _, tile, share = best
    i, j, k = facts.number(product.m.range), facts.number(product.n.range), facts.number(product.inner[0].range)
    wide = min(8, tile.threads_n)
    high = min(32 // wide, tile.threads_m)
    quad = min(_LANES, tile.rows)
    wanted = (
        *((Opt("MERGE", k, len(product.inner) - 1),) if len(product.inner) > 1 else ()),
        Opt("VECTORIZE", j, _LANES),
        Opt("LOCAL", j, wide),
        Opt("UPCAST", i, quad),
        Opt("LOCAL", i, high),
        Opt("LOCAL", j, tile.threads_n // wide),
        Opt("LOCAL", i, tile.threads_m // high),
        Opt("UPCAST", j, tile.columns // _LANES),
        Opt("UPCAST", i, tile.rows // quad),
        Opt("UNROLL", k, product.steps),
        Opt("GROUP", k, share),
    )
    return (*(o for o in wanted if o.amount > 1 or o.kind == "MERGE"), Opt("TILE", k, 1), Opt("PREFETCH", k, 1))


def registers(facts: Facts, target: Target) -> Opts | None:
    """Reduces where threads that wait for each other cost more than memory that is read again: each thread has a small
    tile of results, and takes lanes of vectors along the reduce, or along the columns."""
    if len(facts.reduces) != 1 or len(facts.reduces[0].src) != 2:
        return None
    k = facts.reduces[0].src[1]
    product = _product(facts)
    deep = facts.lanes([k]) if k.src[0].is_const else 1
    opts = split("VECTORIZE", facts.number(k), deep)
    tile = [] if product is None else [(product.m, 4), (product.n, 4 if deep > 1 else 1)]
    if product is not None and deep == 1:
        opts = split("VECTORIZE", facts.number(product.n.range), facts.lanes([product.n.range]))
    for axis, most in tile:
        opts += split("UPCAST", facts.number(axis.range), math.gcd(axis.count, most))
    return (*opts, Opt("FLAT", 0, min(64, target.max_threads))) if opts else None


def _product(facts: Facts) -> _Product | None:
    if not facts.reduces or len({u.src[1:] for u in facts.reduces}) != 1:
        return None
    main = facts.reduces[0]
    inner = sorted((a for a in facts.axes if a.range in main.src[1:]), key=lambda a: main.src.index(a.range))
    bits = mask_of([a.range for a in inner])
    if any(a.extent is None for a in inner) or any(u.ranges & bits for u in facts.reduces):
        return None
    if len(inner) > 1 and not all(a.range.src[0].is_const for a in inner):
        return None  # taken as one they would need a symbolic divisor
    if math.prod(a.extent or 0 for a in inner) < 8:
        return None
    used = [u.ranges for u in facts.loads if u.ranges & bits]
    loops = [a for a in facts.axes if a.is_loop and a.count >= 8]
    # The n that varies fastest in memory comes first; of the ms the longest.
    for n in reversed(loops):
        ms = [m for m in reversed(loops) if m is not n and _crossed(m.range, n.range, used)]
        if ms:
            m = max(ms, key=lambda a: a.extent or 0)
            batch = facts.outputs // (m.count * n.count)
            columns = sum(u >> n.range.arg[0] & 1 for u in used)
            rows = len(used) - columns
            down = any(u.ranges & bits and form(u.src[1])[0].get(m.range) == 1 for u in facts.loads)
            across = _across(facts.comparisons, m.range, n.range, inner[0].range)
            itemsize = max(u.dtype.itemsize for u in facts.reduces)
            return _Product(m, n, tuple(inner), len(facts.reduces), batch, rows, columns, down, across, itemsize)
    return None


def _across(comparisons: Nodes, m: UOp, n: UOp, k: UOp) -> frozenset[str]:
    """The two of m, n and k that a comparison has, if it has nothing else."""
    names = {m: "m", n: "n", k: "k"}
    found = []
    for u in comparisons:
        terms = form(u.src[0] - u.src[1])[0]
        if len(terms) == 2 and all(names.get(t) for t in terms) and sum(terms.values()) == 0:
            found.append("".join(sorted((names[t] for t in terms), key="mnk".index)))
    return frozenset(found)


def _crossed(m: UOp, n: UOp, used: list[int]) -> bool:
    """Does one load depend on `m` and not on `n`, another on `n` and not on `m`?"""
    both = [(u >> m.arg[0] & 1, u >> n.arg[0] & 1) for u in used]
    return (1, 0) in both and (0, 1) in both


def _steps(depth: int) -> int:
    """The number of steps of the reduce to unroll: about 16, whole vec4s if the depth is, with little beyond its
    end.
    """
    if depth <= 20:
        return depth
    whole = _LANES if depth % _LANES == 0 else 1
    return min(range(8, _STEPS + 1, whole), key=lambda s: -(-depth // s) * (s + _BARRIERS))


def _choices(product: _Product, target: Target) -> Iterator[tuple[float, int, _Tile, int]]:
    """(time, rank, tile, threads that share the reduce) of what the target can launch; the time is an estimate."""
    steps, depth = product.steps, product.depth
    evenly = [(a.size, step) for a, step in ((product.m, 0), (product.n, 1)) if content(a.size) >= _WHOLE_TILES]
    for rank, tile in enumerate(_TILES):
        if any(not isinstance(n, int) and content(n) % (tile.m, tile.n)[at] for n, at in evenly):
            continue  # a symbolic extent of whole tiles needs no test of what runs over
        results = tile.results * product.products
        share = 1
        while share <= 16 and share * steps <= max(steps, depth) and results <= 128:
            threads = tile.threads * share
            sums = threads * results * product.itemsize if share > 1 else 0
            staged = product.rows * (tile.m + 4) + product.columns * (tile.n + 4)
            room = product.itemsize * steps * share * staged + sums
            if threads <= target.max_threads and room <= target.workgroup_bytes:
                # Of two tiles of one size prefer the taller if rows are contiguous in memory, else the wider.
                flat = (tile.rows < tile.columns) == product.down
                yield _time(product, tile, share), rank + flat * len(_TILES), tile, share
            share *= 2


def _time(product: _Product, tile: _Tile, share: int) -> float:
    """The estimated time of a tile: a multiprocessor holds as many workgroups as registers allow; with fewer it is
    slower.
    """
    steps = product.steps
    warps = tile.threads * share / 32
    held = max(1, int(_REGISTERS / 32 / (1.5 * tile.results * product.products + 64) / warps))
    groups = product.groups(tile)
    mine = -(-groups // _UNITS)  # of a multiprocessor
    if mine <= held:
        time = mine * _busy(held * warps) / _busy(mine * warps)
    else:
        # The workgroups that are left when all multiprocessors are full go to those that are free first, several to
        # one.
        whole, rest = divmod(groups / _UNITS, held)
        time = whole * held + (min(held, max(rest, 1 + 3 * rest / held)) if rest else 0)
    deep = -(-product.depth // (steps * share)) * steps * share + _JOINING * math.log2(share) + _START / held
    return time * tile.m * tile.n * deep * product.fraction(tile) / tile.speed


def _busy(warps: float) -> float:
    """The part of a multiprocessor's speed that so many warps reach: few of them wait more than they compute."""
    return min(warps / 4, 1 - math.exp(-0.4 * warps))
