"""Signals: `an.signal.windows` is this module, torch's windows: vectors of weights that fall towards both ends.

With `sym`, as by default, the last element mirrors the first; without it the element after the last would, which is
what a Fourier transform wants. A window of one element is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from anneal.doors import same_under
from anneal.errors import ArgumentError, ShapeError
from anneal.ops import DTypeLike, as_dtype, checked, i0e, rows_of
from anneal.tensor import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall", "windows",
]  # fmt: skip


def _places(name: str, M: int, sym: bool, dtype: DTypeLike | None, device: str | None) -> tuple[Tensor, float]:
    """0, 1, ..., M - 1 as floats, and the number of steps of the window."""
    if M < 0:
        raise ShapeError(f"{name}: a window has 0 elements or more, not {M}")
    kind = as_dtype("float32" if dtype is None else dtype)
    if not kind.is_float:
        raise ArgumentError(f"{name}: a window is made of floats, not {kind.name}")
    wide = kind if kind.bits >= 32 else as_dtype("float32")
    return Tensor.arange(M, device=device).cast(wide), float(max(1, M - 1 if sym else M))


def _made(window: Tensor, dtype: DTypeLike | None, requires_grad: bool) -> Tensor:
    out = window if dtype is None else window.cast(dtype)
    out = out * 0.0 + 1.0 if out.shape == (1,) else out
    return out.requires_grad_() if requires_grad else out


Formula = Callable[[Tensor, float], Tensor]  # of the places, and of how many steps the window has


def _cosines(*a: float) -> Formula:
    def formula(places: Tensor, steps: float) -> Tensor:
        turn = places * (2 * math.pi / steps)
        out = turn * 0.0 + float(a[0])
        for k, part in enumerate(a[1:], 1):
            out = out + (turn * float(k)).cos() * (float(part) * (-1.0) ** k)
        return out

    return formula


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
    return _made(_cosines(*a)(*_places("general_cosine", M, sym, dtype, device)), dtype, requires_grad)


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
    return _made(formula(*_places(name, M, sym, dtype, device)), dtype, requires_grad)


hamming, hann, blackman, nuttall, bartlett, cosine = map(
    checked,
    rows_of(
        _of_formula,
        {
            "hamming": (_cosines(0.54, 1.0 - 0.54), "`general_hamming` with alpha 0.54."),
            "hann": (
                _cosines(0.5, 0.5),
                """`general_hamming` with alpha 0.5.

    >>> hann(4, sym=False).round(3)
    Tensor([0. , 0.5, 1. , 0.5], dtype=float32)
    """,
            ),
            "blackman": (_cosines(0.42, 0.5, 0.08), "`general_cosine` with 0.42, 0.5 and 0.08."),
            "nuttall": (
                _cosines(0.3635819, 0.4891775, 0.1365995, 0.0106411),
                "`general_cosine` with 0.3635819, 0.4891775, 0.1365995 and 0.0106411.",
            ),
            "bartlett": (
                lambda places, steps: 1.0 - (places * (2.0 / steps) - 1.0).abs(),
                """The triangular window, which rises from 0 to 1 and falls again.

    >>> bartlett(5)
    Tensor([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """,
            ),
            "cosine": (
                lambda places, steps: ((places + 0.5) * (math.pi / (steps + 1))).sin(),
                "The cosine window: half a wave of the sine, read in the middles of M equal parts.",
            ),
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
    places, _ = _places("exponential", M, sym, dtype, device)
    middle = (M - 1 if sym else M) / 2 if center is None else center
    return _made(((places - middle).abs() * (-1.0 / tau)).exp(), dtype, requires_grad)


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
    places, _ = _places("gaussian", M, sym, dtype, device)
    away = (places - (M - 1 if sym else M) / 2) * (1.0 / std)
    return _made((away * away * -0.5).exp(), dtype, requires_grad)


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
    places, steps = _places("kaiser", M, sym, dtype, device)
    t = places * (2.0 / steps) - 1.0
    inner = (1.0 - t * t).clamp(min=0.0).sqrt() * beta
    # of the scaled functions, which do not overflow
    return _made(i0e(inner) * (inner - beta).exp() / i0e(inner * 0.0 + beta), dtype, requires_grad)


if TYPE_CHECKING:
    from anneal import signal as windows  # noqa: PLW0406 - torch's name of this module
else:
    __getattr__ = same_under(__name__, "windows")
