"""The work of Python in warm steps without jit stays small; and what looks at CPython's frames and counts of references
is in one file each."""

from __future__ import annotations

import pytest

from anneal import settings
from benchmarks.calls import counts_of
from tests.test_state import PACKAGE


@pytest.mark.parametrize(
    ("program", "calls", "files"), [("add", 14, 6), ("model", 30, 8), ("sgd", 150, 18), ("adam", 180, 18)]
)
def test_a_warm_step_makes_few_calls(program: str, calls: int, files: int) -> None:
    with settings.override(device="cpu"):
        found = counts_of(program)
    assert found.calls <= calls
    assert found.files <= files


@pytest.mark.parametrize(
    ("name", "home"), [("sys.getrefcount", "uop/caches.py"), ("sys._getframe", "uop/provenance.py")]
)
def test_one_file_looks_into_cpython(name: str, home: str) -> None:
    short = name.removeprefix("sys.")
    found = [p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py") if short in p.read_text(encoding="utf-8")]
    assert found == [home]
