"""Facts about a tensor graph that no decision changes: who reads a node, how deep it lies, which sums alone read it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anneal.schedule.cost_model import CostModel
from anneal.shape import matched_axes
from anneal.uop import MOVEMENT, Op, UOp

Consumers = dict[UOp, list[UOp]]

LEAVES = frozenset((Op.BUFFER, Op.PARAM))
NEVER_TWICE = frozenset((Op.REDUCE_AXIS, Op.SEGMENT_SUM, Op.GATHER))
REORDER = frozenset((Op.RESHAPE, Op.PERMUTE))
COPY = "copy for an update"  # in the tag of a CONTIGUOUS: the memory that an UPDATE writes into


def base(u: UOp) -> UOp:
    """`u` below its movement ops."""
    while u.op in MOVEMENT:
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


def long_axes(u: UOp) -> list[int]:
    return [n for n in u.shape if n != 1]


def consumers_of(order: Sequence[UOp]) -> Consumers:
    """The nodes that read each node of `order` (sources first), each once."""
    consumers: Consumers = {u: [] for u in order}
    for u in order:
        src = u.src
        for s in src if len(src) == 1 else dict.fromkeys(src):
            consumers[s].append(u)
    return consumers


def only_summed(order: Sequence[UOp], consumers: Consumers, cost_model: CostModel) -> set[UOp]:
    """Values that only sums read, where bindings are limited in size: such a value is never materialised for its
    readers, so it takes no binding, however large it is."""
    found: set[UOp] = set()
    if cost_model.binding_bytes:
        for u in reversed(order):
            if consumers[u] and all(c.op is Op.REDUCE_AXIS or c in found for c in consumers[u]):
                found.add(u)
    return found


def reduce_depths(order: Sequence[UOp]) -> dict[UOp, int]:
    """The most reductions (and gathers) on a way from an input to each node."""
    depth: dict[UOp, int] = {}
    for u in order:
        deepest = 0
        for s in u.src:
            if depth[s] > deepest:
                deepest = depth[s]
        depth[u] = deepest + (u.op in NEVER_TWICE)
    return depth


def cone(root: UOp, materialised: Collection[UOp]) -> tuple[list[UOp], dict[UOp, None], int]:
    """The kernel that makes `root`: the nodes it computes, its inputs (leaves and materialised nodes), and how many
    nodes these are, with constants.
    """
    inside: list[UOp] = []
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
