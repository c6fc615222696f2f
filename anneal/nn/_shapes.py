"""Layers that change the shape or size of their input, or pad it, with torch's names and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from anneal.errors import ShapeError
from anneal.nn import functional as F
from anneal.nn._rows import Row, Unary
from anneal.ops import MODES, checked
from anneal.tensor import Tensor

Sizes = int | Sequence[int]


class Flatten(Unary, function=Tensor.flatten):
    """A layer that joins the axes from `start_dim` to `end_dim`: (batch, channels, h, w) to (batch, channels * h * w).

    >>> Flatten()(Tensor.ones(2, 3, 4, 4)).shape
    (2, 48)
    """

    start_dim: int = 1
    end_dim: int = -1


class Unflatten(Unary, function=Tensor.unflatten):
    """A layer that splits one axis into several.

    >>> Unflatten(1, (3, 4))(Tensor.ones(2, 12)).shape
    (2, 3, 4)
    """

    dim: int
    unflattened_size: Sequence[int]


class Unfold(Unary):
    """The windows of (batch, channels, h, w) as columns: (batch, channels * kh * kw, windows).

    >>> Unfold(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 12, 9)
    """

    kernel_size: Sizes
    dilation: Sizes = 1
    padding: Sizes = 0
    stride: Sizes = 1


class Fold(Unary):
    """A layer that puts columns, as `Unfold` makes them, back in place and adds them up: (batch, channels, h, w).

    >>> Fold(4, 2)(Tensor.ones(1, 12, 9)).shape
    (1, 3, 4, 4)
    """

    output_size: Sizes
    kernel_size: Sizes
    dilation: Sizes = 1
    padding: Sizes = 0
    stride: Sizes = 1


class PixelShuffle(Unary):
    """A layer that turns channels into pixels: (batch, c * r * r, h, w) to (batch, c, h * r, w * r).

    >>> PixelShuffle(2)(Tensor.ones(1, 8, 3, 3)).shape
    (1, 2, 6, 6)
    """

    upscale_factor: int


class PixelUnshuffle(Unary):
    """A layer that turns pixels into channels, the inverse of `PixelShuffle`: (batch, c, h * r, w * r) to (batch, c * r
    * r, h, w).

    >>> PixelUnshuffle(2)(Tensor.ones(1, 2, 6, 6)).shape
    (1, 8, 3, 3)
    """

    downscale_factor: int


class ChannelShuffle(Unary):
    """The channels of (batch, channels, ...) dealt from `groups` groups in turn.

    >>> ChannelShuffle(2)(Tensor.arange(4).reshape(1, 4, 1)).flatten().tolist()
    [0, 2, 1, 3]
    """

    groups: int


class Upsample(Unary, function=F.interpolate):
    """A larger image from (batch, channels, h, w): "nearest", "bilinear" and other modes of `functional.interpolate`.

    One of `size` (of the result) and `scale_factor` is given; `recompute_scale_factor` makes sizes of the factors
    first.
    Raises ShapeError for a mode that does not exist.

    >>> Upsample(scale_factor=2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 8, 8)
    """

    size: Sizes | None = None
    scale_factor: float | Sequence[float] | None = None
    mode: str = "nearest"
    align_corners: bool | None = None
    recompute_scale_factor: bool | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ShapeError(f"{type(self).__name__}: mode is one of {', '.join(MODES)}, not {self.mode!r}")
        if f := self.scale_factor:
            self.scale_factor = tuple(map(float, f)) if isinstance(f, Sequence) else float(f)


class _Upsampling(Upsample):
    _how: ClassVar[Any] = ()

    @checked
    def __init__(self, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, *self._how)


class UpsamplingNearest2d(_Upsampling):
    """`Upsample` with mode "nearest".

    >>> UpsamplingNearest2d(scale_factor=2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 8, 8)
    """


class UpsamplingBilinear2d(_Upsampling):
    """`Upsample` with mode "bilinear" whose corners stay corners.

    >>> UpsamplingBilinear2d(scale_factor=2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 8, 8)
    """

    _how = ("bilinear", True)


class _Pad(Row):
    padding: Sizes
    axes: ClassVar[int]
    mode: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        given = (self.padding,) * (2 * self.axes) if isinstance(self.padding, int) else tuple(self.padding)
        if len(given) != 2 * self.axes:
            raise ShapeError(f"{type(self).__name__}: padding is one number or {2 * self.axes}, not {given}")
        vars(self)["padding"] = given

    @checked
    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in (self.axes + 1, self.axes + 2) and self.mode != "constant":
            raise ShapeError(
                f"{type(self).__name__}: x has {self.axes + 1} axes, or {self.axes + 2} with a batch, not shape "
                f"{x.shape}"
            )
        return F.pad(x, vars(self)["padding"], self.mode, getattr(self, "value", 0.0))


class _ConstantPad(_Pad):
    padding: Sizes
    value: float


class ZeroPad1d(_Pad):
    """Zeros around the last axis, after (batch, channels): `padding` on each side, or before and after, the last axis
    first.

    >>> ZeroPad1d(1)(Tensor.ones(1, 1, 2)).shape
    (1, 1, 4)
    """

    axes = 1


class ZeroPad2d(_Pad):
    """Zeros around the last two axes, after (batch, channels): `padding` on each side, or before and after, the last
    axis first.

    >>> ZeroPad2d(1)(Tensor.ones(1, 1, 2, 2)).shape
    (1, 1, 4, 4)
    """

    axes = 2


class ZeroPad3d(_Pad):
    """Zeros around the last three axes, after (batch, channels): `padding` on each side, or before and after, the last
    axis first.

    >>> ZeroPad3d(1)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3


class ConstantPad1d(_ConstantPad):
    """`value` around the last axis, after (batch, channels): `padding` on each side, or before and after, the last axis
    first.

    >>> ConstantPad1d(1, 5.0)(Tensor.ones(1, 1, 2)).shape
    (1, 1, 4)
    """

    axes = 1


class ConstantPad2d(_ConstantPad):
    """`value` around the last two axes, after (batch, channels): `padding` on each side, or before and after, the last
    axis first.

    >>> ConstantPad2d(1, 5.0)(Tensor.ones(1, 1, 2, 2)).shape
    (1, 1, 4, 4)
    """

    axes = 2


class ConstantPad3d(_ConstantPad):
    """`value` around the last three axes, after (batch, channels): `padding` on each side, or before and after, the
    last axis first.

    >>> ConstantPad3d(1, 5.0)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3


class ReflectionPad1d(_Pad):
    """The inside mirrored around the last axis, after (batch, channels): `padding` on each side, or before and after,
    the last axis first.

    >>> ReflectionPad1d(1)(Tensor.ones(1, 1, 2)).shape
    (1, 1, 4)
    """

    axes, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """The inside mirrored around the last two axes, after (batch, channels): `padding` on each side, or before and
    after, the last axis first.

    >>> ReflectionPad2d(1)(Tensor.ones(1, 1, 2, 2)).shape
    (1, 1, 4, 4)
    """

    axes, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """The inside mirrored around the last three axes, after (batch, channels): `padding` on each side, or before and
    after, the last axis first.

    >>> ReflectionPad3d(1)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The borders repeated around the last axis, after (batch, channels): `padding` on each side, or before and after,
    the last axis first.

    >>> ReplicationPad1d(1)(Tensor.ones(1, 1, 2)).shape
    (1, 1, 4)
    """

    axes, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The borders repeated around the last two axes, after (batch, channels): `padding` on each side, or before and
    after, the last axis first.

    >>> ReplicationPad2d(1)(Tensor.ones(1, 1, 2, 2)).shape
    (1, 1, 4, 4)
    """

    axes, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """The borders repeated around the last three axes, after (batch, channels): `padding` on each side, or before and
    after, the last axis first.

    >>> ReplicationPad3d(1)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """The other end around the last axis, after (batch, channels): `padding` on each side, or before and after, the
    last axis first.

    >>> CircularPad1d(1)(Tensor.ones(1, 1, 2)).shape
    (1, 1, 4)
    """

    axes, mode = 1, "circular"


class CircularPad2d(_Pad):
    """The other end around the last two axes, after (batch, channels): `padding` on each side, or before and after, the
    last axis first.

    >>> CircularPad2d(1)(Tensor.ones(1, 1, 2, 2)).shape
    (1, 1, 4, 4)
    """

    axes, mode = 2, "circular"


class CircularPad3d(_Pad):
    """The other end around the last three axes, after (batch, channels): `padding` on each side, or before and after,
    the last axis first.

    >>> CircularPad3d(1)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes, mode = 3, "circular"
