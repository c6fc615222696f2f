"""Run tests with kernels in C: `python -m tests.backend.cpu.in_batches ARGUMENTS OF PYTEST`.

To start a compiler takes longer than to compile a small kernel. So forks of this process have a share of the tests
each, and send it the C of the kernels that they ask for. Once all of them wait for kernels, it compiles what they sent
in one unit, with the package's flags, and each loads what it waits for. With `--one-by-one` this process runs all, as
the package does: that is faster where the tests themselves take long, and kernels are few. With `--one-of=N` one test
of N runs, the one that a tier would choose (tests/tiers.py).

The exit code is pytest's, or 1 if a kernel could not be compiled: the package runs all of them in NumPy from then on,
and what it says of that is output of a test, which pytest keeps to itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

import pytest

from anneal.backend import compiler, get_device
from anneal.backend.compiler import Compiler, Library, NotCompiled
from anneal.backend.cpu import CpuDevice, in_c
from anneal.backend.cpu.in_c import CKernels
from anneal.backend.cpu.workers import CPart
from tests.tiers import chosen

ALONE = "--one-by-one"
ONE_OF = "--one-of="
_FORKS = 12  # more would share a start of the compiler among more kernels, and take memory


def run(arguments: Sequence[str]) -> int:
    """The exit code, of this process and of each fork, which returns too."""
    command = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--capture=sys", "-k", "not webgpu"]
    command += [a for a in arguments if a != ALONE and not a.startswith(ONE_OF)]
    plugins: list[object] = [_Thinned(int(a.removeprefix(ONE_OF))) for a in arguments if a.startswith(ONE_OF)]
    if ALONE not in arguments:
        plugins.append(_Shared())
    code = int(pytest.main(command, plugins=plugins))
    if failed := _kernels().failed:
        print(failed)
    return code or int(bool(failed))


def _kernels() -> CKernels:
    device = get_device("cpu")
    assert isinstance(device, CpuDevice)
    return device.kernels


class _Thinned:
    """Leaves one test of `of`."""

    def __init__(self, of: int) -> None:
        self.of = of

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for n, item in enumerate(items) if chosen(n, self.of)]


class _Shared:
    """Has the tests run in forks, which share a compiler."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        codes = forked()
        if isinstance(codes, int):
            session.items[:] = session.items[codes::_FORKS]
            return None  # pytest's own loop runs them
        none = int(pytest.ExitCode.NO_TESTS_COLLECTED)
        session.testsfailed = sum([code not in (0, none) for code in codes])
        return True


def forked() -> int | list[int]:
    """In each of `_FORKS` forks its number, from 0 on; in this process the exit codes of all, once they have ended."""
    found = compiler.find()
    assert found is not None
    _kernels()._load([], found)  # the pool: the forks have it then
    forks: dict[int, Connection] = {}
    for n in range(_FORKS):
        ours, theirs = Pipe()
        child = os.fork()
        if not child:
            for end in (ours, *forks.values()):
                end.close()
            _ask(theirs)
            return n
        theirs.close()
        forks[child] = ours
    with tempfile.TemporaryDirectory() as folder:
        _serve([*forks.values()], found, Path(folder))
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in forks]


def _ask(server: Connection) -> None:
    """Have functions in C compiled by the server."""
    load, loaded = CKernels._load, dict[str, Library]()

    def ask(self: CKernels, parts: Sequence[CPart], found: Compiler) -> None:
        if new := {p.symbol: (p.head, p.text) for p in parts if p.head and p.symbol not in self._libraries}:
            server.send(new)
            places: dict[str, str] | str = server.recv()
            if isinstance(places, str):
                raise NotCompiled(places)
            for symbol, place in places.items():
                if place not in loaded:
                    loaded[place] = Library(place, place)
                self._libraries[symbol] = loaded[place]
        load(self, parts, found)

    CKernels._load = ask  # type: ignore[method-assign]


def _serve(forks: Sequence[Connection], found: Compiler, folder: Path) -> None:
    """Compile what forks ask for, until all of them have ended."""
    left = set(forks)
    asked: dict[Connection, dict[str, tuple[str, str]]] = {}
    places: dict[str, str] = {}  # of a function's library
    while left:
        for fork in wait(left - asked.keys()):
            assert isinstance(fork, Connection)
            try:
                asked[fork] = fork.recv()
            except EOFError:
                left.remove(fork)
        if asked.keys() < left:
            continue
        new = {symbol: text for texts in asked.values() for symbol, text in texts.items() if symbol not in places}
        failure = ""
        if new:
            unit = in_c._unit([CPart(symbol, (), (), 0, head=head, text=text) for symbol, (head, text) in new.items()])
            place = folder / f"{len(places)}.so"
            try:
                place.write_bytes(compiler._compiled([unit], found)[0])
                places |= dict.fromkeys(new, str(place))
            except (OSError, subprocess.SubprocessError) as e:
                failure = str(e)
        for fork, texts in asked.items():
            fork.send(failure or {symbol: places[symbol] for symbol in texts})
        asked.clear()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
