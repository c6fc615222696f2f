"""Facts about a tensor graph that no decision changes: who reads a node, how deep it lies, which sums alone read it."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from anneal.rewrite import matched_axes, reshaped_index
from anneal.schedule.cost_model import CostModel
from anneal.uop import ALU, MOVEMENT, Nodes, Numbers, Op, Src, UOp
from anneal.uop.sizes import Size, count, size

Consumers = dict[UOp, list[UOp]]

LEAVES = frozenset((Op.BUFFER, Op.PARAM))
NEVER_TWICE = frozenset((Op.REDUCE_AXIS, Op.SEGMENT_SUM, Op.GATHER))
WHOLE = frozenset((Op.ARGSORT, Op.SCAN, Op.SCATTER_ADD))  # kernels of their own, of whole arrays
REORDER = frozenset((Op.RESHAPE, Op.PERMUTE))
COPY = "copy for an update"  # in the tag of a CONTIGUOUS: the memory that an UPDATE writes into


def base(u: UOp, ops: Container[Op] = MOVEMENT) -> UOp:
    """`u` below its movement ops, or those of `ops`."""
    while u.op in ops:
        u = u.src[0]
    return u


def is_widening(u: UOp) -> bool:
    """True if `u` is a cast to more bits: memory holds the fewer ones, and each reader casts."""
    return u.op is Op.CAST and u.dtype.itemsize > u.src[0].dtype.itemsize


def is_elsewhere(u: UOp) -> bool:
    """True if `u` reads its (first) source at a place other than its own: not so where axes are only split, joined,
    added or repeated.
    """
    op = u.op
    if op is Op.PERMUTE:
        shape = u.src[0].shape
        moved = [a for a in u.arg if shape[a] != 1]
        return moved != sorted(moved)
    if op is Op.RESHAPE:
        return any(len(a) > 1 < len(b) for a, b in matched_axes(u.shape, u.src[0].shape)) if u.size else False
    return op is Op.SHRINK or op is Op.PAD or op is Op.FLIP or op is Op.GATHER


def is_slice(u: UOp) -> bool:
    """True if `u` gathers one slice of memory, at a number: a read like others, once the number is known."""
    if u.op is not Op.GATHER or base(u.src[0]).op not in LEAVES:
        return False
    index = base(u.src[1], (Op.EXPAND, Op.RESHAPE))
    return index.size == 1 and index.op in LEAVES


def never_twice(u: UOp) -> bool:
    """True if what several kernels read of `u` is kept, however little it costs."""
    return u.op in NEVER_TWICE and not is_slice(u)


def long_axes(u: UOp) -> list[int]:
    return [n for n in u.shape if n != 1]


def consumers_of(order: Nodes) -> Consumers:
    """The nodes that read each node of `order` (sources first), each once."""
    consumers: Consumers = {u: [] for u in order}
    for u in order:
        src = u.src
        for s in src if len(src) == 1 else dict.fromkeys(src):
            consumers[s].append(u)
    return consumers


def only_summed(order: Nodes, consumers: Consumers, cost_model: CostModel) -> set[UOp]:
    """Values that only sums read, where bindings are limited in size: such a value is never materialised for its
    readers, so it takes no binding, however large it is."""
    found = set()
    if cost_model.binding_bytes:
        for u in reversed(order):
            if consumers[u] and all(c.op is Op.REDUCE_AXIS or c in found for c in consumers[u]):
                found.add(u)
    return found


def reduce_depths(order: Nodes) -> Numbers:
    """The most reductions (and gathers) on a way from an input to each node."""
    depth: Numbers = {}
    for u in order:
        depth[u] = max([depth[s] for s in u.src], default=0) + (u.op in NEVER_TWICE)
    return depth


def cone(root: UOp, materialised: Collection[UOp]) -> tuple[list[UOp], dict[UOp, None], int]:
    """The kernel that makes `root`: the nodes it computes, its inputs (leaves and materialised nodes), and how many
    nodes these are, with constants.
    """
    inside = []
    inputs: dict[UOp, None] = {}
    seen = {root}
    stack = [root]
    while stack:
        u = stack.pop()
        inside.append(u)
        for s in reversed(u.src):
            if s in seen:
                continue
            seen.add(s)
            if s in materialised or s.op in LEAVES:
                inputs[s] = None
            elif s.src:
                stack.append(s)
    return inside, inputs, len(seen)


# ---------------------------------------------------------------------------------------------------------------------
# Rows: neighbours in memory order that a reduce makes one number of, and products that read a row again and again.


_SHORT = 4096  # elements of a row that is worth computing again: what the threads of a workgroup hold in registers


def row_length(reduce: UOp) -> int:
    """The number of neighbours in memory order that are reduced to one, or 0 if the reduced elements are no
    neighbours.
    """
    if reduce.op is Op.SEGMENT_SUM:
        return 0
    shape, axes = reduce.src[0].shape, reduce.arg[1]
    first = min(axes)
    if any(shape[a] != 1 for a in range(first, len(shape)) if a not in axes):
        return 0
    return count(shape[first:])


def takes_rows(reduce: UOp, row: int) -> bool:
    """True if a reduction takes whole rows of `row` elements that are neighbours in what it reduces."""
    shape = reduce.src[0].shape
    length = row_length(reduce)
    return length > 0 and length % row == 0 and any(count(shape[i:]) == row for i in range(len(shape)))


def goes_back(expand: UOp, row: int) -> bool:
    """True if an EXPAND gives the number of each row of `row` elements back to all of them."""
    before, after = expand.src[0].shape, expand.shape
    first = next((a for a, (m, n) in enumerate(zip(before, after, strict=True)) if m != n), None)
    return first is not None and count(before[first:]) == 1 and count(after[first:]) == row


def repeats_for_vectors(expand: UOp, reduce: UOp, consumers: Mapping[UOp, Nodes]) -> bool:
    """True if an EXPAND repeats short rows, made of numbers like that of `reduce`, for products with vectors alone.

    Such a product reads an element of a matrix for each element of a row that it repeats.
    """
    if row_length(reduce) > _SHORT or reduce.src[0].size != expand.src[0].size:
        return False
    last = _reordered(expand, consumers)
    products = consumers[last]
    return bool(products) and all(
        c.op is Op.MUL
        and all(x.op is Op.REDUCE_AXIS and x.arg[0] is Op.ADD for x in consumers[c])
        and any(_reads_whole(o) for o in c.src if o is not last)
        for c in products
    )


def repeats_beside_vectors(expand: UOp, reduce: UOp, consumers: Mapping[UOp, Nodes]) -> bool:
    """True if an EXPAND repeats numbers of short rows only for the results of such products, as in a softmax that
    divides last: each result takes as many elements of a matrix as the row has that its number is made of.
    """
    row = row_length(reduce)
    if not 0 < row <= _SHORT or reduce.size != expand.src[0].size:
        return False
    last = _reordered(expand, consumers)
    if len(consumers[last]) != 1 or consumers[last][0].op not in ALU:
        return False
    for other in consumers[last][0].src:
        other = base(other, REORDER)
        if other.op is Op.REDUCE_AXIS and other.src[0].op is Op.MUL and other.src[0].size == expand.size * row:
            return any(_reads_whole(x) for x in other.src[0].src)
    return False


def _reordered(u: UOp, consumers: Mapping[UOp, Nodes]) -> UOp:
    """The last of the nodes that alone read `u`, or each other, in another order."""
    while len(consumers[u]) == 1 and consumers[u][0].op in REORDER:
        u = consumers[u][0]
    return u


def sums_products(u: UOp) -> bool:
    """True for a sum of products."""
    return u.op is Op.REDUCE_AXIS and u.arg[0] is Op.ADD and u.src[0].op is Op.MUL


def is_vector_product(reduce: UOp) -> bool:
    """True if a reduce sums the products of a matrix, each of whose elements it reads once, and a vector."""
    body = reduce.src[0]
    if not sums_products(reduce):
        return False
    whole, vectors = 0, 0
    for s in body.src:
        vector = base(s, REORDER)
        if vector.op is Op.EXPAND and vector.src[0].size < body.size:
            vectors += 1
        elif _reads_whole(s):
            whole += 1
    return whole == vectors == 1


def _reads_whole(value: UOp) -> bool:
    """True if a value is memory of its own size in some order, or a part of more, perhaps after elementwise work."""
    seen = {value}
    stack = [value]
    while stack:
        u = stack.pop()
        if u.size < value.size or u.op is Op.EXPAND:
            continue
        if u.op is Op.UPDATE or (not u.src and u.op is not Op.CONST and u.op is not Op.IOTA):
            return True
        if len(seen) > 32 or not (u.op in ALU or u.op in MOVEMENT or u.op is Op.CONTIGUOUS):
            continue
        for s in u.src:
            if s not in seen:
                seen.add(s)
                stack.append(s)
    return False


# ---------------------------------------------------------------------------------------------------------------------
# Concatenations: a sum of PADs that share out one axis is stored piece by piece, each piece by a member of the kernel.


Index = Src
REORDERED = (*REORDER, Op.CONTIGUOUS)
_MOST = 64  # pieces


def pieces_of(root: UOp, kept: Container[UOp] = ()) -> Nodes:
    """The PADs of which `root`, below any reordering, is the concatenation; none if it is something else.

    Nodes of `kept` are leaves: what lies below them is stored elsewhere.
    """
    pads: list[UOp] = []
    stack = [root]
    top = True
    while stack:
        x = stack.pop()
        if x in kept and x is not root:
            return []
        if x.op is Op.ADD:
            top = False
            stack += (x.src[1], x.src[0])
        elif top and x.op in REORDERED:
            stack.append(x.src[0])
        elif x.op is Op.PAD and not top and len(pads) < _MOST:
            pads.append(x)
        else:
            return []
    axes = {a for p in pads for a, pair in enumerate(p.arg) if pair != (0, 0)}
    if len(axes) != 1:
        return []
    axis = axes.pop()
    begins = {p.arg[axis][0]: p for p in pads}
    pieces = []
    end: Size = 0
    while end in begins:
        p = begins.pop(end)
        pieces.append(p)
        end = size(end + p.src[0].shape[axis])
    return pieces if len(pieces) == len(pads) and end == pads[0].shape[axis] else []


def placed(root: UOp, pad: UOp, index: Index) -> Index:
    """The index in `root` of the element of a piece that is at `index` before its PAD."""
    out = tuple([i + b if b.__class__ is not int or b else i for i, (b, _) in zip(index, pad.arg, strict=True)])
    chain = []
    u = root
    while u.op in REORDERED:
        chain.append(u)
        u = u.src[0]
    for v in reversed(chain):
        if v.op is Op.PERMUTE:
            out = tuple([out[a] for a in v.arg])
        elif v.op is Op.RESHAPE:
            out = reshaped_index(out, v.src[0].shape, v.shape)
    return out
