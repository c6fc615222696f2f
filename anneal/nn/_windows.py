"""Convolutions and pools over one to three axes, with torch's names, arguments, parameter names and layouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

from anneal.errors import ShapeError
from anneal.nn import functional as F, init
from anneal.nn._module import Resettable
from anneal.nn._rows import Row, Unary
from anneal.ops import DTypeLike, checked, per_axis
from anneal.tensor import Tensor

Sizes = int | Sequence[int]
Outputs = int | Sequence[int | None]
_MODES = ("zeros", "reflect", "replicate", "circular")


class _Kernels(Resettable):
    """A layer with kernels, and a bias for each output channel."""

    axes: ClassVar[int]

    def _hold(self, channels: tuple[int, int], kernel: Sizes, groups: int, bias: bool, turned: bool = False) -> None:
        """Take the sizes of the kernels; their output channels come first, or if it is `turned` second."""
        if groups < 1 or channels[0] % groups or channels[1] % groups:
            raise ShapeError(
                f"{type(self).__name__}: {groups} groups do not divide {channels[0]} and {channels[1]} channels"
            )
        self.in_channels, self.out_channels, self.groups, self.transposed = *channels, groups, turned
        self.kernel_size = (kernel,) * self.axes if isinstance(kernel, int) else tuple(kernel)
        first, second = channels if turned else channels[::-1]
        # torch counts the inputs of a weight on axis 1 in either order, and starts from that.
        shape = (first, second // groups, *self.kernel_size)
        self.weight: Tensor = init.kaiming_uniform(shape)
        bound = 1 / math.sqrt(init.fan(shape)[0])
        self.bias: Tensor | None = init.uniform(channels[1:], bound) if bias else None

    def _move(self, stride: Sizes, dilation: Sizes, output_padding: Sizes) -> None:
        """Take how the kernels move: a number for each axis, as in torch."""
        self.stride, self.dilation = per_axis("stride", stride, self.axes), per_axis("dilation", dilation, self.axes)
        self.output_padding = per_axis("output_padding", output_padding, self.axes, 0)


class _Conv(_Kernels):
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
        if padding_mode not in _MODES:
            raise ShapeError(f"{type(self).__name__}: padding_mode is one of {', '.join(_MODES)}, not {padding_mode!r}")
        self._hold((in_channels, out_channels), kernel_size, groups, bias)
        self.padding_mode = padding_mode
        self.padding: Sizes | str = padding if isinstance(padding, str) else per_axis("padding", padding, self.axes, 0)
        self._move(stride, dilation, 0)
        self._place(device, dtype)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        convolve: Callable[..., Tensor] = getattr(F, f"conv{self.axes}d")
        padding = self.padding
        if self.padding_mode != "zeros":
            x, padding = F.pad(x, self._sides(), self.padding_mode), 0
        return convolve(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _sides(self) -> list[int]:
        """The padding before and after each axis, the last axis first."""
        if isinstance(self.padding, str):
            dilation = per_axis("dilation", self.dilation, self.axes)
            whole = [d * (k - 1) * (self.padding == "same") for d, k in zip(dilation, self.kernel_size, strict=True)]
            pairs = [(n // 2, n - n // 2) for n in whole]
        else:
            pairs = [(n, n) for n in per_axis("padding", self.padding, self.axes, 0)]
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
        groups: the number of groups of channels, which do not mix. bias: whether there is one, of (out_channels,).
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


class _ConvTranspose(_Kernels):
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
        if padding_mode != "zeros":
            raise ShapeError(f'{type(self).__name__}: padding_mode is "zeros" alone, not {padding_mode!r}')
        self._hold((in_channels, out_channels), kernel_size, groups, bias, turned=True)
        self.padding_mode, self.padding = padding_mode, per_axis("padding", padding, self.axes, 0)
        self._move(stride, dilation, output_padding)
        self._place(device, dtype)

    @checked
    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        convolve: Callable[..., Tensor] = getattr(F, f"conv_transpose{self.axes}d")
        more = self.output_padding if output_size is None else self._extra(x, output_size)
        return convolve(x, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)

    def _extra(self, x: Tensor, output_size: Sequence[int]) -> list[int]:
        """The output_padding that gives this size. Raises ShapeError if none does."""
        name = type(self).__name__
        stride, padding = per_axis("stride", self.stride, self.axes), per_axis("padding", self.padding, self.axes, 0)
        dilation = per_axis("dilation", self.dilation, self.axes)
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
        groups: the number of groups of channels, which do not mix. bias: whether there is one, of (out_channels,).

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


# -- pools -------------------------------------------------------------------------------------------------------------


class _Strided(Row):
    """A pool whose stride is the size of its windows unless it is given."""

    kernel_size: Sizes
    stride: Sizes | None = None
    padding: Sizes = 0

    def __post_init__(self) -> None:
        own = vars(self)
        if own["stride"] is None:
            own["stride"] = own["kernel_size"]


class _MaxPool(_Strided, Unary, of="kernel_size stride padding dilation ceil_mode return_indices"):
    dilation: Sizes = 1
    return_indices: bool = False
    ceil_mode: bool = False


class _Means(_Strided, Unary):
    ceil_mode: bool = False
    count_include_pad: bool = True


class _AvgPool(_Means):
    divisor_override: int | None = None


class _MaxUnpool(_Strided):
    @checked
    def forward(self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._function(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class _AdaptiveAvgPool(Unary):
    output_size: Outputs


class _AdaptiveMaxPool(Unary):
    output_size: Outputs
    return_indices: bool = False


class _LPPool(Unary):
    norm_type: float
    kernel_size: Sizes
    stride: Sizes | None = None
    ceil_mode: bool = False


class _FractionalMaxPool(Unary):
    kernel_size: Sizes
    output_size: Sizes | None = None
    output_ratio: float | Sequence[float] | None = None
    return_indices: bool = False
    _random_samples: Tensor | None = None

    def __post_init__(self) -> None:
        if (self.output_size is None) == (self.output_ratio is None):
            raise ShapeError(f"{type(self).__name__}: give output_size or output_ratio, and not both")


class MaxPool1d(_MaxPool):
    """The largest value of each window over the last axis; see `functional.max_pool1d`. Arguments as for `MaxPool2d`.

    >>> MaxPool1d(2)(Tensor.ones(1, 3, 4)).shape
    (1, 3, 2)
    """


class AvgPool1d(_Means):
    """The mean of each window over the last axis; see `functional.avg_pool1d`. Arguments as for `AvgPool2d`.

    >>> AvgPool1d(2)(Tensor([[[1.0, 3.0, 5.0, 7.0]]]))
    Tensor([[[2., 6.]]], dtype=float32)
    """


class MaxUnpool1d(_MaxUnpool):
    """Values back where `MaxPool1d(return_indices=True)` found them, and zeros elsewhere.

    >>> pair = MaxPool1d(2, return_indices=True)(Tensor.ones(1, 3, 4))
    >>> MaxUnpool1d(2)(*pair).shape
    (1, 3, 4)
    """


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means of as many windows as `output_size` says, over the last axis.

    >>> AdaptiveAvgPool1d(2)(Tensor.ones(1, 3, 4)).shape
    (1, 3, 2)
    """


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest values of as many windows as `output_size` says, over the last axis.

    `return_indices` gives a pair, with where they stand.

    >>> AdaptiveMaxPool1d(2)(Tensor.ones(1, 3, 4)).shape
    (1, 3, 2)
    """


class LPPool1d(_LPPool):
    """(sum of x ** norm_type) ** (1 / norm_type) over each window of the last axis.

    >>> LPPool1d(2.0, 2)(Tensor.ones(1, 3, 4)).shape
    (1, 3, 2)
    """


class MaxPool2d(_MaxPool):
    """The largest value of each window over the last two axes; see `functional.max_pool2d`.

    Args:
        kernel_size, stride, padding, dilation: one number, or one for each axis; the stride is the kernel's size where
            none is given. return_indices: gives a pair, with where the values stand for `MaxUnpool2d`.
        ceil_mode: whether a window that begins inside counts, though it ends outside.

    Raises ShapeError for an x that the window does not fit.

    >>> MaxPool2d(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """


class AvgPool2d(_AvgPool):
    """The mean of each window over the last two axes; see `functional.avg_pool2d`.

    Args:
        kernel_size, stride, padding: one number, or one for each axis; the stride is the kernel's size where none is
            given. ceil_mode: whether a window that begins inside counts, though it ends outside.
        count_include_pad: whether padding counts in the mean. divisor_override: what sums are divided by.

    Raises ShapeError for an x that the window does not fit.

    >>> AvgPool2d(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """


class MaxUnpool2d(_MaxUnpool):
    """Values back where `MaxPool2d(return_indices=True)` found them, and zeros elsewhere.

    >>> pair = MaxPool2d(2, return_indices=True)(Tensor.ones(1, 3, 4, 4))
    >>> MaxUnpool2d(2)(*pair).shape
    (1, 3, 4, 4)
    """


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means of as many windows as `output_size` says, over the last two axes.

    >>> AdaptiveAvgPool2d(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest values of as many windows as `output_size` says, over the last two axes.

    `return_indices` gives a pair, with where they stand.

    >>> AdaptiveMaxPool2d(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """


class LPPool2d(_LPPool):
    """(sum of x ** norm_type) ** (1 / norm_type) over each window of the last two axes.

    >>> LPPool2d(2.0, 2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest value of windows that begin at random places over the last two axes (Graham, 2014).

    `output_size` or `output_ratio` says how many there are; `return_indices` gives a pair, with where they stand.

    >>> FractionalMaxPool2d(2, output_size=3)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 3, 3)
    """


class MaxPool3d(_MaxPool):
    """The largest value of each window over the last three axes; see `functional.max_pool3d`. Arguments as for
    `MaxPool2d`.

    >>> MaxPool3d(2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """


class AvgPool3d(_AvgPool):
    """The mean of each window over the last three axes; see `functional.avg_pool3d`. Arguments as for `AvgPool2d`.

    >>> AvgPool3d(2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """


class MaxUnpool3d(_MaxUnpool):
    """Values back where `MaxPool3d(return_indices=True)` found them, and zeros elsewhere.

    >>> pair = MaxPool3d(2, return_indices=True)(Tensor.ones(1, 3, 4, 4, 4))
    >>> MaxUnpool3d(2)(*pair).shape
    (1, 3, 4, 4, 4)
    """


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means of as many windows as `output_size` says, over the last three axes.

    >>> AdaptiveAvgPool3d(2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest values of as many windows as `output_size` says, over the last three axes.

    `return_indices` gives a pair, with where they stand.

    >>> AdaptiveMaxPool3d(2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """


class LPPool3d(_LPPool):
    """(sum of x ** norm_type) ** (1 / norm_type) over each window of the last three axes.

    >>> LPPool3d(2.0, 2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest value of windows that begin at random places over the last three axes (Graham, 2014).

    `output_size` or `output_ratio` says how many there are; `return_indices` gives a pair, with where they stand.

    >>> FractionalMaxPool3d(2, output_size=3)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 3, 3, 3)
    """
