"""Sequences, which are lists, and optionals, which are a value or None."""

from __future__ import annotations

from typing import Any

import numpy as np

from anneal.onnx.execute import Call
from anneal.onnx.registry import op
from anneal.onnx.values import size_of
from anneal.tensor import Tensor


def _sequence(node: Call, x: Any) -> list[Any]:
    if not isinstance(x, list):
        raise node.fail("takes a sequence, not a tensor")
    return x


def _position(node: Call, position: Any, count: int, *, end: bool = False) -> int:
    """A position in a sequence, from its end if it is negative."""
    if position.size != 1:
        raise node.fail(f"its position has {position.size} elements, not one")
    at = int(position.item())
    if not -count <= at < count + end:
        raise node.fail(f"position {at} is outside a sequence of {count}")
    return at + count if at < 0 else at


@op("SequenceConstruct", since=11, raw=True, sizes=True)
def sequence_construct(node: Call, *items: Any) -> Any:
    """The inputs as a sequence."""
    return list(items)


@op("SequenceEmpty", since=11, raw=True)
def sequence_empty(node: Call, *, dtype: int = 1) -> Any:
    """A sequence of nothing."""
    return []


@op("SequenceLength", since=11, raw=True, sizes=True)
def sequence_length(node: Call, x: Any) -> Any:
    """The number of items."""
    return np.asarray(len(_sequence(node, x)), np.int64)


@op("SequenceAt", since=11, raw=True, sizes=True, values=("position",))
def sequence_at(node: Call, x: Any, position: Any) -> Any:
    """The item at a position."""
    return _sequence(node, x)[_position(node, position, len(x))]


@op("SequenceErase", since=11, raw=True, sizes=True, values=("position",))
def sequence_erase(node: Call, x: Any, position: Any = None) -> Any:
    """The sequence without one item, the last unless it is named."""
    items = _sequence(node, x)
    if not items:
        raise node.fail("its sequence is empty")
    at = len(items) - 1 if position is None else _position(node, position, len(items))
    return node.sequence(items[:at] + items[at + 1 :], items)


@op("SequenceInsert", since=11, raw=True, sizes=True, values=("position",))
def sequence_insert(node: Call, x: Any, value: Any, position: Any = None) -> Any:
    """The items and one more, at the end unless a place is named."""
    items = _sequence(node, x)
    at = len(items) if position is None else _position(node, position, len(items), end=True)
    return node.sequence([*items[:at], value, *items[at:]], items, value)


@op("ConcatFromSequence", since=11, raw=True)
def concat_from_sequence(node: Call, x: Any, *, axis: int, new_axis: int = 0) -> Any:
    """The items one after the other along an axis, or stacked along a new one."""
    items = _sequence(node, x)
    if not items:
        raise node.fail("its sequence is empty, so the result has no shape")
    node.room(sum([size_of(i) for i in items]))
    if any(isinstance(i, Tensor) for i in items):
        tensors = [node.tensor(i) for i in items]
        return Tensor.stack(tensors, axis) if new_axis else Tensor.cat(tensors, axis)
    return np.stack(items, axis) if new_axis else np.concatenate(items, axis)


@op("SplitToSequence", since=11, raw=True, values=("split",))
def split_to_sequence(node: Call, x: Any, split: Any = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    """Pieces along an axis: of one size, of given sizes, or single slices, which may lose the axis."""
    if not -x.ndim <= axis < x.ndim:
        raise node.fail(f"splits axis {axis} of an input of shape {list(x.shape)}")
    axis %= x.ndim
    size = int(x.shape[axis])
    if split is None:
        sizes = [1] * size
    elif split.ndim == 0:
        step = int(split)
        if step <= 0:
            raise node.fail(f"splits into pieces of {step}")
        sizes = [min(step, size - at) for at in range(0, size, step)]
    else:
        sizes = [int(s) for s in split]
    node.room(len(sizes))
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise node.fail(f"splits {size} elements into pieces of {sizes}")
    out = []
    at = 0
    for s in sizes:
        piece = x[(*[slice(None)] * axis, slice(at, at + s))]
        if split is None and not keepdims:
            piece = piece.reshape(*x.shape[:axis], *x.shape[axis + 1 :])
        out.append(piece)
        at += s
    return out


@op("Optional", since=15, raw=True, sizes=True)
def optional(node: Call, x: Any = None, *, type: Any = None) -> Any:
    """The input as an optional: itself, or None."""
    return x


@op("OptionalHasElement", since=15, raw=True, sizes=True)
def optional_has_element(node: Call, x: Any = None) -> Any:
    """True if there is a value."""
    return np.asarray(x is not None)


@op("OptionalGetElement", since=15, raw=True, sizes=True)
def optional_get_element(node: Call, x: Any = None) -> Any:
    """The value that there is."""
    if x is None:
        raise node.fail("its optional is empty", "ask OptionalHasElement first")
    return x
