"""Functions that ONNX has as one operator, found by the nodes that they are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from anneal.onnx.exporting.contractions import contraction, factors
from anneal.onnx.exporting.recipes import Recipe
from anneal.onnx.exporting.reductions import reduced_by
from anneal.onnx.exporting.values import Value, Writer
from anneal.onnx.exporting.windows import convolution, pool
from anneal.ops.nodes import expand, reduce_axis, reshape
from anneal.schedule import pieces_of
from anneal.uop import DType, Op, UOp, alu, dtypes, normalise_const
from anneal.uop.sizes import product

__all__ = ["composite"]

_FLOATS = (dtypes.float32, dtypes.float64)  # those that are no narrower than what is computed in
_ONES = 4096  # the most ones that a norm without a weight is given as one


def composite(u: UOp, opset: int) -> Recipe | None:
    """The one operator for a node and some of those below it; None if there is none."""
    rule = _RULES.get(u.op)
    return None if rule is None else rule(u, opset)


def _skip(u: UOp) -> UOp:
    while u.op is Op.DETACH or u.op is Op.CONTIGUOUS:
        u = u.src[0]
    return u


def _is(u: UOp, number: float) -> bool:
    return u.is_const and bool(u.arg == normalise_const(u.dtype, number))


def _one(op: str, inputs: tuple[UOp, ...], dtype: DType, shape: Any, **attributes: Any) -> Recipe:
    """A recipe of one node over whole values."""

    def emit(w: Writer, given: list[Value]) -> Value:
        names = [w.whole(v, s.shape).name for v, s in zip(given, inputs, strict=True)]
        return Value(w.node(op, names, **attributes), dtype, shape)

    return Recipe(inputs, emit)


def _alone(op: str, x: UOp, **attributes: Any) -> Recipe:
    """A recipe of an elementwise function of one value."""
    return Recipe((x,), lambda w, given: Value(w.node(op, [given[0].name], **attributes), x.dtype, given[0].shape))


# -- elementwise ------------------------------------------------------------------------------------------------------


def _max(u: UOp, _: int) -> Recipe | None:
    a, b = u.src
    return _alone("Relu", a) if u.dtype in _FLOATS and _is(b, 0) and a.shape else None


def _custom(u: UOp, opset: int) -> Recipe | None:
    if u.dtype not in _FLOATS:
        return None
    if u.arg[0].name == "inverse":
        return _sigmoid(u)
    if u.arg[0].name == "slope" and opset >= 20 and u.dtype is dtypes.float32:
        return _gelu(u)
    if u.arg[0].name == "standardize":
        return _standardized(u, None, None)
    return None


def _sigmoid(u: UOp) -> Recipe | None:
    value = u.src[0]
    if value.op is Op.RECIP and value.src[0].op is Op.ADD and _is(value.src[0].src[1], 1):
        e = value.src[0].src[0]
        if e.op is Op.EXP and e.src[0].op is Op.NEG:
            return _alone("Sigmoid", e.src[0].src[0])
    return None


def _gelu(u: UOp) -> Recipe | None:
    """x * (erf(x / sqrt 2) / 2 + 1/2), or the approximation by tanh, which is that of a sigmoid."""
    value, x = u.src[0], u.src[1]
    if value.op is not Op.MUL or value.src[0] is not x:
        return None
    share = value.src[1]
    if share.op is Op.ADD and _is(share.src[1], 0.5):
        half = share.src[0]
        if half.op is Op.MUL and _is(half.src[1], 0.5) and half.src[0].op is Op.ERF:
            inner = half.src[0].src[0]
            if inner.op is Op.MUL and inner.src[0] is x and _is(inner.src[1], math.sqrt(0.5)):
                return _alone("Gelu", x)
    if share.op is Op.RECIP and share.src[0].op is Op.ADD and _is(share.src[0].src[1], 1):
        e = share.src[0].src[0]
        c = 2 * math.sqrt(2 / math.pi)
        if e.op is Op.EXP and e.src[0].op is Op.MUL and e.src[0].src[0] is x and _is_cubic(e.src[0].src[1], x, c):
            return _alone("Gelu", x, approximate="tanh")
    return None


def _is_cubic(u: UOp, x: UOp, c: float) -> bool:
    """True if `u` is -c - 0.044715 c x*x."""
    if u.op is not Op.SUB or not _is(u.src[1], c) or u.src[0].op is not Op.MUL:
        return False
    square, factor = u.src[0].src
    return square.op is Op.MUL and square.src == (x, x) and _is(factor, -0.044715 * c)


# -- softmax, positions -----------------------------------------------------------------------------------------------


def _of_sum(u: UOp, summed: UOp) -> tuple[int, ...] | None:
    """The axes along which `u`, repeated, is the sum of `summed`."""
    if u.op is not Op.EXPAND or u.src[0].op is not Op.REDUCE_AXIS:
        return None
    total = u.src[0]
    return total.arg[1] if total.arg[0] is Op.ADD and total.src[0] is summed else None


def _less_its_top(u: UOp, axes: tuple[int, ...] | None) -> UOp | None:
    """x, if `u` is x less its largest along the one axis."""
    if u.op is not Op.SUB or axes is None or len(axes) != 1 or u.src[1].op is not Op.EXPAND:
        return None
    x, top = u.src[0], _skip(u.src[1].src[0])
    if top.op is Op.REDUCE_AXIS and top.arg == (Op.MAX, axes) and _skip(top.src[0]) is _skip(x):
        return x
    return None


def _div(u: UOp, _: int) -> Recipe | None:
    """exp(x - top) over its sum."""
    if u.dtype not in _FLOATS:
        return None
    top, total = u.src
    e = top.src[0] if top.op is Op.CALL else top
    if e.op is not Op.EXP:
        return _attention(u)
    axes = _of_sum(total, top)
    x = _less_its_top(e.src[0], axes)
    return None if x is None or axes is None else _one("Softmax", (x,), u.dtype, u.shape, axis=axes[0])


def _attention(u: UOp) -> Recipe | None:
    """Values weighted by exp(x - top) and divided by its sum at the end: weighted by a softmax."""
    product, total = u.src
    found = factors(product.src[0]) if product.op is Op.RESHAPE else None
    if found is None or total.op is not Op.EXPAND or total.src[0].op is not Op.REDUCE_AXIS:
        return None
    weights = total.src[0].src[0]
    left, right = found
    bare = left.src[0] if left.op is Op.EXPAND else left
    if bare.op is not Op.RESHAPE or bare.src[0] is not weights or total.src[0].arg[1] != (len(weights.shape) - 1,):
        return None
    if _div(share := alu(Op.DIV, (weights, expand(total.src[0], weights.shape))), 0) is None:
        return None
    space = product.src[0].src[0].shape
    terms = alu(Op.MUL, (expand(reshape(share, bare.shape), space), right))
    new = reshape(reduce_axis(terms, *product.src[0].arg), u.shape)
    return Recipe((new,), lambda w, given: given[0])


def _sub(u: UOp, _: int) -> Recipe | None:
    """x - top less the logarithm of the sum of its exponentials."""
    less, log = u.src
    if u.dtype not in _FLOATS or log.op is not Op.EXPAND or log.src[0].op is not Op.LOG:
        return None
    total = log.src[0].src[0]
    if total.op is not Op.REDUCE_AXIS or total.arg[0] is not Op.ADD or total.src[0].op is not Op.EXP:
        return None
    x = _less_its_top(less, total.arg[1]) if total.src[0].src[0] is less else None
    return None if x is None else _one("LogSoftmax", (x,), u.dtype, u.shape, axis=total.arg[1][0])


def _first_place(u: UOp, _: int) -> Recipe | None:
    """The least position at which a value is the largest, or the least, along an axis."""
    op, axes = u.arg
    chosen = u.src[0]
    if op is not Op.MIN or len(axes) != 1 or u.dtype is not dtypes.int32 or chosen.op is not Op.WHERE:
        return None
    hit, place, none = chosen.src
    axis = axes[0]
    while place.op is Op.EXPAND or place.op is Op.RESHAPE:
        if place.op is Op.RESHAPE and place.shape != tuple(
            [n if i == axis else 1 for i, n in enumerate(u.src[0].shape)]
        ):
            return None
        place = place.src[0]
    if place.op is not Op.IOTA or not (none is u.src[0].shape[axis] or _is_size(none, u.src[0].shape[axis])):
        return None
    if hit.op is Op.OR and hit.src[1].op is Op.NE and hit.src[1].src[0] is hit.src[1].src[1]:
        hit = hit.src[0]  # nan is the largest, too
    if hit.op is not Op.EQ or hit.src[1].op is not Op.EXPAND or hit.src[1].src[0].op is not Op.REDUCE_AXIS:
        return None
    x, best = hit.src[0], hit.src[1].src[0]
    if best.src[0] is not x or best.arg[1] != axes or best.arg[0] not in (Op.MAX, Op.MIN) or x.dtype is dtypes.bool_:
        return None
    if x.dtype is dtypes.uint64:
        return None
    name = "ArgMax" if best.arg[0] is Op.MAX else "ArgMin"

    def emit(w: Writer, given: list[Value]) -> Value:
        found = w.node(name, [w.whole(given[0], x.shape).name], axis=axis, keepdims=1)
        return Value(w.cast(found, dtypes.int32), u.dtype, u.shape)

    return Recipe((x,), emit)


def _is_size(u: UOp, n: Any) -> bool:
    return isinstance(n, int) and u.is_const and u.arg == n


# -- norms ------------------------------------------------------------------------------------------------------------


def _mul(u: UOp, opset: int) -> Recipe | None:
    if u.dtype not in _FLOATS or not u.shape:
        return None
    mean = _mean(u, opset)
    if mean is not None:
        return mean
    found = _standard_form(u.src[0])
    return None if found is None else _standardized(found, u.src[1], None)


def _add(u: UOp, opset: int) -> Recipe | None:
    if u.src[1].op is Op.PAD and (pieces := pieces_of(u)):
        return _concatenation(u, pieces)
    if u.dtype not in _FLOATS:
        return None
    scaled, bias = u.src
    if scaled.op is Op.RESHAPE and scaled.src[0].op is Op.REDUCE_AXIS:
        row = _channels(bias, u.shape)
        return None if row is None else convolution(scaled.src[0], u.shape, row)
    if scaled.op is not Op.MUL:
        return None
    found = _standard_form(scaled.src[0])
    if found is not None:
        return _standardized(found, scaled.src[1], bias)
    return _batch_norm(scaled, bias)


def _standard_form(u: UOp) -> UOp | None:
    return u if u.op is Op.CALL and u.arg[0].name == "standardize" else None


def _tail(u: UOp, tail: Any) -> UOp | None:
    """The value that is repeated to `u` over all axes before `tail`, its shape."""
    bare = u.src[0] if u.op is Op.EXPAND else u
    if bare.op is Op.RESHAPE and bare.src[0].shape == tail:
        bare = bare.src[0]
    if bare.shape != tail and all(n == 1 for n in bare.shape[: -len(tail)]) and bare.shape[-len(tail) :] == tail:
        bare = reshape(bare, tail)
    return bare if bare.shape == tail else None


def _eps(r: UOp) -> float | None:
    """The number that is added to the variance of which `r` is the inverse root."""
    if r.op is Op.RSQRT and r.src[0].op is Op.ADD and r.src[0].src[1].is_const:
        return float(r.src[0].src[1].arg)
    return None


def _standardized(u: UOp, weight: UOp | None, bias: UOp | None) -> Recipe | None:
    """A LayerNormalization for a standardizing of the last axes, or an InstanceNormalization where a row is long."""
    x, r = u.src[1], u.src[2]
    axes, shape = u.arg[0].arguments, u.shape
    eps = _eps(r)
    if eps is None or u.dtype not in _FLOATS or axes != tuple(range(len(shape) - len(axes), len(shape))):
        return None
    tail = shape[axes[0] :]
    if not all(isinstance(n, int) for n in tail):
        return None
    parts = [None if p is None else _tail(p, tail) for p in (weight, bias)]
    if (weight is not None and parts[0] is None) or (bias is not None and parts[1] is None):
        return None
    count = product(tail)
    inputs = (x, *[p for p in parts if p is not None])
    own: Any = np.float32 if u.dtype is dtypes.float32 else np.float64

    def emit(w: Writer, given: list[Value]) -> Value:
        names = [w.whole(v, s.shape).name for v, s in zip(given, inputs, strict=True)]
        if weight is None and count > _ONES:
            many = shape[1]
            names += [w.constant(np.ones(many, own)), w.constant(np.zeros(many, own))]
            return Value(w.node("InstanceNormalization", names, epsilon=eps), u.dtype, shape)
        if weight is None:
            names.insert(1, w.constant(np.ones(tail, own)))
        return Value(w.node("LayerNormalization", names, axis=axes[0], epsilon=eps), u.dtype, shape)

    if weight is None and count > _ONES and not (len(shape) == 3 and len(axes) == 1 and isinstance(shape[1], int)):
        return None
    return Recipe(inputs, emit)


def _channels(u: UOp, shape: Any) -> UOp | None:
    """The row that is repeated to `u` along all axes but the second."""
    if u.op is not Op.EXPAND or len(shape) < 2:
        return None
    bare = u.src[0]
    if bare.shape != tuple([n if i == 1 else 1 for i, n in enumerate(shape)]):
        return None
    return reshape(bare, (shape[1],))


def _batch_norm(scaled: UOp, bias: UOp) -> Recipe | None:
    """(x - mean) / sqrt(variance + eps) * weight + bias, each of a number for each channel."""
    shape = scaled.shape
    inner = scaled.src[0]
    if inner.op is not Op.MUL or inner.src[0].op is not Op.SUB or inner.src[1].op is not Op.EXPAND:
        return None
    x, mean = inner.src[0].src
    r = inner.src[1].src[0]
    eps = _eps(r)
    if eps is None or x.shape != shape or 0 in shape:
        return None
    rows = [_channels(p, shape) for p in (scaled.src[1], bias, mean)]
    if None in rows or r.shape != tuple([n if i == 1 else 1 for i, n in enumerate(shape)]):
        return None
    given = [p for p in rows if p is not None]
    variance = reshape(r.src[0].src[0], (shape[1],))
    return _one("BatchNormalization", (x, *given, variance), scaled.dtype, shape, epsilon=eps)


def _mean(u: UOp, opset: int) -> Recipe | None:
    """A sum times one over the number of what is summed."""
    total, share = u.src
    inner = total.src[0] if total.op is Op.RESHAPE else total
    if inner.op is not Op.REDUCE_AXIS or inner.arg[0] is not Op.ADD:
        return None
    axes = inner.arg[1]
    x = inner.src[0]
    if not _is_share(share, product([x.shape[a] for a in axes])):
        return None
    pooled = pool(inner, total.shape, opset, mean=True)
    if pooled is not None or contraction(inner, total.shape) is not None:
        return pooled

    def emit(w: Writer, given: list[Value]) -> Value:
        without = u.shape == tuple([n for a, n in enumerate(x.shape) if a not in axes])
        name = reduced_by(w, "ReduceMean", w.whole(given[0], x.shape).name, axes, keepdims=not without)
        return Value(name if without or total is inner else w.reshape(name, u.shape), u.dtype, u.shape)

    return Recipe((x,), emit)


def _is_share(u: UOp, many: Any) -> bool:
    """True if `u` is one over a number, which may be symbolic."""
    if isinstance(many, int):
        return many > 0 and _is(u, 1 / many)
    return u.op is Op.RECIP and u.src[0].op is Op.CAST and u.src[0].src[0] is many


def _concatenation(u: UOp, pieces: list[UOp]) -> Recipe | None:
    axis = next(a for a, pair in enumerate(pieces[0].arg) if pair != (0, 0))
    return _one("Concat", tuple([p.src[0] for p in pieces]), u.dtype, u.shape, axis=axis)


_RULES: dict[Op, Callable[[UOp, int], Recipe | None]] = {
    Op.MAX: _max,
    Op.CALL: _custom,
    Op.DIV: _div,
    Op.SUB: _sub,
    Op.REDUCE_AXIS: _first_place,
    Op.MUL: _mul,
    Op.ADD: _add,
}
