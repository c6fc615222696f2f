"""Layers with weights of their own, with torch's names, arguments, parameter names and layouts."""

from __future__ import annotations

import math
from typing import Any, Self

from anneal.errors import ShapeError
from anneal.nn import functional as F
from anneal.nn import init
from anneal.nn._f_others import check_bags
from anneal.nn._module import Module, Resettable
from anneal.nn._parameter import Parameter
from anneal.nn._rows import Row
from anneal.ops import DTypeLike, checked
from anneal.tensor import Tensor
from anneal.tensor import functional as plain


class Linear(Resettable):
    """`x @ weight.T + bias`: (..., in_features) to (..., out_features).

    >>> Linear(3, 2)(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    @checked
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        *,
        weight: Tensor | None = None,
    ) -> None:
        """`weight` (out_features, in_features) is shared if given, and the bias zero then; torch's start otherwise."""
        self.in_features, self.out_features = in_features, out_features
        self.weight: Tensor = init.kaiming_uniform((out_features, in_features)) if weight is None else weight
        bound = 1 / math.sqrt(max(1, in_features)) if weight is None else 0.0
        self.bias: Tensor | None = init.uniform((out_features,), bound) if bias else None
        self._place(device, dtype)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return plain.linear(x, self.weight, self.bias)


class Identity(Module):
    """The module that returns x itself, to leave out a layer; its arguments are ignored.

    >>> Identity()(Tensor([1.0]))
    Tensor([1.], dtype=float32)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return x


class Embedding(Resettable):
    """Rows of a (num_embeddings, embedding_dim) table: integers of any shape to that shape plus (embedding_dim,).

    >>> Embedding(10, 4)(Tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    @checked
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        *,
        weight: Tensor | None = None,
    ) -> None:
        """`weight` is shared if given; it starts normal with deviation 1 otherwise, the row `padding_idx` zero.

        That row has no gradient. The other arguments are those of `functional.embedding`. Raises ShapeError if there is
        no row of that number.
        """
        _check_table("Embedding", num_embeddings, padding_idx)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        weight = _weight if weight is None else weight
        if weight is None:
            weight = init.normal((num_embeddings, embedding_dim), zero_row=padding_idx)
        elif _weight is not None and not isinstance(_weight, Parameter):
            weight = Parameter(_weight)
        self.weight: Tensor = weight
        if _freeze:
            self.weight.requires_grad_(False)
        self._place(device, dtype)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None) -> Self:
        """An embedding whose table has the values `embeddings` (rows, width), frozen unless `freeze` is False; row
        `padding_idx` gets no gradient.

        >>> Embedding.from_pretrained(Tensor([[1.0, 2.0], [3.0, 4.0]]))(Tensor([1])).tolist()
        [[3.0, 4.0]]
        """
        rows, width = embeddings.shape
        return cls(rows, width, padding_idx, _weight=embeddings, _freeze=freeze)

    @checked
    def forward(self, index: Tensor) -> Tensor:
        held = self.max_norm, self.norm_type, self.scale_grad_by_freq
        return plain.embedding(index, self.weight, self.padding_idx, *held)


def _check_table(name: str, rows: int, padding_idx: int | None) -> None:
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ShapeError(f"{name}: padding_idx {padding_idx} is no row of {rows}")


class EmbeddingBag(Resettable):
    """Sums, means or maxima of rows of a table: see `functional.embedding_bag`.

    >>> EmbeddingBag(10, 4)(Tensor([[1, 2, 3]])).shape
    (1, 4)
    """

    @checked
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        _check_table("EmbeddingBag", num_embeddings, padding_idx)
        check_bags("EmbeddingBag", mode)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.mode, self.include_last_offset = mode, include_last_offset
        shape = (num_embeddings, embedding_dim)
        self.weight: Tensor = init.normal(shape, zero_row=padding_idx) if _weight is None else Parameter(_weight)
        self._place(device, dtype)

    @checked
    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )


class Bilinear(Resettable):
    """A bilinear layer: `a @ weight[o] @ b` for each output o, plus a bias: (..., in1), (..., in2) to (..., out).

    >>> Bilinear(3, 4, 2)(Tensor.ones(5, 3), Tensor.ones(5, 4)).shape
    (5, 2)
    """

    @checked
    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        bound = 1 / math.sqrt(max(1, in1_features))
        self.weight: Tensor = init.uniform((out_features, in1_features, in2_features), bound)
        self.bias: Tensor | None = init.uniform((out_features,), bound) if bias else None
        self._place(device, dtype)

    @checked
    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return plain.bilinear(input1, input2, self.weight, self.bias)


class CosineSimilarity(Row, function=plain.cosine_similarity):
    """The cosine of the angle between vectors along an axis.

    >>> CosineSimilarity()(Tensor([[1.0, 0.0]]), Tensor([[1.0, 1.0]])).round(4)
    Tensor([0.7071], dtype=float32)
    """

    dim: int = 1
    eps: float = 1e-8

    @checked
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        out: Tensor = self._of(x1, x2)
        return out


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last axis.

    >>> PairwiseDistance()(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0]])).round(3)
    Tensor([5.], dtype=float32)
    """

    @checked
    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    @checked
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return plain.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
