"""Nodes that show memory, and the memory that a node shows."""

from __future__ import annotations

import weakref
from typing import Any

from anneal.backend import Array, Storage
from anneal.runtime.context import here
from anneal.runtime.handle import Handle
from anneal.uop import SYMBOLIC, DType, Op, UOp
from anneal.uop.sizes import symbolic_arg, widest

__all__ = ["buffer_leaf", "host_storage", "is_realized", "own", "storage_of"]

_WHOLE = "whole"  # the tag of a SHRINK that shows all of a tensor of symbolic shape in memory for the largest


def storage_of(u: UOp) -> Storage | None:
    """The storage that `u` shows whole and in order, or None if it is lazy."""
    if u.tag == _WHOLE:
        u = u.src[0]
    while u.op is Op.RESHAPE:
        u = u.src[0]
    return u.arg if u.op is Op.BUFFER else None


def is_realized(u: UOp) -> bool:
    return storage_of(u) is not None


def buffer_leaf(storage: Storage, shape: tuple[Any, ...]) -> UOp:
    """The leaf that shows `storage` as an array of `shape`."""
    flat = UOp(Op.BUFFER, storage.dtype, (), storage)
    if SYMBOLIC.seen and symbolic_arg(shape):
        largest = buffer_leaf(storage, widest(shape))
        return UOp(Op.SHRINK, storage.dtype, (largest,), tuple([(0, n) for n in shape]), _WHOLE)
    return flat if shape == flat.shape else UOp(Op.RESHAPE, storage.dtype, (flat,), shape)


def host_storage(values: Array, dtype: DType, device: str) -> Storage:
    """The storage of flat `values`, uploaded when first used. A recording notes it: its values would be frozen."""
    storage = Storage(values.size, dtype, device, host=values)
    if here.made is not None:
        here.made.append(storage)
    return storage


def own(t: Handle) -> None:
    """Note in the storage of a realized tensor that `t` shows it; jit finds its state that way."""
    s = storage_of(t.uop)
    if s is not None:
        s.owner = weakref.ref(t)
