"""What the array API's own suite draws: every value of a dtype from Python's numbers, shifts by any number of places,
errors of the kinds that are asked for, and integers that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import array_api as xp
from anneal.errors import DTypeError
from anneal.tensor import Tensor
from tests.array_api.beside_strict import DTYPES, special

INTEGERS = [d for d in DTYPES if "int" in d]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_value_comes_from_lists_of_numbers(dtype: str) -> None:
    values = special(dtype)
    kind = getattr(xp, dtype)
    for some in (values, values[-2:], values[[0, -1]], values.reshape(1, -1)):
        np.testing.assert_array_equal(xp.asarray(some.tolist(), dtype=kind).numpy(), some)
        np.testing.assert_array_equal(Tensor(some.tolist(), None, kind).numpy(), some)
    for v in values:
        np.testing.assert_array_equal(xp.full((2,), v.item(), dtype=kind).numpy(), np.full(2, v))
        x = xp.zeros((3,), dtype=kind)
        x[1] = v.item()
        np.testing.assert_array_equal(x.numpy(), np.array([0, v, 0], dtype))
        np.testing.assert_array_equal((xp.full((2,), v.item(), dtype=kind) == v.item()).numpy(), [v == v] * 2)


# what torch 2.14 gives, but for the last three: it refuses them (uint64 is anneal's widest integer)
LISTS: list[tuple[list[Any], Any, list[Any], str]] = [
    ([0.5, 2**62 + 1], an.int64, [0, 2**62 + 1], "int64"),
    ([True, 2**62 + 1], None, [1, 2**62 + 1], "int64"),
    ([2**63 + 1, 1], an.uint64, [2**63 + 1, 1], "uint64"),
    ([2**53 + 1, 0.0], an.int64, [2**53 + 1, 0], "int64"),
    ([-(2**62) - 1, 0.5], an.int64, [-(2**62) - 1, 0], "int64"),
    ([[2**63 + 1], [1]], None, [[2**63 + 1], [1]], "uint64"),
    ([1e300, 2.0], None, [np.inf, 2.0], "float32"),
    ([np.uint64(2**63), 1], None, [2**63, 1], "uint64"),
]


@pytest.mark.parametrize("row", LISTS, ids=str)
def test_large_integers_in_lists_keep_their_digits(row: tuple[list[Any], Any, list[Any], str]) -> None:
    data, dtype, expected, name = row
    x = an.tensor(data, dtype=dtype)
    assert (x.dtype.name, x.tolist()) == (name, expected)


@pytest.mark.parametrize("data", [[2**64], [-1, 2**63], [2**64, 0.5]], ids=str)
def test_integers_beyond_64_bits_are_refused(data: list[Any]) -> None:
    with pytest.raises(DTypeError, match="Tensor: "):
        an.tensor(data, dtype=None if data[-1] != 0.5 else an.int64)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_by_the_width_or_more(dtype: str, device: str) -> None:
    if device == "webgpu" and "64" in dtype:
        return
    x = special(dtype)
    width = 8 * x.dtype.itemsize
    t = Tensor(x, device)
    for n in (width - 1, width, width + 1, 100, 127):
        near = min(n, width - 1)
        down = x >> np.array(near, dtype) if dtype.startswith("int") or n < width else np.zeros_like(x)
        up = x << np.array(near, dtype) if n < width else np.zeros_like(x)
        for places in (n, Tensor(n, device).cast(t.dtype), Tensor(np.full_like(x, n), device)):
            np.testing.assert_array_equal((t << places).numpy(), up, err_msg=f"{n}")
            np.testing.assert_array_equal((t >> places).numpy(), down, err_msg=f"{n}")


OUTSIDE: list[Any] = [
    lambda: xp.expand_dims(xp.ones((2,)), axis=3),
    lambda: xp.sum(xp.ones((2,)), axis=1),
    lambda: an.ones(2).softmax(dim=2),
    lambda: xp.ones(())[xp.asarray([True])],
    lambda: xp.ones((2, 3))[xp.ones((3, 3)) > 0],
    lambda: xp.ones((2,))[0, 0],
    lambda: xp.ones((2,))[2],
]


@pytest.mark.parametrize("n", range(len(OUTSIDE)))
def test_places_that_are_not_there_are_index_errors(n: int) -> None:
    with pytest.raises(IndexError):
        OUTSIDE[n]()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_keeps_shapes(dtype: str, shape: tuple[int, ...]) -> None:
    x = xp.ones(shape, dtype=getattr(xp, dtype))
    for y in (xp.from_dlpack(x), np.from_dlpack(x)):
        assert (y.shape, y.ndim) == (shape, len(shape))


def test_numbers_of_every_kind() -> None:
    x = Tensor([2.0])
    assert (complex(x), x.__complex__(), complex(Tensor(True))) == (2 + 0j, 2 + 0j, 1 + 0j)
    y = x = Tensor([[1.0, 2.0]])
    x @= Tensor([[1.0], [1.0]])
    assert (x.tolist(), y.tolist()) == ([[3.0]], [[1.0, 2.0]])


WRAPPED: list[tuple[str, Any, str, Any]] = [
    ("sum", lambda: xp.sum(xp.asarray([2**31 - 1] * 3)), "int32", 2**31 - 3),
    ("sum", lambda: xp.sum(xp.arange(100000)), "int32", 704982704),
    ("prod", lambda: xp.prod(xp.asarray([40000] * 3, dtype=xp.uint16)), "uint32", 40000**3 % 2**32),
    ("cumsum", lambda: xp.cumulative_sum(xp.asarray([2**31 - 1, 1])), "int32", [2**31 - 1, -(2**31)]),
    ("cumprod", lambda: xp.cumulative_prod(xp.asarray([2**31 - 1, 2])), "int32", [2**31 - 1, -2]),
    ("vecdot", lambda: xp.vecdot(xp.asarray([2**30] * 2), xp.asarray([2, 1])), "int32", -(2**30)),
    ("matmul", lambda: xp.matmul(xp.asarray([2**30] * 2), xp.asarray([2, 1])), "int32", -(2**30)),
    ("multiply", lambda: xp.multiply(xp.full((), 2**30), 2), "int32", -(2**31)),
    ("square", lambda: xp.square(xp.full((), 2**16)), "int32", 0),
]


def read_of(made: Any) -> tuple[str, Any]:
    x = made()
    return x.dtype.name, x.tolist()


@pytest.mark.parametrize("row", WRAPPED, ids=lambda row: row[0])
def test_integers_that_do_not_fit_the_standards_dtypes_warn(row: tuple[str, Any, str, Any]) -> None:
    """The standard gives a sum the dtype of its array or the default one, whatever the values."""
    _, made, dtype, expected = row
    with pytest.warns(RuntimeWarning, match="wraps around"):
        read = read_of(made)
    assert read == (dtype, expected)


def test_what_fits_does_not_warn() -> None:
    x = xp.prod(xp.asarray([100, 3, 7], dtype=xp.int16))
    assert (x.dtype, x.item()) == (xp.int32, 2100)
    assert xp.sum(xp.asarray([2**30, 2**30 - 1])).item() == 2**31 - 1
    with pytest.raises(OverflowError):  # the mode is the namespace's alone
        Tensor([2**31 - 1, 1]).sum().item()


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_results_have_the_dtype_that_is_asked_for(dtype: str) -> None:
    kind = getattr(xp, dtype)
    x = xp.asarray([1, 0, 1], dtype=kind)
    for name in ("sum", "prod", "cumulative_sum", "cumulative_prod"):
        for data in (x, xp.asarray([], dtype=kind)):
            assert getattr(xp, name)(data, dtype=kind, axis=0).dtype is kind, name
    assert xp.linalg.trace(xp.eye(2, dtype=kind), dtype=kind).dtype is kind


def test_devices_are_those_that_open(device: str) -> None:
    info = xp.__array_namespace_info__()
    assert device in info.devices()
    for name, dtype in info.dtypes(device=device).items():
        assert xp.empty(1, dtype=dtype, device=device).dtype is getattr(xp, name)
    assert "float64" in info.dtypes(device="cpu")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floors_of_quotients_of_infinities_are_the_standards(dtype: str) -> None:
    inf, nan = float("inf"), float("nan")
    rows = [(inf, 2, inf), (inf, -2, -inf), (-inf, 2, -inf), (-inf, -2, inf), (1, inf, 0.0), (1, -inf, -0.0), (-1, inf, -0.0),
            (-1, -inf, 0.0), (inf, inf, nan), (inf, -inf, nan), (inf, nan, nan), (nan, inf, nan), (0.0, -inf, -0.0), (inf, 0.0, inf),
            (7, 2, 3), (-7, 2, -4), (1, 0.0, inf), (0.0, 0.0, nan)]  # fmt: skip
    x, y, expected = (np.array(column, dtype) for column in zip(*rows, strict=True))
    a, b = (xp.asarray(v.tolist(), dtype=getattr(xp, dtype)) for v in (x, y))
    for got in (xp.floor_divide(a, b).numpy(), *[np.array([xp.floor_divide(p, q).item() for p, q in pairs])
                for pairs in (zip(a, y.tolist(), strict=True), zip(x.tolist(), b, strict=True))]):  # fmt: skip
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(
            np.signbit(got), np.signbit(expected) & ~np.isnan(expected) | np.isnan(expected) & np.signbit(got)
        )
    np.testing.assert_array_equal(
        (a // b).numpy()[:7], [nan, nan, nan, nan, 0, -1, -1]
    )  # torch's, Python's and NumPy's


def test_vector_products_broadcast() -> None:
    x, y = xp.asarray([1.0, 0.0, 0.0]), xp.asarray([[0.0, 1.0, 0.0]])
    assert xp.linalg.cross(x, y).tolist() == [[0.0, 0.0, 1.0]]
    with pytest.raises(ValueError, match="3 elements"):
        xp.linalg.cross(xp.ones((3,)), xp.ones((3, 1)), axis=-1)


@pytest.mark.parametrize("pair", [("float32", "float64"), ("float64", "float32")])
@pytest.mark.parametrize("shape", [(2,), (2, 1), (3, 2, 2), (2, 0)])
def test_solve_promotes(pair: tuple[str, str], shape: tuple[int, ...]) -> None:
    x, y = xp.eye(2, dtype=getattr(xp, pair[0])) * 2, xp.ones(shape, dtype=getattr(xp, pair[1]))
    z = xp.linalg.solve(x, y)
    assert (z.shape, z.dtype, z.tolist()) == (shape, xp.float64, (y / 2).tolist())
