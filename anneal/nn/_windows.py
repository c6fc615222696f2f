"""Convolutions over one to three axes, with torch's names, arguments, parameter names and layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from anneal.errors import ShapeError
from anneal.nn import init
from anneal.nn._module import Resettable
from anneal.ops import DTypeLike, checked, per_axis
from anneal.tensor import Tensor
from anneal.tensor import functional as F

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

Sizes = int | Sequence[int]
_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


def _kernel(size: Sizes, axes: int) -> tuple[int, ...]:
    return (size,) * axes if isinstance(size, int) else tuple(size)


def _check_groups(name: str, groups: int, channels: int, out: int) -> None:
    if groups < 1 or channels % groups or out % groups:
        raise ShapeError(f"{name}: {groups} groups do not divide {channels} and {out} channels")


class _Conv(Resettable):
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
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        _check_groups(type(self).__name__, groups, in_channels, out_channels)
        if padding_mode not in _MODES:
            raise ShapeError(f"{type(self).__name__}: padding_mode is one of {', '.join(_MODES)}, not {padding_mode!r}")
        self.padding_mode = padding_mode
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = _kernel(kernel_size, self.axes)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight: Tensor = init.kaiming_uniform(shape)
        self.bias: Tensor | None = init.uniform((out_channels,), 1 / math.sqrt(init.fan(shape)[0])) if bias else None
        self._place(device, dtype)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.axes - 1]
        padding = self.padding
        if self.padding_mode != "zeros":
            x, padding = F.pad(x, self._sides(), _MODES[self.padding_mode]), 0
        return convolve(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _sides(self) -> list[int]:
        """The padding before and after each axis, the last axis first."""
        name = type(self).__name__
        if isinstance(self.padding, str):
            dilation = per_axis(name, "dilation", self.dilation, self.axes)
            whole = [d * (k - 1) * (self.padding == "same") for d, k in zip(dilation, self.kernel_size, strict=True)]
            pairs = [(n // 2, n - n // 2) for n in whole]
        else:
            pairs = [(n, n) for n in per_axis(name, "padding", self.padding, self.axes, 0)]
        return [n for pair in reversed(pairs) for n in pair]


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
        padding_mode: what padding is: "zeros", "reflect", "replicate" or "circular".

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


class _ConvTranspose(Resettable):
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
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        _check_groups(type(self).__name__, groups, in_channels, out_channels)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = _kernel(kernel_size, self.axes)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.groups, self.dilation = groups, dilation
        if padding_mode != "zeros":
            raise ShapeError(f'{type(self).__name__}: padding_mode is "zeros" alone, not {padding_mode!r}')
        # Input channels first. torch counts the inputs of a weight on axis 1 all the same, and starts from that.
        shape = (in_channels, out_channels // groups, *self.kernel_size)
        self.weight: Tensor = init.kaiming_uniform(shape)
        self.bias: Tensor | None = init.uniform((out_channels,), 1 / math.sqrt(init.fan(shape)[0])) if bias else None
        self._place(device, dtype)

    @checked
    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.axes - 1]
        more = self.output_padding if output_size is None else self._extra(x, output_size)
        return convolve(x, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)

    def _extra(self, x: Tensor, output_size: Sequence[int]) -> list[int]:
        """The output_padding that gives this size. Raises ShapeError if none does."""
        name = type(self).__name__
        stride, padding = (
            per_axis(name, "stride", self.stride, self.axes),
            per_axis(name, "padding", self.padding, self.axes, 0),
        )
        dilation = per_axis(name, "dilation", self.dilation, self.axes)
        wanted, given = list(output_size)[-self.axes :], x.shape[-self.axes :]
        more = []
        for w, n, s, p, d, k in zip(wanted, given, stride, padding, dilation, self.kernel_size, strict=True):
            least = (n - 1) * s - 2 * p + d * (k - 1) + 1
            if not least <= w < least + s:
                raise ShapeError(f"{name}: output_size {tuple(output_size)}: an axis gives {least} to {least + s - 1}")
            more.append(w - least)
        return more


class ConvTranspose1d(_ConvTranspose):
    """Transposed 1-D convolution: (batch, in_channels, n) to (batch, out_channels, on); arguments as for
    `ConvTranspose2d`.

    >>> ConvTranspose1d(2, 1, 4, stride=2, padding=1)(Tensor.ones(1, 2, 5)).shape
    (1, 1, 10)
    """

    axes = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed 2-D convolution, which enlarges images: (batch, in_channels, h, w) to (batch, out_channels, oh, ow).

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
