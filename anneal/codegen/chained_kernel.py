"""The part that all kernels of chains share: the columns that a workgroup needs, indices, and stores."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from anneal.codegen.affine import form
from anneal.codegen.chain import LANES, Chain, Split
from anneal.codegen.opts import identity
from anneal.codegen.ranges import Substitution, conjunction, extent, mask_of
from anneal.uop import Op, UOp, const, dtypes, toposort

_I32 = dtypes.int32
_LOW = -1e29  # what is less is a mask
_FIRST = 100  # the number of the first workgroup memory that no operand fills


class _Reach(NamedTuple):
    """The columns that a row needs: so many before and after its own number, None for all of them. The others add
    nothing; to a maximum, the number `least`."""

    before: int | None
    after: int | None
    least: UOp | None


class ChainedKernel:
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
        self.vector = self.range(LANES, "vector")

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
        before, after = [r.before for r in reaches], [r.after for r in reaches]
        most = [max((x for x in found if x is not None), default=0) for found in (before, after)]
        return None if None in before else most[0], None if None in after else most[1]

    def finished(self, u: UOp, value: UOp, row: UOp) -> UOp:
        """The result of a reduction with what the columns add that were left out."""
        reach = self.reaches[u]
        if reach.least is None:
            return value
        more = Op.MAX(value, reach.least)
        if reach.after is not None:
            value = (row < self.long - 1 - reach.after).where(more, value)
        if reach.before is not None:
            value = (const(_I32, reach.before) < row).where(more, value)
        return value

    def columns(self, before: int | None, after: int | None) -> tuple[UOp, int | UOp]:
        """The first block of columns that a workgroup needs, and how many it needs."""
        c = self.split.columns
        first, last = const(_I32, 0), const(_I32, -(-self.long // c))
        if before is not None:
            first = Op.MIN(Op.MAX(self.row - before, first) // c, last)
        if after is not None:
            end = Op.MAX(self.row + (self.split.rows - 1 + after), const(_I32, -1)) // c + 1
            last = Op.MIN(end, last)
        count = last - first
        if count.is_const:
            return first, int(count.arg)
        return first, Op.MAX(count, const(_I32, 0))

    # -- operands and scores

    def at(self, value: UOp, table: dict[UOp, UOp]) -> UOp:
        """`value` at other indices."""
        table = {**self.table, **table}
        return Substitution(table, mask_of([x for x in table if x.op is Op.RANGE]))(value)

    def inside(self, index: UOp, end: int, block: int) -> tuple[UOp, tuple[UOp, ...]]:
        """An index held below `end`, and the condition under which it is there, if blocks do not divide the extent."""
        if end % block == 0:
            return index, ()
        return Op.MIN(index, const(_I32, end - 1)), (index < end,)

    def made(self, value: UOp, sums: Sequence[UOp], row: UOp, column: UOp, op: Op) -> UOp:
        """`value` of the scores `sums` at a row and a column; the identity of `op` past the last column."""
        rows, _ = self.inside(row, self.high, self.split.rows)
        columns, inside = self.inside(column, self.long, self.split.columns)
        table = {self.chain.r: rows, self.chain.c: columns}
        out = self.at(value, {**table, **dict(zip(self.chain.scores, sums, strict=True))})
        return inside[0].where(out, identity(op, out.dtype)) if inside else out

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


def _reach(value: UOp, chain: Chain, op: Op) -> _Reach:
    """The columns, before and after a row's own number, for which `value` is not what `op` leaves out."""
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
