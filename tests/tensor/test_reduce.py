"""Reductions and what is made of them, against NumPy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from anneal.errors import ShapeError
from anneal.tensor import Tensor
from anneal.uop import Op, toposort
from tests.helpers import check_values, of_sums

pytestmark = pytest.mark.usefixtures("device")
rng = np.random.default_rng(1)

X = rng.normal(size=(3, 4, 5)).astype(np.float32)
W = X.astype(np.float64)
AXES = [None, 0, 1, -1, (0, 2), (0, 1, 2), ()]


def _logsumexp(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


REDUCTIONS: dict[str, Any] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "amax": np.max,
    "amin": np.min,
    "mean": np.mean,
    "logsumexp": _logsumexp,
    "any": lambda x, axis, keepdims: np.any(x > 1, axis=axis, keepdims=keepdims),
    "all": lambda x, axis, keepdims: np.all(x > -1, axis=axis, keepdims=keepdims),
}


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, axis: Any, keepdim: bool) -> None:
    x = Tensor(X)
    x = x > 1 if name == "any" else x > -1 if name == "all" else x
    got = getattr(x, name)(axis=axis, keepdim=keepdim)
    check_values(got, REDUCTIONS[name](W, axis=axis, keepdims=keepdim), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["sum", "amax", "mean"])
def test_dim_is_axis(name: str) -> None:
    check_values(getattr(Tensor(X), name)(dim=1), REDUCTIONS[name](W, axis=1, keepdims=False), rtol=1e-5, atol=1e-6)
    check_values(
        getattr(Tensor(X), name)(dim=(0, -1)), REDUCTIONS[name](W, axis=(0, 2), keepdims=False), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("correction", [0, 1, 2])
@pytest.mark.parametrize("axis", [None, 0, (1, 2)], ids=str)
def test_variance(axis: Any, correction: int) -> None:
    expected = np.var(W, axis=axis, ddof=correction)
    check_values(Tensor(X).var(axis, correction=correction), expected, rtol=1e-4)
    check_values(Tensor(X).std(axis, correction=correction), np.sqrt(expected), rtol=1e-4)


def test_variance_far_from_zero_keeps_its_digits() -> None:
    x = (10000 + np.arange(8)).astype(np.float32)
    check_values(Tensor(x).var(), np.var(x.astype(np.float64), ddof=1), rtol=1e-5)


def test_variance_of_one_is_nan() -> None:
    check_values(Tensor([3.0]).var(), math.nan)
    check_values(Tensor([3.0]).var(unbiased=False), 0.0)


# -- dtypes -----------------------------------------------------------------------------------------------------------


def test_sums_of_integers_and_bools_are_int32() -> None:
    check_values(Tensor([1, -2, 3]).sum(), 2, dtype=of_sums())
    check_values(Tensor([True, True, False]).sum(), 2, dtype="int32")
    check_values(Tensor([2, 3]).prod(), 6, dtype=of_sums())
    check_values(Tensor([1, 2]).mean(), 1.5, dtype="float32")
    check_values(Tensor([5, -7, 3]).max(), 5, dtype="int32")
    check_values(Tensor([True, False]).max(), True, dtype="bool")
    check_values(Tensor([0, 2, 3]).count_nonzero(), 2, dtype="int32")
    check_values(Tensor([1, 2]).sum(dtype="float32"), 3.0, dtype="float32")


def test_reductions_over_nothing() -> None:
    x = Tensor.zeros(2, 0)
    check_values(x.sum(1), [0.0, 0.0])
    check_values(x.prod(1), [1.0, 1.0])
    check_values(x.any(1), [False, False])
    check_values(x.all(1), [True, True])
    check_values(x.sum(0), np.zeros(0))
    check_values(x.mean(1), [math.nan, math.nan])


def test_memory_that_only_a_reduction_over_nothing_reads() -> None:
    x, nothing = Tensor([1, 2]), Tensor(np.zeros(0, np.int32))
    check_values((x.unsqueeze(1) + nothing).sum(1), [0, 0])
    check_values(x + (x.unsqueeze(1) == nothing).any(1), [1, 2])


def test_extremes_pass_nan_on() -> None:
    check_values(Tensor([1.0, math.nan, 3.0]).max(), math.nan)
    check_values(Tensor([1.0, math.nan, 3.0]).min(), math.nan)
    check_values(Tensor([-math.inf, -math.inf]).max(), -math.inf)


def test_scalars_reduce_to_themselves() -> None:
    for name in ("sum", "mean", "max", "prod", "logsumexp"):
        check_values(getattr(Tensor(2.5), name)(), 2.5)
        check_values(getattr(Tensor(2.5), name)(axis=-1), 2.5)
    check_values(Tensor(2.5).softmax(0), 1.0)


HOLES = X.copy()
HOLES[0, 1, :3] = HOLES[2] = math.nan
HOLES[1, 1, 1] = math.inf


@pytest.mark.parametrize("axis", AXES[:-1], ids=str)
@pytest.mark.parametrize("name", ["nansum", "nanmean", "nanmax", "nanmin"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_is_left_out(name: str, axis: Any) -> None:
    for x in (HOLES, np.where(np.isinf(HOLES), 0, HOLES)):
        expected = getattr(np, name)(x.astype(np.float64), axis=axis)
        check_values(getattr(Tensor(x), name)(axis), expected, rtol=1e-5, atol=1e-6)
        wide = getattr(np, name)(x.astype(np.float64), axis=axis, keepdims=True)
        check_values(getattr(Tensor(x), name)(dim=axis, keepdim=True), wide, rtol=1e-5, atol=1e-6)
    check_values(getattr(Tensor([2, 4]), name)(), {"nansum": 6, "nanmean": 3.0, "nanmax": 4, "nanmin": 2}[name])


@pytest.mark.parametrize("axis", [None, 0, (1, 2)], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_spread_of_what_is_not_nan(axis: Any) -> None:
    x = np.where(np.isinf(HOLES), 0, HOLES)
    w = x.astype(np.float64)
    for correction in (0, 1):
        expected = np.nanvar(w, axis, ddof=correction)
        check_values(Tensor(x).nanvar(axis, correction), expected, rtol=1e-4, atol=1e-6)
        check_values(Tensor(x).nanstd(axis, correction), np.sqrt(expected), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, -1, -2.5, math.inf, -math.inf, "fro"])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)], ids=str)
def test_norms(p: Any, axis: Any) -> None:
    size = np.abs(W)
    if p in (0, math.inf, -math.inf):
        expected = {0: np.sum(size != 0, axis), math.inf: np.max(size, axis), -math.inf: np.min(size, axis)}[p]
    else:
        power = 2 if p == "fro" else p
        expected = np.sum(size**power, axis) ** (1 / power)
    check_values(Tensor(X).norm(p, axis), expected, rtol=1e-4, dtype="float32")


# -- positions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_positions_of_extremes(axis: Any, keepdim: bool) -> None:
    check_values(Tensor(X).argmax(axis, keepdim), np.argmax(X, axis=axis, keepdims=keepdim), dtype="int32")
    check_values(Tensor(X).argmin(dim=axis, keepdim=keepdim), np.argmin(X, axis=axis, keepdims=keepdim), dtype="int32")


def test_positions_of_ties_are_the_first() -> None:
    check_values(Tensor([1, 3, 3, 0, 0]).argmax(), 1)
    check_values(Tensor([1, 3, 3, 0, 0]).argmin(), 3)
    check_values(Tensor([1.0, math.nan, 3.0]).argmax(), 1)
    check_values(Tensor([[True, False], [False, True]]).argmax(1), [0, 1])


# -- exponential families ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis: int) -> None:
    e = np.exp(W)
    p = e / e.sum(axis, keepdims=True)
    check_values(Tensor(X).softmax(axis), p, rtol=1e-5)
    check_values(Tensor(X).log_softmax(dim=axis), np.log(p), rtol=1e-5, atol=1e-5)


def test_large_numbers_do_not_overflow() -> None:
    x = Tensor([1000.0, 1000.0, -1000.0])
    check_values(x.softmax(), [0.5, 0.5, 0.0])
    check_values(x.logsumexp(), 1000 + math.log(2), rtol=1e-6)
    check_values(x.log_softmax(), [-math.log(2), -math.log(2), -2000 - math.log(2)], rtol=1e-6)


def test_logsumexp_of_infinities() -> None:
    check_values(Tensor([-math.inf, -math.inf]).logsumexp(), -math.inf)
    check_values(Tensor([math.inf, 0.0]).logsumexp(), math.inf)


# -- running results --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 100, 1025, 3000])
def test_cumsum_of_any_length(n: int) -> None:
    x = rng.integers(-9, 9, (2, n)).astype(np.int32)
    check_values(Tensor(x).cumsum(1), np.cumsum(x, 1), dtype=of_sums())
    check_values(Tensor(x.T.copy()).cumsum(dim=0), np.cumsum(x.T, 0), dtype=of_sums())


def test_running_products_and_maxima() -> None:
    x = rng.uniform(0.8, 1.2, (2, 70)).astype(np.float32)
    check_values(Tensor(x).cumprod(1), np.cumprod(x.astype(np.float64), 1), rtol=1e-4)
    check_values(Tensor(x).cummax(axis=1), np.maximum.accumulate(x, 1))
    check_values(Tensor(x).cummin(dim=1).values, np.minimum.accumulate(x, 1))
    whole = rng.integers(-9, 9, 70).astype(np.int32)
    check_values(Tensor(whole).cummin(0).values, np.minimum.accumulate(whole), dtype="int32")
    check_values(Tensor([1.0, math.nan, 0.0]).cummin(0).values, [1.0, math.nan, math.nan])
    check_values(Tensor([True, True]).cumsum(0), [1, 2], dtype="int32")


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_differences(n: int) -> None:
    check_values(Tensor(X).diff(n), np.diff(X, n), atol=1e-5)
    check_values(Tensor(X).diff(n, dim=1), np.diff(X, n, axis=1), atol=1e-5)
    check_values(Tensor([True, False, False]).diff(), [True, False], dtype="bool")


def test_both_ends() -> None:
    low, high = Tensor(X).aminmax(dim=1)
    check_values(low, X.min(1))
    check_values(high, X.max(1))


def test_cumsum_keeps_infinity_where_it_is() -> None:
    check_values(Tensor([1.0, math.inf, 2.0]).cumsum(0), [1.0, math.inf, math.inf])


# -- mistakes ---------------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[Any, str]] = {
    "axis": (lambda: Tensor.zeros(2, 3).sum(2), "sum: axis 2 does not exist: valid axes are -2 to 1 for 2 axes"),
    "axis twice": (lambda: Tensor.zeros(2, 3).sum((0, -2)), "sum: axis 0 is given twice"),
    "axis kind": (lambda: Tensor.zeros(2, 3).sum("x"), "an axis is an int"),
    "axis and dim": (lambda: Tensor.zeros(2, 3).sum(0, dim=1), "sum: axis=0 and dim=1"),
    "max of nothing": (lambda: Tensor.zeros(0).max(), "max: shape .* has nothing to choose from"),
    "argmax of nothing": (lambda: Tensor.zeros(0).argmax(), "argmax: shape .* has nothing to choose from"),
    "axis of a scalar": (lambda: Tensor(1.0).sum(1), "sum: axis 1 does not exist: the tensor has no axes"),
    "cumsum without axis": (lambda: Tensor.zeros(2).cumsum(), "cumsum: say along which axis"),
    "softmax axis": (lambda: Tensor.zeros(2).softmax(1), "axis 1 does not exist"),
    "norm": (lambda: Tensor.zeros(2).norm("nuc"), 'norm: p is a number or "fro"'),
    "diff of a scalar": (lambda: Tensor(1.0).diff(), "diff: takes one axis or more"),
    "nanmax of nothing": (lambda: Tensor.zeros(0).nanmax(), "nanmax: shape .* has nothing to choose from"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_at_the_call(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(ShapeError, match=message):
        call()


def test_an_extreme_is_compared_with_what_it_was_chosen_from() -> None:
    """Computed twice, a float may round twice: the values that a maximum is taken of are kept in memory."""
    x = Tensor([1.0, 2.0, 3.0]) * 0.1 + 0.7
    top = x.max()
    assert x.uop.op is Op.CONTIGUOUS
    assert x.uop in toposort((top.uop,))
    assert (x == top).tolist() == [False, False, True]
    y = Tensor([1.0, 2.0, 3.0]) * 0.1 + 0.7
    assert y.uop in toposort((y.argmax().uop,))
    assert y.uop.op is Op.CONTIGUOUS


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("start", ["1", "zeros", "ones", "scalar", "memory"])
def test_a_sum_of_a_constant_and_products_of_repeated_values(start: str, count: int, device: str) -> None:
    """The products are summed apart, as matrix products are; the constant, which has no axes in the graph, is too."""
    starts: dict[str, Any] = {
        "1": 1.0,
        "zeros": Tensor.zeros(4, 4, device=device),
        "ones": Tensor.ones(4, 4, device=device),
        "scalar": Tensor.full((), 2.0, device=device),
        "memory": Tensor(np.full((4, 4), 2.0, np.float32), device=device),
    }
    rows = np.arange(4.0 * count, dtype=np.float32).reshape(count, 4) / 8 - 0.5
    first = starts[start]
    for sign in (1, -1):
        x: Any = first
        wanted = np.broadcast_to(first if isinstance(first, float) else first.numpy(), (4, 4)).astype(np.float64)
        for row in rows:
            v = Tensor(row, device=device)
            x = x + sign * v.outer(v)
            wanted = wanted + sign * np.outer(row, row).astype(np.float64)
        for axis in (None, 0, 1):
            np.testing.assert_allclose(x.sum(axis).numpy(), wanted.sum(axis), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(x.mean().numpy(), wanted.mean(), rtol=1e-5, atol=1e-5)
