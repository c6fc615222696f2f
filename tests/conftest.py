"""Fixtures that every part shares: the devices there are."""

from __future__ import annotations

import gc
import os
import tempfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

# In the environment, so that xdist's workers, which start with the folder below, know the user's too.
USER_CACHE = os.environ.setdefault("TESTS_USER_CACHE", os.environ.get("ANNEAL_CACHE_DIR", ""))
USER_CPU = os.environ.get("ANNEAL_CPU", "")
# Tests compile afresh, mutated compilers too, and leave the user's own cache alone; tests of the cache switch it on.
os.environ["ANNEAL_CACHE"] = "0"
os.environ["ANNEAL_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), f"anneal-tests-{os.getpid()}")
os.environ.setdefault("ANNEAL_TRACEBACK", "full")  # a failure shows where in the library it arose
# Most of the time on WebGPU goes into compiling thousands of small kernels. Mesa's software adapter, which reads this
# when it starts, compiles them in half the time without its optimisation passes; other adapters do not look at it.
os.environ.setdefault("GALLIVM_PERF", "nopt")

import pytest

from anneal import cache, settings
from anneal.backend import get_device
from anneal.errors import DeviceError
from anneal.tensor import set_default_device
from tests import quick
from tests.tiers import QUICK, TIERS, runs


def pytest_addoption(parser: pytest.Parser) -> None:
    with settings.override(cache_dir=USER_CACHE):
        folder = cache.folder()
    parser.addoption(
        "--gpt2",
        metavar="FOLDER",
        default=str(folder / "assets" / "gpt2") if folder else "",
        help="GPT-2's vocab.json and merges.txt, to compare the tokenisers on all of it (default: the user's cache)",
    )
    parser.addoption(
        "--tier",
        choices=(QUICK, *TIERS),
        default="test",
        help="how much of the long tables to run (tests/tiers.py), or what needs no device (tests/quick.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--tier") == QUICK:
        config.pluginmanager.register(quick.Plugin())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a longer tier runs, and begin with what takes long."""
    tier: str = config.getoption("--tier")
    left_out = [item for item in items if not runs(item, tier)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if runs(item, tier)]
    # The slow ones first, or one worker is still at them when the other has nothing left.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


# The rooms whose tests have the cpu's kernels in C where those run often, as a program has them (`ANNEAL_CPU=auto`); of
# SOME, which take half as long again with a compiler, every test does in the deep tier, and one of four elsewhere.
# The others ask for NumPy, which compiles nothing: all would take a third longer with a compiler. What holds for values
# in NumPy is held in C by tests/backend/cpu/test_values_in_c.py.
TESTS = Path(__file__).parent
ALL = ("backend/cpu", "inspect")
SOME = ("examples", "fuzz", "programs", "runtime", "training")


def room_of(request: pytest.FixtureRequest, rooms: tuple[str, ...]) -> bool:
    """True if the file of a test is in one of these folders of tests/."""
    path = request.path
    return path.is_relative_to(TESTS) and path.relative_to(TESTS).as_posix().startswith(tuple([f"{r}/" for r in rooms]))


@contextmanager
def in_numpy() -> Iterator[None]:
    with settings.override(cpu="numpy"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANNEAL_CPU", "numpy")  # for processes that tests start
        yield


@pytest.fixture(scope="module", autouse=True)
def _kernels_of_this_file(request: pytest.FixtureRequest) -> Iterator[None]:
    """The maker of the cpu's kernels: who says ANNEAL_CPU has it in all files."""
    with nullcontext() if USER_CPU or room_of(request, ALL + SOME) else in_numpy():
        yield


@pytest.fixture(autouse=True)
def _kernels_of_this_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """NumPy for most tests of some rooms, chosen by their names, so that a failure is found again."""
    plain = not USER_CPU and room_of(request, SOME) and request.config.getoption("--tier") != "deep"
    with in_numpy() if plain and zlib.crc32(request.node.nodeid.encode()) % 4 else nullcontext():
        yield


@pytest.fixture
def same_kernels() -> Iterator[None]:
    """One maker of the cpu's kernels, for tests that ask for the same bits with jit and without."""
    with settings.override(cpu="numpy"):
        yield


@pytest.fixture(scope="module", autouse=True)
def _heap_of_this_file() -> Iterator[None]:
    """What a file's tests leave behind is not walked again: a collection took 2 s after some thousands of tests."""
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Thousands of tests and the modules they import stay: the garbage collector need not walk them, now or later.

    And it looks seldom, since what tests make goes without it: it took a twentieth of the time.
    """
    gc.set_threshold(10_000, 10, 10)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def opened(name: str) -> Iterator[None]:
    """Within the block a software adapter will do; skips where there is none, unless one is required."""
    must = settings.current().require_webgpu
    with settings.override(require_webgpu=True):
        try:
            get_device(name)
        except DeviceError as e:
            if must:
                raise
            pytest.skip(f"no WebGPU adapter: {e}")
        yield


@pytest.fixture
def webgpu() -> Iterator[str]:
    """The name of the device; skips where there is no adapter, unless ANNEAL_REQUIRE_WEBGPU=1 asks for one."""
    with opened("webgpu"):
        yield "webgpu"


@pytest.fixture(params=["cpu", "webgpu"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each device in turn, as the default one; skips webgpu where there is no adapter, unless one is required."""
    name: str = request.param
    with opened(name):
        set_default_device(name)
        try:
            yield name
        finally:
            set_default_device(None)
