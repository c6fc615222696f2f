"""The tiers leave out rows of tables and nothing else, and what makes up `make deep` and CI says what it did."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import blas, conftest, deep, orders
from tests.tiers import TIERS, thinned


class Item:
    """A collected test, as far as the tiers look at it."""

    def __init__(self, values: Any, *marks: pytest.MarkDecorator) -> None:
        self.values, self.marks = values, {m.name for m in marks}
        self.nodeid = "tests/test_tiers.py::test_this_row_is_of_this_tier"

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def ran(rows: list[Any], tier: str) -> list[Any]:
    """What pytest runs of `rows` in a tier; what it does not run is reported as deselected."""
    items: list[Any] = [Item(row.values, *row.marks) for row in rows]
    everything = set(items)
    left_out: list[Any] = []
    config: Any = SimpleNamespace(
        getoption={"--tier": tier}.__getitem__,
        hook=SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items)),
    )
    conftest.pytest_collection_modifyitems(config, items)
    assert len(items) + len(left_out) == len(rows)
    assert {*items, *left_out} == everything
    return [item.values[0] for item in items]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64, 500])
@pytest.mark.parametrize(("test", "ci"), [(1, 1), (2, 1), (5, 5), (12, 3), (400, 30)])
def test_every_row_runs_somewhere_and_each_tier_runs_what_the_one_before_does(count: int, test: int, ci: int) -> None:
    rows = thinned(range(count), test=test, ci=ci)
    tiers = [ran(rows, tier) for tier in TIERS]
    assert tiers[2] == list(range(count))
    assert set(tiers[0]) <= set(tiers[1])
    assert tiers[0][:1] == tiers[2][:1]
    for found, share in zip(tiers, (test, ci)):
        assert count // share <= len(found) <= count / share + (1 if found is tiers[0] else count / test + 1)
    assert tiers == [ran(thinned(range(count), test=test, ci=ci), tier) for tier in TIERS]  # the same every time


@pytest.mark.parametrize("inner", range(2, 13))
@pytest.mark.parametrize("test", [4, 6, 10, 12])
def test_a_sample_of_a_product_meets_every_value(inner: int, test: int) -> None:
    met = Counter(b for _, b in ran(thinned(itertools.product(range(100), range(inner)), test=test, ci=2), "test"))
    assert all(100 / test / 4 < met[b] < 100 / test * 2.5 for b in range(inner)), met


def test_what_a_row_is_called_and_marked_with_stays() -> None:
    table = [pytest.param(n, n + 1, id=f"row {n}", marks=pytest.mark.slow) for n in range(9)]
    for row, found in zip(table, thinned(table, test=9, ci=3), strict=True):
        assert (found.values, found.id) == (row.values, row.id)
        assert pytest.mark.slow in found.marks


@pytest.mark.parametrize(("test", "ci"), [(2, 3), (0, 0), (3, 0)])
def test_ci_runs_no_less_than_everyone(test: int, ci: int) -> None:
    with pytest.raises(ValueError, match="thinned: one row of"):
        thinned(range(3), test=test, ci=ci)


def test_marked_tests_run_from_their_tier_on() -> None:
    rows = [pytest.param(0), pytest.param(1, marks=pytest.mark.ci), pytest.param(2, marks=pytest.mark.deep)]
    assert [ran(rows, tier) for tier in TIERS] == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("row", thinned(range(12), test=6, ci=3))
def test_this_row_is_of_this_tier(row: int, request: pytest.FixtureRequest) -> None:
    assert row in ran(thinned(range(12), test=6, ci=3), request.config.getoption("--tier"))


# -- what make deep writes ---------------------------------------------------------------------------------------------

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_one" file="tests/test_a.py" time="1.5"/>
<testcase classname="tests.test_a" name="test_two[x]" file="tests/test_a.py" time="0.25"><failure message="no"/></testcase>
<testcase classname="tests.test_a" name="test_three" file="tests/test_a.py" time="0"><skipped message="no GPU"/></testcase>
<testcase classname="anneal.settings" name="anneal.settings" time="0.5"/>
</testsuite></testsuites>"""


def test_what_make_deep_writes(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    files, failed = deep.counted(report)
    assert failed == ["tests/test_a.py::test_two[x]"]
    begun = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    text = deep.written(files, failed, begun=begun, seconds=600, where="a processor, 2 cores", what="abc with changes")
    for line in (
        "- begun 2026-01-02 03:04 UTC on commit abc with changes",
        "- a processor, 2 cores",
        "- 2 passed, 1 failed, 1 skipped in 10 minutes",
        "- `tests/test_a.py::test_two[x]`",
        "| anneal/settings | 1 | 0 | 0 | 0.5 |",
        "| tests/test_a.py | 1 | 1 | 1 | 1.8 |",
    ):
        assert line in text.splitlines()
    assert "Failed" not in deep.written(files, [], begun=begun, seconds=600, where="", what="")


def test_the_machine_and_the_commit_have_names() -> None:
    assert " cores; " in deep.machine()
    assert deep.commit()


@pytest.mark.parametrize("arguments", [[], ["-n2"], ["-n16"]])
def test_how_many_processes_run_it_makes_no_part_of_it(arguments: list[str]) -> None:
    assert not deep.partial(arguments)
    assert deep.partial([*arguments, "-k", "gradient"])


# -- another order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "wanted"), [(None, "d c b a"), (1, None)])
def test_another_order_keeps_the_tests_of_a_file_together(seed: int | None, wanted: str | None) -> None:
    items: list[Any] = [
        SimpleNamespace(path=Path(file), name=name, nodeid=name) for name, file in zip("abcd", "1122", strict=True)
    ]
    order = orders.Order(seed)
    order.pytest_collection_modifyitems(items)
    assert sorted(item.name for item in items) == list("abcd")
    assert items[0].path == items[1].path
    if wanted is not None:
        assert [item.name for item in items] == wanted.split()


def test_a_test_that_passes_alone_and_fails_after_others_is_told(tmp_path: Path) -> None:
    file = tmp_path / "test_those.py"
    file.write_text("said = []\ndef test_one():\n    assert not said\ndef test_two():\n    said.append(1)\n")
    command = [sys.executable, "-m", "tests.orders", str(file)]
    done = subprocess.run(command, cwd=orders.ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stdout
    assert "passes alone, and fails after others: " in done.stdout
    assert "test_one" in done.stdout.splitlines()[-1]


# -- kernels of BLAS ---------------------------------------------------------------------------------------------------


def test_kernels_are_those_the_processor_executes_and_blas_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    takes = {
        "": "Haswell",
        "Prescott": "Katmai",
        "Core2": "Katmai",
        "Haswell": "Haswell",
        "Zen": "Haswell",
        "SkylakeX": "SkylakeX",
    }
    monkeypatch.setattr(blas, "_kernel_of", lambda name: takes.get(name, ""))
    monkeypatch.setattr(blas.platform, "machine", lambda: "AMD64")
    everything = set().union(*blas.KERNELS["x86_64"].values())
    for have, expected in (
        (everything, ["Prescott", "SkylakeX"]),
        (everything - {"avx512f"}, ["Prescott"]),
        (set(), []),
    ):
        monkeypatch.setattr(blas, "flags", lambda have=have: have)
        assert blas.others() == expected


def test_what_ci_runs_under_other_kernels_exists() -> None:
    for name in blas.TESTS:
        file, _, test = name.partition("::")
        text = (Path(blas.__file__).parents[1] / file).read_text(encoding="utf-8")
        assert f"def {test.partition('[')[0] or 'test_'}" in text, name


def test_this_process_has_a_kernel_or_another_blas() -> None:
    assert blas.kernel() == blas._kernel_of(blas.os.environ.get("OPENBLAS_CORETYPE", ""))
