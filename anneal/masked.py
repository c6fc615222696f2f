"""Reductions and normalisations of the elements where a mask is true: torch.masked's names.

`an.masked.mean(x, 1, mask=m)`: the mask is bool and broadcasts to the tensor; without one all elements count. Where
none counts, the result is what the op gives for nothing: 0 for a sum, -inf for `amax`, nan for a mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from anneal.errors import DTypeError, ShapeError
from anneal.ops import DTypeLike, axes_of, axis_of, broadcast_shapes, checked
from anneal.tensor import Tensor

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median",
    "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

Dims = int | Sequence[int] | None


def _filled(name: str, x: Tensor, mask: Tensor | None, fill: float, dtype: DTypeLike | None = None) -> Tensor:
    """The tensor with `fill` where the mask is false; of `dtype`, and floats at least for a fill that is no int."""
    x = x if dtype is None else x.cast(dtype)
    if mask is None:
        return x
    if mask.dtype.name != "bool":
        raise DTypeError(f"{name}: a mask is bool, not {mask.dtype.name}; compare first")
    if broadcast_shapes(name, x.shape, mask.shape) != x.shape:
        raise ShapeError(f"{name}: a mask of shape {mask.shape} does not fit a tensor of shape {x.shape}")
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


def _axes(name: str, x: Tensor, dim: Dims) -> list[int]:
    return list(axes_of(name, dim, x.ndim))


# -- reductions -------------------------------------------------------------------------------------------------------


@checked
def sum(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum along axes, or of all, of the elements that count.

    >>> sum(Tensor([1.0, 2.0, 4.0]), mask=Tensor([True, False, True])).item()
    5.0
    """
    return _filled("sum", input, mask, 0, dtype).sum(_axes("sum", input, dim), keepdim)


@checked
def prod(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The product along axes, or of all, of the elements that count."""
    return _filled("prod", input, mask, 1, dtype).prod(_axes("prod", input, dim), keepdim)


@checked
def amax(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The largest along axes, or of all, of the elements that count.

    >>> amax(Tensor([[1.0, 9.0]]), 1, mask=Tensor([[True, False]]))
    Tensor([1.], dtype=float32)
    """
    return _filled("amax", input, mask, -math.inf, dtype).amax(_axes("amax", input, dim), keepdim)


@checked
def amin(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The smallest along axes, or of all, of the elements that count."""
    return _filled("amin", input, mask, math.inf, dtype).amin(_axes("amin", input, dim), keepdim)


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
    return _filled("argmax", input, mask, -math.inf, dtype).argmax(dim, keepdim)


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
    return _filled("argmin", input, mask, math.inf, dtype).argmin(dim, keepdim)


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
    x, axes = _floats(input, dtype), _axes("mean", input, dim)
    return _filled("mean", x, mask, 0).sum(axes, keepdim) / _counts(x, mask).sum(axes, keepdim)


@checked
def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DTypeLike | None = None, mask: Tensor | None = None
) -> Tensor:
    """The middle one in order, the lower of two, of the elements that count along an axis; nan where none counts."""
    x = _filled("median", _floats(input, dtype), mask, math.nan)
    return x.nanmedian(axis_of("median", dim, x.ndim), keepdim).values if x.ndim else x


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
    x = _filled("norm", _floats(input, dtype), mask, math.inf if order < 0 else 0.0)
    return x.norm(order, _axes("norm", input, dim), keepdim)


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
    x, axes = _floats(input, dtype), _axes("var", input, dim)
    count = _counts(x, mask).sum(axes, True)
    centre = _filled("var", x, mask, 0).sum(axes, True) / count
    apart = _filled("var", x - centre, mask, 0)
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
    x = _filled("logsumexp", _floats(input, dtype), mask, -math.inf)
    return x.logsumexp(_axes("logsumexp", input, dim), keepdim)


# -- along an axis ----------------------------------------------------------------------------------------------------


@checked
def cumsum(input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None) -> Tensor:
    """The running sum along an axis of the elements that count.

    >>> cumsum(Tensor([1, 2, 4]), 0, mask=Tensor([True, False, True]))
    Tensor([1, 1, 5], dtype=int32)
    """
    return _filled("cumsum", input, mask, 0, dtype).cumsum(dim)


@checked
def cumprod(input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None) -> Tensor:
    """The running product along an axis of the elements that count."""
    return _filled("cumprod", input, mask, 1, dtype).cumprod(dim)


@checked
def softmax(input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None) -> Tensor:
    """`softmax` along an axis of the elements that count; the others are 0.

    >>> softmax(Tensor([0.0, 0.0, 5.0]), 0, mask=Tensor([True, True, False]))
    Tensor([0.5, 0.5, 0. ], dtype=float32)
    """
    return _filled("softmax", _floats(input, dtype), mask, -math.inf).softmax(dim)


@checked
def log_softmax(input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None) -> Tensor:
    """`log_softmax` along an axis of the elements that count; the others are -inf."""
    return _filled("log_softmax", _floats(input, dtype), mask, -math.inf).log_softmax(dim)


@checked
def softmin(input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None) -> Tensor:
    """`softmin` along an axis of the elements that count; the others are 0."""
    return _filled("softmin", _floats(input, dtype), mask, math.inf).softmin(dim)


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
    return _filled("normalize", x, mask, 0.0) / size.clamp(min=eps)


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
    a = _filled("logaddexp", _floats(input, dtype), input_mask, -math.inf)
    b = _filled("logaddexp", _floats(other, dtype), other_mask, -math.inf)
    return a.logaddexp(b)
