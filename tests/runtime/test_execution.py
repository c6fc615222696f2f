"""Reading several tensors at once, and what is computed along with a read."""

from __future__ import annotations

import numpy as np

from anneal.errors import RangeError
from anneal.runtime import values
from anneal.tensor import Tensor


def test_values_of_lazy_realized_constant_and_empty_tensors() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    tensors = [x * 2, x, Tensor(3.0), Tensor.zeros(0, 3), (x > 2).realize(), x.sum()]
    for t, got in zip(tensors, values(tensors), strict=True):
        assert got.dtype == t.numpy().dtype
        np.testing.assert_array_equal(got, t.numpy())
    assert values([]) == []


def test_an_error_of_values_that_nobody_asked_for_is_not_raised_by_another_read() -> None:
    """A loop computes along what its rounds use later; in a round that does not, its error is nobody's."""
    told = []
    for n in range(12):
        large = n % 5 == 4
        x = Tensor(np.array([2**30, 2**30 * large, 2**30 * large], np.int32))
        total = x.sum()
        assert (Tensor.ones(2) * n).sum().item() == 2 * n
        try:
            assert (total + 1).item() == 2**30 + 1
        except RangeError:
            told.append(n)
    assert told == [4, 9]
