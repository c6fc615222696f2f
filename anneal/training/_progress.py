"""Messages of long work without output: a line every ten seconds into a pipe, one line kept up to date on a
terminal.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

__all__ = ["told"]

T = TypeVar("T")

EVERY = 10.0  # seconds between two lines
AT_ONCE = 0.5  # on a terminal, where a line takes the place of the last


def told(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items; on stderr, how far the work on them is, once it has taken a while.

    >>> sum(told(range(5), "adding", 5))
    10
    """
    stream: TextIO | None = sys.stderr
    if stream is None:
        yield from items
        return
    teller = _Teller(stream, what, total)
    teller.start()
    try:
        for item in items:
            yield item
            teller.step()
    finally:
        teller.stop()


class _Teller(threading.Thread):
    """Tells how far the work is, also while one piece of it, the first, which compiles, takes long."""

    def __init__(self, stream: TextIO, what: str, total: int) -> None:
        super().__init__(name="anneal-progress", daemon=True)
        self.stream, self.what, self.total = stream, what, total
        self.terminal = stream.isatty()
        self.begun = self.first = time.monotonic()
        self.done = self.width = 0
        self.ended = threading.Event()

    def step(self) -> None:
        self.done += 1
        if self.done == 1:
            self.first = time.monotonic()

    def run(self) -> None:
        while not self.ended.wait(AT_ONCE if self.terminal else EVERY):
            now, done = time.monotonic(), self.done
            left = f", {(now - self.first) / (done - 1) * (self.total - done):.0f} s left" if done > 1 else ""
            text = f"{self.what}: {done} of {self.total}, {now - self.begun:.0f} s{left}"
            self.write(f"\r{text.ljust(self.width)}" if self.terminal else f"{text}\n")
            self.width = len(text)

    def stop(self) -> None:
        self.ended.set()
        self.join()
        if self.terminal and self.width:
            self.write(f"\r{' ' * self.width}\r")

    def write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # nobody can be told; the work goes on
            pass
