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
from collections.abc import Sequence
from dataclasses import dataclass

from anneal.codegen.affine import form
from anneal.codegen.opts import Opt, axes_of, identity
from anneal.codegen.ranges import Substitution, conjunction, extent, mask_of
from anneal.codegen.stage import tile_over
from anneal.errors import CompilerError
from anneal.uop import DType, Op, UOp, alu, const, dtypes, toposort

_I32, _F32 = dtypes.int32, dtypes.float32
_LANES = 4
_FIRST = 8  # the number of the first workgroup memory that is no operand's


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
    """Rows of a workgroup, columns at a time, depth of a step; and threads along the rows of results, and across."""

    rows: int
    columns: int
    depth: int
    down: int
    across: int

    def opts(self, chain: Chain, axes: Sequence[UOp]) -> tuple[Opt, ...]:
        """The opts that say so."""
        r, c, *deep = (axes.index(x) for x in (chain.r, chain.c, *chain.depths))
        steps = [Opt("CHAIN", e, self.depth) for e in deep]
        blocks = (Opt("CHAIN", r, self.rows), Opt("CHAIN", c, self.columns), *steps)
        return (*blocks, Opt("LOCAL", r, self.down), Opt("LOCAL", c, self.across))


def _split(opts: Sequence[Opt], chain: Chain, axes: Sequence[UOp]) -> Split:
    amounts = {(o.kind, o.axis): o.amount for o in opts}
    r, c, *deep = (axes.index(x) for x in (chain.r, chain.c, *chain.depths))
    wanted = [("CHAIN", r), ("CHAIN", c), ("CHAIN", deep[0]), ("LOCAL", r), ("LOCAL", c)]
    steps = {amounts.get(("CHAIN", e)) for e in deep}
    if set(amounts) != {*wanted, *[("CHAIN", e) for e in deep]} or len(amounts) != len(opts) or len(steps) > 1:
        raise _refused("it takes the axes of rows, columns and depth, with a LOCAL of rows and columns")
    s = Split(*[amounts[w] for w in wanted])
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
    return _Chained(sink, chain, _split(opts, chain, [a.range for a in axes_of(sink)])).kernel()


# -- the kernel -------------------------------------------------------------------------------------------------------


class _Chained:
    """A kernel while it is made, for arithmetic of float32 by threads."""

    def __init__(self, sink: UOp, chain: Chain, split: Split) -> None:
        self.sink, self.chain, self.split = sink, chain, split
        ranges = [u for u in toposort((sink,)) if u.op is Op.RANGE]
        self.fresh = 1 + max(u.arg[0] for u in ranges)
        self.memories = itertools.count(_FIRST)
        self.high, self.long = extent(chain.r), extent(chain.c)
        inner = (chain.r, chain.c, chain.d, *chain.depths)
        others = sorted([x for x in ranges if x not in inner], key=lambda x: int(x.arg[0]))
        self.table = {x: self.range(extent(x), "workgroup") for x in others}
        self.across, self.down = self.range(split.across, "local"), self.range(split.down, "local")
        blocks = -(-self.high // split.rows)
        block = self.range(blocks, "workgroup")
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
        """How far before and after a row's own number its columns lie, None for without end: others add nothing."""
        before: int | None = None
        after: int | None = None
        for n, u in enumerate(self.chain.reductions):
            low, high = _reach(self.chain.product(u)[0], self.chain, u.arg)
            before = None if low is None or (n and before is None) else max(low, before or low)
            after = None if high is None or (n and after is None) else max(high, after or high)
        return before, after

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

    def stores(self, row: UOp, wide: UOp | None, values: Sequence[UOp], conditions: Sequence[UOp] = ()) -> list[UOp]:
        """The kernel's stores at a row and a place of its width, with `values` for the reductions."""
        rows, inside = self.inside(row, self.high, self.split.rows)
        table = {self.chain.r: rows}
        asked = [*conditions, *inside]
        if self.chain.d is not None and wide is not None:
            table[self.chain.d] = wide
        out = []
        for u in self.sink.src:
            made = self.at(u, {**table, **dict(zip(self.chain.reductions, values, strict=True))})
            out.append(made.replace(src=(*made.src[:3], *conjunction([*asked, *made.src[3:]]))))
        return out

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
                out += self.stores(self.row + self.down * len(results) + i, held, found, inside)
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
                values.append(functools.reduce(lambda a, b, op=u.arg: alu(op, (a, b)), parts))  # type: ignore[misc]
        first = (self.down < 1,) if s.down > 1 else ()
        return [x for i, values in enumerate(found) for x in self.stores(self.row + self.quad(i), None, values, first)]


def _reach(value: UOp, chain: Chain, op: Op) -> tuple[int | None, int | None]:
    """How far before and after a row's own number the columns lie for which `value` is not what `op` leaves out."""
    before: int | None = None
    after: int | None = None
    stack = [value]
    while stack:
        u = stack.pop()
        if u.op is Op.MUL:
            stack += u.src
        elif u.op in (Op.CAST, Op.NEG):
            stack.append(u.src[0])
        elif u.op is Op.WHERE and op is Op.ADD:
            for at, when in ((1, True), (2, False)):
                if u.src[at].op is Op.CONST and u.src[at].arg == 0:
                    for terms, constant in _ruled_out(u.src[0], when):
                        # r - c + constant < 0 is out: columns up to r + constant are in
                        if terms == {chain.r: 1, chain.c: -1}:
                            after = constant if after is None else min(after, constant)
                        elif terms == {chain.r: -1, chain.c: 1}:
                            before = constant if before is None else min(before, constant)
                    stack.append(u.src[3 - at])
    return before, after


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
