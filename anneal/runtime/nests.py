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


def mapped(nest: Any, leaf: Callable[[Any], Any]) -> Any:
    """The same nest with `leaf` of each leaf.

    Args:
        nest: the nest.
        leaf: the function.

    >>> mapped((1, [2, {"a": 3}]), lambda x: x + 1)
    (2, [3, {'a': 4}])
    """
    if isinstance(nest, (tuple, list)):
        items = [mapped(x, leaf) for x in nest]
        return type(nest)(*items) if hasattr(nest, "_fields") else type(nest)(items)
    if not isinstance(nest, dict):
        return leaf(nest)
    pairs = {k: mapped(x, leaf) for k, x in nest.items()}
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

    def leaf(x: Any) -> Any:
        if not chosen(x):
            return _sliced(x, leaf)
        if taken is not None:
            taken.append(x)
        return _HOLE

    return mapped(nest, leaf)


def filled(nest: Any, tensors: Iterator[Any]) -> Any:
    """A nest that was emptied, with these tensors."""

    def leaf(x: Any) -> Any:
        return next(tensors) if x is _HOLE else _sliced(x, leaf)

    return mapped(nest, leaf)


def is_hole(x: Any) -> bool:
    """True for what stands for a tensor in a nest that was emptied.

    Args:
        x: a leaf of the nest.
    """
    return x is _HOLE


def _sliced(x: Any, leaf: Callable[[Any], Any]) -> Any:
    return slice(leaf(x.start), leaf(x.stop), leaf(x.step)) if x.__class__ is slice else x
