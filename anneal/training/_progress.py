"""What long work without output says meanwhile: a line every ten seconds into a pipe, one line kept up to date on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["told"]

T = TypeVar("T")

EVERY = 10.0  # seconds between two lines
AT_ONCE = 0.25  # on a terminal, where a line takes the place of the last


def told(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items; on stderr, how far the work on them is, once it has taken a while.

    >>> sum(told(range(5), "adding", 5))
    10
    """
    stream = sys.stderr
    terminal = stream is not None and stream.isatty()
    begun = said = time.monotonic()
    width = 0
    for done, item in enumerate(items):
        now = time.monotonic()
        if stream is not None and now - said >= (AT_ONCE if terminal else EVERY):
            said = now
            left = f", {(now - begun) / done * (total - done):.0f} s left" if done else ""
            text = f"{what}: {done} of {total}, {now - begun:.0f} s{left}"
            _write(stream, f"\r{text.ljust(width)}" if terminal else f"{text}\n")
            width = len(text)
        yield item
    if terminal and width:
        _write(stream, f"\r{' ' * width}\r")


def _write(stream: object, text: str) -> None:
    try:
        print(text, end="", file=stream, flush=True)  # type: ignore[call-overload]
    except (OSError, ValueError):  # nobody can be told; the work goes on
        pass
