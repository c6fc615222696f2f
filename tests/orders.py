"""Tests in another order: `python -m tests.orders [--seed N] [PYTEST'S ARGUMENTS]` runs what the arguments name with
its files shuffled, and the tests within each file; without a seed, from the last to the first.

All run in one process, so that what a test leaves behind meets tests that it does not meet otherwise. A test that fails
there is run once more alone: one that passes alone depends on what ran before, and the command ends with 1.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


class Order:
    """A pytest plugin that puts tests in another order, and notes those that failed.

    Args:
        seed: the number that shuffles; None turns the order round.
    """

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self.failed: list[str] = []
        self.places: dict[str, str] = {}  # of tests, by their names

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Files in another order, and the tests of each; a file's tests stay together, with the fixtures of it."""
        files: dict[Path, list[pytest.Item]] = defaultdict(list)
        for item in items:
            files[item.path].append(item)
            self.places[item.nodeid] = "::".join([str(item.path), *item.nodeid.split("::")[1:]])
        groups = list(files.values())
        items[:] = [item for group in shuffled(groups, self.seed) for item in shuffled(group, self.seed)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that failed."""
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)


def shuffled(what: list[Any], seed: int | None) -> list[Any]:
    """A list in another order: that of a seed, or from the last to the first."""
    if seed is None:
        return what[::-1]
    return random.Random(seed).sample(what, len(what))


def main(arguments: list[str]) -> int:
    """Run the tests, and those that failed alone; the exit code."""
    seed = None
    if "--seed" in arguments:
        at = arguments.index("--seed")
        seed = int(arguments[at + 1])
        arguments = arguments[:at] + arguments[at + 2 :]
    order = Order(seed)
    ended = pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[order])
    if ended > pytest.ExitCode.TESTS_FAILED:
        return int(ended)
    alone = [test for test in order.failed if _passes(order.places.get(test, test))]
    for test in alone:
        print(f"passes alone, and fails after others: {test}")
    return int(bool(order.failed))


def _passes(test: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=600).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
