"""Chains by arithmetic of float32: each thread has its own scores, and its own results.

Both factors of the scores wait in workgroup memory, a step of their depth at a time, and so do what `f` makes of the
scores and a step of what it is multiplied with.
"""

from __future__ import annotations

import functools

from anneal.codegen.chain import LANES, Chain, Split
from anneal.codegen.chained_kernel import ChainedKernel
from anneal.codegen.ranges import conjunction, extent
from anneal.codegen.stage import Layout, tile_over
from anneal.uop import Op, UOp, const, dtypes

_I32, _F32 = dtypes.int32, dtypes.float32


class Threads(ChainedKernel):
    """A kernel by threads, while it is made."""

    def operand(
        self, value: UOp, ranges: tuple[UOp, UOp], first: tuple[UOp, UOp], how: tuple[int, int]
    ) -> tuple[UOp, Layout]:
        """The tile of an operand over two ranges from `first` on, `how` many of each, and its layout; elements past the
        ends of the ranges are zeros."""
        own = self.range(how[0], "tile"), self.range(how[1], "tile")
        table: dict[UOp, UOp] = {}
        conditions: list[UOp] = []
        for x, at, begin, n in zip(ranges, own, first, how, strict=True):
            table[x], inside = self.inside(begin + at, extent(x), n)
            conditions += inside
        made = self.at(value, table)
        if conditions:
            made = conjunction(conditions)[0].where(made, 0)
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
            [[] for _ in range(s.rows // (s.across * LANES))] for _ in range(s.columns // s.down)
        ]
        for score in self.chain.scores:
            a, b = self.chain.factors(score)
            e = score.src[1]
            step, part = steps[e]
            loops = tuple([x for x in (step, part) if x.op is Op.RANGE])
            begin, columns = step * s.depth, (self.first + self.column) * s.columns
            left, over = self.operand(a, (self.chain.r, e), (self.row, begin), (s.rows, s.depth))
            right, under = self.operand(b, (self.chain.c, e), (columns, begin), (s.columns, s.depth))
            for j, quads in enumerate(sums):
                y = UOp(Op.LOAD, b.dtype, (right, under.position((self.down * (s.columns // s.down) + j, part))))
                for i, quad in enumerate(quads):
                    x = UOp(Op.LOAD, a.dtype, (left, over.position((self.quad(i), part))))
                    quad.append(UOp(Op.REDUCE, _F32, (x * y, *loops), Op.ADD) if loops else x * y)
        return sums

    def quad(self, i: int) -> UOp:
        """The rows of a thread's scores, four at a time, in its workgroup."""
        return self.across * LANES + (i * self.split.across * LANES + self.vector)

    def products(self) -> list[UOp]:
        """The stores of sums of products with something else."""
        chain, s = self.chain, self.split
        assert chain.d is not None
        width = extent(chain.d)
        columns = (self.first + self.column) * s.columns
        step, part = self.range(s.columns // s.depth, "reduce"), self.range(s.depth, "written")
        scores = self.scores()
        stride = s.rows + LANES
        wide = s.across * LANES
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
            right, under = self.operand(x, (chain.d, chain.c), first, (across, s.depth))
            loops = tuple([y for y in (self.column, step, part) if y.op is Op.RANGE])
            for i, row in enumerate(results):
                a = UOp(Op.LOAD, _F32, (tile, (step * s.depth + part) * stride + self.down * len(results) + i))
                for n, found in enumerate(row):
                    place = self.across * LANES + (n * wide + self.vector)
                    b = UOp(Op.LOAD, x.dtype, (right, under.position((place, part))))
                    found.append(UOp(Op.REDUCE, _F32, (a * b, *loops), Op.ADD))
        out = []
        for i, row in enumerate(results):
            for n, found in enumerate(row):
                place = self.across * LANES + (n * wide + self.vector)
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
                mine = functools.reduce(lambda a, b, op=u.arg: op(a, b), terms)  # type: ignore[misc]
                mine = UOp(Op.REDUCE, _F32, (mine, *loops), u.arg) if loops else mine
                put.append(UOp(Op.STORE, _F32, (memory, self.down * s.rows + self.quad(i), mine)))
            tile = UOp(Op.BUFFERIZE, _F32, (UOp(Op.SINK, _F32, tuple(put)), self.vector), ("stored", False, False))
            for i, values in enumerate(found):
                parts = [UOp(Op.LOAD, _F32, (tile, n * s.rows + self.quad(i))) for n in range(s.down)]
                made = functools.reduce(lambda a, b, op=u.arg: op(a, b), parts)  # type: ignore[misc]
                values.append(self.finished(u, made, self.row + self.quad(i)))
        first = (self.down < 1,) if s.down > 1 else ()
        out = []
        for i, values in enumerate(found):
            known = dict(zip(chain.reductions, values, strict=True))
            out += self.stored(self.sink.src, self.row + self.quad(i), None, known, first)
        return out
