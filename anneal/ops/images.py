"""Functions of images beyond convolutions and pools: columns put back, sampling at places, norms over neighbours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.errors import DTypeError, ShapeError
from anneal.ops.arguments import function
from anneal.ops.data import Array
from anneal.ops.indexing import gathered
from anneal.ops.resize import cubic
from anneal.ops.windows import Sizes, per_axis

if TYPE_CHECKING:
    from anneal.tensor import Tensor


@function(functional=True, method=False)
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
    out, k = per_axis("fold", "output_size", output_size, 2), per_axis("fold", "kernel_size", kernel_size, 2)
    d, s = per_axis("fold", "dilation", dilation, 2), per_axis("fold", "stride", stride, 2)
    p = per_axis("fold", "padding", padding, 2, 0)
    whole = [a + 2 * b for a, b in zip(out, p, strict=True)]
    counts = [(n - dd * (kk - 1) - 1) // ss + 1 for n, kk, dd, ss in zip(whole, k, d, s, strict=True)]
    batch, columns, places = x.shape
    if columns % math.prod(k) or places != math.prod(counts):
        raise ShapeError(
            f"fold: shape {x.shape} is not (batch, channels*{math.prod(k)}, {math.prod(counts)}): an image of {out} "
            f"has {counts[0]} x {counts[1]} windows of {k}"
        )
    windows = x.reshape(batch, columns // math.prod(k), *k, *counts)
    total: Any = None
    for i in range(k[0]):
        for j in range(k[1]):
            piece: Any = windows[:, :, i, j]
            for axis, (n, step, first, size) in enumerate(zip(counts, s, (i * d[0], j * d[1]), whole, strict=True), 2):
                piece = _spread(piece, axis, n, step, first, size)
            total = piece if total is None else total + piece
    image: Tensor = total.shrink([None, None, (p[0], p[0] + out[0]), (p[1], p[1] + out[1])])
    return image


def _spread(x: Any, axis: int, n: int, step: int, first: int, size: int) -> Any:
    """The `n` elements of an axis `step` apart, from `first` on, in zeros of `size`."""
    shape = x.shape
    if step > 1:
        x = x.unsqueeze(axis + 1).pad(((0, 0),) * (axis + 1) + ((0, step - 1),) + ((0, 0),) * (len(shape) - axis - 1))
        x = x.reshape(*shape[:axis], n * step, *shape[axis + 1 :]).narrow(axis, 0, (n - 1) * step + 1)
    length = (n - 1) * step + 1
    return x.pad(((0, 0),) * axis + ((first, size - first - length),) + ((0, 0),) * (len(shape) - axis - 1))


def _line(n: int) -> Array:
    """torch's linspace(-1, 1, n) to the last bit: the grid of the identity lies on the kinks of `grid_sample`, where a
    last bit chooses the slope. Its product and sum are rounded once (an FMA), from whichever end is nearer."""
    i, step = np.arange(n), np.float64(np.float32(2.0) / np.float32(max(n - 1, 1)))
    line: Array = np.where(i < n // 2, -1.0 + step * i, 1.0 - step * (n - 1 - i)) if n > 1 else np.zeros(n)
    return line.astype(np.float32)


@function(functional=True, method=False)
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """The places (batch, h, w, 2), from -1 to 1, that 2x3 matrices make of the pixels of an image of `size` (n, c, h,
    w).

    >>> from anneal.tensor import Tensor
    >>> affine_grid(Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2))
    Tensor([[[[-0.5,  0. ],
              [ 0.5,  0. ]]]], dtype=float32)
    """
    if len(size) != 4 or theta.shape != (size[0], 2, 3):
        raise ShapeError(
            f"affine_grid: takes theta of shape (n, 2, 3) and a size (n, c, h, w), not {theta.shape}, {size}"
        )
    _, _, h, w = size
    axes = []
    for n in (w, h):
        line = type(theta)(_line(n), device=theta.device).cast(theta.dtype)
        axes.append(line if align_corners else line * (n - 1) / n)
    x, y = axes[0].reshape(1, w).expand(h, w), axes[1].reshape(h, 1).expand(h, w)
    points: Any = x.stack(y, x.ones_like(), dim=-1).reshape(1, h * w, 3)
    out: Tensor = (points @ theta.mT).reshape(size[0], h, w, 2)
    return out


@function(functional=True, method=False)
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
    modes = ("bilinear", "nearest", "bicubic") if axes == 2 else ("bilinear", "nearest")
    if mode not in modes or padding_mode not in ("zeros", "border", "reflection"):
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
    places: list[Any] = []
    for k, size in zip(range(axes - 1, -1, -1), sizes, strict=True):
        at: Any = grid[..., k].reshape(x.shape[0], -1)
        places.append((at + 1.0) * ((size - 1) / 2) if corners else (at + 1.0) * (size / 2) - 0.5)
    read = _Reader(x, padding_mode, corners)
    if mode == "bicubic":
        out = _by_cubes(read, places)
    else:
        places = [read.inside(at, n) for at, n in zip(places, sizes, strict=True)]
        out = read.at([at.round() for at in places]) if mode == "nearest" else _by_lines(read, places)
    result: Tensor = out.reshape(*x.shape[:2], *grid.shape[1:-1])
    return result


class _Reader:
    """Pixels by their places, one row of floats for each axis; what lies outside as `padding_mode` says."""

    def __init__(self, x: Tensor, padding_mode: str, corners: bool) -> None:
        self.flat = x.reshape(*x.shape[:2], -1)
        self.sizes = x.shape[2:]
        self.padding_mode = padding_mode
        self.corners = corners

    def inside(self, at: Any, n: int) -> Any:
        """Places of an axis moved into it."""
        if self.padding_mode == "zeros":
            return at
        if self.padding_mode == "reflection":
            first, span = (0.0, n - 1.0) if self.corners else (-0.5, float(n))
            if not span:
                return at * 0.0
            far = (at - first).abs()
            turns = (far / span).detach().floor()
            rest = far - turns * span
            at = (turns % 2.0).eq(0.0).where(rest, span - rest) + first
        return at.clip(0.0, n - 1.0)

    def at(self, places: list[Any]) -> Any:
        """The pixels (n, c, m) at whole places, 0 outside."""
        inside: Any = None
        index: Any = None
        for at, n in zip(places, self.sizes, strict=True):
            here = (at >= 0.0) & (at <= n - 1.0)
            inside = here if inside is None else inside & here
            step = at.detach().clip(0.0, n - 1.0)
            index = step if index is None else index * float(n) + step
        index = inside.where(index.cast("int32"), -1)  # out of range reads 0
        wide = index.unsqueeze(1).expand(*self.flat.shape[:2], index.shape[-1])
        return gathered(self.flat, 2, wide.uop)


def _by_lines(read: _Reader, places: list[Any]) -> Any:
    """Between the neighbours along every axis: each weighs what the place is nearer to it."""
    low = [at.detach().floor() for at in places]
    parts = [at - below for at, below in zip(places, low, strict=True)]
    total: Any = None
    for corner in itertools.product((0.0, 1.0), repeat=len(places)):
        weight: Any = None
        for up, part in zip(corner, parts, strict=True):
            share = part if up else 1.0 - part
            weight = share if weight is None else weight * share
        term = read.at([below + up for below, up in zip(low, corner, strict=True)]) * weight.unsqueeze(1)
        total = term if total is None else total + term
    return total


def _by_cubes(read: _Reader, places: list[Any]) -> Any:
    """Bicubic values: of 4 by 4 neighbours, by Keys's weights; each neighbour is moved inside, not the place."""
    low = [at.detach().floor() for at in places]
    weights = [cubic(at - below) for at, below in zip(places, low, strict=True)]
    total: Any = None
    for i, j in itertools.product(range(4), repeat=2):
        near = [read.inside(b + (k - 1.0), n) for b, k, n in zip(low, (i, j), read.sizes, strict=True)]
        term = read.at(near) * (weights[0][i] * weights[1][j]).unsqueeze(1)
        total = term if total is None else total + term
    return total


@function(functional="channel_shuffle native_channel_shuffle", method=False)
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
