"""Functions that ONNX has as one operator: known by the names that ops leave while traced, or by their nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anneal.onnx.exporting.graph_writer import ExportRecipe, GraphValue, GraphWriter, MaybeRecipe, Term, Values
from anneal.ops.nodes import permute, reshape
from anneal.rewrite import substitute
from anneal.schedule import pieces_of
from anneal.uop import MOVEMENT, DType, Ints, Op, Shape, Src, UOp, dtypes, normalise_const, reduce_identity
from anneal.uop.sizes import product

_FLOATS = (dtypes.float32, dtypes.float64)  # those that are no narrower than what is computed in
_ONES = 4096  # the most ones that a norm without a weight is given as one

Pairs = tuple[tuple[int, int], ...]
# (call, what it is computed from, its arguments) -> the operator, if it fits
Named = Callable[[UOp, Src, Any], MaybeRecipe]


def composite(u: UOp, opset: int) -> MaybeRecipe:
    """The one operator for a node and some of those below it; None if there is none."""
    if u.op is Op.CALL:
        name = u.arg[0].name
        named = _NAMES.get(name) if opset >= _SINCE.get(name, 0) else None
        return None if named is None else named(u, u.src[1:], u.arg[0].arguments)
    rule = _RULES.get(u.op)
    return None if rule is None else rule(u)


def _is(u: UOp, number: float) -> bool:
    return u.is_const and bool(u.arg == normalise_const(u.dtype, number))


def one(op: str, inputs: Src, **attributes: Any) -> ExportRecipe:
    """A recipe of one node over whole values."""
    return ExportRecipe(inputs, lambda w, given: w.node(op, *w.wholes(given, inputs), **attributes))


def _alone(op: str, x: UOp, **attributes: Any) -> ExportRecipe:
    """A recipe of an elementwise function of one value."""
    return ExportRecipe((x,), lambda w, given: GraphValue(w.node(op, given[0].name, **attributes), given[0].shape))


# -- by name ----------------------------------------------------------------------------------------------------------


def _gelu(u: UOp, given: Src, approximate: str) -> MaybeRecipe:
    if u.dtype is not dtypes.float32:
        return None
    return _alone("Gelu", given[0], **({} if approximate == "none" else {"approximate": approximate}))


def _sigmoid(u: UOp, given: Src, _: float) -> MaybeRecipe:
    """1 / (1 + exp(-x))."""
    less = given[0]
    fits = u.dtype in _FLOATS and less.op is Op.NEG and u.src[0].op is Op.RECIP and _is(u.src[0].src[0].src[1], 1)
    return _alone("Sigmoid", less.src[0]) if fits else None


def _along(op: str) -> Named:
    return lambda u, given, axis: one(op, given, axis=axis) if u.dtype in _FLOATS else None


def _place(op: str) -> Named:
    """The least position at which a value is the largest, or the least, along an axis."""

    def made(u: UOp, given: Src, axis: int) -> MaybeRecipe:
        if given[0].dtype in (dtypes.bool_, dtypes.uint64):
            return None

        def emit(w: GraphWriter, values: Values) -> str:
            return w.cast(w.node(op, *w.wholes(values, given), axis=axis, keepdims=1), dtypes.int32)

        return ExportRecipe(given, emit)

    return made


def _norm(u: UOp, given: Src, arguments: tuple[int, float] | float) -> MaybeRecipe:
    """A LayerNormalization from an axis on, or a BatchNormalization."""
    if u.dtype not in _FLOATS or any(p.dtype is not u.dtype for p in given) or 0 in u.shape:
        return None
    if isinstance(arguments, tuple):
        return one("LayerNormalization", given, axis=arguments[0], epsilon=arguments[1])
    return one("BatchNormalization", given, epsilon=arguments)


def _standardized(u: UOp, given: Src, axes: Ints) -> MaybeRecipe:
    """A LayerNormalization for a standardizing of the last axes, or an InstanceNormalization where a row is long."""
    x, r = given
    shape = u.shape
    if u.dtype not in _FLOATS or axes != tuple(range(len(shape) - len(axes), len(shape))):
        return None
    tail = shape[axes[0] :]
    if not all(isinstance(n, int) for n in tail) or r.op is not Op.RSQRT or not r.src[0].src[1].is_const:
        return None
    eps, count = float(r.src[0].src[1].arg), product(tail)

    def emit(w: GraphWriter, values: Values) -> str:
        (name,) = w.wholes(values, (x,))
        if count > _ONES:
            weights = w.constant(np.ones(shape[1], u.dtype.name)), w.constant(np.zeros(shape[1], u.dtype.name))
            return w.InstanceNormalization(name, *weights, epsilon=eps)
        return w.LayerNormalization(name, w.constant(np.ones(tail, u.dtype.name)), axis=axes[0], epsilon=eps)

    if count > _ONES and not (len(shape) == 3 and len(axes) == 1 and isinstance(shape[1], int)):
        return None
    return ExportRecipe((x,), emit)


# -- windows ----------------------------------------------------------------------------------------------------------


def _attributes(strides: Ints, dilations: Ints, sides: Pairs) -> dict[str, Any]:
    more = {"strides": list(strides)}
    if any(d != 1 for d in dilations):
        more["dilations"] = list(dilations)
    if any(map(any, sides)):
        more["pads"] = [b for b, _ in sides] + [a for _, a in sides]
    return more


def _unpadded(x: UOp, sides: Pairs) -> tuple[UOp, Pairs]:
    """The value before zeros were put around its places, and the padding that those are."""
    while x.op is Op.PAD and not any(map(any, x.arg[:2])):
        x, sides = x.src[0], tuple((b + c, a + d) for (b, a), (c, d) in zip(sides, x.arg[2:]))
    return x, sides


def _convolution(u: UOp, given: Src, arguments: tuple[Any, ...]) -> MaybeRecipe:
    sides, strides, dilations, groups = arguments
    x, sides = _unpadded(given[0], sides)
    if any(p.dtype is not dtypes.float32 or 0 in p.shape for p in (u, *given)) or not _plain(x.shape[2:], *sides):
        return None  # runtimes have no other
    more = {"group": groups} if groups != 1 else {}
    return one("Conv", (x, *given[1:]), **_attributes(strides, dilations, sides), **more)


def _plain(*sizes: Any) -> bool:
    return all(isinstance(n, int) and n >= 0 for several in sizes for n in several)


def _pool(op: str) -> Named:
    """A MaxPool, or the mean or the sum of an AveragePool, over (batch, channels, ...), which other axes are made."""

    def made(u: UOp, given: Src, arguments: tuple[Any, ...]) -> MaybeRecipe:
        kernel, strides, dilations, sides = arguments
        x, lead = given[0], len(u.shape) - len(kernel)
        # runtimes refuse a border as wide as the kernel
        fits = u.dtype is dtypes.float32 and _plain(x.shape[lead:]) and 0 not in u.shape
        if not fits or any(max(pair) >= k for pair, k in zip(sides, kernel)):
            return None
        front = x.shape[:lead]
        flat = front if lead == 2 else ((1, 1) + front)[-2:] if lead < 2 else (product(front[:-1]), front[-1])
        source = reshape(x, (*flat, *x.shape[lead:]))
        out = (*flat, *u.shape[lead:])

        def emit(w: GraphWriter, values: Values) -> str:
            more = _attributes(strides, dilations, sides)
            if op != "MaxPool":
                more["count_include_pad"] = 1
            name = w.node(op.split(maxsplit=1)[0], *w.wholes(values, (source,)), kernel_shape=list(kernel), **more)
            if op == "AveragePool sum":
                name = w.Mul(name, w.scalar(u.dtype, product(kernel)))
            return name if out == u.shape else w.reshape(name, u.shape)

        return ExportRecipe((source,), emit)

    return made


_NAMES: dict[str, Named] = {
    "gelu": _gelu,
    "inverse": _sigmoid,
    "softmax": _along("Softmax"),
    "log_softmax": _along("LogSoftmax"),
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    "layer_norm": _norm,
    "batch_norm": _norm,
    "standardize": _standardized,
    "conv": _convolution,
    "max_pool": _pool("MaxPool"),
    "avg_pool": _pool("AveragePool"),
    "sum_pool": _pool("AveragePool sum"),
}
_SINCE = {"gelu": 20}  # the first opset that has it, where that is not the first which is written


# -- by nodes ---------------------------------------------------------------------------------------------------------


def _max(u: UOp) -> MaybeRecipe:
    a, b = u.src
    return _alone("Relu", a) if u.dtype in _FLOATS and _is(b, 0) and a.shape else None


def _add(u: UOp) -> MaybeRecipe:
    """A concatenation: parts with zeros around them, added up."""
    pieces = pieces_of(u) if u.src[1].op is Op.PAD else None
    if not pieces:
        return None
    axis = next(a for a, pair in enumerate(pieces[0].arg) if pair != (0, 0))
    return one("Concat", tuple(p.src[0] for p in pieces), axis=axis)


def _mean(u: UOp) -> MaybeRecipe:
    """A ReduceMean: a sum times 1 / (the number of its terms)."""
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

    def emit(w: GraphWriter, given: Values) -> str:
        without = u.shape == tuple(n for a, n in enumerate(x.shape) if a not in axes)
        name = reduced_by(w, "ReduceMean", w.wholes(given, (x,))[0], axes, keepdims=not without)
        return name if without or total is inner else w.reshape(name, u.shape)

    return ExportRecipe((x,), emit)


def _is_share(u: UOp, many: Any) -> bool:
    """True if `u` is one over a number, which may be symbolic."""
    if isinstance(many, int):
        return many > 0 and _is(u, 1 / many)
    return u.op is Op.RECIP and u.src[0].op is Op.CAST and u.src[0].src[0] is many


_RULES: dict[Op, Callable[[UOp], MaybeRecipe]] = {Op.MAX: _max, Op.MUL: _mean, Op.ADD: _add}


_BOOL, _INT32, _INT64 = dtypes.bool_, dtypes.int32, dtypes.int64
_REDUCTIONS = {Op.ADD: "ReduceSum", Op.MUL: "ReduceProd", Op.MAX: "ReduceMax", Op.MIN: "ReduceMin"}


def reduced_by(w: GraphWriter, op: str, name: str, axes: Sequence[int], *, keepdims: bool = True) -> str:
    """A reduction along axes, which stay with size 1 or go; their place in the node depends on the opset."""
    if op == "ReduceSum" or w.opset >= 18:
        return w.node(op, name, w.ints(axes), keepdims=int(keepdims))
    return w.node(op, name, axes=list(axes), keepdims=int(keepdims))


def reduced(w: GraphWriter, u: UOp, given: Values) -> GraphValue:
    """REDUCE_AXIS. Along an axis that is repeated a sum is a product, and an extreme the value itself."""
    op, axes = u.arg
    old = u.src[0].shape
    if any(old[a] == 0 for a in axes):
        return GraphValue(w.scalar(u.dtype, reduce_identity(op, u.dtype)), ())
    v = w.ranked(given[0], len(old))
    if op is Op.ADD or op is Op.MUL:
        v = w.whole(v, tuple(n if a in axes else m for a, (n, m) in enumerate(zip(old, v.shape))))
    long = [a for a in axes if v.shape[a] == old[a]]
    if not long:
        return v
    shape = tuple(1 if a in axes else n for a, n in enumerate(v.shape))
    if u.dtype.is_int and op in (Op.ADD, Op.MUL) and not _is_small(u):
        name = _whole_sum(w, v, u.dtype, long, shape) if op is Op.ADD else _whole_product(w, v, long)
        return GraphValue(w.settled(name, u.dtype), shape)
    return GraphValue(_reduced(w, op, v.name, u.dtype, long), shape)


def _is_small(u: UOp) -> bool:
    """True if a sum or product of integers surely fits the type in which runtimes add integers, int32 or the digits of
    a float64: onnxruntime's reductions round, and saturate where ours wrap around.
    """
    x, (op, axes) = u.src[0], u.arg
    count = product([x.shape[a] for a in axes])
    if op is Op.MUL or x.vmin is None or x.vmax is None or not isinstance(count, int):
        return False
    return max(abs(x.vmin), abs(x.vmax)) * count < 1 << 31


def _whole_sum(w: GraphWriter, v: GraphValue, dtype: DType, axes: list[int], shape: Shape) -> str:
    """A sum of integers as a product with ones: those are exact."""
    kept = [a for a in range(len(shape)) if a not in axes]
    name = w.Transpose(v.name, perm=[*kept, *axes]) if kept and axes[0] < kept[-1] else v.name
    count = product([v.shape[a] for a in axes])
    rows = w.reshape(name, (*[v.shape[a] for a in kept], 1, count))
    return w.reshape(w.MatMul(rows, w.Expand(w.scalar(dtype, 1), w.shape((count, 1)))), shape)


def _whole_product(w: GraphWriter, v: GraphValue, axes: list[int]) -> str:
    """A product of integers, half of an axis times the other half, until there is one; of a symbolic size ONNX's."""
    name = v.name
    for a in axes:
        n = v.shape[a]
        if not isinstance(n, int):
            name = reduced_by(w, "ReduceProd", name, [a])
            continue
        while n > 1:
            half = n // 2
            parts = [
                w.Slice(name, w.ints([b]), w.ints([e]), w.ints([a]))
                for b, e in ((0, half), (half, 2 * half), (2 * half, n))
                if e > b
            ]
            name = w.Mul(*parts[:2])
            name = w.Concat(name, parts[2], axis=a) if len(parts) > 2 else name
            n -= half
    return name


def _reduced(w: GraphWriter, op: Op, name: str, dtype: DType, axes: list[int]) -> str:
    if dtype is _BOOL:
        op = {Op.ADD: Op.MAX, Op.MUL: Op.MIN}.get(op, op)
        found = reduced_by(w, _REDUCTIONS[op], w.cast(name, _INT32), axes)
        return (~Term(w, found, _INT32).eq(0)).name
    if dtype is dtypes.uint64 and op in (Op.MAX, Op.MIN):
        turn = w.scalar(_INT64, -(1 << 63))
        return w.Add(reduced_by(w, _REDUCTIONS[op], w.Add(name, turn), axes), turn)
    found = reduced_by(w, _REDUCTIONS[op], name, axes)
    return w.settled(found, dtype) if dtype.is_narrow and op in (Op.ADD, Op.MUL) else found


# -- look-ups ---------------------------------------------------------------------------------------------------------


def plain_index(index: UOp, n: Any, is_given: bool) -> tuple[UOp, bool]:
    """An index as ONNX may read it, and whether it is surely inside an axis of `n`: one that is given is its maker's
    part, and if it is wrapped round from the end, ONNX does that."""
    if isinstance(n, int) and index.vmin is not None and index.vmin >= 0 and index.vmax is not None and index.vmax < n:
        return index, True
    bare = index
    while bare.op in MOVEMENT:
        bare = bare.src[0]
    if is_given and bare.op is Op.WHERE:
        test, wrapped, plain = bare.src
        if test.op is Op.LT and _is_of(test, plain, 0) and wrapped.op is Op.ADD and _is_of(wrapped, plain, n):
            return substitute(index, {bare: plain}), True
    return index, is_given and bare.op is not Op.WHERE


def _is_of(u: UOp, x: UOp, number: Any) -> bool:
    """True if `u` has the sources `x` and a number."""
    return u.src[0] is x and u.src[1].is_const and bool(u.src[1].arg == number)


def gathered(w: GraphWriter, u: UOp, given: Values, sure: bool) -> GraphValue:
    """GATHER; out of range it reads 0. An index that is the same along all axes but one is a look-up of slices."""
    x, index = given
    source = u.src[0]
    axis, rank = u.arg, len(u.shape)
    n = source.shape[axis]
    if n == 0:
        return GraphValue(w.scalar(u.dtype, 0), ())
    index = w.ranked(index, rank)
    inside = None
    if not sure:
        at = Term(w, index.name, u.src[1].dtype)
        zero = at.number(0)
        last = Term(w, w.Sub(w.size(n), w.ints([1])), _INT64).cast(at.dtype)
        inside = ~((at < zero) | (last < at))
        index = GraphValue(at.of("Min", last).of("Max", zero).name, index.shape)
    same = all(m == 1 for a, m in enumerate(index.shape) if a != axis)
    kept = all(a == axis or m == k for a, (m, k) in enumerate(zip(u.shape, source.shape)))
    if same and kept:
        row = w.reshape(index.name, (index.shape[axis],)) if rank > 1 else index.name
        row = w.whole(GraphValue(row, (index.shape[axis],)), (u.shape[axis],)).name
        x = w.ranked(x, rank)
        x = w.whole(x, tuple(n if a == axis else m for a, (n, m) in enumerate(zip(source.shape, x.shape))))
        name = w.Gather(x.name, row, axis=axis)
        shape = tuple(u.shape[axis] if a == axis else m for a, m in enumerate(x.shape))
    else:
        x = w.whole(x, source.shape)
        name = w.GatherElements(x.name, w.whole(index, u.shape).name, axis=axis)
        shape = u.shape
    if inside is not None:
        found = Term(w, name, u.dtype)
        name = (inside & found if u.dtype is _BOOL else inside.where(found, 0)).name
        shape = tuple(m if n == 1 else n for n, m in zip(shape, index.shape))
    return GraphValue(name, shape)


def scattered(w: GraphWriter, u: UOp, given: Values) -> str:
    """SCATTER_ADD: rows out of range go to one more row, which is cut off."""
    name, value = w.wholes(given, u.src)
    rows, columns = u.shape
    index = Term(w, name, u.src[0].dtype)
    last = Term(w, w.size(rows), _INT64).cast(index.dtype)
    row = ((index < 0) | (last < index)).where(last, index).name
    place = w.Expand(w.Unsqueeze(row, w.ints([1])), w.shape(u.src[1].shape))
    more = w.shape((rows + 1, columns))
    start = w.Expand(w.scalar(u.dtype, 0), more)
    total = w.ScatterElements(start, place, value, axis=0, reduction="add")
    return w.settled(w.Slice(total, w.ints([0]), w.size(rows), w.ints([0])), u.dtype)


def argsorted(w: GraphWriter, u: UOp, given: Values) -> str:
    """ARGSORT of a row: of equal keys the first comes first, as TopK has it."""
    name = w.TopK(*w.wholes(given, u.src), w.size(u.shape[0]), outputs=2, axis=0, largest=0, sorted=1)
    return w.cast(f"{name}_1", _INT32)


def updated(w: GraphWriter, u: UOp, given: Values) -> str:
    """UPDATE: the rows, columns, ... of a part, counted from where it starts, are written into the whole."""
    x, part = w.wholes(given[:2], u.src)
    room = u.src[1].shape
    starts = iter(given[2:])
    rank = len(u.shape)
    grids = []
    for axis, (begin, n, whole) in enumerate(zip(u.arg, room, u.shape)):
        row = w.Range(w.scalar(_INT64, 0), w.Squeeze(w.size(n)), w.scalar(_INT64, 1))
        if begin is None:
            at = w.cast(w.reshape(next(starts).name, (1,)), _INT64)
            most = w.Sub(w.size(whole), w.size(n))
            row = w.Add(row, w.Min(w.Max(at, w.ints([0])), most))
        elif begin != 0:
            row = w.Add(row, w.size(begin))
        shape = tuple(n if a == axis else 1 for a in range(rank))
        grids.append(w.Unsqueeze(w.Expand(w.reshape(row, shape), w.shape(room)), w.ints([-1])))
    return w.ScatterND(x, w.Concat(*grids, axis=-1) if rank > 1 else grids[0], part)


# -- sums of products as MatMul ---------------------------------------------------------------------------------------


# the roles of axes in a product of matrices, by whether they are summed, and long in the one and the other: those of a
# batch, rows, columns, and those summed
_ROLES = ((False, True, True), (False, True, False), (False, False, True), (True, True, True))


def contraction(u: UOp, target: Shape) -> MaybeRecipe:
    """A MatMul for a sum of products, in the shape `target` that its one reader gives it; None if it is none."""
    if u.op is not Op.REDUCE_AXIS or u.arg[0] is not Op.ADD or u.dtype in (_BOOL, dtypes.uint64):
        return None
    inner = u.src[0]
    if inner.op is not Op.MUL or not all(s.shape for s in inner.src) or 0 in inner.shape:
        return None
    a, b = [s.src[0] if s.op is Op.EXPAND else s for s in inner.src]
    space, found = inner.shape, defaultdict[Any, list[int]](list)
    for i, n in enumerate(space):
        if n != 1:
            found[i in u.arg[1], a.shape[i] == n, b.shape[i] == n].append(i)
    batched, lines, columns, summed = [found.pop(role, []) for role in _ROLES]
    if found or not summed or not (lines or columns):
        return None  # an elementwise product and a sum, or what is summed is repeated
    order = [*batched, *lines, *columns]
    if order != sorted(order):
        # a matrix whose columns come first: the other way round
        turned = [*batched, *columns, *lines]
        if turned == sorted(turned):
            a, b, lines, columns, order = b, a, columns, lines, turned
    batch = [space[i] for i in batched]
    m, n, k = [product([space[i] for i in axes]) for axes in (lines, columns, summed)]
    left = _matrix(a, [*batched, *lines, *summed], (*batch, m, k))
    right = _matrix(b, [*batched, *summed, *columns], (*batch, k, n))
    result = (*batch, m, n)
    whole = _as_it_is(left, batch)
    if whole is not None:
        left, result = whole, (*whole.shape[:-1], n)
    back = None
    if order != sorted(order):
        back = (tuple(space[i] for i in order), [order.index(i) for i in sorted(order)])

    def emit(w: GraphWriter, given: Values) -> str:
        name = w.settled(w.MatMul(*w.wholes(given, (left, right))), u.dtype)
        shape = result
        if back is not None:
            shape = back[0]
            name = w.Transpose(name if result == shape else w.reshape(name, shape), perm=back[1])
            shape = tuple(shape[i] for i in back[1])
        return name if shape == target else w.reshape(name, target)

    return ExportRecipe((left, right), emit)


def _matrix(u: UOp, order: list[int], shape: Shape) -> UOp:
    """`u` with its long axes in an order, as matrices; axes of size 1 go first, so that what added them is undone."""
    long = [i for i, n in enumerate(u.shape) if n != 1]
    bare = reshape(u, tuple(u.shape[i] for i in long))
    return reshape(permute(bare, [long.index(i) for i in order if i in long]), shape)


def _as_it_is(left: UOp, batch: list[Any]) -> UOp | None:
    """The matrix before its leading axes became rows, where that is all that was done: MatMul takes it so."""
    if batch or left.op is not Op.RESHAPE:
        return None
    source = left.src[0]
    return source if len(source.shape) > 2 and source.shape[-1] == left.shape[-1] else None
