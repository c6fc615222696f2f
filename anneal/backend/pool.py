"""Freed buffers that are kept for reuse."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Buffer = TypeVar("Buffer")

_ENTRY_BYTES = 256


class BufferPool(Generic[Buffer]):
    """Freed buffers kept for reuse, by kind (a hashable key such as a size class), within a budget of bytes.

    Of a kind the buffer that came first is taken first: a loop that frees in each round what it took in the one before
    gets the same buffers every second round, in the same places, and what was bound to them can be kept.

    Over budget the kinds that were longest unused go first; `drop` is told of each buffer that leaves. The buffer that
    was freed last stays, however large: a loop over large results frees one for each that it makes.
    """

    __slots__ = ("_count", "_drop", "_free", "_numbers", "budget", "held")

    def __init__(self, budget: int, drop: Callable[[Buffer], None]) -> None:
        self.budget = budget
        self.held = 0
        self._drop = drop
        self._free: dict[Hashable, tuple[int, list[tuple[int, Buffer]]]] = {}  # heaps, by number
        self._numbers: dict[int, int] = {}  # of buffers by id, in the order in which they came
        self._count = itertools.count()

    def take(self, kind: Hashable) -> Buffer | None:
        """A pooled buffer of `kind`, of those the one that came first, or None."""
        entry = self._free.get(kind)
        if entry is None:
            return None
        nbytes, buffers = entry
        _, buffer = heapq.heappop(buffers)
        self.held -= nbytes
        if not buffers:
            del self._free[kind]
        return buffer

    def give(self, kind: Hashable, nbytes: int, buffer: Buffer, budget: int = 0, worth: int | None = None) -> None:
        """Keep `buffer`; may push others out.

        Args:
            nbytes: its bytes.
            budget: the budget, where that is larger than the pool's own.
            worth: the bytes of which the pool's own is to be no more, if that is more than a quarter of it: a program
                that uses little at once would fill the pool with sizes that do not come again.
        """
        # Every entry also costs the host an object, so tiny buffers are not free to keep.
        nbytes += _ENTRY_BYTES
        entry = self._free.pop(kind, None) or (nbytes, [])
        number = self._numbers.get(id(buffer))
        if number is None:
            number = self._numbers[id(buffer)] = next(self._count)
        heapq.heappush(entry[1], (number, buffer))
        self._free[kind] = entry  # reinserted last: most recently used
        self.held += nbytes
        own = self.budget if worth is None else min(self.budget, max(worth, self.budget // 4))
        budget = max(budget, own)
        while self.held > budget and self.held > nbytes:
            oldest = next(iter(self._free))
            size, buffers = self._free[oldest]
            _, victim = buffers.pop()  # a heap without its last item is one
            self.held -= size
            if not buffers:
                del self._free[oldest]
            self._numbers.pop(id(victim), None)
            self._drop(victim)

    def clear(self) -> None:
        """Drop everything."""
        while self._free:
            _, (_, buffers) = self._free.popitem()
            for _, buffer in buffers:
                self._drop(buffer)
        self._numbers.clear()
        self.held = 0
