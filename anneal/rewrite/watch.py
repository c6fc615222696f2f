"""A list of events in a thread, while it has a listener."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Watch(threading.local, Generic[T]):
    """A channel for one kind of event: `found` is the list to append to, or None without a listener in this thread.

    >>> walks = Watch[str]()
    >>> with walks.listening() as heard:
    ...     if walks.found is not None:
    ...         walks.found.append("a walk")
    >>> heard, walks.found
    (['a walk'], None)
    """

    found: list[T] | None = None

    @contextmanager
    def listening(self) -> Iterator[list[T]]:
        """A list that gets every event of this thread within the block; an outer block's gets them at its end."""
        outer = self.found
        mine = self.found = []
        try:
            yield mine
        finally:
            self.found = outer
            if outer is not None:
                outer.extend(mine)
