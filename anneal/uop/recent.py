"""A cache with a bound: of what a program asks for, `Recent` keeps what it asked for last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Recent"]

K = TypeVar("K")
V = TypeVar("V")


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
        """Make the newest entries the older ones; those before go."""
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
