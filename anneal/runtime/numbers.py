"""Numbers that vary: what Python gives an op anew in each round of a loop is an input of the plan, and no part of it.

A number in a call is a constant at first, and folds. If a call at the same place, of tensors of the same shapes, has a
number that no earlier round had, the numbers of that place vary: from now on each is memory of one element, so that
the call has one template whatever they are. An op says which of its arguments may be that: by its `inputs`
(`ops/inputs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from anneal.backend import numpy_dtype
from anneal.runtime.nodes import buffer_leaf, host_storage
from anneal.runtime.numbering import Numbering
from anneal.uop import DType, Recent, UOp, normalise_const

__all__ = ["Varies", "number", "varying"]

_MOST = 1 << 10  # values of a place, after which it is looked at anew
Varies = Callable[[Any, Any], bool]  # whether what stands at a place of a call varies, which is this now


class _Site:
    """A place in a program that gives a number: the values of the round that runs and of those before."""

    __slots__ = ("calls", "last", "now", "seen", "varies")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Nothing is known of it."""
        self.last: Callable[[], Numbering | None] = lambda: None
        self.now: set[Any] = set()
        self.seen: set[Any] = set()
        self.calls: list[Any] = []  # the keys of calls that are remembered with values as constants
        self.varies = False

    def meets(self, value: Any, n: Numbering, key: Any, known: Recent[Any, Any]) -> bool:
        """True if the numbers here vary; `value` is the one of the call that has this key."""
        if self.varies:
            return True
        if len(self.calls) > _MOST:
            self.begin()
        if self.last() is not n:
            self.seen |= self.now
            self.now, self.last = set(), ref(n)
        if self.seen and value not in self.seen:
            for call in self.calls:
                known.pop(call, None)
                known.older.pop(call, None)
            self.calls, self.now, self.seen, self.varies = [], set(), set(), True
            return True
        self.now.add(value)
        self.calls.append(key)
        return False


def varying(n: Numbering, place: tuple[Any, ...], key: Any, known: Recent[Any, Any]) -> Varies:
    """A predicate: True if what stands at a place of a call varies.

    Args:
        n: the numbering of this thread.
        place: where the call stands, and what its tensors are like.
        key: what the call is known by with its numbers as constants.
        known: the calls that are remembered.
    """

    def varies(slot: Any, value: Any) -> bool:
        at = (_Site, slot, *place)
        site = known[at]
        if site is None:
            site = known[at] = _Site()
        return bool(site.meets((value.__class__, value), n, key, known))

    return varies


def number(value: float, dtype: DType, device: str) -> UOp:
    """The node of memory that has one number, of shape ().

    Args:
        value: the number.
        dtype: the dtype that it is rounded to.
        device: the name of the device.
    """
    return buffer_leaf(host_storage(np.array([normalise_const(dtype, value)], numpy_dtype(dtype)), dtype, device), ())
