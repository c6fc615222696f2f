"""Integers that do not wrap around unseen: sums, products and their kin, and ops of single elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.backend import get_device
from anneal.errors import DTypeError, RangeError
from anneal.tensor import Tensor

TOP = 2**31 - 1
Made = Callable[[Tensor], Tensor]


def _matrix(x: Tensor) -> Tensor:
    return x.reshape(1, -1)


# What adds or multiplies, of a vector; and NumPy's result of it, in int64.
FOLDS: dict[str, tuple[Made, Callable[[Any], Any]]] = {
    "sum": (lambda x: x.sum(), np.sum),
    "sum of a lazy graph": (lambda x: (x + 0).flip(0).sum(), np.sum),
    "sum of rows": (lambda x: x.reshape(2, -1).sum(1), lambda a: a.reshape(2, -1).sum(1)),
    "sum of columns": (lambda x: x.reshape(8, 2).sum(0, keepdim=True), lambda a: a.reshape(8, 2).sum(0, keepdims=True)),
    "nansum": (lambda x: x.nansum(), np.sum),
    "prod": (lambda x: x[:3].prod(), lambda a: a[:3].prod()),
    "cumsum": (lambda x: x.cumsum(0), np.cumsum),
    "cumprod": (lambda x: x[:3].cumprod(0), lambda a: a[:3].cumprod()),
    "trace": (lambda x: x.diag().trace(), np.sum),
    "matmul": (lambda x: x @ x, lambda a: a @ a),
    "matmul of matrices": (lambda x: _matrix(x) @ _matrix(x).T, lambda a: (a @ a).reshape(1, 1)),
    "dot": (lambda x: x.dot(x), lambda a: a @ a),
    "inner": (lambda x: x.inner(x), lambda a: a @ a),
    "mv": (lambda x: _matrix(x).mv(x), lambda a: (a @ a).reshape(1)),
    "addmm": (
        lambda x: an.zeros(1, 1, dtype="int32", device=x.device).addmm(_matrix(x), _matrix(x).T),
        lambda a: (a @ a).reshape(1, 1),
    ),
    "tensordot": (lambda x: x.tensordot(x, 1), lambda a: a @ a),
    "vecdot": (lambda x: an.linalg.vecdot(x, x), lambda a: a @ a),
    "einsum": (lambda x: Tensor.einsum("i,i->", x, x), lambda a: a @ a),
    "einsum of three": (lambda x: Tensor.einsum("i,i,j->", x, x, x), lambda a: (a @ a) * a.sum()),
    "linear": (lambda x: an.nn.functional.linear(x, _matrix(x)), lambda a: (a @ a).reshape(1)),
    "conv1d": (
        lambda x: an.nn.functional.conv1d(x.reshape(1, 1, -1), x.reshape(1, 1, -1)),
        lambda a: (a @ a).reshape(1, 1, 1),
    ),
}
# What adds into a tensor, in that tensor's dtype.
PUTS: dict[str, Made] = {
    "scatter_add": lambda x: Tensor([0], device=x.device).scatter_add(0, (x * 0), x),
    "scatter_reduce": lambda x: Tensor([0], device=x.device).scatter_reduce(0, (x * 0), x, "sum"),
    "index_add": lambda x: Tensor([0], device=x.device).index_add(0, (x * 0), x),
    "index_put": lambda x: Tensor([0], device=x.device).index_put(((x * 0),), x, accumulate=True),
    "bincount": lambda x: (x * 0).bincount(x, 1),
}


def _vector(value: int, n: int = 16, dtype: Any = np.int32) -> Tensor:
    return Tensor(np.full(n, value, dtype))


@pytest.mark.parametrize("name", FOLDS)
def test_what_fits_is_int32_and_what_does_not_raises(name: str) -> None:
    made, wanted = FOLDS[name]
    fits, a = made(_vector(-3)), wanted(np.full(16, -3))
    assert fits.dtype == an.int32
    assert np.array_equal(fits.numpy(), a)
    wide = made(_vector({"prod": 2**16, "cumprod": 2**16, "einsum of three": 2**18}.get(name, 2**28)))
    for _ in range(2):  # it stays what it is: no value to be read
        with pytest.raises(RangeError, match="does not fit int32.*dtype=an.int64") as raised:
            wide.numpy()
    assert isinstance(raised.value, OverflowError)
    assert isinstance(raised.value, DTypeError)
    assert np.array_equal(made(_vector(-3)).numpy(), a)  # and what comes after it is right


@pytest.mark.parametrize("name", PUTS)
def test_what_is_added_into_a_tensor_fits_or_raises(name: str) -> None:
    assert PUTS[name](_vector(-3)).tolist() == [-48]
    with pytest.raises(RangeError, match=f"{name} does not fit int32"):
        PUTS[name](_vector(2**28)).tolist()
    assert PUTS[name](_vector(2**26)).tolist() == [2**30]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "bool"])
def test_bounds_decide_the_dtype_of_sums_of_small_integers(dtype: str) -> None:
    """torch's are int64 all of them."""
    info = np.iinfo(dtype) if dtype != "bool" else None
    top = info.max if info else 1
    size = max(top, -int(info.min) if info else 0)
    few = min(TOP // size, 70000)
    x = Tensor(np.full(few, top, dtype))
    assert (x.sum().dtype, x.sum().item()) == (an.int32, few * top)
    if size > 255:
        x = Tensor(np.full(70000, top, dtype))
        assert (x.sum().dtype, x.sum().item()) == (an.int64, 70000 * top)
    if top > 1:
        for n in (1, 3, 5):
            if size**n < 2**63:
                x = Tensor(np.full(n, top, dtype))
                assert (x.prod().dtype, x.prod().item()) == (an.int64 if size**n > TOP else an.int32, top**n)


def test_what_is_known_to_leave_int32_is_int64() -> None:
    x = an.arange(100000)
    assert (x.sum().dtype, x.sum().item()) == (an.int64, 4999950000)
    assert x.cumsum(0)[-1].item() == 4999950000
    assert an.arange(1, 21).prod().item() == an.arange(1, 21).cumprod(0)[-1].item() == 2432902008176640000
    assert (x @ x).item() == Tensor.einsum("i,i->", x, x).item() == sum(i * i for i in range(100000))
    assert (an.arange(10).sum().dtype, an.arange(10).sum().item()) == (an.int32, 45)


def test_a_dtype_that_is_asked_for_is_computed_in() -> None:
    x = _vector(2**30, 4)
    assert x.sum(dtype="int64").item() == 2**32
    assert (x.sum(dtype="int32").dtype, x.sum(dtype="int32").item()) == (an.int32, 0)
    assert x.cumsum(0, dtype="int32").tolist() == [2**30, -(2**31), -(2**30), 0]
    assert x.prod(dtype="int32").item() == 0
    assert x.cast("int64").sum().item() == 2**32


def test_long_sums_are_exact_whatever_lies_between() -> None:
    """By way of 32 bits where the largest element allows it, else in 64."""
    rng = np.random.default_rng(0)
    for top in (1000, 2**31):
        a = rng.integers(-top, top, (3, 40, 500)).astype(np.int32)
        for axis in (0, 1, 2, (0, 1), (0, 2), (1, 2), (0, 1, 2)):
            wanted = a.sum(axis=axis, dtype=np.int64)
            assert np.array_equal(Tensor(a).sum(axis, dtype="int64").numpy(), wanted)
            if abs(wanted).max() <= TOP:
                assert np.array_equal(Tensor(a).sum(axis).numpy(), wanted)


def test_a_jit_function_raises_in_its_replays_too() -> None:
    f = an.jit(lambda x: (x * 1).sum())
    for value in (1, 1, 2**28, 1, 2**28, 2):
        if value == 2**28:
            with pytest.raises(RangeError, match="does not fit int32"):
                f(_vector(value)).item()
        else:
            assert f(_vector(value)).item() == 16 * value


def test_sums_of_each_example() -> None:
    x = _vector(2**28).reshape(2, 8)
    assert an.vmap(lambda row: row[:3].sum())(x).tolist() == [3 * 2**28] * 2
    with pytest.raises(RangeError, match="sum does not fit int32"):
        an.vmap(lambda row: row.sum())(x).tolist()


# Single elements: what bounds prove to leave int32.
LEAVES: dict[str, Callable[[], Tensor]] = {
    "constant + 1": lambda: an.tensor(TOP) + 1,
    "1 + constant": lambda: 1 + an.tensor(TOP),
    "constant - 1": lambda: an.tensor(-TOP - 1) - 1,
    "-2 - constant": lambda: -2 - an.full((3,), TOP),
    "full * full": lambda: an.full((3,), 2**16) * an.full((3,), 2**16),
    "arange * number": lambda: an.arange(100000) * 100000,
    "arange * itself": lambda: an.arange(100000) * an.arange(100000),
    "arange + number": lambda: (an.arange(10) + TOP - 8) + 0,
    "reshaped": lambda: an.arange(100000).reshape(100, 1000).T * 100000,
    "square": lambda: an.arange(100000) ** 2,
    "square()": lambda: an.arange(100000).square(),
    "power": lambda: an.arange(10) ** 10,
    "huge power": lambda: an.full((2,), -3) ** 10**9,
    "2 ** arange": lambda: 2 ** an.arange(40),
    "power of constants": lambda: an.tensor(3).pow(an.tensor(40)),
    "shift": lambda: an.tensor(1) << 31,
    "1 << constant": lambda: 1 << an.tensor(31),
    "arange << number": lambda: an.arange(100) << 30,
    "neg": lambda: -an.tensor(-TOP - 1),
    "abs": lambda: an.tensor(-TOP - 1).abs(),
    "add with alpha": lambda: an.tensor(1).add(an.tensor(2**20), alpha=2**20),
    "addcmul": lambda: an.tensor(1).addcmul(an.tensor(2**20), an.tensor(2**20)),
    "in place": lambda: an.tensor(TOP).add_(1),
}
# What fits, and what nothing is known of: that wraps around, as LIMITATIONS says.
STAYS: dict[str, tuple[Callable[[], Tensor], Any]] = {
    "constant": (lambda: an.tensor(TOP - 1) + 1, TOP),
    "lowest": (lambda: an.tensor(-TOP) - 1, -TOP - 1),
    "arange": (lambda: an.arange(3) * (TOP // 2), [0, TOP // 2, TOP - 1]),
    "part of an arange": (lambda: an.arange(100000)[:3] ** 2, [0, 1, 4]),
    "none": (lambda: an.arange(0) * TOP, []),
    "power": (lambda: 2 ** an.arange(31)[29:], [2**29, 2**30]),
    "-2 ** 31": (lambda: an.full((1,), -2) ** 31, [-(2**31)]),
    "shift": (lambda: an.tensor(1) << 30, 2**30),
    "power that may be low": (lambda: an.tensor(3) ** an.tensor([1, 2], dtype="int8"), [3, 9]),
    "power that may be negative": (lambda: an.tensor(2) ** (an.tensor([1, 2]) % 40 - 1), [1, 2]),
    "shift that may be low": (lambda: an.tensor(3) << ((an.tensor([1, 2]) & 31) - 1), [3, 6]),
    "shift that may be high": (lambda: an.tensor(3) << (an.tensor([1, 2]) & 63), [6, 12]),
    "choice": (lambda: an.where(an.arange(3) > 1, an.tensor(TOP), 0) - 1, [-1, -1, TOP - 1]),
    "wraps": (lambda: an.tensor([TOP, 1]) + 1, [-TOP - 1, 2]),
    "uint8": (lambda: an.tensor(255, dtype="uint8") + an.tensor(1, dtype="uint8"), 0),
    "int64": (lambda: an.arange(100000, dtype="int64")[-1] ** 2, 99999**2),
}


@pytest.mark.parametrize("name", LEAVES)
def test_what_is_known_to_leave_int32_raises_at_the_call(name: str) -> None:
    with pytest.raises(RangeError, match=r"reaches -?[\d.e+inf]+, which int32 does not hold.*int64"):
        LEAVES[name]()


@pytest.mark.parametrize("name", STAYS)
def test_what_is_not_known_to_leave_int32_does_not_raise(name: str) -> None:
    made, wanted = STAYS[name]
    assert made().tolist() == wanted


def test_sums_on_a_gpu(webgpu: str) -> None:
    """int64 where the adapter has it and 32 bits may not be enough; without it an error, or what LIMITATIONS says."""
    x = Tensor(np.full(16, 2**28, np.int32), device="webgpu")
    small = Tensor(np.full(9_000_000, 255, np.uint8), device="webgpu")
    assert (Tensor([True, False], device="webgpu").sum().dtype, small[:9].sum().dtype) == (an.int32, an.int32)
    if an.int64 in get_device(webgpu).limits.dtypes:
        for made, wanted in ((lambda: x.sum(), 2**32), (lambda: x @ x, 2**60), (lambda: small.sum(), 255 * 9_000_000)):
            assert (made().dtype, made().item()) == (an.int64, wanted)
        assert an.arange(100000, device="webgpu").sum().item() == 4999950000
    else:
        assert x.sum().item() == 0
        with pytest.raises(RangeError, match=r"sum: .* device 'webgpu' has no int64"):
            small.sum()
        with pytest.raises(RangeError, match=r"sum: .* device 'webgpu' has no int64"):
            an.arange(100000, device="webgpu").sum()


def test_sums_of_what_is_found_to_be_one_number_fit(device: str) -> None:
    """Rules that run after the call find x - x to be zeros: their products were held to be too large."""
    x = Tensor(np.arange(6, dtype=np.int32).reshape(2, 3), device=device)
    for zeros in (x - x, x ^ x):
        for found in (zeros.sum(axis=1), zeros.prod(axis=1), zeros @ x.T, zeros.cumsum(axis=1)):
            assert not found.numpy().any()
