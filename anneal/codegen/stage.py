"""TILE: operands of a reduce wait in workgroup memory, where all threads of a workgroup read them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from anneal.codegen.ranges import SUBGROUP, ZERO, extent, form, mask_of, normalise, only_if, substituted, unused
from anneal.frozen import frozen
from anneal.uop import Ints, Known, Nodes, Numbers, Op, Src, UOp, const, dtypes, of_op, ranged, toposort
from anneal.uop.sizes import Size, size

_I32, _F32 = dtypes.int32, dtypes.float32
_BANKS, _ROWS = 32, 4  # of workgroup memory, one element wide; rows between two gaps, as long as a vector


@frozen
class Layout:
    """Places of a tile's elements: a stride for each range, and `pad` elements left out after every fourth value of
    the range numbered `padded`."""

    strides: Ints
    padded: int
    pad: int

    def position(self, at: Nodes) -> UOp:
        out = ZERO
        for i in reversed(range(len(at))):
            out = out + at[i] * self.strides[i]
            if self.pad and i == self.padded:
                out = out + at[i] // _ROWS * self.pad
        return out


class Remade:
    """A kernel while it is made anew over fresh ranges: its own but those of `inner` become workgroups."""

    lane: UOp  # the number of a thread in its subgroup
    row_: UOp  # ranges of a matrix of sums
    column_: UOp
    vector: UOp

    def __init__(self, sink: UOp, inner: Collection[UOp | None]) -> None:
        self.sink = sink
        ranges = of_op(toposort(sink), Op.RANGE)
        self.fresh = unused(ranges)
        others = sorted([x for x in ranges if x not in inner], key=lambda x: int(x.arg[0]))
        self.table = {x: self.range(size(x.src[0]), "workgroup") for x in others}

    def range(self, count: Size, kind: str) -> UOp:
        """A fresh range; 0 in the place of one that has one value."""
        end = ZERO + count
        if end.is_const and end.arg == 1:
            return ZERO
        self.fresh += 1
        return ranged(end, (self.fresh - 1, kind))

    def loops(self, *ranges: UOp) -> Src:
        """The ranges among these, which may be numbers."""
        return tuple(of_op(ranges, Op.RANGE))

    def at(self, value: UOp, table: Known) -> UOp:
        """`value` at other indices."""
        return substituted(value, {**self.table, **table})

    def matrix(self, memory: UOp, first: UOp, ranges: Nodes, steps: Ints) -> UOp:
        """The matrix in memory whose first element is at `first`."""
        return load(memory, self.of_matrix(memory, first, ranges, steps))

    def put_matrix(self, memory: UOp, first: UOp, steps: Ints, value: UOp) -> UOp:
        """The store of a matrix of sums there."""
        return store(memory, self.of_matrix(memory, first, (self.row_, self.column_), steps), value)

    def of_matrix(self, memory: UOp, first: UOp, ranges: Nodes, steps: Ints) -> UOp:
        """The index of a matrix."""
        return UOp(Op.LANES, _I32, (first, *ranges, self.lane), (memory.dtype, steps))

    def by_threads(self, memory: UOp, mine: UOp, value: UOp, place: Ints) -> Iterator[tuple[UOp, UOp, UOp]]:
        """The vectors of a matrix of sums that a thread takes from the workgroup memory that all matrices share: row,
        column and value. The matrix begins at `mine` there; `place` tells it from others."""
        m, n = extent(self.row_), extent(self.column_)
        put = self.put_matrix(memory, mine, (n, 1), value)
        tile = filled((put,), (self.row_, self.column_), ("matrices", *place))
        for at in range(0, m * n // _ROWS, SUBGROUP):
            quad = self.lane + at
            r, c = quad // (n // _ROWS), quad % (n // _ROWS) * _ROWS + self.vector
            yield r, c, load(tile, mine + r * n + c)


def steps_between(index: UOp, across: UOp, down: UOp) -> Ints | None:
    """Elements between the neighbours along two ranges, 0 where one does not move the index; None where they have no
    one distance."""
    terms, _ = form(index)
    bits = mask_of((across, down))
    if any(t.ranges & bits for t in terms if t not in (across, down)):
        return None
    return terms.get(across, 0), terms.get(down, 0)


# -- nodes that read, store and multiply -------------------------------------------------------------------------------


def load(memory: UOp, index: UOp) -> UOp:
    return UOp(Op.LOAD, memory.dtype, (memory, index))


def store(memory: UOp, index: UOp, value: UOp) -> UOp:
    return UOp(Op.STORE, memory.dtype, (memory, index, value))


def filled(put: Nodes, ends: Nodes = (), how: tuple[object, ...] = ("stored", False, False)) -> UOp:
    """Workgroup memory after these stores into it, which end some ranges."""
    dtype = put[0].dtype
    return UOp(Op.BUFFERIZE, dtype, (UOp(Op.SINK, dtype, tuple(put)), *ends), how)


def multiplied(a: UOp, b: UOp, loops: Nodes) -> UOp:
    """The sum of products over loops, in float32."""
    return UOp(Op.REDUCE, _F32, (a.cast(_F32) * b.cast(_F32), *loops), Op.ADD)


def stage(sink: UOp, threads: Nodes, depth: Nodes, buffers: int) -> UOp:
    """Stage the operands of every reduce that runs over a range of `depth`.

        stage       an operand becomes LOAD(BUFFERIZE(operand over ranges of its own, *those ranges), position)
        fill        ... and that BUFFERIZE the stores with which the threads, side by side, fill the tile

    An operand is the largest part of the reduce's value that loads from memory and that several threads, or several
    registers of one thread, would compute alike: in a product of matrices each factor, with whatever elementwise work
    is fused into it. A tile holds one element for every value of the pieces of ranges that it depends on. Those of the
    loop ranges vary fastest, in the order of their axis, so that a thread's neighbouring registers are neighbours in
    the tile; those of the reduce come last.

    `threads` and `depth` are the pieces of the loop ranges and of the reduce range that vary within a workgroup,
    fastest first. `buffers` is 0 for tiles that are fetched when they are needed, 1 for tiles that are
    prefetched, 2 for double buffering.
    """
    order = toposort(sink)
    fresh = unused(of_op(order, Op.RANGE))
    inner = mask_of(depth)
    staged = {}
    for u in order:
        if u.op is Op.REDUCE and u.src[0].ranges & inner:
            loops = [r for r in u.src[1:] if r.arg[1] == "reduce" and r not in depth]
            for part in _operands(u.src[0], mask_of(threads) & u.src[0].ranges, inner):
                if part not in staged:
                    loop = loops[0] if buffers == 2 and len(loops) == 1 else None
                    staged[part] = _tile(part, threads, depth, fresh, buffers, loop)
                    fresh += len(threads) + len(depth)
    return substituted(sink, staged) if staged else sink


def _operands(value: UOp, threads: int, inner: int) -> Nodes:
    found = []
    reads: set[UOp] = set()
    reduced: set[UOp] = set()
    for u in toposort(value):
        if u.op is Op.LOAD or not reads.isdisjoint(u.src):
            reads.add(u)
        if u.op is Op.REDUCE or not reduced.isdisjoint(u.src):
            reduced.add(u)
    stack, seen = [value], {value}
    while stack:
        u = stack.pop()
        if not u.ranges & inner:
            continue
        if u in reads and u not in reduced and u.ranges & threads != threads:
            found.append(u)
            continue
        if u.op is Op.LOAD:
            continue
        for s in reversed(u.src):
            if s not in seen:
                seen.add(s)
                stack.append(s)
    return found


def _tile(part: UOp, threads: Nodes, depth: Nodes, fresh: int, buffers: int, loop: UOp | None) -> UOp:
    """The operand, read from its tile; one of two buffers if the iterations of `loop` say which."""
    wide = [r for r in threads if part.varies_over(r)]
    deep = [r for r in depth if part.varies_over(r)]
    own = {r: UOp(Op.RANGE, _I32, r.src, (fresh + i, "tile")) for i, r in enumerate((*wide, *deep))}
    value = substituted(part, dict(own))
    which = loop if loop is not None and part.varies_over(loop) else None
    tile, layout = tile_over(value, [own[r] for r in wide], [own[r] for r in deep], fresh + len(own), buffers, which)
    position = layout.position((*wide, *deep))
    if which is not None:
        position = position + which % 2 * tile.arg[2]
    return load(tile, position)


def tile_over(
    value: UOp, wide: Nodes, deep: Nodes, fresh: int, buffers: int, loop: UOp | None = None
) -> tuple[UOp, Layout]:
    """The tile of a value over ranges of its own, and its layout: one of two buffers if the iterations of `loop` say
    which. `fresh` is the number of a range that is not there yet."""
    source = _walk(value, (*wide, *deep))
    across = bool(wide) and bool(source) and source[0] in deep
    strides = []
    size = 1
    for r in wide:
        strides.append(size)
        size *= extent(r)
    pad = 0
    if across:
        # Written across its rows, read along them: gaps let neighbouring writers meet different memory banks.
        total = math.prod(extent(r) for r in deep)
        four = ranged(_ROWS, (fresh, "vector"))
        if source[0] is deep[0] and extent(deep[0]) % _ROWS == 0 and _contiguous(value, source[0], four):
            pad = _ROWS * max(1, _BANKS // total)
        else:
            size += _ROWS
    for i, r in enumerate(deep):
        strides.append(size)
        size *= extent(r)
        if i == 0:
            size += extent(r) // _ROWS * pad
    layout = Layout(tuple(strides), len(wide), pad)
    if loop is not None:
        size = -(-size // _ROWS) * _ROWS
    how = ("workgroup", layout, size, buffers > 0, -1 if loop is None else loop.arg[0])
    return UOp(Op.BUFFERIZE, value.dtype, (value, *wide, *deep), how), layout


def rows_apart(value: UOp, across: UOp, deep: UOp, gap: int, buffers: int, loop: UOp) -> tuple[UOp, Layout, UOp]:
    """The tile of an operand over two ranges of its own, in the order in which its memory has them, with `gap` elements
    left out between two rows; and where it begins, as there are two of it if `buffers` is 2 and `loop` is a loop."""
    fast, slow = _walk(value, (across, deep))
    stride = extent(fast) + gap
    layout = Layout((1, stride) if fast is across else (stride, 1), -1, 0)
    size = stride * extent(slow)
    doubled = buffers == 2 and loop.op is Op.RANGE
    how = ("workgroup", layout, size, buffers > 0, loop.arg[0] if doubled else -1)
    first = loop % 2 * size if doubled else ZERO
    return UOp(Op.BUFFERIZE, value.dtype, (value, across, deep), how), layout, first


def _walk(value: UOp, ranges: Nodes) -> Nodes:
    """`ranges` in the order in which the memory that `value` reads changes least: neighbours first."""
    best: Numbers = {}
    for u in toposort(value):
        if u.op is Op.LOAD:
            terms = form(u.src[1])[0]
            mine = {r: step for r in ranges if u.src[1].varies_over(r) and (step := _step(u.src[1], terms, r))}
            if len(mine) > len(best):
                best = mine
    return sorted(ranges, key=lambda r: (r not in best, best.get(r, 0)))


def _step(index: UOp, terms: Mapping[UOp, int], r: UOp) -> int:
    """The distance of the first two elements along `r`, or 0 if it depends on data."""
    if not any(t.varies_over(r) for t in terms if t is not r):
        return abs(terms[r])
    zeros = {u: ZERO for u in toposort(index) if u.op is Op.RANGE or not u.ranges and not u.is_const}
    first, second = (substituted(index, zeros | {r: const(_I32, n)}) for n in (0, 1))
    return abs(int(second.arg) - int(first.arg)) if first.op is second.op is Op.CONST else 0


def fill(tile: UOp, value: UOp, lid: UOp, threads: int, number: int, lanes: UOp) -> UOp:
    """A BUFFERIZE of stores: the threads fill the tile, each with neighbouring elements where `value` reads them so.

    `lanes` is the range of vector lanes to use.
    """
    ranges = tile.src[1:]
    _, layout, size, prefetched, which = tile.arg
    walk = _walk(value, ranges)
    loop = next((u for u in toposort(value) if u.op is Op.RANGE and u.arg[0] == which), None)
    memory = UOp(Op.SHARED, tile.dtype, (), (number, (size if loop is None else 2 * size,)))
    width = extent(lanes)
    if not walk or extent(walk[0]) % width or not _contiguous(value, walk[0], lanes):
        width = 1
    total = math.prod(extent(r) for r in ranges) // width
    stores = []
    for first in range(0, total, threads):
        at = lid + first
        inside = []
        if first + threads > total:
            inside = [at < total]
            at = Op.MIN(at, const(_I32, total - 1))
        table = {}
        step = 1
        for i, r in enumerate(walk):
            count = extent(r) // width if i == 0 else extent(r)
            digit = at // step
            if step * count < total:
                digit = digit % count
            table[r] = digit * width + lanes if i == 0 and width > 1 else digit
            step *= count
        position = layout.position([table[r] for r in ranges])
        position = normalise(position if loop is None else position + loop % 2 * size)
        put = store(memory, position, substituted(value, table))
        stores.append(only_if([c for c in inside if not c.is_const], put))
    return filled(stores, (lanes,) if width > 1 else (), ("workgroup", prefetched, loop is not None))


def _contiguous(value: UOp, r: UOp, lanes: UOp) -> bool:
    """Does `value` read neighbouring elements along `r`, from every multiple of the lanes on?"""
    quad = ranged(r.src[0] // extent(lanes), r.arg)
    for u in toposort(value):
        if u.op is Op.LOAD and u.src[1].varies_over(r):
            if form(substituted(u.src[1], {r: quad * extent(lanes) + lanes}))[0].get(lanes) == 1:
                return True
    return False
