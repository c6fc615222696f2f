"""Arguments for each axis, under the names that torch's layers use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["_ntuple", "_pair", "_quadruple", "_single", "_triple"]


def _ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    """The function that makes n of one value, and a tuple of several.

    >>> _ntuple(2)(3), _ntuple(2)([1, 2])
    ((3, 3), (1, 2))
    """
    return lambda x: tuple(x) if isinstance(x, Iterable) and not isinstance(x, str) else (x,) * n


_single, _pair, _triple, _quadruple = map(_ntuple, (1, 2, 3, 4))
