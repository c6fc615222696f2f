"""Facts of tensors that torch has functions for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anneal.errors import ShapeError
from anneal.ops.arguments import checked

if TYPE_CHECKING:
    from anneal.tensor import Tensor

__all__ = ["is_complex", "is_nonzero", "is_same_size", "is_signed"]


@checked
def is_complex(x: Tensor) -> bool:
    """Whether the elements are complex: False, since no dtype here is.

    >>> from anneal.tensor import Tensor
    >>> is_complex(Tensor([1.0]))
    False
    """
    return False


@checked
def is_signed(x: Tensor) -> bool:
    """Whether the dtype has negative numbers.

    >>> from anneal.tensor import Tensor
    >>> is_signed(Tensor([1])), is_signed(Tensor([1], dtype="uint8"))
    (True, False)
    """
    return x.dtype.is_float or (x.dtype.is_int and x.dtype.min < 0)


@checked
def is_nonzero(x: Tensor) -> bool:
    """Whether the one element is not zero. Raises ShapeError for more elements or none.

    >>> from anneal.tensor import Tensor
    >>> is_nonzero(Tensor([0.5])), is_nonzero(Tensor(0))
    (True, False)
    """
    if x.numel() != 1:
        raise ShapeError(f"is_nonzero: takes a tensor of one element, not of shape {x.shape}: write (x != 0).any()")
    return bool(x.item() != 0)


@checked
def is_same_size(x: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape.

    >>> from anneal.tensor import Tensor
    >>> is_same_size(Tensor.ones(2, 3), Tensor.ones(3, 2))
    False
    """
    return x.shape == other.shape
