"""Rewrite the outputs that the documents show with what their examples print now: `python -m tests.docs.refresh`."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile

from anneal import settings
from tests.docs.snippets import ROOT, blocks, pages, printed
from tests.docs.test_documents import DOCUMENTS, EXAMPLE, read

__all__ = ["main"]


def main(names: list[str]) -> None:
    for name in names or [*DOCUMENTS, *pages()]:
        text = page(name) if name in pages() else EXAMPLE.sub(rerun, read(name))
        (ROOT / name).write_text(text, encoding="utf-8")


def rerun(match: re.Match[str]) -> str:
    """An example that stands for itself."""
    said = io.StringIO()
    with (
        settings.override(device="cpu"),
        contextlib.redirect_stdout(said),
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
    ):
        exec(compile(match[1], "example", "exec"), {"__name__": "__main__"})
    return f"```python\n{match[1]}```\n\n```text\n{said.getvalue().rstrip()}\n```"


def page(name: str) -> str:
    """A page that is one program. Commands, and outputs with dots in them, stay as they are."""
    text = read(name)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block, said in printed(name, blocks(text), "cpu"):
            if block.kind == "python" and block.expected is not None and "..." not in block.expected:
                old = f"{block.code}```\n\n```text\n{block.expected}```"
                assert text.count(old) == 1, f"{name}:{block.line}: twice the same block"
                text = text.replace(old, f"{block.code}```\n\n```text\n{said.rstrip()}\n```")
            elif block.expected is None and said and block.kind == "python":
                print(f"{name}:{block.line}: prints, and shows nothing")
    return text


if __name__ == "__main__":
    main(sys.argv[1:])
