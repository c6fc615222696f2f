"""Values with their indices: the results of torch's `dim=` forms; `axis=` gives the values alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from anneal.errors import ShapeError
from anneal.ops import nodes
from anneal.ops.axes import axis_of
from anneal.ops.checks import said, whole
from anneal.ops.indexing import gathered
from anneal.uop import by_rule

if TYPE_CHECKING:
    from anneal.tensor import Tensor


class ValuesIndices(NamedTuple):
    """The values of an axis and their indices, int32, as `max(dim=...)`, `sort`, `topk` and others return them.

    A tuple of two, so `values, indices = x.max(dim=1)` works, and a tree for jit and the transforms.

    >>> from anneal.tensor import Tensor
    >>> pair = Tensor([[1, 5], [7, 3]]).max(dim=1)
    >>> pair.values, pair.indices
    (Tensor([5, 7], dtype=int32), Tensor([1, 0], dtype=int32))
    """

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The result of `aminmax`: `min`, the smallest value, and `max`, the largest.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3, 1, 2]).aminmax()
    MinMax(min=Tensor(1, dtype=int32), max=Tensor(3, dtype=int32))
    """

    min: Tensor
    max: Tensor


def one_dim(name: str, dim: Any, axis: Any, ndim: int) -> int:
    """The axis that `dim` names, counted from 0. Raises ShapeError for several axes, for both spellings, or none."""
    if axis is not None:
        raise ShapeError(
            f"{name}: dim={dim} gives values with their indices, axis={axis} the values alone; give one of them"
        )
    if isinstance(dim, (list, tuple, range)):
        raise ShapeError(
            f"{name}: dim is one axis, whose values come with their indices, not {said(dim)}; axis={dim} gives the "
            "values along several"
        )
    return axis_of(name, whole(name, "dim is one axis, which", dim), ndim)


def selected(x: Tensor, values: Tensor, indices: Tensor, at: int) -> Tensor:
    """`values`, found in fewer steps than by reading `x` at `indices`, with the gradient that reading has."""
    if not values.requires_grad:
        return values
    same = gathered(x, at, indices.uop)
    read = nodes.reshape(same.uop, values.shape)
    return values._new(by_rule("equal", values.uop, read), same)
