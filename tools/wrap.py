"""Fold the prose of documents at 120 columns: `python tools/wrap.py FILE.md ...`. Paragraphs and items of lists that
have no longer line stay as they are; tables, code, headings and links are never broken.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["folded"]

WIDTH = 120
_ITEM = re.compile(r"(\s*)((?:[-*+]|\d+[.)])\s+)?")
_MARK = re.compile(r"([-*+]|\d+[.)]|#+|>|=+|\|)$|```|~~~|:::|!!!|---")  # at a line's begin it would mean something else
_WORD = re.compile(r"(?:`[^`\n]*`|\]\([^)\s]*\)|[^\s`]|`)+")  # code with its blanks is one word
_WHOLE = ("|", "#", "<", ">", "!!!")


def folded(text: str) -> str:
    """The document with its prose in lines of at most 120 characters.

    >>> print(folded("- " + "word " * 25 + "end").replace("word " * 22, "... "))
    - ... word
      word word end
    """
    out: list[str] = []
    block: list[str] = []
    fenced = listed = False
    lines: list[str | None] = [*text.split("\n"), None]
    for line in lines:
        if line is not None and not fenced and line.strip() and not line.lstrip().startswith(("```", "~~~")):
            block.append(line)
            continue
        out += _block(block, listed)
        if block:
            first = _ITEM.match(block[0])
            listed = bool(first and first[2]) or (listed and block[0].startswith(" "))
        block = []
        if line is not None:
            fenced ^= line.lstrip().startswith(("```", "~~~"))
            out.append(line)
    return "\n".join(out)


def _block(lines: list[str], listed: bool) -> Iterator[str]:
    """The lines of a paragraph, or of a list, folded; `listed`: it stands below an item of a list."""
    code = bool(lines) and lines[0].startswith("    ") and not listed and not _ITEM.match(lines[0])[2]  # type: ignore[index]
    items: list[list[str]] = []
    for line in lines:
        alone = line.lstrip().startswith(_WHOLE)
        if not items or alone or _ITEM.match(line)[2] or items[-1][0].lstrip().startswith(_WHOLE):  # type: ignore[index]
            items.append([line])
        else:
            items[-1].append(line)
    for item in items:
        broken = any(line.endswith(("  ", "\\")) for line in item[:-1])
        if code or broken or item[0].lstrip().startswith(_WHOLE) or max(map(len, item)) <= WIDTH:
            yield from item
        else:
            yield from _item(item)


def _item(lines: list[str]) -> Iterator[str]:
    start = _ITEM.match(lines[0])
    assert start is not None
    below = " " * len(start[0]) if start[2] else start[1]
    if start[2] and len(lines) > 1:
        below = lines[1][: len(lines[1]) - len(lines[1].lstrip())] or below
    now, empty = start[0], True
    for word in _WORD.findall(" ".join([lines[0][len(start[0]) :], *[line.strip() for line in lines[1:]]])):
        if not empty and len(now) + 1 + len(word) > WIDTH and not _MARK.match(word):
            yield now
            now = below + word
        else:
            now += word if empty else f" {word}"
        empty = False
    yield now


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(folded(path.read_text(encoding="utf-8")), encoding="utf-8")
