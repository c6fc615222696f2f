"""Chains: kernels that sum products whose one factor is made of other products (`anneal/schedule/fusion/chains.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from anneal.codegen.opts import Opt, Opts, identity, refused
from anneal.codegen.ranges import ZERO, ceil_div, conjunction, extent, form, held, mask_of, of_kind, only_if, unform
from anneal.codegen.skip import Choice, choices, zeros
from anneal.codegen.stage import Remade, filled, load, store
from anneal.frozen import frozen
from anneal.uop import DType, Known, Nodes, Op, Src, UOp, const, dtypes, of_op
from anneal.uop.sizes import Size, content, is_symbolic, size

LANES = 4
SIDE = 16  # rows and columns of a subgroup matrix
GAP = 8  # elements of float16 between two rows in workgroup memory


@frozen
class Chain:
    """A kernel that is a chain: its reductions over `c`, the scores below them, and the ranges.

    `d` is the loop over the width of results; None for reductions of what is made of the scores.
    """

    reductions: Src
    scores: Src
    r: UOp
    c: UOp
    d: UOp | None

    @property
    def depths(self) -> Src:
        """The ranges over which scores are summed."""
        return tuple(sorted({s.src[1] for s in self.scores}, key=lambda x: int(x.arg[0])))

    def factors(self, score: UOp) -> tuple[UOp, UOp]:
        """The factor of a score over rows, and the one over columns."""
        a, b = score.src[0].src
        return (a, b) if a.varies_over(self.r) else (b, a)

    def product(self, reduction: UOp) -> tuple[UOp, UOp | None]:
        """The factor that is computed from the scores, and the other factor, if there is one."""
        value = reduction.src[0]
        if self.d is None:
            return value, None
        a, b = value.src
        return (b, a) if a.varies_over(self.d) else (a, b)


def scaled(value: UOp, inner: UOp) -> tuple[UOp, tuple[Op, UOp] | None]:
    """A factor without what it is multiplied with or divided by, if that does not depend on the range `inner`."""
    if value.op in (Op.MUL, Op.DIV) and not value.src[1].varies_over(inner):
        return value.src[0], (value.op, value.src[1])
    return value, None


def chain_of(stores: Nodes, order: Nodes) -> Chain | None:
    """The kernel as a chain, if it is one for which this module has code."""
    reduces = of_op(order, Op.REDUCE)
    if any(len(u.src) != 2 or u.dtype is not _F32 for u in reduces):
        return None
    made: dict[UOp, frozenset[UOp]] = {}  # of these reduces
    for u in order:
        made[u] = frozenset().union(*[made[s] | {s} if s.op is Op.REDUCE else made[s] for s in u.src])
    scores = [u for u in reduces if not made[u] and any(u in made[v] for v in reduces)]
    reductions = [u for u in reduces if u not in scores]
    if not scores or len({u.src[1] for u in reductions}) != 1 or any(made[u] & {*reductions} for u in reductions):
        return None
    c = reductions[0].src[1]
    loops = of_kind(of_op(order, Op.RANGE), "loop")
    if not all(is_symbolic(u.src[0]) for u in (c, *loops)):
        return None
    return _with_loops(stores, tuple(reductions), tuple(scores), c, loops)


def _with_loops(stores: Nodes, reductions: Src, scores: Src, c: UOp, loops: Nodes) -> Chain | None:
    def sums_products(u: UOp) -> bool:
        return u.arg is Op.ADD and u.src[0].op is Op.MUL

    rows = set(loops)
    for s in scores:
        left, right = s.src[0].src if sums_products(s) else (c, c)
        if left.varies_over(c) == right.varies_over(c):
            return None
        if left.varies_over(c):
            left, right = right, left
        rows &= {r for r in loops if left.varies_over(r) and not right.varies_over(r)}
    wide = [x for x in loops if not any(s.varies_over(x) for s in scores)]
    if not rows or len(wide) > 1:
        return None
    r = max(rows, key=lambda r: (r.vmax, r.arg[0]))
    d = wide[0] if wide else None
    chain = Chain(reductions, scores, r, c, d)
    bits = mask_of([r, *wide])
    if any(not x.src[0].is_const for x in (*wide, *chain.depths)) or any(
        s.src[1].ranges & bits != bits for s in stores
    ):
        return None
    if d is None:
        return chain
    for u in reductions:
        if not sums_products(u):
            return None
        f, x = chain.product(u)
        if x is None or x.ranges & mask_of((r, c, d)) != mask_of((c, d)) or f.varies_over(d):
            return None
    return chain


# -- opts -------------------------------------------------------------------------------------------------------------


@frozen
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

    def opts(self, chain: Chain, axes: Nodes) -> Opts:
        """The opts of this split."""
        r, c, *deep = (axes.index(x) for x in (chain.r, chain.c, *chain.depths))
        steps = [Opt("CHAIN", e, self.depth) for e in deep]
        blocks = (Opt("CHAIN", r, self.rows), Opt("CHAIN", c, self.columns), *steps, Opt("LOCAL", r, self.down))
        return (*blocks, Opt("MATRIX", r, SIDE)) if self.by_matrices else (*blocks, Opt("LOCAL", c, self.across))


def bytes_of(chain: Chain, split: Split) -> int:
    """Bytes of workgroup memory that a kernel takes, at most."""
    products = len(chain.reductions)
    width = 0 if chain.d is None else extent(chain.d)
    if split.by_matrices:
        depths = [-(-extent(s.src[1]) // SIDE) * SIDE for s in chain.scores]
        wide = max(*depths, -(-width // SIDE) * SIDE)
        tile = max(split.rows * split.columns, split.down * SIDE * SIDE)
        single = tile * (len(chain.scores) + (products if chain.d is None else 0))
        half = (len(chain.scores) + products) * split.columns * (wide + GAP)
        if chain.d is not None:
            half += products * split.rows * (split.columns + GAP)
        # left factors are staged, too
        if content(size(chain.r.src[0])) % split.rows or any(extent(e) % SIDE for e in chain.depths):
            half += sum(split.rows * (n + GAP) for n in depths)
        return 4 * single + 2 * half
    wide = -(-width // (split.across * LANES)) * split.across * LANES
    pad = 4 * LANES
    steps = split.depth * (split.rows + split.columns + 2 * pad) * len(chain.scores)
    if chain.d is None:
        return 4 * (steps + products * split.down * split.rows)
    return 4 * (steps + products * (split.columns * (split.rows + LANES) + split.depth * (wide + pad)))


def split_of(opts: Sequence[Opt], chain: Chain, axes: Nodes) -> Split:
    """The split that `opts` say. Raises CompilerError if they say none, or one that the kernel cannot have."""
    amounts = {(o.kind, o.axis): o.amount for o in opts}
    r, c, e, *_ = (axes.index(x) for x in (chain.r, chain.c, *chain.depths))
    rows, columns, depth = (amounts.get(("CHAIN", x), 0) for x in (r, c, e))
    by_matrices = ("MATRIX", r) in amounts
    across = 1 if by_matrices else amounts.get(("LOCAL", c), 0)
    s = Split(rows, columns, depth, amounts.get(("LOCAL", r), 0), across, by_matrices)
    if len(amounts) != len(opts) or {*s.opts(chain, axes)} != {*opts}:
        raise refused("CHAIN: it takes the axes of rows, columns and depth, with a LOCAL of rows and columns")
    if by_matrices:
        if s.rows % (s.down * SIDE) or s.columns % SIDE:
            raise refused(f"CHAIN: {s} does not divide into matrices")
        return s
    if min(amounts.values()) < 1 or s.rows % (s.across * LANES) or s.rows % s.down or s.columns % s.down:
        raise refused(f"CHAIN: {s} does not divide into threads")
    if s.depth % LANES or s.columns % s.depth:
        raise refused(f"CHAIN: {s.columns} columns are no multiple of a depth of {s.depth}, or that not of {LANES}")
    return s


# -- the kernel of a chain --------------------------------------------------------------------------------------------
# The part that all kernels of chains share: the columns that a workgroup needs, indices, and stores.


_I32, _F32 = dtypes.int32, dtypes.float32
_LOW = -1e29  # smaller numbers are masks
_FIRST = 100  # the number of the first workgroup memory that no operand fills


Scores = Sequence[tuple[UOp, Sequence[tuple[UOp, Nodes]]]]  # by row and column: one for each of `chain.scores`
Place = Callable[[UOp, UOp], UOp]  # the index into memory by row and column
Row = tuple[UOp, UOp, Nodes]


class _Reach(NamedTuple):
    """The columns that a row needs: how many before and after its own number, None for all. The other columns add
    nothing to the result; to a maximum they add the number `least`.
    """

    before: UOp | None
    after: UOp | None
    least: UOp | None


class ChainedKernel(Remade):
    """A kernel while it is made.

        out[r, d] = sum over c of f(sum over e of a[r, e] * b[c, e], ...) * x[c, d]

    A kernel may have several such sums over the same scores, or reduce `f` itself over c. With the opts

        CHAIN(r, R) CHAIN(c, C) CHAIN(e, E)    a workgroup's rows, columns of scores at a time, the depth of a step
        LOCAL(r, L) LOCAL(c, F)                L by F threads
        LOCAL(r, L) MATRIX(r, 16)              L subgroups, by subgroup matrices

    it becomes one in which a workgroup computes R rows of results, over all of d. For each C columns it sums R by C
    scores; puts what `f` makes of them into workgroup memory; and multiplies that with C rows of `x`. Columns that a
    comparison of indices rules out for all rows of a workgroup (above a diagonal) are left out. `chained.py` makes the
    kernel.
    """

    lanes: Src = ()  # the ranges that a thread's rows are numbered by

    def __init__(self, sink: UOp, chain: Chain, split: Split) -> None:
        super().__init__(sink, (chain.r, chain.c, chain.d, *chain.depths))
        self.chain, self.split = chain, split
        self.memories = iter(range(_FIRST, 1000))
        self.high, self.long = size(chain.r.src[0]), size(chain.c.src[0])
        blocks = ceil_div(self.high, split.rows)
        block = self.range(blocks, "workgroup")
        self.reaches = {u: _reach(chain.product(u)[0], chain, u.arg) for u in chain.reductions}
        # the columns that any of the reductions needs
        found = zip(*[reach[:2] for reach in self.reaches.values()], strict=True)
        before, after = [None if None in x else functools.reduce(Op.MAX, x) for x in found]
        # The workgroups with most columns first: the last ones to run are short.
        self.row = (-block + (blocks - 1) if after is not None else block) * split.rows
        # the first block of columns that a workgroup needs, and the block after the last
        first = ZERO
        last = ZERO + ceil_div(self.long, split.columns)
        if before is not None:
            first = Op.MIN(Op.MAX(self.row - before, ZERO) // split.columns, last)
        if after is not None:
            end = Op.MAX(self.row + after + (split.rows - 1), const(_I32, -1)) // split.columns + 1
            last = Op.MIN(end, last)
        self.column = self.range(Op.MAX(last - first, ZERO), "reduce")
        self.begin = (first + self.column) * split.columns  # the first column of a block
        self.vector = self.range(LANES, "vector")

    def memory(self, size: int, dtype: DType = _F32) -> UOp:
        """Workgroup memory for so many numbers."""
        return UOp(Op.SHARED, dtype, (), (next(self.memories), (size,)))

    def finished(self, u: UOp, value: UOp, row: UOp) -> UOp:
        """The result of a reduction, with the contribution of the columns that were left out."""
        reach = self.reaches[u]
        if reach.least is None:
            return value
        more = Op.MAX(value, reach.least)
        if reach.after is not None:
            value = (row + reach.after < self.long - 1).where(more, value)
        if reach.before is not None:
            value = (reach.before < row).where(more, value)
        return value

    # -- operands and scores

    def inside(self, index: UOp, end: Size, block: int) -> tuple[UOp, Src]:
        """An index clamped below `end`, and the condition of being below, if blocks do not divide the extent."""
        if content(end) % block == 0:
            return index, ()
        return held(index, end), (index < end,)

    def block(self, value: UOp, ranges: Nodes, own: Nodes, first: Nodes, sizes: Sequence[int]) -> tuple[UOp, bool]:
        """An operand at the places `own` of a block from `first` on, and whether it has zeros past ranges' ends."""
        table = {}
        conditions: list[UOp] = []
        for x, at, begin, n in zip(ranges, own, first, sizes, strict=True):
            table[x], inside = self.inside(begin + at, size(x.src[0]), n)
            conditions += inside
        made = self.at(value, table)
        return (conjunction(conditions)[0].where(made, 0) if conditions else made), bool(conditions)

    def made(self, value: UOp, sums: Nodes, row: UOp, column: UOp, op: Op) -> UOp:
        """`value` of the scores `sums` at a row and a column; the identity of `op` past the last column."""
        rows, _ = self.inside(row, self.high, self.split.rows)
        columns, inside = self.inside(column, self.long, self.split.columns)
        table = {self.chain.r: rows, self.chain.c: columns}
        out = self.at(value, {**table, **dict(zip(self.chain.scores, sums, strict=True))})
        return inside[0].where(out, identity(op, out.dtype)) if inside else out

    def computed(self, value: UOp) -> UOp:
        """The values that are computed from scores, as this kind of kernel computes them."""
        return value

    def staged(self, f: UOp, op: Op, scores: Scores, memory: UOp, place: Place, loops: Src = ()) -> UOp:
        """`memory` with what `op` makes of `f` of the scores in each row, and of the iterations of loops."""
        value, put = self.computed(f), []
        for row, found in scores:
            terms = [self.made(value, sums, self.row + row, self.begin + column, op) for column, sums in found]
            part = functools.reduce(op, terms)
            part = UOp(Op.REDUCE, _F32, (part, *loops), op) if loops else part
            put.append(store(memory, place(row, found[0][0]), part))
        return filled(put, self.lanes)

    # -- results

    def reduced(self, scores: Scores, size: int, place: Place, rows: Iterable[Row], inside: Nodes) -> Nodes:
        """The stores of reductions of what is made of the scores: each thread reduces those of a row that it has, into
        memory of this size, from where the parts of a row are reduced at the end.

        Args:
            rows: those that a thread stores `inside` of a condition, each with the row that it reads instead where it
                is outside, and the places of the parts.
        """
        loops = self.loops(self.column)
        tiles = {
            u: self.staged(u.src[0], u.arg, scores, self.memory(size), place, loops) for u in self.chain.reductions
        }
        out = []
        for row, read, places in rows:
            known = {
                u: self.finished(u, functools.reduce(u.arg, [load(tile, x) for x in places]), self.row + read)
                for u, tile in tiles.items()
            }
            out += self.stored(self.sink.src, self.row + row, None, known, inside)
        return out

    def stored(
        self, stores: Iterable[UOp], row: UOp, wide: UOp | None, values: Known, conditions: Nodes = ()
    ) -> list[UOp]:
        """Some of the kernel's stores at a row and a place of its width, with `values` for the reductions."""
        rows, inside = self.inside(row, self.high, self.split.rows)
        table = {self.chain.r: rows}
        if self.chain.d is not None and wide is not None:
            table[self.chain.d] = wide
        return [only_if([*conditions, *inside], self.at(u, {**table, **values})) for u in stores]


def _reach(value: UOp, chain: Chain, op: Op) -> _Reach:
    """The columns, before and after a row's own number, for which `value` is not what `op` leaves out."""
    least = None
    ruled_out: Iterable[Choice] = ()
    if op is Op.ADD:
        ruled_out = zeros(value)
    elif op is Op.MAX and (sized := _sized(value)) is not None:
        ruled_out, least = zeros(sized), const(_F32, 0)
    elif op is Op.MAX and value.op is Op.WHERE:
        for number, when in zip(value.src[1:], (True, False), strict=True):
            if number.is_const and number.arg <= _LOW:
                ruled_out, least = choices(value.src[0], when), number
    reach: list[UOp | None] = [None, None]
    for u, v in ruled_out:
        # what is negative where it is out: of r - c + more < 0 columns up to r + more are in
        terms, constant = form(u.src[0] - u.src[1] if v else u.src[1] - u.src[0] - 1)
        sign = terms.pop(chain.r, 0)
        if sign * terms.pop(chain.c, 0) == -1 and all(map(is_symbolic, terms)):
            known, more = reach[sign > 0], unform(terms, constant)
            reach[sign > 0] = more if known is None else Op.MIN(known, more)
    return _Reach(reach[0], reach[1], least)


def _sized(value: UOp) -> UOp | None:
    """The `a` of a value `where(a < limit, a, 0)`, a magnitude without its infinities; None for another value."""
    is_size = value.op is Op.WHERE and value.src[0].op is Op.LT and value.src[0].src[0] is value.src[1]
    return value.src[1] if is_size and value.src[2].is_const and value.src[2].arg == 0 else None
