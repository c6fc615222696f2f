"""Opts: choices about a kernel's ranges, as values applied by a graph rewrite.

A kernel arrives with "loop" ranges (one iteration per output element) and "reduce" ranges. Each opt splits one range,
or all loop ranges at once; the pieces carry what happens to them as the kind in the RANGE's arg:

    workgroup   what is left of a loop range: one workgroup per value
    local       threads of a workgroup
    upcast      registers: every value is written out
    reduce      a loop
    unroll      a reduce written out
    written     the same of a reduce with tiles: a loop in all but the text, which repeats its body
    group       threads of a workgroup that share a reduce
    vector      lanes of a vec2 or vec4: a value that depends on it is a vector

Axes are numbered over the collapsed kernel: loop ranges in id order, then reduce ranges in id order. A piece is split
off the part that is left over, so after LOCAL(0, 16) and UPCAST(0, 4) the range is `(w*4 + u)*16 + l`: neighbouring
threads touch neighbouring elements. Among threads the opt given first varies fastest. An amount need not divide the
extent: what runs over is clamped and never stored, and adds nothing to a reduce.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from anneal.codegen.affine import conjunction, rebuild
from anneal.codegen.row import join_row, row_reduces
from anneal.codegen.stage import stage
from anneal.errors import CompilerError
from anneal.uop import DType, Op, UOp, alu, const, dtypes, reduce_identity, toposort
from anneal.uop.sizes import Size, content, is_symbolic, least, most, product, size

__all__ = ["KINDS", "SERIAL", "Axis", "Opt", "apply_opts", "axes_of", "identity"]

_I32 = dtypes.int32
_LANES = 4

KINDS = {
    "FLAT": "all loop ranges become one, `amount` of its values to a workgroup",
    "LOCAL": "`amount` values of a loop range go to the threads of a workgroup",
    "UPCAST": "`amount` values of a loop range go to registers of one thread",
    "MERGE": "a reduce range takes in the `amount` ranges after it in its reduce, as digits of one index",
    "GROUP": "`amount` threads share a reduce range",
    "UNROLL": "`amount` values of a reduce range are written out",
    "VECTORIZE": "`amount` (2 or 4) neighbouring values of a range become the lanes of a vector",
    "TILE": "operands of a reduce wait in workgroup memory, for `amount` turns of its innermost loop at a time",
    "PREFETCH": "the next tiles of a TILE wait in registers while the present ones are used; 2: which lie in two places in turn",
    "ROW": "reduces as long as a loop range run over that range, which may then be split as a reduce range may",
}
SERIAL = frozenset(("reduce", "written"))  # kinds of ranges that are loops in the linear program
_ON_LOOP = frozenset(("LOCAL", "UPCAST", "ROW"))
_ON_BOTH = frozenset(("VECTORIZE",))
_PIECES = {
    "LOCAL": "local",
    "UPCAST": "upcast",
    "GROUP": "group",
    "UNROLL": "unroll",
    "VECTORIZE": "vector",
    "TILE": "reduce",
}


@dataclass(frozen=True, slots=True)
class Opt:
    """One choice: what to do (`KINDS`), to which axis, by how much.

    >>> Opt("LOCAL", 0, 64)
    Opt(kind='LOCAL', axis=0, amount=64)
    """

    kind: str
    axis: int
    amount: int


@dataclass(frozen=True, slots=True)
class Axis:
    """One range of a collapsed kernel.

    `extent` is None where it depends on data. Where it is symbolic, it is a number near the largest that has no more
    divisors than every value has: what the rules decide with; `size` is what it is, and `largest` the most that it can be.
    """

    range: UOp
    extent: int | None
    size: Size = 0

    @property
    def largest(self) -> int:
        """The most values that the range can take; 0 where data decide."""
        return most(self.size)

    @property
    def is_loop(self) -> bool:
        return bool(self.range.arg[1] == "loop")


def axes_of(sink: UOp) -> list[Axis]:
    """The axes an opt may name, in their numbering."""
    ranges = [u for u in toposort((sink,)) if u.op is Op.RANGE]
    ranges.sort(key=lambda r: (r.arg[1] != "loop", r.arg[0]))
    return [_axis(r) for r in ranges]


def _axis(r: UOp) -> Axis:
    extent = r.src[0]
    if extent.op is Op.CONST:
        return Axis(r, int(extent.arg), int(extent.arg))
    return Axis(r, typical(extent), extent) if is_symbolic(extent) else Axis(r, None)


def typical(n: UOp) -> int:
    """About the largest value of a symbolic extent, divisible by what divides all of them and by little else."""
    unit = content(n)
    turns = most(n) // unit
    while turns > 2 and not all(turns % d for d in range(2, math.isqrt(turns) + 1)):
        turns -= 1
    return unit * turns


def ceil_div(n: Size, amount: int) -> Size:
    """How many times `amount` it takes to have `n`."""
    if isinstance(n, int):
        return -(-n // amount)
    return size((n if content(n) % amount == 0 else n + (amount - 1)) // amount)


def identity(op: Op, dtype: DType) -> UOp:
    """What a reduce starts from."""
    return const(dtype, reduce_identity(op, dtype))


class _Split:
    """An axis while opts are applied: what is left of it, and the pieces split off, outermost first."""

    __slots__ = ("axis", "digits", "even", "extent", "is_row", "left", "pieces")

    def __init__(self, axis: Axis) -> None:
        self.axis = axis
        self.is_row = False
        self.extent: Size = axis.size
        self.left: Size = axis.size
        self.even = True  # whether every amount so far divides what it splits
        self.pieces: list[UOp] = []
        self.digits: list[UOp] = []  # after MERGE: the ranges this one stands for, outermost first

    def take(self, amount: int, piece: UOp) -> None:
        self.even = self.even and content(self.left) % amount == 0
        self.left = ceil_div(self.left, amount)
        if isinstance(self.left, UOp) and most(self.left) <= 1:
            self.left = 1
            self.even = False
        self.pieces.insert(0, piece)

    def write_in_text(self) -> None:
        """Leave it to the text to write unrolled turns out."""
        for i, p in enumerate(self.pieces):
            if p.arg[1] == "unroll":
                self.pieces[i] = _range(p.arg[0], int(p.src[0].arg), "written")

    def _plain(self, head: UOp) -> UOp:
        value = head
        for p in self.pieces:
            value = value * int(p.src[0].arg) + p
        return value

    def index(self, head: UOp, clamp: bool) -> tuple[UOp, UOp]:
        """The index, held within the extent if `clamp`, and the condition under which it is inside anyway.

        Whole vectors, and whole quads of registers, are in or out if they fit the extent, so that an index stays a
        multiple of the lanes plus the lane.
        """
        value = self._plain(head)
        inside = const(dtypes.bool_, True) if self.even else value < self.extent
        if inside.is_const:
            return value, inside
        last = self.pieces[-1] if self.pieces else head
        kind, extent = (last.arg[1], int(last.src[0].arg)) if last.op is Op.RANGE else ("", 1)
        lanes = extent if kind == "vector" else _LANES if kind in ("upcast", "unroll", "written") else 1
        if lanes == 1 or extent % lanes or content(self.extent) % lanes:
            return (_held(value, self.extent) if clamp else value), inside
        whole, lane = (last // lanes, last % lanes) if extent > lanes else (const(_I32, 0), last)
        value = head
        for p in self.pieces[:-1]:
            value = value * int(p.src[0].arg) + p
        value = value * (extent // lanes) + whole
        quads = ceil_div(self.extent, lanes)
        inside = value < quads
        if clamp:
            value = _held(value, quads)
        return value * lanes + lane, inside


def _held(value: UOp, extent: Size) -> UOp:
    """`value` held below `extent`; at 0 where there is nothing below it."""
    last = extent - 1
    held = value.alu(Op.MIN, last if isinstance(last, UOp) else const(_I32, last))
    return held if least(extent) else held.alu(Op.MAX, const(_I32, 0))


def apply_opts(sink: UOp, opts: tuple[Opt, ...] | list[Opt]) -> UOp:
    """The kernel with `opts` applied in order; loop ranges that no opt names become workgroups.

    `sink` is collapsed already. Raises CompilerError for an opt that does not fit the kernel.
    """
    axes = axes_of(sink)
    splits = [_Split(a) for a in axes]
    fresh = 1 + max((a.range.arg[0] for a in axes), default=-1)
    flat = 0
    group = 0
    tiled: dict[_Split, int] = {}  # split -> its PREFETCH, or 0
    merged: set[UOp] = set()  # ranges that another took in
    for opt in opts:
        _check(opt, splits, group)
        if opt.kind == "FLAT":
            flat = opt.amount
            continue
        split = splits[opt.axis]
        if split.axis.range in merged:
            raise CompilerError(f"{opt} names a range that another took in", stage="apply_opts")
        if opt.kind == "ROW":
            joined = row_reduces([u for u in toposort((sink,)) if u.op is Op.REDUCE], split.axis.range)
            if not joined or split.pieces or merged & joined:
                raise CompilerError(f"{opt}: no reduce can run over this range", stage="apply_opts")
            sink = join_row(sink, split.axis.range, joined)
            split.is_row = True
            merged |= joined
            continue
        if opt.kind == "MERGE":
            merged |= _merge(split, opt, axes, sink)
            continue
        if opt.kind == "PREFETCH":
            if split not in tiled:
                raise CompilerError(f"{opt} comes without a TILE of the same axis before it", stage="apply_opts")
            if opt.amount > 2:
                raise CompilerError(f"{opt}: tiles lie in one place or in two", stage="apply_opts")
            tiled[split] = opt.amount
            continue
        if opt.kind == "VECTORIZE" and split.pieces:
            raise CompilerError(f"{opt} comes after another split of its axis", stage="apply_opts")
        if opt.kind == "GROUP":
            group = opt.amount
        if opt.kind == "TILE":
            tiled[split] = 0
            if opt.amount == 1:
                continue
        split.take(opt.amount, _range(fresh, opt.amount, _PIECES[opt.kind]))
        fresh += 1
    if tiled and flat:
        raise CompilerError("TILE and FLAT do not go together", stage="apply_opts")
    for split in tiled:
        split.write_in_text()
    clamp = any(o.kind in ("GROUP", "UPCAST", "VECTORIZE", "TILE") for o in opts)
    table: dict[UOp, UOp] = {}
    gates: list[UOp] = []
    loops = [s for s in splits if s.axis.is_loop and not s.is_row]
    outer: dict[UOp, UOp] = {}
    if flat:
        flat_gate = _flatten(loops, flat, fresh, outer, clamp)
        fresh += 2
        if flat_gate is not None:
            gates.append(flat_gate)
    overrun: dict[UOp, UOp] = {}  # reduce range -> the condition under which it is in bounds
    serial: dict[UOp, list[UOp]] = {}
    for s in splits:
        r = s.axis.range
        if s.axis.extent is None or r in merged:
            continue
        head = outer.get(r)
        if head is None:
            kind = "workgroup" if s.axis.is_loop and not s.is_row else "reduce"
            head = const(_I32, 0) if s.left == 1 else _range(fresh, s.left, kind)
            fresh += 1
        value, inside = s.index(head, clamp or not s.axis.is_loop or s.is_row)
        if not s.axis.is_loop or s.is_row:
            serial[r] = ([head] if head.op is Op.RANGE else []) + s.pieces
            if not inside.is_const:
                overrun[r] = inside
        elif not inside.is_const:
            gates.append(inside)
        stride = 1
        for d in reversed(s.digits[1:]):
            extent = int(d.src[0].arg)
            table[d] = (value // stride) % extent
            serial[d] = []
            stride *= extent
        table[r] = value // stride
    inner = {p for s in tiled for p in s.pieces}
    out = _rewrite(sink, table, serial, inner, overrun, gates)
    _one_vector(out)
    if tiled:
        threads = [p for s in reversed(loops) for p in reversed(s.pieces)]
        for s, ahead in tiled.items():
            out = stage(out, threads, list(reversed(s.pieces)), ahead)
    return out


def _one_vector(sink: UOp) -> None:
    """Refuse values that would be vectors in two ways."""
    mask = 0
    for u in toposort((sink,)):
        if u.op is Op.RANGE and u.arg[1] == "vector":
            mask |= 1 << u.arg[0]
    if not mask:
        return
    for u in toposort((sink,)):
        both = u.ranges & mask
        if both & both - 1 and u.op is not Op.SINK and u.op is not Op.STORE:
            raise CompilerError("a value would be a vector along two axes", stage="apply_opts", node=u)
        if both and u.op is Op.RANGE and u.arg[1] != "vector":
            raise CompilerError("the turns of a loop would be a vector", stage="apply_opts", node=u)


def _range(ident: int, extent: Size, kind: str) -> UOp:
    return UOp(Op.RANGE, _I32, (extent if isinstance(extent, UOp) else const(_I32, extent),), (ident, kind))


def _check(opt: Opt, splits: list[_Split], group: int) -> None:
    if opt.kind not in KINDS:
        raise CompilerError(f"unknown opt {opt.kind!r}; known: {', '.join(KINDS)}", stage="apply_opts")
    if opt.amount < 1:
        raise CompilerError(f"{opt} has an amount below 1", stage="apply_opts")
    if opt.kind == "FLAT":
        return
    if not 0 <= opt.axis < len(splits):
        raise CompilerError(f"{opt} names axis {opt.axis} of a kernel with {len(splits)}", stage="apply_opts")
    axis = splits[opt.axis].axis
    if (axis.is_loop and not splits[opt.axis].is_row) != (opt.kind in _ON_LOOP) and opt.kind not in _ON_BOTH:
        raise CompilerError(f"{opt} does not fit a {axis.range.arg[1]} range", stage="apply_opts")
    if axis.extent is None:
        raise CompilerError(f"{opt} splits a range whose extent depends on data", stage="apply_opts")
    if opt.kind == "GROUP" and group not in (0, opt.amount):
        raise CompilerError(f"{opt}: every GROUP of a kernel has the same amount, here {group}", stage="apply_opts")
    if opt.kind == "VECTORIZE" and opt.amount not in (2, 4):
        raise CompilerError(f"{opt}: a vector has 2 or 4 lanes", stage="apply_opts")
    if opt.kind == "GROUP" and opt.amount & (opt.amount - 1):
        raise CompilerError(f"{opt}: the amount of a GROUP is a power of two", stage="apply_opts")


def _merge(split: _Split, opt: Opt, axes: list[Axis], sink: UOp) -> set[UOp]:
    """Let `split` stand for its range and the `amount` after it; returns those."""
    first = split.axis.range
    taken: list[UOp] = []
    for u in toposort((sink,)):
        if u.op is Op.REDUCE and first in u.src[1:]:
            at = u.src.index(first, 1)
            these = list(u.src[at : at + 1 + opt.amount])
            if len(these) <= opt.amount or taken not in ([], these):
                raise CompilerError(f"{opt}: the ranges do not stand side by side in every reduce", stage="apply_opts")
            taken = these
    if split.pieces or any(r.src[0].op is not Op.CONST for r in taken):
        raise CompilerError(f"{opt} comes after a split, or a range's extent depends on data", stage="apply_opts")
    split.digits = taken
    split.extent = split.left = math.prod(int(r.src[0].arg) for r in taken)
    return set(taken[1:])


def _flatten(loops: list[_Split], amount: int, fresh: int, outer: dict[UOp, UOp], clamp: bool) -> UOp | None:
    """Give every loop range's remaining part as a digit of one flat index; returns the flat index's bound check."""
    total = product([s.left for s in loops])
    groups = ceil_div(total, amount)
    flat = const(_I32, 0) if groups == 1 else _range(fresh, groups, "workgroup")
    flat = flat * amount + _range(fresh + 1, amount, "local") if amount > 1 else flat
    inside = const(dtypes.bool_, True) if content(total) % amount == 0 else flat < total
    if clamp and not inside.is_const:
        flat = _held(flat, total)
    stride: Size = 1
    for i, s in enumerate(reversed(loops)):
        digit = flat // stride if stride != 1 else flat
        outer[s.axis.range] = digit % s.left if i < len(loops) - 1 else digit
        stride = product([stride, s.left])
    return None if inside.is_const else inside


def _rewrite(
    sink: UOp,
    table: dict[UOp, UOp],
    serial: dict[UOp, list[UOp]],
    inner: set[UOp],
    overrun: dict[UOp, UOp],
    gates: list[UOp],
) -> UOp:
    new: dict[UOp, UOp] = dict(table)
    for u in toposort((sink,), until=lambda u: u in new):
        src = tuple([new[s] for s in u.src])
        if u.op is Op.REDUCE:
            new[u] = _reduce(u, src, serial, inner, overrun)
        elif u.op is Op.STORE:
            rows = [c for r, c in overrun.items() if u.ranges >> r.arg[0] & 1]
            new[u] = rebuild(u, (*src[:3], *conjunction([*gates, *rows, *src[3:]])))
        else:
            new[u] = rebuild(u, src)
    return new[sink]


def _reduce(
    u: UOp, src: tuple[UOp, ...], serial: dict[UOp, list[UOp]], inner: set[UOp], overrun: dict[UOp, UOp]
) -> UOp:
    """A reduce over the pieces of its ranges: loops first, those through a tile innermost; then the threads that share it."""
    value = src[0]
    pieces: list[UOp] = []
    for old, new in zip(u.src[1:], src[1:], strict=True):
        pieces += serial.get(old, [new])
        if old in overrun:
            value = _masked(u.arg, overrun[old], value)
    groups = [p for p in pieces if p.arg[1] == "group"]
    vectors = [p for p in pieces if p.arg[1] == "vector"]
    loops = sorted([p for p in pieces if p.arg[1] not in ("group", "vector")], key=inner.__contains__)
    if len(groups) > 1:
        raise CompilerError("two GROUP opts on one reduce", stage="apply_opts", node=u)
    if loops:
        value = UOp(Op.REDUCE, u.dtype, (value, *loops), u.arg, u.tag)
    for v in vectors:
        value = _fold(u.arg, value, v)
    if groups:
        value = UOp(Op.REDUCE, u.dtype, (value, *groups), u.arg, u.tag)
    return value


def _masked(op: Op, inside: UOp, value: UOp) -> UOp:
    """`value` where `inside`, and elsewhere what adds nothing to a reduce.

    A product stays one: its factors are masked, so that each is read, masked, once for many results.
    """
    nothing = identity(op, value.dtype)
    if op is Op.ADD and value.op is Op.MUL:
        a, b = value.src
        return inside.where(a, nothing) * inside.where(b, nothing)
    return inside.where(value, nothing)


def _fold(op: Op, value: UOp, lanes: UOp) -> UOp:
    """The lanes of a partial result combined."""
    parts = [UOp(Op.LANE, value.dtype, (value, lanes), i) for i in range(int(lanes.src[0].arg))]
    out = parts[0]
    for p in parts[1:]:
        out = alu(op, (out, p))
    return out
