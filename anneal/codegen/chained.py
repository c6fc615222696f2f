"""CHAIN: the kernel of a chain (`chain.py`), by threads or by subgroup matrices."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from anneal.codegen.chain import GAP, LANES, SIDE, Chain, ChainedKernel, Split, chain_of, scaled, split_of
from anneal.codegen.opts import Opt, axes_of, refused
from anneal.codegen.ranges import SUBGROUP, extent
from anneal.codegen.stage import Layout, Steps, filled, load, multiplied, rows_apart, steps_between, store, tile_over
from anneal.rewrite import over, rebuild
from anneal.uop import Nodes, Op, Src, UOp, alu, const, dtypes, toposort
from anneal.uop.sizes import content


def chained(sink: UOp, opts: Sequence[Opt]) -> UOp:
    """The kernel with `opts`, which ask for CHAIN. Raises CompilerError if they do not fit it."""
    chain = chain_of(sink.src, toposort((sink,)))
    if chain is None:
        raise refused("CHAIN: the kernel is no chain of products")
    split = split_of(opts, chain, [a.range for a in axes_of(sink)])
    made = (Matrices if split.by_matrices else Threads)(sink, chain, split)
    return sink.replace(src=tuple(made.products() if chain.d is not None else made.statistics()))


# -- chains by subgroup matrices (`matrices.py`) ----------------------------------------------------------------------
# Float16 factors, sums in float32.
#
# Scores go through workgroup memory, where threads make of them what is multiplied next, rounded to float16. Memory of
# matrices is an array of single elements, so neighbouring threads take neighbouring elements; factors come into it
# matrix by matrix, two elements a thread at a time; the factors over rows stay in registers. The less workgroup memory
# a workgroup takes, the more of them run side by side: few columns at a time are best.


_I32, _F16, _F32 = dtypes.int32, dtypes.float16, dtypes.float32


class Matrices(ChainedKernel):
    """A kernel by subgroup matrices, while it is made."""

    def __init__(self, sink: UOp, chain: Chain, split: Split) -> None:
        super().__init__(sink, chain, split)
        self.lane = self.range(SUBGROUP, "local")
        self.down = self.range(split.down, "local")
        self.row_, self.column_ = self.range(SIDE, "row"), self.range(SIDE, "column")
        self.inner = self.range(SIDE, "depth")
        self.mine = split.rows // split.down  # rows of a subgroup
        self.stride = split.columns  # no gap: the less memory, the more workgroups run side by side
        self.threads = split.down * SUBGROUP
        self.lid = self.down * SUBGROUP + self.lane
        # The scores' first tile, and later the results that are stored: at least one matrix for each subgroup.
        size = max(split.rows * self.stride, split.down * SIDE * SIDE)
        self.tile_memory = self.memory(size)
        self.numbers: dict[tuple[UOp, UOp, int], int] = {}  # of the memory of factors
        self.own: dict[tuple[int, int], UOp] = {}  # the ranges of tiles
        self.scales: dict[int, list[tuple[Op, UOp]]] = {}  # of the scores: what their factors are multiplied with

    def left(self, value: UOp, deep: UOp, depth: int) -> Callable[[UOp, UOp], UOp]:
        """The matrices of a factor over rows, by the place of their first element in its block: straight from memory
        where it lies there as matrices may, else from workgroup memory."""
        value = _narrow(value)
        r, ranges = self.chain.r, (self.row_, self.inner)
        whole = content(self.high) % self.split.rows == 0 and extent(deep) % depth == 0
        steps = self.steps(value, r, deep) if whole else None
        if steps is not None:
            memory, index = value.src[:2]
            return lambda i, k: self.matrix(memory, self.at(index, {r: self.row + i, deep: k}), ranges, steps)
        tile, layout = self.waiting(value, (r, deep), (self.row, const(_I32, 0)), (self.split.rows, depth), 0)
        return lambda i, k: self.matrix(tile, layout.position((i, k)), ranges, layout.strides)

    def right(self, value: UOp, wide: UOp, width: int, deep: bool) -> Callable[[UOp, UOp], UOp]:
        """The matrices of a factor over columns, by the places along the columns and along `wide`: `deep` if sums go
        over the columns."""
        first = ((self.first + self.column) * self.split.columns, const(_I32, 0))
        tile, layout = self.waiting(_narrow(value), (self.chain.c, wide), first, (self.split.columns, width), 1)
        ranges, steps = (self.inner, self.column_), layout.strides if deep else layout.strides[::-1]
        return lambda c, w: self.matrix(tile, layout.position((c, w)), ranges, steps)

    def waiting(
        self, value: UOp, ranges: tuple[UOp, UOp], first: tuple[UOp, UOp], blocks: tuple[int, int], buffers: int
    ) -> tuple[UOp, Layout]:
        """The tile of a factor, as it lies in its own memory: one for all that read the same."""
        own = [self.own.setdefault((n, count), self.range(count, "tile")) for n, count in enumerate(blocks)]
        made, cut = self.block(value, ranges, own, first, blocks)
        steps = None if cut else self.steps(value, *ranges)
        count = blocks[0] * blocks[1] // SIDE**2
        if steps is not None and steps[1] == 1 and count % self.split.down == 0:
            return self.copied(value, ranges, first, blocks, buffers, steps[0])
        tile, layout, _ = rows_apart(made, own[0], own[1], GAP, buffers, const(_I32, 0))
        return tile, layout

    def copied(
        self,
        value: UOp,
        ranges: tuple[UOp, UOp],
        first: tuple[UOp, UOp],
        blocks: tuple[int, int],
        buffers: int,
        apart: int,
    ) -> tuple[UOp, Layout]:
        """The same, brought there matrix by matrix: a thread moves two elements at a time, not one."""
        stride = blocks[1] + GAP
        begin = self.at(value.src[1], dict(zip(ranges, first, strict=True)))
        number = self.numbers.setdefault((value.src[0], begin, apart), next(self.memories))
        memory = UOp(Op.SHARED, _F16, (), (number, (blocks[0] * stride,)))
        across = blocks[1] // SIDE
        mine = blocks[0] * across // SIDE // self.split.down
        put = []
        held = (self.row_, self.column_)
        for n in range(mine):
            at = self.down * mine + n
            i, j = at // across * SIDE, at % across * SIDE
            index = self.at(value.src[1], {ranges[0]: first[0] + i, ranges[1]: first[1] + j})
            found = self.matrix(value.src[0], index, held, (apart, 1))
            put.append(self.put_matrix(memory, i * stride + j, (stride, 1), found))
        return filled(put, held, ("stored", buffers > 0, False)), Layout((stride, 1), -1, 0)

    def steps(self, value: UOp, across: UOp, deep: UOp) -> Steps | None:
        """Elements between two rows, and two steps deep, of memory that matrices are read from as it lies."""
        if value.op is not Op.LOAD or len(value.src) > 2:
            return None
        found = steps_between(value.src[1], across, deep) or ()
        return found if 1 in found and 0 not in found else None

    def tile(self) -> Nodes:
        """The scores of a workgroup in workgroup memory, one tile for each of `chain.scores`."""
        s, c = self.split, self.chain
        tiles = []
        for n, score in enumerate(c.scores):
            a, b = c.factors(score)
            e = score.src[1]
            (a, left_scale), (b, right_scale) = scaled(a, e), scaled(b, e)
            self.scales[n] = [x for x in (left_scale, right_scale) if x is not None]
            depth = -(-extent(e) // SIDE) * SIDE
            left, right = self.left(a, e, depth), self.right(b, e, depth, False)
            part = self.range(depth // SIDE, "unroll")
            loops = self.loops(part)
            memory = self.tile_memory if not n else self.memory(*self.tile_memory.arg[1])
            put = []
            for u in range(0, self.mine, SIDE):
                row = self.down * self.mine + u
                for v in range(0, s.columns, SIDE):
                    x, y = left(row, part * SIDE), right(const(_I32, v), part * SIDE)
                    value = multiplied(x, y, (*loops, self.inner))
                    put.append(self.put_matrix(memory, row * self.stride + v, (self.stride, 1), value))
            tiles.append(filled(put, (self.row_, self.column_)))
        return tiles

    def sums(self, tiles: Nodes, r: UOp, c: UOp, columns: UOp) -> Nodes:
        """The scores of a thread at a row and a column of its workgroup's."""
        out = []
        for n, t in enumerate(tiles):
            value = load(t, r * self.stride + c)
            for op, scale in self.scales[n]:
                rows, _ = self.inside(self.row + r, self.high, self.split.rows)
                held, _ = self.inside(columns + c, self.long, self.split.columns)
                value = op(value, self.at(scale, {self.chain.r: rows, self.chain.c: held}))
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

    def products(self) -> Nodes:
        """The stores of sums of products with something else."""
        chain, s = self.chain, self.split
        assert chain.d is not None
        wide = -(-extent(chain.d) // SIDE) * SIDE
        tiles, columns = self.tile(), (self.first + self.column) * s.columns
        part = self.range(s.columns // SIDE, "written")
        loops = self.loops(self.column, part)
        stride = s.columns + GAP
        out = []
        for n, u in enumerate(chain.reductions):
            f, x = chain.product(u)
            assert x is not None
            x, scale = scaled(x, chain.d)
            while f.op is Op.CAST and f.src[0].dtype is _F16:  # memory rounds
                f = f.src[0]
            f = _by_exp2(f if scale is None else alu(scale[0], (f, scale[1])))
            memory = self.memory(s.rows * stride, _F16)
            put = []
            for r, c in self.places():
                sums = self.sums(tiles, r, c, columns)
                value = self.made(f, sums, self.row + r, columns + c, Op.ADD)
                put.append(store(memory, r * stride + c, value))
            tile = filled(put)
            right = self.right(x, chain.d, wide, True)
            for i in range(0, self.mine, SIDE):
                row = (self.down * self.mine + i) * stride + part * SIDE
                a = self.matrix(tile, row, (self.row_, self.inner), (stride, 1))
                for v in range(0, wide, SIDE):
                    b = right(part * SIDE, const(_I32, v))
                    out += self.strip(n, i, v, multiplied(a, b, (*loops, self.inner)))
        return out

    def strip(self, n: int, i: int, v: int, value: UOp) -> list[UOp]:
        """The stores of one matrix of the sums of reduction `n`, by way of workgroup memory that all matrices share."""
        chain = self.chain
        assert chain.d is not None
        stores = [x for x in self.sink.src if chain.reductions[n] in toposort((x,))]
        out = []
        for r, c, found in self.by_threads(self.tile_memory, self.down * SIDE * SIDE, value, (n, i, v)):
            held, inside = self.inside(v + c, extent(chain.d), SIDE)
            row = self.row + self.down * self.mine + i + r
            out += self.stored(stores, row, held, {chain.reductions[n]: found}, inside)
        return out

    def statistics(self) -> Nodes:
        """Each thread reduces some columns of some rows; the results of a row are reduced at the end."""
        chain, s = self.chain, self.split
        tiles, columns = self.tile(), (self.first + self.column) * s.columns
        loops = self.loops(self.column)
        row, values = self.lid, {}
        for u in chain.reductions:
            value, put = _by_exp2(u.src[0]), []
            for r, c in self.places():
                mine = self.made(value, self.sums(tiles, r, c, columns), self.row + r, columns + c, u.arg)
                mine = UOp(Op.REDUCE, _F32, (mine, *loops), u.arg) if loops else mine
                put.append((r * self.stride + c, mine))
            memory = self.memory(*self.tile_memory.arg[1])
            tile = filled([store(memory, *x) for x in put])
            held = Op.MIN(row, const(_I32, s.rows - 1)) if self.threads > s.rows else row
            parts = [load(tile, held * self.stride + n) for n in range(s.columns)]
            made = functools.reduce(u.arg, parts)
            values[u] = self.finished(u, made, self.row + held)
        inside = (row < s.rows,) if self.threads > s.rows else ()
        return self.stored(self.sink.src, self.row + row, None, values, inside)


def _narrow(value: UOp) -> UOp:
    """A factor in float16: without its cast, if it comes from there."""
    return value.src[0] if value.op is Op.CAST and value.src[0].dtype is _F16 else value.cast(_F16)


def _by_exp2(value: UOp) -> UOp:
    """`value` with exponentials to the base 2: less exact than a number of float16 tells, and faster."""

    def visit(u: UOp, src: Src) -> UOp:
        if u.op is Op.EXP:
            return Op.EXP2(src[0] * math.log2(math.e))
        return over(u, src)

    return rebuild(value, visit)


# -- chains by threads ------------------------------------------------------------------------------------------------
# Chains by arithmetic of float32: each thread has its own scores, and its own results.
#
# Both factors of the scores wait in workgroup memory, a step of their depth at a time, and so do what `f` makes of the
# scores and a step of what it is multiplied with.


class Threads(ChainedKernel):
    """A kernel by threads, while it is made."""

    def operand(
        self, value: UOp, ranges: tuple[UOp, UOp], first: tuple[UOp, UOp], how: tuple[int, int]
    ) -> tuple[UOp, Layout]:
        """The tile of an operand over two ranges from `first` on, `how` many of each, and its layout; elements past the
        ends of the ranges are zeros."""
        own = self.range(how[0], "tile"), self.range(how[1], "tile")
        made, _ = self.block(value, ranges, own, first, how)
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
            loops = self.loops(step, part)
            begin, columns = step * s.depth, (self.first + self.column) * s.columns
            left, over = self.operand(a, (self.chain.r, e), (self.row, begin), (s.rows, s.depth))
            right, under = self.operand(b, (self.chain.c, e), (columns, begin), (s.columns, s.depth))
            for j, quads in enumerate(sums):
                y = load(right, under.position((self.down * (s.columns // s.down) + j, part)))
                for i, quad in enumerate(quads):
                    x = load(left, over.position((self.quad(i), part)))
                    quad.append(multiplied(x, y, loops) if loops else x * y)
        return sums

    def quad(self, i: int) -> UOp:
        """The rows of a thread's scores, four at a time, in its workgroup."""
        return self.across * LANES + (i * self.split.across * LANES + self.vector)

    def products(self) -> Nodes:
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
            memory = self.memory(s.columns * stride)
            put = []
            for j, quads in enumerate(scores):
                mine = self.down * (s.columns // s.down) + j
                for i, sums in enumerate(quads):
                    value = self.made(f, sums, self.row + self.quad(i), columns + mine, Op.ADD)
                    put.append(store(memory, mine * stride + self.quad(i), value))
            tile = filled(put, (self.vector,))
            first = (const(_I32, 0), columns + step * s.depth)
            across = -(-width // wide) * wide
            right, under = self.operand(x, (chain.d, chain.c), first, (across, s.depth))
            loops = self.loops(self.column, step, part)
            for i, row in enumerate(results):
                a = load(tile, (step * s.depth + part) * stride + self.down * len(results) + i)
                for n, found in enumerate(row):
                    place = self.across * LANES + (n * wide + self.vector)
                    found.append(multiplied(a, load(right, under.position((place, part))), loops))
        out = []
        for i, row in enumerate(results):
            for n, found in enumerate(row):
                place = self.across * LANES + (n * wide + self.vector)
                held, inside = self.inside(place, width, wide)
                values = dict(zip(chain.reductions, found, strict=True))
                out += self.stored(self.sink.src, self.row + self.down * len(results) + i, held, values, inside)
        return out

    def statistics(self) -> Nodes:
        """The stores of reductions of what is made of the scores."""
        chain, s = self.chain, self.split
        scores = self.scores()
        columns = (self.first + self.column) * s.columns
        loops = self.loops(self.column)
        found: list[list[UOp]] = [[] for _ in scores[0]]
        for u in chain.reductions:
            memory = self.memory(s.down * s.rows)
            put = []
            for i in range(len(found)):
                row = self.row + self.quad(i)
                terms = [
                    self.made(u.src[0], quads[i], row, columns + (self.down * len(scores) + j), u.arg)
                    for j, quads in enumerate(scores)
                ]
                mine = functools.reduce(u.arg, terms)
                mine = UOp(Op.REDUCE, _F32, (mine, *loops), u.arg) if loops else mine
                put.append(store(memory, self.down * s.rows + self.quad(i), mine))
            tile = filled(put, (self.vector,))
            for i, values in enumerate(found):
                parts = [load(tile, n * s.rows + self.quad(i)) for n in range(s.down)]
                made = functools.reduce(u.arg, parts)
                values.append(self.finished(u, made, self.row + self.quad(i)))
        first = (self.down < 1,) if s.down > 1 else ()
        out = []
        for i, values in enumerate(found):
            known = dict(zip(chain.reductions, values, strict=True))
            out += self.stored(self.sink.src, self.row + self.quad(i), None, known, first)
        return out
