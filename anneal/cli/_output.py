"""Output: data to stdout, messages to stderr; colour only on a terminal that wants it."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from anneal import progress
from anneal.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

    from anneal.inspect import KernelCall


class _Said:
    """The state of the command's output."""

    def __init__(self) -> None:
        self.lost: dict[str, str] = {}  # the streams that were given up, and why
        self.json = self.quiet = False
        self.going_on = False
        self.holder: Callable[[str], None] | None = None  # gets the messages while something fills the terminal
        self.dashboard: Any = None  # the Dashboard that has the terminal


NOW = _Said()


def data(text: str = "", end: str = "\n", whole: bool = False) -> None:
    """One piece of data, to stdout, at once; on a terminal its lines are folded between words, unless they are to stay
    `whole`.

    A stream that takes nothing more is given up, never written to again, and makes the exit code 4. For stdout that
    ends the command, unless its work is for a file (`going_on`); a reader that has left (`... | head`) ends it too,
    quietly. Messages that cannot be told stop nothing.
    """
    _write(sys.stdout, text, end, end == "\n" and not whole)


def _write(stream: Any, text: str, end: str, folds: bool) -> None:
    if folds and stream.isatty():
        text = folded(text, progress.columns(stream))
    stream.write(_printable(text, stream.encoding) + end)
    stream.flush()


@contextmanager
def going_on(wanted: bool) -> Iterator[None]:
    """In the block, if that is wanted, the command goes on when stdout takes nothing more: it has a file to write."""
    before, NOW.going_on = NOW.going_on, wanted
    try:
        yield
    finally:
        NOW.going_on = before


class _Stream(io.TextIOBase):
    """stdout or stderr, whoever writes to it and by whatever means, until it takes nothing more."""

    def __init__(self, stream: Any, name: str, number: int) -> None:
        self._stream, self._name, self._number = stream, name, number
        self._terminal = stream is not None and bool(stream.isatty())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._stream is not None and bool(self._stream.isatty())

    def fileno(self) -> int:
        if self._stream is None:
            raise io.UnsupportedOperation(f"{self._name} is closed")
        return int(self._stream.fileno())

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing: the stream is Python's, and this stands behind it for a while."""

    def flush(self) -> None:
        if self._stream is not None:
            self._try(self._stream.flush)

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # by which a library finds out whether this takes bytes
            raise TypeError(f"{self._name} takes text")
        if text and self._stream is None:
            self._try(self._closed)
        elif text:
            if self._terminal:
                progress.yields(text)
            self._try(self._stream.write, text)
            if self._number == 2:
                self.flush()
        return len(text)

    def _closed(self) -> None:
        raise OSError(errno.EBADF, "it is closed")

    def _try(self, call: Callable[..., object], *arguments: str) -> None:
        if self._name in NOW.lost:
            return
        try:
            call(*arguments)
        except OSError as error:
            self._give_up(error)
        except ValueError as error:
            if not self._stream.closed:
                raise
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        _nowhere(self._number)
        left = isinstance(error, BrokenPipeError)
        why = "" if left else getattr(error, "strerror", None) or str(error)
        NOW.lost[self._name] = why
        if self._number == 2:
            return
        if not NOW.going_on:
            if left:
                sys.exit(0)
            raise DataError(f"stdout cannot be written: {why}") from None
        if why:
            complain(f"anneal: stdout cannot be written: {why}; the work for the file goes on")


def _nowhere(number: int) -> None:
    """Point a stream where writing works: Python flushes it once more on exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)


@contextmanager
def streams() -> Iterator[Callable[[int], int]]:
    """Stand behind stdout and stderr for a command; gives what makes its exit code of the one it would have had."""
    NOW.lost.clear()
    NOW.json = NOW.quiet = False
    for number in (0, 1, 2):  # or the next file that is opened would be taken for a stream that was closed
        try:
            os.fstat(number)
        except OSError:
            _nowhere(number)
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Stream(out, "stdout", 1), _Stream(err, "stderr", 2)
    try:
        yield _verdict
    finally:
        sys.stdout, sys.stderr = out, err


def _verdict(code: int) -> int:
    if code == 0 and NOW.lost.get("stderr") and not NOW.json:
        with suppress(DataError, SystemExit):
            data(f"anneal: stderr cannot be written: {NOW.lost['stderr']}")
    return DataError.exit_code if code == 0 and any(NOW.lost.values()) else code


def message(text: str) -> None:
    """One line for the person at the keyboard, to stderr; nothing with --quiet."""
    if not NOW.quiet:
        complain(text)


def complain(text: str) -> None:
    """One line on stderr that --quiet does not silence: an error."""
    if NOW.holder is not None:
        NOW.holder(text)
    else:
        _write(sys.stderr, text, "\n", True)


def hold_messages(holder: Callable[[str], None] | None) -> None:
    """Give messages to `holder` instead of stderr, where that is a terminal which something else fills; None: no
    more.
    """
    NOW.holder = holder if sys.stderr.isatty() else None


def be_quiet() -> None:
    """Tell neither messages nor progress for the rest of the command: nothing but results and errors."""
    NOW.quiet = True
    progress.silence()


def harmless(text: str) -> str:
    """The text with U+FFFD for what would command a terminal: control characters but the line's end and the tab.

    >>> harmless("a\\tb\\x1b[2J\\x9b\\n")
    'a\\tb\ufffd[2J\ufffd\\n'
    """
    if text.isprintable():
        return text
    return "".join("\ufffd" if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cs") else c for c in text)


def readable(argument: str) -> str:
    """An argument of the command line as text: bytes that are no UTF-8, which Python carries as half characters, as
    U+FFFD.
    """
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def json_line(**fields: Any) -> None:
    """One JSON object on one line."""
    _document(fields, separators=(", ", ": "))


def json_report(report: Any) -> None:
    """One JSON document, indented."""
    _document(report, indent=2)


def _document(value: Any, **layout: Any) -> None:
    import json  # help does without it

    NOW.json = True
    data(json.dumps(value, allow_nan=False, **layout), whole=True)


def kernel_record(kernel: KernelCall) -> dict[str, Any]:
    """A launch as `--json` and run bundles have it."""
    from dataclasses import asdict

    found = asdict(kernel)
    found["wgsl"] = found.pop("text")
    return found


def console(width: int | None = None) -> Console:
    """A rich console on stdout, so wide if that is given. rich reads NO_COLOR itself, and writes no escape codes into a
    pipe.
    """
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, width=width)


_PHASES = {"forward": "teal", "backward": "ember", "update": "gold"}


def phase_colours() -> dict[str, str]:
    """The colour of each phase on this terminal, "#rrggbb" by name."""
    return {phase: progress.colour(hue) for phase, hue in _PHASES.items()}


def code(text: str, language: str) -> None:
    """The text of a program; highlighted on a terminal that has colour."""
    if sys.stdout.isatty() and not (screen := console()).is_dumb_terminal and screen.color_system:
        from rich.syntax import Syntax

        lines = folded(text, screen.width)
        theme = "ansi_light" if progress.ground() == "light" else "ansi_dark"
        screen.print(Syntax(lines, language, theme=theme, background_color="default"), soft_wrap=True)
    else:
        data(text)


@contextmanager
def paged(wanted: bool = True) -> Iterator[None]:
    """In the block, if that is wanted, output is shown a page at a time; on a terminal with a pager, that is."""
    if not (wanted and sys.stdout.isatty() and sys.stdin is not None and sys.stdin.isatty()):
        yield
        return
    import pydoc

    out, sys.stdout = sys.stdout, _Kept(sys.stdout)
    try:
        yield
    finally:
        kept, sys.stdout = sys.stdout, out
    pydoc.pager(kept.getvalue())


class _Kept(io.StringIO):
    """Output that is collected for a pager; it behaves like the terminal behind it."""

    def __init__(self, terminal: Any) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._terminal.fileno())


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], words: int, colours: Sequence[str] | None = None
) -> None:
    """A table on stdout; aligned lines into a pipe. Columns before number `words` are figures; `colours` are of marks
    before rows' first words, whose own colour is legible on a dark and a light terminal.
    """
    terminal = sys.stdout.isatty()
    if not terminal or (screen := console()).is_dumb_terminal:
        from anneal.runtime.profile import aligned

        if terminal:
            heads, rows = narrowed(heads, rows, progress.columns(sys.stdout))
        for line in aligned(heads, rows, words):
            data(line, whole=True)
        return
    from rich.table import Table
    from rich.text import Text

    mark = "\u25a0 " if colours and not screen.no_color and fits("\u25a0") else ""
    if mark:
        rows = [[mark + c if i == words else c for i, c in enumerate(row)] for row in rows]
    heads, rows = narrowed(heads, rows, screen.width)
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for i, head in enumerate(heads):
        grid.add_column(head, justify="left" if i >= words else "right", overflow="ellipsis", no_wrap=True)
    for n, row in enumerate(rows):
        cells_of = [Text(c) for c in row]
        if mark and colours and len(row) > words:
            cells_of[words].stylize(colours[n], 0, len(mark))
        grid.add_row(*cells_of)
    screen.print(grid)


def show(pixels: Any) -> None:
    """A picture, uint8 (h, w, 3): in colour on a terminal that has it, in shades of characters elsewhere."""
    from anneal.training import half_blocks, shades

    screen = console()
    if screen.is_terminal and screen.color_system in ("256", "truecolor") and not screen.no_color and fits("\u2580"):
        screen.print(half_blocks(pixels, screen.width))
    else:
        data(shades(pixels, min(screen.width, 132)))


class Flow:
    """Text that comes in pieces, to stdout. On a terminal a word is printed once it is whole, so that it is not broken
    at the edge.
    """

    def __init__(self) -> None:
        self._column, self._word = 0, ""

    def add(self, text: str, style: str = "") -> None:
        """Print a piece, in a style: the parameters of SGR, such as "2" for faint."""
        if not sys.stdout.isatty():
            data(text, end="")
            return
        width, out = progress.columns(sys.stdout), ""
        for c in text:
            if not c.isspace():
                self._word += c
                continue
            out += self._placed(width)
            out += c if c == "\n" or self._column < width - 1 else ""
            self._column = 0 if c == "\n" else self._column + 1
        if style:
            out, self._word = out + self._placed(width), ""
        if out:
            data(f"\x1b[{style}m{out}\x1b[0m" if style else out, end="")

    def end(self) -> None:
        """Print the last word."""
        if self._word:
            data(self._placed(progress.columns(sys.stdout)), end="")

    def _placed(self, width: int) -> str:
        """The word, on a new line if this one has no room for it."""
        word, self._word = self._word, ""
        long = cells(word)
        new = "\n" if word and self._column and self._column + long > width else ""
        self._column = (0 if new else self._column) + long
        return new + word


def fits(text: str) -> bool:
    """True if stdout's encoding can print this text."""
    return _printable(text, sys.stdout.encoding) == text


def _printable(text: str, encoding: str | None) -> str:
    name = encoding or "utf-8"
    return text.encode(name, "replace").decode(name, "replace")


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------


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


_LEAST = 16  # characters that a column of words keeps on a narrow terminal
_HEAD = 24  # characters of a line's first column below which the rest of the line is folded
_START = re.compile(r"(\s*)(//+ +|# +|[-*] +)?(\S+ {2,}(?=\S))?")


def cells(text: str) -> int:
    """The number of columns of a terminal that the text takes.

    >>> cells("kernel"), cells("核")
    (6, 2)
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def folded(text: str, width: int) -> str:
    """The text in lines of at most `width` columns, folded between words: the rest of a line stands below its second
    column, or two blanks in, and the rest of a comment is one. A word that is longer than a line stays whole.

    >>> print(folded("model   nanogpt: a character GPT, 824,000 parameters", 30))
    model   nanogpt: a character
            GPT, 824,000 parameters
    >>> print(folded("  // a comment that goes on", 20))
      // a comment that
      //   goes on
    """
    return "\n".join(part for line in text.split("\n") for part in _folded(line, width))


def _folded(line: str, width: int) -> list[str]:
    if cells(line) <= width:
        return [line]
    start = _START.match(line)
    assert start is not None
    indent, mark, head = start[1], start[2] or "", start[3] or ""
    below = indent + (mark if mark[:1] in ("/", "#") else " " * len(mark))
    below += " " * len(head) if 0 < len(head) <= min(_HEAD, width // 2) else "  "
    lines, now = [], ""
    for word in re.findall(r"\s*\S+", line):
        if now and cells(now + word) > width:
            lines.append(now)
            word = word.lstrip()
            now = below + word if cells(below + word) <= width else word
        else:
            now += word
    return [*lines, now]


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns; it ends in "…" if it was longer.

    >>> cut("scaled_dot_product", 9), cut("add", 9)
    ('scaled_d…', 'add')
    """
    if cells(text) <= width:
        return text
    if not text.isascii():
        from rich.cells import set_cell_size

        return set_cell_size(text, max(width - 1, 0)).rstrip() + "\u2026"
    return text[: max(width - 1, 0)] + "\u2026"


def narrowed(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """The table in so many columns of characters: long words end in "…", from the last column on, and where that is not
    enough the last columns are left out.

    >>> narrowed(["n", "what"], [["12", "a name that is far too long"]], 22)
    (['n', 'what'], [['12', 'a name that is fa…']])
    """
    widths = [max(map(cells, column)) for column in zip(heads, *rows)]
    over = sum(widths) + 2 * (len(widths) - 1) - width
    for i in reversed(range(len(widths))):
        given = max(min(over, widths[i] - _LEAST), 0)
        widths[i] -= given
        over -= given
    while over > 0 and len(widths) > 1:
        over -= widths.pop() + 2
    widths[-1] -= over
    return heads[: len(widths)], [[cut(c, w) for c, w in zip(row, widths)] for row in rows]


def scaled(n: float) -> str:
    """A count in at most five characters.

    >>> [scaled(n) for n in (0, 999, 1000, 82_176, 999_999, 5_000_000_000)]
    ['0', '999', '1.00k', '82.2k', '1.00M', '5.00G']
    """
    number, unit = _parts(n)
    return number + unit


def sized(n: float) -> str:
    """A count of bytes in three digits and a unit; kB, MB and GB are powers of 1000.

    >>> [sized(n) for n in (0, 999, 82_176, 548_105_171)]
    ['0 B', '999 B', '82.2 kB', '548 MB']
    """
    number, unit = _parts(n)
    return f"{number} {unit}B"


def _parts(n: float) -> tuple[str, str]:
    if n < 999.5:
        return f"{n:.0f}", ""
    at, short = 0, n
    while short >= 999.5 and at < 5:
        at, short = at + 1, short / 1000
    digits = max(3 - len(f"{short:.0f}"), 0)
    return f"{short:.{digits}f}", "kMGTP"[at - 1]
