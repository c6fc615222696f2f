"""A loss curve drawn with characters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

__all__ = ["curve"]

# The bit of each of a braille cell's dots, [row][column], over U+2800.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def curve(values: Sequence[float], width: int, height: int, *, braille: bool = True) -> list[str]:
    """`height` lines of `width` characters that plot `values` from left to right, with the range at the left edge.

    Each column of dots shows the mean of its share of the values. Without braille, one mark per character.

    >>> print("\\n".join(curve([4.0, 3.0, 2.0, 1.0], 15, 4, braille=False)))
     4.00 |**
          |  **
          |    **
     1.00 |      **
    """
    label = 7
    across, down = (2, 4) if braille else (1, 1)
    columns, rows = max(1, (width - label) * across), max(1, height * down)
    means = _resample(values, columns)
    low, high = (min(means), max(means)) if means else (0.0, 1.0)
    span = (high - low) or 1.0
    cells = [[0] * (width - label) for _ in range(height)]
    for column, value in enumerate(means):
        row = min(rows - 1, int((high - value) / span * (rows - 1) + 0.5))
        dot = _DOTS[row % 4][column % 2] if braille else 1
        cells[row // down][column // across] |= dot
    mark = "" if braille else "*"
    lines = []
    for i, line in enumerate(cells):
        edge = f"{high:5.2f}" if i == 0 else f"{low:5.2f}" if i == height - 1 else " " * 5
        text = "".join((mark or chr(0x2800 + c)) if c else " " for c in line)
        lines.append(f"{edge} |{text}".rstrip())
    return lines


def _resample(values: Sequence[float], columns: int) -> list[float]:
    count = len(values)
    if count <= columns:
        return [values[i * count // columns] for i in range(columns)] if count > 1 else list(values)
    edges = [i * count // columns for i in range(columns + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
