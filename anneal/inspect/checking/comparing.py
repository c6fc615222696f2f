"""A device's elements beside bounded ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from anneal.inspect.checking.bounds import Array, Bounded
from anneal.uop import DType


class Compared(NamedTuple):
    """The counts of a comparison: values judged, values without a bound, values that differ, and the worst one, by its
    error over the bound.
    """

    judged: int
    unjudged: int
    differ: int
    worst: float
    at: int  # the worst that differs, else the worst of all

    @property
    def ok(self) -> bool:
        return not self.differ


def beside(got: Array, expected: Bounded, live: Array | None = None) -> Compared:
    """`got`, elements as a device has them, beside what is expected; only those that are `live` count."""
    got = got.reshape(-1)
    if not got.size:
        return Compared(0, 0, 0, 0.0, 0)
    want = expected.value.reshape(-1)
    error = np.broadcast_to(expected.error, expected.value.shape).reshape(-1)
    counted = np.ones(got.shape, np.bool_) if live is None else live.reshape(-1)
    unsure = ~np.isfinite(error) | ((error > 0) if want.dtype.kind == "b" else False)
    judged = counted & ~unsure
    with np.errstate(all="ignore"):
        if want.dtype.kind in "iub":
            same = got == want
            apart = np.where(same, 0.0, np.abs(got.astype(np.float64) - want.astype(np.float64)))
        else:
            wide = got.astype(np.float64)
            same = (wide == want) | (np.isnan(wide) & np.isnan(want))
            apart = np.where(same, 0.0, np.abs(wide - want))
        part = np.where(same, 0.0, np.where(error > 0, apart / np.where(error > 0, error, 1.0), np.inf))
    part = np.where(judged, np.where(np.isnan(part), np.inf, part), 0.0)
    differ = part > 1.0 + 1e-6
    at = int(np.argmax(part))
    return Compared(int(judged.sum()), int((counted & unsure).sum()), int(differ.sum()), float(part[at]), at)


def ulps(got: float, expected: float, dtype: DType) -> float:
    """The distance in units of the last place of `dtype` at `expected`."""
    if not dtype.is_float:
        return abs(float(got) - float(expected))
    if not np.isfinite(got) or not np.isfinite(expected):
        return 0.0 if got == expected or (got != got and expected != expected) else float("inf")
    exponent = max(int(np.frexp(expected)[1]) - 1 if expected else dtype.least, dtype.least)
    return float(abs(got - expected) / 2.0 ** (exponent - dtype.digits + 1))


def shown(x: Any) -> float | int | bool | str:
    """An element as JSON has it; text of what it lacks."""
    if isinstance(x, str):
        return x
    kind = np.asarray(x).dtype.kind
    if kind == "b":
        return bool(x)
    if kind in "iu":
        return int(x)
    value = float(x)
    return value if np.isfinite(value) else str(value)
