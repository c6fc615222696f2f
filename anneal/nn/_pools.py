"""Pools over one to three axes, with torch's names and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from anneal.errors import ShapeError
from anneal.nn import functional as F
from anneal.nn._module import Module
from anneal.ops import checked
from anneal.tensor import Tensor
from anneal.tensor import functional as plain

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]

Sizes = int | Sequence[int]
Outputs = int | Sequence[int | None]


class _MaxPool(Module):
    axes: ClassVar[int]

    @checked
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    @checked
    def forward(self, x: Tensor) -> Tensor:
        if self.return_indices:
            pick = (F.max_pool1d_with_indices, F.max_pool2d_with_indices, F.max_pool3d_with_indices)[self.axes - 1]
            return pick(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)  # type: ignore[return-value]
        pool = (plain.max_pool1d, plain.max_pool2d, plain.max_pool3d)[self.axes - 1]
        return pool(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


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
        divisor_override: int | None = None,
    ) -> None:
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    @checked
    def forward(self, x: Tensor) -> Tensor:
        pool = F.avg_pool2d if self.axes == 2 else F.avg_pool3d
        padding, include = self.padding, self.count_include_pad
        return pool(x, self.kernel_size, self.stride, padding, self.ceil_mode, include, self.divisor_override)


class _AdaptiveMaxPool(Module):
    axes: ClassVar[int]

    @checked
    def __init__(self, output_size: Outputs, return_indices: bool = False) -> None:
        self.output_size, self.return_indices = output_size, return_indices

    @checked
    def forward(self, x: Tensor) -> Tensor:
        if self.return_indices:
            pick = (
                F.adaptive_max_pool1d_with_indices,
                F.adaptive_max_pool2d_with_indices,
                F.adaptive_max_pool3d_with_indices,
            )[self.axes - 1]
            return pick(x, self.output_size)  # type: ignore[return-value]
        return (plain.adaptive_max_pool1d, plain.adaptive_max_pool2d, plain.adaptive_max_pool3d)[self.axes - 1](
            x, self.output_size
        )


class _FractionalMaxPool(Module):
    axes: ClassVar[int]

    @checked
    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        if (output_size is None) == (output_ratio is None):
            raise ShapeError(f"{type(self).__name__}: give output_size or output_ratio, and not both")
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices, self._random_samples = return_indices, _random_samples

    @checked
    def forward(self, x: Tensor) -> Tensor:
        pool = F.fractional_max_pool2d_with_indices if self.axes == 2 else F.fractional_max_pool3d_with_indices
        pair = pool(x, self.kernel_size, self.output_size, self.output_ratio, True, self._random_samples)
        return pair if self.return_indices else pair.values  # type: ignore[return-value]


class _LPPool(Module):
    axes: ClassVar[int]

    @checked
    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    @checked
    def forward(self, x: Tensor) -> Tensor:
        pool = (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)[self.axes - 1]
        return pool(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class MaxPool1d(_MaxPool):
    """The largest value of each window over the last axis; see `functional.max_pool1d`. Arguments as for `MaxPool2d`.

    >>> MaxPool1d(2)(Tensor.ones(1, 3, 4)).shape
    (1, 3, 2)
    """

    axes = 1


class AvgPool1d(Module):
    """The mean of each window over the last axis; see `functional.avg_pool1d`. Arguments as for `AvgPool2d`.

    >>> AvgPool1d(2)(Tensor([[[1.0, 3.0, 5.0, 7.0]]]))
    Tensor([[[2., 6.]]], dtype=float32)
    """

    @checked
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad = (
            kernel_size,
            kernel_size if stride is None else stride,
            padding,
            ceil_mode,
            count_include_pad,
        )

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool1d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class MaxUnpool1d(Module):
    """Values back where `MaxPool1d(return_indices=True)` found them, and zeros elsewhere.

    >>> pair = MaxPool1d(2, return_indices=True)(Tensor.ones(1, 3, 4))
    >>> MaxUnpool1d(2)(*pair).shape
    (1, 3, 4)
    """

    @checked
    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    @checked
    def forward(self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return F.max_unpool1d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class AdaptiveAvgPool1d(Module):
    """Means of as many windows as `output_size` says, over the last axis.

    >>> AdaptiveAvgPool1d(2)(Tensor.ones(1, 3, 4)).shape
    (1, 3, 2)
    """

    @checked
    def __init__(self, output_size: Outputs) -> None:
        self.output_size = output_size

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(x, self.output_size)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest values of as many windows as `output_size` says, over the last axis.

    `return_indices` gives a pair, with where they stand.

    >>> AdaptiveMaxPool1d(2)(Tensor.ones(1, 3, 4)).shape
    (1, 3, 2)
    """

    axes = 1


class LPPool1d(_LPPool):
    """(sum of x ** norm_type) ** (1 / norm_type) over each window of the last axis.

    >>> LPPool1d(2.0, 2)(Tensor.ones(1, 3, 4)).shape
    (1, 3, 2)
    """

    axes = 1


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

    axes = 2


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

    axes = 2


class MaxUnpool2d(Module):
    """Values back where `MaxPool2d(return_indices=True)` found them, and zeros elsewhere.

    >>> pair = MaxPool2d(2, return_indices=True)(Tensor.ones(1, 3, 4, 4))
    >>> MaxUnpool2d(2)(*pair).shape
    (1, 3, 4, 4)
    """

    @checked
    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    @checked
    def forward(self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return F.max_unpool2d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class AdaptiveAvgPool2d(Module):
    """Means of as many windows as `output_size` says, over the last two axes.

    >>> AdaptiveAvgPool2d(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """

    @checked
    def __init__(self, output_size: Outputs) -> None:
        self.output_size = output_size

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.output_size)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest values of as many windows as `output_size` says, over the last two axes.

    `return_indices` gives a pair, with where they stand.

    >>> AdaptiveMaxPool2d(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """

    axes = 2


class LPPool2d(_LPPool):
    """(sum of x ** norm_type) ** (1 / norm_type) over each window of the last two axes.

    >>> LPPool2d(2.0, 2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """

    axes = 2


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest value of windows that begin at random places over the last two axes (Graham, 2014).

    `output_size` or `output_ratio` says how many there are; `return_indices` gives a pair, with where they stand.

    >>> FractionalMaxPool2d(2, output_size=3)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 3, 3)
    """

    axes = 2


class MaxPool3d(_MaxPool):
    """The largest value of each window over the last three axes; see `functional.max_pool3d`. Arguments as for
    `MaxPool2d`.

    >>> MaxPool3d(2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """

    axes = 3


class AvgPool3d(_AvgPool):
    """The mean of each window over the last three axes; see `functional.avg_pool3d`. Arguments as for `AvgPool2d`.

    >>> AvgPool3d(2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """

    axes = 3


class MaxUnpool3d(Module):
    """Values back where `MaxPool3d(return_indices=True)` found them, and zeros elsewhere.

    >>> pair = MaxPool3d(2, return_indices=True)(Tensor.ones(1, 3, 4, 4, 4))
    >>> MaxUnpool3d(2)(*pair).shape
    (1, 3, 4, 4, 4)
    """

    @checked
    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    @checked
    def forward(self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return F.max_unpool3d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class AdaptiveAvgPool3d(Module):
    """Means of as many windows as `output_size` says, over the last three axes.

    >>> AdaptiveAvgPool3d(2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """

    @checked
    def __init__(self, output_size: Outputs) -> None:
        self.output_size = output_size

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(x, self.output_size)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest values of as many windows as `output_size` says, over the last three axes.

    `return_indices` gives a pair, with where they stand.

    >>> AdaptiveMaxPool3d(2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """

    axes = 3


class LPPool3d(_LPPool):
    """(sum of x ** norm_type) ** (1 / norm_type) over each window of the last three axes.

    >>> LPPool3d(2.0, 2)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """

    axes = 3


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest value of windows that begin at random places over the last three axes (Graham, 2014).

    `output_size` or `output_ratio` says how many there are; `return_indices` gives a pair, with where they stand.

    >>> FractionalMaxPool3d(2, output_size=3)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 3, 3, 3, 3)
    """

    axes = 3
