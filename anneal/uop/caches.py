"""Caches with a bound, counts of references, which say whether somebody else has an object, and Python's collector of
cycles, put off while a graph is compiled.

Nodes hold no cycles, but the collector cannot know: with a hundred thousand of them it walks all again and again, for a
third of the time of a compilation.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_LEAST = 64  # entries that stay, however heavy


class Recent(dict[K, V | None]):
    """A dict that keeps the entries used last: the newest, at most `most`, and behind them as many older ones.

    `cache[key]` is None for a key that is not there; it costs what a dict costs, and an older entry that it finds is
    among the newest again. Once those are `most`, they are the older ones, and the older ones go. Only `[]` sees both.

    Args:
        most: the bound of each half.
        turned: what is called once older entries went.

    >>> cache = Recent(2)
    >>> for n in range(5):
    ...     cache[n] = n * n
    ...     _ = cache[0]
    >>> cache[0], cache[1], cache[4], cache.count()
    (0, None, 16, 3)
    """

    __slots__ = ("most", "older", "turned")

    def __init__(self, most: int, turned: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self.most, self.turned = most, turned
        self.older: dict[K, V | None] = {}

    def __missing__(self, key: K) -> V | None:
        found = self.older.pop(key, None)
        if found is not None:
            self[key] = found
        return found

    def __setitem__(self, key: K, value: V | None) -> None:
        if len(self) >= self.most:
            self.turn()
        super().__setitem__(key, value)

    def turn(self) -> None:
        """Make the newest entries the older ones, and drop the entries that were the older ones."""
        self.older = dict(self)
        super().clear()
        if self.turned is not None:
            self.turned()

    def count(self) -> int:
        """The number of entries, older ones too."""
        return len(self) + len(self.older)

    def clear(self) -> None:
        """Forget all entries."""
        super().clear()
        self.older = {}


class Weighed(dict[K, V]):
    """A dict whose entries have weights: the least recently used entries are dropped once there are more than `most` of
    them, or than 64 that weigh more than `heavy` together. Use `find` and `keep`.

    >>> plans = Weighed(3, 1000)
    >>> for n in range(5):
    ...     plans.keep(n, str(n), weight=1)
    ...     _ = plans.find(0)
    >>> list(plans)
    [3, 4, 0]
    """

    def __init__(self, most: int, heavy: int) -> None:
        super().__init__()
        self.most, self.heavy, self.weight = most, heavy, 0
        self._weights: dict[K, int] = {}

    def find(self, key: K) -> V | None:
        """The entry of a key, now the most recently used one, or None."""
        found = self.pop(key, None)
        if found is not None:
            self[key] = found
        return found

    def keep(self, key: K, value: V, weight: int) -> None:
        """Put in an entry; others may be dropped."""
        self.weight += weight - self._weights.pop(key, 0)
        self[key], self._weights[key] = value, weight
        while len(self) > self.most or (self.weight > self.heavy and len(self) > _LEAST):
            del self[next(iter(self))]

    def __delitem__(self, key: K) -> None:
        self.pop(key, None)  # another thread may look at it now
        self.weight -= self._weights.pop(key, 0)

    def clear(self) -> None:
        """Forget all entries."""
        super().clear()
        self._weights.clear()
        self.weight = 0


references = sys.getrefcount  # to an object, the argument's own among them


class Users:
    """Objects that are held, each with its count of references when nobody else holds it.

    Args:
        held: the objects; the list itself is a reference to each.
        alone: the counts, those of now if left out.
    """

    __slots__ = ("alone", "held")

    def __init__(self, held: list[Any], alone: Sequence[int] | None = None) -> None:
        self.held = held
        self.alone = list(map(references, held)) if alone is None else list(alone)

    def more(self) -> list[int] | None:
        """For each object, the number of further references; None if there are none to any object.

        >>> a, b = object(), object()
        >>> users = Users([a, b])
        >>> users.more()
        >>> c = b
        >>> users.more()
        [0, 1]
        """
        counts = list(map(references, self.held))
        return None if counts == self.alone else [a - b for a, b in zip(counts, self.alone, strict=True)]


@contextmanager
def uncollected() -> Iterator[None]:
    """A block in which cycles are not collected, unless collection is switched on."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
