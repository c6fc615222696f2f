"""Nests: tuples, lists and dicts with tensors, and other values, at their leaves."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from anneal.runtime.handle import Handle

_HOLE = object()


def flat(nest: Any) -> list[Any]:
    """The leaves of a nest, in order.

    Args:
        nest: the nest.

    >>> flat((1, [2, {"a": 3, "b": ()}], None))
    [1, 2, 3, None]
    """
    out, rest = [], [nest]
    while rest:
        x = rest.pop()
        if isinstance(x, dict):
            rest.extend(reversed(x.values()))
        elif isinstance(x, (tuple, list)):
            rest.extend(reversed(x))
        else:
            out.append(x)
    return out


def mapped(nest: Any, leaf: Callable[[Any], Any], in_slices: bool = False) -> Any:
    """The same nest with `leaf` of each leaf.

    Args:
        nest: the nest.
        leaf: the function.
        in_slices: whether the bounds of slices are leaves, not the slices.

    >>> mapped((1, [2, {"a": 3}]), lambda x: x + 1)
    (2, [3, {'a': 4}])
    """
    if isinstance(nest, (tuple, list)):
        items = [mapped(x, leaf, in_slices) for x in nest]
        return type(nest)(*items) if hasattr(nest, "_fields") else type(nest)(items)
    if in_slices and nest.__class__ is slice:
        return slice(leaf(nest.start), leaf(nest.stop), leaf(nest.step))
    if not isinstance(nest, dict):
        return leaf(nest)
    pairs = {k: mapped(x, leaf, in_slices) for k, x in nest.items()}
    if isinstance(nest, defaultdict):
        return defaultdict(nest.default_factory, pairs)
    return OrderedDict(pairs) if isinstance(nest, OrderedDict) else pairs


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Handle)


def emptied(nest: Any, taken: list[Any] | None = None, chosen: Callable[[Any], bool] = _is_tensor) -> Any:
    """A nest without its tensors, also without those in slices: what keeps it holds none of them.

    Args:
        nest: the nest.
        taken: a list that gets them, in order.
        chosen: a function that is True for what goes in place of tensors.
    """

    # A leaf that called itself would be a circle of references, and hold the tensors until a collection.
    def leaf(x: Any) -> Any:
        if not chosen(x):
            return x
        if taken is not None:
            taken.append(x)
        return _HOLE

    return mapped(nest, leaf, True)


def filled(nest: Any, tensors: Iterator[Any], other: Callable[[Any], Any] | None = None) -> Any:
    """A nest that was emptied, with these tensors, and with `other` of each leaf that is no tensor."""
    return mapped(nest, lambda x: next(tensors) if x is _HOLE else x if other is None else other(x), True)


def is_hole(x: Any) -> bool:
    """True for what stands for a tensor in a nest that was emptied.

    Args:
        x: a leaf of the nest.
    """
    return x is _HOLE
