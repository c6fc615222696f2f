"""Early rewrites on the tensor graph: what need not be scheduled goes, compound ops become simple ones."""

from __future__ import annotations

from dataclasses import replace

from anneal.rewrite import applied, rebuild, rewritten, unfolded
from anneal.schedule.fusion import COPY
from anneal.schedule.passes.early_rules import EARLY
from anneal.schedule.passes.sorting import sort_by_radix
from anneal.schedule.places import carried
from anneal.schedule.records import Schedule
from anneal.uop import ALU, Op, UOp, const, reduce_identity, toposort


def run(s: Schedule) -> Schedule:
    order: list[UOp] = []

    def change() -> UOp:
        order.extend(toposort((early_rewrites(s.sink, s.cost_model.masks),)))
        return sort_by_radix(order, s.cost_model)

    sink = carried(s.places, s.sink, change)
    return replace(s, sink=order.pop(), order=order).over(sink)


def early_rewrites(sink: UOp, masks: bool = False) -> UOp:
    """Rewrite the tensor graph in one bottom-up walk, with the rules of `early.upat`, and these, which need more than a
    pattern:

    - EXPAND or RESHAPE of a scalar, as an elementwise source -> the scalar (rank 0 broadcasts by itself)
    - a reduce over nothing -> its identity
    - outputs are made distinct, computed nodes
    - with `masks`, an exponential that is known to be 0 in places says so -> where(place, 0, exponential)
    """
    order = toposort((sink,))
    in_place = _in_place(order)
    copies = 0

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        nonlocal copies
        op = u.op
        out: UOp
        if 0 in u.shape and src and op is not Op.UPDATE:
            out = _repeated(const(u.dtype, 0), u.shape)  # no elements: nothing that they come from is needed
        elif op in ALU:
            shape = u.shape
            if shape:
                trimmed = tuple([_scalar(s) if s.shape == shape else s for s in src])
                if any(s.shape for s in trimmed):
                    src = trimmed
            out = u.replace(src=src)
            if out.shape != shape:
                out = _repeated(out, shape)
        elif op is Op.SINK:
            out = _distinct_outputs(u, src)
        elif op is Op.CALL and u.arg[0].results:
            out = rebuild(applied(u.arg[0], src)[u.arg[1]], visit, {s: s for s in src})
        elif masks and op is Op.CALL and u.arg[0].name == "exp":
            out = src[2].where(const(u.dtype, 0), src[0])
        elif op is Op.UPDATE:
            if u not in in_place:
                copies += 1
                src = (UOp(Op.CONTIGUOUS, u.dtype, (src[0],), tag=(COPY, copies)), *src[1:])
            out = UOp(op, u.dtype, src, u.arg)
        elif op is Op.REDUCE_AXIS and 0 in src[0].shape and 0 not in u.shape:
            out = _repeated(const(src[0].dtype, reduce_identity(u.arg[0], src[0].dtype)), u.shape)
        elif op in _FROM_NOTHING and 0 in src[op is Op.SCATTER_ADD].shape and 0 not in u.shape:
            out = _repeated(const(u.dtype, 0), u.shape)
        else:
            out = unfolded(u, src)
        return rewritten(out, EARLY)

    return rebuild(sink, visit, order=order)


_FROM_NOTHING = frozenset((Op.PAD, Op.GATHER, Op.SCATTER_ADD))  # zeros, where they take from no elements


def _in_place(order: list[UOp]) -> set[UOp]:
    """Updates of what another update made for them alone: they need no copy of it."""
    users: dict[UOp, int] = {}
    for u in order:
        for s in u.src:
            users[s] = users.get(s, 0) + 1
    return {u for u in order if u.op is Op.UPDATE and u.src[0].op is Op.UPDATE and users[u.src[0]] == 1}


def _repeated(scalar: UOp, shape: tuple[int, ...]) -> UOp:
    """The rank-0 value `scalar` at every index of `shape`."""
    return UOp(Op.EXPAND, scalar.dtype, (UOp(Op.RESHAPE, scalar.dtype, (scalar,), (1,) * len(shape)),), shape)


def _scalar(u: UOp) -> UOp:
    """The rank-0 constant that `u` repeats, or `u`."""
    x = u
    while x.op is Op.EXPAND or x.op is Op.RESHAPE:
        x = x.src[0]
    return x if x.op is Op.CONST else u


def _distinct_outputs(sink: UOp, src: tuple[UOp, ...]) -> UOp:
    """Give every output memory of its own, also one that is a leaf or equals another output."""
    out: dict[UOp, None] = {}
    for n, s in enumerate(src):
        if s in out or s.op in (Op.CONST, Op.VARIABLE, Op.IOTA, Op.PARAM, Op.BUFFER):
            s = UOp(Op.CONTIGUOUS, s.dtype, (s,), tag=n)
        out[s] = None
    return UOp(Op.SINK, sink.dtype, tuple(out))
