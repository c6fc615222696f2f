"""Functions of mathematics by torch.special's names: `an.special.erfcx(x)`, `an.special.bessel_j0(x)`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.doors import names_of, opened_later
from anneal.errors import DTypeError, GradientError
from anneal.ops import alias, checked, grad_enabled, need_tensor
from anneal.tensor import Tensor, broadcast_tensors, host_call

if TYPE_CHECKING:
    from anneal.stubs.special import *
else:
    __all__ = names_of(__name__)
    __getattr__ = opened_later(__name__, make=alias)


# -- the incomplete gamma function, on the host -----------------------------------------------------------------------


def _series(a: Any, x: Any) -> Any:
    """The lower function for x < a + 1, divided by x^a e^-x / gamma(a)."""
    total, term, n = 1 / a, 1 / a, a
    while np.any(term > total * 1e-17):
        n = n + 1
        term = term * x / n
        total = total + term
    return total


def _fraction(a: Any, x: Any) -> Any:
    """The upper function for other x, divided by the same: Lentz's way (Press and others, "Numerical Recipes", 6.2)."""
    b = x + 1 - a
    c, d = np.full_like(b, 1e300), 1 / b
    total, i, step = d, 0, np.zeros_like(b)
    while np.any(np.abs(step - 1) > 1e-15) and i < 100_000:
        i, b = i + 1, b + 2
        d = 1 / (b - i * (i - a) * d)
        c = b - i * (i - a) / c
        step = c * d
        total = total * step
    return total


def _limit(a: Any, x: Any, upper: bool) -> Any:
    """The part for a above a million, to 1e-9: the first term of Temme's expansion (1979), where the two above would
    take up to 1e15 steps."""
    m = (x - a) / a
    near, side = np.abs(m) < 1e-3, 1 if upper else -1
    eta = np.where(
        near, m * (1 - m * (1 / 3 - m * (7 / 36 - m * 73 / 540))), np.sign(m) * np.sqrt(2 * (m - np.log1p(m)))
    )
    bend = np.where(near, eta / 12 - 1 / 3, 1 / m - 1 / eta)
    half = np.vectorize(math.erfc)(side * eta * np.sqrt(a / 2)) / 2
    return half + side * bend * np.exp(-a * eta**2 / 2) / np.sqrt(2 * math.pi * a)


def _part(a: Any, x: Any, upper: bool) -> Any:
    """The share of the gamma function's integral below x, or above it, for arrays of float64."""
    lost = np.isnan(a + x) & (x != 0) & ~np.isinf(a) & ~np.isinf(x)
    lost |= (a < 0) | (x < 0) | (np.isinf(a) & np.isinf(x)) | ((a == 0) & (x == 0))
    out = np.where(lost, np.nan, ((a == 0) | np.isinf(x)) != upper)
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    far = inside & (a > 1e6)
    if far.any():
        out[far], inside = _limit(a[far], x[far], upper), inside & ~far
    for low, part in ((True, _series), (False, _fraction)):
        at = inside & ((x < a + 1) == low)
        p, q = a[at], x[at]
        if p.size:
            value = np.exp(p * np.log(q) - q - np.vectorize(math.lgamma)(p)) * part(p, q)
            out[at] = value if low != upper else 1 - value
    return out


def _incomplete(name: str, a: Any, x: Any, upper: bool) -> Tensor:
    one = need_tensor("a or x", a if isinstance(a, Tensor) else x, name)
    p, q = broadcast_tensors(*(one._lift(t, name) for t in (a, x)))
    dtype = (p + q).dtype
    if not dtype.is_float:
        raise DTypeError(f"{name}: takes floats, not {dtype.name}; use .float()")
    if p.requires_grad and grad_enabled():
        raise GradientError(f"{name}: there is no gradient for the first argument; use .detach()")
    if not p.numel():
        return p + q

    def compute(p: Any, q: Any) -> Any:
        with np.errstate(all="ignore"):
            return _part(p.astype(float), q.astype(float), upper).astype(p.dtype)

    def gradient(inputs: Any, outputs: Any, given: Any) -> Any:
        p, q = inputs
        slope = ((p - 1).xlogy(q) - q - p.lgamma()).exp()
        return [p * math.nan, given[0] * (-slope if upper else slope)]

    wide = [t.cast(dtype if dtype.bits >= 32 else "float32") for t in (p, q)]
    made = host_call(compute, (wide[0].shape, wide[0].dtype), *wide, key=(name, wide[0].dtype.name), gradient=gradient,
                     vmap_method="broadcast_all")  # fmt: skip
    return made.cast(dtype)


@checked
def gammainc(input: Any, other: Any) -> Tensor:
    """The regularised lower incomplete gamma function of `input` > 0 at `other` >= 0: the integral of t^(a-1) e^-t from
    0 to x over gamma(a). nan for negative numbers. On the host; there is no gradient for `input`, as in torch.

    >>> gammainc(Tensor([1.0]), Tensor([1.0])).round(4)
    Tensor([0.6321], dtype=float32)
    """
    return _incomplete("gammainc", input, other, False)


@checked
def gammaincc(input: Any, other: Any) -> Tensor:
    """The upper part, 1 - `gammainc(input, other)`, which keeps its digits where that is near 1. On the host.

    >>> gammaincc(Tensor([1.0]), Tensor([1.0])).round(4)
    Tensor([0.3679], dtype=float32)
    """
    return _incomplete("gammaincc", input, other, True)


igamma, igammac = alias(gammainc, "igamma"), alias(gammaincc, "igammac")
