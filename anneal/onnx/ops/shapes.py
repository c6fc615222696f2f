"""Operators that move elements or give their places: shapes, slices, joins, borders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anneal.onnx.execute import fail, node
from anneal.onnx.ops.elementwise import MaybeArray, Numbers, Value, axes_of, axis_of, counted, ints, iota, single, whole
from anneal.onnx.registry import op, rows
from anneal.onnx.values import Array, along, border, either, fits_device, host_value, taken
from anneal.ops import broadcast_shapes
from anneal.tensor import Tensor
from anneal.uop import Op, UOp
from anneal.uop.sizes import least, product, range_of, size as size_of, symbolic_arg

SMALL = 4096  # elements; what is larger is made on the device rather than in host memory
_FAR = (1 << 31) - 1  # positions beyond are as good as this one, and sizes that follow from Variables have 32 bits

# -- shapes -----------------------------------------------------------------------------------------------------------


rows(
    {
        "Shape": lambda x, *, start=0, end=None: host_value(
            x.shape[slice(start, end)]
        ),  # of some axes since version 15
        "Size": lambda x: host_value(product(x.shape)),
    },
    by_shape=True,
    sizes=True,
)


@op(since=5, host=True, was=("shape",))
def Reshape(x: Value, shape: Array, *, allowzero: int = 0) -> Value:
    """Another shape: 0 keeps a size (with allowzero=1, since version 14, it is 0), -1 is worked out."""
    given = ints(shape)
    if len(given) > 64:
        raise fail(f"a shape of {len(given)} axes; 64 are the most")
    target = [n if n or allowzero or i >= x.ndim else x.shape[i] for i, n in enumerate(given)]
    if target.count(-1) > 1:
        raise fail(f"shape {given} has more than one -1")
    if isinstance(x, Tensor) and symbolic_arg((*target, *x.shape)):
        return x.reshape(tuple(target))
    if -1 in target:
        known, count = math.prod(n for n in target if n != -1), math.prod(x.shape)
        target[target.index(-1)] = count // known if known else 0
    if math.prod(target) != math.prod(x.shape):
        raise fail(f"shape {tuple(x.shape)} does not become {given}: the numbers of elements differ")
    return x.reshape(tuple(target))


@op(host=True)
def Flatten(x: Value, *, axis: int) -> Value:
    """A matrix: the axes before `axis` (which may be negative since version 11), and the others."""
    first = axis + x.ndim if axis < 0 else axis
    if not 0 <= first <= x.ndim:
        raise fail(f"axis {axis} of a value of {x.ndim} axes")
    return x.reshape((math.prod(x.shape[:first]), math.prod(x.shape[first:])))


@op(since=13, host=True, was=("axes",))
def Squeeze(x: Value, axes: MaybeArray) -> Value:
    """Without the axes, all of size 1 if none is named; `axes` is an attribute before version 13."""
    if axes is None and any(isinstance(n, UOp) and least(n) == 1 for n in x.shape):
        raise fail(f"whether an axis of {tuple(x.shape)} goes is not the same for all sizes", "name the axes")
    gone = {i for i, n in enumerate(x.shape) if n == 1} if axes is None else {*axes_of(ints(axes), x.ndim)}
    if any(x.shape[i] != 1 for i in gone):
        raise fail(f"axes {sorted(gone)} of shape {tuple(x.shape)} are not all of size 1")
    return x.reshape(tuple(n for i, n in enumerate(x.shape) if i not in gone))


@op(since=13, host=True, was=("axes",))
def Unsqueeze(x: Value, axes: Array) -> Value:
    """New axes of size 1, at positions of the result; `axes` is an attribute before version 13."""
    named = ints(axes)
    ndim = x.ndim + len(named)
    new = {*axes_of(named, ndim)}
    if len(new) != len(named):
        raise fail(f"axes {named} name an axis twice")
    rest = iter(x.shape)
    return x.reshape(tuple(1 if i in new else next(rest) for i in range(ndim)))


@op(host=lambda x, *, perm: np.ascontiguousarray(np.transpose(x, perm or None)))
def Transpose(x: Tensor, *, perm: Numbers) -> Tensor:
    """The axes in another order, reversed if none is given."""
    return x.permute(*(perm or reversed(range(x.ndim)))) if x.ndim > 1 or perm else x


def _expand_on_host(x: Array, shape: Array) -> Value:
    full = np.broadcast_shapes(x.shape, tuple(ints(shape)))
    if math.prod(full) > max(SMALL, x.size) and fits_device(x.dtype):
        return node.tensor(x).expand(*full)  # type: ignore[no-any-return]
    return np.broadcast_to(x, full)


@op(host=_expand_on_host)
def Expand(x: Tensor, shape: Array) -> Tensor:
    """x and a value of `shape` broadcast: sizes of 1 give way on either side."""
    return x.expand(*broadcast_shapes(x.shape, tuple(ints(shape))))


# -- joins and parts --------------------------------------------------------------------------------------------------


@op(host=lambda *xs, axis: np.concatenate(xs, axis))
def Concat(*xs: Tensor, axis: int = 1) -> Tensor:
    """The inputs one after the other; the axis is 1 unless named before version 4, and required since."""
    return xs[0] if len(xs) == 1 else Tensor.cat(list(xs), dim=axis_of(axis, xs[0].ndim))


@op(since=13, host=True, was=("split",))
def Split(x: Value, split: MaybeArray, *, axis: int = 0, num_outputs: int | None) -> tuple[Value, ...]:
    """Pieces along an axis, as many as outputs or, since version 18, as `num_outputs` says, the last one smaller if
    need be; or of sizes that are an input in version 1 and since 13, an attribute before that.
    """
    axis, parts = axis_of(axis, x.ndim), num_outputs or node.outputs
    n = x.shape[axis]
    if split is None:
        step = (n + parts - 1) // parts
        sizes = [max(0, min(step, n - i * step)) for i in range(parts)]
    else:
        sizes = ints(split)
    if size_of(sum(sizes)) != size_of(n) or min(sizes, default=0) < 0:
        raise fail(f"pieces of {sizes} do not make up the {n} elements of axis {axis}")
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return tuple(taken(x, axis, slice(e - s, e)) for s, e in zip(sizes, ends))


@op(since=10, host=True, was=("starts", "ends", "axes", "steps"))
def Slice(x: Value, starts: Array, ends: Array, axes: MaybeArray, steps: MaybeArray) -> Value:
    """Elements from start to end along axes, by steps that may be negative; attributes before version 10."""
    begins = ints(starts)
    by = [1] * len(begins) if steps is None else ints(steps)
    where = [slice(None)] * x.ndim
    chosen = range(len(begins)) if axes is None else axes_of(ints(axes), x.ndim)
    for axis, begin, end, step in zip(chosen, begins, ints(ends), by, strict=True):
        if not step:
            raise fail(f"step 0 along axis {axis}")
        n = x.shape[axis]
        begin, end = [min(max(p, -_FAR), _FAR) if isinstance(p, int) else p for p in (begin, end)]
        # Unlike Python: with a negative step, too, a start before the first element means the first element.
        low, high = (0, n) if step > 0 else (-1, n - 1)
        first, last = [
            either(Op.MIN, either(Op.MAX, p + n if p < 0 else p, at), high) for p, at in ((begin, 0), (end, low))
        ]
        last = either(Op.MAX if step > 0 else Op.MIN, last, first)
        if step != 1 and symbolic_arg((first, last, n)):
            x = _stepped(x, axis, first, last, step)
        else:
            where[axis] = slice(0, 0) if first < 0 else slice(first, None if last < 0 else last, step)
    return x[tuple(where)]


def _stepped(x: Any, axis: int, first: Any, last: Any, step: int) -> Any:
    """The elements of an axis `step` apart, where a size or a position is symbolic."""
    if step < 0:
        x, first, last, step = taken(x, axis, slice(last + 1, first + 1)).flip(axis), 0, first - last, -step
    x = taken(x, axis, slice(first, last))
    if step == 1:
        return x
    count = (last - first + step - 1) // step
    rows = x.pad(border(axis, x.ndim, 0, count * step - (last - first)))
    return taken(rows.reshape(*rows.shape[:axis], count, step, *rows.shape[axis + 1 :]), axis + 1, 0)


@op("Tile")
def tile_old(x: Tensor, tiles: Array, axis: Array) -> Tensor:
    """The whole laid out `tiles` times along one axis, in version 1."""
    counts = [1] * x.ndim
    counts[axis_of(whole(axis), x.ndim)] = whole(tiles)
    return x.repeat(*counts)


def _tile_on_host(x: Array, repeats: Array) -> Value:
    counts = ints(repeats)
    if x.size * math.prod(counts) > SMALL and fits_device(x.dtype):
        return Tile(node.tensor(x), repeats)
    return np.tile(x, counts)


@op(since=6, host=_tile_on_host)
def Tile(x: Tensor, repeats: Array) -> Tensor:
    """The whole laid out again and again along each axis."""
    return x.repeat(*ints(repeats)) if x.ndim else x


# -- borders ----------------------------------------------------------------------------------------------------------

_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _padded(x: Tensor, pairs: Sequence[tuple[int, int]], mode: str, value: Any) -> Tensor:
    if all(p == (0, 0) for p in pairs):
        return x
    pairs = list(pairs)
    for axis, (before, after) in enumerate(pairs):
        if isinstance(before + after, UOp):  # what is cut off, or what comes to it, may be nothing
            n = x.shape[axis]
            begin, end = either(Op.MAX, -before, 0), either(Op.MIN, n, size_of(n + after))
            x, pairs[axis] = taken(x, axis, slice(begin, end)), (before + begin, n + after - end)
    if mode == "constant":
        return x.pad(tuple(pairs), value=value)
    x = x.pad([(min(b, 0), min(a, 0)) for b, a in pairs])
    for axis, (before, after) in enumerate([(max(b, 0), max(a, 0)) for b, a in pairs]):
        n = x.shape[axis]
        if max(before, after) <= (n - 1 if mode == "reflect" else n):
            x = x.pad(border(axis, x.ndim, before, after), mode=_PAD_MODES[mode])
        else:
            # More than one turn: the places come from NumPy's rule.
            places = np.pad(np.arange(n, dtype=np.int32), (before, after), mode=mode)  # type: ignore[call-overload]
            x = x.index_select(axis, node.constant(places))
    return x


@op(since=11, was=("pads", "value", ""), sizes=True)
def Pad(x: Value, pads: Value | None, value: Any, axes: Value | None, *, mode: str, paddings: Numbers) -> Value:
    """Borders of a number or of what is inside; `axes` since version 18, "wrap" since 19; negative pads cut off.

    Before version 11 pads and number are attributes; in version 1 the pads are called `paddings`.
    """
    sides = ints(node.host(paddings if pads is None else pads))
    which = axes_of(None if axes is None else ints(node.host(axes)), x.ndim)
    if len(sides) != 2 * len(which):
        raise fail(f"{len(sides)} pads for {len(which)} axes; two for each are wanted")
    pairs = [(0, 0)] * x.ndim
    for i, axis in enumerate(which):
        pairs[axis] = (sides[i], sides[i + len(which)])
    node.room(*[n + b + a for n, (b, a) in zip(x.shape, pairs)])
    if isinstance(x, np.ndarray) and isinstance(value, np.ndarray | None) and (x.size <= SMALL or x.dtype == object):
        return _padded_on_host(x, pairs, mode, value)
    fill = 0 if value is None or mode != "constant" else single(node.host(value))
    return _padded(node.tensor(x), pairs, mode, fill)


def _padded_on_host(x: Array, pairs: Sequence[tuple[int, int]], mode: str, value: MaybeArray) -> Array:
    x = x[tuple(slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(pairs, x.shape))]
    grown = [(max(b, 0), max(a, 0)) for b, a in pairs]
    if mode != "constant":
        return np.pad(x, grown, mode=mode)  # type: ignore[call-overload, no-any-return]
    return np.pad(x, grown, constant_values=0 if value is None else value.reshape(()).astype(x.dtype))


@op
def CenterCropPad(x: Tensor, shape: Array, *, axes: Numbers) -> Tensor:
    """Axes cut or padded with zeros on both sides to the sizes given; of an odd number more at the end."""
    pairs = [(0, 0)] * x.ndim
    for axis, n in zip(axes_of(axes, x.ndim), ints(shape), strict=True):
        more = abs(n - x.shape[axis])
        before, after = more // 2, more - more // 2
        pairs[axis] = (before, after) if n > x.shape[axis] else (-before, -after)
    return x.pad(pairs)


# -- blocks and triangles ---------------------------------------------------------------------------------------------


@op
def DepthToSpace(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels become pixels; which channels make a block is DCR alone before version 11."""
    n, c, h, w = x.shape
    b = blocksize
    if c % (b * b):
        raise fail(f"{c} channels do not make blocks of {b} by {b}")
    if mode == "DCR":
        x = x.reshape(n, b * b, c // (b * b), h, w).transpose(1, 2).reshape(n, c, h, w)
    return x.pixel_shuffle(b)


@op
def SpaceToDepth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Pixels become channels; which channels make a block is DCR alone before version 28."""
    n, c, h, w = x.shape
    b = blocksize
    if h % b or w % b:
        raise fail(f"images of {h} by {w} are not made of blocks of {b} by {b}")
    x = x.pixel_unshuffle(b)
    if mode == "DCR":
        x = x.reshape(n, c, b * b, h // b, w // b).transpose(1, 2).reshape(x.shape)
    return x


@op(host=lambda x, k=None, *, upper: (np.triu if upper else np.tril)(x, 0 if k is None else whole(k)))
def Trilu(x: Tensor, k: MaybeArray, *, upper: int) -> Tensor:
    """The upper or lower triangle of the last two axes, from the k-th diagonal on."""
    return (x.triu if upper else x.tril)(0 if k is None else whole(k))


@op
def ReverseSequence(x: Tensor, lengths: Tensor, *, batch_axis: int, time_axis: int) -> Tensor:
    """The first elements of each row reversed, as many as its length says."""
    time_axis, batch_axis = axes_of([time_axis, batch_axis], x.ndim)
    time = iota(x, x.shape[time_axis], time_axis, x.ndim)
    length = lengths.int().reshape(along(batch_axis, x.ndim))
    return x.gather(time_axis, (time < length).where(length - 1 - time, time).expand(*x.shape))


# -- values that shapes and attributes say ----------------------------------------------------------------------------


@op
def ConstantOfShape(shape: Array, *, value: MaybeArray) -> Value:
    """A tensor filled with one number, a float32 0 unless `value` is given."""
    sizes = ints(shape)
    fill = np.zeros((), np.float32) if value is None else np.asarray(value).reshape(())
    if any(n < 0 for n in sizes):
        raise fail(f"a shape of {sizes}")
    symbolic = symbolic_arg(tuple(sizes))
    if not symbolic and (math.prod(sizes) <= SMALL or not fits_device(fill.dtype)):
        return np.full(sizes, fill)
    name = fill.dtype.name
    narrow = symbolic and name == "int64"
    full = Tensor.full(sizes, fill.item(), dtype="int32" if narrow else name, device=node.device)
    return counted(full) if narrow else full


@op
def Range(start: Array, limit: Array, delta: Array, *, stash_type: int = 1) -> Any:
    """start, start + delta, ... up to but without limit; floats of 16 bits through wider ones, whatever stash_type."""
    first, last, step = single(start), single(limit), single(delta)
    if not step:
        raise fail("delta is 0")
    if symbolic_arg((first, last, step)):
        if not isinstance(step, int) or step < 0 or range_of(last - first)[0] < 0:
            raise fail(f"whether {first} to {last} by {step} has elements is not the same for all sizes")
        row = Tensor.arange((last - first + step - 1) // step, device=node.device)
        row = row if step == 1 else row * step
        return counted(row if isinstance(first, int) and not first else row + first)
    count = max(math.ceil((last - first) / step), 0)
    if count <= SMALL:
        return (first + np.arange(count) * step).astype(start.dtype)
    return (Tensor.arange(count, device=node.device).cast(start.dtype.name) * step + first).cast(start.dtype.name)


@op
def EyeLike(x: Value, *, dtype: int | None, k: int) -> Tensor:
    """Ones on the k-th diagonal of a matrix of the shape of x, in its dtype unless another is named."""
    rows, columns = x.shape
    name = (node.element(dtype) if dtype else x.dtype).name
    row = Tensor.arange(rows, device=node.device).reshape(rows, 1)
    on = (Tensor.arange(columns, device=node.device).reshape(1, columns) - row) == k
    return on.cast(name)
