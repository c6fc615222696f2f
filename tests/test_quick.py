"""The quick tier runs what it lists, and fails what opens a GPU or starts a process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from tests import quick
from tests.tiers import QUICK, runs


def test_what_it_lists_exists() -> None:
    for name in (*quick.ROOMS, *[left_out.partition("::")[0] for left_out in quick.LEFT_OUT]):
        assert (quick.ROOT / name).exists(), name


def test_files_and_folders_are_those_of_the_list() -> None:
    for name in (
        ".",
        "tests",
        "tests/tensor",
        "tests/uop/test_fold.py",
        "tests/runtime/test_jit.py",
        "anneal/uop/bounds.py",
    ):
        assert quick.collects(quick.ROOT / name), name
    for name in ("tests/backend/webgpu", "tests/tensor/test_torch.py", "tests/cli", "anneal/backend", *quick.LEFT_OUT):
        assert "::" in name or not quick.collects(quick.ROOT / name), name
    assert not quick.collects(quick.ROOT.parent / "elsewhere")


@pytest.mark.parametrize(
    ("kept", "item"),
    [
        (True, {"fixturenames": ["tmp_path"]}),
        (True, {"callspec": SimpleNamespace(params={"device": "cpu"})}),
        (False, {"callspec": SimpleNamespace(params={"device": "webgpu"})}),
        (False, {"fixturenames": ["webgpu"]}),
        (False, {"get_closest_marker": {"slow": "slow"}.get}),
        (False, {"get_closest_marker": {"deep": "deep"}.get}),
        (False, {"nodeid": next(name for name in quick.LEFT_OUT if "::" in name) + "[3]"}),
    ],
)
def test_tests_for_webgpu_and_slow_ones_are_left_out(kept: bool, item: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"get_closest_marker": {}.get, "nodeid": "tests/uop/test_fold.py::test", "fixturenames": []}
    found: Any = SimpleNamespace(**plain | item)
    assert runs(found, QUICK) is kept


@pytest.mark.parametrize(
    ("event", "arguments", "said"),
    [
        ("import", ("wgpu.backends", None, None, None, None), "imports wgpu, to open a GPU"),
        ("subprocess.Popen", ("true", [], None, None), "starts a process"),
        ("os.fork", (), "starts a process"),
    ],
)
def test_a_test_that_opens_a_gpu_or_starts_a_process_fails(event: str, arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=said), quick.watched():
        sys.audit(event, *arguments)
    with quick.watched():
        sys.audit("import", "wgpurely", None, None, None, None)


def test_the_tier_as_pytest_collects_it() -> None:
    """Every room has tests, none is for webgpu, and wgpu is not imported to find them."""
    asked = "import sys, pytest; code = pytest.main(sys.argv[1:]); sys.exit(code or 'wgpu' in sys.modules)"
    command = [sys.executable, "-c", asked, "--tier", QUICK, "--collect-only", "-q", "-p", "no:cacheprovider"]
    found = subprocess.run(command, cwd=quick.ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    names = re.findall(r"^(\S+\.py)::(.*)$", found.stdout, re.MULTILINE)
    counts = Counter(file for file, _ in names)
    assert sum(counts.values()) > 1500
    with_tests = [room for room in quick.ROOMS if any(f"{file}/".startswith(f"{room}/") for file in counts)]
    assert [room for room in quick.ROOMS if room.startswith("tests/") and room not in with_tests] == []
    assert [name for _, name in names if re.search(r"[\[-]webgpu[\]-]", name)] == []
    assert not set(counts) & set(quick.LEFT_OUT)
