"""Values: classes of fields that never change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")
Json = dict[str, Any]  # an object of JSON, or what becomes one
Texts = tuple[str, ...]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """The class as a dataclass whose fields never change, and that has slots for them alone.

    >>> @frozen
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1)
    Point(x=1, y=0)
    """
    return dataclass(frozen=True, slots=True)(cls)
