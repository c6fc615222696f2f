"""Progress of long work. Code that does long work reports it with `work` or `told`; it is shown only inside a block of
`shown`, which the command line opens: calls of the library print nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import length_hint
from typing import TextIO, TypeVar

from anneal import settings

T = TypeVar("T")

AFTER = 1.0  # seconds that work takes before it is worth a line
EVERY = 10.0  # seconds between two lines in a pipe
REDRAWN = 0.2  # seconds between two drawings on a terminal
_BAR = 30  # characters
_WIDEST = 59  # characters of the line: a terminal that becomes as narrow as 60 does not fold it
# Each hue as the Go original has it, for a dark ground, and at a luminance of 0.18: 4.5 : 1 on white and on black.
_HUES = {"teal": ("#00add8", "#0080a0"), "ember": ("#ff7043", "#ce481d"), "gold": ("#ffc107", "#957000")}
_IN_256 = {"#00add8": 38, "#0080a0": 31}


class Work:
    """Work in progress: what it is, and how much of `total` is done; `total` is None if it is unknown.

    `unit` is "" for pieces, "B" for bytes, which are shown scaled. `note` is shown behind.
    """

    __slots__ = ("begun", "done", "first", "note", "started", "total", "unit", "what")

    def __init__(self, what: str, total: int | None = None, unit: str = "") -> None:
        self.what, self.total, self.unit, self.note = what, total, unit, ""
        self.begun = self.first = time.monotonic()
        self.done = self.started = 0

    def step(self, count: int = 1) -> None:
        """Count `count` more as done."""
        self.at(self.done + count)

    def at(self, done: int) -> None:
        """Set the amount done. Time left is reckoned from the first call on, since the first piece compiles."""
        if not self.done:
            self.first, self.started = time.monotonic(), done
        self.done = done

    def resume(self, done: int) -> None:
        """Set the amount that was done before this attempt, so that it does not count in the speed; drops the last
        attempt's note.
        """
        self.done = self.started = done
        self.first, self.note = time.monotonic(), ""

    def left(self, now: float) -> float | None:
        """Seconds until the end, as it went so far; None while that cannot be said."""
        gone = self.done - self.started
        return None if self.total is None or gone <= 0 else (now - self.first) / gone * (self.total - self.done)


class _Display(threading.Thread):
    """Shows the innermost work that has taken a second or more, until it ends."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(name="anneal-progress", daemon=True)
        self.stream = stream
        self.terminal = stream.isatty() and settings.variable("TERM") not in ("dumb", "unknown")
        self.drawn = False  # whether a bar stands on the terminal's line
        self.fresh = True  # whether the terminal's cursor is at the beginning of a line
        self.hidden = self.writing = False
        self.ended = threading.Event()
        self.lock = threading.RLock()  # reentrant: a signal's handler may write while its thread is writing

    def begin(self) -> None:
        """Start the thread that looks at the work from time to time, if it does not run."""
        with self.lock:
            if not self.is_alive() and not self.ended.is_set():
                self.start()

    def run(self) -> None:
        while not self.ended.wait(REDRAWN if self.terminal else EVERY):
            now = time.monotonic()
            old = [w for w in list(_TOLD.running) if now - w.begun >= AFTER]
            with self.lock:
                if old and not self.ended.is_set() and not self.hidden:
                    self.tell(old[-1], now)
                elif self.drawn:
                    self.erase()

    def tell(self, told: Work, now: float) -> None:
        if not self.terminal:
            self.write(line(told, now) + "\n")
        elif self.fresh:
            bar = "\u2501\u2500" if _fits("\u2501\u2500", self.stream) else "=-"
            hue = "" if settings.variable("NO_COLOR") else colour("teal")
            text = line(told, now, min(columns(self.stream) - 1, _WIDEST), bar, hue)
            self.drawn = True
            self.write(f"\r{text}\x1b[K")

    def erase(self) -> None:
        """Remove the bar from the terminal, so that others can write on it."""
        if self.drawn:
            self.drawn = False
            self.write("\r\x1b[K")

    def write(self, text: str) -> None:
        try:
            self.writing = True
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # nobody can read it; the work goes on
            pass
        finally:
            self.writing = False


class _Told:
    """Reports on the process's work."""

    def __init__(self) -> None:
        self.running: list[Work] = []  # the innermost last
        self.display: _Display | None = None
        self.noted: set[str] = set()  # the texts of `note`


_TOLD = _Told()


@contextmanager
def shown(stream: TextIO | None = None) -> Iterator[None]:
    """A block in which work is shown on `stream`, by default stderr; inside another such block, or without a stderr, it
    changes nothing.

    On a terminal it is one line with a bar, there after a second and gone when the work is done or others write; into a
    pipe it is a line every ten seconds. Both go to stderr.
    """
    stream = stream or sys.stderr
    if _TOLD.display is not None or stream is None:
        yield
        return
    _TOLD.display = mine = _Display(stream)
    try:
        yield
    finally:
        _TOLD.display = None
        mine.ended.set()
        if mine.is_alive():
            mine.join()
        with mine.lock:
            mine.erase()


def silence(hidden: bool = True) -> None:
    """Show nothing from now on in the block of `shown` that this is called in, or, with False, again."""
    if (display := _TOLD.display) is not None:
        with display.lock:
            display.hidden = hidden
            display.erase()


def yields(text: str) -> None:
    """Remove the bar before `text` is written to a terminal: called by the streams' wrapper."""
    display = _TOLD.display
    if display is None or not display.terminal:
        return
    with display.lock:
        if not display.writing:  # else the text is the bar itself
            display.erase()
            display.fresh = text.endswith("\n")


def note(text: str) -> None:
    """Print a line on stderr, the first time that it comes."""
    if text not in _TOLD.noted:
        _TOLD.noted.add(text)
        print(f"anneal: {text}", file=sys.stderr)


def running() -> list[Work]:
    """The works in progress, the innermost last."""
    return list(_TOLD.running)


@contextmanager
def work(what: str, total: int | None = None, unit: str = "") -> Iterator[Work]:
    """The block is work of `total` pieces, or bytes (`unit="B"`); it says of what it is given how much is done.

    >>> with work("adding", 3) as adding:
    ...     for _ in range(3):
    ...         adding.step()
    >>> adding.done
    3
    """
    mine = Work(what, total, unit)
    if (display := _TOLD.display) is None:
        yield mine
        return
    _TOLD.running.append(mine)
    try:
        display.begin()
        yield mine
    finally:
        _TOLD.running.remove(mine)


def told(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """The `items`, one after the other; `shown` reports the work on them as `what`, with its part of `total`, or of
    their number where that is known.

    >>> sum(told(range(5), "adding"))
    10
    """
    return _told(items, what, total) if _TOLD.display is not None else iter(items)


def _told(items: Iterable[T], what: str, total: int | None) -> Iterator[T]:
    with work(what, total or length_hint(items) or None) as mine:
        for item in items:
            yield item
            mine.step()


def line(told: Work, now: float, width: int = 0, bar: str = "", hue: str = "") -> str:
    """The line about work, in at most `width` characters, with a bar where there is room and an end; 0: no limit.

    `bar` has the characters of the bar's two parts, `hue` the colour of the first, "#rrggbb".

    >>> w = Work("compiling", 40)
    >>> w.done = 10
    >>> line(w, w.begun + 12, 59, "#-")
    'compiling  #####---------------  10 of 40, 12 s, 36 s left'
    """
    said = f"{now - told.begun:.0f} s"
    if (left := told.left(now)) is not None:
        said += f", {left:.0f} s left"
    if told.total is not None:
        said = f"{_amount(told)}, {said}"
    elif told.done:
        said = f"{told.done}, {said}"
    if told.note:
        said += f" ({told.note})"
    text = f"{told.what}: {said}"
    room = min(width - len(text) - 3, _BAR) if bar and told.total else 0
    if room < 5:
        return text if not width or len(text) <= width else text[: width - 1] + "\u2026"
    full = min(room, room * told.done // max(told.total or 0, 1))
    parts = bar[0] * full, bar[1] * (room - full)
    painted = f"{_begin(hue)}{parts[0]}\x1b[0m{parts[1]}" if hue else "".join(parts)
    return f"{told.what}  {painted}  {said}"


def _amount(told: Work) -> str:
    total = told.total or 0
    if told.unit != "B":
        return f"{told.done:,} of {total:,}"
    return f"{told.done / 1e6:,.1f} of {total / 1e6:,.1f} MB"


def ground() -> str:
    """The background of the terminal, "dark" or "light", by COLORFGBG; "" where that is not set, as on most.

    The variable has the numbers of the colours of text and background: "15;0".
    """
    last = settings.variable("COLORFGBG").rpartition(";")[2]
    if not last.isdecimal():
        return ""
    return "dark" if int(last) in (0, 1, 2, 3, 4, 5, 6, 8) else "light"


def colour(name: str) -> str:
    """The colour "teal", "ember" or "gold" as "#rrggbb": bright on a dark ground, and on a light or an unknown one the
    shade that is legible on white and on black.
    """
    bright, middle = _HUES[name]
    return bright if ground() == "dark" else middle


def _begin(hue: str) -> str:
    """The code after which a terminal writes in this colour."""
    if settings.variable("COLORTERM") not in ("truecolor", "24bit"):
        return f"\x1b[38;5;{_IN_256[hue]}m"
    return f"\x1b[38;2;{int(hue[1:3], 16)};{int(hue[3:5], 16)};{int(hue[5:], 16)}m"


def columns(stream: TextIO) -> int:
    """The number of characters in a line of the terminal behind a stream: COLUMNS, if that is set, or 80 if nobody
    knows.
    """
    said = settings.variable("COLUMNS")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def _fits(text: str, stream: TextIO) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
