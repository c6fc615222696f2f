"""Reductions and normalisations of the elements where a mask is true: torch.masked's names.

`an.masked.mean(x, 1, mask=m)`: the mask is bool and broadcasts to the tensor; without one all elements count. Where
none counts, the result is what the op gives for nothing: 0 for a sum, -inf for `amax`, nan for a mean.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from anneal.doors import names_of, opened_later
from anneal.errors import DTypeError, ShapeError
from anneal.ops import DTypeLike, axes_of, axis_of, broadcast_shapes, checked, rows_of
from anneal.tensor import Tensor

if TYPE_CHECKING:
    from anneal.stubs.masked import *
else:
    __all__ = names_of(__name__)

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


# -- reductions -------------------------------------------------------------------------------------------------------


def _of_op(op: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """The op on the elements that the mask selects; the others become the value that its declaration gives by
    `neutral=`.
    """
    neutral = op.neutral  # type: ignore[attr-defined]
    fill = int(neutral) if neutral.isdigit() else math.inf if neutral in ("highest", "inf") else -math.inf

    def filled(x: Tensor, mask: Tensor | None, dtype: DTypeLike | None) -> Tensor:
        return _filled(_floats(x, dtype) if neutral in ("inf", "-inf") else x, mask, fill, dtype)

    def along(input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None) -> Tensor:
        return op(filled(input, mask, dtype), dim)

    def reduced(
        input: Tensor,
        dim: Dims = None,
        *,
        keepdim: bool = False,
        dtype: DTypeLike | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        return op(filled(input, mask, dtype), dim, keepdim)

    made = reduced if "keepdim" in inspect.signature(op).parameters else along
    said = re.split(r"(?<=\.)\s", op.__doc__ or "", maxsplit=1)[0]
    made.__doc__ = f"{said} Of the elements that count, those where `mask` is true."
    return checked(made, name)


__getattr__ = opened_later(__name__, make=_of_op)


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

    >>> from anneal import masked
    >>> masked.sum(Tensor([1.0, 2.0, 4.0]), mask=Tensor([True, False, True])).item()
    5.0
    >>> mean(Tensor([1.0, 2.0, 4.0]), mask=Tensor([True, False, True])).item()
    2.5
    """
    x, axes = _floats(input, dtype), axes_of(dim, input.ndim, "mask")
    return _filled(x, mask, 0).sum(axes, keepdim) / _counts(x, mask).sum(axes, keepdim)


@checked
def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DTypeLike | None = None, mask: Tensor | None = None
) -> Tensor:
    """The middle one in order, the lower of two, of the elements that count along an axis; nan where none counts."""
    x = _filled(_floats(input, dtype), mask, math.nan)
    return x.nanmedian(axis_of(dim, x.ndim, "median"), keepdim).values if x.ndim else x.clone()


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
    return x.norm(order, axes_of(dim, input.ndim, "mask"), keepdim)


def _spread(
    name: str,
    power: float,
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    if unbiased is not None and correction is not None:
        raise ShapeError(f"{name}: unbiased and correction are the same argument; give one of them")
    lost = float(unbiased is not False) if correction is None else float(correction)
    x, axes = _floats(input, dtype), axes_of(dim, input.ndim, "mask")
    count = _counts(x, mask).sum(axes, True)
    centre = _filled(x, mask, 0).sum(axes, True) / count
    apart = _filled(x - centre, mask, 0)
    out = (apart * apart).sum(axes, True) / (count - lost).clamp(min=0.0)
    out = out if keepdim else out.sum(axes)  # of one element each
    return out if power == 2 else out.sqrt()


var, std = map(
    checked,
    rows_of(
        _spread,
        """
    var:
    The variance along axes, or of all, of the elements that count: squares are summed over the
    count less `correction` (1, or 0 for unbiased=False).

    >>> var(Tensor([1.0, 2.0, 5.0]), mask=Tensor([True, False, True])).item()
    8.0

    std:
    The square root of `var`.
    """,
        {
            "var": 2,
            "std": 1,
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
