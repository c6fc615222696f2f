"""A terminal that a test looks at: what stands on its screen, whatever was written, and when it is resized."""

from __future__ import annotations

import copy
import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyte

__all__ = ["Terminal"]


class _Screen(pyte.Screen):
    """Of xterm's second screen (mode 1049) pyte knows nothing, nor that a cursor behind a full line stays on the last
    column: to erase from there takes that column away.
    """

    kept: Any = None

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        self._stay()
        super().erase_in_line(how, private)

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        self._stay()
        super().erase_in_display(how, *args, **kwargs)

    def _stay(self) -> None:
        self.cursor.x = min(self.cursor.x, self.columns - 1)

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        if kwargs.get("private") and 1049 in modes:
            self.kept = copy.deepcopy((self.buffer, self.cursor.x, self.cursor.y))
        super().set_mode(*modes, **kwargs)

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        super().reset_mode(*modes, **kwargs)
        if kwargs.get("private") and 1049 in modes and self.kept is not None:
            self.buffer, self.cursor.x, self.cursor.y = self.kept
            self.kept = None


class Terminal:
    """A pseudo-terminal of so many columns and lines; `slave` is the end that a program writes to."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self.master, self.slave = pty.openpty()
        self.screen = _Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds: float = 0.02) -> None:
        """Take what was written, until nothing comes for so long."""
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:  # nobody has the other end any more
                return
            self.raw += data
            self._stream.feed(data)

    def wait(self, text: str, seconds: float = 30.0) -> None:
        """Read until the text stands on the screen."""
        end = time.monotonic() + seconds
        while text not in self.text:
            assert time.monotonic() < end, f"{text!r} never came; the screen:\n{self.text}"
            self.read(0.05)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip() + "\n"

    @contextmanager
    def as_output(self) -> Iterator[None]:
        """stdout and stderr are this terminal."""
        out, err = sys.stdout, sys.stderr
        with open(os.dup(self.slave), "w", encoding="utf-8") as file:
            sys.stdout = sys.stderr = file
            try:
                yield
            finally:
                sys.stdout, sys.stderr = out, err

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)
