"""Three linear transforms as calls of the host, without scaling, and their transposes.

A pair (..., 2) stands for a complex number. Axes are counted from the end of the complex tensor, so that `vmap` may put
one in front of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anneal.tensor import Tensor, host_call

__all__ = ["complex_to_complex", "complex_to_real", "real_to_complex"]

Array = npt.NDArray[Any]
Axes = tuple[int, ...]  # negative, of the complex tensor


def _complex(a: Array) -> Array:
    return np.ascontiguousarray(a).view(np.complex64 if a.dtype == np.float32 else np.complex128)[..., 0]


def _pairs(z: Array) -> Array:
    return np.stack([z.real, z.imag], -1)


def _called(name: str, key: Any, compute: Callable[[Array], Array], shape: Any, x: Tensor, transpose: Any) -> Tensor:
    dtype = x.dtype

    def run(a: Array) -> Array:
        return compute(a).astype(a.dtype, copy=False)

    if any(n == 0 for n in (*shape, *x.shape)):
        return Tensor.zeros(*shape, dtype=dtype, device=x.device)

    def gradient(inputs: Sequence[Tensor], outputs: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        return [transpose(given[0])]

    made: Tensor = host_call(
        run, (shape, dtype), x, key=(name, key, shape, dtype.name), gradient=gradient, vmap_method="broadcast_all"
    )
    return made


def complex_to_complex(x: Tensor, axes: Axes, inverse: bool) -> Tensor:
    """sum over t of x_t exp(-2 pi i k t / n) along each axis, exp(+...) if `inverse`; not divided by n.

    The matrix is symmetric. Of pairs its transpose has the other sign.
    """

    def compute(a: Array) -> Array:
        z = _complex(a)
        return _pairs(np.fft.ifftn(z, axes=axes, norm="forward") if inverse else np.fft.fftn(z, axes=axes))

    name = "fft.ifftn" if inverse else "fft.fftn"
    return _called(name, axes, compute, x.shape, x, lambda g: complex_to_complex(g, axes, not inverse))


def _sizes(shape: Any, axis: int, n: Any) -> list[Any]:
    sizes = list(shape)
    sizes[axis] = n
    return sizes


def real_to_complex(x: Tensor, axis: int) -> Tensor:
    """The first n // 2 + 1 elements of the transform of real numbers along one axis."""
    n = x.shape[axis]

    def transpose(g: Tensor) -> Tensor:
        # the whole transform's transpose, of a cotangent that is 0 where there was no element
        border = [(0, 0)] * g.ndim
        border[axis - 1] = (0, n - g.shape[axis - 1])
        return complex_to_complex(g.pad(border), (axis,), True)[..., 0]

    shape = (*_sizes(x.shape, axis, n // 2 + 1), 2)
    return _called("fft.rfft", (axis, n), lambda a: _pairs(np.fft.rfft(a, axis=axis)), shape, x, transpose)


def complex_to_real(x: Tensor, axis: int, n: int) -> Tensor:
    """The n real numbers whose transform begins with the n // 2 + 1 elements of x, times n; imaginary parts of the
    first and, if n is even, of the last element count for nothing.
    """
    counted = x.shape[axis - 1]

    def transpose(g: Tensor) -> Tensor:
        # the elements between the ends stand for two, themselves and their conjugates
        k = np.arange(counted)
        weights = np.where((k == 0) | (2 * k == n), 1.0, 2.0).reshape([-1, *[1] * (-axis)])
        return real_to_complex(g, axis) * Tensor(weights.astype(g.dtype.name), device=g.device)

    def compute(a: Array) -> Array:
        out: Array = np.fft.irfft(_complex(a), n, axis=axis, norm="forward")
        return out

    shape = tuple(_sizes(x.shape[:-1], axis, n))
    return _called("fft.irfft", (axis, n), compute, shape, x, transpose)
