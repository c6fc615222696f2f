"""A loss curve drawn with characters, between axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

# The bit of each of a braille cell's dots, [row][column], over U+2800.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def chart(
    values: Sequence[float], width: int, height: int, *, first: int = 1, braille: bool = True
) -> list[tuple[str, str]]:
    """`height` lines of at most `width` characters that plot `values` from left to right over their numbers, which
    begin with `first`; each line as its axis and its part of the curve.

    Each column of dots shows the mean of its share of the values: see `share`. The last two lines are the axis below.
    Without braille, one mark per character.

    >>> for axis, curve in chart([4.0, 3.0, 2.0, 1.0], 16, 6, braille=False):
    ...     print(f"{axis}{curve}".rstrip())
      4 +***
        |   ***
      2 +      ***
        |         **
        +-----------
    <BLANKLINE>
    """
    rows = max(height - 2, 1)
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if high == low:
        low, high = low - 0.5, high + 0.5
    marks = ticks(low, high, max(rows // 3, 2))
    digits = _digits(marks)
    labels = [f"{m:.{digits}f}" for m in marks]
    label = max([3, *map(len, labels)])
    across, down = (2, 4) if braille else (1, 1)
    cells = max(width - label - 2, 1)
    columns, dots = cells * across, rows * down

    def row_of(value: float) -> int:
        return min(dots - 1, int((high - value) / (high - low) * (dots - 1) + 0.5))

    drawn = [[0] * cells for _ in range(rows)]
    for column, value in enumerate(_resample(values, columns)):
        row = row_of(value)
        drawn[row // down][column // across] |= _DOTS[row % 4][column % 2] if braille else 1
    named = {row_of(m) // down: text for m, text in zip(marks, labels)}
    side, tick = ("\u2502", "\u2524") if braille else ("|", "+")
    mark = "" if braille else "*"
    lines = []
    for i, line in enumerate(drawn):
        text = "".join((mark or chr(0x2800 + c)) if c else " " for c in line).rstrip()
        lines.append((f"{named.get(i, ''):>{label}} {tick if i in named else side}", text))
    return lines + [(" " * (label + 1) + line, "") for line in _below(first, len(values), cells, braille)]


def share(count: int, width: int, braille: bool = True) -> int:
    """About how many of `count` values a column of the curve is the mean of, in a chart of `width` characters.

    >>> share(50, 60), share(2000, 60)
    (1, 19)
    """
    return max(1, round(count / max((width - 6) * (2 if braille else 1), 1)))


def _below(first: int, count: int, cells: int, braille: bool) -> tuple[str, str]:
    """The axis below, and the numbers under its ticks."""
    corner, flat, tick = ("\u2514", "\u2500", "\u252c") if braille else ("+", "-", "+")
    line, text, end = [flat] * cells, [" "] * (cells + 1), 0
    last = first + count - 1
    for mark in ticks(first, last, max(cells // 14, 1)) if count > 1 else ():
        label = f"{mark:,.0f}"
        at = min(int((mark - first) / (last - first) * (cells - 1) + 0.5), cells - 1)
        begin = at + 1 - len(label) // 2
        if mark != int(mark) or begin < end or begin + len(label) > cells + 1:
            continue
        line[at] = tick
        text[begin : begin + len(label)] = label
        end = begin + len(label) + 1
    return corner + "".join(line), "".join(text).rstrip()


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from `low` to `high`, as far apart as 1, 2 or 5 times a power of ten: about `most` of them.

    >>> ticks(0.13, 4.2, 4), ticks(1, 500, 6), ticks(1.874, 1.8791, 3)
    ([1.0, 2.0, 3.0, 4.0], [100.0, 200.0, 300.0, 400.0, 500.0], [1.874, 1.876, 1.878])
    """
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.7)
    begin, end = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(begin, end + 1)]


def _digits(marks: Sequence[float]) -> int:
    """The decimals in which neighbouring ticks differ."""
    gap = min([b - a for a, b in itertools.pairwise(marks)], default=1.0)
    return max(0, -math.floor(math.log10(gap) + 1e-9)) if gap > 0 else 0


def _resample(values: Sequence[float], columns: int) -> list[float]:
    count = len(values)
    if count <= columns:
        return [values[i * count // columns] for i in range(columns)] if count > 1 else list(values)
    edges = [i * count // columns for i in range(columns + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
