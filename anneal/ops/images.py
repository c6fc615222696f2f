"""Functions of images beyond convolutions and pools: columns put back, sampling at places, norms over neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anneal.errors import DTypeError, ShapeError
from anneal.ops.arguments import checked
from anneal.ops.indexing import gathered
from anneal.ops.windows import Sizes, per_axis

if TYPE_CHECKING:
    from anneal.tensor import Tensor

__all__ = ["affine_grid", "channel_shuffle", "fold", "grid_sample"]


@checked
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
            f"fold: shape {x.shape} is not (batch, channels*{math.prod(k)}, {math.prod(counts)}): an image of {out} has "
            f"{counts[0]} x {counts[1]} windows of {k}"
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


@checked
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
        i = type(theta).arange(n, device=theta.device, dtype=theta.dtype)
        if align_corners:
            axes.append(i * (2 / (n - 1)) - 1.0 if n > 1 else i)
        else:
            axes.append((i + 0.5) * (2 / n) - 1.0)
    x, y = axes[0].reshape(1, w).expand(h, w), axes[1].reshape(h, 1).expand(h, w)
    points: Any = x.stack(y, x.ones_like(), dim=-1).reshape(1, h * w, 3)
    out: Tensor = (points @ theta.mT).reshape(size[0], h, w, 2)
    return out


@checked
def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    """Images (n, c, h, w) read at places (n, oh, ow, 2): (x, y) from -1 to 1, between pixels by their neighbours.

    mode is "bilinear" or "nearest"; what lies outside is "zeros" or the "border".

    >>> from anneal.tensor import Tensor
    >>> grid_sample(Tensor([[[[1.0, 3.0]]]]), Tensor([[[[0.0, 0.0]]]]))
    Tensor([[[[2.]]]], dtype=float32)
    """
    if x.ndim != 4 or grid.ndim != 4 or grid.shape[-1] != 2 or grid.shape[0] != x.shape[0]:
        raise ShapeError(f"grid_sample: takes (n, c, h, w) and (n, oh, ow, 2), not {x.shape} and {grid.shape}")
    if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border"):
        raise DTypeError(
            f'grid_sample: mode is "bilinear" or "nearest", padding_mode "zeros" or "border", not {mode!r}, {padding_mode!r}'
        )
    n, c, h, w = x.shape
    _, oh, ow, _ = grid.shape
    flat = x.reshape(n, c, h * w)
    places: list[Any] = []
    for k, size in ((0, w), (1, h)):
        at: Any = grid[..., k].reshape(n, oh * ow)
        at = (at + 1.0) * ((size - 1) / 2) if align_corners else (at + 1.0) * (size / 2) - 0.5
        places.append(at.clip(0.0, size - 1.0) if padding_mode == "border" else at)

    def pixel(column: Any, row: Any) -> Any:
        inside = (column >= 0.0) & (column <= w - 1.0) & (row >= 0.0) & (row <= h - 1.0)
        index = (row.clip(0.0, h - 1.0) * w + column.clip(0.0, w - 1.0)).cast("int32")
        index = inside.where(index, -1)  # out of range reads 0
        return gathered(flat, 2, index.unsqueeze(1).expand(n, c, oh * ow).uop)

    if mode == "nearest":
        nearest: Tensor = pixel(places[0].round(), places[1].round()).reshape(n, c, oh, ow)
        return nearest
    left, top = places[0].floor(), places[1].floor()
    right, down = (places[0] - left).unsqueeze(1), (places[1] - top).unsqueeze(1)
    upper = pixel(left, top) * (1.0 - right) + pixel(left + 1.0, top) * right
    lower = pixel(left, top + 1.0) * (1.0 - right) + pixel(left + 1.0, top + 1.0) * right
    out: Tensor = (upper * (1.0 - down) + lower * down).reshape(n, c, oh, ow)
    return out


@checked
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
