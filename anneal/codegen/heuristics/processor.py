"""Opts for a processor: which range its vectors run along, what stays in registers, what a workgroup loops over.

A load costs the vectors' lanes where neighbours along them are not neighbours in memory. What a loop does not move is
read once for the results that registers hold along it. Both are counted for every range that vectors may run along and
every pair of blocks; the cheapest is taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anneal.codegen.affine import form
from anneal.codegen.coalesce import fusible_reduces
from anneal.codegen.heuristics.facts import power_of_two
from anneal.codegen.opts import Axis, Opt, axes_of
from anneal.codegen.ranges import mask_of
from anneal.codegen.target import Target
from anneal.uop import ALU, Op, UOp, dtypes, toposort

_BLOCKS = (1, 2, 3, 4, 6, 8)
_NODES = 1500  # that compute or load, when registers and unrolled iterations are written out
_ELEMENTS, _OPERATIONS = 4096, 1 << 15  # of a workgroup that reduces nothing, at most; it is one thread's
_WHOLE_ROW = 8  # vectors of a row that stays in registers
_SHORT, _WINDOW = 4, 9  # iterations of loops that are written out
_CHAINS = 8  # sums that a processor works on at once: two a cycle, each of which takes four
_SCATTERED = 2.0  # loads that a store costs
_STREAMED, _CACHE = 2.1, 1 << 15  # ... and one that finds nothing in the first cache, of so many bytes
# ... and a number that all lanes take, and an access of which some lanes are no part: AVX-512 multiplies by numbers of
# memory and has masks, others load the ones and compute the others.
_BROADCAST, _MASKED = {16: 0.4, 8: 1.0, 4: 1.0}, {16: 1.5, 8: 2.0, 4: 2.0}


@dataclass(frozen=True, slots=True)
class _Access:
    """A load or a store: the ranges that move it, its step along those that move it evenly, the ranges that its
    conditions depend on, whether each workgroup has its own elements of memory that is too large for the first cache,
    and what one number for all lanes costs, and a mask."""

    moved: int
    steps: dict[UOp, int]
    asked: int
    is_streamed: bool
    broadcast: float
    mask: float

    def cost(self, v: Axis, lanes: int) -> float:
        """Of an access to the lanes along `v`, in those of one vector."""
        differs = self.asked >> v.range.arg[0] & 1
        if not self.moved >> v.range.arg[0] & 1:
            return lanes if differs else self.broadcast + (self.asked > 0)
        each = {1: _STREAMED if self.is_streamed else 1, 2: 3}.get(self.steps.get(v.range, 0), lanes)
        masked = differs or (not v.is_loop and v.count % lanes)
        return each * (self.mask if masked else 1.25 if self.asked else 1)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The facts that the rules decide by."""

    axes: list[Axis]
    order: list[UOp]
    reduces: list[UOp]
    loads: list[_Access]
    stores: list[_Access]
    lanes: int
    registers: int
    in_place: bool
    work: int  # nodes that compute or load

    def loops(self) -> Iterator[tuple[int, Axis]]:
        return ((i, a) for i, a in enumerate(self.axes) if a.is_loop)

    def lanes_along(self, a: Axis) -> int:
        """Lanes of vectors along `a`: some are idle where it ends within one."""
        return min(self.lanes, 2 * power_of_two(a.count - 1))


def choose(sink: UOp, target: Target) -> tuple[Opt, ...]:
    """Opts for a kernel whose loops are coalesced."""
    order = toposort((sink,))
    axes = axes_of(sink, order)
    if any(a.is_loop and a.extent is None for a in axes):
        return ()
    k = _kernel(sink, order, axes, target)
    return _rows(k) or _reduced(k)


def _kernel(sink: UOp, order: list[UOp], axes: list[Axis], target: Target) -> _Kernel:
    reduces = [u for u in order if u.op is Op.REDUCE]
    loads = [u for u in order if u.op is Op.LOAD]
    bits = mask_of([r for u in reduces for r in u.src[1:]])
    inner = [u for u in loads if u.ranges & bits] or loads
    widest = max([u.dtype.bits for u in order if u.op is not Op.SINK], default=32)
    written = {s.src[0] for s in sink.src}
    return _Kernel(
        axes,
        order,
        reduces,
        [_access(u, axes, target) for u in inner],
        [_access(u, axes, target) for u in sink.src],
        target.lanes * 32 // max(32, widest),
        2 * target.lanes,
        any(u.src[0] in written for u in loads),
        sum([u.op is Op.LOAD or u.op in ALU and u.dtype is not dtypes.int32 for u in order]),
    )


def _access(u: UOp, axes: Sequence[Axis], target: Target) -> _Access:
    terms = form(u.src[1])[0]
    steps = {t: k for t, k in terms.items() if t.op is Op.RANGE}
    for r in list(steps):
        if any(t.ranges >> r.arg[0] & 1 for t in terms if t is not r):
            del steps[r]
    last = max([a.range.arg[0] for a in axes if a.is_loop and a.extent != 1], default=0)
    size = u.src[0].arg[1][0] * u.dtype.itemsize if u.src[0].arg[1] else 0
    moved, asked = u.src[1].ranges, 0
    for condition in u.src[2 if u.op is Op.LOAD else 3 :]:
        asked |= condition.ranges
    streamed = u.op is Op.LOAD and size > _CACHE and bool(moved >> last & 1)
    return _Access(moved, steps, asked, streamed, _BROADCAST[target.lanes], _MASKED[target.lanes])


# ---------------------------------------------------------------------------------------------------------------------
# Softmax, norms and their gradients: reduces fused into the loop over the row of values made from them.


def _rows(k: _Kernel) -> tuple[Opt, ...]:
    for number, axis in reversed(list(k.loops())):
        if not k.reduces or axis.count < 2:
            continue
        joined = fusible_reduces(k.reduces, axis.range)
        if not joined or not all(joined.issuperset(u.src[1:]) for u in k.reduces):
            continue
        along = {axis.range, *joined}
        others = [(i, a) for i, a in k.loops() if i != number]

        def cost(ranges: set[UOp]) -> float:
            return sum([not any(a.moved >> r.arg[0] & 1 for r in ranges) or any(a.steps.get(r) == 1 for r in ranges)
                        for a in (*k.loads, *k.stores)])  # fmt: skip

        at, v = number, axis
        for i, a in others:
            if cost({a.range}) > cost(along) and a.count > 1:
                at, v = i, a
        lanes = k.lanes_along(v)
        opts = [Opt("FUSE_REDUCE", number, 1)] + ([Opt("VECTORIZE", at, lanes)] if lanes > 1 else [])
        left = -(-axis.count // (lanes if at == number else 1))
        if left > 1 and left <= _WHOLE_ROW and left * k.work <= _NODES and axis.size == axis.extent:
            opts.append(Opt("UNROLL", number, left))
        return (*opts, *_looped(k, [(i, a) for i, a in others if i != at], _ELEMENTS // axis.count))
    return ()


# ---------------------------------------------------------------------------------------------------------------------


def _reduced(k: _Kernel) -> tuple[Opt, ...]:
    """Everything else: the cheapest range for vectors, and the cheapest blocks of results in registers."""
    candidates = [(i, a) for i, a in enumerate(k.axes) if a.count > 1 and not _moves_extents(k, a)]
    if not candidates:
        return ()
    plans = [_blocks(k, i, a) for i, a in candidates]
    _, at, lanes, blocks = min(plans, key=lambda p: p[0])
    opts = [Opt("VECTORIZE", at, lanes)] if lanes > 1 else []
    opts += [Opt("UPCAST", i, n) for i, n in blocks.items() if n > 1]
    v = k.axes[at]
    if k.reduces:
        copies = k.work * math.prod(blocks.values())
        for i, n in _window(k, at):
            copies *= n
            if copies <= _NODES:
                opts.append(Opt("UNROLL", i, n))
        return tuple(opts)
    taken = lanes * blocks.get(at, 1)
    rest = [(at, Axis(v.range, -(-v.count // taken), v.size))] if v.is_loop else []
    others = [(i, a) for i, a in k.loops() if i != at]
    return (*opts, *_looped(k, [*others, *rest], min(_ELEMENTS, _OPERATIONS // (1 + k.work)) // taken))


def _window(k: _Kernel, at: int) -> list[tuple[int, int]]:
    """The short loops that are written out, innermost first: all of a convolution's window, if it has few elements."""
    found: list[tuple[int, int]] = []
    left = _WINDOW if _is_product(k, at) else _SHORT
    for r in reversed(k.reduces[0].src[1:]):
        i, a = next((i, a) for i, a in enumerate(k.axes) if a.range is r)
        if i == at or a.extent is None or isinstance(a.size, UOp) or not 1 < a.extent <= left:
            break
        found.append((i, a.extent))
        left = left // a.extent if _is_product(k, at) else 0
    return found


def _is_product(k: _Kernel, at: int) -> bool:
    """Is each element of a vector a sum of products?"""
    return k.axes[at].is_loop and k.reduces[0].src[0].op is Op.MUL


def _moves_extents(k: _Kernel, a: Axis) -> bool:
    return any(u.op is Op.RANGE and u.src[0].ranges >> a.range.arg[0] & 1 for u in k.order)


def _blocks(k: _Kernel, at: int, v: Axis) -> tuple[float, int, int, dict[int, int]]:
    """The cost of an element with vectors along `v`, their lanes, and the blocks of results that make it lowest."""
    lanes = k.lanes_along(v)
    extent = v.count
    used = extent / (-(-extent // lanes) * lanes)
    length = math.prod([a.count for a in k.axes if not a.is_loop])
    stores = sum([_SCATTERED * s.cost(v, lanes) for s in k.stores]) / length
    fold = 0.0 if v.is_loop else 2.0 * lanes.bit_length() * lanes / length
    costs = [(a, a.cost(v, lanes)) for a in k.loads]
    best: tuple[float, dict[int, int]] = (sum([c for _, c in costs]) + k.work, {})
    if k.reduces:
        sizes = {
            i: [1, *_amounts(a.count // (lanes if i == at else 1), k.in_place)]
            for i, a in k.loops()
            if a.count > 1 and (i != at or extent >= 2 * lanes)
        }
        both = itertools.combinations((*sizes, -1), 2)  # the last: one alone
        pairs = [{}, *[{i: n, j: m} for i, j in both for n in sizes[i] for m in sizes.get(j, [1])]]
        best = min([(_cost(k, costs, p, at, lanes), p) for p in pairs], key=lambda c: c[0])
    return (best[0] + stores + fold) / (lanes * used), at, lanes, best[1]


def _amounts(extent: int, whole: bool) -> list[int]:
    return [n for n in _BLOCKS if 1 < n <= extent and (not whole or extent % n == 0)]


def _cost(k: _Kernel, costs: Sequence[tuple[_Access, float]], blocks: dict[int, int], at: int, lanes: int) -> float:
    """Of one result's vector in an iteration, with blocks of so many results in registers."""
    results = math.prod(blocks.values())
    total = 1.0 + 1 / results + max(0.0, 1 - results / _CHAINS) * 2
    held = results * len(k.reduces) + 1  # numbers for all lanes follow each other in one register
    waste = 1.0
    for i, n in blocks.items():
        extent = -(-k.axes[i].count // (lanes if i == at else 1))
        waste *= math.ceil(extent / n) * n / extent
    for a, c in costs:
        mine = math.prod([n for i, n in blocks.items() if a.moved >> k.axes[i].range.arg[0] & 1])
        total += c * mine / results
        held += mine if a.moved >> k.axes[at].range.arg[0] & 1 else 0
    # A window's loads all wait for their products: results have less room beside them. Else one register is the
    # compiler's.
    room = 8 + k.registers // 8 if _window(k, at) and _is_product(k, at) else k.registers - 1
    if held > room:
        total += 2 * (held - room)
    if k.work * results > _NODES:
        return math.inf
    return total * waste


def _looped(k: _Kernel, axes: Sequence[tuple[int, Axis]], elements: int) -> list[Opt]:
    """Iterations of a workgroup: of the last of `axes` first, and only divisors of what is left of them."""
    opts = []
    for i, a in reversed(axes):
        if a.extent is None or isinstance(a.size, UOp):
            break
        count = max(n for n in range(1, max(1, min(a.extent, elements)) + 1) if a.extent % n == 0)
        if count > 1:
            opts.append(Opt("LOCAL", i, count))
        elements //= count
        if count < a.extent:
            break
    return opts
