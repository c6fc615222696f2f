"""Fourier transforms by torch.fft's names and arguments, on pairs of real numbers: there are no complex dtypes.

A complex tensor of shape (...) is a float tensor of shape (..., 2), whose last axis has the real and the imaginary
part: what torch's `view_as_real` gives and `pairs` makes. `rfft` and `ihfft` take real numbers, `irfft` and `hfft` give
them; all others are pairs. Axes and sizes are the complex tensor's: `dim=-1` is the last axis before the pair.

Every transform runs on the host, by NumPy, on every device, and is a node of the graph all the same: lazy, part of jit
functions, batched by `vmap`, with gradients (it is linear: its gradient is its transpose, made of transforms) and
tangents. float32 and float64 keep their dtype; narrower floats, integers and bools are computed in float32.

    >>> spectrum = rfft(Tensor([1.0, 2.0, 3.0, 4.0]))
    >>> spectrum.shape, irfft(spectrum).tolist()
    ((3, 2), [1.0, 2.0, 3.0, 4.0])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec

import numpy as np
import numpy.typing as npt

from anneal.doors import names_of
from anneal.errors import DTypeError, PositionError, ShapeError
from anneal.ops import axis_of, checked, rows_of
from anneal.runtime import F, Fun
from anneal.tensor import Tensor, dtypes, host_call
from anneal.uop import MOVEMENT, Op, UOp

__all__ = names_of(__name__)

P = ParamSpec("P")
Sizes = int | Sequence[int] | None


def _op(function: F) -> F:
    """A function whose arguments are looked at, named `fft.NAME` in messages."""
    return checked(function, f"fft.{function.__name__}")


# -- what enters, and in which scale it leaves -------------------------------------------------------------------------


def _floats(x: Tensor) -> Tensor:
    return x if x.dtype in (dtypes.float32, dtypes.float64) else x.cast(dtypes.float32)


def _of_pairs(x: Tensor) -> int:
    """The axes of the complex tensor that the pairs of x stand for."""
    if x.ndim < 2 or x.shape[-1] != 2:
        raise PositionError(
            f"fft: takes pairs of real and imaginary parts, a last axis of 2, not shape {x.shape}; pairs(x) makes "
            "them of real numbers, and rfft takes those"
        )
    u = _unmoved(x.uop)
    factors = [_unmoved(v) for v in u.src] if u.op is Op.MUL else []
    if factors and all(v.op is Op.HOST_CALL and "fft." in str(v.arg[0].key) for v in factors):
        raise DTypeError(
            "fft: a product of two transforms multiplies real parts with real parts and imaginary parts with imaginary "
            "ones; that of complex numbers is stack([a * c - b * d, a * d + b * c], -1), where a, b = x.unbind(-1) and "
            "c, d = y.unbind(-1)"
        )
    return x.ndim - 1


def _unmoved(u: UOp) -> UOp:
    """The node below movements, casts and factors that are constants."""
    while u.op in MOVEMENT or u.op is Op.CAST or (u.op is Op.MUL and u.src[1].op is Op.CONST):
        u = u.src[0]
    return u


def _axes(dim: Any, s: Any, ndim: int) -> tuple[tuple[int, ...], list[Any]]:
    """Axes counted from the end, and how many elements of each are transformed, None for all there are."""
    if not (s is None or isinstance(s, Iterable)):
        raise ShapeError(f"fft: s is a size for each axis, such as (4, 4), not {s!r}")
    if dim is None:
        count = ndim if s is None else len(list(s))
        if count > ndim:
            raise ShapeError(f"fft: s has {count} sizes, and there are {ndim} axes")
        dims = tuple(range(-count, 0))
    else:
        given = (dim,) if isinstance(dim, int) else tuple(dim)
        dims = tuple([axis_of(d, ndim, "fft") - ndim for d in given])
        if len(set(dims)) < len(dims):
            raise ShapeError(f"fft: an axis is named twice in {given}")
    if not dims:
        raise ShapeError("fft: there is no axis to transform")
    sizes = [None] * len(dims) if s is None else list(s)
    if len(sizes) != len(dims):
        raise ShapeError(f"fft: s has {len(sizes)} sizes for {len(dims)} axes")
    return dims, [None if n == -1 else n for n in sizes]


def _fitted(x: Tensor, axes: Iterable[int], sizes: Sequence[int | None]) -> Tensor:
    """A tensor of floats with axes cut, or padded with zeros, to these sizes."""
    x = _floats(x)
    for axis, n in zip(axes, sizes):
        has = x.shape[axis]
        if n is not None and n < 1:
            raise ShapeError(f"fft: a transform has at least 1 element, not {n}")
        if has == 0:
            raise ShapeError(f"fft: a transform has at least 1 element, and axis {axis} of shape {x.shape} has none")
        border = [(0, 0)] * x.ndim
        border[axis] = (0, 0 if n is None else n - has)  # a negative number cuts off
        x = x.pad(border) if border[axis][1] else x
    return x


def _scaled(y: Tensor, x: Tensor, n: int, norm: str | None, inverse: bool) -> Tensor:
    """A transform of n elements in its scale, in the dtype of x, if that is a float."""
    if norm not in (None, "forward", "backward", "ortho"):
        raise ShapeError(f'fft: norm is "backward", "forward" or "ortho", not {norm!r}')
    scale = 1 / math.sqrt(n) if norm == "ortho" else 1 / n if (norm == "forward") != inverse else 1.0
    y = y if scale == 1 else y * scale
    return y.cast(x.dtype) if x.dtype.is_float else y


def _c2c(x: Tensor, s: Any, dim: Any, norm: str | None, inverse: bool) -> Tensor:
    dims, sizes = _axes(dim, s, _of_pairs(x))
    z = _fitted(x, [a - 1 for a in dims], sizes)
    count = math.prod(z.shape[a - 1] for a in dims)
    return _scaled(_complex_to_complex(z, dims, inverse), x, count, norm, inverse)


def _r2c(x: Tensor, s: Any, dim: Any, norm: str | None, inverse: bool) -> Tensor:
    """The half of the transform, of the last of the axes; its conjugate if `inverse`."""
    if not x.ndim:
        raise PositionError("fft: a tensor of shape () has no axis to transform")
    dims, sizes = _axes(dim, s, x.ndim)
    r = _fitted(x, dims, sizes)
    count = math.prod(r.shape[a] for a in dims)
    z = _real_to_complex(r, dims[-1])
    z = _conjugate(z) if inverse else z
    if len(dims) > 1:
        z = _complex_to_complex(z, dims[:-1], inverse)
    return _scaled(z, x, count, norm, inverse)


def _c2r(x: Tensor, s: Any, dim: Any, norm: str | None, inverse: bool) -> Tensor:
    """The real numbers of a half of their transform, along the last of the axes; of its conjugate unless `inverse`."""
    dims, sizes = _axes(dim, s, _of_pairs(x))
    last = dims[-1]
    n = sizes[-1] if sizes[-1] is not None else 2 * (x.shape[last - 1] - 1)
    if n < 1:
        raise ShapeError(f"fft: a transform has at least 1 element, not {n}; give the size of axis {last}")
    z = _fitted(x, [a - 1 for a in reversed(dims)], [n // 2 + 1, *reversed(sizes[:-1])])
    count = n * math.prod(z.shape[a - 1] for a in dims[:-1])
    if len(dims) > 1:
        z = _complex_to_complex(z, dims[:-1], inverse)
    z = z if inverse else _conjugate(z)
    return _scaled(_complex_to_real(z, last, n), x, count, norm, inverse)


def _conjugate(z: Tensor) -> Tensor:
    return z * (1 - 2 * Tensor.arange(2, device=z.device))


def pairs(real: Tensor, imag: Tensor | None = None) -> Tensor:
    """The parts `real` and `imag` as pairs: (...) -> (..., 2). Imaginary parts are 0 unless they are given.

    >>> from anneal.tensor import Tensor
    >>> pairs(Tensor([1.0, 2.0])).tolist()
    [[1.0, 0.0], [2.0, 0.0]]
    """
    x = real if real.dtype.is_float else _floats(real)
    return Tensor.stack([x, x.zeros_like() if imag is None else imag.cast(x.dtype)], dim=-1)


# -- one axis ---------------------------------------------------------------------------------------------------------


_Transform = Callable[[Tensor, Any, Any, str | None, bool], Tensor]
_TRANSFORMS: Mapping[str, tuple[_Transform, bool]] = {
    "fft": (_c2c, False),
    "ifft": (_c2c, True),
    "rfft": (_r2c, False),
    "irfft": (_c2r, True),
    "hfft": (_c2r, False),
    "ihfft": (_r2c, True),
}


def _each(op: Callable[Concatenate[Any, Any, P], Tensor], ending: str, documents: str) -> list[Callable[P, Tensor]]:
    """The transforms, in that order, by one op, under names with this ending."""
    return [_op(made) for made in rows_of(op, documents, {f"{name}{ending}": row for name, row in _TRANSFORMS.items()})]


def _along(
    transform: _Transform, inverse: bool, input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None
) -> Tensor:
    """A transform along one axis; `_axes` takes a size of -1 for none, which no caller may give."""
    return transform(input, (-1 if n is None else 0 if n == -1 else n,), (dim,), norm, inverse)


fft, ifft, rfft, irfft, hfft, ihfft = _each(
    _along,
    "",
    """
    fft:
    The discrete Fourier transform, sum over t of x_t exp(-2 pi i k t / n), of pairs along an axis. On
    the host.

    The axis is cut, or filled up with zeros, to n elements first. norm "backward" (None) divides the inverse by n,
    "forward" this one, "ortho" both by sqrt(n).

    Raises ShapeError for no pairs, another norm, or an n below 1.

    >>> from anneal.tensor import Tensor
    >>> fft(pairs(Tensor([1.0, 2.0, 3.0, 4.0]))).tolist()
    [[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0], [-2.0, -2.0]]

    ifft:
    The inverse of `fft`: pairs to pairs. On the host.

    rfft:
    The first n // 2 + 1 elements of `fft` of real numbers, whose others are their conjugates. On the
    host.

    >>> from anneal.tensor import Tensor
    >>> rfft(Tensor([1.0, 2.0, 3.0, 4.0])).tolist()
    [[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]

    irfft:
    The inverse of `rfft`: pairs to n real numbers, 2 (m - 1) of m pairs unless n says. On the host.

    hfft:
    The `fft` of n numbers whose first half are the pairs and whose others are their conjugates: it is
    real. On the host.

    >>> from anneal.tensor import Tensor
    >>> hfft(ihfft(Tensor([1.0, 2.0, 3.0, 4.0]))).tolist()
    [1.0, 2.0, 3.0, 4.0]

    ihfft:
    The inverse of `hfft`: real numbers to n // 2 + 1 pairs. On the host.
    """,
)


# -- several axes -----------------------------------------------------------------------------------------------------


def _along_several(
    transform: _Transform, inverse: bool, input: Tensor, s: Sizes = None, dim: Sizes = None, norm: str | None = None
) -> Tensor:
    return transform(input, s, dim, norm, inverse)


fftn, ifftn, rfftn, irfftn, hfftn, ihfftn = _each(
    _along_several,
    "n",
    """
    fftn:
    `fft` along several axes: all of them, or as many of the last as `s` has sizes.

    ifftn:
    The inverse of `fftn`. On the host.

    rfftn:
    `rfft` along the last of the axes, `fft` along the others. On the host.

    irfftn:
    The inverse of `rfftn`. On the host.

    hfftn:
    `hfft` along the last of the axes, `fft` along the others. On the host.

    ihfftn:
    The inverse of `hfftn`. On the host.
    """,
)


def _along_two(
    transform: _Transform,
    inverse: bool,
    input: Tensor,
    s: Sizes = None,
    dim: int | Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Tensor:
    return transform(input, s, dim, norm, inverse)


fft2, ifft2, rfft2, irfft2, hfft2, ihfft2 = _each(
    _along_two,
    "2",
    """
    fft2:
    `fftn` along two axes.

    ifft2:
    `ifftn` along two axes.

    rfft2:
    `rfftn` along two axes.

    irfft2:
    `irfftn` along two axes.

    hfft2:
    `hfftn` along two axes.

    ihfft2:
    `ihfftn` along two axes.
    """,
)


# -- frequencies ------------------------------------------------------------------------------------------------------


def _frequencies(
    name: str,
    of: Fun,
    n: int,
    d: float = 1.0,
    *,
    dtype: Any = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    if n < 1 or d == 0:
        raise ShapeError(f"fft: there are no frequencies of {n} samples that are {d} apart")
    out = Tensor(of(n, d), device=device, dtype="float32" if dtype is None else dtype)
    if not out.dtype.is_float:
        raise DTypeError(f"fft: frequencies are floats, not {out.dtype.name}")
    return out.requires_grad_() if requires_grad else out


fftfreq, rfftfreq = map(
    _op,
    rows_of(
        _frequencies,
        """
    fftfreq:
    The frequencies of the elements of a transform of n samples, `d` apart: 0, 1, ..., -2, -1 over n d.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]

    rfftfreq:
    The frequencies of the elements of `rfft` of n samples, `d` apart: the first n // 2 + 1 of `fftfreq`,
    none negative.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """,
        {
            "fftfreq": np.fft.fftfreq,
            "rfftfreq": np.fft.rfftfreq,
        },
    ),
)


@_op
def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Frequency 0 moved to the middle of each axis. Of pairs name the axes: they are those of the tensor as it is.

    >>> fftshift(fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _shifted(input, dim, 1)


@_op
def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted(input, dim, -1)


def _shifted(x: Tensor, dim: Any, way: int) -> Tensor:
    dims = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    for axis in [axis_of(d, x.ndim, "fft") for d in dims]:
        x = x.roll(way * (x.shape[axis] // 2), axis)
    return x


# -- three linear transforms as calls of the host, without scaling, and their transposes ------------------------------
# A pair (..., 2) stands for a complex number. Axes are counted from the end of the complex tensor, so that `vmap` may
# put one in front of all.


_Array = npt.NDArray[Any]
_Axes = tuple[int, ...]  # negative, of the complex tensor


def _complex(a: _Array) -> _Array:
    return np.ascontiguousarray(a).view(np.complex64 if a.dtype == np.float32 else np.complex128)[..., 0]


def _pairs(z: _Array) -> _Array:
    return np.stack([z.real, z.imag], -1)


def _called(name: str, key: Any, compute: Callable[[_Array], _Array], shape: Any, x: Tensor, transpose: Any) -> Tensor:
    dtype = x.dtype

    def run(a: _Array) -> _Array:
        return compute(a).astype(a.dtype, copy=False)

    if any(n == 0 for n in (*shape, *x.shape)):
        return Tensor.zeros(*shape, dtype=dtype, device=x.device)

    def gradient(inputs: Sequence[Tensor], outputs: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        return [transpose(given[0])]

    return host_call(
        run, (shape, dtype), x, key=(name, key, shape, dtype.name), gradient=gradient, vmap_method="broadcast_all"
    )


def _complex_to_complex(x: Tensor, axes: _Axes, inverse: bool) -> Tensor:
    """sum over t of x_t exp(-2 pi i k t / n) along each axis, exp(+...) if `inverse`; not divided by n.

    The matrix is symmetric. Of pairs its transpose has the other sign.
    """

    def compute(a: _Array) -> _Array:
        z = _complex(a)
        return _pairs(np.fft.ifftn(z, axes=axes, norm="forward") if inverse else np.fft.fftn(z, axes=axes))

    name = "fft.ifftn" if inverse else "fft.fftn"
    return _called(name, axes, compute, x.shape, x, lambda g: _complex_to_complex(g, axes, not inverse))


def _sizes(shape: Any, axis: int, n: Any) -> list[Any]:
    sizes = list(shape)
    sizes[axis] = n
    return sizes


def _real_to_complex(x: Tensor, axis: int) -> Tensor:
    """The first n // 2 + 1 elements of the transform of real numbers along one axis."""
    n = x.shape[axis]

    def transpose(g: Tensor) -> Tensor:
        # the whole transform's transpose, of a cotangent that is 0 where there was no element
        border = [(0, 0)] * g.ndim
        border[axis - 1] = (0, n - g.shape[axis - 1])
        return _complex_to_complex(g.pad(border), (axis,), True)[..., 0]

    shape = (*_sizes(x.shape, axis, n // 2 + 1), 2)
    return _called("fft.rfft", (axis, n), lambda a: _pairs(np.fft.rfft(a, axis=axis)), shape, x, transpose)


def _complex_to_real(x: Tensor, axis: int, n: int) -> Tensor:
    """The n real numbers whose transform begins with the n // 2 + 1 elements of x, times n; imaginary parts of the
    first and, if n is even, of the last element count for nothing.
    """
    counted = x.shape[axis - 1]

    def transpose(g: Tensor) -> Tensor:
        # the elements between the ends stand for two, themselves and their conjugates
        k = Tensor.arange(counted, device=g.device).reshape(-1, *[1] * (-axis))
        return _real_to_complex(g, axis) * (2 - (k.eq(0) | (2 * k).eq(n)).int())

    def compute(a: _Array) -> _Array:
        return np.fft.irfft(_complex(a), n, axis=axis, norm="forward")

    shape = tuple(_sizes(x.shape[:-1], axis, n))
    return _called("fft.irfft", (axis, n), compute, shape, x, transpose)
