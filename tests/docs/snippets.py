"""Pages that are programs: the Python of a page of the site runs from top to bottom, its commands in between."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from anneal import settings
from anneal.cli import main as anneal
from anneal.tensor import set_default_device

__all__ = ["Block", "agrees", "blocks", "pages", "printed"]

ROOT = Path(__file__).resolve().parents[2]
# Documents of docs/ whose blocks stand for themselves, or are tested elsewhere.
APART = ("docs/decisions/", "docs/adding-a", "docs/reading.md", "docs/studio.md", "docs/questions.md")
FENCE = re.compile(r"^```(python|console)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fence of a page: its kind and text, the output that the page shows, and the line where it begins."""

    kind: str
    code: str
    expected: str | None
    line: int


def pages() -> list[str]:
    """The pages of docs/ that are programs."""
    found = (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))
    return [name for name in found if not name.startswith(APART)]


def blocks(text: str) -> list[Block]:
    """The programs and commands of a page, in order. A block of commands holds what they print."""
    out = []
    for match in FENCE.finditer(text):
        out.append(Block(match[1], match[2], match[3], text[: match.start()].count("\n") + 1))
    return out


def printed(page: str, found: list[Block], device: str) -> Iterator[tuple[Block, str]]:
    """Each block with what it prints, run in the working folder on a device, in one namespace."""
    names: dict[str, object] = {"__name__": "__main__"}
    try:
        with settings.override(device=device):
            for block in found:
                out = io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                    _run(page, block, names)
                yield block, out.getvalue()
    finally:
        set_default_device(None)  # a page may choose one


def _run(page: str, block: Block, names: dict[str, object]) -> None:
    if block.kind == "python":
        lines = "\n" * block.line + block.code  # a traceback names the page's line
        exec(compile(lines, page, "exec"), names)
        return
    for command in re.findall(r"^\$ anneal (.*)$", block.code, re.MULTILINE):
        print(f"$ anneal {command}")
        with pytest.raises(SystemExit) as end:
            anneal(shlex.split(command))
        assert not end.value.code, f"{page}:{block.line}: anneal {command}"


def agrees(expected: str, said: str) -> bool:
    """Whether the output is the one shown, where a line `...` stands for any lines and `...` in a line for any text."""
    pattern = re.escape(expected.strip()).replace(re.escape("\n...\n"), r"\n(?:.*\n)*?").replace(r"\.\.\.", ".*?")
    return re.fullmatch(pattern, said.strip(), re.DOTALL) is not None
