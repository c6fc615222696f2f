"""Images in another size, columns put back, sampling at places."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.backend import Array
from anneal.errors import DTypeError, ModeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import function, need_float
from anneal.ops.elementwise import beside
from anneal.ops.indexing import gathered
from anneal.ops.nodes import FLOAT32, INT32, broadcast, iota, picked, reshape, row_shape, thin_out
from anneal.ops.pooling import Sizes, per_axis, pooled
from anneal.uop import DType, Op, UOp, const, dtypes

if TYPE_CHECKING:
    from fractions import Fraction

# how many axes each mode resizes; nearest any number
MODES = {"nearest": 0, "nearest-exact": 0, "area": 0, "linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
# grid_sample's modes and padding modes, in the order of torch's numbers
SAMPLED, OUTSIDE = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")

# The position of an output element among the inputs is a fraction of whole numbers, so every device finds the same
# neighbours.


@function("functional autocast=float32 single")
def interpolate(
    x: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = False,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """x (batch, channels, ...) with the axes after the second resized, to `size` or by `scale_factor`.

    Args:
        mode: "nearest", "nearest-exact", "area" (the mean of what an element covers), "linear" (one axis), "bilinear"
            or "bicubic" (two), "trilinear" (three).
        align_corners: the first and last elements of both lie on each other, else the outer edges do.
        recompute_scale_factor: the scale is that of the sizes, after `scale_factor` has given the new one.
        x: floats, of "nearest" any dtype; of "bilinear" and "bicubic" uint8 too, rounded as torch (and Pillow) does it.
        antialias: where "bilinear" and "bicubic" make an image smaller, each element is a mean over all that it covers.

    Raises ShapeError for sizes and modes that do not fit.

    >>> from anneal.tensor import Tensor
    >>> interpolate(Tensor([[[1.0, 3.0]]]), 4, mode="linear")
    Tensor([[[1. , 1.5, 2.5, 3. ]]], dtype=float32)
    """
    axes = x.ndim - 2
    if mode not in MODES:
        raise ModeError(f"interpolate: mode is one of {', '.join(MODES)}, not {mode!r}")
    if axes < 1 or axes > 3 or MODES[mode] not in (0, axes):
        wanted = MODES[mode] or "one to three"
        raise ShapeError(f"interpolate: mode {mode!r} resizes {wanted} axes after (batch, channels), not {x.shape}")
    if (size is None) == (scale_factor is None):
        raise ShapeError("interpolate: give size or scale_factor, and not both")
    given = size if size is not None else scale_factor
    values = [given] * axes if isinstance(given, (int, float)) else list(given or ())
    if len(values) != axes or any(v <= 0 for v in values):
        raise ShapeError(f"interpolate: shape {x.shape} takes one positive number or {axes}, not {given!r}")
    if not MODES[mode] and align_corners:
        raise ShapeError(f"interpolate: align_corners has no meaning for mode {mode!r}")
    image = x.dtype is dtypes.uint8 and mode in ("bilinear", "bicubic")
    if not image and not mode.startswith("nearest"):
        need_float("x", x)
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ShapeError(f'interpolate: antialias is for "bilinear" and "bicubic", not {mode!r}')
    for axis, v in list(enumerate(values, 2))[:: -1 if image else 1]:  # rows first, as bytes are rounded in between
        n = x.shape[axis]
        m, step = _new_size(n, v, size is None, recompute_scale_factor)
        if not n or not m:
            raise ShapeError(f"interpolate: axis {axis} of shape {x.shape} would go from {n} to {m} elements")
        if n == m and (step == 1 or image or antialias or mode.endswith("linear")):
            continue  # as in torch, whatever the scale
        if mode == "area":
            x = x._new(pooled(x.uop, axis, m, Op.ADD))
        elif antialias or image:
            weights = _weights(n, m, step, mode, align_corners, antialias)
            x = (_of_bytes if image else _of_floats)(x, axis, weights)
        else:
            x = _resized(x, axis, m, step, mode, bool(align_corners))
    return x.clone()


def _new_size(n: int, v: float, scaled: bool, recompute: bool | None) -> tuple[int, Fraction]:
    """The elements that `n` become by a size or a scale, and how many inputs apart they are."""
    from fractions import Fraction  # brings decimal, which takes 3 ms to import

    if not scaled:
        return int(v), Fraction(n, int(v)) if int(v) else Fraction(1)
    m = math.floor(n * v)
    return m, Fraction(n, m) if recompute and m else 1 / Fraction(v).limit_denominator(4096)


def _resized(x: Tensor, axis: int, m: int, step: Fraction, mode: str, corners: bool) -> Tensor:
    """The tensor with one axis resized to `m` elements, `step` inputs apart."""
    from fractions import Fraction

    n = x.shape[axis]
    if mode.startswith("nearest"):
        if m % n == 0 and step == Fraction(n, m):
            return x.repeat_interleave(m // n, axis)
        first = step / 2 if mode == "nearest-exact" else Fraction(0)
        return _picked(x, axis, _places(m, first, step, FLOAT32)[0], n)
    first = step / 2 - Fraction(1, 2)
    if corners:
        first, step = Fraction(0), Fraction(n - 1, m - 1) if m > 1 else Fraction(0)
    place, part = _places(m, first, step, x.dtype)
    t = x._new_plain(reshape(broadcast(part, (m,)), row_shape(m, axis, x.ndim)))
    if mode == "bicubic":
        taps = [_picked(x, axis, place + k, n) * w for k, w in zip((-1, 0, 1, 2), cubic(t))]
        out: Tensor = taps[0] + taps[1] + taps[2] + taps[3]
        return out
    # before the first input and after the last there is nothing to lean to: both neighbours are the end itself
    low, high = _picked(x, axis, place, n), _picked(x, axis, place + 1, n)
    return low + (high - low) * t


def _weights(n: int, m: int, step: Fraction, mode: str, corners: bool | None, antialias: bool) -> Array:
    """The weights of `n` input elements in `m` output elements: of the neighbours, or of all within reach."""
    apart = float(step)
    if corners:
        apart = (n - 1) / (m - 1) if m > 1 else 0.0
    at = np.arange(m)
    if antialias:
        away = np.abs(np.arange(n) + 0.5 - (apart * (at + 0.5))[:, None]) / max(apart, 1.0)
        if mode == "bilinear":
            weights = np.maximum(0.0, 1.0 - away)
        else:  # Keys's, with a = -0.5
            far = np.where(away < 2, keys_kernel(away, False, -0.5), 0.0)
            weights = np.where(away < 1, keys_kernel(away, True, -0.5), far)
        weights /= weights.sum(1, keepdims=True)
        return weights
    place = apart * at if corners else apart * (at + 0.5) - 0.5
    place = np.maximum(place, 0.0) if mode == "bilinear" else place
    first = np.floor(place)
    part = place - first
    weights = np.zeros((m, n))
    for k, weight in enumerate((1 - part, part)) if mode == "bilinear" else enumerate(cubic(part), -1):
        np.add.at(weights, (at, np.clip(first.astype(int) + k, 0, n - 1)), weight)
    return weights


def _of_floats(x: Tensor, axis: int, weights: Array) -> Tensor:
    """The tensor with one axis resized, each element a sum of those of `x` by weights."""
    shares = _constants(x, weights)
    return (x.movedim(axis, -1) @ shares.T).movedim(-1, axis)


def _constants(x: Tensor, values: Array) -> Tensor:
    """An array as a tensor of the dtype of `x`."""
    return x._made(values.astype(_width(x)), device=x.device).cast(x.dtype)


def _width(x: Tensor) -> Any:
    return np.float64 if x.dtype.bits == 64 else np.float32


def _of_bytes(x: Tensor, axis: int, weights: Array) -> Tensor:
    """The tensor of bytes with one axis resized, with weights of 15 bits and each result rounded to a byte, exactly as
    in torch.

    The products of halves of 8 bits are sums of whole numbers below 2 ** 24, which float32 has on every device.
    """
    bits = next((b for b in range(22) if int(0.5 + weights.max() * 2 ** (b + 1)) >= 1 << 15), 22)
    whole = np.trunc(weights * 2**bits + np.copysign(0.5, weights)).astype(np.int32)
    row = x.float().movedim(axis, -1)
    low, high = (row @ x._made(w.T.astype(np.float32), device=x.device) for w in (whole & 255, whole >> 8))
    total = high.cast("int32") * 256 + low.cast("int32") + (1 << (bits - 1))
    return (total >> bits).clip(0, 255).cast("uint8").movedim(-1, axis)


def _places(m: int, first: Fraction, step: Fraction, dtype: DType) -> tuple[UOp, UOp]:
    """first + i * step for i below m: the whole number at or below each, and what is left, as floats."""
    below = math.lcm(first.denominator, step.denominator)
    a, b = int(first * below), int(step * below)
    if abs(a) + b * m >= 2**31:
        raise ShapeError(f"interpolate: {m} elements {step} apart need larger numbers than int32 has")
    above = iota(m) * b + a
    place = above // below
    wide = dtype if dtype.bits == 64 else FLOAT32
    part = (above - place * below).cast(wide) / const(wide, below)
    return place, part.cast(dtype)


def _picked(x: Tensor, axis: int, place: UOp, n: int) -> Tensor:
    """The elements of an axis at `place`, the ends standing for what lies beyond them."""
    place = Op.MIN(Op.MAX(place, const(INT32, 0)), const(INT32, n - 1))
    return x._new(picked(x.uop, axis, place if place.shape else reshape(place, (1,))))


def keys_kernel(d: Any, near: bool, a: float = -0.75) -> Any:
    """The weight of what lies `d` away in a cubic convolution (Keys, 1981) of slope `a`: `near`, if that is at most 1,
    else 2.

    >>> keys_kernel(0.5, True), keys_kernel(1.5, False)
    (0.59375, -0.09375)
    """
    return ((a + 2) * d - (a + 3)) * d * d + 1 if near else ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def cubic(t: Any) -> tuple[Any, Any, Any, Any]:
    """The weights of four neighbours in a cubic convolution, as torch's bicubic interpolation has them, `t` behind the
    second.
    """
    return keys_kernel(t + 1, False), keys_kernel(t, True), keys_kernel(1 - t, True), keys_kernel(2 - t, False)


@function("functional")
def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """(..., c*r*r, h, w) to (..., c, h*r, w*r): channels become pixels.

    >>> from anneal.tensor import Tensor
    >>> pixel_shuffle(Tensor.arange(4).reshape(4, 1, 1), 2)
    Tensor([[[0, 1],
             [2, 3]]], dtype=int32)
    """
    r, s = upscale_factor, x.shape
    if len(s) < 3 or r < 1 or s[-3] % (r * r):
        raise ShapeError(f"pixel_shuffle: x is (..., c*{r}*{r}, h, w), not {s}")
    *lead, c, h, w = s
    m = len(lead)
    out = x.reshape(*lead, c // (r * r), r, r, h, w).permute(*range(m + 1), m + 3, m + 1, m + 4, m + 2)
    return out.reshape(*lead, c // (r * r), h * r, w * r)


@function("functional")
def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """(..., c, h*r, w*r) to (..., c*r*r, h, w): the reverse of `pixel_shuffle`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.ones(1, 1, 4, 4).pixel_unshuffle(2).shape
    (1, 4, 2, 2)
    """
    r, s = downscale_factor, x.shape
    if len(s) < 3 or r < 1 or s[-2] % r or s[-1] % r:
        raise ShapeError(f"pixel_unshuffle: x is (..., c, h*{r}, w*{r}), not {s}")
    *lead, c, h, w = s
    m = len(lead)
    out = x.reshape(*lead, c, h // r, r, w // r, r).permute(*range(m + 1), m + 2, m + 4, m + 1, m + 3)
    return out.reshape(*lead, c * r * r, h // r, w // r)


@function("functional method=no")
def fold(
    x: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Columns put back where `unfold` took them, overlapping ones added: (batch, channels*kh*kw, windows) to images.

    >>> from anneal.tensor import Tensor
    >>> fold(Tensor([[[1.0, 2.0], [10.0, 20.0]]]), (1, 3), (1, 2))
    Tensor([[[[ 1., 12., 20.]]]], dtype=float32)
    """
    if x.ndim == 2:
        return fold(x.unsqueeze(0), output_size, kernel_size, dilation, padding, stride).squeeze(0)
    if x.ndim != 3:
        raise ShapeError(f"fold: x is (batch, channels*kh*kw, windows), with or without the batch, not {x.shape}")
    out, k = per_axis("output_size", output_size, 2), per_axis("kernel_size", kernel_size, 2)
    d, s = per_axis("dilation", dilation, 2), per_axis("stride", stride, 2)
    p = per_axis("padding", padding, 2, 0)
    whole = [a + 2 * b for a, b in zip(out, p)]
    counts = [(n - dd * (kk - 1) - 1) // ss + 1 for n, kk, dd, ss in zip(whole, k, d, s)]
    batch, columns, places = x.shape
    if columns % math.prod(k) or places != math.prod(counts):
        raise ShapeError(
            f"fold: shape {x.shape} is not (batch, channels*{math.prod(k)}, {math.prod(counts)}): an image of {out} "
            f"has {counts[0]} x {counts[1]} windows of {k}"
        )
    whole_image = overlapped(x.reshape(batch, columns // math.prod(k), *k, *counts), whole, s, d)
    return whole_image.shrink([None, None, (p[0], p[0] + out[0]), (p[1], p[1] + out[1])])


def overlapped(windows: Tensor, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Tensor:
    """An image of `sizes`: `windows` (batch, channels, *kernel, *counts) added up where they lie, `strides` apart and
    with `dilations` between their elements.

    >>> from anneal.tensor import Tensor
    >>> overlapped(Tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), [3], [1], [1])
    Tensor([[[1., 5., 4.]]], dtype=float32)
    """
    axes = len(sizes)
    kernel, counts = windows.shape[2 : 2 + axes], windows.shape[2 + axes :]
    pieces = []
    for place in itertools.product(*map(range, kernel)):
        piece = windows[(slice(None), slice(None), *place)]
        borders = [(0, 0)] * 2
        for axis, (n, step, i, d, size) in enumerate(zip(counts, strides, place, dilations, sizes), 2):
            length = (n - 1) * step + 1
            piece = piece._new(thin_out(piece.uop, axis, step, length))
            borders.append((i * d, size - i * d - length))
        pieces.append(piece.pad(borders))
    return functools.reduce(operator.add, pieces)


def _line(n: int, kind: Any) -> Array:
    """torch's linspace(-1, 1, n) to the last bit: the grid of the identity lies on the kinks of `grid_sample`, where a
    last bit chooses the slope. Its product and sum are rounded once (an FMA), from whichever end is nearer."""
    i, step = np.arange(n), np.float64(kind(2.0) / kind(max(n - 1, 1)))
    return np.where(i < n // 2, -1.0 + step * i, 1.0 - step * (n - 1 - i)) if n > 1 else np.zeros(n)


@function("functional method=no")
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = False) -> Tensor:
    """The places (batch, h, w, 2), from -1 to 1, that 2x3 matrices make of the pixels of an image of `size` (n, c, h,
    w); of a volume's (n, c, d, h, w), and 3x4 matrices, (batch, d, h, w, 3).

    >>> from anneal.tensor import Tensor
    >>> affine_grid(Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2))
    Tensor([[[[-0.5,  0. ],
              [ 0.5,  0. ]]]], dtype=float32)
    """
    sizes = tuple(size)[2:]
    axes = len(sizes)
    if axes not in (2, 3) or theta.shape != (size[0], axes, axes + 1):
        raise ShapeError(
            f"affine_grid: takes theta of shape (n, 2, 3) and a size (n, c, h, w), or (n, 3, 4) and a depth before h, "
            f"not {theta.shape}, {size}"
        )
    places: list[Tensor] = []
    for i, n in enumerate(sizes):
        line = _constants(theta, _line(n, _width(theta)))
        scaled = line if align_corners else line * (n - 1) / n
        places.insert(0, scaled.reshape(n, *[1] * (axes - 1 - i)).expand(sizes))
    points = places[0].stack(*places[1:], places[0].ones_like(), dim=-1).reshape(1, -1, axes + 1)
    return (points @ theta.mT).reshape(size[0], *sizes, axes)


@function("functional method=no autocast=widest single")
def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = False
) -> Tensor:
    """Images (n, c, h, w) read at places (n, oh, ow, 2), or volumes (n, c, d, h, w) at (n, od, oh, ow, 3).

    Args:
        grid: (x, y) or (x, y, z) of each element of the result, from -1 to 1.
        mode: "bilinear" (of volumes trilinear) or "bicubic" (of images alone), between pixels; "nearest".
        padding_mode: what lies outside: "zeros", the "border", or the "reflection" of the inside.
        align_corners: -1 and 1 are the centres of the outer pixels, else their outer edges.

    Raises ShapeError for shapes that do not fit, DTypeError for other modes.

    >>> from anneal.tensor import Tensor
    >>> grid_sample(Tensor([[[[1.0, 3.0]]]]), Tensor([[[[0.0, 0.0]]]]))
    Tensor([[[[2.]]]], dtype=float32)
    """
    axes = x.ndim - 2
    if axes not in (2, 3) or grid.ndim != x.ndim or grid.shape[-1] != axes or grid.shape[0] != x.shape[0]:
        raise ShapeError(
            f"grid_sample: takes (n, c, h, w) and (n, oh, ow, 2), or a depth before h and oh and 3, not {x.shape} "
            f"and {grid.shape}"
        )
    modes = SAMPLED if axes == 2 else SAMPLED[:2]
    if mode not in modes or padding_mode not in OUTSIDE:
        raise DTypeError(
            f'grid_sample: mode is one of {", ".join(modes)}, padding_mode "zeros", "border" or "reflection", not '
            f"{mode!r}, {padding_mode!r}"
        )
    sizes, corners = x.shape[2:], bool(align_corners)
    if 0 in sizes:
        raise ShapeError(f"grid_sample: images of shape {x.shape} have no elements to sample")
    if not x.numel() or not grid.numel():  # nothing is sampled
        empty = x.sum(axis=tuple(range(2, x.ndim)), keepdim=True)
        return empty.expand(*x.shape[:2], *grid.shape[1:-1]) + (grid * 0.0).sum(axis=-1).unsqueeze(1)
    places = list[Any]()
    for k, size in zip(range(axes - 1, -1, -1), sizes):
        at: Any = grid[..., k].reshape(x.shape[0], -1)
        places.append((at + 1.0) * ((size - 1) / 2) if corners else (at + 1.0) * (size / 2) - 0.5)
    return sampled(x, places, mode, padding_mode, corners).reshape(*x.shape[:2], *grid.shape[1:-1])  # type: ignore[no-any-return]


def sampled(x: Tensor, places: Sequence[Any], mode: str, padding_mode: str, corners: bool = False) -> Any:
    """The elements (n, c, m) of images x (n, c, ...) at places, one row of floats (n, m) for each axis.

    `mode`, `padding_mode` and `corners` are those of `grid_sample`, for images of any number of axes. Between pixels
    each neighbour weighs what the place is nearer to it; of Keys's 4 by 4 neighbours each is moved inside, else the
    place is.

    >>> from anneal.tensor import Tensor
    >>> sampled(Tensor([[[1.0, 3.0]]]), [Tensor([[0.25]])], "bilinear", "zeros").tolist()
    [[[1.5]]]
    """
    flat, sizes, cubes = x.flatten(2), x.shape[2:], mode == "bicubic"
    inside = functools.partial(_inside, padding_mode, corners)
    if not cubes:
        places = list(map(inside, places, sizes))
    if mode == "nearest":
        nearest = _pixels(flat, sizes, [at.round() for at in places])
        return nearest._new(beside(nearest.uop, *places), *places)
    axes = []
    for at, n in zip(places, sizes, strict=True):
        low = at.detach().floor()
        part = at - low
        weights = cubic(part) if cubes else (1.0 - part, part)
        steps = [low + float(step) for step in range(-cubes, len(weights) - cubes)]
        axes.append(list(zip([inside(at, n) for at in steps] if cubes else steps, weights, strict=True)))
    terms = []
    for taps in itertools.product(*axes):
        weight = functools.reduce(operator.mul, [share for _, share in taps])
        terms.append(_pixels(flat, sizes, [near for near, _ in taps]) * weight.unsqueeze(1))
    return functools.reduce(operator.add, terms)


def _inside(padding_mode: str, corners: bool, at: Any, n: int) -> Any:
    """Places of an axis moved into it, as `padding_mode` says."""
    if padding_mode == "zeros":
        return at
    if padding_mode == "reflection":
        first, span = (0.0, n - 1.0) if corners else (-0.5, float(n))
        if not span:
            return at * 0.0
        far = (at - first).abs()
        turns = (far / span).detach().floor()
        rest = far - turns * span
        at = (turns % 2.0).eq(0.0).where(rest, span - rest) + first
    return at.clip(0.0, n - 1.0)


def _pixels(flat: Tensor, sizes: Sequence[int], places: list[Any]) -> Any:
    """The pixels (n, c, m) of images of these sizes, as rows, at whole places; 0 outside."""
    inside = functools.reduce(operator.and_, [(at >= 0.0) & (at <= n - 1.0) for at, n in zip(places, sizes)])
    index: Any = 0
    for at, n in zip(places, sizes):
        index = index * n + at.detach().clip(0.0, n - 1.0).cast("int32")
    index = inside.where(index, -1)  # out of range reads 0
    return gathered(flat, 2, index.unsqueeze(1).expand(*flat.shape[:2], index.shape[-1]).uop)


@function("functional=channel_shuffle,native_channel_shuffle method=no")
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """The channels (axis 1) of several groups, one of each in turn.

    >>> from anneal.tensor import Tensor
    >>> channel_shuffle(Tensor([[1, 2, 3, 4]]), 2)
    Tensor([[1, 3, 2, 4]], dtype=int32)
    """
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"channel_shuffle: {groups} groups of the channels, axis 1, of shape {x.shape}")
    parts = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return parts.transpose(1, 2).reshape(x.shape)
