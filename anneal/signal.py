"""Signals: `an.signal.windows` is this module, torch's windows: vectors of weights that fall towards both ends.

With `sym`, as by default, the last element mirrors the first; without it the element after the last would, which is
what a Fourier transform wants. A window of one element is 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anneal.doors import names_of, same_under
from anneal.errors import ShapeError
from anneal.ops import DTypeLike, Formula, checked, cosines, kaisers, rows_of, triangle, window
from anneal.tensor import Tensor

__all__ = [*names_of(__name__), "windows"]


def _of_formula(
    name: str,
    formula: Formula,
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    return window(name, formula, M, not sym, dtype=dtype, device=device, requires_grad=requires_grad)


@checked
def general_cosine(
    M: int,
    *,
    a: Sequence[float],
    sym: bool = True,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The window a[0] - a[1] cos(t) + a[2] cos(2t) - ..., over a whole turn t.

    >>> general_cosine(3, a=[0.5, 0.5]).round(3)
    Tensor([0., 1., 0.], dtype=float32)
    """
    if not isinstance(a, (list, tuple)) or not a or not all(isinstance(p, (int, float)) for p in a):
        raise ShapeError(f"general_cosine: a is a list of numbers, not {a!r}")
    return _of_formula("", cosines(*a), M, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


@checked
def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The generalised Hamming window, alpha - (1 - alpha) cos(t), over a whole turn t."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


hamming, hann, blackman, nuttall, bartlett, cosine = map(
    checked,
    rows_of(
        _of_formula,
        """
    hamming:
    `general_hamming` with alpha 0.54.

    hann:
    `general_hamming` with alpha 0.5.

    >>> hann(4, sym=False).round(3)
    Tensor([0. , 0.5, 1. , 0.5], dtype=float32)

    blackman:
    `general_cosine` with 0.42, 0.5 and 0.08.

    nuttall:
    `general_cosine` with 0.3635819, 0.4891775, 0.1365995 and 0.0106411.

    bartlett:
    The triangular window, which rises from 0 to 1 and falls again.

    >>> bartlett(5)
    Tensor([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)

    cosine:
    The cosine window: half a wave of the sine, read in the middles of M equal parts.
    """,
        {
            "hamming": cosines(0.54, 1.0 - 0.54),
            "hann": cosines(0.5, 0.5),
            "blackman": cosines(0.42, 0.5, 0.08),
            "nuttall": cosines(0.3635819, 0.4891775, 0.1365995, 0.0106411),
            "bartlett": triangle,
            "cosine": lambda places, steps: ((places + 0.5) * (math.pi / (steps + 1))).sin(),
        },
    ),
)


@checked
def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-|n - center| / tau); the center is the middle by default, and another one needs sym=False.

    Raises ShapeError for a tau that is not above 0, or a center with sym.
    """
    if not tau > 0:
        raise ShapeError(f"exponential: tau must be above 0, not {tau}")
    if sym and center is not None:
        raise ShapeError("exponential: a symmetric window has its center in the middle; give sym=False")
    middle = (M - 1 if sym else M) / 2 if center is None else center
    formula = lambda places, _: ((places - middle).abs() * (-1.0 / tau)).exp()
    return _of_formula("", formula, M, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


@checked
def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-(d / std)**2 / 2) at a distance d from the middle. Raises ShapeError for a std that is not above 0."""
    if not std > 0:
        raise ShapeError(f"gaussian: std must be above 0, not {std}")
    middle = (M - 1 if sym else M) / 2
    formula = lambda places, _: (((places - middle) * (1.0 / std)).square() * -0.5).exp()
    return _of_formula("", formula, M, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


@checked
def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """i0(beta * sqrt(1 - t**2)) / i0(beta) for t from -1 to 1. Raises ShapeError for a beta below 0."""
    if not beta >= 0:
        raise ShapeError(f"kaiser: beta must not be negative, not {beta}")
    return _of_formula("", kaisers(beta), M, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


if TYPE_CHECKING:
    from anneal import signal as windows  # noqa: PLW0406 - torch's name of this module
else:
    __getattr__ = same_under(__name__, "windows")
