"""Views of which several elements are one in memory, filled with one number: as in torch 2.13, all elements show it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anneal.errors import ShapeError
from anneal.tensor import Tensor

# the view, and the places of the six elements that it shows
VIEWS: dict[str, tuple[Callable[[Tensor], Tensor], list[int]]] = {
    "a column": (lambda b: b[:, :1].expand(2, 4), [0, 3]),
    "copies": (lambda b: b.expand(3, 2, 3), [0, 1, 2, 3, 4, 5]),
    "a row": (lambda b: b[0].expand(4, 3), [0, 1, 2]),
    "transposed": (lambda b: b.t()[:1].expand(5, 2), [0, 3]),
    "strides": (lambda b: b.reshape(-1).as_strided((3, 3), (1, 1)), [0, 1, 2, 3, 4]),
    "windows": (lambda b: b.reshape(-1).unfold(0, 3, 1), [0, 1, 2, 3, 4, 5]),
    "a part of copies": (lambda b: b[:, 1:2].expand(2, 5)[:, 1:3], [1, 4]),
    "an element": (lambda b: b[0, 0].expand(2, 2), [0]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_one_number_fills_them(name: str) -> None:
    make, places = VIEWS[name]
    for number in (9.0, 0.0):
        for constant in (False, True):
            b = Tensor.full((2, 3), 5.0) if constant else Tensor.arange(6.0).reshape(2, 3) * 1 + 1
            expected = b.numpy().copy().reshape(-1)
            expected[places] = number
            view = make(b)
            view.fill_(number) if number else view.zero_()
            np.testing.assert_array_equal(b.numpy().reshape(-1), expected)
            assert (view.numpy() == number).all()


def test_other_changes_of_them_are_refused() -> None:
    for make, _ in VIEWS.values():
        b = Tensor.arange(6.0).reshape(2, 3) * 1
        with pytest.raises(ShapeError, match=r"use \.clone\(\)"):
            make(b).add_(1)
