"""Dropout layers, with torch's names and arguments."""

from __future__ import annotations

from anneal.errors import ShapeError
from anneal.nn import functional as F
from anneal.nn._module import Module
from anneal.ops import checked
from anneal.tensor import Tensor

__all__ = [
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
]


class _Dropout(Module):
    _draws = True

    @checked
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0 <= p <= 1:
            raise ShapeError(f"{type(self).__name__}: p is a probability between 0 and 1, not {p}")
        self.p, self.inplace = p, inplace


class Dropout(_Dropout):
    """Zeros each element with probability `p` in training, and scales the others by 1 / (1 - p) to keep the mean.

    x of any shape; `eval()` makes it the identity. Raises ShapeError for a p outside 0 to 1.

    >>> Dropout(0.5).eval()(Tensor([1.0, 2.0])).flatten()
    Tensor([1., 2.], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """`Dropout` of whole channels of (batch, channels, n) or (channels, n).

    >>> Dropout1d(0.5).eval()(Tensor([[1.0, 2.0]])).flatten()
    Tensor([1., 2.], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout1d(x, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """`Dropout` of whole channels of (batch, channels, h, w).

    >>> Dropout2d(0.5).eval()(Tensor([[[1.0, 2.0]]])).flatten()
    Tensor([1., 2.], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout2d(x, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """`Dropout` of whole channels of (batch, channels, d, h, w) or (channels, d, h, w).

    >>> Dropout3d(0.5).eval()(Tensor([[[[1.0, 2.0]]]])).flatten()
    Tensor([1., 2.], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout3d(x, self.p, self.training, self.inplace)


class AlphaDropout(_Dropout):
    """Dropout for selu, which keeps mean and deviation (Klambauer and others, 2017).

    >>> AlphaDropout(0.5).eval()(Tensor([1.0, 2.0])).flatten()
    Tensor([1., 2.], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.alpha_dropout(x, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels, axis 1.

    >>> FeatureAlphaDropout(0.5).eval()(Tensor([[1.0, 2.0]])).flatten()
    Tensor([1., 2.], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.feature_alpha_dropout(x, self.p, self.training, self.inplace)
