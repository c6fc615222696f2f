"""The work of Python in warm steps without jit, counted: calls of functions, and files of anneal that they are in.

    python -m benchmarks.calls                # all programs, a table
    python -m benchmarks.calls --cases add,adam
    python -m benchmarks.calls --cases adam --where   # the functions that are called most

Counts do not depend on the machine: `tests/runtime/test_calls.py` holds them. Each program runs a few rounds first; a
loop is known from its third round on.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

import anneal
from anneal import nn, optim
from anneal.tensor import Tensor

_PACKAGE = str(Path(anneal.__file__).parent)
Program = Callable[[], tuple[Any, Any, Any]]  # functions: what comes before, what is counted, what comes after


@dataclass(frozen=True, slots=True)
class Counts:
    """The calls of Python functions of one turn, by code, and the number of files of anneal that they are in."""

    codes: Counter[CodeType]

    @property
    def calls(self) -> int:
        """The number of calls."""
        return sum(self.codes.values())

    @property
    def files(self) -> int:
        """The number of files of anneal."""
        return len({c.co_filename for c in self.codes if c.co_filename.startswith(_PACKAGE)})


def counted(turn: FunctionType) -> Counts:
    """The calls of Python functions that a function makes, without its own."""
    found: Counter[CodeType] = Counter()

    def called(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            found[frame.f_code] += 1

    outer = sys.getprofile()
    sys.setprofile(called)
    try:
        turn()
    finally:
        sys.setprofile(outer)
    found.pop(turn.__code__, None)
    return Counts(found)


def _nothing() -> None:
    """No part of a program."""


def add() -> tuple[Any, Any, Any]:
    """`a + b` in a loop that reads the sum."""
    a, b = Tensor(np.ones(3, np.float32)).realize(), Tensor(np.ones(3, np.float32)).realize()
    made: list[Tensor] = []

    def turn() -> None:
        made.append(a + b)

    return _nothing, turn, lambda: made.pop().numpy()


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 5))


def model() -> tuple[Any, Any, Any]:
    """`model(x)` of two layers in a loop that reads the result."""
    layers, x = _model(), Tensor(np.ones((8, 20), np.float32)).realize()
    made: list[Tensor] = []

    def turn() -> None:
        made.append(layers(x))

    return _nothing, turn, lambda: made.pop().numpy()


def _step(make: Callable[[Any], optim.Optimizer]) -> Program:
    def program() -> tuple[Any, Any, Any]:
        layers = _model()
        optimiser, x = make(layers.parameters()), Tensor(np.ones((8, 20), np.float32)).realize()

        def before() -> None:
            optimiser.zero_grad()
            (layers(x) ** 2).mean().backward()

        def turn() -> None:
            optimiser.step()

        return before, turn, _nothing

    return program


PROGRAMS: dict[str, Program] = {
    "add": add,
    "model": model,
    "sgd": _step(lambda p: optim.SGD(p, lr=0.1, momentum=0.9)),
    "adam": _step(optim.Adam),
    "adamw": _step(optim.AdamW),
}


def counts_of(name: str, rounds: int = 6) -> Counts:
    """The counts of a program's warm turn."""
    before, turn, after = PROGRAMS[name]()
    for _ in range(rounds - 1):
        before()
        turn()
        after()
    before()
    found = counted(turn)
    after()
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(PROGRAMS))
    parser.add_argument("--where", action="store_true", help="the functions that are called most")
    options = parser.parse_args()
    for name in options.cases.split(","):
        found = counts_of(name)
        print(f"{name:8} {found.calls:6} calls {found.files:4} files")
        if options.where:
            for code, count in found.codes.most_common(60):
                print(f"  {count:6} {code.co_filename.removeprefix(_PACKAGE)}:{code.co_qualname}")


if __name__ == "__main__":
    main()
