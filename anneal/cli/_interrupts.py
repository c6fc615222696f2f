"""Ctrl-C: work ends where it can end cleanly."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from anneal.cli._output import message

STOPPED = 130  # the exit code after Ctrl-C, as shells have it


@contextmanager
def interrupts(after: str) -> Iterator[list[int]]:
    """Ctrl-C puts a number into the list, so that nothing is cut in two; a second Ctrl-C interrupts at once.

    `after` says what is finished first: "stopping after this step".
    """
    caught: list[int] = []

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)
        with suppress(RuntimeError):  # it came while a message was being written
            message(f"stopping after {after}; Ctrl-C again stops at once")

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield caught
    finally:
        signal.signal(signal.SIGINT, before)
