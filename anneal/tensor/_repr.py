"""Tensors as text: values of small ones, the shape of large ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anneal.backend import HOST

if TYPE_CHECKING:
    from anneal.tensor import Tensor

__all__ = ["text"]

_SMALL = 1000


def text(t: Tensor) -> str:
    """The text of `repr`. Up to 1000 values are computed and shown; a larger tensor is described and not computed."""
    tail = f", dtype={t.dtype.name}"
    if t.device != HOST:
        tail += f", device={t.device!r}"
    if t.requires_grad:
        tail += ", requires_grad=True"
    name = type(t).__name__
    if t.numel() > _SMALL:
        return f"{name}(shape={t.shape}{tail}, {'realized' if t.is_realized else 'lazy'})"
    values = t.numpy()
    if not values.size:
        return f"{name}([], shape={t.shape}{tail})"
    return f"{name}({np.array2string(values, separator=', ', prefix=f'{name}(')}{tail})"
