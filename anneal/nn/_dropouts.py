"""Dropouts as layers, with torch's names and arguments."""

from __future__ import annotations

from anneal.errors import ShapeError
from anneal.nn._rows import Unary


class _Dropout(Unary, of="p training inplace"):
    _draws = True
    p: float = 0.5
    inplace: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ShapeError(f"{type(self).__name__}: p is a probability between 0 and 1, not {self.p}")


class Dropout(_Dropout):
    """Zeros each element with probability `p` in training, and scales the others by 1 / (1 - p) to keep the mean.

    x of any shape; `eval()` makes it the identity. Raises ShapeError for a p outside 0 to 1.

    >>> from anneal.tensor import Tensor
    >>> Dropout(0.5).eval()(Tensor([1.0, 2.0])).flatten()
    Tensor([1., 2.], dtype=float32)
    """


class Dropout1d(_Dropout):
    """`Dropout` of whole channels of (batch, channels, n) or (channels, n).

    >>> from anneal.tensor import Tensor
    >>> Dropout1d(0.5).eval()(Tensor([[1.0, 2.0]])).flatten()
    Tensor([1., 2.], dtype=float32)
    """


class Dropout2d(_Dropout):
    """`Dropout` of whole channels of (batch, channels, h, w).

    >>> from anneal.tensor import Tensor
    >>> Dropout2d(0.5).eval()(Tensor([[[1.0, 2.0]]])).flatten()
    Tensor([1., 2.], dtype=float32)
    """


class Dropout3d(_Dropout):
    """`Dropout` of whole channels of (batch, channels, d, h, w) or (channels, d, h, w).

    >>> from anneal.tensor import Tensor
    >>> Dropout3d(0.5).eval()(Tensor([[[[1.0, 2.0]]]])).flatten()
    Tensor([1., 2.], dtype=float32)
    """


class AlphaDropout(_Dropout):
    """Dropout for selu, which keeps mean and deviation (Klambauer and others, 2017).

    >>> from anneal.tensor import Tensor
    >>> AlphaDropout(0.5).eval()(Tensor([1.0, 2.0])).flatten()
    Tensor([1., 2.], dtype=float32)
    """


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels, axis 1.

    >>> from anneal.tensor import Tensor
    >>> FeatureAlphaDropout(0.5).eval()(Tensor([[1.0, 2.0]])).flatten()
    Tensor([1., 2.], dtype=float32)
    """
