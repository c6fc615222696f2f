"""A BLAS that rounds otherwise than this machine's: `python -m pytest -p tests.another_blas tests/nn` finds the tests
that depend on it.

Products of matrices on the cpu device get an error as large as another order of summation may make, a different one for
each shape and layout, so that a product in pieces does not equal the whole bit by bit. Products that every order
computes exactly stay exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _error(a: Array, b: Array, result: Array, product: Callable[..., Array]) -> Array | None:
    """What to add to `result`, the product of `a` and `b`; None if its sums are exact."""
    wide, other = np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))
    size = np.nan_to_num(product(wide, other), posinf=0.0)
    digits = np.finfo(result.dtype).nmant + 1
    for unit in (1, 8, 64, 1024):  # whole multiples of a fraction, and not too many of them
        if (
            all(np.array_equal(x * unit, np.floor(x * unit)) for x in (wide, other))
            and (size * unit**2 < 2**digits).all()
        ):
            return None
    terms = product((wide != 0).astype(np.float64), (other != 0).astype(np.float64))
    rng = np.random.default_rng([*result.shape, *a.shape, *map(abs, a.strides)])
    share = rng.uniform(0.3, 0.7, result.shape) * rng.choice([-1.0, 1.0], result.shape)
    return np.where(terms > 1, share * np.finfo(result.dtype).eps * size, 0.0)


def _rounded_otherwise(product: Any) -> Any:
    def wrapped(a: Any, b: Any, out: Array | None = None, **options: Any) -> Any:
        left, right = (np.array(x) for x in (a, b))  # copies: the result may lie in their place
        result = product(a, b, out=out, **options) if out is not None else product(a, b, **options)
        if isinstance(result, np.ndarray) and result.size and result.dtype.kind == "f":
            with np.errstate(all="ignore"):
                error = _error(left, right, result, product)
                if error is not None:
                    result += error.astype(result.dtype)
        return result

    wrapped.__name__ = product.__name__
    return wrapped


def pytest_configure() -> None:
    """As a plugin, not when it is imported: collecting doctests imports every module."""
    np.matmul = _rounded_otherwise(np.matmul)  # type: ignore[misc]
    np.dot = _rounded_otherwise(np.dot)  # type: ignore[misc]
