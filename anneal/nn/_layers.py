"""Layers, with torch's names, arguments, parameter names and layouts."""

from __future__ import annotations

import math

from anneal.errors import ShapeError
from anneal.nn import init
from anneal.nn._module import Module
from anneal.ops import checked
from anneal.tensor import Tensor
from anneal.tensor import functional as F

__all__ = [
    "GELU",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "Linear",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Tanh",
]


class Linear(Module):
    """`x @ weight.T + bias`: (..., in_features) to (..., out_features).

    >>> Linear(3, 2)(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    @checked
    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, weight: Tensor | None = None) -> None:
        """`weight` (out_features, in_features) is shared if given, and the bias zero then; torch's start otherwise."""
        self.in_features, self.out_features = in_features, out_features
        self.weight: Tensor = init.kaiming_uniform((out_features, in_features)) if weight is None else weight
        bound = 1 / math.sqrt(max(1, in_features)) if weight is None else 0.0
        self.bias: Tensor | None = init.uniform((out_features,), bound) if bias else None

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of a (num_embeddings, embedding_dim) table: integers of any shape to that shape plus (embedding_dim,).

    >>> Embedding(10, 4)(Tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    @checked
    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, weight: Tensor | None = None
    ) -> None:
        """`weight` is shared if given; it starts normal with deviation 1 otherwise, the row `padding_idx` zero.

        That row has no gradient. Raises ShapeError if there is none of that number.
        """
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ShapeError(f"Embedding: padding_idx {padding_idx} is no row of {num_embeddings}")
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        if weight is None:
            weight = init.normal((num_embeddings, embedding_dim), zero_row=padding_idx)
        self.weight: Tensor = weight

    @checked
    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class Dropout(Module):
    """Zeros each element with probability `p` in training, and scales the others by 1 / (1 - p) to keep the mean.

    x of any shape; `eval()` makes it the identity. Raises ShapeError for a p outside 0 to 1.

    >>> Dropout(0.5).eval()(Tensor([1.0, 2.0]))
    Tensor([1., 2.], dtype=float32)
    """

    @checked
    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ShapeError(f"Dropout: p is a probability between 0 and 1, not {p}")
        self.p = p

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class ReLU(Module):
    """max(x, 0), of any shape.

    >>> ReLU()(Tensor([-1.0, 2.0]))
    Tensor([0., 2.], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


class GELU(Module):
    """x times the normal distribution function of x; approximate is "none" or "tanh".

    Raises ShapeError for another form.

    >>> GELU()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.841], dtype=float32)
    """

    @checked
    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ShapeError(f'GELU: approximate is "none" or "tanh", not {approximate!r}')
        self.approximate = approximate

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return x.gelu(self.approximate)


class SiLU(Module):
    """x * sigmoid(x), of any shape.

    >>> SiLU()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.731], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return x.silu()


class Sigmoid(Module):
    """1 / (1 + exp(-x)), of any shape.

    >>> Sigmoid()(Tensor([0.0]))
    Tensor([0.5], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return x.sigmoid()


class Tanh(Module):
    """The hyperbolic tangent, of any shape.

    >>> Tanh()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.762], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return x.tanh()


class Identity(Module):
    """x itself: what stands where a layer may be left out.

    >>> Identity()(Tensor([1.0]))
    Tensor([1.], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return x


class Flatten(Module):
    """All axes from `start_dim` on become one: (batch, channels, h, w) to (batch, channels * h * w).

    >>> Flatten()(Tensor.ones(2, 3, 4, 4)).shape
    (2, 48)
    """

    @checked
    def __init__(self, start_dim: int = 1) -> None:
        self.start_dim = start_dim

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim)
