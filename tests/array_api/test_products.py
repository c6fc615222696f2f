"""Products of vectors and matrices of every pair of integer dtypes: the promoted dtype, whatever the values."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import array_api as xp
from tests.array_api.beside_strict import DTYPES
from tests.array_api.test_values import read_of

PAIRS = [
    (a, b)
    for a, b in itertools.product([d for d in DTYPES if "int" in d], repeat=2)
    if np.result_type(a, b).kind != "f"  # the standard has no dtype for uint64 and a signed one
]
# a function: NumPy's, and pairs of shapes
Shapes = list[tuple[tuple[int, ...], tuple[int, ...]]]
N = 300  # products of the ends of int16 and uint16 leave int32
PRODUCTS: dict[str, tuple[Callable[[Any, Any], Any], Shapes]] = {
    "matmul": (np.matmul, [((N,), (N,)), ((2, N), (N,)), ((N,), (N, 2)), ((2, N), (N, 3)), ((2, 1, 1, N), (2, N, 2))]),
    "vecdot": (lambda x, y: (x * y).sum(-1, dtype=x.dtype), [((N,), (N,)), ((2, N), (N,)), ((2, 1, N), (2, N))]),
    "tensordot": (lambda x, y: np.tensordot(x, y, min(2, x.ndim)), [((N,), (N,)), ((2, 20, 15), (20, 15, 2))]),
    "outer": (np.outer, [((3,), (2,))]),
    "cross": (np.cross, [((3,), (3,)), ((2, 3), (1, 3))]),
}  # fmt: skip


def _ours(name: str, x: Any, y: Any) -> list[Any]:
    axes = {"axes": min(2, x.ndim)} if name == "tensordot" else {}
    return [getattr(m, name)(x, y, **axes) for m in (xp, xp.linalg) if hasattr(m, name)]


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_integers_have_the_promoted_dtype(name: str) -> None:
    """Of values and of constants, whose bounds are known: at the ends of the dtypes, beyond what the result holds."""
    theirs, shapes = PRODUCTS[name]
    for (a, b), (s, t) in itertools.product(PAIRS, shapes):
        kind = np.result_type(a, b)
        for end in ("min", "max"):
            x, y = np.full(s, getattr(np.iinfo(a), end), a), np.full(t, np.iinfo(b).max, b)
            expected = theirs(x.astype(kind), y.astype(kind))
            known = [xp.full(v.shape, v.flat[0].item(), dtype=getattr(xp, d)) for v, d in ((x, a), (y, b))]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # those that wrap around
                for z in (*_ours(name, xp.asarray(x), xp.asarray(y)), *_ours(name, *known)):
                    got = z.numpy()
                    assert (z.dtype.name, got.shape) == (kind.name, expected.shape), (a, b, s, t)
                    np.testing.assert_array_equal(got, expected, err_msg=f"{a} {b} {s} {t} {end}")


def test_the_operator_widens_where_the_function_wraps() -> None:
    x, y = xp.full((N,), 2**15 - 1, dtype=xp.int16), xp.full((N,), 2**16 - 1, dtype=xp.uint16)
    exact = N * (2**15 - 1) * (2**16 - 1)
    z = x @ y
    assert (z.dtype, z.item()) == (xp.int64, exact)
    with pytest.warns(RuntimeWarning, match="matmul: .* wraps around"):
        read = read_of(lambda: xp.matmul(x, y))
    assert read == ("int32", (exact + 2**31) % 2**32 - 2**31)
