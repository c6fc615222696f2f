"""The reader's test: each of the questions in docs/reading.md is answered by one search and one file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_documents import ROOT, read

PAGE = "docs/reading.md"
QUESTIONS = re.findall(
    r"^### \d+\. (.*\?)\n\n- search: `(.*)`\n- file: `(.*)`\n- there: ((?:.+\n)+)", f"{read(PAGE)}\n", re.MULTILINE
)
SOURCES = [
    path
    for kind in ("*.py", "*.upat")
    for path in sorted((ROOT / "anneal").rglob(kind))
    if not path.name.endswith("_rules.py") and not {"_generated", "_examples"} & set(path.parts)
]


def test_there_are_ten_questions() -> None:
    assert len(QUESTIONS) == 10
    assert read(PAGE).count("### ") == 10


@pytest.mark.parametrize(("question", "search", "file", "there"), QUESTIONS, ids=[q[0] for q in QUESTIONS])
def test_a_question_takes_one_search_and_one_file(question: str, search: str, file: str, there: str) -> None:
    found = [path.relative_to(ROOT).as_posix() for path in SOURCES if search in path.read_text(encoding="utf-8")]
    assert found == [file], f"{question} {PAGE} names one file, and the search finds these"
    text = Path(ROOT / file).read_text(encoding="utf-8")
    # Names of the answer that are code of this file; calls such as `anneal.memory(device)` are of the reader's.
    names = [name for name in re.findall(r"`([^`]+)`", there) if "(" not in name]
    assert names
    assert [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)] == []
