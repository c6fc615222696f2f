"""Operators that read and write elements by their positions. Negative positions count from the end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anneal.onnx.execute import fail, node
from anneal.onnx.ops.elementwise import Array, MaybeArray, Value, axis_of, iota, single, whole
from anneal.onnx.registry import op
from anneal.onnx.values import fits_device, taken
from anneal.tensor import Tensor
from anneal.uop import UOp
from anneal.uop.sizes import least


def wrapped(index: Tensor, count: int) -> Tensor:
    """Positions counted from 0, as int32."""
    index = index.int()
    return (index < 0).where(index + count, index)


def picked(x: Tensor, axis: int, places: Array) -> Tensor:
    """The elements of an axis at known places: a slice, which moves nothing, where these are equally far apart."""
    step = int(places[1] - places[0]) if places.size > 1 else 1
    if places.size and step > 0 and (np.diff(places) == step).all():
        return taken(x, axis, slice(int(places[0]), int(places[-1]) + 1, step))  # type: ignore[no-any-return]
    return x.index_select(axis, node.constant(places.astype(np.int32)))


def _known(index: Array, count: Any, axis: int) -> Array:
    """Positions that are on the host, checked and counted from 0."""
    if isinstance(count, UOp):
        if index.size and (index.min() < 0 or int(index.max()) >= least(count)):
            raise fail(f"indices from {index.min()} to {index.max()} into axis {axis}, whose size is {count}")
        return index.astype(np.int32)
    if index.size and not (-count <= index.min() and index.max() < count):
        raise fail(f"an index from {index.min()} to {index.max()} into {count} elements of axis {axis}")
    return np.where(index < 0, index + count, index).astype(np.int32)


@op
def Gather(x: Value, index: Value, *, axis: int) -> Value:
    """The elements of an axis at the indices, whose axes take its place. Negative ones since version 11."""
    axis = axis_of(axis, x.ndim)
    if not isinstance(x, Tensor) and not fits_device(x.dtype):
        index = node.host(index, "no device holds elements of this type")
    if isinstance(x, np.ndarray) and isinstance(index, np.ndarray):
        return np.take(x, _known(index, x.shape[axis], axis), axis)
    data = node.tensor(x)
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    if isinstance(index, np.ndarray) and index.size == 1 and isinstance(x.shape[axis], UOp):
        place = whole(index)
        begin = place + x.shape[axis] if place < 0 else place
        found: Tensor = taken(data, axis, slice(begin, begin + 1))
    elif isinstance(index, np.ndarray):
        found = picked(data, axis, _known(index, x.shape[axis], axis).reshape(-1))
    else:
        found = data.index_select(axis, wrapped(index, x.shape[axis]).reshape(-1))
    return found.reshape(shape)


@op(host=lambda x, index, *, axis: x[_along(x, index, axis)])
def GatherElements(x: Tensor, index: Tensor, *, axis: int) -> Tensor:
    """out[i, j] = x[index[i, j], j] for axis 0, and so on."""
    axis = axis_of(axis, x.ndim)
    return x.gather(axis, wrapped(index, x.shape[axis]))


def _along(x: Array, index: Array, axis: int) -> tuple[Array, ...]:
    """The positions of elements whose place along one axis is `index`, an array for each axis."""
    places: list[Array] = list(np.indices(index.shape, sparse=True))
    places[axis_of(axis, x.ndim)] = index
    return tuple(np.broadcast_arrays(*places))


def _flat_places(index: Tensor, sizes: tuple[Any, ...]) -> Tensor:
    """(..., k) positions along k axes as one position each in the row that these axes make."""
    if not sizes:
        raise ValueError("indices of no axes")
    place = wrapped(index[..., 0], sizes[0])
    for i, n in enumerate(sizes[1:], 1):
        place = place * n + wrapped(index[..., i], n)
    return place


def _gather_nd_on_host(x: Array, index: Array, *, batch_dims: int = 0) -> Any:
    return x[(*np.indices(index.shape[:-1], sparse=True)[:batch_dims], *np.moveaxis(index, -1, 0))]


@op(host=_gather_nd_on_host)
def GatherND(x: Tensor, index: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Elements, or slices, at positions along the first axes behind `batch_dims`, which version 12 brought."""
    k, b = index.shape[-1], batch_dims
    if k + b > x.ndim or x.shape[:b] != index.shape[:b]:
        raise fail(f"indices of shape {index.shape} do not fit {x.shape} with {b} axes of a batch")
    batch, sizes, rest = math.prod(x.shape[:b]), x.shape[b : b + k], x.shape[b + k :]
    row = math.prod(sizes)
    place = _flat_places(index, sizes).reshape(batch, -1)
    if b:
        place = place + iota(x, batch, 0, 2) * row
    return x.reshape(batch * row, *rest).index_select(0, place.reshape(-1)).reshape(*index.shape[:-1], *rest)


@op
def OneHot(index: Tensor, depth: Array, values: Tensor, *, axis: int) -> Tensor:
    """values[1] at the position that each index names along a new axis, values[0] elsewhere and for others."""
    count = whole(depth)
    if count < 0:
        raise fail(f"depth is {count}")
    axis = axis_of(axis, index.ndim + 1)
    place = wrapped(index, count).unsqueeze(axis)
    return (iota(index, count, axis, index.ndim + 1) == place).where(values[1], values[0])


# -- writing ----------------------------------------------------------------------------------------------------------

# on the device, and of arrays
_REDUCE = {
    "add": ("sum", np.add),
    "mul": ("prod", np.multiply),
    "max": ("amax", np.maximum),
    "min": ("amin", np.minimum),
}


def _scattered(x: Tensor, index: Tensor, updates: Tensor, axis: int, reduction: str) -> Tensor:
    if reduction == "none":
        return x.scatter(axis, index, updates)
    return x.scatter_reduce(axis, index, updates, _REDUCE[reduction][0])


def _put(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """x with what `updates` says at `places`, an array of positions for each of the first axes."""
    for place, count in zip(places, x.shape):
        if place.size and (place.min() < -count or place.max() >= count):
            raise fail(f"an index from {place.min()} to {place.max()} into {count} elements")
    out = x.copy()
    if reduction == "none":
        out[places] = updates
    else:
        _REDUCE[reduction][1].at(out, places, updates)
    return out


@op(
    "ScatterElements",
    "Scatter",
    host=lambda x, index, updates, *, axis, reduction: _put(x, _along(x, index, axis), updates, reduction),
)
def scatter_elements(x: Tensor, index: Tensor, updates: Tensor, *, axis: int, reduction: str = "none") -> Tensor:
    """x with x[index[i, j], j] = updates[i, j] for axis 0; `reduction` since version 16, max and min since 18."""
    axis = axis_of(axis, x.ndim)
    return _scattered(x, wrapped(index, x.shape[axis]), updates, axis, reduction)


@op(
    host=lambda x, index, updates, *, reduction: _put(x, tuple(np.moveaxis(index, -1, 0)), updates, reduction),
)
def ScatterND(x: Tensor, index: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """x with elements, or slices, replaced at positions along its first axes; `reduction` since version 16."""
    k = index.shape[-1]
    place = _flat_places(index, x.shape[:k]).reshape(-1, 1)
    count, width = place.shape[0], math.prod(x.shape[k:])
    rows = x.reshape(math.prod(x.shape[:k]), width)
    out = _scattered(rows, place.expand(count, width), updates.reshape(count, width), 0, reduction)
    return out.reshape(*x.shape)


@op
def TensorScatter(cache: Tensor, update: Tensor, starts: Tensor | None, *, axis: int, mode: str) -> Tensor:
    """A cache with `update` written along an axis, for each sample from its own start on, round the end if circular."""
    axis = axis_of(axis, cache.ndim)
    n, m = cache.shape[axis], update.shape[axis]
    # the place in the update of each place in the cache
    here = iota(cache, n, axis, cache.ndim)
    if starts is not None:
        here = here - starts.int().reshape(-1, *[1] * (cache.ndim - 1))
    if mode == "circular":
        here = here.remainder(n)
    inside: Tensor = (here >= 0) & (here < m)
    return inside.where(update.gather(axis, here.clamp(0, m - 1).expand(*cache.shape)), cache)


# -- numbers of elements that depend on values ------------------------------------------------------------------------


@op
def NonZero(x: Value) -> Array:
    """The positions of elements that are not 0, a row for each axis: none for a scalar.

    Operators whose number of elements follows from values (Compress, Unique, NonMaxSuppression, too) are on the host.
    """
    array = node.host(x)
    found = np.nonzero(np.atleast_1d(array))
    return np.array(found[: array.ndim], np.int64).reshape(array.ndim, len(found[0]))


@op
def Compress(x: Value, condition: Value, *, axis: int | None) -> Value:
    """The elements of an axis, or of the flat row, at which the condition holds; what it does not reach goes."""
    places = np.flatnonzero(node.host(condition)).astype(np.int32)
    if axis is None:
        x, axis = x.reshape((math.prod(x.shape),)), 0
    axis = axis_of(axis, x.ndim)
    if isinstance(x, np.ndarray):
        return np.take(x, places, axis)
    return x.index_select(axis, node.constant(places))


@op
def Unique(x: Value, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, ...]:
    """The distinct elements, or slices along an axis: sorted, or in order of appearance; with their positions and
    counts.
    """
    values = node.host(x)
    if axis is None:
        values, axis = values.reshape(-1), 0
    found, first, inverse, counts = np.unique(
        values, return_index=True, return_inverse=True, return_counts=True, axis=axis_of(axis, values.ndim)
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        back = np.argsort(order)
        found, first, counts, inverse = np.take(found, order, axis), first[order], counts[order], back[inverse]
    return found, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


@op
def NonMaxSuppression(
    boxes: Value,
    scores: Value,
    most: MaybeArray,
    iou_threshold: MaybeArray,
    score_threshold: MaybeArray,
    *,
    center_point_box: int,
) -> Array:
    """The boxes of each class that overlap no better one by more than the threshold: (batch, class, box) rows."""
    count = 0 if most is None else whole(most)
    overlap = 0.0 if iou_threshold is None else float(single(iou_threshold))
    least = None if score_threshold is None else float(single(score_threshold))
    all_boxes, all_scores = node.host(boxes), node.host(scores)
    if count <= 0:
        return np.zeros((0, 3), np.int64)
    rows = np.argwhere(np.ones_like(all_scores, bool) if least is None else all_scores > least)
    at = np.lexsort((-all_scores[tuple(rows.T)], rows[:, 1], rows[:, 0]))  # of each class the best first
    rows = rows[at]
    found = _unsuppressed(_corners(all_boxes[rows[:, 0], rows[:, 2]], center_point_box), rows, count, overlap)
    return rows[found].astype(np.int64)


def _corners(boxes: Array, center: int) -> Array:
    """Boxes as rows of low, low, high, high, from two corners in any order or from centres and sizes."""
    one, two = boxes.astype(np.float32).T.reshape(2, 2, -1)
    return np.concatenate([one - two / 2, one + two / 2] if center else [np.minimum(one, two), np.maximum(one, two)])


def _unsuppressed(boxes: Array, rows: Array, most: int, overlap: float) -> list[int]:
    """The places of the boxes that stay, of (batch, class, box) rows: by class, the best first.

    Boxes are compared many at once: with those of their class that stayed, then with each other.
    """
    kind = np.cumsum(np.any(rows[:, :2] != np.roll(rows[:, :2], 1, 0), 1))
    area = (boxes[2] - boxes[0]) * (boxes[3] - boxes[1])

    def hits(one: Any, two: Any) -> Any:
        """True where a box of `one`, in rows, suppresses one of `two`."""
        a, b = boxes[:, one, None], boxes[:, None, two]
        wide, high = [np.maximum(np.minimum(a[n + 2], b[n + 2]) - np.maximum(a[n], b[n]), 0) for n in (0, 1)]
        shared = wide * high
        union = area[one, None] + area[two] - shared
        return (shared / union > overlap) & (union > 0) & (kind[one, None] == kind[two])

    chosen: list[int] = []
    at = since = 0  # since: the first one of its class that stays
    while at < len(rows):
        block = np.arange(at, min(at + 64, len(rows)))
        block = block[~hits(chosen[since:], block).any(0)]
        gone = 0
        for n, (box, by) in enumerate(zip(block.tolist(), np.packbits(hits(block, block), 1, "little"))):
            if chosen and kind[box] != kind[chosen[-1]]:
                since = len(chosen)
            if not gone >> n & 1 and len(chosen) - since < most:
                chosen.append(box)
                gone |= int.from_bytes(by, "little")
        full = len(chosen) - since >= most  # then nothing more of this class stays
        at = max(at + 64, int(np.searchsorted(kind, kind[chosen[-1]], "right")) if full else 0)
    return chosen
