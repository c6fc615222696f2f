"""Early rewrites on the tensor graph: nodes that need no kernel are removed, compound ops become simple ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from anneal.rewrite import applied, over, rebuild, rewritten, unfolded
from anneal.schedule.fusion import COPY, CostModel, base
from anneal.schedule.passes import early_helpers as helpers
from anneal.schedule.passes.early_rules import EARLY
from anneal.schedule.passes.vocabulary import along, everywhere, kept, shaped, spread, summed, taken
from anneal.schedule.records import Schedule, carried
from anneal.uop import ALU, Nodes, Op, Src, UOp, const, dtypes, reduce_identity, toposort


def run(s: Schedule) -> Schedule:
    order = []

    def change() -> UOp:
        order.extend(toposort((early_rewrites(s.sink, s.cost_model),)))
        return sort_by_radix(order, s.cost_model)

    sink = carried(s.places, s.sink, change)
    return replace(s, sink=order.pop(), order=order).over(sink)


def early_rewrites(sink: UOp, costs: CostModel) -> UOp:
    """Rewrite the tensor graph in one bottom-up walk, with the rules of `early.upat`, and these, which need more than a
    pattern:

    - EXPAND or RESHAPE of a scalar, as an elementwise source -> the scalar (rank 0 broadcasts by itself)
    - a reduce over nothing -> its identity
    - what is changed in no place -> as it was
    - outputs are made distinct, computed nodes
    - a scatter is as `scattered` has it, with `serial` one kernel; then a running reduction is a SCAN, and a sort
      of rows an ARGSORT
    - with `masks`, an exponential that is known to be 0 in places says so -> where(place, 0, exponential)
    """
    order = toposort(sink)
    in_place = _in_place(order)
    copies = 0

    def visit(u: UOp, src: Src) -> UOp:
        nonlocal copies
        op = u.op
        out: UOp
        if 0 in u.shape and src and op is not Op.UPDATE:
            out = everywhere(const(u.dtype, 0), u.shape)  # no elements: nothing that they come from is needed
        elif op is Op.UPDATE and 0 in src[1].shape:
            out = src[0]
        elif op in ALU:
            if u.shape:
                trimmed = tuple([_scalar(s) if s.shape == u.shape else s for s in src])
                if any(s.shape for s in trimmed):
                    src = trimmed
            out = u.replace(src=src)
        elif op is Op.SINK:
            out = _distinct_outputs(u, src)
        elif op is Op.CALL and u.arg[0].results:
            out = rebuild(applied(u.arg[0], src)[u.arg[1]], visit, {s: s for s in src})
        elif op is Op.CALL:
            out = _called(u, src, costs) or unfolded(u, src)
        elif op is Op.UPDATE:
            if u not in in_place:
                copies += 1
                src = (src[0].then(Op.CONTIGUOUS, tag=(COPY, copies)), *src[1:])
            out = UOp(op, u.dtype, src, u.arg)
        elif op is Op.REDUCE_AXIS and 0 in src[0].shape:
            out = everywhere(const(src[0].dtype, reduce_identity(u.arg[0], src[0].dtype)), u.shape)
        elif op in _FROM_NOTHING and 0 in src[op is Op.SCATTER_ADD].shape:
            out = everywhere(const(u.dtype, 0), u.shape)
        elif op is Op.SCATTER_ADD:
            out = helpers.scattered(unfolded(u, src), costs.serial)
        else:
            out = unfolded(u, src)
        return rewritten(out, EARLY)

    return rebuild(sink, visit, order=order)


def _called(u: UOp, src: Src, costs: CostModel) -> UOp | None:
    """The op that the device has for a call by this rule's name."""
    name, arguments = u.arg[0].name, u.arg[0].arguments
    if costs.serial and name in ("running", "sums", "products") and helpers.is_sized(u):
        return UOp(Op.SCAN, u.dtype, (helpers.materialised(src[1]),), arguments)
    if costs.serial and name == "sorted" and helpers.is_sized(src[1]):
        keys = helpers.materialised(src[1]).then(Op.RESHAPE, (src[1].size,))
        return UOp(Op.ARGSORT, u.dtype, (keys,), arguments).then(Op.RESHAPE, u.shape)
    if costs.serial and name == "largest" and all(map(helpers.is_sized, (u, src[1]))) and 0 not in src[1].shape:
        return UOp(Op.SCATTER_ADD, u.dtype, tuple(map(helpers.materialised, src[1:])), (u.shape[0], Op.MAX))
    return src[2].where(const(u.dtype, 0), src[0]) if costs.masks and name == "exp" else None


_FROM_NOTHING = frozenset((Op.PAD, Op.GATHER, Op.SCATTER_ADD))  # zeros, where they take from no elements


def _in_place(order: Nodes) -> set[UOp]:
    """Updates of a value that another update made and nothing else reads: they need no copy of it."""
    users = Counter([s for u in order for s in u.src])
    return {u for u in order if u.op is Op.UPDATE and u.src[0].op is Op.UPDATE and users[u.src[0]] == 1}


def _scalar(u: UOp) -> UOp:
    """The rank-0 constant that `u` repeats, or `u`."""
    x = base(u, (Op.EXPAND, Op.RESHAPE))
    return x if x.is_const else u


def _distinct_outputs(sink: UOp, src: Src) -> UOp:
    """Give every output memory of its own, also one that is a leaf or equals another output."""
    out: dict[UOp, None] = {}
    for n, s in enumerate(src):
        if s in out or s.op in (Op.CONST, Op.VARIABLE, Op.IOTA, Op.PARAM, Op.BUFFER):
            s = s.then(Op.CONTIGUOUS, tag=n)
        out[s] = None
    return UOp(Op.SINK, sink.dtype, tuple(out))


# -- a long sort as a few passes over its keys: a radix sort, least significant digit first ----------------------------
# The kernel of an ARGSORT counts for every key those before it, which is quadratic. Above `CostModel.sort_by_counting`
# keys it becomes, for each digit of six bits, one step that is stable:
#
#     counts[block, digit]    how many keys of a block of 64 have a digit
#     starts[block, digit]    where those of them come to lie: behind smaller digits, and the same one in earlier blocks
#     place[key]              starts[its block, its digit], and how many of its block before it have the same digit
#     order                   the inverse of `place`: an ARGSORT whose keys are told to be a permutation

PERMUTATION = "permutation"  # the arg of an ARGSORT whose keys are the numbers from 0, in some order

_I32, _U32 = dtypes.int32, dtypes.uint32
_BITS = 6
_BLOCK = 64


def sort_by_radix(order: Nodes, cost_model: CostModel) -> UOp:
    """The sink, which is the last node of `order`, with its long sorts in passes."""
    longest, sink = cost_model.sort_by_counting, order[-1]
    if not longest or not any(u.op is Op.ARGSORT and _is_long(u, longest) for u in order):
        return sink
    return rebuild(sink, lambda u, src: _sorted(src[0]) if _is_long(u, longest) else over(u, src), order=order)


def _is_long(u: UOp, longest: int) -> bool:
    if u.op is not Op.ARGSORT or u.arg is not None or u.src[0].dtype is not _I32:
        return False
    n = u.shape[0]
    return isinstance(n, int) and n > longest  # a symbolic row is sorted by counting


def _sorted(keys: UOp) -> UOp:
    n = keys.size
    blocks = -(-n // _BLOCK)
    # as unsigned keys in the same order; the padding of the last block comes last
    words = UOp(Op.BITCAST, _U32, (shaped(keys, n) ^ _I32.min,))
    if blocks * _BLOCK > n:
        words = Op.NOT(words).then(Op.PAD, ((0, blocks * _BLOCK - n),))
        words = Op.NOT(words)
    words = kept(words)
    order = None
    for shift in range(0, 32, _BITS):
        step = _step(words, blocks, shift)
        if shift + _BITS < 32:
            words = kept(taken(words, step))
        order = step if order is None else kept(taken(order, step))
    assert order is not None
    # flat and in memory: what sums by this order reads it so
    return kept(order.then(Op.SHRINK, ((0, n),))) if blocks * _BLOCK > n else order


def _step(words: UOp, blocks: int, shift: int) -> UOp:
    """The places that sort `words` by the digit at `shift`, those of one digit in their order."""
    digits = 1 << _BITS
    low = (words >> shift) & (digits - 1)
    digit = shaped(low.cast(_I32), blocks, _BLOCK)
    whole = (blocks, digits, _BLOCK)
    counts = summed(spread(digit, whole, 1).eq(along(whole, 1)).cast(_I32), 2)
    before = _earlier(counts)  # in earlier blocks
    smaller = shaped(_earlier(shaped(summed(counts, 0), digits, 1)), 1, digits)
    starts = kept(before + smaller.then(Op.EXPAND, (blocks, digits)))
    square = (blocks, _BLOCK, _BLOCK)
    equal = spread(digit, square, 1).eq(spread(digit, square, 2))
    ahead = equal & (along(square, 2) < along(square, 1))
    place = UOp(Op.GATHER, _I32, (starts, digit), 1) + summed(ahead.cast(_I32), 2)
    return kept(shaped(place, blocks * _BLOCK)).then(Op.ARGSORT, PERMUTATION)


def _earlier(table: UOp) -> UOp:
    """The sum of the rows before each row of a table: within runs, then over the runs."""
    rows, columns = table.shape
    width = 64
    if rows <= width:
        return _before(table)
    runs = -(-rows // width)
    padded = table.then(Op.PAD, ((0, runs * width - rows), (0, 0))) if runs * width > rows else table
    by_run = kept(shaped(padded, runs, width, columns))
    inner = _before(shaped(by_run.then(Op.PERMUTE, (1, 0, 2)), width, runs * columns))
    inner = shaped(inner, width, runs, columns).then(Op.PERMUTE, (1, 0, 2))
    total = inner + spread(_earlier(summed(by_run, 1)), (runs, width, columns), 1)
    flat = shaped(total, runs * width, columns)
    return flat.then(Op.SHRINK, ((0, rows), (0, columns))) if runs * width > rows else flat


def _before(table: UOp) -> UOp:
    rows, columns = table.shape
    cube = (rows, rows, columns)  # (row, an earlier one, column)
    earlier = along(cube, 1) < along(cube, 0)
    return summed(earlier.where(spread(table, cube, 0), 0), 1)
