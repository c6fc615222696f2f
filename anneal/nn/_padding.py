"""Layers that pad, with torch's names and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from anneal.errors import ShapeError
from anneal.nn import functional as F
from anneal.nn._module import Module
from anneal.ops import checked
from anneal.tensor import Tensor

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]

Sizes = int | Sequence[int]


class _Pad(Module):
    axes: ClassVar[int]
    mode: ClassVar[str] = "constant"
    value: float = 0.0

    @checked
    def __init__(self, padding: Sizes) -> None:
        given = (padding,) * (2 * self.axes) if isinstance(padding, int) else tuple(padding)
        if len(given) != 2 * self.axes:
            raise ShapeError(f"{type(self).__name__}: padding is one number or {2 * self.axes}, not {given}")
        self.padding = given

    @checked
    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in (self.axes + 1, self.axes + 2) and self.mode != "constant":
            raise ShapeError(
                f"{type(self).__name__}: x has {self.axes + 1} axes, or {self.axes + 2} with a batch, not shape "
                f"{x.shape}"
            )
        return F.pad(x, self.padding, self.mode, self.value)


class _ConstantPad(_Pad):
    @checked
    def __init__(self, padding: Sizes, value: float) -> None:
        super().__init__(padding)
        self.value = value


class ZeroPad1d(_Pad):
    """Zeros around the last axis, after (batch, channels): `padding` on each side, or before and after, the last axis
    first.

    >>> ZeroPad1d(1)(Tensor.ones(1, 1, 2)).shape
    (1, 1, 4)
    """

    axes, mode = 1, "constant"


class ZeroPad2d(_Pad):
    """Zeros around the last two axes, after (batch, channels): `padding` on each side, or before and after, the last
    axis first.

    >>> ZeroPad2d(1)(Tensor.ones(1, 1, 2, 2)).shape
    (1, 1, 4, 4)
    """

    axes, mode = 2, "constant"


class ZeroPad3d(_Pad):
    """Zeros around the last three axes, after (batch, channels): `padding` on each side, or before and after, the last
    axis first.

    >>> ZeroPad3d(1)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes, mode = 3, "constant"


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
