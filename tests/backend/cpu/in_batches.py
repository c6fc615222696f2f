"""Run tests with kernels in C: `python -m tests.backend.cpu.in_batches ARGUMENTS OF PYTEST`.

To start a compiler takes longer than to compile a small kernel. So a child of this process runs the tests in NumPy
first and writes down the C of each kernel that they ask for. All of it is compiled as the package does it, but many
functions to a unit. Then the tests run with these; a kernel that nobody asked for before is compiled when it is. With
`--one-by-one` all are: that is faster where the tests themselves take long, and kernels are few.

The exit code is pytest's, or 1 if a kernel could not be compiled: the package runs all of them in NumPy from then on,
and what it says of that is output of a test, which pytest keeps to itself.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from anneal.backend import get_device
from anneal.backend.cpu import CpuDevice, compiler, in_c
from anneal.backend.cpu.compiled import CPart
from anneal.backend.cpu.in_c import CKernels
from anneal.uop import UOp

ALONE = "--one-by-one"
_FUNCTIONS = 40  # of a unit


def run(arguments: Sequence[str]) -> int:
    """The exit code."""
    command = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", "not webgpu"]
    command += [a for a in arguments if a != ALONE]
    held = [] if ALONE in arguments else _compiled(_asked_for(command))
    code = int(pytest.main(command))
    failed = _device().kernels.failed
    print(f"{len(held)} units were compiled before", failed)
    return code or int(bool(failed))


def _asked_for(command: list[str]) -> list[CPart]:
    """A part for each function that the tests would have in C."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "parts")
        child = os.fork()
        if not child:
            try:
                _write_down(command, place)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return [CPart(symbol, (), (), 0, head=h, text=t) for symbol, h, t in pickle.loads(place.read_bytes())]


def _write_down(command: list[str], place: Path) -> None:
    parts: dict[str, tuple[str, str, str]] = {}

    def make(self: CKernels, sinks: Sequence[UOp]) -> None:
        for sink in sinks:
            made = self.planned(sink)
            parts.update({p.symbol: (p.symbol, p.head, p.text) for p in (made.parts if made else ()) if p.head})
            self._programs[sink] = None  # which is: NumPy runs it

    CKernels._make = make  # type: ignore[method-assign]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    pytest.main(command)
    place.write_bytes(pickle.dumps([*parts.values()]))


def _compiled(parts: Sequence[CPart]) -> list[compiler.Library]:
    """The libraries of parts, which the device knows for as long as they are held."""
    kernels, found = _device().kernels, compiler.find()
    assert found is not None
    units = [parts[first : first + _FUNCTIONS] for first in range(0, len(parts), _FUNCTIONS)]
    held: list[compiler.Library] = []
    for first in range(0, len(units), kernels.threads):  # so many run side by side
        some = units[first : first + kernels.threads]
        held += compiler.libraries([in_c._unit(unit) for unit in some], found)
        for unit, library in zip(some, held[first:], strict=True):
            kernels._libraries.update({p.symbol: library for p in unit})
    return held


def _device() -> CpuDevice:
    device = get_device("cpu")
    assert isinstance(device, CpuDevice)
    return device


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
