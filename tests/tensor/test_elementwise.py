"""Arithmetic, comparison, logic, bits and unary maths against NumPy in float64 (and torch, where the meaning
is its).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.extra import numpy as hnp

from anneal.errors import DTypeError, ShapeError
from anneal.tensor import Tensor
from tests.helpers import check_values

pytestmark = pytest.mark.usefixtures("device")
rng = np.random.default_rng(0)

SHAPES = [((3, 4), (3, 4)), ((3, 1), (4,)), ((2, 1, 3), (1, 4, 1)), ((), (5,)), ((5,), ()), ((1,), (1, 1))]

FLOAT_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floor_divide": np.floor_divide,
    "remainder": np.mod,
    "fmod": np.fmod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "pow": lambda a, b: np.power(np.abs(a) + 0.1, b),
    "logaddexp": np.logaddexp,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "xlogy": lambda a, b: a * np.log(b),
}


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", FLOAT_BINARY)
def test_floats_broadcast(name: str, shapes: tuple[Any, Any]) -> None:
    a, b = (rng.uniform(0.5, 3.0, s).astype(np.float32) * np.float32(1 + i) for i, s in enumerate(shapes))
    x = Tensor(a).abs() + 0.1 if name == "pow" else Tensor(a)
    expected = FLOAT_BINARY[name](a.astype(np.float64), b.astype(np.float64))
    check_values(getattr(x, name)(Tensor(b)), expected, rtol=1e-4, atol=1e-4, dtype="float32")


INT_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floor_divide": np.floor_divide,
    "remainder": np.mod,
    "fmod": np.fmod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


@pytest.mark.parametrize("name", INT_BINARY)
def test_integers_with_negatives(name: str) -> None:
    a = np.arange(-12, 12, dtype=np.int32).reshape(-1, 1)
    b = np.array([-7, -3, -1, 1, 2, 5], np.int32)
    check_values(getattr(Tensor(a), name)(Tensor(b)), INT_BINARY[name](a, b))


@pytest.mark.parametrize("by", [-5, -1, 3, 4, 8])
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_integers_by_a_constant(name: str, by: int) -> None:
    a = np.arange(-20, 20, dtype=np.int32)
    check_values(getattr(Tensor(a), name)(by), INT_BINARY[name](a, np.int32(by)), dtype="int32")


def test_division_of_integers_by_zero_gives_zero() -> None:
    x = Tensor([5, -5, 0])
    check_values(x // Tensor([0, 0, 0]), [0, 0, 0])
    check_values(x % Tensor([0, 0, 0]), [0, 0, 0])


def test_integers_wrap() -> None:
    top = Tensor([2**31 - 1])
    check_values(top + 1, [-(2**31)])
    check_values(Tensor([2**30]) * 4, [0])


def test_truncated_division() -> None:
    a = np.arange(-9, 10, dtype=np.int32)
    for by in (-4, 3):
        check_values(Tensor(a).div(by, rounding_mode="trunc"), np.trunc(a / by).astype(np.int32), dtype="int32")
        check_values(Tensor(a).div(by, rounding_mode="floor"), a // by, dtype="int32")
    check_values(Tensor([7.0, -7.0]).div(2, rounding_mode="trunc"), [3.0, -3.0])


def test_whole_quotients_of_floats_are_whole(device: str) -> None:
    """A device may round a quotient to either side of a whole number: what is left decides."""
    i = np.arange(1, 130, dtype=np.float32)
    product, by = i[:, None] * i, np.broadcast_to(i, (129, 129)).copy()
    whole = np.broadcast_to(i[:, None], (129, 129))
    for sign in (1, -1):
        x, y = Tensor(product * sign), Tensor(by)
        check_values(x // y, whole * sign, rtol=0, atol=0)
        check_values(x % y, np.zeros_like(by), rtol=0, atol=0)
        check_values(x.fmod(y), np.zeros_like(by), rtol=0, atol=0)
        check_values(x.div(y, rounding_mode="trunc"), whole * sign, rtol=0, atol=0)


def test_remainders_of_floats_are_exact(device: str) -> None:
    a = (rng.normal(size=4000) * 100).astype(np.float32)
    b = rng.normal(size=4000).astype(np.float32)
    # 1.0 % 0.1 is nearly 0.1: the quotient lies below 10, where no float does.
    a[:9] = [1.0, -1.0, 1.0, 3e38, -3e38, 1e-38, 7.5, -1e-20, 1e-20]
    b[:9] = [0.1, 0.1, -0.1, 3.1, 7.0, 3e-38, 2.5, 1.0, -1.0]
    a[9:40] = b[9:40] * np.float32(1e9)
    for ours, theirs in ((Tensor.remainder, np.mod), (Tensor.fmod, np.fmod), (Tensor.floor_divide, np.floor_divide)):
        check_values(ours(Tensor(a), Tensor(b)), theirs(a, b), rtol=0, atol=0)
    far = np.array([3e38, -3e38, 1e30, 2.0], np.float32), np.array([3e-38, 1.5e-38, -7e-20, 1.3e-38], np.float32)
    check_values(Tensor(far[0]) % Tensor(far[1]), np.mod(*far), rtol=0, atol=0)
    half = (a[40:] / 100).astype(np.float16), b[40:].astype(np.float16)
    check_values(Tensor(half[0]) % Tensor(half[1]), np.mod(*half), rtol=0, atol=0)


def test_remainders_by_infinity_and_zero(device: str) -> None:
    a, b = (
        np.array(x, np.float32) for x in ([1, -1, 1, -1, 0, 2, math.nan], [math.inf] * 2 + [-math.inf] * 3 + [0, 1])
    )
    with np.errstate(all="ignore"):
        check_values(Tensor(a) % Tensor(b), np.mod(a, b))
        check_values(Tensor(a).fmod(Tensor(b)), np.fmod(a, b))
        check_values(Tensor(a) // Tensor(b), np.floor_divide(a, b))


def test_divmod() -> None:
    a = np.arange(-12, 12, dtype=np.int32).reshape(-1, 1)
    b = np.array([-7, -3, 2, 5], np.int32)
    for got, expected in zip(divmod(Tensor(a), Tensor(b)), np.divmod(a, b), strict=True):
        check_values(got, expected, dtype="int32")
    for got, expected in zip(divmod(7.5, Tensor([2.0, -2.0])), np.divmod(7.5, [2.0, -2.0]), strict=True):
        check_values(got, expected, dtype="float32")


def test_true_division_of_integers_is_float32() -> None:
    check_values(Tensor([7, -7]) / 2, [3.5, -3.5], dtype="float32")
    check_values(1 / Tensor([4]), [0.25], dtype="float32")


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 2.0, 1.7])
def test_float_powers(exponent: float) -> None:
    a = rng.uniform(0.3, 2.0, 7).astype(np.float32)
    check_values(Tensor(a) ** exponent, a.astype(np.float64) ** exponent, rtol=1e-4, dtype="float32")


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7])
def test_integer_powers_are_exact(exponent: int) -> None:
    a = np.arange(-5, 6, dtype=np.int32)
    check_values(Tensor(a) ** exponent, a**exponent, dtype="int32")
    check_values(Tensor(a) ** Tensor([exponent]), a**exponent, dtype="int32")
    check_values(2 ** Tensor([exponent]), [2**exponent], dtype="int32")


def test_integer_to_a_negative_power_truncates() -> None:
    check_values(Tensor([1, -1, -1, 2, 0]) ** Tensor([-3, -3, -2, -1, -1]), [1, -1, 1, 0, 0])


UNARY: dict[str, tuple[Any, float, float]] = {
    "exp": (np.exp, -3, 3),
    "exp2": (np.exp2, -3, 3),
    "expm1": (np.expm1, -3, 3),
    "log": (np.log, 0.1, 9),
    "log2": (np.log2, 0.1, 9),
    "log10": (np.log10, 0.1, 9),
    "log1p": (np.log1p, -0.9, 9),
    "sqrt": (np.sqrt, 0, 9),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 9),
    "reciprocal": (lambda x: 1 / x, 0.2, 5),
    "sin": (np.sin, -6, 6),
    "cos": (np.cos, -6, 6),
    "tan": (np.tan, -1.3, 1.3),
    "tanh": (np.tanh, -4, 4),
    "sinh": (np.sinh, -3, 3),
    "cosh": (np.cosh, -3, 3),
    "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 1),
    "atan": (np.arctan, -9, 9),
    "asinh": (np.arcsinh, -9, 9),
    "acosh": (np.arccosh, 1, 9),
    "atanh": (np.arctanh, -0.99, 0.99),
    "cbrt": (np.cbrt, -9, 9),
    "sinc": (np.sinc, -3, 3),
    "logit": (lambda x: np.log(x / (1 - x)), 0.01, 0.99),
    "deg2rad": (np.deg2rad, -360, 360),
    "rad2deg": (np.rad2deg, -6, 6),
    "signbit": (np.signbit, -1, 1),
    "erf": (np.vectorize(math.erf), -3, 3),
    "erfc": (np.vectorize(math.erfc), -3, 9),
    "abs": (np.abs, -3, 3),
    "sign": (np.sign, -3, 3),
    "neg": (np.negative, -3, 3),
    "floor": (np.floor, -3, 3),
    "ceil": (np.ceil, -3, 3),
    "round": (np.rint, -3, 3),
    "trunc": (np.trunc, -3, 3),
    "frac": (lambda x: x - np.trunc(x), -3, 3),
    "square": (np.square, -3, 3),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -6, 6),
    "logsigmoid": (lambda x: -np.log1p(np.exp(-x)), -6, 6),
    "relu": (lambda x: np.maximum(x, 0), -3, 3),
    "relu6": (lambda x: np.clip(x, 0, 6), -3, 9),
    "leaky_relu": (lambda x: np.where(x > 0, x, 0.01 * x), -3, 3),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(x)), -3, 3),
    "celu": (lambda x: np.where(x > 0, x, np.expm1(x)), -3, 3),
    "silu": (lambda x: x / (1 + np.exp(-x)), -6, 6),
    "swish": (lambda x: x / (1 + np.exp(-x)), -6, 6),
    "gelu": (lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))), -4, 4),
    "softplus": (lambda x: np.log1p(np.exp(x)), -6, 30),
    "softsign": (lambda x: x / (1 + np.abs(x)), -3, 3),
    "mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), -4, 4),
    "hardtanh": (lambda x: np.clip(x, -1, 1), -3, 3),
    "hardsigmoid": (lambda x: np.clip(x + 3, 0, 6) / 6, -5, 5),
    "hardswish": (lambda x: x * np.clip(x + 3, 0, 6) / 6, -5, 5),
    "isnan": (np.isnan, -1, 1),
    "isinf": (np.isinf, -1, 1),
    "isfinite": (np.isfinite, -1, 1),
    "logical_not": (np.logical_not, -1, 1),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    f, low, high = UNARY[name]
    x = np.linspace(low, high, 41).astype(np.float32).reshape(1, 41)
    check_values(getattr(Tensor(x), name)(), f(x.astype(np.float64)), rtol=3e-5, atol=3e-6)


def test_gelu_of_tanh() -> None:
    x = np.linspace(-4, 4, 33).astype(np.float32)
    w = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (w + 0.044715 * w**3)
    check_values(Tensor(x).gelu("tanh"), 0.5 * w * (1 + np.tanh(inner)), rtol=3e-5, atol=3e-6)


def test_small_arguments_keep_their_digits() -> None:
    x = np.array([1e-7, -1e-7, 1e-4, -1e-4, 0.0], np.float32)
    check_values(Tensor(x).log1p(), np.log1p(x.astype(np.float64)), rtol=1e-6, atol=0)
    check_values(Tensor(x).expm1(), np.expm1(x.astype(np.float64)), rtol=1e-6, atol=0)


NEAR_ZERO = ("sinh", "asin", "atan", "asinh", "atanh", "expm1", "log1p", "cbrt")


@pytest.mark.parametrize("name", NEAR_ZERO)
def test_digits_near_zero(name: str) -> None:
    x = np.geomspace(1e-30, 0.5, 200).astype(np.float32)
    x = np.concatenate([x, -x, np.zeros(1, np.float32)])
    f = getattr(np, {"asin": "arcsin", "atan": "arctan", "asinh": "arcsinh", "atanh": "arctanh"}.get(name, name))
    check_values(getattr(Tensor(x), name)(), f(x.astype(np.float64)), rtol=1.5e-6, atol=0)


@pytest.mark.parametrize("name", ["acos", "acosh"])
def test_digits_near_one(name: str) -> None:
    away = np.geomspace(1e-7, 0.5, 100)
    x = (1 - away if name == "acos" else 1 + away).astype(np.float32)
    expected = np.arccos(x.astype(np.float64)) if name == "acos" else np.arccosh(x.astype(np.float64))
    check_values(getattr(Tensor(x), name)(), expected, rtol=1.5e-6, atol=0)


def test_tails_of_the_error_function(device: str) -> None:
    x = np.concatenate([np.linspace(-6, 9, 301), [math.inf, -math.inf, math.nan, 50.0]])
    z = np.vectorize(math.erf)(np.concatenate([np.linspace(-3, 3, 101), [1e-20, 0.0]]))
    for dtype, rtol in [("float32", 3e-6), ("float64", 1e-13)][: 2 if device == "cpu" else 1]:
        a, b = x.astype(dtype), z.astype(dtype)
        check_values(Tensor(a).erfc(), np.vectorize(math.erfc)(a.astype(np.float64)), rtol=rtol)
        there = np.vectorize(math.erf)(Tensor(b).erfinv().numpy().astype(np.float64))
        np.testing.assert_allclose(there, b, rtol=rtol, atol=0)
        check_values(Tensor(np.array([1, -1, 1.5], dtype)).erfinv(), [math.inf, -math.inf, math.nan])


EDGES = np.array([0.0, -0.0, 1, -1, 2, -3, math.inf, -math.inf, math.nan, 1e-20, -1e20], np.float32)


@pytest.mark.parametrize("name", ["asin", "acos", "atan", "asinh", "acosh", "atanh", "cbrt"])
def test_functions_at_the_edges(name: str) -> None:
    f = np.cbrt if name == "cbrt" else getattr(np, "arc" + name[1:])
    with np.errstate(all="ignore"):
        expected = f(EDGES.astype(np.float64))
    check_values(getattr(Tensor(EDGES), name)(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["atan2", "hypot", "copysign", "heaviside"])
def test_functions_of_two_at_the_edges(name: str) -> None:
    a, b = np.repeat(EDGES, EDGES.size), np.tile(EDGES, EDGES.size)
    expected = getattr(np, {"atan2": "arctan2"}.get(name, name))(a.astype(np.float64), b.astype(np.float64))
    got = getattr(Tensor(a), name)(Tensor(b))
    check_values(got, expected, rtol=1e-6)
    sure = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got.numpy())[sure], np.signbit(expected)[sure])


def test_xlogy_and_logit_at_their_ends() -> None:
    x, y = Tensor([0.0, 0.0, 2.0]), Tensor([0.0, math.nan, 0.0])
    check_values(x.xlogy(y), [0.0, math.nan, -math.inf])
    check_values(Tensor([0.0, 0.5, 1.0]).logit(), [-math.inf, 0.0, math.inf])
    check_values(Tensor([0.0, 1.0]).logit(0.25), np.log([1 / 3, 3.0]))


def test_half_precision_stays_half() -> None:
    x = np.linspace(-0.75, 0.75, 7).astype(np.float16)
    t, w = Tensor(x, device="cpu"), x.astype(np.float64)
    for name in ("arcsin", "arctan", "arcsinh", "arctanh", "cbrt"):
        check_values(getattr(t, name)(), getattr(np, name)(w), dtype="float16", rtol=1e-3)
    for name in ("arctan2", "hypot", "copysign"):
        f, g = getattr(t, name), getattr(np, name)
        check_values(f(Tensor(x[::-1].copy(), device="cpu")), g(w, w[::-1]), dtype="float16", rtol=1e-3)


def test_functions_of_real_numbers_take_integers() -> None:
    check_values(Tensor([0, 1]).exp(), np.exp([0.0, 1.0]), dtype="float32")
    check_values(Tensor([True, False]).sqrt(), [1.0, 0.0], dtype="float32")
    check_values(Tensor([3, -3]).floor(), [3, -3], dtype="int32")
    check_values(Tensor([3, -3]).relu(), [3, 0], dtype="int32")


def test_rounding_is_half_to_even() -> None:
    check_values(Tensor([0.5, 1.5, 2.5, -0.5, -1.5]).round(), [0.0, 2.0, 2.0, -0.0, -2.0])
    check_values(Tensor([1.234, -5.678]).round(2), [1.23, -5.68], rtol=1e-6)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [((-1, 2), [-1, -1, 0, 2, 2]), ((None, 1), [-5, -1, 0, 1, 1]), ((0, None), [0, 0, 0, 2, 7])],
)
def test_clamp(bounds: tuple[Any, Any], expected: list[int]) -> None:
    x = Tensor([-5, -1, 0, 2, 7])
    check_values(x.clamp(*bounds), expected, dtype="int32")
    check_values(x.float().clip(*bounds), expected, dtype="float32")


def test_clamp_takes_tensors() -> None:
    check_values(Tensor([1.0, 5.0]).clamp(Tensor([2.0, 0.0]), Tensor([3.0, 4.0])), [2.0, 4.0])


def test_lerp_and_scaled_addition() -> None:
    a, b = Tensor([0.0, 4.0]), Tensor([10.0, 8.0])
    check_values(a.lerp(b, 0.5), [5.0, 6.0])
    check_values(a.add(b, alpha=2), [20.0, 20.0])
    check_values(a.sub(b, alpha=0.5), [-5.0, 0.0])


def test_where_in_its_three_forms() -> None:
    x = Tensor([-1.0, 2.0, -3.0])
    check_values(Tensor.where(x > 0, x, 0), [0.0, 2.0, 0.0], dtype="float32")
    check_values((x > 0).where(1, 0), [0, 1, 0], dtype="int32")
    check_values(x.where(x > 0, Tensor([[9.0], [8.0]])), [[9.0, 2.0, 9.0], [8.0, 2.0, 8.0]])
    check_values((x > 0).where(x, Tensor([1, 2, 3])), [1.0, 2.0, 3.0], dtype="float32")


# -- not numbers ------------------------------------------------------------------------------------------------------


def test_comparisons_with_nan_are_false() -> None:
    x = Tensor([math.nan, 1.0])
    for name, other in (("lt", [False, False]), ("le", [False, True]), ("ge", [False, True]), ("eq", [False, True])):
        check_values(getattr(x, name)(1.0), other)
    check_values(x.ne(x), [True, False])
    check_values(x.isnan(), [True, False])


def test_infinities_are_seen() -> None:
    x = Tensor([math.inf, -math.inf, 0.0, math.nan])
    check_values(x.isinf(), [True, True, False, False])
    check_values(x.isfinite(), [False, False, True, False])
    check_values(x.nan_to_num(posinf=5.0, neginf=-5.0), [5.0, -5.0, 0.0, 0.0])


def test_closeness_and_membership() -> None:
    x = Tensor([1.0, 2.0, math.nan])
    assert x.allclose(x + 1e-7, equal_nan=True)
    assert not x.allclose(x)
    assert not Tensor([1.0]).allclose([1.1])
    check_values(Tensor([[1, 2], [3, 4]]).isin([4, 1, 9]), [[True, False], [False, True]])
    check_values(Tensor([1, 2]).isin(2), [False, True])
    check_values(Tensor([1, 2]).isin(np.zeros(0, np.int32)), [False, False])
    check_values(Tensor([math.inf, -math.inf, 1.0]).isposinf(), [True, False, False])
    check_values(Tensor([math.inf, -math.inf, 1.0]).isneginf(), [False, True, False])


# -- bools and bits ---------------------------------------------------------------------------------------------------


def test_bools_have_logic_for_arithmetic() -> None:
    a, b = Tensor([True, True, False]), Tensor([True, False, False])
    check_values(a + b, [True, True, False], dtype="bool")
    check_values(a * b, [True, False, False], dtype="bool")
    check_values(a & b, [True, False, False])
    check_values(a ^ b, [False, True, False])
    check_values(~a, [False, False, True])
    check_values(a > b, [False, True, False])
    check_values(a + 1, [2, 2, 1], dtype="int32")


def test_shifts() -> None:
    check_values(Tensor([1, -8, 5]) << 3, [8, -64, 40])
    check_values(Tensor([1, -8, 5]) >> 1, [0, -4, 2])
    check_values(Tensor([1, 2]) << Tensor([4, 0]), [16, 2])
    check_values(Tensor([0x80000000], dtype="uint32") >> 31, [1], dtype="uint32")


def test_unsigned_words_wrap() -> None:
    x = Tensor([0xFFFFFFFF], dtype="uint32")
    check_values(x + 1, np.array([0], np.uint32))
    check_values(x * x, np.array([1], np.uint32))
    check_values(~x, np.array([0], np.uint32))


def test_bitcast() -> None:
    x = np.array([1.0, -2.5, 0.0], np.float32)
    check_values(Tensor(x).bitcast("int32"), x.view(np.int32))
    check_values(Tensor(x).bitcast("uint32").view("float32"), x)


def test_casts() -> None:
    check_values(Tensor([1.9, -1.9, 0.5]).int(), [1, -1, 0], dtype="int32")
    check_values(Tensor([0.0, -0.5, 2.0]).bool(), [False, True, True], dtype="bool")
    check_values(Tensor([True, False]).float(), [1.0, 0.0], dtype="float32")
    check_values(Tensor([-1, 5]).cast("uint32"), np.array([0xFFFFFFFF, 5], np.uint32))


def test_casts_stop_at_the_ends_of_the_range() -> None:
    check_values(Tensor([3e9, -3e9, math.inf, -math.inf]).int(), [2**31 - 1, -(2**31)] * 2)


# -- promotion --------------------------------------------------------------------------------------------------------


def test_python_numbers_are_weak() -> None:
    assert (Tensor([1]) + 1).dtype.name == "int32"
    assert (Tensor([1]) + 1.5).dtype.name == "float32"
    assert (Tensor([True]) + True).dtype.name == "bool"
    assert (Tensor([1.0]) * 2).dtype.name == "float32"
    assert (Tensor([1], dtype="uint32") + 1).dtype.name == "uint32"
    check_values(Tensor([1, 2]) * 0.5, [0.5, 1.0])
    check_values(3 - Tensor([1, 2]), [2, 1])
    check_values(np.float64(2.0) * Tensor([1.0]), [2.0], dtype="float32")


def test_arrays_join_in() -> None:
    check_values(np.array([1.0, 2.0], np.float32) + Tensor([1, 2]), [2.0, 4.0], dtype="float32")
    check_values(Tensor([1, 2]) + np.array([1, 2], np.int32), [2, 4], dtype="int32")


# -- mistakes ---------------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "shapes": (
        lambda: Tensor.zeros(2, 3) + Tensor.zeros(2, 4),
        ShapeError,
        r"add: shapes \(2, 3\) and \(2, 4\).*axis -1 is 3",
    ),
    "difference of bools": (lambda: Tensor([True]) - True, DTypeError, "sub: bools"),
    "negative bool": (lambda: -Tensor([True]), DTypeError, "neg: a bool"),
    "bits of floats": (lambda: Tensor([1.0]) & 1, DTypeError, "bitwise_and: takes integers or bools, not float32"),
    "shift backwards": (lambda: Tensor([1]) << -1, DTypeError, "0 places or more, not -1"),
    "shift of floats": (lambda: Tensor([1.0]) << 1, DTypeError, "bitwise_left_shift: takes integers"),
    "a string": (lambda: Tensor([1.0]) + "1", DTypeError, "add: takes a tensor, an array or a number, not str"),
    "too large a number": (lambda: Tensor([1]) + 2**40, DTypeError, "does not fit int32"),
    "negative unsigned": (lambda: Tensor([1], dtype="uint32") + -1, DTypeError, "-1 does not fit uint32"),
    "negative power": (lambda: Tensor([2]) ** -1, DTypeError, "pow: an integer to the power -1"),
    "clamp of nothing": (lambda: Tensor([2]).clamp(), DTypeError, "clamp: give min, max"),
    "gelu": (lambda: Tensor([2.0]).gelu("fast"), DTypeError, "gelu: approximate is"),
    "rounding mode": (lambda: Tensor([2.0]).div(1, rounding_mode="up"), DTypeError, "rounding_mode is None"),
    "bitcast width": (lambda: Tensor([2.0]).bitcast("float16"), DTypeError, "bitcast: float32 and float16"),
    "prelu": (lambda: Tensor([[2.0]]).prelu(Tensor([1.0, 2.0])), ShapeError, "prelu: a weight of shape"),
    "no condition": (lambda: Tensor([1.0]).where(Tensor([2.0]), 0), DTypeError, "where: a condition is bool"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_at_the_call(name: str) -> None:
    call, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        call()


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=3))
def test_any_shapes_broadcast_as_numpys(shapes: Any) -> None:
    a, b, c = (np.arange(int(np.prod(s)), dtype=np.int32).reshape(s) for s in shapes.input_shapes)
    got = Tensor.where(Tensor(a) > 2, Tensor(b), Tensor(c)) + Tensor(a) * Tensor(c)
    assert got.shape == shapes.result_shape
    check_values(got, np.where(a > 2, b, c) + a * c)
