"""Functions whose result's size depends on values: NumPy computes them at once, outside jit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from anneal.errors import ShapeError
from anneal.tensor import Tensor

__all__ = ["nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"]


class UniqueAll(NamedTuple):
    """The result of `unique_all`: `values`, the `indices` of their first occurrences, `inverse_indices` in the array's
    shape, and `counts`; indices are int32.
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`: the distinct `values`, and their `counts`, int32."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`: the distinct `values`, and `inverse_indices`, int32, with values[inverse_indices]
    equal to the array.
    """

    values: Tensor
    inverse_indices: Tensor


def _places(a: Any, x: Tensor) -> Tensor:
    return Tensor(np.asarray(a, np.int32), x.device)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The places of the elements that differ from 0, an int32 vector for each axis. Values are read at once.

    >>> nonzero(Tensor([0, 5, 7]))
    (Tensor([1, 2], dtype=int32),)
    """
    if not x.ndim:
        raise ShapeError("nonzero: an array of shape () has no axis")
    return tuple([_places(a, x) for a in np.nonzero(x.numpy())])


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different values, ascending; where each was first, which of them each element is, and how often each occurs,
    int32. Every nan is another value. Values are read at once.

    >>> unique_all(Tensor([3, 1, 3])).values
    Tensor([1, 3], dtype=int32)
    """
    values, first, inverse, counts = np.unique(
        x.numpy(), return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return UniqueAll(
        Tensor(values, x.device), _places(first, x), _places(inverse, x).reshape(x.shape), _places(counts, x)
    )


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different values, ascending, and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different values, ascending, and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The different values, ascending."""
    return unique_all(x).values
