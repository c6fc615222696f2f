"""Lines within 120 columns where ruff does not look: code, comments behind it and in rule files, and documents."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.docs.test_documents import DOCUMENTS, ROOT, read
from tools.wrap import folded

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


def wide_code(path: Path) -> list[int]:
    """The lines of a file that are too wide without a comment that tools read."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [n for n, line in lines if len(re.sub(r"  # (type:|fmt:|noqa).*", "", line)) > WIDTH]


def test_code_is_within_the_width() -> None:
    """Tests have tables and outputs that do not fold; `functions.py` has the text of WGSL."""
    files = [p for folder in ("anneal", "examples") for p in sorted((ROOT / folder).rglob("*.py"))]
    written = [p for p in files if not p.name.endswith("_rules.py") and not {"_generated", "_examples"} & set(p.parts)]
    kept = ROOT / "anneal" / "codegen" / "dialects" / "wgsl" / "functions.py"
    assert [f"{p.relative_to(ROOT)}:{n}" for p in written if p != kept for n in wide_code(p)] == []


# Their lines are wider for now: others change them at the same time.
WIDER = {"SPEC.md", "LIMITATIONS.md", "CHANGELOG.md"}


def wide_prose(text: str) -> list[int]:
    """The lines of a document that are too wide and could be folded: no table, no code or output, no link alone."""
    found, fenced = [], False
    for n, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        kept = fenced or line.startswith(("|", "    ")) or re.fullmatch(r"\s*[-!]?\s*\[[^]]*\]\(\S+\)\S*", line)
        if len(line) > WIDTH and not kept:
            found.append(n)
    return found


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in WIDER and "web/app" not in name])
def test_documents_are_within_the_width(name: str) -> None:
    assert wide_prose(read(name)) == [], f"python tools/wrap.py {name} folds them"


def test_wide_prose_is_found() -> None:
    text = f"{'wide ' * 30}\n\n| {'wide ' * 30} |\n\n```text\n{'wide ' * 30}\n```\n\n![a picture]({'w' * 130})\n"
    assert wide_prose(text) == [1]


def test_documents_are_folded_between_words_and_once() -> None:
    kept = "# A title\n\n| a | table |\n\n    code\n\n```text\nan output\n```\n"
    assert folded(kept.replace("e", "e" * 130)) == kept.replace("e", "e" * 130)
    text = (
        "- "
        + "a word and `code with blanks` " * 9
        + "it is 1. or - so " * 20
        + "\n\n  below\n\n"
        + "[a link](to/it) " * 12
    )
    once = folded(text)
    assert max(map(len, once.splitlines())) <= WIDTH
    assert once.split() == text.split()
    assert folded(once) == once
    assert once.count("`code with blanks`") == 9
    assert not [line for line in once.splitlines()[1:] if re.match(r"\s*(- |1\.)", line)]
