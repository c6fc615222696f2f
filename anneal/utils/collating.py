"""Makes a batch of examples, as a `DataLoader` without a `collate_fn` does."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from anneal.errors import AnnealError, DataError
from anneal.ops import said
from anneal.tensor import Tensor


def _alike(first: Any, parts: Any) -> Any:
    """A container of the kind of `first` with other `parts`; a tuple of them if `first` is a plain tuple."""
    try:
        if isinstance(first, tuple) and not hasattr(first, "_fields"):
            return parts
        if isinstance(first, MutableMapping):
            made = copy.copy(first)
            made.update(parts)
            return made
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    except TypeError:
        return parts


def default_collate(batch: Any) -> Any:
    """The examples of the list `batch` as one: tensors and arrays stacked, numbers in a tensor, tuples and dicts by
    part, texts in a list.

    Raises DataError for something else.

    >>> default_collate([(1.5, "a"), (2.5, "b")])
    [Tensor([1.5, 2.5], dtype=float32), ['a', 'b']]
    """
    try:
        return _collated(batch, batch[0])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
        if isinstance(e, AnnealError):
            raise
        raise DataError(f"DataLoader: examples of one batch have the same parts, not {said(batch)} ({e})") from None


def _collated(batch: list[Any], first: Any) -> Any:
    if isinstance(first, Tensor):
        return Tensor.stack(batch, dim=0)
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, (np.ndarray, np.generic)):
        return Tensor(np.stack(batch))
    if isinstance(first, (bool, int, float)):
        return Tensor(batch)
    if isinstance(first, Mapping):
        return _alike(first, {name: default_collate([example[name] for example in batch]) for name in first})
    if isinstance(first, Sequence):
        return _alike(first, [default_collate(part) for part in zip(*batch, strict=True)])
    raise DataError(f"DataLoader: makes no batch of {type(first).__name__}; give collate_fn")


def default_convert(data: Any) -> Any:
    """The example `data` as `DataLoader` gives it without batches: arrays and NumPy's numbers as tensors, the parts of
    tuples, lists and dicts likewise, anything else as it is.

    >>> default_convert((np.float32(1.5), "a"))
    [Tensor(1.5, dtype=float32), 'a']
    """
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        return data if data.dtype.kind in "SUO" else Tensor(data)
    if isinstance(data, Mapping):
        return _alike(data, {name: default_convert(part) for name, part in data.items()})
    if isinstance(data, Sequence):
        return _alike(data, [default_convert(part) for part in data])
    return data
