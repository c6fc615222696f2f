"""Images in other sizes and places: Resize, places to read at, regions, deformable convolution, decoding."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from anneal.onnx.execute import fail, node
from anneal.onnx.ops.elementwise import Array, MaybeArray, MaybeTensor, Numbers, Value, axes_of, ints, iota, total_of
from anneal.onnx.ops.indexing import picked
from anneal.onnx.ops.windows import Windows, windows_of
from anneal.onnx.registry import op
from anneal.onnx.values import along
from anneal.ops import keys_kernel, sampled
from anneal.tensor import Tensor
from anneal.uop import UOp
from anneal.uop.sizes import divided_size


def _origins(mode: str, n: int, m: int, scale: float, roi: tuple[float, float]) -> Array:
    """The place of each of m elements among n, `scale` of them for each of those."""
    at, wide = np.arange(m, dtype=np.float64), scale * n
    if mode == "align_corners":
        return np.zeros(m) if wide == 1 else at * (n - 1) / (wide - 1)
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_crop_and_resize":
        begin, end = roi
        if wide == 1:
            return np.full(m, (begin + end) * (n - 1) / 2)
        return begin * (n - 1) + at * ((end - begin) * (n - 1) / (wide - 1))
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if mode == "pytorch_half_pixel" and wide == 1:
        return np.full(m, -0.5)
    half = (at + 0.5) / scale - 0.5
    return n / 2 * (1 - m / wide) + half if mode == "half_pixel_symmetric" else half


def _nearest(origin: Array, mode: str) -> Array:
    """The whole number that each place is rounded to."""
    low = np.floor(origin)
    part = origin - low
    up = {"round_prefer_floor": part > 0.5, "round_prefer_ceil": part >= 0.5, "floor": part > 1, "ceil": part > 0}
    return np.asarray(low + up[mode], np.int64)


def _kernel(mode: str, distance: Array, a: float) -> Array:
    """The weight of an element that lies `distance` away: a triangle, or Keys's cubic."""
    d = np.abs(distance)
    if mode == "linear":
        return np.asarray(np.maximum(1 - d, 0))
    return np.where(d <= 1, keys_kernel(d, True, a), np.where(d < 2, keys_kernel(d, False, a), 0))


def _taps(
    mode: str, origin: Array, n: int, scale: float, a: float, antialias: int, exclude_outside: int
) -> tuple[Array, Array]:
    """(m, k) positions and weights of the elements that each of m is a sum of.

    Where an element of the result lies among those of the input follows from shapes, and is worked out on the host in
    float64, axis by axis: Resize is a sum of a few neighbours along one axis after the other.
    """
    spread = min(scale, 1.0) if antialias else 1.0
    half = math.ceil((1 if mode == "linear" else 2) / spread)
    places = np.ceil(origin).astype(np.int64)[:, None] + np.arange(-half, half)
    weights = _kernel(mode, (places - origin[:, None]) * spread, a)
    if antialias:
        weights = weights / weights.sum(1, keepdims=True)
    if exclude_outside:
        weights = np.where((places < 0) | (places >= n), 0, weights)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    used = np.any(weights != 0, axis=0)
    return np.clip(places, 0, n - 1)[:, used], weights[:, used]


def _picked(x: Tensor, axis: int, places: Array) -> Tensor:
    """The elements of an axis at places that rise: repeated elements where they are."""
    n, m = x.shape[axis], places.size
    if m % n == 0 and (places == np.arange(m) // (m // n)).all():
        return x if m == n else x.repeat_interleave(m // n, axis)
    return picked(x, axis, places)


def _interpolated(x: Tensor, axis: int, places: Array, weights: Array) -> Tensor:
    """Weighted sums of elements of an axis: of a few of them, or as a product with a matrix."""
    name = x.dtype.name
    if places.shape[1] > 4:
        node.room(x.shape[axis], len(places))
        matrix = np.zeros((x.shape[axis], len(places)))
        np.add.at(matrix, (places, np.arange(len(places))[:, None]), weights)
        return x.movedim(axis, -1).matmul(node.constant(matrix.astype(name))).movedim(-1, axis)
    parts = []
    for column, weight in zip(places.T, weights.T):
        part = _picked(x, axis, column)
        if not (weight == 1).all():
            part = part * node.constant(weight.astype(name)).reshape(along(axis, x.ndim))
        parts.append(part)
    return reduce(Tensor.add, parts)


class Resizing(NamedTuple):
    """The attributes of Resize: antialias, axes, keep_aspect_ratio_policy since 18, half_pixel_symmetric since 19."""

    antialias: int = 0
    axes: Numbers = None
    coordinate_transformation_mode: str = "asymmetric"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "floor"


def _resized(
    x: Tensor, scales: Sequence[float], sizes: Sequence[int], roi: Sequence[float] | None, how: Resizing
) -> Tensor:
    mode, coordinates = how.mode, how.coordinate_transformation_mode
    node.room(*sizes)
    if 0 in x.shape or 0 in sizes:
        return x.new_zeros(*sizes)
    y = x if mode == "nearest" or x.dtype.is_float else x.float()
    outside = []
    for axis, (n, m, scale) in enumerate(zip(x.shape, sizes, scales)):
        part = (0.0, 1.0) if roi is None else (float(roi[axis]), float(roi[x.ndim + axis]))
        if n == m and math.isclose(scale, 1.0) and part == (0.0, 1.0):
            continue
        if scale <= 0:
            raise fail(f"scale {scale} along axis {axis}")
        if isinstance(n, UOp) or isinstance(m, UOp):
            y = _repeated(y, axis, scale, coordinates, how.nearest_mode if mode == "nearest" else mode)
            continue
        origin = _origins(coordinates, n, m, scale, part)
        if mode == "nearest":
            y = _picked(y, axis, np.clip(_nearest(origin, how.nearest_mode), 0, n - 1))
        else:
            places, weights = _taps(mode, origin, n, scale, how.cubic_coeff_a, how.antialias, how.exclude_outside)
            y = _interpolated(y, axis, places, weights)
        beyond = (origin < 0) | (origin > n - 1)
        if coordinates == "tf_crop_and_resize" and beyond.any():
            outside.append(node.constant(beyond).reshape(along(axis, x.ndim)))
    return (reduce(Tensor.bitwise_or, outside).where(how.extrapolation_value, y) if outside else y).cast(x.dtype)


def _repeated(x: Tensor, axis: int, scale: float, coordinates: str, mode: str) -> Tensor:
    """An axis of symbolic size with each element repeated: the nearest ones, where the scale is a whole number."""
    times = round(scale)
    shifts = ("asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn")  # alike wherever they begin
    if times == scale and coordinates in shifts and mode not in ("linear", "cubic"):
        places = _nearest(_origins(coordinates, 8, 8 * times, scale, (0.0, 1.0)), mode)
        if (np.clip(places, 0, 7) == np.arange(8 * times) // times).all():
            return x.repeat_interleave(times, axis)
    raise fail(f"axis {axis} has the size {x.shape[axis]}, and its places follow from the size ({coordinates}, {mode})")


def _scaled(n: Any, scale: float) -> Any:
    """A size times a scale, rounded down."""
    if not isinstance(n, UOp):
        return math.floor(n * scale)
    if scale == round(scale):
        return n * round(scale)
    raise fail(f"the size {n} times {scale}")


def _factor(m: Any, n: Any) -> float:
    """The ratio of two sizes; an integer if one is symbolic."""
    if not isinstance(n, UOp) and not isinstance(m, UOp):
        return float(m / max(n, 1))
    times = divided_size(m, n)
    if not isinstance(times, int):
        raise fail(f"the size {n} becomes {m}")
    return float(times)


def _targets(x: Tensor, scales: Any, sizes: Any, axes: Numbers, policy: str) -> tuple[list[float], list[int]]:
    """The scale and size of every axis, of which scales or sizes name some or all."""
    which = axes_of(axes, x.ndim)
    given = sizes if sizes is not None and sizes.size else scales
    if given is None or given.size != len(which):
        raise fail(f"scales or sizes name {0 if given is None else given.size} of {len(which)} axes")
    by, to = [1.0] * x.ndim, list(x.shape)
    if given is sizes:
        wanted = ints(sizes)
        factors = [_factor(m, x.shape[a]) for a, m in zip(which, wanted)]
        if policy != "stretch":
            factors = [(min if policy == "not_larger" else max)(factors)] * len(which)
            wanted = [math.floor(s * x.shape[a] + 0.5) for a, s in zip(which, factors)]
    else:
        factors = [float(s) for s in scales.reshape(-1)]
        wanted = [_scaled(x.shape[a], s) for a, s in zip(which, factors)]
    for a, s, m in zip(which, factors, wanted):
        by[a], to[a] = s, m
    return by, to


def upsample(x: Tensor, scales: MaybeArray, *, height_scale: Any, mode: str, width_scale: Any) -> Tensor:
    """An image resized by one scale for each axis: the floor of the place, or linear between neighbours, from the first
    element on. The scales are an attribute in versions 7 and 8, and two in version 1, where linear is "bilinear".
    """
    scales = np.array([1.0, 1.0, height_scale, width_scale]) if scales is None else scales
    by, to = _targets(x, scales, None, None, "stretch")
    return _resized(x, by, to, None, Resizing(mode=mode.removeprefix("bi")))


op("Upsample", since=9, was=("scales",))(upsample)
op("Resize", since=10)(upsample)


@op(since=11)
def Resize(x: Tensor, roi: MaybeArray, scales: MaybeArray, sizes: MaybeArray, *, how: Resizing) -> Tensor:
    """Axes in other sizes."""
    by, to = _targets(x, scales, sizes, how.axes, how.keep_aspect_ratio_policy)
    part = None
    if roi is not None and roi.size and how.coordinate_transformation_mode == "tf_crop_and_resize":
        part = [0.0] * x.ndim + [1.0] * x.ndim
        which = axes_of(how.axes, x.ndim)
        for i, a in enumerate(which):
            part[a], part[x.ndim + a] = float(roi[i]), float(roi[len(which) + i])
    return _resized(x, by, to, part, how)


# -- reading at places ------------------------------------------------------------------------------------------------


@op
def GridSample(x: Tensor, grid: Tensor, *, align_corners: int, mode: str, padding_mode: str) -> Any:
    """Images read at places from -1 to 1; of any number of axes since version 20, which renamed the modes."""
    kind = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    places = []
    for i, n in enumerate(x.shape[2:]):
        at = grid[..., x.ndim - 3 - i].reshape(x.shape[0], -1)
        places.append((at + 1) * ((n - 1) / 2) if align_corners else ((at + 1) * n - 1) * 0.5)
    read = sampled(x, places, kind, padding_mode, bool(align_corners))
    return read.reshape(*x.shape[:2], *grid.shape[1:-1]).cast(x.dtype)


@op
def AffineGrid(theta: Tensor, size: Array, *, align_corners: int) -> Tensor:
    """The places that a matrix for each sample makes of the elements of images of two or three axes."""
    sizes = ints(size)[2:]
    node.room(*sizes, len(sizes) + 1)
    rows = []
    for i, n in enumerate(sizes):
        row = np.linspace(-1, 1, n) if align_corners else (np.arange(n) * 2 + 1) / n - 1
        rows.append(np.broadcast_to(row.reshape(along(i, len(sizes))), sizes))
    places = np.stack([*rows[::-1], np.ones(sizes)], -1).reshape(-1, len(sizes) + 1)
    grid = node.constant(places.astype(theta.dtype.name)).matmul(theta.transpose(1, 2))
    return grid.reshape(theta.shape[0], *sizes, len(sizes))


# -- regions ----------------------------------------------------------------------------------------------------------


@op
def RoiAlign(
    x: Tensor,
    rois: Value,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "output_half_pixel",
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> Tensor:
    """Regions as small images of means (or maxima) of places between elements; half_pixel is the default since 16.

    With a `sampling_ratio` of 0 the largest region, which the host reads, says how many places there are at most.
    """
    half, total = coordinate_transformation_mode == "half_pixel", rois.shape[0]
    c, *sizes = x.shape[1:]
    edges = node.tensor(rois).float() * spatial_scale - 0.5 * half
    lines, read, size = [], 1, 1
    for n, out, at in zip(sizes, (output_height, output_width), (1, 0)):
        begin, end = [edges[:, i].reshape(-1, 1, 1) for i in (at, at + 2)]
        step = (end - begin if half else (end - begin).clamp(1)) / out
        most, grid = sampling_ratio, step.full_like(sampling_ratio)
        if most < 1:
            wide = np.ptp(node.host(rois)[:, at::2], 1).max(initial=1) * spatial_scale
            most, grid = math.ceil(wide / out) + 1, step.ceil().clamp(0)
        size *= out * most
        node.room(total, size)
        turn = iota(x, most, 2, 3)
        place = begin + iota(x, out, 1, 3) * step + (turn.minimum(grid - 1) + 0.5) * (step / grid.clamp(1))
        counts = (place >= -1) & (place <= n) & ((grid if mode == "max" else grid - turn) > 0)
        place = place.clip(0, n - 1)
        low, shape = place.floor(), (total, out, most, 1, 1) if at else (total, 1, 1, out, most)
        ways = (low, 1 - place + low), ((low + 1).clip(0, n - 1), place - low)
        lines.append([(i.int().reshape(shape), counts.where(share, 0).reshape(shape)) for i, share in ways])
        read = grid.clamp(1) * read
    parts, flat = [], x.transpose(0, 1).reshape(c, -1)
    first = batch_indices.int().reshape(-1, 1, 1, 1, 1) * sizes[0]
    for (row, v), (column, h) in itertools.product(*lines):
        at = (first + row) * sizes[1] + column
        parts.append(flat.index_select(1, at.reshape(-1)).reshape(c, *at.shape) * (v * h))
    found = Tensor.stack(parts).amax((0, 4, 6)) if mode == "max" else total_of(parts).sum((3, 5)) / read
    return found.transpose(0, 1).cast(x.dtype)


@op
def MaxRoiPool(x: Tensor, rois: Tensor, *, pooled_shape: Sequence[int], spatial_scale: float) -> Tensor:
    """The largest of each part of regions (image, x1, y1, x2, y2), rounded to whole elements; 0 of nothing."""
    found, corners = x.rows(rois[:, 0].int()), (rois.float() * spatial_scale + 0.5).floor()
    for at, count in zip((2, 1), pooled_shape):  # of all columns first
        begin, end = [corners[:, i].reshape(-1, 1, 1, 1, 1) for i in (at, at + 2)]
        size = (end - begin + 1).clamp(1) / count
        part, place = iota(x, count, 3, 5), iota(x, found.shape[2], 4, 5)
        inside = (place >= (part * size).floor() + begin) & (place < ((part + 1) * size).ceil() + begin)
        most = inside.where(found.transpose(2, 3).unsqueeze(3), -math.inf).amax(4)
        found = inside.any(4).where(most, 0)
    return found


@op
def DeformConv(
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: MaybeTensor,
    mask: MaybeTensor,
    *,
    group: int,
    offset_group: int,
    how: Windows,
) -> Tensor:
    """A convolution whose windows read each place of the kernel at an offset of its own, between elements."""
    if x.ndim != 4:
        raise fail(f"a deformable convolution over {x.ndim - 2} axes; two are computed")
    w = windows_of(x, weight, how)
    (kh, kw), (oh, ow), n = w.kernel, w.out, x.shape[0]
    each = x.shape[1] // offset_group
    moved = offset.reshape(n * offset_group, kh * kw, 2, oh, ow)
    places = []
    for axis in range(2):
        start = iota(x, w.out[axis], 2 + axis, 4) * w.strides[axis] - w.pads[axis][0]
        inside = np.arange(w.kernel[axis]) * w.dilations[axis]
        inside = np.repeat(inside, kw) if axis == 0 else np.tile(inside, kh)
        here = node.constant(inside.astype(np.int32)).reshape(1, -1, 1, 1) + start
        places.append((moved[:, :, axis] + here.cast(x.dtype)).reshape(n * offset_group, -1))
    read = sampled(x.reshape(n * offset_group, each, *x.shape[2:]), places, "bilinear", "zeros")
    read = read.reshape(n, offset_group, each, kh * kw, oh * ow)
    if mask is not None:
        read = read * mask.reshape(n, offset_group, 1, kh * kw, oh * ow)
    columns = read.reshape(n, group, x.shape[1] // group * kh * kw, oh * ow)
    out = weight.reshape(1, group, weight.shape[0] // group, -1).matmul(columns).reshape(n, -1, oh, ow)
    return out if bias is None else out + bias.reshape(1, -1, 1, 1)


# -- decoding ---------------------------------------------------------------------------------------------------------


@op
def ImageDecoder(encoded: Array, *, pixel_format: str) -> Array:
    """A picture file as (height, width, channels) of uint8, by Pillow if it is installed."""
    try:
        from PIL import Image
    except ImportError:
        raise fail("Pillow, which decodes pictures, is not installed", "pip install Pillow") from None
    with Image.open(io.BytesIO(np.ascontiguousarray(encoded).tobytes())) as picture:
        node.room(picture.width, picture.height, 3)
        array = np.array(picture.convert("L" if pixel_format == "Grayscale" else "RGB"))
    return array[..., None] if array.ndim == 2 else array[..., ::-1] if pixel_format == "BGR" else array
