"""Results and refusals at the edges, as torch has them: dtypes of single functions, distributions that are none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import anneal as an
from anneal import array_api as xp
from anneal.errors import DTypeError, RangeError, ShapeError, UserError
from anneal.tensor import Tensor

F = an.nn.functional
SQUARE, SIGNED = an.arange(1.0, 10.0).reshape(3, 3), Tensor([[1.0, -3.0, 2.0, 0.5, -7.0]])
EDGES = [math.nan, -math.inf, math.inf, 1.0]
# what is called: torch's dtype (int32 where torch has int64) and values
RESULTS: dict[str, tuple[Callable[[], Any], str, Any]] = {
    "float_power of float16": (lambda: Tensor([300.0], dtype="float16").float_power(2), "float64", [90000.0]),
    "float_power of integers": (lambda: Tensor([2, 3]).float_power(Tensor([3, -1])), "float64", [8.0, 1 / 3]),
    "pad of integers": (lambda: an.nn.functional.pad(Tensor([1, 0]), (1, 1), value=1.5), "int32", [1, 1, 0, 1]),
    "pad of integers, below": (lambda: an.nn.functional.pad(Tensor([1, 0]), (1, 0), value=-1.7), "int32", [-1, 1, 0]),
    "pad of bools": (lambda: an.nn.functional.pad(Tensor([False]), (1, 1), value=300), "bool", [True, False, True]),
    "ldexp of float16": (lambda: Tensor([2.0**-15], dtype="float16").ldexp(Tensor([20])), "float16", [32.0]),
    "ldexp of integers": (lambda: Tensor([3]).ldexp(Tensor([2])), "float32", [12.0]),
    "ldexp of float64": (lambda: Tensor([3]).ldexp(Tensor([-1.0], dtype="float64")), "float64", [1.5]),
    "square of bools": (lambda: Tensor([True, False]).square(), "int32", [1, 0]),
    "cross of rows": (lambda: an.linalg.cross(an.ones(1, 3), Tensor([[1.0, 2.0, 3.0]] * 2)), "float32", [[1, -2, 1]] * 2),
    # torch 2.14: along the first axis of three elements; linalg.cross along the last
    "cross, both axes of three": (lambda: an.cross(SQUARE, SQUARE.T), "float32", [[-2, -10, -18], [4, 20, 36], [-2, -10, -18]]),
    "linalg.cross of those": (lambda: an.linalg.cross(SQUARE, SQUARE.T), "float32", [[2, -4, 2], [10, -20, 10], [18, -36, 18]]),
    "cross, one axis of three": (lambda: an.ones(3, 2).cross(Tensor([[1.0, 2.0]] * 3)), "float32", [[0.0, 0.0]] * 3),
    # torch 2.14: a nan is behind all numbers
    "searchsorted of nan": (lambda: Tensor([1.0, 2.0]).searchsorted(Tensor(EDGES)), "int32", [2, 0, 2, 0]),
    "searchsorted of nan, right": (lambda: Tensor([1.0, 2.0]).searchsorted(Tensor(EDGES), right=True), "int32", [2, 0, 2, 1]),
    "searchsorted of nan in rows": (lambda: an.ones(4, 2).searchsorted(Tensor(EDGES).unsqueeze(1)), "int32", [[2], [0], [2], [0]]),
    "searchsorted of nan in a long row": (lambda: an.arange(5000.0).searchsorted(Tensor(EDGES)), "int32", [5000, 0, 5000, 1]),
    "bucketize of nan": (lambda: an.bucketize(Tensor(EDGES), Tensor([1.0]), right=True), "int32", [1, 0, 1, 1]),
    "searchsorted of integers": (lambda: Tensor([1, 2]).searchsorted(Tensor([2, 9])), "int32", [1, 2]),
    # torch 2.14: the largest magnitude, and the smallest
    "lp_pool1d of inf": (lambda: F.lp_pool1d(SIGNED, math.inf, 2, ceil_mode=True), "float32", [[3.0, 2.0, 7.0]]),
    "lp_pool1d of -inf": (lambda: F.lp_pool1d(SIGNED, -math.inf, 2), "float32", [[1.0, 0.5]]),
    "lp_pool2d of inf": (lambda: F.lp_pool2d(SIGNED[None], math.inf, (1, 5)), "float32", [[[7.0]]]),
    "an.lp_pool1d of inf": (lambda: an.lp_pool1d(SIGNED, math.inf, 2), "float32", [[3.0, 2.0]]),
    "scalar_tensor": (lambda: an.scalar_tensor(3), "float32", 3.0),
    "vecdot": (lambda: xp.vecdot(xp.ones((3, 2)), xp.ones(2)), "float32", [2.0] * 3),
    "vecdot of a broadcast axis": (lambda: an.linalg.vecdot(an.ones(3, 2), an.ones(1, 1)), "float32", [2.0] * 3),
    "vecdot along a new axis": (lambda: an.linalg.vecdot(an.ones(2, 1, 3), an.ones(1, 3), dim=0), "float32", [[2.0] * 3]),
    "sum": (lambda: xp.arange(100000).sum(), "int64", 4999950000),
    "vecdot of integers": (lambda: an.linalg.vecdot(xp.arange(100000), xp.arange(100000)), "int64", 333328333350000),
    # counted from the end from the middle on, in steps that are rounded
    "linspace": (lambda: an.linspace(0.1, 0.7, 7)[2:6], "float32", [0.29999998211860657, 0.4000000059604645, 0.5, 0.6000000238418579]),
    "linspace of one": (lambda: an.linspace(3, 10, 1), "float32", [3.0]),
}  # fmt: skip
# the array API's functions have its standard's dtypes: what these do not hold wraps around, and warns
WRAPPED: dict[str, tuple[Callable[[], Any], str, Any]] = {
    "xp.sum": (lambda: xp.sum(xp.arange(100000)), "int32", 4999950000 - 2**32),
    "xp.vecdot of integers": (lambda: xp.vecdot(xp.arange(100000), xp.arange(100000)), "int32", 333328333350000 % 2**32),
}  # fmt: skip
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "pad of uint8": (lambda: an.nn.functional.pad(Tensor([1], dtype="uint8"), (1, 1), value=300), DTypeError),
    "pad with nan": (lambda: an.nn.functional.pad(Tensor([1]), (1, 1), value=math.nan), RangeError),
    "cross of other axes": (lambda: an.linalg.cross(an.ones(3), an.ones(2, 3)), ShapeError),
    "cross of one": (lambda: an.linalg.cross(an.ones(1), an.ones(3)), ShapeError),
    "cross of bools": (lambda: an.cross(Tensor([True] * 3), Tensor([True] * 3)), DTypeError),
    "gradient": (lambda: an.gradient(an.ones(3, 3), dim=(1, 1)), ShapeError),
    "gradient from the end": (lambda: an.gradient(an.ones(3, 3), dim=(1, -1)), ShapeError),
    "vecdot": (lambda: an.linalg.vecdot(an.ones(2), an.ones(1)), ShapeError),
    "xp.vecdot": (lambda: xp.vecdot(xp.ones(2), xp.ones(1)), ShapeError),
    "xp.vecdot of rows": (lambda: xp.vecdot(xp.ones((3, 2)), xp.ones((3, 1))), ShapeError),
    "a number in a row of modules": (lambda: an.nn.Sequential(an.nn.ReLU(), 3), DTypeError),  # type: ignore[arg-type]
    "a tensor in a parameter's place": (lambda: setattr(an.nn.Linear(2, 2), "weight", an.ones(2, 2)), DTypeError),
    "multinomial of integers": (lambda: an.multinomial(Tensor([1, 2]), 1), DTypeError),
}


def _read(made: Callable[[], Any]) -> tuple[str, Any]:
    x = made()
    return x.dtype.name, x.tolist()


@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str) -> None:
    made, dtype, values = RESULTS[name]
    assert _read(made) == (dtype, values)


@pytest.mark.parametrize("name", WRAPPED)
def test_what_wraps_warns(name: str) -> None:
    made, dtype, values = WRAPPED[name]
    with pytest.warns(RuntimeWarning, match="wraps around"):
        read = _read(made)
    assert read == (dtype, values)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    made, error = REFUSED[name]
    with pytest.raises(error):
        made()


@pytest.mark.parametrize("probs", [[0.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf], [[1.0, 2.0], [0.0, 0.0]]])
def test_nothing_is_drawn_from_what_is_no_distribution(probs: Any) -> None:
    for x in (Tensor(probs), Tensor(probs) * 1):
        for drawn in (an.multinomial(x, 1), an.multinomial(x, 2), an.multinomial(x, 3, replacement=True)):
            with pytest.raises(UserError, match="multinomial: probabilities are finite and not negative"):
                drawn.tolist()
    for _ in range(3):  # known while compiling, and in each run
        with pytest.raises(UserError, match="probabilities"):
            an.multinomial(an.zeros(2), 1).tolist()
    f = an.jit(lambda p: an.multinomial(p, 1))
    for _ in range(3):
        assert f(Tensor([1.0, 0.0])).tolist() == [0]
    with pytest.raises(UserError, match="probabilities"):
        f(Tensor([-1.0, 0.0])).tolist()
    assert f(Tensor([0.0, 1.0])).tolist() == [1]
