"""Text for lines of so many characters: folded between words, cut with an ellipsis, numbers in few digits."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    return "\n".join([part for line in text.split("\n") for part in _folded(line, width)])


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
