"""Mapped files of tensors: a mapping from names to lazy tensors on one device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.ops import made, wrap_array

if TYPE_CHECKING:
    from anneal.tensor import Tensor

__all__ = ["Array", "MappedTensors"]

Array = np.ndarray[Any, Any]


class MappedTensors(Mapping[str, "Tensor"]):
    """The tensors of a file by name. A subclass reads `entries` and has `array`."""

    path: Path
    device: str
    entries: Mapping[str, Any]

    def array(self, name: str) -> Array:
        """A tensor as the file holds it."""
        raise NotImplementedError(f"{type(self).__name__} defines no array()")

    def _numbers(self, name: str) -> Array:
        """`array`, as the tensor has it."""
        return self.array(name)

    def __getitem__(self, name: str) -> Tensor:
        t = made.fresh(wrap_array(self._numbers(name), self.device), self.device)
        t._own()
        return t

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {len(self)} tensors)"
