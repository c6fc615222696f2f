"""Layers that learn the number of their input's channels from their first call."""

from __future__ import annotations

from typing import Any

from anneal.errors import ShapeError
from anneal.nn import _layers as layers, _windows as windows
from anneal.nn._module import Resettable
from anneal.ops import said
from anneal.tensor import Tensor


class _Lazy(Resettable):
    """A layer whose first argument follows from the first call, which makes it a layer of the class below.

    Until then its tensors have the shapes of one channel. The first call gives them other shapes and values, but they
    stay the same objects: an optimiser that was made before trains them.
    """

    def __init__(self, *settings: Any, **named: Any) -> None:
        vars(self)["_settings"] = settings, named
        super().__init__(named.get("groups", 1), *settings, **named)  # type: ignore[call-arg]
        vars(self).update(dict.fromkeys(vars(self).keys() & {"in_features", "in_channels", "num_features"}, 0))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        settings, named = vars(self)["_settings"]
        kind = type(self).__mro__[2]
        x, axes = [*args, *kwargs.values(), None][0], getattr(self, "axes", 0)
        at = 1 if isinstance(axes, tuple) else -1 - axes  # a batch norm's x has a batch; others are before the places
        if not isinstance(x, Tensor) or not -x.ndim <= at < x.ndim:
            raise ShapeError(f"{type(self).__name__}: takes a tensor with channels along axis {at}, not {said(x)}")
        made = kind(x.shape[at], *settings, **named)
        del vars(self)["_settings"]
        for name, t in vars(made).items():
            mine = vars(self).get(name)
            if isinstance(mine, Tensor):
                mine.data = t.to(mine.device).cast(mine.dtype)
            elif name != "training":
                vars(self)[name] = t
        self.__class__ = kind
        return self(*args, **kwargs)


class LazyLinear(_Lazy, layers.Linear):
    """`Linear` whose in_features follows from its first call; `settings` and `named` are the other arguments.

    >>> layer = LazyLinear(3)
    >>> layer(Tensor.ones(4, 2)).shape, layer
    ((4, 3), Linear(in_features=2, out_features=3, bias=True))
    """


class LazyConv1d(_Lazy, windows.Conv1d):
    """`Conv1d` whose in_channels follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyConv1d(5, 1)(Tensor.ones(2, 3, 4)).shape
    (2, 5, 4)
    """


class LazyConv2d(_Lazy, windows.Conv2d):
    """`Conv2d` whose in_channels follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyConv2d(5, 1)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 5, 4, 4)
    """


class LazyConv3d(_Lazy, windows.Conv3d):
    """`Conv3d` whose in_channels follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyConv3d(5, 1)(Tensor.ones(2, 3, 4, 4, 4)).shape
    (2, 5, 4, 4, 4)
    """


class LazyConvTranspose1d(_Lazy, windows.ConvTranspose1d):
    """`ConvTranspose1d` whose in_channels follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyConvTranspose1d(5, 1)(Tensor.ones(2, 3, 4)).shape
    (2, 5, 4)
    """


class LazyConvTranspose2d(_Lazy, windows.ConvTranspose2d):
    """`ConvTranspose2d` whose in_channels follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyConvTranspose2d(5, 1)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 5, 4, 4)
    """


class LazyConvTranspose3d(_Lazy, windows.ConvTranspose3d):
    """`ConvTranspose3d` whose in_channels follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyConvTranspose3d(5, 1)(Tensor.ones(2, 3, 4, 4, 4)).shape
    (2, 5, 4, 4, 4)
    """


class LazyBatchNorm1d(_Lazy, layers.BatchNorm1d):
    """`BatchNorm1d` whose num_features follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyBatchNorm1d()(Tensor.ones(2, 3, 4)).shape
    (2, 3, 4)
    """


class LazyBatchNorm2d(_Lazy, layers.BatchNorm2d):
    """`BatchNorm2d` whose num_features follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyBatchNorm2d()(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """


class LazyBatchNorm3d(_Lazy, layers.BatchNorm3d):
    """`BatchNorm3d` whose num_features follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyBatchNorm3d()(Tensor.ones(2, 3, 4, 4, 4)).shape
    (2, 3, 4, 4, 4)
    """


class LazyInstanceNorm1d(_Lazy, layers.InstanceNorm1d):
    """`InstanceNorm1d` whose num_features follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyInstanceNorm1d()(Tensor.ones(2, 3, 4)).shape
    (2, 3, 4)
    """


class LazyInstanceNorm2d(_Lazy, layers.InstanceNorm2d):
    """`InstanceNorm2d` whose num_features follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyInstanceNorm2d()(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """


class LazyInstanceNorm3d(_Lazy, layers.InstanceNorm3d):
    """`InstanceNorm3d` whose num_features follows from its first call; `settings` and `named` are the other arguments.

    >>> LazyInstanceNorm3d()(Tensor.ones(2, 3, 4, 4, 4)).shape
    (2, 3, 4, 4, 4)
    """
