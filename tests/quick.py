"""The quick tier, `make quick`: no GPU and no other process, in less than a minute on two cores.

The tier runs the rooms of ROOMS without the files and tests of LEFT_OUT; in them the tests of the `test` tier that are
not marked slow and do not ask for webgpu. Tensors are on the cpu device, which is NumPy. `watched` holds each test to
that: a test that imports wgpu, and so is about to open a GPU, or that starts a process, fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Folders and files of tests; those of `anneal/` are the examples in docstrings.
ROOMS = (
    "anneal/codegen",
    "anneal/rewrite",
    "anneal/runtime",
    "anneal/schedule",
    "anneal/settings.py",
    "anneal/uop",
    "tests/backend/cpu",
    "tests/cache/test_store.py",
    "tests/codegen",
    "tests/docs",
    "tests/rewrite",
    "tests/runtime/test_context.py",
    "tests/runtime/test_execution.py",
    "tests/runtime/test_jit.py",
    "tests/runtime/test_recaptures.py",
    "tests/schedule",
    "tests/settings",
    "tests/tensor/test_creation.py",
    "tests/tensor/test_elementwise.py",
    "tests/tensor/test_reduce.py",
    "tests/tensor/test_vectors.py",
    "tests/tensor/test_views.py",
    "tests/test_tiers.py",
    "tests/uop",
)
LEFT_OUT = {
    "tests/backend/cpu/test_random_kernels.py": "interprets kernels an element at a time",
    "tests/backend/cpu/test_compiled.py": "starts a compiler",
    "tests/backend/cpu/test_values_in_c.py": "starts a compiler",
    "tests/codegen/test_dialect_c.py": "starts a compiler",
    "tests/codegen/test_matrices.py::test_an_adapters_configurations": "imports wgpu",
    "tests/docs/test_adding_an_op.py": "runs a changed copy of the tree",
    "tests/rewrite/test_mutations.py": "fuzzes once for each planted bug",
    "tests/schedule/test_again.py": "builds whole models",
    "tests/schedule/test_growth.py": "counts the work of deep graphs",
    "tests/backend/cpu/test_device.py::test_the_cpu_describes_itself": "asks the system what processor it has",
    "tests/cache/test_store.py::test_processes_share_a_folder": "starts processes",
    "tests/test_tiers.py::test_the_machine_and_the_commit_have_names": "asks git and the GPU",
    "tests/test_tiers.py::test_this_process_has_a_kernel_or_another_blas": "starts a process",
    "tests/uop/test_node.py::test_keys_are_the_same_in_every_process": "starts processes",
}
SLOW = ("slow", "ci", "deep")
_PROCESSES = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")


def collects(path: Path) -> bool:
    """Whether the tier has tests in this file, or in this folder."""
    if path == ROOT or path in ROOT.parents:
        return True
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    if path.is_dir() and any(_within(room, name) for room in ROOMS):
        return True
    return name not in LEFT_OUT and any(_within(name, room) for room in ROOMS)


def _within(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}/")


def chosen(item: pytest.Item) -> bool:
    """Whether the tier runs this test of its rooms."""
    if any(item.get_closest_marker(mark) for mark in SLOW) or "webgpu" in getattr(item, "fixturenames", ()):
        return False
    if item.nodeid.partition("[")[0] in LEFT_OUT:
        return False
    row = getattr(item, "callspec", None)
    return row is None or "webgpu" not in row.params.values()


# What happened since the test began, of what it may not do; None between tests: pytest's own processes are no concern
# of ours.
_seen: list[str] | None = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    if event in _PROCESSES:
        _seen.append(f"starts a process ({event})")
    elif event == "import" and str(arguments[0]).partition(".")[0] == "wgpu":
        _seen.append("imports wgpu, to open a GPU")


@contextmanager
def watched() -> Iterator[None]:
    """Fail the test that runs inside if it starts a process or imports wgpu, whether or not the attempt succeeds."""
    global _seen
    if _hear not in _hooks:  # a hook stays for as long as the process
        _hooks.append(_hear)
        sys.addaudithook(_hear)
    before, _seen = _seen, []
    try:
        yield
        seen = list(dict.fromkeys(_seen))
    finally:
        _seen = before
    if seen:
        pytest.fail(f"a test of the quick tier {' and '.join(seen)}; it belongs into LEFT_OUT (tests/quick.py)")


_hooks: list[Any] = []


class Plugin:
    """The tier's part of pytest, for all files, those outside of `tests/` too."""

    def pytest_configure(self) -> None:
        """No compiler is started for what runs often: NumPy computes all."""
        os.environ["ANNEAL_CPU"] = "numpy"

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Files that the tier runs nothing of are not even imported; None lets other rules decide."""
        return None if collects(collection_path) else True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        with watched():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        with watched():
            return (yield)
