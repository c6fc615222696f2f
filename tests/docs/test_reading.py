"""The reader's test: each of the questions in docs/reading.md is answered by one search and three files at most."""

from __future__ import annotations

import re

import pytest

from tests.docs.test_documents import ROOT, read

PAGE = "docs/reading.md"
QUESTIONS = re.findall(
    r"^### \d+\. (.*\?)\n\n- search: `(.*)`\n- files: (.*)\n- there: ((?:.+\n)+)", f"{read(PAGE)}\n", re.MULTILINE
)
SOURCES = [
    path
    for kind in ("anneal/**/*.py", "anneal/**/*.upat", "docs/adding-*.md")
    for path in sorted(ROOT.glob(kind))
    if not path.name.endswith("_rules.py") and not {"_generated", "_examples"} & set(path.parts) and path != ROOT / PAGE
]
# What the ten questions of a newcomer are about, as the page must have them.
ASKED = ["softmax", "fuses", "x + y", "slow", "opt", "dtype", "ONNX", "dialect", "torch", "WGSL"]


def test_there_are_twice_ten_questions() -> None:
    assert len(QUESTIONS) == read(PAGE).count("### ") == 20
    assert [word in question for word, (question, *_) in zip(ASKED, QUESTIONS, strict=False)] == [True] * 10


@pytest.mark.parametrize(("question", "search", "files", "there"), QUESTIONS, ids=[q[0] for q in QUESTIONS])
def test_a_question_takes_one_search_and_few_files(question: str, search: str, files: str, there: str) -> None:
    named = re.findall(r"`([^`]+)`", files)
    assert 1 <= len(named) <= 3
    found = [path.relative_to(ROOT).as_posix() for path in SOURCES if search in path.read_text(encoding="utf-8")]
    assert found == named[:1], f"{question} {PAGE} names a file, and the search finds these"
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in named)
    # Names of the answer that are code of these files; calls such as `anneal.memory(device)` are of the reader's.
    names = [name for name in re.findall(r"`([^`]+)`", there) if "(" not in name and not name.startswith("anneal ")]
    assert names
    assert [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)] == []
