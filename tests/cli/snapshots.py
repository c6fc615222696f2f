"""Texts of the command line as files of this repository: `snapshots/NAME.txt`. To write them anew, after looking:

UPDATE_SNAPSHOTS=1 python -m pytest tests/cli/test_dashboard.py tests/cli/test_screens.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from anneal.cli._output import cells

__all__ = ["FOLDER", "check_lines", "matches"]

FOLDER = Path(__file__).parent / "snapshots"


def matches(name: str, text: str, version: str = "") -> None:
    """The text is what the file of this name has. With a `version` of what helped to make it: if the file is of the
    same one; its first line says of which.
    """
    path = FOLDER / f"{name}.txt"
    if version:
        text = f"made with {version}\n{text}"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    assert path.exists(), f"{path} is missing: see tests/cli/snapshots.py"
    kept = path.read_text(encoding="utf-8")
    if version and not kept.startswith(f"made with {version}\n"):
        return
    assert text.rstrip("\n") == kept.rstrip("\n"), (
        f"{path.name} is another; if that is right: see tests/cli/snapshots.py"
    )


def check_lines(lines: Iterable[str], width: int) -> None:
    """No line is wider than the terminal, but for one word that is."""
    for line in lines:
        assert cells(line) <= width or re.fullmatch(r"\s*\S+", line), (width, line)
