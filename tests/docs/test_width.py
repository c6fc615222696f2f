"""Comments within 120 columns where W505 does not look: behind code, and in rule files."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

import pytest

from tests.docs.test_documents import ROOT

WIDTH = 120
FOLDERS = ("anneal", "benchmarks", "examples", "tests", "tools")


def wide_comments(path: Path) -> list[int]:
    """The lines of a file that a comment makes too wide."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".upat":
        return [n for n, line in enumerate(text.splitlines(), 1) if line.startswith("#") and len(line) > WIDTH]
    if max(map(len, text.splitlines()), default=0) <= WIDTH:
        return []
    comments = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    said = [
        t for t in comments if not t.string.startswith(("# type:", "# fmt:", "# noqa"))
    ]  # tools read these in place
    return [t.start[0] for t in said if t.end[1] > WIDTH and t.line[: t.start[1]].strip()]


@pytest.mark.parametrize("folder", FOLDERS)
def test_comments_are_within_the_width(folder: str) -> None:
    files = [p for kind in ("*.py", "*.upat") for p in sorted((ROOT / folder).rglob(kind))]
    written = [p for p in files if not p.name.endswith("_rules.py") and not {"_generated", "_examples"} & set(p.parts)]
    assert [f"{p.relative_to(ROOT)}:{n}" for p in written for n in wide_comments(p)] == []


def test_a_wide_comment_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"x = 1\ny = 2  # {'wide ' * 30}\nz = {'9' * 130}\n")
    (tmp_path / "a.upat").write_text(f"# {'wide ' * 30}\nx + 0 -> x  # \n")
    assert wide_comments(tmp_path / "a.py") == [2]
    assert wide_comments(tmp_path / "a.upat") == [1]
