"""CHAIN: sums over products whose one factor is made of other products, tile by tile (`anneal/schedule/fusion/chains.py`).

    out[r, d] = sum over c of f(sum over e of a[r, e] * b[c, e], ...) * x[c, d]

A kernel with the opts

    CHAIN(r, R) CHAIN(c, C) CHAIN(e, E)    a workgroup's rows, the scores' columns at a time, and the depth of a step
    LOCAL(r, L) LOCAL(c, F)                L by F threads

becomes one in which a workgroup computes R rows of results, over all of d. For each C columns it sums R by C scores from
steps of `a` and `b` that wait in workgroup memory; puts what `f` makes of them there, too; and multiplies that with C
rows of `x`. Columns that a comparison of indices rules out for all rows of a workgroup (above a diagonal) are left out.

A kernel may sum several such products over the same scores, or reduce `f` itself over c. Then each thread has its own
partial result, and those of a row are combined at the end. If one reduction is the maximum m and another one the sum of
exp(s - m), both go over the columns once: a sum is scaled anew when the maximum grows (Milakov and Gimelshein,
arXiv:1805.02867).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from anneal.codegen.affine import form
from anneal.codegen.opts import Opt, axes_of, identity
from anneal.codegen.ranges import SUBGROUP, Substitution, conjunction, extent, mask_of
from anneal.codegen.stage import Layout, rows_apart, tile_over
from anneal.errors import CompilerError
from anneal.rewrite import rebuild
from anneal.uop import DType, Op, UOp, alu, const, dtypes, toposort

_I32, _F16, _F32 = dtypes.int32, dtypes.float16, dtypes.float32
_LANES = 4
_SIDE = 16  # rows and columns of a subgroup matrix
_GAP = 8  # elements of float16 between two rows in workgroup memory
_LOW = -1e29  # what is less is a mask
_FIRST = 100  # the number of the first workgroup memory that no operand fills


def _refused(why: str, node: UOp | None = None) -> CompilerError:
    return CompilerError(f"CHAIN: {why}", stage="apply_opts", node=node)


def is_chained(opts: Sequence[Opt]) -> bool:
    """Do `opts` ask for a chain?"""
    return any(o.kind == "CHAIN" for o in opts)


@dataclass(frozen=True, slots=True)
class Chain:
    """A kernel that is a chain: its reductions over `c`, the scores below them, and the ranges.

    `d` is the loop over the width of results; None for reductions of what is made of the scores.
    """

    reductions: tuple[UOp, ...]
    scores: tuple[UOp, ...]
    r: UOp
    c: UOp
    d: UOp | None

    @property
    def depths(self) -> tuple[UOp, ...]:
        """The ranges over which scores are summed."""
        return tuple(sorted({s.src[1] for s in self.scores}, key=lambda x: int(x.arg[0])))

    def factors(self, score: UOp) -> tuple[UOp, UOp]:
        """The factor of a score over rows, and the one over columns."""
        a, b = score.src[0].src
        return (a, b) if a.ranges >> self.r.arg[0] & 1 else (b, a)

    def product(self, reduction: UOp) -> tuple[UOp, UOp | None]:
        """What is made of the scores, and what it is multiplied with, if anything is."""
        value = reduction.src[0]
        if self.d is None:
            return value, None
        a, b = value.src
        return (b, a) if a.ranges >> self.d.arg[0] & 1 else (a, b)


def _scaled(value: UOp, inner: UOp) -> tuple[UOp, tuple[Op, UOp] | None]:
    """A factor without what it is multiplied with or divided by, if that does not depend on the range `inner`."""
    if value.op in (Op.MUL, Op.DIV) and not value.src[1].ranges >> inner.arg[0] & 1:
        return value.src[0], (value.op, value.src[1])
    return value, None


def chain_of(stores: Sequence[UOp], order: Sequence[UOp]) -> Chain | None:
    """The kernel as a chain, if it is one that this room can make."""
    reduces = [u for u in order if u.op is Op.REDUCE]
    if any(len(u.src) != 2 or u.dtype is not _F32 or u.src[1].src[0].op is not Op.CONST for u in reduces):
        return None
    below: dict[UOp, set[UOp]] = {u: set() for u in reduces}  # the reduces that one is made of
    made: dict[UOp, frozenset[UOp]] = {}
    for u in order:
        mine = frozenset().union(*[made[s] for s in u.src])
        if u.op is Op.REDUCE:
            below[u] = set(mine)
            mine = mine | {u}
        made[u] = mine
    scores = [u for u in reduces if not below[u] and any(u in below[v] for v in reduces)]
    reductions = [u for u in reduces if u not in scores]
    if not scores or len({u.src[1] for u in reductions}) != 1:
        return None
    c = reductions[0].src[1]
    loops = [u for u in order if u.op is Op.RANGE and u.arg[1] == "loop"]
    if any(u.src[0].op is not Op.CONST for u in loops):
        return None
    return _with_loops(stores, tuple(reductions), tuple(scores), c, loops)


def _with_loops(
    stores: Sequence[UOp], reductions: tuple[UOp, ...], scores: tuple[UOp, ...], c: UOp, loops: list[UOp]
) -> Chain | None:
    rows = set(loops)
    for s in scores:
        if s.arg is not Op.ADD or s.src[0].op is not Op.MUL:
            return None
        a, b = s.src[0].src
        if b.ranges >> c.arg[0] & 1 == a.ranges >> c.arg[0] & 1:
            return None
        left, right = (a, b) if b.ranges >> c.arg[0] & 1 else (b, a)
        rows &= {r for r in loops if left.ranges >> r.arg[0] & 1 and not right.ranges >> r.arg[0] & 1}
    if not rows:
        return None
    r = max(rows, key=lambda r: (extent(r), r.arg[0]))
    wide = [x for x in loops if not any(s.ranges >> x.arg[0] & 1 for s in scores)]
    if len(wide) > 1:
        return None
    d = wide[0] if wide else None
    chain = Chain(reductions, scores, r, c, d)
    bits = mask_of([r, *wide])
    if any(s.ranges & bits != bits or s.src[1].ranges & bits != bits for s in stores):
        return None
    for u in reductions:
        if d is None:
            if any(v in reductions for v in toposort((u.src[0],))):
                return None
            continue
        if u.arg is not Op.ADD or u.src[0].op is not Op.MUL:
            return None
        f, x = chain.product(u)
        if x is None or not x.ranges >> d.arg[0] & 1 or x.ranges >> r.arg[0] & 1 or not x.ranges >> c.arg[0] & 1:
            return None
        if f.ranges >> d.arg[0] & 1 or any(v in reductions for v in toposort((u.src[0],))):
            return None
    return chain


# -- opts -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Split:
    """Rows of a workgroup, columns at a time, depth of a step; and threads along the rows of results, and across.

    By matrices, `down` counts subgroups, and `across` is 1.
    """

    rows: int
    columns: int
    depth: int
    down: int
    across: int
    by_matrices: bool = False

    def opts(self, chain: Chain, axes: Sequence[UOp]) -> tuple[Opt, ...]:
        """The opts that say so."""
        r, c, *deep = (axes.index(x) for x in (chain.r, chain.c, *chain.depths))
        steps = [Opt("CHAIN", e, self.depth) for e in deep]
        blocks = (Opt("CHAIN", r, self.rows), Opt("CHAIN", c, self.columns), *steps, Opt("LOCAL", r, self.down))
        return (*blocks, Opt("MATRIX", r, _SIDE)) if self.by_matrices else (*blocks, Opt("LOCAL", c, self.across))


def bytes_of(chain: Chain, split: Split) -> int:
    """Bytes of workgroup memory that a kernel takes, at most."""
    products = len(chain.reductions)
    width = 0 if chain.d is None else extent(chain.d)
    if split.by_matrices:
        depths = [-(-extent(e) // _SIDE) * _SIDE for e in chain.depths]
        wide = max(*depths, -(-width // _SIDE) * _SIDE)
        tiles = len(chain.scores) * split.rows * (split.columns + _LANES)
        own = (2 * len(chain.scores) + products) * (split.columns * (wide + _GAP)) + products * split.rows * (split.columns + _GAP)
        return 4 * tiles + 2 * own + (16 * split.down * SUBGROUP if chain.d is None else 0)
    wide = -(-width // (split.across * _LANES)) * split.across * _LANES
    pad = 4 * _LANES
    steps = split.depth * (split.rows + split.columns + 2 * pad) * len(chain.scores)
    if chain.d is None:
        return 4 * (steps + products * split.down * split.rows)
    return 4 * (steps + products * (split.columns * (split.rows + _LANES) + split.depth * (wide + pad)))


def _split(opts: Sequence[Opt], chain: Chain, axes: Sequence[UOp]) -> Split:
    amounts = {(o.kind, o.axis): o.amount for o in opts}
    r, c, *deep = (axes.index(x) for x in (chain.r, chain.c, *chain.depths))
    by_matrices = ("MATRIX", r) in amounts
    wanted = [("CHAIN", r), ("CHAIN", c), ("CHAIN", deep[0]), ("LOCAL", r), ("MATRIX", r) if by_matrices else ("LOCAL", c)]
    steps = {amounts.get(("CHAIN", e)) for e in deep}
    if set(amounts) != {*wanted, *[("CHAIN", e) for e in deep]} or len(amounts) != len(opts) or len(steps) > 1:
        raise _refused("it takes the axes of rows, columns and depth, with a LOCAL of rows and columns")
    s = Split(*[amounts[w] for w in wanted])
    if by_matrices:
        s = replace(s, across=1, by_matrices=True)
        if s.rows % (s.down * _SIDE) or s.columns % _SIDE or amounts["MATRIX", r] != _SIDE:
            raise _refused(f"{s} does not divide into matrices")
        return s
    if min(amounts.values()) < 1 or s.rows % (s.across * _LANES) or s.rows % s.down or s.columns % s.down:
        raise _refused(f"{s} does not divide into threads")
    if s.depth % _LANES or s.columns % s.depth:
        raise _refused(f"{s.columns} columns are no multiple of a depth of {s.depth}, or that not of {_LANES}")
    return s


def chained(sink: UOp, opts: Sequence[Opt]) -> UOp:
    """The kernel with `opts`, which ask for CHAIN. Raises CompilerError if they do not fit it."""
    chain = chain_of(sink.src, toposort((sink,)))
    if chain is None:
        raise _refused("the kernel is no chain of products")
    split = _split(opts, chain, [a.range for a in axes_of(sink)])
    return (_Matrices if split.by_matrices else _Threads)(sink, chain, split).kernel()


# -- the kernel -------------------------------------------------------------------------------------------------------


class _Reach(NamedTuple):
    """The columns that a row needs: so many before and after its own number, None for all of them. The others add
    nothing; to a maximum, the number `least`."""

    before: int | None
    after: int | None
    least: UOp | None


class _Chained:
    """A kernel while it is made."""

    def __init__(self, sink: UOp, chain: Chain, split: Split) -> None:
        self.sink, self.chain, self.split = sink, chain, split
        ranges = [u for u in toposort((sink,)) if u.op is Op.RANGE]
        self.fresh = 1 + max(u.arg[0] for u in ranges)
        self.memories = itertools.count(_FIRST)
        self.high, self.long = extent(chain.r), extent(chain.c)
        inner = (chain.r, chain.c, chain.d, *chain.depths)
        others = sorted([x for x in ranges if x not in inner], key=lambda x: int(x.arg[0]))
        self.table = {x: self.range(extent(x), "workgroup") for x in others}
        blocks = -(-self.high // split.rows)
        block = self.range(blocks, "workgroup")
        self.reaches = {u: _reach(chain.product(u)[0], chain, u.arg) for u in chain.reductions}
        before, after = self.live()
        # The workgroups with most columns first: the last ones to run are short.
        self.row = (const(_I32, blocks - 1) - block if after is not None else block) * split.rows
        self.first, count = self.columns(before, after)
        self.column = self.range(count, "reduce")
        self.vector = self.range(_LANES, "vector")

    def range(self, count: int | UOp, kind: str) -> UOp:
        """A fresh range; 0 in the place of one that has one value."""
        if count.__class__ is int and count == 1:
            return const(_I32, 0)
        self.fresh += 1
        return UOp(Op.RANGE, _I32, (count if isinstance(count, UOp) else const(_I32, count),), (self.fresh - 1, kind))

    # -- which columns

    def live(self) -> tuple[int | None, int | None]:
        """The columns that any of the reductions needs."""
        reaches = [self.reaches[u] for u in self.chain.reductions]
        before, after = ([r[n] for r in reaches] for n in (0, 1))
        return (
            None if None in before else max(x for x in before if x is not None),
            None if None in after else max(x for x in after if x is not None),
        )

    def finished(self, u: UOp, value: UOp, row: UOp) -> UOp:
        """The result of a reduction with what the columns add that were left out."""
        reach = self.reaches[u]
        if reach.least is None:
            return value
        more = alu(Op.MAX, (value, reach.least))
        for n, condition in ((reach.after, row < self.long - 1 - (reach.after or 0)), (reach.before, const(_I32, reach.before or 0) < row)):
            if n is not None:
                value = alu(Op.WHERE, (condition, more, value))
        return value

    def columns(self, before: int | None, after: int | None) -> tuple[UOp, int | UOp]:
        """The first block of columns that a workgroup needs, and how many it needs."""
        c = self.split.columns
        first, last = const(_I32, 0), const(_I32, -(-self.long // c))
        if before is not None:
            first = alu(Op.MIN, (alu(Op.MAX, (self.row - before, first)) // c, last))
        if after is not None:
            end = alu(Op.MAX, (self.row + (self.split.rows - 1 + after), const(_I32, -1))) // c + 1
            last = alu(Op.MIN, (end, last))
        count = last - first
        if count.is_const:
            return first, int(count.arg)
        return first, alu(Op.MAX, (count, const(_I32, 0)))

    # -- operands and scores

    def at(self, value: UOp, table: dict[UOp, UOp]) -> UOp:
        """`value` at other indices."""
        table = {**self.table, **table}
        return Substitution(table, mask_of([x for x in table if x.op is Op.RANGE]))(value)

    def inside(self, index: UOp, end: int, block: int) -> tuple[UOp, tuple[UOp, ...]]:
        """An index held below `end`, and the condition under which it is there, if blocks do not divide the extent."""
        if end % block == 0:
            return index, ()
        return alu(Op.MIN, (index, const(_I32, end - 1))), (index < end,)

    def made(self, value: UOp, sums: Sequence[UOp], row: UOp, column: UOp, op: Op) -> UOp:
        """`value` of the scores `sums` at a row and a column; the identity of `op` past the last column."""
        rows, _ = self.inside(row, self.high, self.split.rows)
        columns, inside = self.inside(column, self.long, self.split.columns)
        table = {self.chain.r: rows, self.chain.c: columns}
        out = self.at(value, {**table, **dict(zip(self.chain.scores, sums, strict=True))})
        return alu(Op.WHERE, (inside[0], out, identity(op, out.dtype))) if inside else out

    # -- results

    def kernel(self) -> UOp:
        stores = self.products() if self.chain.d is not None else self.statistics()
        return UOp(Op.SINK, self.sink.dtype, tuple(stores), self.sink.arg, self.sink.tag)

    def products(self) -> list[UOp]:
        """The stores of sums of products with something else."""
        raise NotImplementedError

    def statistics(self) -> list[UOp]:
        """The stores of reductions of what is made of the scores."""
        raise NotImplementedError

    def stored(
        self, stores: Iterable[UOp], row: UOp, wide: UOp | None, values: dict[UOp, UOp], conditions: Sequence[UOp] = ()
    ) -> list[UOp]:
        """Some of the kernel's stores at a row and a place of its width, with `values` for the reductions."""
        rows, inside = self.inside(row, self.high, self.split.rows)
        table = {self.chain.r: rows}
        asked = [*conditions, *inside]
        if self.chain.d is not None and wide is not None:
            table[self.chain.d] = wide
        out = []
        for u in stores:
            made = self.at(u, {**table, **values})
            out.append(made.replace(src=(*made.src[:3], *conjunction([*asked, *made.src[3:]]))))
        return out


class _Threads(_Chained):
    """The same by arithmetic of float32, each thread for itself."""

    def operand(self, value: UOp, ranges: tuple[UOp, UOp], first: tuple[UOp, UOp], ends: tuple[int, int], how: tuple[int, int]) -> tuple[UOp, object]:
        """The tile of an operand over two ranges from `first` on, `how` many of each, and its layout; elements past the
        `ends` are zeros."""
        own = self.range(how[0], "tile"), self.range(how[1], "tile")
        table, conditions = {}, []
        for x, at, begin, end, n in zip(ranges, own, first, ends, how, strict=True):
            table[x], inside = self.inside(begin + at, end, n)
            conditions += inside
        made = self.at(value, table)
        if conditions:
            made = alu(Op.WHERE, (conjunction(conditions)[0], made, const(made.dtype, 0)))
        tile, layout = tile_over(made, own[:1], own[1:], self.fresh, 1)
        self.fresh += 1
        return tile, layout

    def __init__(self, sink: UOp, chain: Chain, split: Split) -> None:
        super().__init__(sink, chain, split)
        self.across, self.down = self.range(split.across, "local"), self.range(split.down, "local")

    def scores(self) -> list[list[list[UOp]]]:
        """The scores of a thread: for each of its columns and each four of its rows, one for each of `chain.scores`."""
        s = self.split
        steps = {
            e: (self.range(-(-extent(e) // s.depth), "reduce"), self.range(s.depth, "written"))
            for e in self.chain.depths
        }
        sums: list[list[list[UOp]]] = [
            [[] for _ in range(s.rows // (s.across * _LANES))] for _ in range(s.columns // s.down)
        ]
        for score in self.chain.scores:
            a, b = self.chain.factors(score)
            e = score.src[1]
            step, part = steps[e]
            loops = tuple([x for x in (step, part) if x.op is Op.RANGE])
            begin, columns = step * s.depth, (self.first + self.column) * s.columns
            ends = (self.high, extent(e))
            left, over = self.operand(a, (self.chain.r, e), (self.row, begin), ends, (s.rows, s.depth))
            ends = (self.long, extent(e))
            right, under = self.operand(b, (self.chain.c, e), (columns, begin), ends, (s.columns, s.depth))
            for j, quads in enumerate(sums):
                y = UOp(Op.LOAD, b.dtype, (right, under.position((self.down * (s.columns // s.down) + j, part))))
                for i, quad in enumerate(quads):
                    x = UOp(Op.LOAD, a.dtype, (left, over.position((self.quad(i), part))))
                    quad.append(UOp(Op.REDUCE, _F32, (x * y, *loops), Op.ADD) if loops else x * y)
        return sums

    def quad(self, i: int) -> UOp:
        """The rows of a thread's scores, four at a time, in its workgroup."""
        return self.across * _LANES + (i * self.split.across * _LANES + self.vector)

    def products(self) -> list[UOp]:
        """The stores of sums of products with something else."""
        chain, s = self.chain, self.split
        assert chain.d is not None
        width = extent(chain.d)
        columns = (self.first + self.column) * s.columns
        step, part = self.range(s.columns // s.depth, "reduce"), self.range(s.depth, "written")
        scores = self.scores()
        stride = s.rows + _LANES
        wide = s.across * _LANES
        results: list[list[list[UOp]]] = [[[] for _ in range(0, width, wide)] for _ in range(s.rows // s.down)]
        for u in chain.reductions:
            f, x = chain.product(u)
            assert x is not None
            memory = UOp(Op.SHARED, _F32, (), (next(self.memories), (s.columns * stride,)))
            put = []
            for j, quads in enumerate(scores):
                mine = self.down * (s.columns // s.down) + j
                for i, sums in enumerate(quads):
                    value = self.made(f, sums, self.row + self.quad(i), columns + mine, Op.ADD)
                    put.append(UOp(Op.STORE, _F32, (memory, mine * stride + self.quad(i), value)))
            tile = UOp(Op.BUFFERIZE, _F32, (UOp(Op.SINK, _F32, tuple(put)), self.vector), ("stored", False, False))
            first = (const(_I32, 0), columns + step * s.depth)
            across = -(-width // wide) * wide
            right, under = self.operand(x, (chain.d, chain.c), first, (width, self.long), (across, s.depth))
            loops = tuple([y for y in (self.column, step, part) if y.op is Op.RANGE])
            for i, row in enumerate(results):
                a = UOp(Op.LOAD, _F32, (tile, (step * s.depth + part) * stride + self.down * len(results) + i))
                for n, found in enumerate(row):
                    place = self.across * _LANES + (n * wide + self.vector)
                    b = UOp(Op.LOAD, x.dtype, (right, under.position((place, part))))
                    found.append(UOp(Op.REDUCE, _F32, (a * b, *loops), Op.ADD))
        out = []
        for i, row in enumerate(results):
            for n, found in enumerate(row):
                place = self.across * _LANES + (n * wide + self.vector)
                held, inside = self.inside(place, width, wide)
                values = dict(zip(chain.reductions, found, strict=True))
                out += self.stored(self.sink.src, self.row + self.down * len(results) + i, held, values, inside)
        return out

    def statistics(self) -> list[UOp]:
        """The stores of reductions of what is made of the scores."""
        chain, s = self.chain, self.split
        scores = self.scores()
        columns = (self.first + self.column) * s.columns
        loops = tuple([x for x in (self.column,) if x.op is Op.RANGE])
        found: list[list[UOp]] = [[] for _ in scores[0]]
        for u in chain.reductions:
            memory = UOp(Op.SHARED, _F32, (), (next(self.memories), (s.down * s.rows,)))
            put = []
            for i in range(len(found)):
                row = self.row + self.quad(i)
                terms = [
                    self.made(u.src[0], quads[i], row, columns + (self.down * len(scores) + j), u.arg)
                    for j, quads in enumerate(scores)
                ]
                mine = functools.reduce(lambda a, b, op=u.arg: alu(op, (a, b)), terms)  # type: ignore[misc]
                mine = UOp(Op.REDUCE, _F32, (mine, *loops), u.arg) if loops else mine
                put.append(UOp(Op.STORE, _F32, (memory, self.down * s.rows + self.quad(i), mine)))
            tile = UOp(Op.BUFFERIZE, _F32, (UOp(Op.SINK, _F32, tuple(put)), self.vector), ("stored", False, False))
            for i, values in enumerate(found):
                parts = [UOp(Op.LOAD, _F32, (tile, n * s.rows + self.quad(i))) for n in range(s.down)]
                made = functools.reduce(lambda a, b, op=u.arg: alu(op, (a, b)), parts)  # type: ignore[misc]
                values.append(self.finished(u, made, self.row + self.quad(i)))
        first = (self.down < 1,) if s.down > 1 else ()
        out = []
        for i, values in enumerate(found):
            known = dict(zip(chain.reductions, values, strict=True))
            out += self.stored(self.sink.src, self.row + self.quad(i), None, known, first)
        return out


class _Matrices(_Chained):
    """The same by subgroup matrices (`matrices.py`): float16 factors, sums in float32.

    Scores go through workgroup memory, where threads make of them what is multiplied next, rounded to float16.
    """

    def __init__(self, sink: UOp, chain: Chain, split: Split) -> None:
        super().__init__(sink, chain, split)
        self.lane = self.range(SUBGROUP, "local")
        self.down = self.range(split.down, "local")
        self.row_, self.column_ = self.range(_SIDE, "row"), self.range(_SIDE, "column")
        self.inner = self.range(_SIDE, "depth")
        self.mine = split.rows // split.down  # rows of a subgroup
        self.stride = split.columns + _LANES
        self.quads = split.columns // _LANES
        self.threads = split.down * SUBGROUP
        self.lid = self.down * SUBGROUP + self.lane
        # The scores' first tile, and later the results that are stored: at least one matrix for each subgroup.
        size = max(split.rows * self.stride, split.down * _SIDE * (_SIDE + _LANES))
        self.tile_memory = UOp(Op.SHARED, _F32, (), (next(self.memories), (size,)))
        self.numbers: dict[tuple[UOp, UOp, int], int] = {}  # of the memory of factors
        self.own: dict[tuple[int, int], UOp] = {}  # the ranges of tiles
        self.scales: dict[int, list[tuple[Op, UOp]]] = {}  # of the scores: what their factors are multiplied with

    def matrix(self, first: UOp, ranges: tuple[UOp, UOp], steps: tuple[int, int], dtype: DType) -> UOp:
        """The index of a matrix whose first element is at `first`."""
        return UOp(Op.LANES, _I32, (first, *ranges, self.lane), (dtype, steps))

    def left(self, value: UOp, deep: UOp, depth: int) -> Callable[[UOp, UOp], UOp]:
        """The matrices of a factor over rows, by the place of their first element in its block: straight from memory
        where it lies there as matrices may, else from workgroup memory."""
        value = value.src[0] if value.op is Op.CAST and value.src[0].dtype is _F16 else value.cast(_F16)
        r = self.chain.r
        whole = self.high % self.split.rows == 0 and extent(deep) % depth == 0
        steps = self.steps(value, r, deep) if whole else None
        if steps is not None:

            def direct(i: UOp, k: UOp) -> UOp:
                index = self.at(value.src[1], {r: self.row + i, deep: k})
                return UOp(
                    Op.LOAD, _F16, (value.src[0], self.matrix(index, (self.row_, self.inner), steps, _F16))
                )

            return direct
        tile, layout = self.waiting(value, (r, deep), (self.row, const(_I32, 0)), (self.split.rows, depth), 0)

        def staged(i: UOp, k: UOp) -> UOp:
            index = self.matrix(layout.position((i, k)), (self.row_, self.inner), layout.strides, _F16)
            return UOp(Op.LOAD, _F16, (tile, index))

        return staged

    def right(self, value: UOp, wide: UOp, width: int, deep: bool) -> Callable[[UOp, UOp], UOp]:
        """The matrices of a factor over columns, by the places along the columns and along `wide`: `deep` if sums go
        over the columns."""
        value = value.src[0] if value.op is Op.CAST and value.src[0].dtype is _F16 else value.cast(_F16)
        first = ((self.first + self.column) * self.split.columns, const(_I32, 0))
        tile, layout = self.waiting(value, (self.chain.c, wide), first, (self.split.columns, width), 1)
        over, under = layout.strides
        ranges, steps = ((self.inner, self.column_), (over, under) if deep else (under, over))

        def staged(c: UOp, w: UOp) -> UOp:
            return UOp(Op.LOAD, _F16, (tile, self.matrix(layout.position((c, w)), ranges, steps, _F16)))

        return staged

    def waiting(
        self, value: UOp, ranges: tuple[UOp, UOp], first: tuple[UOp, UOp], blocks: tuple[int, int], buffers: int
    ) -> tuple[UOp, Layout]:
        """The tile of a factor, as it lies in its own memory: one for all that read the same."""
        own = [self.own.setdefault((n, count), self.range(count, "tile")) for n, count in enumerate(blocks)]
        table, conditions = {}, []
        for x, at, begin, n in zip(ranges, own, first, blocks, strict=True):
            table[x], inside = self.inside(begin + at, extent(x), n)
            conditions += inside
        steps = None if conditions else self.steps(value, *ranges)
        count = blocks[0] * blocks[1] // _SIDE**2
        if steps is not None and steps[1] == 1 and count % self.split.down == 0:
            return self.copied(value, ranges, first, blocks, buffers, steps[0])
        made = self.at(value, table)
        if conditions:
            made = alu(Op.WHERE, (conjunction(conditions)[0], made, const(_F16, 0)))
        tile, layout, _ = rows_apart(made, own[0], own[1], _GAP, buffers, const(_I32, 0))
        return tile, layout

    def copied(
        self, value: UOp, ranges: tuple[UOp, UOp], first: tuple[UOp, UOp], blocks: tuple[int, int], buffers: int,
        apart: int,
    ) -> tuple[UOp, Layout]:
        """The same, brought there matrix by matrix: a thread moves two elements at a time, not one."""
        stride = blocks[1] + _GAP
        begin = self.at(value.src[1], dict(zip(ranges, first, strict=True)))
        number = self.numbers.setdefault((value.src[0], begin, apart), next(self.memories))
        memory = UOp(Op.SHARED, _F16, (), (number, (blocks[0] * stride,)))
        across = blocks[1] // _SIDE
        mine = blocks[0] * across // _SIDE // self.split.down
        put = []
        held = (self.row_, self.column_)
        for n in range(mine):
            at = self.down * mine + n
            i, j = at // across * _SIDE, at % across * _SIDE
            index = self.at(value.src[1], {ranges[0]: first[0] + i, ranges[1]: first[1] + j})
            found = UOp(Op.LOAD, _F16, (value.src[0], self.matrix(index, held, (apart, 1), _F16)))
            put.append(UOp(Op.STORE, _F16, (memory, self.matrix(i * stride + j, held, (stride, 1), _F16), found)))
        sink = UOp(Op.SINK, _F16, tuple(put))
        return UOp(Op.BUFFERIZE, _F16, (sink, *held), ("stored", buffers > 0, False)), Layout((stride, 1), -1, 0)

    def steps(self, value: UOp, across: UOp, deep: UOp) -> tuple[int, int] | None:
        """Elements between two rows, and two steps deep, of memory that matrices are read from as it lies."""
        if value.op is not Op.LOAD or len(value.src) > 2:
            return None
        terms, _ = form(value.src[1])
        bits = mask_of((across, deep))
        found = terms.get(across, 0), terms.get(deep, 0)
        if any(t.ranges & bits for t in terms if t not in (across, deep)) or 1 not in found or 0 in found:
            return None
        return found

    def tile(self) -> list[UOp]:
        """The scores of a workgroup in workgroup memory, one tile for each of `chain.scores`."""
        s, c = self.split, self.chain
        tiles = []
        columns = (self.first + self.column) * s.columns
        for n, score in enumerate(c.scores):
            a, b = c.factors(score)
            e = score.src[1]
            (a, left_scale), (b, right_scale) = _scaled(a, e), _scaled(b, e)
            self.scales[n] = [x for x in (left_scale, right_scale) if x is not None]
            depth = -(-extent(e) // _SIDE) * _SIDE
            left, right = self.left(a, e, depth), self.right(b, e, depth, False)
            part = self.range(depth // _SIDE, "unroll")
            loops = tuple([x for x in (part,) if x.op is Op.RANGE])
            memory = self.tile_memory if not n else UOp(Op.SHARED, _F32, (), (next(self.memories), self.tile_memory.arg[1]))
            put = []
            for u in range(0, self.mine, _SIDE):
                row = self.down * self.mine + u
                for v in range(0, s.columns, _SIDE):
                    x, y = left(row, part * _SIDE), right(const(_I32, v), part * _SIDE)
                    value = UOp(Op.REDUCE, _F32, (x.cast(_F32) * y.cast(_F32), *loops, self.inner), Op.ADD)
                    index = self.matrix(row * self.stride + v, (self.row_, self.column_), (self.stride, 1), _F32)
                    put.append(UOp(Op.STORE, _F32, (memory, index, value)))
            ends = (self.row_, self.column_)
            tiles.append(UOp(Op.BUFFERIZE, _F32, (UOp(Op.SINK, _F32, tuple(put)), *ends), ("stored", False, False)))
        return tiles

    def sums(self, tiles: Sequence[UOp], r: UOp, c: UOp, columns: UOp) -> list[UOp]:
        """The scores of a thread at a row and a column of its workgroup's."""
        out = []
        for n, t in enumerate(tiles):
            value = UOp(Op.LOAD, _F32, (t, r * self.stride + c))
            for op, scale in self.scales[n]:
                rows, _ = self.inside(self.row + r, self.high, self.split.rows)
                held, _ = self.inside(columns + c, self.long, self.split.columns)
                value = alu(op, (value, self.at(scale, {self.chain.r: rows, self.chain.c: held})))
            out.append(value)
        return out

    def places(self) -> list[tuple[UOp, UOp]]:
        """Rows and columns of a workgroup's scores of which a thread makes something: neighbours are neighbours in a
        row, since memory of matrices is read and written by single elements."""
        columns = self.split.columns
        every = range(0, self.split.rows * columns, self.threads)
        if self.threads % columns == 0:
            row, column = self.lid // columns, self.lid % columns
            return [(row + n // columns, column) for n in every]
        return [((self.lid + n) // columns, (self.lid + n) % columns) for n in every]

    def products(self) -> list[UOp]:
        chain, s = self.chain, self.split
        assert chain.d is not None
        width = extent(chain.d)
        wide = -(-width // _SIDE) * _SIDE
        tiles, columns = self.tile(), (self.first + self.column) * s.columns
        part = self.range(s.columns // _SIDE, "written")
        loops = tuple([y for y in (self.column, part) if y.op is Op.RANGE])
        stride = s.columns + _GAP
        out: list[UOp] = []
        for n, u in enumerate(chain.reductions):
            f, x = chain.product(u)
            assert x is not None
            x, scale = _scaled(x, chain.d)
            f = _by_exp2(f)
            memory = UOp(Op.SHARED, _F16, (), (next(self.memories), (s.rows * stride,)))
            put = []
            for r, c in self.places():
                sums = self.sums(tiles, r, c, columns)
                value = self.made(f if scale is None else alu(scale[0], (f, scale[1])), sums, self.row + r, columns + c, Op.ADD)
                put.append(UOp(Op.STORE, _F16, (memory, r * stride + c, value)))  # memory rounds
            tile = UOp(Op.BUFFERIZE, _F16, (UOp(Op.SINK, _F16, tuple(put)),), ("stored", False, False))
            right = self.right(x, chain.d, wide, True)
            for i in range(0, self.mine, _SIDE):
                row = (self.down * self.mine + i) * stride + part * _SIDE
                a = UOp(Op.LOAD, _F16, (tile, self.matrix(row, (self.row_, self.inner), (stride, 1), _F16)))
                for v in range(0, wide, _SIDE):
                    b = right(part * _SIDE, const(_I32, v))
                    value = UOp(Op.REDUCE, _F32, (a.cast(_F32) * b.cast(_F32), *loops, self.inner), Op.ADD)
                    out += self.strip(n, i, v, value)
        return out

    def strip(self, n: int, i: int, v: int, value: UOp) -> list[UOp]:
        """The stores of one matrix of the sums of reduction `n`, by way of workgroup memory that all matrices share."""
        chain = self.chain
        assert chain.d is not None
        stride = _SIDE + _LANES
        mine = self.down * (_SIDE * stride)
        index = self.matrix(mine, (self.row_, self.column_), (stride, 1), _F32)
        put = UOp(Op.SINK, _F32, (UOp(Op.STORE, _F32, (self.tile_memory, index, value)),))
        tile = UOp(Op.BUFFERIZE, _F32, (put, self.row_, self.column_), ("matrices", n, i, v))
        stores = [x for x in self.sink.src if chain.reductions[n] in toposort((x,))]
        out: list[UOp] = []
        for at in range(0, _SIDE * _SIDE // _LANES, SUBGROUP):
            quad = self.lane + at
            r, c = quad // (_SIDE // _LANES), quad % (_SIDE // _LANES) * _LANES + self.vector
            held, inside = self.inside(v + c, extent(chain.d), _SIDE)
            values = {chain.reductions[n]: UOp(Op.LOAD, _F32, (tile, mine + r * stride + c))}
            out += self.stored(stores, self.row + self.down * self.mine + i + r, held, values, inside)
        return out

    def statistics(self) -> list[UOp]:
        """Each thread reduces some columns of some rows; the results of a row are reduced at the end."""
        chain, s = self.chain, self.split
        tiles, columns = self.tile(), (self.first + self.column) * s.columns
        loops = tuple([x for x in (self.column,) if x.op is Op.RANGE])
        row, values = self.lid, {}
        for u in chain.reductions:
            value, put = _by_exp2(u.src[0]), []
            for r, c in self.places():
                mine = self.made(value, self.sums(tiles, r, c, columns), self.row + r, columns + c, u.arg)
                mine = UOp(Op.REDUCE, _F32, (mine, *loops), u.arg) if loops else mine
                put.append((r * self.stride + c, mine))
            memory = UOp(Op.SHARED, _F32, (), (next(self.memories), self.tile_memory.arg[1]))
            sink = UOp(Op.SINK, _F32, tuple([UOp(Op.STORE, _F32, (memory, *x)) for x in put]))
            tile = UOp(Op.BUFFERIZE, _F32, (sink,), ("stored", False, False))
            held = alu(Op.MIN, (row, const(_I32, s.rows - 1))) if self.threads > s.rows else row
            parts = [UOp(Op.LOAD, _F32, (tile, held * self.stride + n)) for n in range(s.columns)]
            made = functools.reduce(lambda a, b, op=u.arg: alu(op, (a, b)), parts)  # type: ignore[misc]
            values[u] = self.finished(u, made, self.row + held)
        inside = (row < s.rows,) if self.threads > s.rows else ()
        return self.stored(self.sink.src, self.row + row, None, values, inside)


def _by_exp2(value: UOp) -> UOp:
    """`value` with exponentials to the base 2: less exact than a number of float16 tells, and faster."""

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u.op is Op.EXP:
            return alu(Op.EXP2, (src[0] * math.log2(math.e),))
        return u if src == u.src else u.replace(src=src)

    return rebuild(value, visit)


def _reach(value: UOp, chain: Chain, op: Op) -> _Reach:
    """How far before and after a row's own number the columns lie for which `value` is not what `op` leaves out."""
    before: int | None = None
    after: int | None = None
    least: UOp | None = None
    stack = [value]
    while stack:
        u = stack.pop()
        if u.op is Op.WHERE and op in (Op.ADD, Op.MAX) and u.dtype.is_float:
            for at, when in ((1, True), (2, False)):
                number = u.src[at]
                if number.op is not Op.CONST or (number.arg if op is Op.ADD else number.arg > _LOW or u is not value):
                    continue
                for terms, constant in _ruled_out(u.src[0], when):
                    # r - c + constant < 0 is out: columns up to r + constant are in
                    if terms == {chain.r: 1, chain.c: -1}:
                        after = constant if after is None else min(after, constant)
                    elif terms == {chain.r: -1, chain.c: 1}:
                        before = constant if before is None else min(before, constant)
                if op is Op.MAX:
                    least = number
                stack.append(u.src[3 - at])
        elif op is not Op.ADD:
            continue
        elif u.op is Op.MUL:
            stack += u.src
        elif u.op in (Op.CAST, Op.NEG):
            stack.append(u.src[0])
    return _Reach(before, after, least)


def _ruled_out(condition: UOp, when: bool) -> list[tuple[dict[UOp, int], int]]:
    """Affine forms any one of which makes `condition` be `when` where it is negative."""
    out = []
    stack = [(condition, when)]
    while stack:
        u, v = stack.pop()
        if u.op is Op.LT and u.src[0].dtype is _I32:
            a, b = u.src if v else u.src[::-1]
            out.append(form(a - b if v else a - b - 1))
        elif u.op is Op.NOT:
            stack.append((u.src[0], not v))
        elif u.op is (Op.OR if v else Op.AND):
            stack += [(s, v) for s in u.src]
    return out
