"""Images and sequences in another size: interpolation axis by axis, and pixels traded for channels.

Where an output element lies among the inputs is a fraction of whole numbers, so every device finds the same neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.errors import ModeError, ShapeError
from anneal.ops.arguments import function, need_float
from anneal.ops.nodes import broadcast, expand, iota, reshape
from anneal.ops.pooling import pooled
from anneal.uop import DType, Op, UOp, alu, const, dtypes

if TYPE_CHECKING:
    from fractions import Fraction

    from anneal.tensor import Tensor

_INT32 = dtypes.int32
# how many axes each mode resizes; nearest any number
MODES = {"nearest": 0, "nearest-exact": 0, "area": 0, "linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


@function(functional=True)
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
        need_float("interpolate", "x", x)
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ShapeError(f'interpolate: antialias is for "bilinear" and "bicubic", not {mode!r}')
    for i, v in list(enumerate(values))[:: -1 if image else 1]:  # rows first, as bytes are rounded in between
        n = x.shape[2 + i]
        m, step = _new_size(n, v, size is None, recompute_scale_factor)
        if not n or not m:
            raise ShapeError(f"interpolate: axis {2 + i} of shape {x.shape} would go from {n} to {m} elements")
        if mode == "area":
            x = x._new(pooled(x.uop, 2 + i, m, Op.ADD))
        elif antialias and not image:
            weights = x._made(_weights(n, m, step, mode, align_corners, True).astype(np.float32), device=x.device)
            x = (x.movedim(2 + i, -1) @ weights.cast(x.dtype).T).movedim(-1, 2 + i)
        elif image and (n != m or step != 1):
            x = _of_bytes(x, 2 + i, _weights(n, m, step, mode, align_corners, antialias))
        elif n != m or step != 1:
            x = _resized(x, 2 + i, m, step, mode, bool(align_corners))
    return x


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

    s = x.shape
    n = s[axis]
    if mode.startswith("nearest"):
        if m % n == 0 and step == Fraction(n, m):
            # every element repeated
            u = reshape(x.uop, (*s[: axis + 1], 1, *s[axis + 1 :]))
            u = expand(u, (*s[: axis + 1], m // n, *s[axis + 1 :]))
            return x._new(reshape(u, (*s[:axis], m, *s[axis + 1 :])))
        first = step / 2 if mode == "nearest-exact" else Fraction(0)
        place, _ = _places(m, first, step, dtypes.float32)
        return _picked(x, axis, place, n)
    if corners:
        step = Fraction(n - 1, m - 1) if m > 1 else Fraction(0)
        first = Fraction(0)
    else:
        first = step / 2 - Fraction(1, 2)
    place, part = _places(m, first, step, x.uop.dtype)
    rest = (1,) * axis + (m,) + (1,) * (len(s) - axis - 1)
    t = x._new_plain(reshape(broadcast(part, (m,)), rest))
    if mode == "bicubic":
        taps = [_picked(x, axis, place + k, n) * w for k, w in zip((-1, 0, 1, 2), cubic(t), strict=True)]
        out: Tensor = taps[0] + taps[1] + taps[2] + taps[3]
        return out
    # before the first input and after the last there is nothing to lean to: both neighbours are the end itself
    low, high = _picked(x, axis, place, n), _picked(x, axis, place + 1, n)
    return low + (high - low) * t


def _weights(n: int, m: int, step: Fraction, mode: str, corners: bool | None, antialias: bool) -> np.ndarray[Any, Any]:
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
            near, far = (1.5 * away - 2.5) * away * away + 1, ((-0.5 * away + 2.5) * away - 4) * away + 2
            weights = np.where(away < 1, near, np.where(away < 2, far, 0.0))
        weights /= weights.sum(1, keepdims=True)
        return weights
    place = apart * at if corners else apart * (at + 0.5) - 0.5
    place = np.maximum(place, 0.0) if mode == "bilinear" else place
    first = np.floor(place)
    part: Any = place - first
    weights = np.zeros((m, n))
    for k, weight in enumerate((1 - part, part)) if mode == "bilinear" else enumerate(cubic(part), -1):
        np.add.at(weights, (at, np.clip(first.astype(int) + k, 0, n - 1)), weight)
    return weights


def _of_bytes(x: Tensor, axis: int, weights: np.ndarray[Any, Any]) -> Tensor:
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
    place = alu(Op.IDIV, (above, const(_INT32, below)))
    wide = dtype if dtype.bits == 64 else dtypes.float32
    part = (above - place * below).cast(wide) / const(wide, below)
    return place, part.cast(dtype)


def _picked(x: Tensor, axis: int, place: UOp, n: int) -> Tensor:
    """The elements of an axis at `place`, the ends standing for what lies beyond them."""
    place = alu(Op.MIN, (alu(Op.MAX, (place, const(_INT32, 0))), const(_INT32, n - 1)))
    m = place.shape[0] if place.shape else 1
    s = x.shape
    index = reshape(broadcast(place, (m,)), (1,) * axis + (m,) + (1,) * (len(s) - axis - 1))
    index = expand(index, (*s[:axis], m, *s[axis + 1 :]))
    return x._new(UOp(Op.GATHER, x.uop.dtype, (x.uop, index), axis))


def cubic(t: Any) -> tuple[Any, Any, Any, Any]:
    """Keys's weights (a = -0.75) of four neighbours, for what lies `t` after the second."""
    a = -0.75

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return far(t + 1), near(t), near(1 - t), far(2 - t)


@function(functional=True)
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


@function(functional=True)
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
