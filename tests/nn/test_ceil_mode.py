"""Pools with ceil_mode, whose last window may hang over the end of the input, and so may the only one."""

from __future__ import annotations

import math
from itertools import product

import pytest

import anneal as an
from anneal.errors import ShapeError

F = an.nn.functional
CASES = [c for c in product((1, 2, 3, 5), (2, 3, 4), (1, 2, 3), (0, 1), (1, 2)) if 2 * c[3] <= c[1]]


def places(n: int, kernel: int, stride: int, padding: int, dilation: int) -> list[list[int]]:
    """The places of the input that each window sees, by torch's rule for how many windows there are."""
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    count = (room + stride - 1) // stride + 1
    if (count - 1) * stride >= n + padding:
        count -= 1
    starts = [w * stride - padding for w in range(count)]
    return [[i for i in range(a, a + dilation * kernel, dilation) if 0 <= i < n] for a in starts]


@pytest.mark.parametrize(("n", "kernel", "stride", "padding", "dilation"), CASES)
def test_max_pool_has_torchs_windows(n: int, kernel: int, stride: int, padding: int, dilation: int) -> None:
    x = an.arange(1.0, n + 1)[None]
    windows = places(n, kernel, stride, padding, dilation)
    if not windows:
        with pytest.raises(ShapeError, match="does not fit"):
            F.max_pool1d(x, kernel, stride, padding, dilation, ceil_mode=True)
        return
    got, at = F.max_pool1d(x, kernel, stride, padding, dilation, ceil_mode=True, return_indices=True)
    want = [max(w) + 1.0 if w else -math.inf for w in windows]
    assert got.tolist() == [want]
    assert all(p == v - 1 for p, v in zip(at[0].tolist(), want, strict=True) if v > 0)


@pytest.mark.parametrize(("n", "kernel", "stride"), [(1, 2, 2), (1, 3, 3), (2, 4, 3), (3, 4, 2)])
def test_one_window_longer_than_the_input(n: int, kernel: int, stride: int) -> None:
    small = an.arange(1.0, n + 1)
    mean = float(small.mean())
    assert F.avg_pool1d(small[None], kernel, stride, ceil_mode=True).tolist() == [[mean]]
    square = small[None, :, None].expand(1, n, n)
    assert F.max_pool2d(square, kernel, stride, ceil_mode=True).tolist() == [[[float(n)]]]
    assert F.avg_pool2d(square, kernel, stride, ceil_mode=True).tolist() == [[[mean]]]
    x = small[None].clone().requires_grad_()
    F.max_pool1d(x, kernel, stride, ceil_mode=True).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0] * (n - 1) + [1.0]]


def test_without_ceil_mode_it_does_not_fit() -> None:
    with pytest.raises(ShapeError, match="does not fit"):
        F.max_pool1d(an.ones(1, 1), 2, 2)
