"""A device's card of numerics, measured in a second: how far its functions are from exact ones, and how it rounds.

`benchmarks/numerics.py` measures the same at length; NUMERICS.md has what it found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from anneal.backend import get_device
from anneal.tensor import Tensor

Array = np.ndarray[Any, np.dtype[np.float64]]
COUNT = 4096  # arguments of each function
LARGEST = float(np.finfo(np.float32).max)
_erf = np.vectorize(math.erf, otypes=[np.float64])

# A method of Tensor, the range of its arguments, and what it is exactly.
FUNCTIONS: tuple[tuple[str, float, float, Callable[[Array], Array]], ...] = (
    ("exp", -87.0, 88.0, np.exp),
    ("exp2", -126.0, 127.0, np.exp2),
    ("log", 1e-37, 1e38, np.log),
    ("log2", 1e-37, 1e38, np.log2),
    ("sqrt", 0.0, 1e38, np.sqrt),
    ("rsqrt", 1e-37, 1e38, lambda x: 1.0 / np.sqrt(x)),
    ("reciprocal", -1e37, 1e37, lambda x: 1.0 / x),
    ("sin", -100.0, 100.0, np.sin),
    ("cos", -100.0, 100.0, np.cos),
    ("tanh", -10.0, 10.0, np.tanh),
    ("erf", -4.0, 4.0, _erf),
    ("sigmoid", -80.0, 30.0, lambda x: 1.0 / (1.0 + np.exp(-x))),
)


@dataclass(frozen=True, slots=True)
class FunctionError:
    """The largest error of a function of float32, in units of the last place, and the argument where it is."""

    name: str
    low: float
    high: float
    ulps: float
    at: float


@dataclass(frozen=True, slots=True)
class Numerics:
    """A device's card. `facts` are names with values as text: denormals, fused multiply-adds, long sums, products."""

    device: str
    adapter: str | None
    functions: tuple[FunctionError, ...]
    facts: tuple[tuple[str, str], ...]


def numerics(device: str) -> Numerics:
    """Measure a device: "cpu", "webgpu" or another that is registered.

    >>> card = numerics("cpu")
    >>> [f.ulps for f in card.functions if f.name == "sqrt"], dict(card.facts)["denormals"]
    ([0.5], 'kept')
    """
    opened = get_device(device)
    adapter = opened.describe().get("adapter")
    return Numerics(
        device=opened.name,
        adapter=None if adapter is None else str(adapter),
        functions=tuple([_worst(opened.name, *f) for f in FUNCTIONS]),
        facts=(
            ("denormals", _denormals(opened.name)),
            ("a * b + c", _fused(opened.name)),
            ("a / b", f"{_division(opened.name):.2f} ULP"),
            ("sum of 1,048,576 tenths", f"{_long_sum(opened.name):.1e} relative"),
            ("matmul of 256 × 256", f"{_product(opened.name):.2f} of the usual bound"),
        ),
    )


def _arguments(low: float, high: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Evenly apart, and where the range goes far, evenly apart in magnitude."""
    even = np.linspace(low, high, COUNT // 2)
    small = max(abs(low) if low > 0 else 1e-30, 1e-37)
    apart = np.geomspace(small, high, COUNT // 4)
    more = -np.geomspace(small, -low, COUNT // 4) if low < 0 else np.geomspace(small, max(1.0, small), COUNT // 4)
    x = np.concatenate([even, apart, more]).astype(np.float32)
    return np.asarray(x[(x >= low) & (x <= high) & (x != 0)], np.float32)


def _worst(device: str, name: str, low: float, high: float, exact: Callable[[Array], Array]) -> FunctionError:
    x = _arguments(low, high)
    found = getattr(Tensor(x, device=device), name)().numpy()
    wanted = exact(x.astype(np.float64))
    normal = (np.abs(wanted) >= np.finfo(np.float32).tiny) & (np.abs(wanted) <= LARGEST)
    ulps = _ulps(found[normal], wanted[normal])
    worst = int(ulps.argmax())
    return FunctionError(name, low, high, round(float(ulps[worst]), 2), float(x[normal][worst]))


def _ulps(found: np.ndarray[Any, Any], wanted: Array) -> Array:
    """Errors in units of the last place of the float32 that is nearest; infinite for nan."""
    unit = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(found.astype(np.float64) - wanted) / unit
    return np.asarray(np.where(np.isnan(error), np.inf, error))


def _denormals(device: str) -> str:
    one, tiny = Tensor([1.0], device=device), Tensor([1e-40], device=device)
    return "kept" if (tiny * one).item() != 0.0 else "read or made as 0"


def _fused(device: str) -> str:
    """(1 + e)(1 + e) - (1 + 2 e) with e = 2**-12 is 0 after two roundings, and e**2 after one."""
    e = 2.0**-12
    a, b, c = (Tensor([v], device=device) for v in (1 + e, 1 + e, -1 - 2 * e))
    return "one rounding (fused)" if (a * b + c).item() != 0.0 else "two roundings"


def _division(device: str) -> float:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.5, 2.0, (2, COUNT)).astype(np.float32)
    found = (Tensor(a, device=device) / Tensor(b, device=device)).numpy()
    return float(_ulps(found, a.astype(np.float64) / b.astype(np.float64)).max())


def _long_sum(device: str) -> float:
    x = np.full(1 << 20, 0.1, np.float32)
    wanted = x.astype(np.float64).sum()
    return float(abs(Tensor(x, device=device).sum().item() - wanted) / wanted)


def _product(device: str) -> float:
    """The largest error of an element in units of n u |a| |b|, the textbook's bound for n terms (Higham, 3.5)."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 256, 256)).astype(np.float32)
    found = (Tensor(a, device=device) @ Tensor(b, device=device)).numpy()
    x, y = a.astype(np.float64), b.astype(np.float64)
    bound = 256 * 2.0**-24 * (np.abs(x) @ np.abs(y))
    return float((np.abs(found - x @ y) / bound).max())
