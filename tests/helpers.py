"""What tests are written in: `check_values`, `check_kernels`, `check_grad`.

The oracle is never the code under test: a value is compared with one computed by NumPy in float64, on the device asked
for and on the reference interpreter, which runs the unscheduled graph.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from anneal.backend import get_device
from anneal.tensor import Tensor, dtypes
from anneal.uop import Line
from tests.reference import evaluate

Array = np.ndarray[Any, Any]

# How far a float result may be from float64: (relative, absolute).
TOLERANCE = {"float16": (4e-3, 4e-3), "float32": (2e-5, 2e-6), "float64": (1e-12, 1e-12)}


class _Missing:
    """A package that is not installed: the test that asks for one of its names is skipped, the others of its file run.

    While files are collected its names are such values too, so that tables of cases can be made.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> _Missing:
        if "PYTEST_CURRENT_TEST" in os.environ:
            pytest.skip(f"needs {self._name}")
        return _Missing(f"{self._name}.{name}")


def optional(name: str) -> Any:
    """The package, or one that skips each test that asks for its names."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return _Missing(name)


class EveryLine(set[Line]):
    """All lines of code, as a thread knows those whose results go on into later rounds of a loop (`LEARNED.carried`):
    the most that earlier programs can have taught it.
    """

    def __contains__(self, line: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


def reference(t: Tensor) -> Array:
    """The value of a tensor by the reference interpreter."""
    return evaluate([t.uop])[0]


def close(got: Array, expected: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """`got` has the shape of `expected` and, within its dtype's tolerance, its values; integers and bools exactly."""
    want = np.asarray(expected)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    r, a = TOLERANCE[got.dtype.name]
    np.testing.assert_allclose(
        got.astype(np.float64),
        want.astype(np.float64),
        rtol=r if rtol is None else rtol,
        atol=a if atol is None else atol,
    )


def of_sums() -> str:
    """The dtype of sums of int32 of which nothing is known, on the default device."""
    name = Tensor(0).device
    return "int64" if name != "cpu" and dtypes.int64 in get_device(name).limits.dtypes else "int32"


def check_values(
    t: Tensor, expected: Any, *, dtype: str | None = None, rtol: float | None = None, atol: float | None = None
) -> None:
    """The tensor has these values, computed on its device and by the reference interpreter."""
    if dtype is not None:
        assert t.dtype.name == dtype, f"dtype {t.dtype.name}, expected {dtype}"
    slow = reference(t)
    assert slow.dtype.name == t.dtype.name
    close(slow, expected, rtol, atol)
    fast = t.numpy()
    assert fast.dtype.name == t.dtype.name
    close(fast, expected, rtol, atol)


def check_kernels(t: Tensor | Sequence[Tensor], count: int) -> None:
    """Realising the tensor (or the tensors together) takes this many kernels."""
    from anneal.runtime import plan_of

    tensors = [t] if isinstance(t, Tensor) else list(t)
    plan = plan_of(tensors)
    assert len(plan.calls) == count, (
        f"{len(plan.calls)} kernels, expected {count}: {[c.kernel.name for c in plan.calls]}"
    )


def numeric_gradient(f: Callable[..., Tensor], arrays: Sequence[Array], eps: float = 1e-6) -> list[Array]:
    """Central differences of sum(f(*arrays)) in float64, by the reference interpreter."""
    out = []
    for k, array in enumerate(arrays):
        slope = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            values = []
            for step in (eps, -eps):
                moved = [a.copy() for a in arrays]
                moved[k][place] += step
                values.append(float(reference(f(*[Tensor(m) for m in moved]).sum())))
            slope[place] = (values[0] - values[1]) / (2 * eps)
        out.append(slope)
    return out


def check_grad(f: Callable[..., Tensor], *arrays: Array, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The gradient of sum(f(...)) with respect to each array agrees with central differences, in float64."""
    wide = [np.asarray(a, np.float64) for a in arrays]
    tensors = [Tensor(a, requires_grad=True) for a in wide]
    f(*tensors).sum().backward()
    for t, want in zip(tensors, numeric_gradient(f, wide), strict=True):
        assert t.grad is not None
        np.testing.assert_allclose(reference(t.grad), want, rtol=rtol, atol=atol)
