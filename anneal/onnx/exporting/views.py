"""Movement ops, and the leaves that are made of sizes, as ONNX nodes."""

from __future__ import annotations

from typing import Any

from anneal.onnx.exporting.graph_writer import GraphValue, GraphWriter, Shape, carrier
from anneal.shape import matched_axes
from anneal.uop import UOp, dtypes

_LAST = (1 << 63) - 1  # an end beyond every axis


def reshaped(w: GraphWriter, u: UOp, given: list[GraphValue]) -> GraphValue:
    """RESHAPE. Axes of size 1 that only come or go in front leave a value as it is."""
    v, old, new = given[0], u.src[0].shape, u.shape
    if all(n == 1 for n in v.shape):
        return (
            v if len(v.shape) <= len(new) else GraphValue(w.reshape(v.name, (1,) * len(new)), v.dtype, (1,) * len(new))
        )
    if _trailing(old) == _trailing(new) and len(v.shape) <= len(_trailing(new)):
        return v
    spread = _spread(v, old, new)
    if spread is not None:
        return GraphValue(w.reshape(v.name, spread), v.dtype, spread)
    return GraphValue(w.reshape(w.whole(v, old).name, new), v.dtype, new)


def _trailing(shape: Shape) -> Shape:
    """A shape without the 1s in front."""
    begin = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return shape[begin:]


def _spread(v: GraphValue, old: Shape, new: Shape) -> Shape | None:
    """The shape of a value after a reshape of which no group of axes is repeated in part; None if one is."""
    if 0 in old:
        return None
    mine = (1,) * (len(old) - len(v.shape)) + v.shape
    out: list[Any] = [1] * len(new)
    for theirs, its in matched_axes(old, new):
        before = [mine[i] for i in theirs]
        if all(n == 1 for n in before):
            continue
        if any(n != old[i] for n, i in zip(before, theirs, strict=True)):
            return None
        for i in its:
            out[i] = new[i]
    return tuple(out)


def permuted(w: GraphWriter, u: UOp, given: list[GraphValue]) -> GraphValue:
    """PERMUTE; moving axes of one element among others is a reshape."""
    v = given[0]
    if all(n == 1 for n in v.shape):
        return v
    v = w.ranked(v, len(u.shape))
    shape = tuple([v.shape[a] for a in u.arg])
    long = [a for a in u.arg if v.shape[a] != 1]
    if long == sorted(long):
        return GraphValue(w.reshape(v.name, shape), v.dtype, shape)
    return GraphValue(w.Transpose(v.name, perm=list(u.arg)), v.dtype, shape)


def expanded(w: GraphWriter, u: UOp, given: list[GraphValue]) -> GraphValue:
    """EXPAND: the value broadcasts as it is."""
    return given[0]


def padded(w: GraphWriter, u: UOp, given: list[GraphValue]) -> GraphValue:
    """PAD with zeros."""
    v = w.whole(given[0], u.src[0].shape)
    pairs = u.arg
    parts = [b for b, _ in pairs] + [e for _, e in pairs]
    name = w.Pad(v.name, w.shape(tuple(parts)), w.scalar(v.dtype, 0))
    return GraphValue(name, v.dtype, u.shape)


def shrunk(w: GraphWriter, u: UOp, given: list[GraphValue]) -> GraphValue:
    """SHRINK: a slice along the axes that change; a repeated axis is repeated less often."""
    rank = len(u.shape)
    v = given[0]
    own = (1,) * (rank - len(v.shape)) + v.shape
    cut = [
        a
        for a, ((b, e), n, m) in enumerate(zip(u.arg, u.src[0].shape, own, strict=True))
        if (m == n and (b != 0 or e != n)) or (m != n and u.shape[a] == 0)
    ]
    if any(own[a] != u.src[0].shape[a] for a in cut):
        v = w.whole(v, u.src[0].shape)
        own = v.shape
    if not cut:
        return v
    v = w.ranked(v, rank)
    begins, ends = tuple([u.arg[a][0] for a in cut]), tuple([u.arg[a][1] for a in cut])
    name = w.Slice(v.name, w.shape(begins), w.shape(ends), w.ints(cut))
    return GraphValue(name, v.dtype, tuple([u.shape[a] if a in cut else n for a, n in enumerate(own)]))


def flipped(w: GraphWriter, u: UOp, given: list[GraphValue]) -> GraphValue:
    """FLIP: a slice from the last element to the first."""
    v = w.ranked(given[0], len(u.shape))
    axes = [a for a in u.arg if v.shape[a] != 1]
    if not axes:
        return v
    many = len(axes)
    ends = [w.ints([-1] * many), w.ints([-_LAST] * many), w.ints(axes), w.ints([-1] * many)]
    return GraphValue(w.Slice(v.name, *ends), v.dtype, v.shape)


def iota(w: GraphWriter, u: UOp, _: list[GraphValue]) -> GraphValue:
    """IOTA of a symbolic size."""
    (n,) = u.shape
    last = w.cast(w.Squeeze(w.size(n)), dtypes.int32)
    name = w.Range(w.scalar(dtypes.int32, 0), last, w.scalar(dtypes.int32, 1))
    return GraphValue(name, dtypes.int32, u.shape)


def sized(w: GraphWriter, u: UOp, _: list[GraphValue]) -> GraphValue:
    """A symbolic size as a number."""
    return GraphValue(w.cast(w.Squeeze(w.size(u)), carrier(u.dtype)), u.dtype, ())
