"""Where output goes: data to stdout, messages to stderr; colour only on a terminal that wants it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

__all__ = ["console", "data", "fits", "json_line", "json_report", "message", "show", "table"]


def data(text: str = "", end: str = "\n") -> None:
    """One piece of data, to stdout, at once. Ends the command quietly when its reader has left (`... | head`)."""
    try:
        sys.stdout.write(_printable(text, sys.stdout.encoding) + end)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more on exit: point it where writing works.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def message(text: str) -> None:
    """One line for the person at the keyboard, to stderr."""
    sys.stderr.write(_printable(text, sys.stderr.encoding) + "\n")
    sys.stderr.flush()


def json_line(**fields: Any) -> None:
    """One JSON object on one line."""
    data(json.dumps(fields, separators=(", ", ": "), allow_nan=False))


def json_report(report: Any) -> None:
    """One JSON document, indented."""
    data(json.dumps(report, indent=2, allow_nan=False))


def console() -> Console:
    """A rich console on stdout. rich reads NO_COLOR itself, and writes no escape codes into a pipe."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> None:
    """A table on stdout; aligned lines into a pipe. Columns before number `words` are figures."""
    if not sys.stdout.isatty() or (screen := console()).is_dumb_terminal:
        from anneal.tensor.profile import aligned

        for line in aligned(heads, rows, words):
            data(line)
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, header_style="bold", pad_edge=False)
    for i, head in enumerate(heads):
        grid.add_column(head, justify="left" if i >= words else "right", overflow="ellipsis", no_wrap=i < words)
    for row in rows:
        grid.add_row(*[Text(c) for c in row])
    screen.print(grid)


def show(pixels: Any) -> None:
    """A picture, uint8 (h, w, 3): in colour on a terminal that has it, in shades of characters elsewhere."""
    from anneal.training import half_blocks, shades

    screen = console()
    if screen.is_terminal and screen.color_system in ("256", "truecolor") and not screen.no_color and fits("\u2580"):
        screen.print(half_blocks(pixels, screen.width))
    else:
        data(shades(pixels, min(screen.width, 132)))


def fits(text: str) -> bool:
    """Whether stdout's encoding can print this text."""
    return _printable(text, sys.stdout.encoding) == text


def _printable(text: str, encoding: str | None) -> str:
    name = encoding or "utf-8"
    return text.encode(name, "replace").decode(name)
