"""Opts applied: each range is split into pieces, and the kernel rebuilt over indices made of those."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from anneal.codegen.chained import chained
from anneal.codegen.matrices import multiply
from anneal.codegen.opts import KINDS, Axis, Opt, axes_of, identity, refused

from anneal.codegen.ranges import (  # isort: skip
    ZERO, ceil_div, conjuncts, extent, held, mask_of, of_kind, only_if, reads_stored, substituted, unused,
    with_sources,
)  # fmt: skip
from anneal.codegen.stage import stage
from anneal.rewrite import rebuild
from anneal.schedule import fusible_reduces
from anneal.uop import Known, Nodes, Op, Src, UOp, const, dtypes, of_op, ranged, toposort
from anneal.uop.sizes import Size, content, most, product

_I32 = dtypes.int32
_TRUE = const(dtypes.bool_, True)
_LANES = 4
_ON_LOOP = frozenset(("LOCAL", "UPCAST", "FUSE_REDUCE"))
_PIECES = {
    "LOCAL": "local",
    "UPCAST": "upcast",
    "GROUP": "group",
    "UNROLL": "unroll",
    "VECTORIZE": "vector",
    "TILE": "reduce",
}


class _Split:
    """An axis while opts are applied: the extent that is left, and the pieces split off, outermost first."""

    def __init__(self, axis: Axis) -> None:
        self.axis = axis
        self.is_fused = False
        self.extent = axis.size
        self.left = axis.size
        self.block = 0  # elements of a block that may overlap the one before it; 0 where none may
        self.even = True  # whether every amount so far divides what it splits
        self.pieces: list[UOp] = []
        self.merged: list[UOp] = []  # after MERGE: the ranges this one stands for, outermost first

    @property
    def runs_in_parallel(self) -> bool:
        """True if the rest of the axis is spread over workgroups: it is a loop over which no reduce runs."""
        return self.axis.is_loop and not self.is_fused

    def overlap(self) -> None:
        """Let the last block begin earlier if the extent ends within it; the elements in both blocks are computed
        twice.
        """
        block = math.prod(map(extent, self.in_block()))
        self.block = block if isinstance(self.extent, int) and self.extent >= block else 0

    def in_block(self) -> Nodes:
        """The pieces that are registers and lanes."""
        return of_kind(self.pieces, "upcast", "vector")

    def take(self, amount: int, piece: UOp) -> None:
        self.even = self.even and content(self.left) % amount == 0
        self.left = ceil_div(self.left, amount)
        if isinstance(self.left, UOp) and most(self.left) <= 1:
            self.left = 1
            self.even = False
        self.pieces.insert(0, piece)

    def write_in_text(self) -> None:
        """Leave it to the text to write unrolled iterations out."""
        for i, p in enumerate(self.pieces):
            if p.arg[1] == "unroll":
                self.pieces[i] = ranged(extent(p), (p.arg[0], "written"))

    def _overlapping(self, head: UOp) -> UOp:
        """The index whose blocks, of registers and vectors, end within the extent."""
        inner = self.in_block()
        first = _digits(head, [p for p in self.pieces if p not in inner]) * self.block
        if not self.even:
            first = Op.MIN(first, const(_I32, most(self.extent) - self.block))
        return first + _digits(ZERO, inner)

    def index(self, head: UOp, clamp: bool) -> tuple[UOp, UOp]:
        """The index, held within the extent if `clamp`, and the condition under which it is inside anyway.

        Whole vectors, and whole quads of registers, are in or out if they fit the extent, so that an index stays a
        multiple of the lanes plus the lane.
        """
        if self.block:
            return self._overlapping(head), _TRUE
        value = _digits(head, self.pieces)
        inside = _TRUE if self.even else value < self.extent
        if inside.is_const:
            return value, inside
        last = self.pieces[-1] if self.pieces else head
        kind, n = (last.arg[1], extent(last)) if last.op is Op.RANGE else ("", 1)
        lanes = n if kind == "vector" else _LANES if kind in ("upcast", "unroll", "written") else 1
        if lanes == 1 or n % lanes or content(self.extent) % lanes:
            return (held(value, self.extent) if clamp else value), inside
        whole, lane = (last // lanes, last % lanes) if n > lanes else (ZERO, last)
        value = _digits(head, self.pieces[:-1]) * (n // lanes) + whole
        quads = ceil_div(self.extent, lanes)
        inside = value < quads
        if clamp:
            value = held(value, quads)
        return value * lanes + lane, inside


def _digits(value: UOp, pieces: Nodes) -> UOp:
    """The number of which `value` is the first digit and `pieces` are the others."""
    for p in pieces:
        value = value * extent(p) + p
    return value


def apply_opts(sink: UOp, opts: Sequence[Opt], unaligned: bool = False) -> UOp:
    """The kernel with `opts` applied in order; loop ranges that no opt names become workgroups.

    The loops of `sink` are coalesced already. `unaligned`: vectors may begin at any element. Raises CompilerError for
    an opt that does not fit the kernel.
    """
    kinds = {o.kind for o in opts}
    if "CHAIN" in kinds:
        return chained(sink, opts)
    if "MATRIX" in kinds:
        return multiply(sink, opts)
    splitting = _Splitting(sink, unaligned)
    for opt in opts:
        splitting.take(opt)
    return splitting.kernel(clamp=not kinds.isdisjoint(_OVERRUNS))


_OVERRUNS = frozenset(("GROUP", "UPCAST", "VECTORIZE", "TILE"))  # may read past the end: nothing masks them


class _Splitting:
    """The splits of a kernel's axes while opts come in one by one, and the visit that rebuilds it over their pieces."""

    def __init__(self, sink: UOp, unaligned: bool) -> None:
        self.sink, self.unaligned = sink, unaligned
        axes = axes_of(sink)
        self.splits = [_Split(a) for a in axes]
        self.fresh = unused([a.range for a in axes])
        self.flat = 0  # the amount of FLAT
        self.group = 0  # the amount of every GROUP
        self.tiled: dict[
            _Split, int
        ] = {}  # tiled axis -> buffers of its PREFETCH: 2 is double buffering, 0 no PREFETCH
        self.merged: set[UOp] = set()  # ranges that another took in
        self.inner: set[UOp] = set()  # the pieces through a tile, whose loops are the innermost
        self.predicates: list[UOp] = []  # conditions of every store
        self.asked: Known = {}  # range -> the condition under which it is in bounds
        self.serial: dict[UOp, list[UOp]] = {}  # range of a reduce -> its pieces, outermost first

    def fresh_range(self, count: Size, kind: str) -> UOp:
        self.fresh += 1
        return ranged(count, (self.fresh - 1, kind))

    def take(self, opt: Opt) -> None:
        _check(opt, self.splits, self.group, self.unaligned)
        if opt.kind == "FLAT":
            self.flat = opt.amount
            return
        split = self.splits[opt.axis]
        if split.axis.range in self.merged:
            raise refused(f"{opt} names a range that another took in")
        if opt.kind == "FUSE_REDUCE":
            self.fuse_reduces(opt, split)
        elif opt.kind == "MERGE":
            self.merged |= _merge(split, opt, self.sink)
        elif opt.kind == "PREFETCH":
            if split not in self.tiled:
                raise refused(f"{opt} comes without a TILE of the same axis before it")
            if opt.amount > 2:
                raise refused(f"{opt}: a tile has one buffer, or two for double buffering")
            self.tiled[split] = opt.amount
        else:
            self.piece(opt, split)

    def fuse_reduces(self, opt: Opt, split: _Split) -> None:
        joined = fusible_reduces(of_op(toposort(self.sink), Op.REDUCE), split.axis.range)
        if not joined or split.pieces or self.merged & joined:
            raise refused(f"{opt}: no reduce can run over this range")
        # one loop for the reduces and for what is made of them
        self.sink = substituted(self.sink, dict.fromkeys(joined, split.axis.range))
        split.is_fused = True
        self.merged |= joined

    def piece(self, opt: Opt, split: _Split) -> None:
        if opt.kind == "VECTORIZE" and split.pieces:
            raise refused(f"{opt} comes after another split of its axis")
        if opt.kind == "GROUP":
            self.group = opt.amount
        if opt.kind == "TILE":
            self.tiled[split] = 0
            if opt.amount == 1:
                return
        split.take(opt.amount, self.fresh_range(opt.amount, _PIECES[opt.kind]))

    def kernel(self, clamp: bool) -> UOp:
        """The kernel over the pieces; `clamp` holds indices of loops within their extents."""
        if self.tiled and self.flat:
            raise refused("TILE and FLAT do not go together")
        for split in self.tiled:
            split.write_in_text()
        loops = [s for s in self.splits if s.runs_in_parallel]
        self.inner = {p for s in self.tiled for p in s.pieces}
        if self.unaligned and not reads_stored(self.sink.src):
            for s in loops:
                s.overlap()
        heads = self.flatten(loops, clamp) if self.flat else {}
        table: Known = {}
        for s in self.splits:
            r = s.axis.range
            if s.axis.extent is None or r in self.merged:
                continue
            head = heads.get(r)
            if head is None:
                kind = "workgroup" if s.runs_in_parallel else "reduce"
                head = ZERO if s.left == 1 else self.fresh_range(s.left, kind)
            self.put(s, head, table, clamp)
        out = rebuild(self.sink, self.visit, table)
        _one_vector(out)
        threads = [p for s in reversed(loops) for p in reversed(s.pieces)]
        for s, buffers in self.tiled.items():
            out = stage(out, threads, list(reversed(s.pieces)), buffers)
        return out

    def flatten(self, loops: Sequence[_Split], clamp: bool) -> Known:
        """The remaining part of each loop range, as a digit of one mixed-radix index over all of them."""
        total = product([s.left for s in loops])
        groups = ceil_div(total, self.flat)
        flat = ZERO if groups == 1 else ranged(groups, (self.fresh, "workgroup"))
        flat = flat * self.flat + ranged(self.flat, (self.fresh + 1, "local")) if self.flat > 1 else flat
        self.fresh += 2
        inside = _TRUE if content(total) % self.flat == 0 else flat < total
        if not inside.is_const:
            self.predicates.append(inside)
            if clamp:
                flat = held(flat, total)
        heads = {}
        stride = 1
        for i, s in enumerate(reversed(loops)):
            digit = flat // stride if stride != 1 else flat
            heads[s.axis.range] = digit % s.left if i < len(loops) - 1 else digit
            stride = product([stride, s.left])
        return heads

    def put(self, s: _Split, head: UOp, table: Known, clamp: bool) -> None:
        """Put the index over `head` and the pieces into `table`, for a range or for those merged into one."""
        r = s.axis.range
        value, inside = s.index(head, (clamp or not s.runs_in_parallel) and not self.unaligned)
        if not s.runs_in_parallel:
            # A sum that is all written out stays a loop, of one iteration, where its text adds products in one step.
            one = [ranged(1, (r.arg[0], "reduce"))] if self.unaligned and s.pieces else []
            self.serial[r] = ([head] if head.op is Op.RANGE else one) + s.pieces
        elif not inside.is_const:
            self.predicates.append(inside)
        if not inside.is_const:
            self.asked[r] = inside
        stride = 1
        for d in reversed(s.merged[1:]):
            table[d] = (value // stride) % extent(d)
            self.serial[d] = []
            stride *= extent(d)
        table[r] = value // stride

    def visit(self, u: UOp, src: Src) -> UOp:
        if u.op is Op.REDUCE:
            return self.reduce(u, src)
        if u.op is Op.LOAD and self.unaligned:
            # Loads past the end are not made, so the index is not clamped, and neighbours stay neighbours.
            return only_if([c for r, c in self.asked.items() if u.varies_over(r)], with_sources(u, src))
        if u.op is Op.STORE:
            fused = [c for r, c in self.asked.items() if r in self.serial and u.varies_over(r)]
            return only_if([*self.predicates, *fused], with_sources(u, src))
        return with_sources(u, src)

    def reduce(self, u: UOp, src: Src) -> UOp:
        """A reduce over the pieces of its ranges: loops first, those through a tile innermost; then the threads that
        share it."""
        value = src[0]
        pieces = []
        for old, new in zip(u.src[1:], src[1:], strict=True):
            pieces += self.serial.get(old, [new])
            if old in self.asked:
                value = _masked(u.arg, self.asked[old], value)
        groups = of_kind(pieces, "group")
        vectors = of_kind(pieces, "vector")
        loops = sorted([p for p in pieces if p.arg[1] not in ("group", "vector")], key=self.inner.__contains__)
        if len(groups) > 1:
            raise refused("two GROUP opts on one reduce", u)
        if loops:
            value = u.replace(src=(value, *loops))
        for v in vectors:
            value = UOp(Op.LANE, u.dtype, (value, v), u.arg) if self.unaligned else _fold(u.arg, value, v)
        if groups:
            value = u.replace(src=(value, *groups))
        return value


def _one_vector(sink: UOp) -> None:
    """Refuse values that would be vectors in two ways."""
    order = toposort(sink)
    mask = mask_of(of_kind(of_op(order, Op.RANGE), "vector"))
    if not mask:
        return
    for u in order:
        both = u.ranges & mask
        if both & both - 1 and u.op is not Op.SINK and u.op is not Op.STORE:
            raise refused("a value would be a vector along two axes", u)
        if both and u.op is Op.RANGE and u.arg[1] != "vector":
            raise refused("the iterations of a loop would be a vector", u)


def _check(opt: Opt, splits: list[_Split], group: int, unaligned: bool) -> None:
    if opt.kind not in KINDS:
        raise refused(f"unknown opt {opt.kind!r}; known: {', '.join(KINDS)}")
    if opt.amount < 1:
        raise refused(f"{opt} has an amount below 1")
    if opt.kind == "FLAT":
        return
    if not 0 <= opt.axis < len(splits):
        raise refused(f"{opt} names axis {opt.axis} of a kernel with {len(splits)}")
    axis = splits[opt.axis].axis
    if splits[opt.axis].runs_in_parallel != (opt.kind in _ON_LOOP) and opt.kind != "VECTORIZE":
        raise refused(f"{opt} does not fit a {axis.range.arg[1]} range")
    if axis.extent is None:
        raise refused(f"{opt} splits a range whose extent depends on data")
    if opt.kind == "GROUP" and group not in (0, opt.amount):
        raise refused(f"{opt}: every GROUP of a kernel has the same amount, here {group}")
    if opt.kind == "VECTORIZE" and opt.amount not in ((2, 4, 8, 16) if unaligned else (2, 4)):
        raise refused(f"{opt}: a vector has 2{', 4, 8 or 16' if unaligned else ' or 4'} lanes")
    if opt.kind == "GROUP" and opt.amount & (opt.amount - 1):
        raise refused(f"{opt}: the amount of a GROUP is a power of two")


def _merge(split: _Split, opt: Opt, sink: UOp) -> set[UOp]:
    """Let `split` stand for its range and the `amount` after it; returns those."""
    first = split.axis.range
    taken: list[UOp] = []
    for u in toposort(sink):
        if u.op is Op.REDUCE and first in u.src[1:]:
            at = u.src.index(first, 1)
            these = list(u.src[at : at + 1 + opt.amount])
            if len(these) <= opt.amount or taken not in ([], these):
                raise refused(f"{opt}: the ranges do not stand side by side in every reduce")
            taken = these
    if split.pieces or any(not r.src[0].is_const for r in taken):
        raise refused(f"{opt} comes after a split, or a range's extent depends on data")
    split.merged = taken
    split.extent = split.left = math.prod(extent(r) for r in taken)
    return set(taken[1:])


def _masked(op: Op, inside: UOp, value: UOp) -> UOp:
    """`value` where `inside`, and elsewhere what adds nothing to a reduce.

    A product stays one: its factors are masked, so that each is read, masked, once for many results.
    """
    if op is Op.ADD and value.op is Op.MUL:
        a, b = value.src
        return _masked(op, inside, a) * _masked(op, inside, b)
    if op is Op.ADD and _is_masked(inside, value):
        return value
    return inside.where(value, identity(op, value.dtype))


def _is_masked(inside: UOp, value: UOp) -> bool:
    """Is a value zero if its loads are masked?"""
    while value.op is Op.CAST or value.op is Op.WHERE and value.src[2].is_const and not value.src[2].arg:
        value = value.src[value.op is Op.WHERE]
    return value.op is Op.LOAD and len(value.src) == 3 and inside in conjuncts(value.src[2])


def _fold(op: Op, value: UOp, lanes: UOp) -> UOp:
    """The lanes of a partial result combined."""
    return functools.reduce(op, [UOp(Op.LANE, value.dtype, (value, lanes), i) for i in range(extent(lanes))])
