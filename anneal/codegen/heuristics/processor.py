"""Opts for a processor: which range its vectors run along, what stays in registers, what a workgroup loops over."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from anneal.codegen.heuristics.facts import loops_of, power_of_two, row_of
from anneal.codegen.opts import Axis, Opt, Opts, axes_of, split
from anneal.codegen.ranges import form, mask_of, predicate_of, ranges_of, reads_stored
from anneal.codegen.target import Target
from anneal.frozen import frozen
from anneal.uop import ALU, Numbers, Op, UOp, dtypes, of_op, toposort

_BLOCKS = (1, 2, 3, 4, 6, 8)
_NODES = 1500  # that compute or load, when registers and unrolled iterations are written out
_ELEMENTS, _OPERATIONS = 4096, 1 << 15  # of a workgroup that reduces nothing, at most; it is one thread's
_WHOLE_ROW = 8  # vectors of a row that stays in registers
_SHORT, _WINDOW = 4, 9  # iterations of loops that are written out
_CHAINS = 8  # sums that a processor works on at once: two a cycle, each of which takes four
_SCATTERED = 2.0  # loads that a store costs
_STREAMED, _CACHE = 2.1, 1 << 15  # ... and one that finds nothing in the first cache, of so many bytes
# ... the cost of a number that all lanes take, and of a masked access: AVX-512 multiplies by numbers in memory and has
# masks; other processors load such numbers, and compute masked accesses.
_BROADCAST, _MASKED = {16: 0.4, 8: 1.0, 4: 1.0}, {16: 1.5, 8: 2.0, 4: 2.0}


@frozen
class _Access:
    """A load or a store: the ranges that move it, its steps along them, the ranges that its condition depends on, and
    whether each workgroup has its own elements of memory that is too large for the first cache."""

    moved: int
    steps: Numbers
    asked: int
    is_streamed: bool


@frozen
class _Kernel:
    """The facts that the rules decide by."""

    axes: list[Axis]
    reduces: list[UOp]
    loads: list[_Access]
    stores: list[_Access]
    target: Target
    lanes: int
    in_place: bool
    work: int  # nodes that compute or load

    def lanes_along(self, a: Axis) -> int:
        """Lanes of vectors along `a`: some are idle where it ends within one."""
        return min(self.lanes, 2 * power_of_two(a.count - 1))

    def cost(self, access: _Access, v: Axis, lanes: int) -> float:
        """The cost of an access to the lanes along `v`, relative to one vector access."""
        differs = _is_among(v, access.asked)
        if not _is_among(v, access.moved):
            return lanes if differs else _BROADCAST[self.target.lanes] + (access.asked > 0)
        each = {1: _STREAMED if access.is_streamed else 1, 2: 3}.get(access.steps.get(v.range, 0), lanes)
        return each * (_MASKED[self.target.lanes] if differs or (not v.is_loop and v.count % lanes) else 1)


def _is_among(a: Axis, ranges: int) -> bool:
    return bool(ranges >> a.range.arg[0] & 1)


def choose(sink: UOp, target: Target) -> Opts:
    """Opts for a kernel whose loops are coalesced.

    A load costs the vectors' lanes where neighbours along them are not neighbours in memory. What a loop does not move
    is read once for the results that registers hold along it. Both are counted for every range that vectors may run
    along and every pair of blocks; the cheapest is taken.
    """
    order = toposort(sink)
    axes = axes_of(sink, order)
    reduces = of_op(order, Op.REDUCE)
    loads = of_op(order, Op.LOAD)
    bits = mask_of([r for u in reduces for r in u.src[1:]])
    inner = [u for u in loads if u.ranges & bits] or loads
    last = max([a.range.arg[0] for a in axes if a.is_loop and a.extent != 1], default=0)
    k = _Kernel(
        axes,
        reduces,
        [_access(u, math.prod(u.src[0].arg[1]) * u.dtype.itemsize > _CACHE, last) for u in inner],
        [_access(u, False, last) for u in sink.src],
        target,
        target.lanes * 32 // max([32, *[u.dtype.bits for u in order if u.op is not Op.SINK]]),
        reads_stored(sink.src),
        sum([u.op is Op.LOAD or u.op in ALU and u.dtype is not dtypes.int32 for u in order]),
    )
    return _rows(k) or _reduced(k, ranges_of([u.src[0] for u in order if u.op is Op.RANGE]))


def _access(u: UOp, is_large: bool, last: int) -> _Access:
    moved, predicate = u.src[1].ranges, predicate_of(u)
    asked = predicate[0].ranges if predicate else 0
    return _Access(moved, form(u.src[1])[0], asked, is_large and bool(moved >> last & 1))


# ---------------------------------------------------------------------------------------------------------------------
# Softmax, norms and their gradients: reduces fused into the loop over the row of values made from them.


def _rows(k: _Kernel) -> Opts:
    row = row_of(k.axes, k.reduces)
    if row is None:
        return ()
    number, axis, joined = row

    def whole(*ranges: UOp) -> int:
        """Accesses that are whole vectors, or one number, along the ranges."""
        bits = mask_of(ranges)
        return sum([not a.moved & bits or any(a.steps.get(r) == 1 for r in ranges) for a in (*k.loads, *k.stores)])

    others = [(i, a) for i, a in loops_of(k.axes) if i != number]
    least = whole(axis.range, *joined)
    at, v = [(number, axis), *[(i, a) for i, a in others if whole(a.range) > least and a.count > 1]][-1]
    lanes = k.lanes_along(v)
    opts = [Opt("FUSE_REDUCE", number, 1), Opt("VECTORIZE", at, lanes)]
    left = -(-axis.count // (lanes if at == number else 1))
    if 1 < left <= _WHOLE_ROW and left * k.work <= _NODES:
        opts.append(Opt("UNROLL", number, left))
    return (*opts, *_looped([(i, a) for i, a in others if i != at], _ELEMENTS // axis.count))


# ---------------------------------------------------------------------------------------------------------------------


def _reduced(k: _Kernel, fixed: int) -> Opts:
    """Everything else: the cheapest range for vectors, and the cheapest blocks of results in registers. Extents depend
    on the ranges of `fixed`, which are no vectors."""
    plans = [_blocks(k, i, a) for i, a in enumerate(k.axes) if a.count > 1 and not _is_among(a, fixed)]
    if not plans:
        return ()
    _, at, lanes, blocks = min(plans, key=lambda p: p[0])
    opts = [Opt("VECTORIZE", at, lanes), *[o for i, n in blocks.items() for o in split("UPCAST", i, n)]]
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
    others = [(i, a) for i, a in loops_of(k.axes) if i != at]
    return (*opts, *_looped([*others, *rest], min(_ELEMENTS, _OPERATIONS // (1 + k.work)) // taken))


def _window(k: _Kernel, at: int) -> list[tuple[int, int]]:
    """The short loops that are written out, innermost first: all of a convolution's window, if it has few elements."""
    found = []
    left = _WINDOW if _is_product(k, at) else _SHORT
    for i, a in reversed([*enumerate(k.axes)]):
        if i == at or a.is_loop or not 1 < a.count <= left:
            break
        found.append((i, a.count))
        left = left // a.count if _is_product(k, at) else 0
    return found


def _is_product(k: _Kernel, at: int) -> bool:
    """Is each element of a vector a sum of products?"""
    return k.axes[at].is_loop and any(u.src[0].op is Op.MUL for u in k.reduces[:1])


def _blocks(k: _Kernel, at: int, v: Axis) -> tuple[float, int, int, dict[int, int]]:
    """The cost of an element with vectors along `v`, their lanes, and the blocks of results that make it lowest."""
    lanes = k.lanes_along(v)
    used = v.count / (-(-v.count // lanes) * lanes)
    length = math.prod([a.count for a in k.axes if not a.is_loop])
    stores = sum([_SCATTERED * k.cost(s, v, lanes) for s in k.stores]) / length
    fold = 0.0 if v.is_loop else 2.0 * lanes.bit_length() * lanes / length
    costs = [(a, k.cost(a, v, lanes)) for a in k.loads]
    sizes = {}
    if k.reduces:
        left = {i: a.count // (lanes if i == at else 1) for i, a in loops_of(k.axes)}
        sizes = {
            i: [n for n in _BLOCKS if n <= size and not (k.in_place and size % n)] or [1] for i, size in left.items()
        }
    both = itertools.combinations((*sizes, -1), 2)  # the last: one alone
    pairs = [{}, *[{i: n, j: m} for i, j in both for n in sizes[i] for m in sizes.get(j, [1])]]
    least, blocks = min([(_cost(k, costs, p, at, lanes), p) for p in pairs], key=lambda c: c[0])
    return (least + stores + fold) / (lanes * used), at, lanes, blocks


def _cost(k: _Kernel, costs: Sequence[tuple[_Access, float]], blocks: dict[int, int], at: int, lanes: int) -> float:
    """The cost of one result's vector in an iteration, if registers hold blocks of so many results."""
    results = math.prod(blocks.values())
    total = 1.0 + 1 / results + max(0.0, 1 - results / _CHAINS) * 2
    held = results * len(k.reduces) + 1  # numbers for all lanes follow each other in one register
    waste = 1.0
    for i, n in blocks.items():
        extent = -(-k.axes[i].count // (lanes if i == at else 1))
        waste *= math.ceil(extent / n) * n / extent
    for a, c in costs:
        mine = math.prod([n for i, n in blocks.items() if _is_among(k.axes[i], a.moved)])
        total += c * mine / results
        held += mine * _is_among(k.axes[at], a.moved)
    # A window's loads all wait for their products: results have less room beside them. Else one register is the
    # compiler's.
    registers = 2 * k.target.lanes
    room = 8 + registers // 8 if _window(k, at) and _is_product(k, at) else registers - 1
    if 4 * k.work * results > _NODES:  # the epilogue is written out for each
        return math.inf
    return (total + 2 * max(0, held - room)) * waste


def _looped(axes: Sequence[tuple[int, Axis]], elements: int) -> list[Opt]:
    """Iterations of a workgroup: of the last of `axes` first, and only divisors of what is left of them."""
    opts = []
    for i, a in reversed(axes):
        if isinstance(a.size, UOp):
            break
        count = max([n for n in range(1, min(a.count, elements) + 1) if a.count % n == 0], default=1)
        opts += split("LOCAL", i, count)
        elements //= count
        if count < a.count:
            break
    return opts
