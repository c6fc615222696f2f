"""Early rewrites on the tensor graph: what need not be scheduled goes, compound ops become simple ones."""

from __future__ import annotations

from anneal.schedule.rangeify import reduce_identity
from anneal.uop import ALU, MOVEMENT, Op, UOp, alu, arena, dtypes, toposort

__all__ = ["early_rewrites"]

_I32 = dtypes.int32


def early_rewrites(sink: UOp) -> UOp:
    """One bottom-up walk over the tensor graph.

    - DETACH(x) -> x (gradients are already written)
    - RESHAPE(RESHAPE(x)), PERMUTE(PERMUTE(x)), movement that moves nothing -> merged, dropped
    - EXPAND or RESHAPE of a scalar, as an elementwise source -> the scalar (rank 0 broadcasts by itself)
    - CONTIGUOUS(BUFFER view of the whole) -> the view
    - SCATTER_ADD(index, value) -> SEGMENT_SUM(value, order, starts) with order = ARGSORT(index)
    """
    new: dict[UOp, UOp] = {}
    a = arena()
    for u in toposort((sink,)):
        a.phase = u.provenance[0]  # what replaces a backward node is backward too
        src = tuple([new[s] for s in u.src])
        op = u.op
        out: UOp
        if op is Op.DETACH:
            out = src[0]
        elif op in ALU:
            shape = u.shape
            if shape:
                trimmed = tuple([_scalar(s) if s.shape == shape else s for s in src])
                if any(s.shape for s in trimmed):
                    src = trimmed
            out = u.replace(src=src)
            if out.shape != shape:
                out = UOp(Op.EXPAND, out.dtype, (UOp(Op.RESHAPE, out.dtype, (out,), (1,) * len(shape)),), shape)
        elif op in MOVEMENT:
            out = _movement(u, src[0])
        elif op is Op.CONTIGUOUS:
            out = src[0] if _is_view(src[0]) and u.tag is None else UOp(op, u.dtype, src, None, u.tag)
        elif op is Op.SCATTER_ADD:
            out = _scatter(u, _materialised(src[0]), src[1])
        elif op is Op.ARGSORT:
            out = UOp(op, u.dtype, (_materialised(src[0]),))
        elif op is Op.SINK:
            out = _distinct_outputs(u, src)
        elif op is Op.REDUCE_AXIS and 0 in src[0].shape and 0 not in u.shape:
            scalar = reduce_identity(u.arg[0], src[0])
            out = UOp(Op.EXPAND, u.dtype, (UOp(Op.RESHAPE, u.dtype, (scalar,), (1,) * len(u.shape)),), u.shape)
        else:
            out = UOp(op, u.dtype, src, u.arg, u.tag) if src != u.src else u
        new[u] = out
    return new[sink]


def _scalar(u: UOp) -> UOp:
    """The rank-0 constant that `u` repeats, or `u`."""
    x = u
    while x.op is Op.EXPAND or x.op is Op.RESHAPE:
        x = x.src[0]
    return x if x.op is Op.CONST else u


def _is_view(u: UOp) -> bool:
    while u.op is Op.RESHAPE:
        u = u.src[0]
    return u.op is Op.BUFFER or u.op is Op.PARAM or u.op is Op.CONTIGUOUS


def _materialised(u: UOp) -> UOp:
    """`u` as an opaque kernel reads it: flat, in order, in memory."""
    return u if _is_view(u) else UOp(Op.CONTIGUOUS, u.dtype, (u,))


def _distinct_outputs(sink: UOp, src: tuple[UOp, ...]) -> UOp:
    """Every output is computed into memory of its own, also one that is a leaf or that another output equals."""
    out: dict[UOp, None] = {}
    for n, s in enumerate(src):
        if s in out or s.op in (Op.CONST, Op.IOTA, Op.PARAM, Op.BUFFER):
            s = UOp(Op.CONTIGUOUS, s.dtype, (s,), tag=n)
        out[s] = None
    return UOp(Op.SINK, sink.dtype, tuple(out))


def _movement(u: UOp, s: UOp) -> UOp:
    op = u.op
    if op is Op.RESHAPE:
        while s.op is Op.RESHAPE:
            s = s.src[0]
        return s if s.shape == u.shape else UOp(op, u.dtype, (s,), u.arg)
    if op is Op.PERMUTE:
        order = u.arg
        if s.op is Op.PERMUTE:
            order = tuple([s.arg[i] for i in order])
            s = s.src[0]
        if order == tuple(range(len(order))):
            return s
        return UOp(op, u.dtype, (s,), order)
    if op in (Op.EXPAND, Op.SHRINK, Op.PAD) and s.shape == u.shape:
        return s
    if op is Op.FLIP and not u.arg:
        return s
    return UOp(op, u.dtype, (s,), u.arg)


def _scatter(u: UOp, index: UOp, value: UOp) -> UOp:
    """Deterministic scatter: sort the rows by destination, then add each destination's run in row order."""
    rows, n = u.arg[0], index.shape[0]
    order = UOp(Op.ARGSORT, _I32, (index,))
    # starts[v] = how many indices are smaller than v
    marks = UOp(Op.IOTA, _I32, (), (rows + 1,))
    wide = UOp(Op.EXPAND, _I32, (UOp(Op.RESHAPE, _I32, (index,), (1, n)),), (rows + 1, n))
    tall = UOp(Op.EXPAND, _I32, (UOp(Op.RESHAPE, _I32, (marks,), (rows + 1, 1)),), (rows + 1, n))
    smaller = UOp(Op.CAST, _I32, (alu(Op.LT, (wide, tall)),))
    counts = UOp(Op.REDUCE_AXIS, _I32, (smaller,), (Op.ADD, (1,)))
    starts = UOp(Op.RESHAPE, _I32, (counts,), (rows + 1,))
    return UOp(Op.SEGMENT_SUM, u.dtype, (value, order, starts))

