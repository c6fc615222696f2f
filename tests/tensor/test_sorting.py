"""Sorting and counting against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.errors import DTypeError, ShapeError
from anneal.tensor import Tensor
from tests.helpers import check_grad, check_values

both_devices = pytest.mark.usefixtures("device")
rng = np.random.default_rng(5)

ROWS: dict[str, Any] = {
    "ints": rng.integers(-5, 5, 30).astype(np.int32),
    "floats": rng.normal(size=30).astype(np.float32),
    "signs of zero": np.array([0.0, -0.0, 1.0, -1.0, -np.inf, np.inf, 0.0], np.float32),
    "words": rng.integers(0, 2**32, 20, dtype=np.uint32),
    "bools": rng.integers(0, 2, 9).astype(bool),
    "matrix": rng.integers(-4, 4, (5, 7)).astype(np.int32),
    "box": rng.normal(size=(2, 5, 3)).astype(np.float32),
}


@both_devices
@pytest.mark.parametrize("name", ROWS)
def test_sorting_is_stable(name: str) -> None:
    x = ROWS[name]
    for axis in range(x.ndim):
        order = np.argsort(x, axis=axis, kind="stable")
        check_values(Tensor(x).argsort(axis), order, dtype="int32")
        values, places = Tensor(x).sort(axis)
        check_values(values, np.take_along_axis(x, order, axis))
        check_values(places, order)


@both_devices
def test_descending_keeps_the_order_of_equals() -> None:
    check_values(Tensor([1, 3, 3, 2]).argsort(descending=True), [1, 2, 3, 0])
    check_values(Tensor([[1, 3, 3, 2]]).argsort(descending=True), [[1, 2, 3, 0]])


def test_nan_is_the_largest() -> None:
    check_values(Tensor([np.nan, 1.0, np.inf, -np.nan]).argsort(), [1, 2, 0, 3])


@both_devices
def test_topk() -> None:
    x = ROWS["box"]
    order = np.argsort(-x, axis=1, kind="stable")[:, :2]
    values, places = Tensor(x).topk(2, dim=1)
    check_values(values, np.take_along_axis(x, order, 1))
    check_values(places, order, dtype="int32")
    check_values(Tensor([3, 1, 2]).topk(1, largest=False)[0], [1])


@both_devices
@pytest.mark.parametrize("n, k", [(64, 2), (97, 3), (500, 1), (2000, 40)])
@pytest.mark.parametrize("largest", [True, False])
def test_the_first_of_a_long_row_are_those_of_the_sorted_row(n: int, k: int, largest: bool) -> None:
    draw = np.random.default_rng(n)
    row = draw.normal(size=n).astype(np.float32)
    row[draw.integers(0, n, 4)] = np.nan, np.inf, -np.inf, -0.0
    for x in (row, draw.integers(-5, 5, n).astype(np.int32)):
        order = Tensor(x).argsort(0, largest).numpy()[:k]
        values, places = Tensor(x).topk(k, largest=largest)
        check_values(places, order, dtype="int32")
        check_values(values, x[order])


@both_devices
@pytest.mark.parametrize("n", [257, 300, 512, 1000])
def test_places_in_a_long_row_are_found_by_halving(n: int) -> None:
    row = np.sort(rng.integers(0, n // 3, n)).astype(np.int32)
    values = np.concatenate([rng.integers(-3, n // 3 + 3, 40), [row[0], row[-1]]]).astype(np.int32).reshape(2, 21)
    for right, side in ((False, "left"), (True, "right")):
        check_values(Tensor(row).searchsorted(Tensor(values), right=right), np.searchsorted(row, values, side))
    floats = row.astype(np.float32) / 2 - 20
    check_values(Tensor(floats).searchsorted(Tensor([-50.0, 3.25, 1e9])), np.searchsorted(floats, [-50.0, 3.25, 1e9]))
    rows = np.stack([row, np.sort(rng.integers(0, n, n)).astype(np.int32)])
    expected = [np.searchsorted(r, v) for r, v in zip(rows, values, strict=True)]
    check_values(Tensor(rows).searchsorted(Tensor(values)), np.stack(expected))


@both_devices
def test_counting() -> None:
    check_values(Tensor([3, 1, 1, 9, -1]).bincount(minlength=5), [0, 2, 0, 1, 0])
    row, values = np.array([1, 3, 3, 7], np.int32), np.array([[0, 3], [8, 4]], np.int32)
    check_values(Tensor(row).searchsorted(Tensor(values)), np.searchsorted(row, values))
    check_values(Tensor(row).searchsorted(Tensor(values), right=True), np.searchsorted(row, values, "right"))


def test_the_gradient_follows_the_values() -> None:
    weights = Tensor(np.arange(1.0, 6.0))
    x = np.array([3.0, -1.0, 2.0, 9.0, 4.0])
    check_grad(lambda t: t.gather(0, t.float().argsort()) * weights, x)


def test_mistakes_are_named_at_the_call() -> None:
    with pytest.raises(ShapeError, match="topk: k must be 0 to 3"):
        Tensor([1, 2, 3]).topk(4)
    with pytest.raises(ShapeError, match="argsort: axis 2 does not exist"):
        Tensor([1, 2, 3]).argsort(2)
    with pytest.raises(DTypeError, match="bincount: takes one axis of integers"):
        Tensor([1.0]).bincount(minlength=2)


X = rng.normal(size=(3, 4, 5)).astype(np.float32)


@both_devices
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)], ids=str)
def test_medians_and_quantiles(axis: Any) -> None:
    w = X.astype(np.float64)
    check_values(Tensor(X).median(axis=axis), np.quantile(w, 0.5, axis, method="lower"))
    kept = np.quantile(w, 0.5, axis, method="lower", keepdims=True)
    check_values(Tensor(X).median(axis=axis, keepdim=True), kept)
    shares = [0, 0.1, 0.5, 0.77, 1]
    check_values(Tensor(X).quantile(shares, axis, True), np.quantile(w, shares, axis, keepdims=True), rtol=1e-5)


@both_devices
@pytest.mark.parametrize("between", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles_between_elements(between: Any) -> None:
    x = np.array([4.0, 1.0, 3.0, 8.0], np.float32)
    for q in (0.0, 1 / 6, 0.4, 0.5, 0.9):
        expected = np.quantile(x.astype(np.float64), q, method=between)
        check_values(Tensor(x).quantile(q, interpolation=between), expected, rtol=1e-6)


@both_devices
def test_medians_of_integers_and_of_nan() -> None:
    check_values(Tensor([3, 1, 2, 9]).median(), 2, dtype="int32")
    check_values(Tensor([3, 1, 2, 9]).quantile(0.5), 2.5, dtype="float32")
    check_values(Tensor([[1.0, math.nan, 3.0], [1.0, 2.0, 3.0]]).median(1).values, [np.nan, 2.0])
    check_values(Tensor([[1.0, math.nan, 3.0], [1.0, 2.0, 3.0]]).quantile(0.0, 1), [np.nan, 1.0])
    check_values(Tensor(5).median(), 5)


@both_devices
def test_medians_without_nan() -> None:
    n = math.nan
    x = Tensor([[3.0, n, 1.0, 2.0], [n, n, n, n], [4.0, 3.0, 2.0, 1.0], [n, 5.0, n, n]])
    check_values(x.nanmedian(1).values, [2.0, n, 2.0, 5.0])
    check_values(x.nanmedian(), 2.0)
    check_values(Tensor([4, 2, 9]).nanmedian(0, keepdim=True).values, [4], dtype="int32")


def test_wide_floats_sort() -> None:
    x = np.array([3.0, -0.0, 1e300, -1e-300, 0.0, -np.inf, 1 + 1e-15, 1.0, np.nan])
    check_values(Tensor(x).argsort(), np.argsort(x, kind="stable"))
    check_values(Tensor(x).sort(descending=True)[0], [np.nan, 1e300, 3.0, 1 + 1e-15, 1.0, -0.0, 0.0, -1e-300, -np.inf])


def test_gradients_go_to_what_was_chosen() -> None:
    check_grad(lambda x: x.median(1).values, X[0])
    check_grad(lambda x: x.median() * x.quantile(0.3), X[0])
    check_grad(lambda x: x.quantile([0.2, 0.9], (0, 2)), X)
    check_grad(lambda x: x.cummin(dim=1).values * x.cummax(dim=1).values, X[0])
    check_grad(lambda x: x.diff(2, 0) + x.norm(3) + x.norm(-2) + x.norm(math.inf), X[0])
    check_grad(lambda x: x.nansum(1) * x.nanmean() + x.nanmax(), X[0])


def test_mistakes_about_quantiles() -> None:
    with pytest.raises(ShapeError, match="quantile: q must lie in 0 to 1"):
        Tensor([1.0]).quantile(1.5)
    with pytest.raises(ShapeError, match="quantile: interpolation is one of linear"):
        Tensor([1.0]).quantile(0.5, interpolation="cubic")
    with pytest.raises(DTypeError, match=r"quantile: q is a number or several, not \['a'\]"):
        Tensor([1.0]).quantile(["a"])
    with pytest.raises(ShapeError, match="median: shape .* has nothing to choose from"):
        Tensor.zeros(2, 0).median(1)
    with pytest.raises(ShapeError, match=r"mode: shape \(0, 3\) has nothing to choose from along axis 0"):
        Tensor.zeros(0, 3).mode(0)
    with pytest.raises(ShapeError, match="median: shape .* has nothing to choose from"):
        Tensor.zeros(0, dtype=an.int32).median()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_the_median_of_no_floats_is_nan(shape: tuple[int, ...]) -> None:
    x = Tensor.zeros(*shape, requires_grad=True)
    for found in (x.median(), x.nanmedian()):
        assert (found.shape, math.isnan(found.item())) == ((), True)
    assert x.median(axis=None, keepdim=True).shape == (1,) * len(shape)
    x.median().backward()
    assert x.grad is not None
    assert x.grad.shape == shape


def test_shares_of_float64_have_its_digits() -> None:
    """Of 7 numbers the share 1/3 is a place that float32 rounds."""
    x = Tensor(np.array([-2.0, -1.0, -0.3, 0.1, 0.3, 0.7, 1.9]), dtype=an.float64)
    for name in ("quantile", "nanquantile"):
        np.testing.assert_allclose(getattr(x, name)(0.3).item(), np.quantile(x.numpy(), 0.3), rtol=1e-14)
    np.testing.assert_array_equal(Tensor([-1.0, 2.0], dtype=an.float64).angle().numpy(), [math.pi, 0.0])
