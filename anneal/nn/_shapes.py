"""Layers that change the shape or size of their input, with torch's names and arguments."""

from __future__ import annotations

from collections.abc import Sequence

from anneal.errors import ShapeError
from anneal.nn import functional as F
from anneal.nn._module import Module
from anneal.ops import MODES, checked
from anneal.tensor import Tensor

__all__ = [
    "ChannelShuffle",
    "Flatten",
    "Fold",
    "PixelShuffle",
    "PixelUnshuffle",
    "Unflatten",
    "Unfold",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]

Sizes = int | Sequence[int]


class Flatten(Module):
    """A layer that joins the axes from `start_dim` to `end_dim`: (batch, channels, h, w) to (batch, channels * h * w).

    >>> Flatten()(Tensor.ones(2, 3, 4, 4)).shape
    (2, 48)
    """

    @checked
    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """A layer that splits one axis into several.

    >>> Unflatten(1, (3, 4))(Tensor.ones(2, 12)).shape
    (2, 3, 4)
    """

    @checked
    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim, self.unflattened_size = dim, unflattened_size

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(self.dim, self.unflattened_size)


class Unfold(Module):
    """The windows of (batch, channels, h, w) as columns: (batch, channels * kh * kw, windows).

    >>> Unfold(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 12, 9)
    """

    @checked
    def __init__(self, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> None:
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Module):
    """A layer that puts columns, as `Unfold` makes them, back in place and adds them up: (batch, channels, h, w).

    >>> Fold(4, 2)(Tensor.ones(1, 12, 9)).shape
    (1, 3, 4, 4)
    """

    @checked
    def __init__(
        self, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ) -> None:
        self.output_size, self.kernel_size, self.dilation, self.padding, self.stride = (
            output_size,
            kernel_size,
            dilation,
            padding,
            stride,
        )

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class PixelShuffle(Module):
    """A layer that turns channels into pixels: (batch, c * r * r, h, w) to (batch, c, h * r, w * r).

    >>> PixelShuffle(2)(Tensor.ones(1, 8, 3, 3)).shape
    (1, 2, 6, 6)
    """

    @checked
    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = upscale_factor

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Module):
    """A layer that turns pixels into channels, the inverse of `PixelShuffle`: (batch, c, h * r, w * r) to (batch, c * r
    * r, h, w).

    >>> PixelUnshuffle(2)(Tensor.ones(1, 2, 6, 6)).shape
    (1, 8, 3, 3)
    """

    @checked
    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = downscale_factor

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, self.downscale_factor)


class ChannelShuffle(Module):
    """The channels of (batch, channels, ...) dealt from `groups` groups in turn.

    >>> ChannelShuffle(2)(Tensor.arange(4).reshape(1, 4, 1)).flatten().tolist()
    [0, 2, 1, 3]
    """

    @checked
    def __init__(self, groups: int) -> None:
        self.groups = groups

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.channel_shuffle(x, self.groups)


class Upsample(Module):
    """A larger image from (batch, channels, h, w): "nearest", "bilinear" and other modes of `functional.interpolate`.

    One of `size` (of the result) and `scale_factor` is given; `recompute_scale_factor` makes sizes of the factors
    first.
    Raises ShapeError for a mode that does not exist.

    >>> Upsample(scale_factor=2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 8, 8)
    """

    @checked
    def __init__(
        self,
        size: Sizes | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        if mode not in MODES:
            raise ShapeError(f"{type(self).__name__}: mode is one of {', '.join(MODES)}, not {mode!r}")
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    @checked
    def forward(self, x: Tensor) -> Tensor:
        size, factor = self.size, self.scale_factor
        if self.recompute_scale_factor and factor is not None:
            factors = [factor] * (x.ndim - 2) if isinstance(factor, (int, float)) else list(factor)
            size, factor = [int(n * f) for n, f in zip(x.shape[2:], factors, strict=True)], None
        return F.interpolate(x, size, factor, self.mode, self.align_corners)


class UpsamplingNearest2d(Upsample):
    """`Upsample` with mode "nearest".

    >>> UpsamplingNearest2d(scale_factor=2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 8, 8)
    """

    @checked
    def __init__(self, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """`Upsample` with mode "bilinear" whose corners stay corners.

    >>> UpsamplingBilinear2d(scale_factor=2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 8, 8)
    """

    @checked
    def __init__(self, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)
