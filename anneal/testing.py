"""Comparisons of tensors under torch's name, for tests of programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anneal.tensor import Tensor

__all__ = ["assert_close"]

_BOUNDS = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Any = None,
) -> None:
    """Raise AssertionError unless `actual` is `expected` within atol + rtol * abs(expected): tensors, arrays, numbers,
    or lists and dicts of them.

    Args:
        rtol, atol: None: torch's for the dtype, of two dtypes the wider bounds. equal_nan: whether nan equals nan.
        check_device, check_dtype: whether devices and dtypes are to be equal. msg: what the error says instead, or a
            function of what it says. allow_subclasses, check_layout, check_stride: ignored.

    >>> assert_close(Tensor([1.0, 2.0]), Tensor([1.0, 2.000001]))
    >>> assert_close({"a": [Tensor([1])]}, {"a": [Tensor([2])]})
    Traceback (most recent call last):
    AssertionError: assert_close: 1 of 1 elements differ at ['a'][0], by 1 at most
    """
    options = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "device": check_device, "dtype": check_dtype}
    fault = _fault(actual, expected, "", options)
    if fault:
        told = f"assert_close: {fault}"
        raise AssertionError(msg(told) if callable(msg) else msg or told)


def _fault(a: Any, b: Any, at: str, options: Mapping[str, Any]) -> str:
    """A text about the first difference; empty if there is none."""
    where = f" at {at}" if at else ""
    if isinstance(b, Mapping) or (isinstance(b, Sequence) and not isinstance(b, str)):
        keys = list(b) if isinstance(b, Mapping) else list(range(len(b)))
        if len(a) != len(b) or (isinstance(b, Mapping) and set(a) != set(b)):
            return f"{len(a)} items are not the {len(b)} expected{where}"
        return next(filter(None, (_fault(a[k], b[k], f"{at}[{k!r}]", options) for k in keys)), "")
    x, y = (t if isinstance(t, Tensor) else Tensor(t) for t in (a, b))
    for name in ("shape", "device", "dtype"):
        if options.get(name, True) and getattr(x, name) != getattr(y, name):
            return f"the {name} is {getattr(x, name)}, not {getattr(y, name)}{where}"
    bounds = [_BOUNDS.get(t.dtype.name, (0.0, 0.0)) for t in (x, y)]
    rtol, atol = (max(pair) if options[n] is None else options[n] for n, pair in zip(("rtol", "atol"), zip(*bounds)))
    left, right = (t.detach().numpy().astype(float) for t in (x, y))
    differ = ~np.isclose(left, right, rtol, atol, options["equal_nan"])
    if not differ.any():
        return ""
    most = np.abs(left - right)[differ].max()
    return f"{differ.sum()} of {differ.size} elements differ{where}, by {most:g} at most"
