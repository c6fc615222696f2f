"""Every dtype on every device: stored and converted to the bit, computed with as the reference has it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from anneal.backend import get_device, numpy_dtype
from anneal.tensor import Tensor, dtypes, functional, realize
from anneal.uop import DType
from tests.helpers import reference

ALL = [d for d in vars(dtypes).values() if isinstance(d, DType)]
NARROW = [d for d in ALL if d.is_narrow]
SMALL = [d for d in ALL if d.is_int and d.bits < 32]
rng = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """NumPy warns of each nan and overflow, which are what is looked at here."""
    with np.errstate(all="ignore"):
        yield


def held(d: DType, device: str) -> None:
    if d not in get_device(device).limits.dtypes:
        pytest.skip(f"{device} has no {d.name}")


def every(d: DType) -> Any:
    """Each code of a dtype of 8 or 16 bits."""
    return np.arange(1 << d.bits, dtype=f"u{d.itemsize}").view(numpy_dtype(d))


def bits(x: Any) -> Any:
    return x.view(f"u{x.itemsize}")


def same_numbers(got: Any, expected: Any) -> None:
    """Equal to the bit, but for the bits of a nan."""
    assert got.dtype == expected.dtype
    nan = np.isnan(got.astype(np.float64))
    np.testing.assert_array_equal(nan, np.isnan(expected.astype(np.float64)))
    np.testing.assert_array_equal(bits(got)[~nan], bits(expected)[~nan])


def million() -> Any:
    """Floats of every size, among them the ties and the ends of every narrow dtype."""
    x = rng.integers(0, 1 << 32, 400_000, np.uint32).view(np.float32)
    y = (rng.normal(size=300_000) * np.exp2(rng.integers(-20, 18, 300_000))).astype(np.float32)
    codes = [np.sort(every(d).astype(np.float32)) for d in NARROW]
    codes = [np.unique(c[np.isfinite(c)]).astype(np.float64) for c in codes]
    ties = [((c[1:] + c[:-1]) / 2).astype(np.float32) for c in codes]
    near = [np.nextafter(t, np.float32(s)) for t in ties for s in (np.inf, -np.inf)]
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 448, 464, 464.01, 480, 61439, 61440, 65519, 65520], np.float32)
    return np.concatenate([x, y, *ties, *near, ends, -ends])


@pytest.mark.parametrize("d", NARROW, ids=repr)
def test_every_code_becomes_its_float(d: DType, device: str) -> None:
    held(d, device)
    x = every(d)
    same_numbers(Tensor(x).float().numpy(), x.astype(np.float32))


@pytest.mark.parametrize("d", NARROW, ids=repr)
def test_a_million_floats_are_rounded_as_by_ml_dtypes(d: DType, device: str) -> None:
    held(d, device)
    x = million()
    expected = x.astype(numpy_dtype(d))
    if device == "webgpu":  # which may take a denormal float32 for 0
        x = np.where(np.abs(x) < 1.2e-38, np.float32(0), x)
        expected = x.astype(numpy_dtype(d))
        if d is dtypes.bfloat16:
            normal = ~(np.abs(expected.astype(np.float64)) < 1.2e-38)
            x, expected = x[normal], expected[normal]
    same_numbers(Tensor(x).cast(d).numpy(), expected)


@pytest.mark.parametrize("d", [*NARROW, *SMALL], ids=repr)
def test_a_copy_keeps_every_bit(d: DType, device: str) -> None:
    held(d, device)
    x = every(d)[:4093]  # an odd number: the last word is half full
    np.testing.assert_array_equal(bits(Tensor(x).numpy()), bits(x))
    y = Tensor(x).flip(0).numpy()
    nan = np.isnan(x[::-1].astype(np.float64))
    np.testing.assert_array_equal(bits(y)[~nan], bits(x[::-1])[~nan])


BY_WIDTH: dict[int, list[DType]] = {}
for _d in ALL:
    if _d is not dtypes.bool_:
        BY_WIDTH.setdefault(_d.bits, []).append(_d)


@pytest.mark.parametrize("width", list(BY_WIDTH))
def test_bitcast_is_a_view(width: int, device: str) -> None:
    raw = rng.integers(0, 256, 64 * width // 8, np.uint8)
    for a in BY_WIDTH[width]:
        for b in BY_WIDTH[width]:
            if {a, b} <= get_device(device).limits.dtypes:
                x = raw.view(numpy_dtype(a))
                x = np.where(np.isfinite(x.astype(np.float64)), x, numpy_dtype(a).type(1))
                if a.is_float and width >= 32:
                    x = np.where(np.abs(x) < 1e-30, numpy_dtype(a).type(2), x)
                x = np.ascontiguousarray(x.astype(numpy_dtype(a)))
                same_numbers(Tensor(x).bitcast(b).numpy(), x.view(numpy_dtype(b)))


def cast_expected(x: Any, to: DType) -> Any:
    out = numpy_dtype(to)
    if to is dtypes.bool_:
        return x.astype(np.float64) != 0
    if x.dtype.kind == "b":
        return x.astype(np.int8).astype(out)
    if to.is_int and x.dtype.kind not in "iu" or to.is_int and x.dtype.name == "float8_e5m2":
        w = np.trunc(np.nan_to_num(x.astype(np.float64)))
        range_ = to if to.bits >= 32 else dtypes.int32  # those of fewer bits are its low ones
        inside = [min(max(int(v), int(range_.min)), int(range_.max)) for v in w]
        return np.array([v % (1 << to.bits) for v in inside], f"u{to.itemsize}").view(out)
    return (x.astype(np.float32) if to.is_narrow and to is not dtypes.float16 else x).astype(out)


@pytest.mark.parametrize("a", ALL, ids=repr)
def test_casts_to_every_dtype(a: DType, device: str) -> None:
    held(a, device)
    x = np.array([0, 1, -1, 2.5, -3.75, 100, -100, 127, 128, 200, 255, 256, 300, -300, 40000, -40000, 70000])
    x = (x.astype(np.int64) if a.is_int else x).astype(numpy_dtype(a))
    targets = [b for b in ALL if b in get_device(device).limits.dtypes]
    made = [Tensor(x).cast(b) for b in targets]
    realize(made)
    for b, t in zip(targets, made, strict=True):
        same_numbers(t.numpy(), cast_expected(x, b))
        same_numbers(reference(Tensor(x).cast(b)), cast_expected(x, b))


UNARY: dict[str, Any] = {
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "sign": lambda x: x.sign(),
    "square": lambda x: x * x,
    "twice": lambda x: x + x,
    "relu": lambda x: x.relu(),
    "above": lambda x: x > 1,
    "chosen": lambda x: (x > 1).where(x, -x),
}
FLOAT_UNARY: dict[str, Any] = {
    "sqrt": lambda x: x.abs().sqrt(),
    "half": lambda x: x / 2,
    "third": lambda x: x / 3.0,
    "floor": lambda x: x.floor(),
    "nan": lambda x: x.isnan(),
}
INT_UNARY: dict[str, Any] = {
    "not": lambda x: ~x,
    "shl": lambda x: x << 3,
    "shr": lambda x: x >> 2,
    "idiv": lambda x: x // 3,
    "mod": lambda x: x % 7,
    "by itself": lambda x: x // x,
    "cube": lambda x: x * x * x,
}


@pytest.mark.parametrize("d", [*NARROW, *SMALL], ids=repr)
def test_operations_on_every_code_agree_with_the_reference(d: DType, device: str) -> None:
    """A narrow float is rounded after every op, and an integer wraps, however many ops one kernel does."""
    held(d, device)
    x = every(d) if d.bits == 8 else every(d)[::37]
    if d.is_float and device == "webgpu":
        # what a driver may flush, or take for another
        w = x.astype(np.float64)
        x = x[np.isfinite(w) & (np.abs(w) > 1e-18) & (np.abs(w) < 1e18) | (w == 0)]
    t = Tensor(x)
    functions = UNARY | (FLOAT_UNARY if d.is_float else INT_UNARY)
    made = {name: f(t) for name, f in functions.items()}
    realize(list(made.values()))
    for name, y in made.items():
        expected = reference(functions[name](t))
        if name == "third" and device == "webgpu":  # a quotient is within 2.5 units of a float32
            assert np.abs(bits(y.numpy()).astype(int) - bits(expected).astype(int)).max() <= 1
            continue
        same_numbers(y.numpy(), expected)


@pytest.mark.parametrize("d", SMALL, ids=repr)
def test_integers_wrap_around_as_numpys(d: DType, device: str) -> None:
    held(d, device)
    x = rng.integers(int(d.min), int(d.max) + 1, 301).astype(numpy_dtype(d))
    y = rng.integers(int(d.min), int(d.max) + 1, 301).astype(numpy_dtype(d))
    a, b = Tensor(x), Tensor(y)
    for got, expected in (
        (a + b, x + y),
        (a - b, x - y),
        (a * b, x * y),
        (a.maximum(b), np.maximum(x, y)),
        (a ^ b, x ^ y),
        (a.sum(dtype=d), x.sum(dtype=x.dtype)),
        (a.max(), x.max()),
        (a.cumsum(0, dtype=d), np.cumsum(x, dtype=x.dtype)),
        (a < b, x < y),
    ):
        np.testing.assert_array_equal(got.numpy(), expected)


def wide(t: Tensor) -> Any:
    return t.numpy().astype(np.float64)


@pytest.mark.parametrize("d", NARROW, ids=repr)
def test_sums_and_products_are_single_precision_inside(d: DType, device: str) -> None:
    """Many small terms would be lost in a narrow sum, and rounded products would cost digits."""
    held(d, device)
    ones = Tensor(np.ones(300, numpy_dtype(d)))
    assert ones.sum().item() == reference(ones.sum()).item() == np.float32(300).astype(numpy_dtype(d))
    assert ones.mean().item() == 1
    x, y = (rng.integers(-3, 4, (24, 40)) / 2 for _ in range(2))
    x, y = x.astype(numpy_dtype(d)), y.astype(numpy_dtype(d))
    product = Tensor(x) @ Tensor(y).T
    exact = (x.astype(np.float32) @ y.astype(np.float32).T).astype(numpy_dtype(d))
    assert product.dtype is d
    same_numbers(product.numpy(), exact)
    p = Tensor(x).softmax(-1)
    assert p.dtype is d
    x64 = x.astype(np.float64)
    e = np.exp(x64 - x64.max(-1, keepdims=True))
    expected = (e / e.sum(-1, keepdims=True)).astype(np.float32).astype(numpy_dtype(d)).astype(np.float64)
    np.testing.assert_allclose(wide(p), expected, rtol=2.0 ** (1 - d.digits), atol=2.0 ** (d.least - d.digits + 2))
    n = functional.layer_norm(Tensor(x), 40)
    assert n.dtype is d
    centred = (x64 - x64.mean(-1, keepdims=True)) / np.sqrt(x64.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(wide(n), centred, rtol=2.0**-d.digits * 1.01, atol=2.0 ** (d.least - d.digits + 2))


def test_gradients_flow_through_casts(device: str) -> None:
    held(dtypes.bfloat16, device)
    w = Tensor(np.array([1.0, 2.0, 3.0], np.float32), requires_grad=True)
    (w.bfloat16() * w.bfloat16()).float().sum().backward()
    assert w.grad is not None
    assert w.grad.dtype is dtypes.float32
    assert w.grad.tolist() == [2.0, 4.0, 6.0]
    x = Tensor(np.array([1.0, 2.0], ml_dtypes.bfloat16), requires_grad=True)
    (x.float() * 3.0).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is dtypes.bfloat16
    assert x.grad.tolist() == [3.0, 3.0]


def test_numpy_and_printing(device: str) -> None:
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        held(getattr(dtypes, name), device)
        t = Tensor([1.5, -2.0], dtype=name)
        assert t.numpy().dtype == getattr(ml_dtypes, name)
        assert t.tolist() == [1.5, -2.0]
        assert "[ 1.5, -2" in repr(t) or "[1.5, -2" in repr(t)
        assert f"dtype={name}" in repr(t)
        assert Tensor(t.numpy()).dtype.name == name
        assert Tensor(1.5, dtype=name).item() == 1.5


def test_random_numbers_stay_below_one(device: str) -> None:
    for d in NARROW:
        if d in get_device(device).limits.dtypes:
            x = wide(Tensor.rand(3000, dtype=d))
            assert x.min() >= 0
            assert x.max() < 1
            assert abs(x.mean() - 0.5 + 2.0 ** (-d.digits - 1)) < 0.03
            assert math.isclose(wide(Tensor.randn(3000, dtype=d)).std(), 1, rel_tol=0.08)


FUNCTIONS: dict[str, tuple[Any, float, float]] = {  # what NumPy calls it, and the arguments
    "exp": (np.exp, -745, 710),
    "exp2": (np.exp2, -1070, 1024),
    "log": (np.log, 0, 1e300),
    "log2": (np.log2, 0, 1e-300),
    "sin": (np.sin, -1e4, 1e4),
    "cos": (np.cos, -1e4, 1e4),
    "tan": (np.tan, -50, 50),
    "tanh": (np.tanh, -3, 3),
    "erf": (np.vectorize(math.erf), -4, 4),
    "sqrt": (np.sqrt, 0, 1e10),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-3, 1e10),
    "reciprocal": (lambda x: 1 / x, -9, 9),
    "floor": (np.floor, -9, 9),
    "round": (np.rint, -9, 9),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -20, 20),
    "atan": (np.arctan, -5, 5),
    "expm1": (np.expm1, -1, 2),
    "log1p": (np.log1p, -0.9, 3),
    "erfinv": (None, -0.99, 0.99),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_functions_of_float64(name: str, device: str) -> None:
    held(dtypes.float64, device)
    function, low, high = FUNCTIONS[name]
    x = np.concatenate([rng.uniform(low, high, 500), np.linspace(low, high, 41)[1:-1], rng.uniform(-0.9, 0.9, 200)])
    x = x[(x > low) & (x < high)]
    y = getattr(Tensor(x), name)().numpy()
    assert y.dtype == np.float64
    if name == "erfinv":
        np.testing.assert_allclose([math.erf(v) for v in y], x, rtol=1e-13)
        return
    # between two neighbouring floats a sum of series has a few units of its own
    np.testing.assert_allclose(y, function(x), rtol=3e-15 if name != "tan" else 1e-12, atol=1e-300)


@pytest.mark.parametrize("name", ["exp", "log", "sin", "tanh", "erf", "sqrt", "exp2", "log2", "cos"])
def test_the_ends_of_float64(name: str, device: str) -> None:
    held(dtypes.float64, device)
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1e308, -1e308, 1.0])
    if name in ("sin", "cos"):
        x = x[np.abs(x) != 1e308]  # too many turns
    function = np.vectorize(math.erf) if name == "erf" else getattr(np, name)
    np.testing.assert_allclose(getattr(Tensor(x), name)().numpy(), function(x), rtol=1e-14)


def test_arithmetic_of_float64(device: str) -> None:
    held(dtypes.float64, device)
    x, y = rng.normal(size=(37, 40)), rng.normal(size=(29, 40))
    a, b = Tensor(x), Tensor(y)
    for got, expected in (
        (a @ b.T, x @ y.T),
        (a.sum(), x.sum()),
        (a.softmax(-1), np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
        (a.abs() ** 2.5, np.abs(x) ** 2.5),
        (a % 0.75, x % 0.75),
        (a.amax(0), x.max(0)),
        (a.maximum(0.25) / 3, np.maximum(x, 0.25) / 3),
        (a.sort(-1)[0] if isinstance(a.sort(-1), tuple) else a.sort(-1), np.sort(x, -1)),
        (Tensor([1, 2, 3]) * a[0, 0], np.array([1, 2, 3]) * x[0, 0]),
    ):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-13)
    assert a.isnan().sum().item() == 0
    assert (a / 0.0).isnan().sum().item() == 0
    assert (a * math.nan).isnan().sum().item() == x.size


@pytest.mark.parametrize("d", [dtypes.int64, dtypes.uint64], ids=repr)
def test_arithmetic_of_64_bit_integers(d: DType, device: str) -> None:
    held(d, device)
    low, high = int(d.min), int(d.max)
    x = rng.integers(low, high, 200, dtype=numpy_dtype(d), endpoint=True)
    y = rng.integers(low, high, 200, dtype=numpy_dtype(d), endpoint=True)
    x[:6], y[:6] = [low, low, high, 7, 0, 5], [1, 0, high, 3, 0, high]
    if d is dtypes.int64:
        y[6:20] = -np.arange(14) // 2
    n = rng.integers(0, 70, 200).astype(numpy_dtype(d))
    a, b, s = Tensor(x), Tensor(y), Tensor(n)
    safe = np.where(y == 0, numpy_dtype(d).type(1), y)
    wide = n >= 64
    for name, got, expected in (
        ("add", a + b, x + y),
        ("sub", a - b, x - y),
        ("mul", a * b, x * y),
        ("idiv", a // b, np.where(y == 0, 0, x // safe)),
        ("mod", a % b, np.where(y == 0, 0, x % safe)),
        ("max", a.maximum(b), np.maximum(x, y)),
        ("xor", a ^ b, x ^ y),
        ("not", ~a, ~x),
        ("less", a < b, x < y),
        ("shl", a << s, np.where(wide, 0, x << (n % 64))),
        ("shl 40", a << 40, x << 40),
        ("shr", a >> s, np.where(wide, x >> 63 if d is dtypes.int64 else 0, x >> (n % 64))),
        ("by 8", a // 8, x // 8),
        ("by 10", a // 10, x // 10),
        ("of 10", a % 10, x % 10),
        ("sum", a.sum(), x.sum()),
        ("row sum", a.reshape(10, 20).sum(1), x.reshape(10, 20).sum(1)),
        ("largest", a.max(), x.max()),
        ("sign", a.sign(), np.sign(x)),
        ("chosen", (a > b).where(a, 3), np.where(x > y, x, 3)),
    ):
        np.testing.assert_array_equal(got.numpy(), expected.astype(got.numpy().dtype), err_msg=name)
    np.testing.assert_array_equal(Tensor(x).float().numpy(), x.astype(np.float32))
    assert Tensor(low, dtype=d, device=device).item() == low
    assert (a * 0 + high).max().item() == high


def test_what_folds_keeps_the_rules_of_casts() -> None:
    """A float stops at the ends of the range of an integer of 32 bits, whose low bits those of 8 and 16 are; an integer
    wraps around: also in constants and in casts of casts.
    """
    assert [Tensor(v).cast(d).item() for v in (300.0, -300.0, 1e20) for d in ("int8", "uint16")] == [
        44, 300, -44, 65236, -1, 65535,
    ]  # fmt: skip
    assert Tensor(300).cast("int8").item() == 44
    x = Tensor([200, -3], dtype="int16")
    assert x.float().cast("int8").tolist() == [-56, -3]
    assert x.float().cast("uint8").tolist() == [200, 253]
    assert x.cast("int8").tolist() == [-56, -3]
    assert x.float().cast("int32").tolist() == [200, -3]
