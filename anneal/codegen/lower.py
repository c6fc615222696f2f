"""From a kernel with opts to a kernel a linear program can be read off: hardware indices, registers, legal ops.

    legalise      ARGSORT as a rank, arithmetic on bools as logic, narrow dtypes computed wide, tests for nan by bits
    to_hardware   workgroup, local and group ranges become digits of SPECIAL "wg" and "lid";
                  upcast and unroll ranges are written out

Afterwards the only ranges are loops, and the group ranges in the sources of the reduces that threads share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anneal.codegen.copies import write_out
from anneal.codegen.lanes import to_vectors
from anneal.codegen.lowering_rules import LOWERING
from anneal.codegen.packed import PACKED, register
from anneal.codegen.ranges import SERIAL, extent, mask_of
from anneal.codegen.rebuilding import with_sources
from anneal.codegen.stage import fill
from anneal.errors import DTypeError
from anneal.rewrite.widen import FLOATS, INTEGERS, widened
from anneal.schedule.sorting import PERMUTATION
from anneal.uop import ALU, DType, Op, UOp, const, dtypes, toposort
from anneal.uop.sizes import Size, most, product

__all__ = ["Launch", "Target", "legalise", "to_hardware"]

_I32, _BOOL, _F16, _F32 = dtypes.int32, dtypes.bool_, dtypes.float16, dtypes.float32
_PLAIN = frozenset((dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.bool_, *PACKED))
_WIDE = {**FLOATS, **INTEGERS}


@dataclass(frozen=True, slots=True)
class Target:
    """What generated code may rely on; the defaults are what every WebGPU device has.

    `subgroup`: so many threads, aligned and neighbouring, exchange values without memory or barriers; 0: none do.
    `binding_bytes`: the most that one storage binding shows. `f16`, `int64`, `float64`: whether it has those dtypes.
    """

    max_threads: int = 256
    max_workgroups: int = 65535
    workgroup_bytes: int = 16384
    f16: bool = False
    subgroup: int = 0
    binding_bytes: int = 1 << 27
    int64: bool = False
    float64: bool = False

    @property
    def dtypes(self) -> frozenset[DType]:
        found = set(_PLAIN)
        if self.f16:
            found.add(_F16)
        if self.int64:
            found |= {dtypes.int64, dtypes.uint64}
        if self.float64 and self.int64:  # whose bits are looked at as integers
            found.add(dtypes.float64)
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class Launch:
    """Workgroups, threads of each, and how many neighbouring threads, how far apart, share a reduce (1 if none do).

    `needed`: how many of the workgroups have work, where that depends on variables; then `workgroups` is the most.
    """

    workgroups: int
    threads: int
    group: int = 1
    group_stride: int = 1
    needed: UOp | None = None


# -- legal ops --------------------------------------------------------------------------------------------------------


def legalise(sink: UOp, target: Target) -> UOp:
    """The same kernel in ops and dtypes the renderer has; raises DTypeError naming what the target lacks."""
    new: dict[UOp, UOp] = {}
    known = target.dtypes
    sink = widened(sink, _WIDE)
    for u in toposort((sink,)):
        if u.dtype not in known and u.op is not Op.SINK and u.op is not Op.STORE:
            raise DTypeError(_unsupported(u, target))
        src = tuple([new[s] for s in u.src])
        op = u.op
        if op is Op.STORE:
            new[u] = _store(u, src)
        elif op is Op.REDUCE:
            new[u] = _reduce(u, src)
        elif op is Op.ARGSORT:
            new[u] = UOp(op, u.dtype, src, u.arg, u.tag)
        elif op in ALU:
            new[u] = _legal(with_sources(u, src))
        else:
            new[u] = with_sources(u, src)
    return new[sink]


def _unsupported(u: UOp, target: Target) -> str:
    what = f"{u.op.name} of {u.dtype.name}" if u.op is not Op.PARAM else f"a buffer of {u.dtype.name}"
    feature = {"float16": "shader-f16", "float64": "shader-f64"}.get(u.dtype.name, "shader-int64")
    return f"device 'webgpu' has no {what}: this adapter lacks {feature}; cast it, or use device 'cpu'"


def _store(u: UOp, src: tuple[UOp, ...]) -> UOp:
    value = src[2]
    rounds = u.dtype in PACKED or u.dtype is dtypes.float16
    if value.op is Op.CAST and rounds and value.src[0].dtype is (register(u.dtype) if u.dtype in PACKED else _F32):
        return with_sources(u, (*src[:2], value.src[0], *src[3:]))  # what goes into words is rounded on the way
    if value.op is not Op.ARGSORT:
        return with_sources(u, src)
    # Element r goes where its rank says: the number of keys below it, or equal and before it.
    keys, r = value.src
    if value.arg == PERMUTATION:
        return UOp(Op.STORE, u.dtype, (src[0], UOp(Op.LOAD, _I32, (keys, r)), r, *src[3:]), u.arg, u.tag)
    j = UOp(Op.RANGE, _I32, r.src, (1 + r.arg[0], "reduce"))
    mine, other = (UOp(Op.LOAD, keys.dtype, (keys, i)) for i in (r, j))
    before = (other < mine) | (other.eq(mine) & (j < r))
    rank = UOp(Op.REDUCE, _I32, (before.cast(_I32), j), Op.ADD)
    return UOp(Op.STORE, u.dtype, (src[0], rank, r, *src[3:]), u.arg, u.tag)


def _reduce(u: UOp, src: tuple[UOp, ...]) -> UOp:
    if u.dtype is _BOOL:
        wide = UOp(Op.REDUCE, _I32, (src[0].cast(_I32), *src[1:]), _BOOL_REDUCE[u.arg], u.tag)
        return wide.ne(0)
    return with_sources(u, src)


_BOOL_REDUCE = {Op.ADD: Op.MAX, Op.MAX: Op.MAX, Op.MUL: Op.MIN, Op.MIN: Op.MIN}


def _legal(u: UOp) -> UOp:
    """What the lowering rules make of one node."""
    rule = LOWERING.get(u.op)
    found = rule(u, None) if rule is not None else None
    return u if found is None else found[0]


# -- hardware ---------------------------------------------------------------------------------------------------------


def to_hardware(sink: UOp) -> tuple[UOp, Launch]:
    """Ranges that hardware or registers run, replaced; what remains to be looped over stays a RANGE."""
    ranges = sorted([u for u in toposort((sink,)) if u.op is Op.RANGE], key=lambda r: r.arg[0])
    by_kind: dict[str, list[UOp]] = {}
    for r in ranges:
        by_kind.setdefault(r.arg[1], []).append(r)
    serial = mask_of([r for r in ranges if r.arg[1] in SERIAL])
    table: dict[UOp, UOp] = {}
    outer = by_kind.get("workgroup", [])[::-1]
    workgroups = _digits("wg", outer, table)
    extents = product([e.arg if (e := r.src[0]).is_const else e for r in outer])
    needed = extents if isinstance(extents, UOp) else None
    groups = by_kind.get("group", [])
    threads = [r for r in ranges if r.arg[1] == "local" or r in groups[:1]]
    count = _digits("lid", threads, table)
    launch = Launch(workgroups, count, needed=needed)
    gate: UOp | None = None
    if groups:
        stride = math.prod(extent(r) for r in threads[: threads.index(groups[0])])
        launch = Launch(workgroups, count, extent(groups[0]), stride, needed)
        for g in groups[1:]:
            table[g] = table[groups[0]]
        gate = table[groups[0]].eq(0)
    fresh = 1 + max((r.arg[0] for r in ranges), default=-1)
    lanes = _one_of_each(by_kind.get("vector", ()), table, fresh)
    tiles = _Tiles(count, lanes)
    if table:
        sink = _replace(sink, table, gate, mask_of(groups), serial, tiles)
    sink = write_out(sink, [*by_kind.get("upcast", ()), *by_kind.get("unroll", ())], serial)
    return to_vectors(sink, serial), launch


def _one_of_each(vectors: Sequence[UOp], table: dict[UOp, UOp], fresh: int) -> UOp:
    """One range for all vectors of one length, so that equal loads are one node; returns that of four lanes."""
    kept: dict[int, UOp] = {}
    for v in vectors:
        table[v] = kept.setdefault(extent(v), v)
    return kept.get(4) or UOp(Op.RANGE, _I32, (const(_I32, 4),), (fresh, "vector"))


class _Tiles:
    """Numbers the tiles of a kernel and fills them."""

    def __init__(self, threads: int, lanes: UOp) -> None:
        self.threads, self.lanes = threads, lanes
        self.lid = UOp(Op.SPECIAL, _I32, (), ("lid", threads)) if threads > 1 else const(_I32, 0)
        self.count = 0

    def fill(self, tile: UOp, value: UOp) -> UOp:
        self.count += 1
        return fill(tile, value, self.lid, self.threads, self.count - 1, self.lanes)


def _digits(name: str, ranges: list[UOp], table: dict[UOp, UOp]) -> int:
    """Make `ranges`, fastest first, the digits of one hardware index; returns its extent."""
    total = math.prod(most(r.src[0]) if r.src[0].op is not Op.CONST else extent(r) for r in ranges)
    whole = UOp(Op.SPECIAL, _I32, (), (name, total)) if total > 1 else const(_I32, 0)
    stride: Size = 1
    for n, r in enumerate(ranges):
        digit = whole // stride
        last = n == len(ranges) - 1 and total > 1
        here = r.src[0]
        table[r] = digit if last else digit % (here if here.op is not Op.CONST else extent(r))
        stride = product([stride, here if here.op is not Op.CONST else extent(r)])
    return total


def _replace(sink: UOp, table: dict[UOp, UOp], gate: UOp | None, shared: int, serial: int, tiles: _Tiles) -> UOp:
    # A group range stays as it is among a reduce's sources: it says how many threads share the reduce. What is stored
    # once for all of them is stored by the first.
    new: dict[UOp, UOp] = dict(table)
    for u in toposort((sink,), until=lambda u: u in new):
        src = tuple([new[s] for s in u.src])
        if u.op is Op.REDUCE:
            keep = [s if s.arg[1] == "group" else n for s, n in zip(u.src[1:], src[1:], strict=True)]
            new[u] = u.replace(src=(src[0], *keep))
        elif u.op is Op.BUFFERIZE:
            new[u] = tiles.fill(u, src[0])
        elif u.op is Op.STORE and gate is not None and not u.ranges & shared:
            both = gate if len(src) == 3 else gate & src[3]
            new[u] = with_sources(u, (*src[:3], both), serial)
        else:
            new[u] = with_sources(u, src, serial)
    return new[sink]
