"""Writing by position against torch and NumPy: values on each device, gradients, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from anneal.errors import DTypeError, ShapeError
from anneal.tensor import Tensor
from anneal.uop import toposort
from tests.helpers import check_grad, check_values

both_devices = pytest.mark.usefixtures("device")
rng = np.random.default_rng(8)

X = rng.normal(size=(4, 3)).astype(np.float32)
SRC = rng.normal(size=(5, 3)).astype(np.float32)
I = np.array([[0, 2, 1], [3, 2, 0], [0, 2, 1], [1, 0, 0], [3, 2, 3]], np.int32)
ROWS = np.array([2, 0, 2, 1, 2], np.int32)
WAYS = ["sum", "prod", "mean", "amax", "amin"]


def reduced(x: Any, index: Any, src: Any, dim: int, how: str, include: bool) -> Any:
    """scatter_reduce in plain loops."""
    terms: dict[tuple[int, ...], list[Any]] = {}
    for place in np.ndindex(*index.shape):
        to = list(place)
        to[dim] = int(index[place])
        terms.setdefault(tuple(to), []).append(src[place])
    out = x.copy()
    for place, values in terms.items():
        values = ([x[place]] if include else []) + values
        f = {"sum": np.sum, "prod": np.prod, "amax": np.max, "amin": np.min}.get(how, np.mean)
        out[place] = np.floor(f(values)) if how == "mean" and x.dtype.kind == "i" else f(values)
    return out


@both_devices
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("how", WAYS)
def test_scatter_reduce(how: str, include: bool) -> None:
    got = Tensor(X).scatter_reduce(0, Tensor(I), Tensor(SRC), how, include)
    check_values(got, reduced(X.astype(np.float64), I, SRC.astype(np.float64), 0, how, include), rtol=1e-5)
    turned = Tensor(X.T.copy()).scatter_reduce(1, Tensor(I.T.copy()), Tensor(SRC.T.copy()), how, include)
    check_values(turned, reduced(X, I, SRC, 0, how, include).T, rtol=1e-5)
    whole, whole_src = (np.round(4 * a).astype(np.int32) for a in (X, SRC))
    got = Tensor(whole).scatter_reduce(0, Tensor(I), Tensor(whole_src), how, include)
    check_values(got, reduced(whole, I, whole_src, 0, how, include), dtype="int32")


@pytest.mark.parametrize("how", WAYS)
def test_scatter_reduce_of_whole_rows_and_out_of_range(how: str) -> None:
    index = Tensor(ROWS).reshape(5, 1).expand(5, 3)
    wide = np.broadcast_to(ROWS[:, None], (5, 3))
    check_values(Tensor(X).scatter_reduce(0, index, Tensor(SRC), how), reduced(X, wide, SRC, 0, how, True), rtol=1e-5)
    outside = Tensor([-1, 8, -4]) + 1
    check_values(Tensor([2.0, 3.0]).scatter_reduce(0, outside, Tensor([4.0, 5.0, 6.0]), how, False), [4.0, 3.0])


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("how", WAYS)
def test_scatter_reduce_has_gradients(how: str, include: bool) -> None:
    weight = Tensor(rng.normal(size=(4, 3)))
    check_grad(lambda x, s: x.scatter_reduce(0, Tensor(I), s, how, include) * weight, X, SRC)


@both_devices
def test_products_of_many_go_to_their_places() -> None:
    """They took work for each pair of a place and an element: 4 s for 200,000 elements, with their gradient."""
    index, factors = rng.integers(0, 45, 300), rng.choice([-1.0, 0.5, 2.0, 1.0], 300).astype(np.float32)
    want = np.full(40, 3.0)
    inside = index < 40
    np.multiply.at(want, index[inside], factors[inside])
    places = Tensor(index.astype(np.int32) + 1) - 1  # not looked at beforehand
    x = Tensor(np.full(40, 3.0, np.float32), requires_grad=True)
    y = Tensor(factors, requires_grad=True)
    out = x.scatter_reduce(0, places, y, "prod")
    assert not any(40 in u.shape and 300 in u.shape for u in toposort((out.uop,)))
    check_values(out, want)
    out.sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), np.where(inside, want[index % 40] / factors, 0.0), rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), want / 3, rtol=1e-5)
    small = Tensor([1.0, 3.0], dtype="float16").scatter_reduce(
        0, Tensor([1] * 5), Tensor([1.1] * 5, dtype="float16"), "prod"
    )
    check_values(small, [1.0, np.float16(3 * np.float16(float(np.float16(1.1)) ** 5))], dtype="float16")
    check_values(Tensor([2.0]).scatter_reduce(0, Tensor([], dtype="int32"), Tensor([]), "prod"), [2.0])


def test_extremes_let_nan_through() -> None:
    for how in ("amax", "amin"):
        got = Tensor([1.0, 2.0]).scatter_reduce(0, Tensor([0, 0, 1]), Tensor([math.nan, 0.0, 5.0]), how)
        check_values(got, [math.nan, 5.0 if how == "amax" else 2.0])


@both_devices
def test_index_put() -> None:
    i, j = np.array([0, 3, 0, -1], np.int32), np.array([1, 2, 1, 0], np.int32)
    v = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    want = X.copy()
    want[i, j] = v
    check_values(Tensor(X).index_put((Tensor(i), Tensor(j)), Tensor(v)), want)
    want = X.copy()
    np.add.at(want, (i, j), v)
    check_values(Tensor(X).index_put((Tensor(i), Tensor(j)), Tensor(v), True), want, rtol=1e-6)
    want = X.copy()
    np.add.at(want, (i,), 2.0)
    check_values(Tensor(X).index_put([i.tolist()], 2.0, accumulate=True), want, rtol=1e-6)
    x = Tensor(X)
    x.index_put((Tensor(i), Tensor(j)), 0.0)
    check_values(x, X)


@both_devices
def test_copies_and_fills_along_an_axis() -> None:
    want = X.copy()
    want[:, [2, 0]] = SRC[:4, :2]
    check_values(Tensor(X).index_copy(1, Tensor([2, 0]), Tensor(SRC[:4, :2].copy())), want)
    want[[1, 3]] = 7
    check_values(Tensor(want).index_fill(0, Tensor([1, 3]), 7), want, dtype="float32")
    check_values(Tensor(X).index_fill(-1, Tensor([1, 1]), 0.5), np.where(np.arange(3) == 1, np.float32(0.5), X))


@both_devices
def test_masked_scatter() -> None:
    mask = np.array([[True, False, True]] * 2 + [[False, True, True]] * 2)
    want = X.copy()
    want[mask] = SRC.reshape(-1)[: mask.sum()]
    check_values(Tensor(X).masked_scatter(Tensor(mask), Tensor(SRC)), want)
    check_values(Tensor([1, 2, 3]).masked_scatter(Tensor([True]), Tensor([7])), [7, 0, 0])


@both_devices
def test_buckets_and_places_along_an_axis() -> None:
    check_values(Tensor([0.5, 3.0, 9.0]).bucketize(Tensor([1.0, 3.0, 5.0])), [0, 1, 3])
    check_values(Tensor([0.5, 3.0, 9.0]).bucketize([1.0, 3.0, 5.0], right=True), [0, 2, 3])
    index = np.array([[0, -1, 2], [1, 1, 3]], np.int32)
    check_values(Tensor(X).take_along_axis(Tensor(index), 0), np.take_along_axis(X, index, 0))


def test_gradients() -> None:
    i, j = Tensor([0, 3, 0, -1]), Tensor([1, 2, 1, 0])
    w = Tensor(rng.normal(size=(4, 3)))
    v = rng.normal(size=4)
    # a place twice: each value has the gradient of its place (`edge_gradients.py`), which differences do not
    check_grad(lambda x, v: x.index_put((Tensor([0, 3, 1, -1]), j), v) * w, X, v)
    check_grad(lambda x, v: x.index_put((i, j), v, True) * w, X, v)
    check_grad(lambda x, s: x.index_copy(0, Tensor([2, 0]), s) * w, X, SRC[:2])
    check_grad(lambda x: x.index_fill(1, Tensor([2]), 3.0) * w, X)
    check_grad(lambda x, s: x.masked_scatter(w > 0, s) * w, X, SRC)


MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "way": (lambda: Tensor(X).scatter_reduce(0, Tensor(I), Tensor(SRC), "max"), DTypeError, "one of sum, prod, mean"),
    "bools": (
        lambda: Tensor([True]).scatter_reduce(0, Tensor([0]), Tensor([True]), "amax"),
        DTypeError,
        "takes numbers, not bools",
    ),
    "long": (
        lambda: Tensor(X).scatter_reduce(1, Tensor(I), Tensor(SRC), "sum"),
        ShapeError,
        "scatter_reduce: the index",
    ),
    "put": (lambda: Tensor(X).index_put((Tensor([0]),), Tensor.zeros(2), True), ShapeError, "index_put: shapes"),
    "put nothing": (lambda: Tensor(X).index_put((slice(0, 1),), 1.0, True), ShapeError, "accumulate takes integer"),
    "copy": (lambda: Tensor(X).index_copy(0, Tensor([0]), Tensor.zeros(3)), ShapeError, "needs a source of shape"),
    "mask": (lambda: Tensor(X).masked_scatter(Tensor(X), Tensor(X)), DTypeError, "a mask is bool"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_at_the_call(name: str) -> None:
    call, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        call()
