"""Convolutions and pools over one to three axes, with torch's names, arguments, parameter names and layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from anneal.errors import ShapeError
from anneal.nn import init
from anneal.nn._module import Module
from anneal.ops import MODES, checked
from anneal.tensor import Tensor
from anneal.tensor import functional as F

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Upsample",
]

Sizes = int | Sequence[int]


def _kernel(size: Sizes, axes: int) -> tuple[int, ...]:
    return (size,) * axes if isinstance(size, int) else tuple(size)


def _check_groups(name: str, groups: int, channels: int, out: int) -> None:
    if groups < 1 or channels % groups or out % groups:
        raise ShapeError(f"{name}: {groups} groups do not divide {channels} and {out} channels")


class _Conv(Module):
    axes: ClassVar[int]

    @checked
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        _check_groups(type(self).__name__, groups, in_channels, out_channels)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = _kernel(kernel_size, self.axes)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight: Tensor = init.kaiming_uniform(shape)
        self.bias: Tensor | None = init.uniform((out_channels,), 1 / math.sqrt(init.fan(shape)[0])) if bias else None

    @checked
    def forward(self, x: Tensor) -> Tensor:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.axes - 1]
        return convolve(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


class Conv1d(_Conv):
    """1-D convolution: (batch, in_channels, n) to (batch, out_channels, on); arguments as for `Conv2d`.

    >>> Conv1d(3, 8, 3, padding=1)(Tensor.ones(1, 3, 5)).shape
    (1, 8, 5)
    """

    axes = 1


class Conv2d(_Conv):
    """2-D convolution: (batch, in_channels, h, w) to (batch, out_channels, oh, ow); see `functional.conv2d`.

    Args:
        kernel_size, stride, padding, dilation: one number, or one for each axis; padding may be "same" or "valid".
        groups: into how many parts the channels fall that do not mix. bias: whether there is one, of (out_channels,).

    Raises ShapeError for groups that do not divide the channels, or an x that the kernel does not fit.

    >>> Conv2d(3, 8, 3, padding=1)(Tensor.ones(1, 3, 5, 5)).shape
    (1, 8, 5, 5)
    """

    axes = 2


class Conv3d(_Conv):
    """3-D convolution: (batch, in_channels, d, h, w) to (batch, out_channels, od, oh, ow); arguments as for `Conv2d`.

    >>> Conv3d(1, 2, 3)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 2, 2, 2, 2)
    """

    axes = 3


class _ConvTranspose(Module):
    axes: ClassVar[int]

    @checked
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
    ) -> None:
        _check_groups(type(self).__name__, groups, in_channels, out_channels)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = _kernel(kernel_size, self.axes)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.groups, self.dilation = groups, dilation
        # Input channels first. torch counts the inputs of a weight on axis 1 all the same, and starts from that.
        shape = (in_channels, out_channels // groups, *self.kernel_size)
        self.weight: Tensor = init.kaiming_uniform(shape)
        self.bias: Tensor | None = init.uniform((out_channels,), 1 / math.sqrt(init.fan(shape)[0])) if bias else None

    @checked
    def forward(self, x: Tensor) -> Tensor:
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.axes - 1]
        return convolve(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


class ConvTranspose1d(_ConvTranspose):
    """Transposed 1-D convolution: (batch, in_channels, n) to (batch, out_channels, on); arguments as for
    `ConvTranspose2d`.

    >>> ConvTranspose1d(2, 1, 4, stride=2, padding=1)(Tensor.ones(1, 2, 5)).shape
    (1, 1, 10)
    """

    axes = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed 2-D convolution, (batch, in_channels, h, w) to (batch, out_channels, oh, ow): what makes images
    larger.

    Args:
        kernel_size, stride, padding, dilation: one number, or one for each axis.
        output_padding: how much longer the result is at its ends, where several sizes would give this x.
        groups: into how many parts the channels fall that do not mix. bias: whether there is one, of (out_channels,).

    Raises ShapeError for groups that do not divide the channels, or an x that does not fit.

    >>> ConvTranspose2d(8, 3, 4, stride=2, padding=1)(Tensor.ones(1, 8, 5, 5)).shape
    (1, 3, 10, 10)
    """

    axes = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed 3-D convolution: (batch, in_channels, d, h, w) to (batch, out_channels, od, oh, ow); arguments as for
    `ConvTranspose2d`.

    >>> ConvTranspose3d(1, 1, 2, stride=2)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3


class _MaxPool(Module):
    axes: ClassVar[int]

    @checked
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        *,
        ceil_mode: bool = False,
    ) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.ceil_mode = dilation, ceil_mode

    @checked
    def forward(self, x: Tensor) -> Tensor:
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[self.axes - 1]
        return pool(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)

    def extra_repr(self) -> str:
        return f"{self.kernel_size}"


class MaxPool1d(_MaxPool):
    """The largest value of each window over the last axis; arguments as for `MaxPool2d`.

    >>> MaxPool1d(2)(Tensor([[[1.0, 3.0, 7.0, 5.0]]]))
    Tensor([[[3., 7.]]], dtype=float32)
    """

    axes = 1


class MaxPool2d(_MaxPool):
    """The largest value of each window over the last two axes; see `functional.max_pool2d`.

    Args:
        kernel_size, stride, padding, dilation: one number, or one for each axis; the stride is the kernel's size where
            none is given. ceil_mode: whether a window that begins inside counts, though it ends outside.

    Raises ShapeError for an x that the window does not fit.

    >>> MaxPool2d(2)(Tensor.ones(1, 3, 4, 6)).shape
    (1, 3, 2, 3)
    """

    axes = 2


class MaxPool3d(_MaxPool):
    """The largest value of each window over the last three axes; arguments as for `MaxPool2d`.

    >>> MaxPool3d(2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """

    axes = 3


class _AvgPool(Module):
    axes: ClassVar[int]

    @checked
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    @checked
    def forward(self, x: Tensor) -> Tensor:
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[self.axes - 1]
        return pool(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"{self.kernel_size}"


class AvgPool1d(_AvgPool):
    """The mean of each window over the last axis; arguments as for `AvgPool2d`.

    >>> AvgPool1d(2)(Tensor([[[1.0, 3.0, 5.0, 7.0]]]))
    Tensor([[[2., 6.]]], dtype=float32)
    """

    axes = 1


class AvgPool2d(_AvgPool):
    """The mean of each window over the last two axes; see `functional.avg_pool2d`.

    Args:
        kernel_size, stride, padding: one number, or one for each axis; the stride is the kernel's size where none is
            given. ceil_mode: whether a window that begins inside counts, though it ends outside.
        count_include_pad: whether padding counts in the mean.

    Raises ShapeError for an x that the window does not fit.

    >>> AvgPool2d(2)(Tensor([[[[1.0, 3.0], [5.0, 7.0]]]]))
    Tensor([[[[4.]]]], dtype=float32)
    """

    axes = 2


class AvgPool3d(_AvgPool):
    """The mean of each window over the last three axes; arguments as for `AvgPool2d`.

    >>> AvgPool3d(2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """

    axes = 3


class AdaptiveAvgPool1d(Module):
    """Means of as many windows as `output_size` says, over the last axis.

    >>> AdaptiveAvgPool1d(2)(Tensor([[[1.0, 3.0, 5.0, 7.0]]]))
    Tensor([[[2., 6.]]], dtype=float32)
    """

    @checked
    def __init__(self, output_size: int) -> None:
        self.output_size = output_size

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(x, self.output_size)


class AdaptiveAvgPool2d(Module):
    """Means of as many windows as `output_size` says, over the last two axes; 1 is the mean of an image.

    >>> AdaptiveAvgPool2d(1)(Tensor.ones(2, 3, 5, 5)).shape
    (2, 3, 1, 1)
    """

    @checked
    def __init__(self, output_size: Sizes) -> None:
        self.output_size = output_size

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.output_size)


class Upsample(Module):
    """A larger image from (batch, channels, h, w): "nearest", "bilinear" and other modes of `functional.interpolate`.

    One of `size` (of the result) and `scale_factor` is given. Raises ShapeError for a mode that does not exist.

    >>> Upsample(scale_factor=2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 8, 8)
    """

    @checked
    def __init__(
        self,
        size: Sizes | None = None,
        scale_factor: float | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        if mode not in MODES:
            raise ShapeError(f"Upsample: mode is one of {', '.join(MODES)}, not {mode!r}")
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)
