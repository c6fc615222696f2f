"""MATRIX: sums of products of float16 numbers by subgroup matrices (`ranges.py`), which 32 threads hold together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from anneal.codegen.opts import Opt, axes_of, refused
from anneal.codegen.ranges import SUBGROUP, ZERO, extent, mask_of, merged, only_if, reads_stored
from anneal.codegen.stage import Remade, multiplied, rows_apart, steps_between
from anneal.codegen.target import MatrixShape, Target
from anneal.frozen import frozen
from anneal.uop import Ints, Known, Nodes, Op, UOp, const, dtypes, of_op, toposort

_I32, _F16, _F32 = dtypes.int32, dtypes.float16, dtypes.float32
_GAP = 8  # elements between two rows in workgroup memory
_LANES = 4
_MOST_WHOLE = 1 << 27  # bytes that every device binds as one, as a store of a whole matrix needs it
_RESULTS = 2  # the number of the workgroup memory for sums; 0 and 1 are the factors'


@frozen
class _Product:
    """A kernel that is one sum over `k` of products of a factor over `i`, the left one, and one over `j`."""

    sum: UOp
    left: UOp
    right: UOp
    i: UOp
    j: UOp


def product_of(stores: Nodes, order: Nodes, i: UOp, j: UOp) -> _Product | None:
    """The product over the loops `i` and `j` that subgroup matrices can compute, if the kernel is one."""
    sums = of_op(order, Op.REDUCE)
    if len(sums) != 1 or sums[0].arg is not Op.ADD or sums[0].dtype is not _F32 or len(sums[0].src) != 2:
        return None
    value = sums[0].src[0]
    if value.op is not Op.MUL or not all(x.op is Op.CAST and x.src[0].dtype is _F16 for x in value.src):
        return None
    k = sums[0].src[1]
    bits = mask_of((i, j))
    for a, b in (value.src, value.src[::-1]):
        left, right = a.src[0], b.src[0]
        if left.ranges & bits == mask_of((i,)) and right.ranges & bits == mask_of((j,)):
            deep = left.ranges & right.ranges
            whole = all(r.src[0].is_const for r in (i, j, k))
            if whole and deep >> k.arg[0] & 1 and _is_free(stores, order, bits):
                return _Product(sums[0], left, right, i, j)
    return None


def over_one(sink: UOp) -> UOp:
    """The kernel with one range in place of its reduce's ranges; unchanged unless it has one reduce over several
    ranges.
    """
    ranges = [u.src[1:] for u in toposort(sink) if u.op is Op.REDUCE]
    if len(ranges) != 1 or len(ranges[0]) < 2 or not all(r.src[0].is_const for r in ranges[0]):
        return sink
    return merged(sink, ranges)[0]


def _is_free(stores: Nodes, order: Nodes, loops: int) -> bool:
    """Can results be computed and stored in any order, each by one thread, and are all of them needed?"""
    stored: Known = {}
    for s in stores:
        if s.src[1].ranges & loops != loops or stored.setdefault(s.src[0], s) is not s:
            return False
    where = of_op(order, Op.WHERE)
    for u in order:
        if u.op is Op.LOAD and u.src[0] in stored and u.src[1] is not stored[u.src[0]].src[1]:
            return False
        if where and u.op is Op.LT and u.src[0].dtype is _I32:
            return False  # a mask, with blocks that nobody needs
        if u.op is Op.RANGE and not u.src[0].is_const:
            return False
    return True


# -- opts -------------------------------------------------------------------------------------------------------------


@frozen
class _Split:
    """An axis: elements of a matrix, matrices of a subgroup (or steps between two barriers), subgroups; of the reduce
    the buffers of its PREFETCH, 0 without one."""

    matrix: int
    matrices: int
    subgroups: int
    buffers: int = 0

    @property
    def mine(self) -> int:
        """Elements of a subgroup."""
        return self.matrix * self.matrices

    @property
    def block(self) -> int:
        """Elements of a workgroup."""
        return self.mine * self.subgroups


def _splits(opts: Sequence[Opt]) -> dict[int, _Split]:
    """The splits by axis, rows first, then columns, then the depth."""
    amounts = {}
    for o in opts:
        if o.kind == "MERGE":
            continue
        if o.kind not in ("MATRIX", "LOCAL", "UPCAST", "UNROLL", "TILE", "PREFETCH") or (o.kind, o.axis) in amounts:
            raise refused(f"MATRIX: {o} does not go with it")
        amounts[o.kind, o.axis] = o.amount
    axes = [axis for kind, axis in amounts if kind == "MATRIX"]
    if len(axes) != 3 or any(axis not in axes for _, axis in amounts) or amounts.get(("TILE", axes[2])) != 1:
        raise refused("MATRIX: it takes the axes of rows, of columns and of the reduce, with a TILE of 1")
    for kind, axis in amounts:
        if kind not in (("MATRIX", "UNROLL", "TILE", "PREFETCH") if axis == axes[2] else ("MATRIX", "LOCAL", "UPCAST")):
            raise refused(f"MATRIX: no {kind} of axis {axis} goes with it")
    return {
        axis: _Split(
            amounts["MATRIX", axis],
            amounts.get(("UPCAST" if axis != axes[2] else "UNROLL", axis), 1),
            amounts.get(("LOCAL", axis), 1),
            amounts.get(("PREFETCH", axis), 0),
        )
        for axis in axes
    }


def check_matrices(opts: Sequence[Opt], target: Target) -> None:
    """Raise CompilerError if `opts` ask for matrices that the target does not have."""
    kinds = {o.kind for o in opts}
    if "MATRIX" not in kinds:
        return
    m, n, k = (16, 16, 16) if "CHAIN" in kinds else [s.matrix for s in _splits(opts).values()]
    shape = MatrixShape("float16", "float32", m, n, k)
    if target.subgroup != SUBGROUP or shape not in target.matrices:
        raise refused("MATRIX: the target has no subgroup matrices of this shape")


# -- the kernel -------------------------------------------------------------------------------------------------------


def multiply(sink: UOp, opts: Sequence[Opt]) -> UOp:
    """The kernel with `opts`, which ask for MATRIX. Raises CompilerError if they do not fit it.

    A kernel with the opts

        MERGE(k, n - 1)                          where the reduce has n ranges: k, its first, stands for all of them
        MATRIX(i, m) MATRIX(j, n) MATRIX(k, d)   the shape of a matrix; i, j are loop ranges, k is the reduce
        LOCAL(i, s) LOCAL(j, t)                  s by t subgroups in a workgroup
        UPCAST(i, u) UPCAST(j, v)                u by v matrices of sums in each subgroup
        UNROLL(k, w) TILE(k, 1)                  the parts of factors in workgroup memory are w matrices deep
        PREFETCH(k, 1 or 2)                      the next ones in registers; 2: there are two buffers for them

    becomes one in which a workgroup computes s*u*m rows and t*v*n columns. A factor's part lies in workgroup memory as
    it lies in its own memory, rows apart by 8 elements more than they are long, so that the rows of a matrix lie in
    unlike banks. Where blocks do not divide a range, the last one begins earlier and overlaps with the one before: of
    rows and columns it stores the rest, and of the reduce it adds zeros for what was added already. Sums that are
    stored as they are go to memory matrix by matrix. What else is done with them is done by threads: a subgroup puts
    one matrix after another into workgroup memory, and each thread takes vectors from there.
    """
    splits = _splits(opts)
    if any(o.kind == "MERGE" for o in opts):
        sink = over_one(sink)
    axes = axes_of(sink)
    if any(not 0 <= n < len(axes) for n in splits):
        raise refused("MATRIX: it names an axis that the kernel has not")
    i, j, k = (axes[n].range for n in splits)
    product = product_of(sink.src, toposort(sink), i, j)
    if product is None or product.sum.src[1] is not k:
        raise refused("MATRIX: the kernel is no product of float16 numbers over these axes")
    for r, s in zip((i, j, k), splits.values(), strict=True):
        if min(s.matrix, s.matrices, s.subgroups) < 1 or extent(r) < s.block:
            raise refused(f"MATRIX: a block of {s.block} is longer than a range of {extent(r)}")
    if any(extent(r) % s.block for r, s in zip((i, j), splits.values())) and reads_stored(sink.src):
        raise refused("MATRIX: blocks overlap, and what one reads another may have changed")
    return _Multiplication(sink, product, *splits.values()).kernel()


def room(rows: int, columns: int, depth: int, high: int, wide: int) -> int:
    """Bytes of workgroup memory that a block of such a size takes at most, with `high` by `wide` sums at a time."""
    longest = [max(n * (depth + _GAP), depth * (n + _GAP)) for n in (rows, columns)]
    return sum(longest) * _F16.itemsize + high * wide * _F32.itemsize


class _Multiplication(Remade):
    """A kernel while it is made."""

    def __init__(self, sink: UOp, product: _Product, rows: _Split, columns: _Split, depth: _Split) -> None:
        i, j, k = product.i, product.j, product.sum.src[1]
        super().__init__(sink, (i, j, k))
        self.product, self.rows, self.columns, self.depth = product, rows, columns, depth
        self.lane = self.range(SUBGROUP, "local")
        self.across, self.down = self.range(columns.subgroups, "local"), self.range(rows.subgroups, "local")
        self.i, self.new_i = self.first(i, rows.block, self.range(-(-extent(i) // rows.block), "workgroup"))
        self.j, self.new_j = self.first(j, columns.block, self.range(-(-extent(j) // columns.block), "workgroup"))
        self.step = self.range(-(-extent(k) // depth.block), "reduce")
        self.k, self.new_k = self.first(k, depth.block, self.step)
        self.part = self.range(depth.matrices, "written")
        self.row_ = self.range(rows.matrix, "row")
        self.column_ = self.range(columns.matrix, "column")
        self.inner = self.range(depth.matrix, "depth")
        self.vector = self.range(_LANES, "vector")

    def first(self, r: UOp, block: int, number: UOp) -> tuple[UOp, UOp | None]:
        """The first element of a block of a range; if blocks overlap, also the first that no other block has."""
        count = extent(r)
        if count % block == 0:
            return number * block, None
        step = math.gcd(count, block)  # so that vectors are seen to begin where vectors may
        held = Op.MIN(number * (block // step), const(_I32, (count - block) // step)) * step
        return held, number * block

    def placed(self, value: UOp, i: UOp, j: UOp, k: UOp = ZERO, others: Known | None = None) -> UOp:
        """`value` at other indices."""
        p = self.product
        return self.at(value, {p.i: i, p.j: j, p.sum.src[1]: k, **(others or {})})

    def kernel(self) -> UOp:
        steps, (memory, index, *_) = self.steps_of_whole(), self.sink.src[0].src
        stores = []
        for u, row in enumerate(self.sums()):
            i = self.i + self.down * self.rows.mine + u * self.rows.matrix
            for v, value in enumerate(row):
                j = self.j + self.across * self.columns.mine + v * self.columns.matrix
                if steps is None:
                    stores += self.piece(i, j, (u, v), value)
                else:
                    stores.append(self.put_matrix(memory, self.placed(index, i, j), steps, value))
        return self.sink.replace(src=tuple(stores))

    def sums(self) -> list[list[UOp]]:
        """The sums of a subgroup, matrix by matrix."""
        left = self.factor(self.product.left, self.rows, self.down, self.row_, True)
        right = self.factor(self.product.right, self.columns, self.across, self.column_, False)
        loops = self.loops(self.step, self.part)
        return [[multiplied(a, b, (*loops, self.inner)) for b in right] for a in left]

    def factor(self, value: UOp, split: _Split, subgroup: UOp, wide: UOp, is_left: bool) -> Nodes:
        """The matrices of a factor, read from its part in workgroup memory."""
        across, deep = self.range(split.block, "tile"), self.range(self.depth.block, "tile")
        k = self.k + deep
        value = self.placed(value, *((self.i + across, ZERO) if is_left else (ZERO, self.j + across)), k)
        if self.new_k is not None:
            value = (k < self.new_k).where(const(value.dtype, 0), value)
        tile, layout, first = rows_apart(value, across, deep, _GAP, self.depth.buffers, self.step)
        out = []
        for n in range(split.matrices):
            place = first + layout.position([subgroup * split.mine + n * split.matrix, self.part * self.depth.matrix])
            order = 1 if is_left else -1
            out.append(self.matrix(tile, place, (wide, self.inner)[::order], layout.strides[::order]))
        return out

    def steps_of_whole(self) -> Ints | None:
        """Elements between rows and between columns, if the sums are the results, and matrices of them lie in memory
        as matrices may."""
        memory, index, *value = self.sink.src[0].src
        if len(self.sink.src) > 1 or value != [self.product.sum]:
            return None
        if memory.dtype is not _F32 or memory.arg[1][0] * memory.dtype.itemsize > _MOST_WHOLE:
            return None
        steps = steps_between(index, self.product.i, self.product.j)
        return steps if steps and 1 in steps else None

    def piece(self, i: UOp, j: UOp, place: Ints, value: UOp) -> list[UOp]:
        """The stores of the matrix of sums from `i` and `j` on, that at `place` of a subgroup's, by way of workgroup
        memory that all share."""
        # no gaps, and one matrix at a time: the less memory, the more workgroups run side by side
        m, n = self.rows.matrix, self.columns.matrix
        memory = UOp(Op.SHARED, _F32, (), (_RESULTS, (self.rows.subgroups * self.columns.subgroups * m * n,)))
        mine = (self.down * self.columns.subgroups + self.across) * (m * n)
        out = []
        for r, c, found in self.by_threads(memory, mine, value, place):
            new = [x < at + 1 for x, at in ((self.new_i, i + r), (self.new_j, j + c)) if x is not None]
            for s in self.sink.src:
                out.append(only_if(new, self.placed(s, i + r, j + c, others={self.product.sum: found})))
        return out
