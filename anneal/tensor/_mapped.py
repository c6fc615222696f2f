"""Mapped files of tensors: a mapping from names to lazy tensors on one device."""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anneal.errors import DataError
from anneal.files import opened
from anneal.names import Tensor
from anneal.ops import made, wrap_array
from anneal.runtime import default_device, resolve_device

Array = np.ndarray[Any, Any]
MAX_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class MappedEntry:
    """A tensor as its file describes it: the name of its dtype, its shape, and its bytes' places in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class MappedTensors(Mapping[str, "Tensor"]):
    """The tensors of a file by name. A subclass reads `entries` and `metadata`, and has `array`."""

    entries: Mapping[str, MappedEntry]

    def __init__(self, path: str | os.PathLike[str] | bytes, device: str | None, what: str) -> None:
        self.path = Path("of bytes" if isinstance(path, bytes) else path)
        self.device = default_device() if device is None else resolve_device(device)
        self._map: Any = path
        if isinstance(path, bytes):
            return
        try:
            with opened(self.path) as f:
                empty = not os.fstat(f.fileno()).st_size  # which cannot be mapped
                self._map = b"" if empty else mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as e:  # ValueError: it became shorter meanwhile
            raise DataError(f"{what}: cannot read {self.path}: {getattr(e, 'strerror', None) or e}") from e

    def array(self, name: str) -> Array:
        """A tensor as the file holds it."""
        raise NotImplementedError(f"{type(self).__name__} defines no array()")

    def view(self, entry: MappedEntry, dtype: Any) -> Array:
        """A tensor's bytes in the file, read only, as numbers of `dtype`."""
        if 0 in entry.shape:
            return np.empty(entry.shape, dtype)
        return np.frombuffer(self._map, dtype, math.prod(entry.shape), entry.start).reshape(entry.shape)

    def release(self) -> None:
        """Let the operating system drop the pages that were read; they come back from the file when used again."""
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def _numbers(self, name: str) -> Array:
        """`array`, as the tensor has it."""
        array = self.array(name)
        return array.view(np.uint8) != 0 if array.dtype == np.bool_ else array  # a byte may be neither 0 nor 1

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


def shown(value: object) -> str:
    """Its text, safe to print, and short: a header may say anything."""
    text = ascii(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"
