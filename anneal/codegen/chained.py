"""CHAIN: the kernel of a chain (`chain.py`), by threads or by subgroup matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from anneal.codegen.chain import GAP, LANES, SIDE, Chain, ChainedKernel, Scores, Split, chain_of, scaled, split_of
from anneal.codegen.opts import Opt, axes_of, refused
from anneal.codegen.ranges import SUBGROUP, ZERO, extent
from anneal.codegen.stage import Layout, filled, load, multiplied, rows_apart, steps_between, tile_over
from anneal.rewrite import over, rebuild
from anneal.uop import Ints, Known, Nodes, Op, Src, UOp, alu, const, dtypes, toposort
from anneal.uop.sizes import content

Rows = list[tuple[UOp, list[tuple[UOp, list[UOp]]]]]  # `Scores` that are not complete yet


def chained(sink: UOp, opts: Sequence[Opt]) -> UOp:
    """The kernel with `opts`, which ask for CHAIN. Raises CompilerError if they do not fit it."""
    chain = chain_of(sink.src, toposort(sink))
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
        self.tile_memory = self.memory(max(split.rows * self.stride, split.down * SIDE * SIDE))
        self.numbers: dict[tuple[UOp, UOp, int], int] = {}  # of the memory of factors
        self.own: dict[tuple[int, int], UOp] = {}  # the ranges of tiles

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
        tile, layout = self.waiting(value, (r, deep), (self.row, ZERO), (self.split.rows, depth), 0)
        return lambda i, k: self.matrix(tile, layout.position((i, k)), ranges, layout.strides)

    def right(self, value: UOp, wide: UOp, width: int, deep: bool) -> Callable[[UOp, UOp], UOp]:
        """The matrices of a factor over columns, by the places along the columns and along `wide`: `deep` if sums go
        over the columns."""
        first = (self.begin, ZERO)
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
        if steps is None or steps[1] != 1 or count % self.split.down:
            tile, layout, _ = rows_apart(made, own[0], own[1], GAP, buffers, ZERO)
            return tile, layout
        # brought there matrix by matrix, a thread moves two elements at a time, not one
        stride = blocks[1] + GAP
        begin = self.at(value.src[1], dict(zip(ranges, first, strict=True)))
        number = self.numbers.setdefault((value.src[0], begin, steps[0]), next(self.memories))
        memory = UOp(Op.SHARED, _F16, (), (number, (blocks[0] * stride,)))
        across, mine = blocks[1] // SIDE, count // self.split.down
        put = []
        held = (self.row_, self.column_)
        for n in range(mine):
            at = self.down * mine + n
            i, j = at // across * SIDE, at % across * SIDE
            index = self.at(value.src[1], {ranges[0]: first[0] + i, ranges[1]: first[1] + j})
            found = self.matrix(value.src[0], index, held, steps)
            put.append(self.put_matrix(memory, i * stride + j, (stride, 1), found))
        return filled(put, held, ("stored", buffers > 0, False)), Layout((stride, 1), -1, 0)

    def steps(self, value: UOp, across: UOp, deep: UOp) -> Ints | None:
        """Elements between two rows, and two steps deep, of memory that matrices are read from as it lies."""
        if value.op is not Op.LOAD or len(value.src) > 2:
            return None
        found = steps_between(value.src[1], across, deep) or ()
        return found if 1 in found and 0 not in found else None

    def scores(self) -> Scores:
        """The scores of a thread, in workgroup memory, a tile for each of `chain.scores`: neighbours are neighbours in
        a row, since memory of matrices is read and written by single elements."""
        s, lid = self.split, self.lid
        out: Rows = []
        for n in range(0, s.rows * s.columns, self.threads):
            r, c = (lid + n) // s.columns, (lid + n) % s.columns
            if self.threads % s.columns == 0:
                r, c = lid // s.columns + n // s.columns, lid % s.columns
            out.append((r, [(c, [])]))
        for n, score in enumerate(self.chain.scores):
            a, b = self.chain.factors(score)
            e = score.src[1]
            (a, left_scale), (b, right_scale) = scaled(a, e), scaled(b, e)
            depth = -(-extent(e) // SIDE) * SIDE
            left, right = self.left(a, e, depth), self.right(b, e, depth, False)
            part = self.range(depth // SIDE, "unroll")
            memory = self.memory(*self.tile_memory.arg[1]) if n else self.tile_memory
            put = []
            for u in range(0, self.mine, SIDE):
                row = self.down * self.mine + u
                for v in range(0, s.columns, SIDE):
                    x, y = left(row, part * SIDE), right(const(_I32, v), part * SIDE)
                    value = multiplied(x, y, (*self.loops(part), self.inner))
                    put.append(self.put_matrix(memory, row * self.stride + v, (self.stride, 1), value))
            tile = filled(put, (self.row_, self.column_))
            for r, [(c, sums)] in out:
                value = load(tile, r * self.stride + c)
                rows, _ = self.inside(self.row + r, self.high, s.rows)
                held, _ = self.inside(self.begin + c, self.long, s.columns)
                for op, scale in filter(None, (left_scale, right_scale)):
                    value = op(value, self.at(scale, {self.chain.r: rows, self.chain.c: held}))
                sums.append(value)
        return out

    def computed(self, value: UOp) -> UOp:
        """`value` with exponentials to the base 2: less exact than a number of float16 tells, and faster."""

        def visit(u: UOp, src: Src) -> UOp:
            if u.op is Op.EXP:
                return Op.EXP2(src[0] * math.log2(math.e))
            return over(u, src)

        return rebuild(value, visit)

    def products(self) -> Nodes:
        """The stores of sums of products with something else."""
        chain, s = self.chain, self.split
        assert chain.d is not None
        wide = -(-extent(chain.d) // SIDE) * SIDE
        scores = self.scores()
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
            f = f if scale is None else alu(scale[0], (f, scale[1]))
            tile = self.staged(f, Op.ADD, scores, self.memory(s.rows * stride, _F16), lambda r, c: r * stride + c)
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
        stores = [x for x in self.sink.src if chain.reductions[n] in toposort(x)]
        out = []
        for r, c, found in self.by_threads(self.tile_memory, self.down * SIDE * SIDE, value, (n, i, v)):
            held, inside = self.inside(v + c, extent(chain.d), SIDE)
            row = self.row + self.down * self.mine + i + r
            out += self.stored(stores, row, held, {chain.reductions[n]: found}, inside)
        return out

    def statistics(self) -> Nodes:
        """The stores of reductions of what is made of the scores, each of a thread."""
        s, row = self.split, self.lid
        fewer = self.threads > s.rows
        held = Op.MIN(row, const(_I32, s.rows - 1)) if fewer else row
        rows = [(row, held, [held * self.stride + n for n in range(s.columns)])]
        size, inside = self.tile_memory.arg[1][0], [row < s.rows] if fewer else []
        return self.reduced(self.scores(), size, lambda r, c: r * self.stride + c, rows, inside)


def _narrow(value: UOp) -> UOp:
    """A factor in float16: without its cast, if it comes from there."""
    return value.src[0] if value.op is Op.CAST and value.src[0].dtype is _F16 else value.cast(_F16)


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
        self.lanes = self.loops(self.vector)
        self.quads = [
            self.across * LANES + (i + self.vector) for i in range(0, split.rows, split.across * LANES)
        ]  # the rows of a thread's scores, four at a time

    def scores(self) -> Scores:
        """The scores of a thread, for each of its columns and each four of its rows."""
        s = self.split
        steps = {
            e: (self.range(-(-extent(e) // s.depth), "reduce"), self.range(s.depth, "written"))
            for e in self.chain.depths
        }
        mine = s.columns // s.down
        out: Rows = [(quad, [(self.down * mine + j, []) for j in range(mine)]) for quad in self.quads]
        for score in self.chain.scores:
            a, b = self.chain.factors(score)
            e = score.src[1]
            step, part = steps[e]
            loops = self.loops(step, part)
            begin = step * s.depth
            left, over = self.operand(a, (self.chain.r, e), (self.row, begin), (s.rows, s.depth))
            right, under = self.operand(b, (self.chain.c, e), (self.begin, begin), (s.columns, s.depth))
            for row, column, sums in [(row, *cell) for row, cells in out for cell in cells]:
                x, y = load(left, over.position((row, part))), load(right, under.position((column, part)))
                sums.append(multiplied(x, y, loops) if loops else x * y)
        return out

    def products(self) -> Nodes:
        """The stores of sums of products with something else."""
        chain, s = self.chain, self.split
        assert chain.d is not None
        width = extent(chain.d)
        step, part = self.range(s.columns // s.depth, "reduce"), self.range(s.depth, "written")
        rows = self.scores()
        scores = [(row, [cells[j]]) for j in range(s.columns // s.down) for row, cells in rows]  # column by column
        stride, wide, mine = s.rows + LANES, s.across * LANES, s.rows // s.down
        places = [self.across * LANES + (n + self.vector) for n in range(0, width, wide)]
        results: dict[tuple[int, UOp], Known] = {(i, place): {} for i in range(mine) for place in places}
        for u in chain.reductions:
            f, x = chain.product(u)
            assert x is not None
            tile = self.staged(f, Op.ADD, scores, self.memory(s.columns * stride), lambda r, c: c * stride + r)
            first = (ZERO, self.begin + step * s.depth)
            right, under = self.operand(x, (chain.d, chain.c), first, (-(-width // wide) * wide, s.depth))
            loops = self.loops(self.column, step, part)
            for (i, place), values in results.items():
                a = load(tile, (step * s.depth + part) * stride + self.down * mine + i)
                values[u] = multiplied(a, load(right, under.position((place, part))), loops)
        out = []
        for (i, place), values in results.items():
            held, inside = self.inside(place, width, wide)
            out += self.stored(self.sink.src, self.row + self.down * mine + i, held, values, inside)
        return out

    def statistics(self) -> Nodes:
        """The stores of reductions of what is made of the scores, for four rows at a time."""
        s = self.split
        rows = [(quad, quad, [n * s.rows + quad for n in range(s.down)]) for quad in self.quads]
        first = [self.down < 1] if s.down > 1 else []
        return self.reduced(self.scores(), s.down * s.rows, lambda r, _: self.down * s.rows + r, rows, first)
