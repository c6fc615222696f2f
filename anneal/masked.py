"""Reductions and normalisations of the elements where a mask is true: torch.masked's names.

`an.masked.mean(x, 1, mask=m)`: the mask is bool and broadcasts to the tensor; without one all elements count. Where
none counts, the result is what the op gives for nothing: 0 for a sum, -inf for `amax`, nan for a mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from anneal.errors import DTypeError, ShapeError
from anneal.ops import DTypeLike, axes_of, axis_of, broadcast_shapes, checked, rows_of
from anneal.tensor import Tensor

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median",
    "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

Dims = int | Sequence[int] | None


def _filled(x: Tensor, mask: Tensor | None, fill: float, dtype: DTypeLike | None = None) -> Tensor:
    """The tensor with `fill` where the mask is false; of `dtype`, and floats at least for a fill that is no int."""
    x = x if dtype is None else x.cast(dtype)
    if mask is None:
        return x
    if mask.dtype.name != "bool":
        raise DTypeError(f"a mask is bool, not {mask.dtype.name}; compare first")
    if broadcast_shapes(x.shape, mask.shape, name="mask") != x.shape:
        raise ShapeError(f"a mask of shape {mask.shape} does not fit a tensor of shape {x.shape}")
    if not x.dtype.is_float and not math.isfinite(fill):
        if x.dtype.name == "bool":
            x = x.int()
        fill = x.dtype.max if fill > 0 else x.dtype.min
    return mask.where(x, fill).cast(x.dtype)


def _floats(x: Tensor, dtype: DTypeLike | None) -> Tensor:
    return x.cast(dtype) if dtype is not None else x if x.dtype.is_float else x.float()


def _counts(x: Tensor, mask: Tensor | None) -> Tensor:
    """1.0 where an element counts."""
    one = x.detach().ones_like()
    return one if mask is None else mask.cast(x.dtype).expand(x.shape)


def _axes(x: Tensor, dim: Dims) -> list[int]:
    return list(axes_of(dim, x.ndim, "mask"))


# -- reductions -------------------------------------------------------------------------------------------------------


Method = Callable[..., Tensor]


def _reduced(
    method: Method,
    fill: float,
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    return method(_filled(input, mask, fill, dtype), _axes(input, dim), keepdim)


sum, prod, amax, amin = map(
    checked,
    rows_of(
        _reduced,
        {
            "sum": (
                Tensor.sum,
                0,
                """The sum along axes, or of all, of the elements that count.

    >>> sum(Tensor([1.0, 2.0, 4.0]), mask=Tensor([True, False, True])).item()
    5.0
    """,
            ),
            "prod": (Tensor.prod, 1, """The product along axes, or of all, of the elements that count."""),
            "amax": (
                Tensor.amax,
                -math.inf,
                """The largest along axes, or of all, of the elements that count.

    >>> amax(Tensor([[1.0, 9.0]]), 1, mask=Tensor([[True, False]]))
    Tensor([1.], dtype=float32)
    """,
            ),
            "amin": (Tensor.amin, math.inf, """The smallest along axes, or of all, of the elements that count."""),
        },
    ),
)


@checked
def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The position of the largest element that counts along an axis, or in the flat row; int32."""
    return _filled(input, mask, -math.inf, dtype).argmax(dim, keepdim)


@checked
def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The position of the smallest element that counts along an axis, or in the flat row; int32."""
    return _filled(input, mask, math.inf, dtype).argmin(dim, keepdim)


@checked
def mean(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The mean along axes, or of all, of the elements that count.

    >>> mean(Tensor([1.0, 2.0, 4.0]), mask=Tensor([True, False, True])).item()
    2.5
    """
    x, axes = _floats(input, dtype), _axes(input, dim)
    return _filled(x, mask, 0).sum(axes, keepdim) / _counts(x, mask).sum(axes, keepdim)


@checked
def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DTypeLike | None = None, mask: Tensor | None = None
) -> Tensor:
    """The middle one in order, the lower of two, of the elements that count along an axis; nan where none counts."""
    x = _filled(_floats(input, dtype), mask, math.nan)
    return x.nanmedian(axis_of(dim, x.ndim, "median"), keepdim).values if x.ndim else x


@checked
def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The norm of order `ord` (`Tensor.norm`) along axes, or of all, of the elements that count."""
    order = 2.0 if ord is None else ord
    x = _filled(_floats(input, dtype), mask, math.inf if order < 0 else 0.0)
    return x.norm(order, _axes(input, dim), keepdim)


@checked
def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance along axes, or of all, of the elements that count: squares are summed over the count less
    `correction` (1, or 0 for unbiased=False).

    >>> var(Tensor([1.0, 2.0, 5.0]), mask=Tensor([True, False, True])).item()
    8.0
    """
    if unbiased is not None and correction is not None:
        raise ShapeError("var: unbiased and correction are the same argument; give one of them")
    lost = float(unbiased is not False) if correction is None else float(correction)
    x, axes = _floats(input, dtype), _axes(input, dim)
    count = _counts(x, mask).sum(axes, True)
    centre = _filled(x, mask, 0).sum(axes, True) / count
    apart = _filled(x - centre, mask, 0)
    out = (apart * apart).sum(axes, True) / (count - lost).clamp(min=0.0)
    return out if keepdim else out.sum(axes)  # of one element each


@checked
def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The square root of `var`."""
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask).sqrt()


@checked
def logsumexp(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """log of the sum of exp along axes, of the elements that count."""
    x = _filled(_floats(input, dtype), mask, -math.inf)
    return x.logsumexp(_axes(input, dim), keepdim)


# -- along an axis ----------------------------------------------------------------------------------------------------


def _along(
    method: Method, fill: float, input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None
) -> Tensor:
    """A scan, or shares of a whole, which are floats."""
    x = _floats(input, dtype) if math.isinf(fill) else input
    return method(_filled(x, mask, fill, dtype), dim)


cumsum, cumprod, softmax, log_softmax, softmin = map(
    checked,
    rows_of(
        _along,
        {
            "cumsum": (
                Tensor.cumsum,
                0,
                """The running sum along an axis of the elements that count.

    >>> cumsum(Tensor([1, 2, 4]), 0, mask=Tensor([True, False, True]))
    Tensor([1, 1, 5], dtype=int32)
    """,
            ),
            "cumprod": (Tensor.cumprod, 1, """The running product along an axis of the elements that count."""),
            "softmax": (
                Tensor.softmax,
                -math.inf,
                """`softmax` along an axis of the elements that count; the others are 0.

    >>> softmax(Tensor([0.0, 0.0, 5.0]), 0, mask=Tensor([True, True, False]))
    Tensor([0.5, 0.5, 0. ], dtype=float32)
    """,
            ),
            "log_softmax": (
                Tensor.log_softmax,
                -math.inf,
                """`log_softmax` along an axis of the elements that count; the others are -inf.""",
            ),
            "softmin": (
                Tensor.softmin,
                math.inf,
                """`softmin` along an axis of the elements that count; the others are 0.""",
            ),
        },
    ),
)


@checked
def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The elements that count over their norm along an axis, or over `eps` where that is larger; the others are 0."""
    x = _floats(input, dtype)
    size = norm(x, ord, dim, keepdim=True, mask=mask)
    return _filled(x, mask, 0.0) / size.clamp(min=eps)


@checked
def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: DTypeLike | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """log(exp(input) + exp(other)), where a term counts if its mask, `input_mask` or `other_mask`, is true."""
    a = _filled(_floats(input, dtype), input_mask, -math.inf)
    b = _filled(_floats(other, dtype), other_mask, -math.inf)
    return a.logaddexp(b)
