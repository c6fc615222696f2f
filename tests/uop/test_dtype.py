"""Dtypes: what they hold, how they meet, and how constants are rounded to them, beside ml_dtypes and NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from anneal.uop import DType, dtypes, normalise_const, promote
from anneal.uop.bounds import inverse, lossless
from anneal.uop.dtype import round_float

ALL = [d for d in vars(dtypes).values() if isinstance(d, DType)]
FLOATS = [d for d in ALL if d.is_float]
NARROW = [d for d in FLOATS if d.is_narrow]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """NumPy warns of each nan and overflow, which are what is looked at here."""
    with np.errstate(all="ignore"):
        yield


def numpy_of(d: DType) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, d.name, d.name))


def every(d: DType) -> np.ndarray:
    """Each code of a float of 8 or 16 bits."""
    return np.arange(1 << d.bits, dtype=f"u{d.itemsize}").view(numpy_of(d))


@pytest.mark.parametrize("d", FLOATS, ids=repr)
def test_facts_are_those_of_ml_dtypes(d: DType) -> None:
    info = ml_dtypes.finfo(numpy_of(d))
    assert (d.digits, d.least, d.largest) == (info.nmant + 1, info.minexp, float(info.max))
    assert d.has_infinity == (d is not dtypes.float8_e4m3fn)


@pytest.mark.parametrize("d", NARROW, ids=repr)
@given(value=st.one_of(st.floats(width=32), st.floats(-600.0, 600.0, width=32)))
def test_rounding_a_constant_is_that_of_ml_dtypes(d: DType, value: float) -> None:
    expected = float(np.float32(value).astype(numpy_of(d)))
    got = normalise_const(d, value)
    assert got == expected or (got != got and expected != expected)
    assert math.copysign(1, got) == math.copysign(1, expected) or got != got


@pytest.mark.parametrize("d", NARROW, ids=repr)
def test_ties_go_to_the_even_one(d: DType) -> None:
    codes = np.sort(every(d).astype(np.float64))
    codes = np.unique(codes[np.isfinite(codes)])
    middles = (codes[1:] + codes[:-1]) / 2
    expected = middles.astype(np.float32).astype(numpy_of(d)).astype(np.float64)
    np.testing.assert_array_equal([round_float(d, float(m)) for m in middles[:: max(1, middles.size // 4096)]],
                                  expected[:: max(1, middles.size // 4096)])  # fmt: skip


@pytest.mark.parametrize("a,b", list(itertools.product(NARROW, FLOATS)), ids=repr)
def test_lossless_is_what_every_code_says(a: DType, b: DType) -> None:
    x = every(a)
    back = x.astype(numpy_of(b)).astype(numpy_of(a))
    # the same number everywhere: a nan may lose its bits
    kept = np.array_equal(x.astype(np.float64), back.astype(np.float64), equal_nan=True)
    assert lossless(a, b) == kept


PROMOTED = [
    (dtypes.float16, dtypes.bfloat16, dtypes.float32),
    (dtypes.float8_e4m3fn, dtypes.float8_e5m2, dtypes.float32),
    (dtypes.float8_e5m2, dtypes.float16, dtypes.float16),
    (dtypes.float8_e4m3fn, dtypes.bfloat16, dtypes.bfloat16),
    (dtypes.bfloat16, dtypes.float32, dtypes.float32),
    (dtypes.bfloat16, dtypes.int64, dtypes.bfloat16),
    (dtypes.int8, dtypes.float8_e4m3fn, dtypes.float8_e4m3fn),
    (dtypes.int8, dtypes.uint8, dtypes.int16),
]


@pytest.mark.parametrize("a,b,meet", PROMOTED, ids=repr)
def test_promotion(a: DType, b: DType, meet: DType) -> None:
    assert promote(a, b) is meet
    assert promote(b, a) is meet


@pytest.mark.parametrize("a,b", list(itertools.combinations(FLOATS, 2)), ids=repr)
def test_what_floats_promote_to_holds_both(a: DType, b: DType) -> None:
    meet = promote(a, b)
    assert lossless(a, meet)
    assert lossless(b, meet)


@pytest.mark.parametrize("d", FLOATS, ids=repr)
def test_an_inverse_is_exact(d: DType) -> None:
    for power in range(d.least - 4, 1 - d.least + 4):
        value = math.ldexp(1.0, power) if abs(power) < 1022 else 0.0
        found = inverse(d, value)
        assert found == 0 or (normalise_const(d, found) == found and found * value == 1)
    assert inverse(d, 2.0) == 0.5
