"""Damaged and crafted files: anneal's errors, or an answer, in bounded memory and time. tests/fuzz/files.py makes and
reads them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.files import KINDS

ROOT = Path(__file__).resolve().parents[2]


DEEP = [pytest.param(*row, marks=pytest.mark.deep) for row in ((200, 200), (400, 300), (700, 300))]


def check(first: int, count: int, *names: str) -> None:
    # a process of its own, whose memory is limited
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.files", str(first), str(count), *names],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 failed") == len(names or KINDS)


def test_some_of_each_kind() -> None:
    check(0, 100)


@pytest.mark.parametrize(("first", "count"), [pytest.param(100, 100, marks=pytest.mark.ci), *DEEP])
def test_more_of_each_kind(first: int, count: int) -> None:
    check(first, count)


@pytest.mark.timeout(3600)
@pytest.mark.deep
@pytest.mark.parametrize("first", range(1000, 61_000, 10_000))
@pytest.mark.parametrize("name", KINDS)
def test_many_of_each_kind(name: str, first: int) -> None:
    check(first, 10_000, name)
