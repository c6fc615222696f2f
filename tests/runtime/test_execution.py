"""Reading several tensors at once."""

from __future__ import annotations

import numpy as np

from anneal.runtime import values
from anneal.tensor import Tensor


def test_values_of_lazy_realized_constant_and_empty_tensors() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    tensors = [x * 2, x, Tensor(3.0), Tensor.zeros(0, 3), (x > 2).realize(), x.sum()]
    for t, got in zip(tensors, values(tensors), strict=True):
        assert got.dtype == t.numpy().dtype
        np.testing.assert_array_equal(got, t.numpy())
    assert values([]) == []
