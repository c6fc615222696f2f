"""Functions that ONNX has as one operator: ops leave their names while a file is traced (`named`), and a table has the
operators. What has no name here, or does not fit its operator, is opened; a few short forms are known by their nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anneal.onnx.exporting.graph_writer import ExportRecipe, GraphValue, GraphWriter, Shape
from anneal.onnx.exporting.reductions import contraction, reduced_by
from anneal.ops.nodes import reshape
from anneal.schedule import pieces_of
from anneal.uop import DType, Op, UOp, dtypes, normalise_const
from anneal.uop.sizes import product

_FLOATS = (dtypes.float32, dtypes.float64)  # those that are no narrower than what is computed in
_ONES = 4096  # the most ones that a norm without a weight is given as one

Nodes = tuple[UOp, ...]
Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
# (call, what it is computed from, its arguments, opset) -> the operator, if it fits
Named = Callable[[UOp, Nodes, Any, int], ExportRecipe | None]


def composite(u: UOp, opset: int) -> ExportRecipe | None:
    """The one operator for a node and some of those below it; None if there is none."""
    if u.op is Op.CALL:
        named = _NAMES.get(u.arg[0].name)
        return None if named is None else named(u, u.src[1:], u.arg[0].arguments, opset)
    rule = _RULES.get(u.op)
    return None if rule is None else rule(u, opset)


def _is(u: UOp, number: float) -> bool:
    return u.is_const and bool(u.arg == normalise_const(u.dtype, number))


def _one(op: str, inputs: tuple[UOp, ...], dtype: DType, shape: Any, **attributes: Any) -> ExportRecipe:
    """A recipe of one node over whole values."""

    def emit(w: GraphWriter, given: list[GraphValue]) -> GraphValue:
        names = [w.whole(v, s.shape).name for v, s in zip(given, inputs, strict=True)]
        return GraphValue(w.node(op, *names, **attributes), dtype, shape)

    return ExportRecipe(inputs, emit)


def _alone(op: str, x: UOp, **attributes: Any) -> ExportRecipe:
    """A recipe of an elementwise function of one value."""
    return ExportRecipe(
        (x,), lambda w, given: GraphValue(w.node(op, given[0].name, **attributes), x.dtype, given[0].shape)
    )


# -- by name ----------------------------------------------------------------------------------------------------------


def _gelu(u: UOp, given: Nodes, approximate: str, opset: int) -> ExportRecipe | None:
    if opset < 20 or u.dtype is not dtypes.float32:
        return None
    return _alone("Gelu", given[0], **({} if approximate == "none" else {"approximate": approximate}))


def _sigmoid(u: UOp, given: Nodes, _: float, opset: int) -> ExportRecipe | None:
    """1 / (1 + exp(-x))."""
    less = given[0]
    fits = u.dtype in _FLOATS and less.op is Op.NEG and u.src[0].op is Op.RECIP and _is(u.src[0].src[0].src[1], 1)
    return _alone("Sigmoid", less.src[0]) if fits else None


def _along(op: str) -> Named:
    def made(u: UOp, given: Nodes, axis: int, opset: int) -> ExportRecipe | None:
        return _one(op, tuple(given), u.dtype, u.shape, axis=axis) if u.dtype in _FLOATS else None

    return made


def _place(op: str) -> Named:
    """The least position at which a value is the largest, or the least, along an axis."""

    def made(u: UOp, given: Nodes, axis: int, opset: int) -> ExportRecipe | None:
        x = given[0]
        if x.dtype is dtypes.bool_ or x.dtype is dtypes.uint64:
            return None

        def emit(w: GraphWriter, values: list[GraphValue]) -> GraphValue:
            found = w.node(op, w.whole(values[0], x.shape).name, axis=axis, keepdims=1)
            return GraphValue(w.cast(found, dtypes.int32), u.dtype, u.shape)

        return ExportRecipe((x,), emit)

    return made


def _layer_norm(u: UOp, given: Nodes, arguments: tuple[int, float], opset: int) -> ExportRecipe | None:
    axis, eps = arguments
    if u.dtype not in _FLOATS or any(p.dtype is not u.dtype for p in given) or 0 in u.shape:
        return None
    return _one("LayerNormalization", tuple(given), u.dtype, u.shape, axis=axis, epsilon=eps)


def _batch_norm(u: UOp, given: Nodes, eps: float, opset: int) -> ExportRecipe | None:
    if u.dtype not in _FLOATS or any(p.dtype is not u.dtype for p in given) or 0 in u.shape:
        return None
    return _one("BatchNormalization", tuple(given), u.dtype, u.shape, epsilon=eps)


def _standardized(u: UOp, given: Nodes, axes: tuple[int, ...], opset: int) -> ExportRecipe | None:
    """A LayerNormalization for a standardizing of the last axes, or an InstanceNormalization where a row is long."""
    x, r = given
    shape = u.shape
    if u.dtype not in _FLOATS or axes != tuple(range(len(shape) - len(axes), len(shape))):
        return None
    tail = shape[axes[0] :]
    if not all(isinstance(n, int) for n in tail) or r.op is not Op.RSQRT or not r.src[0].src[1].is_const:
        return None
    eps, count = float(r.src[0].src[1].arg), product(tail)
    own: Any = np.float32 if u.dtype is dtypes.float32 else np.float64

    def emit(w: GraphWriter, values: list[GraphValue]) -> GraphValue:
        names = [w.whole(values[0], x.shape).name]
        if count > _ONES:
            names += [w.constant(np.ones(shape[1], own)), w.constant(np.zeros(shape[1], own))]
            return GraphValue(w.InstanceNormalization(*names, epsilon=eps), u.dtype, shape)
        names.append(w.constant(np.ones(tail, own)))
        return GraphValue(w.LayerNormalization(*names, axis=axes[0], epsilon=eps), u.dtype, shape)

    if count > _ONES and not (len(shape) == 3 and len(axes) == 1 and isinstance(shape[1], int)):
        return None
    return ExportRecipe((x,), emit)


# -- windows ----------------------------------------------------------------------------------------------------------


def _attributes(strides: Ints, dilations: Ints, sides: Pairs) -> dict[str, Any]:
    more: dict[str, Any] = {"strides": list(strides)}
    if any(d != 1 for d in dilations):
        more["dilations"] = list(dilations)
    if any(map(any, sides)):
        more["pads"] = [b for b, _ in sides] + [a for _, a in sides]
    return more


def _unpadded(x: UOp, sides: Pairs) -> tuple[UOp, Pairs]:
    """The value before zeros were put around its places, and the padding that those are."""
    while x.op is Op.PAD and not any(map(any, x.arg[:2])):
        x, sides = x.src[0], tuple([(b + c, a + d) for (b, a), (c, d) in zip(sides, x.arg[2:], strict=True)])
    return x, sides


def _convolution(u: UOp, given: Nodes, arguments: tuple[Any, ...], opset: int) -> ExportRecipe | None:
    sides, strides, dilations, groups = arguments
    x, sides = _unpadded(given[0], sides)
    if any(p.dtype is not dtypes.float32 or 0 in p.shape for p in (u, *given)) or not _plain(x.shape[2:], *sides):
        return None  # runtimes have no other
    more = {"group": groups} if groups != 1 else {}
    return _one("Conv", (x, *given[1:]), u.dtype, u.shape, **_attributes(strides, dilations, sides), **more)


def _plain(*sizes: Any) -> bool:
    return all(isinstance(n, int) and n >= 0 for several in sizes for n in several)


def _pool(op: str) -> Named:
    """A MaxPool, or the mean or the sum of an AveragePool, over (batch, channels, ...), which other axes are made."""

    def made(u: UOp, given: Nodes, arguments: tuple[Any, ...], opset: int) -> ExportRecipe | None:
        kernel, strides, dilations, sides = arguments
        x, lead = given[0], len(u.shape) - len(kernel)
        # a border as wide as the kernel is none that runtimes take
        fits = u.dtype is dtypes.float32 and _plain(x.shape[lead:]) and 0 not in u.shape
        if not fits or any(max(pair) >= k for pair, k in zip(sides, kernel, strict=True)):
            return None
        front = x.shape[:lead]
        flat: Shape = front if lead == 2 else ((1, 1) + front)[-2:] if lead < 2 else (product(front[:-1]), front[-1])
        source = reshape(x, (*flat, *x.shape[lead:]))
        out: Shape = (*flat, *u.shape[lead:])

        def emit(w: GraphWriter, values: list[GraphValue]) -> GraphValue:
            more = _attributes(strides, dilations, sides)
            if op != "MaxPool":
                more["count_include_pad"] = 1
            name = w.node(
                op.split(maxsplit=1)[0], w.whole(values[0], source.shape).name, kernel_shape=list(kernel), **more
            )
            if op == "AveragePool sum":
                name = w.Mul(name, w.scalar(u.dtype, product(kernel)))
            return GraphValue(name if out == u.shape else w.reshape(name, u.shape), u.dtype, u.shape)

        return ExportRecipe((source,), emit)

    return made


_NAMES: dict[str, Named] = {
    "gelu": _gelu,
    "inverse": _sigmoid,
    "softmax": _along("Softmax"),
    "log_softmax": _along("LogSoftmax"),
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "standardize": _standardized,
    "conv": _convolution,
    "max_pool": _pool("MaxPool"),
    "avg_pool": _pool("AveragePool"),
    "sum_pool": _pool("AveragePool sum"),
}


# -- by nodes ---------------------------------------------------------------------------------------------------------


def _max(u: UOp, _: int) -> ExportRecipe | None:
    a, b = u.src
    return _alone("Relu", a) if u.dtype in _FLOATS and _is(b, 0) and a.shape else None


def _add(u: UOp, _: int) -> ExportRecipe | None:
    """A concatenation: parts with zeros around them, added up."""
    pieces = pieces_of(u) if u.src[1].op is Op.PAD else None
    if not pieces:
        return None
    axis = next(a for a, pair in enumerate(pieces[0].arg) if pair != (0, 0))
    return _one("Concat", tuple([p.src[0] for p in pieces]), u.dtype, u.shape, axis=axis)


def _mean(u: UOp, _: int) -> ExportRecipe | None:
    """A sum times one over the number of what is summed."""
    if u.dtype not in _FLOATS or not u.shape:
        return None
    total, share = u.src
    inner = total.src[0] if total.op is Op.RESHAPE else total
    if inner.op is not Op.REDUCE_AXIS or inner.arg[0] is not Op.ADD:
        return None
    axes = inner.arg[1]
    x = inner.src[0]
    if not _is_share(share, product([x.shape[a] for a in axes])):
        return None
    if contraction(inner, total.shape) is not None:
        return None

    def emit(w: GraphWriter, given: list[GraphValue]) -> GraphValue:
        without = u.shape == tuple([n for a, n in enumerate(x.shape) if a not in axes])
        name = reduced_by(w, "ReduceMean", w.whole(given[0], x.shape).name, axes, keepdims=not without)
        return GraphValue(name if without or total is inner else w.reshape(name, u.shape), u.dtype, u.shape)

    return ExportRecipe((x,), emit)


def _is_share(u: UOp, many: Any) -> bool:
    """True if `u` is one over a number, which may be symbolic."""
    if isinstance(many, int):
        return many > 0 and _is(u, 1 / many)
    return u.op is Op.RECIP and u.src[0].op is Op.CAST and u.src[0].src[0] is many


_RULES: dict[Op, Callable[[UOp, int], ExportRecipe | None]] = {Op.MAX: _max, Op.MUL: _mean, Op.ADD: _add}
