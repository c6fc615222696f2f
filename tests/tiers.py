"""The tiers of the tests, and how a long table is thinned for each.

    make quick   `--tier quick`: the part of the next one that needs no GPU, in less than a minute (tests/quick.py)
    make test    what everyone runs: every written test, a thin sample of the long tables
    .ci/run      `--tier ci`: a denser sample, and tests marked `ci`
    make deep    `--tier deep`: every row of every table, and tests marked `deep`

A table that takes more than a few seconds is wrapped in `thinned`: all rows are cases of one test, and those that a
tier leaves out are marked for the tier that runs them. Which rows those are depends on their place alone, so a failure
is found again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests import quick

QUICK = "quick"
TIERS = ("test", "ci", "deep")


def thinned(rows: Iterable[Any], *, test: int, ci: int) -> list[Any]:
    """Every row as a pytest parameter: one of `test` runs in every tier, one of `ci` from CI on, all of them in the
    deep tier.

    The first row runs in every tier. ValueError if CI would run less than everyone does.
    """
    if not 1 <= ci <= test:
        raise ValueError(f"thinned: one row of {ci} in CI and of {test} elsewhere; the first is from 1 to the second")
    out = []
    for n, row in enumerate(rows):
        marks: Sequence[Any] = ()
        if not chosen(n, test):
            marks = (pytest.mark.ci,) if chosen(n, ci) else (pytest.mark.deep,)
        out.append(
            pytest.param(*row.values, id=row.id, marks=(*row.marks, *marks))
            if _is_param(row)
            else pytest.param(row, marks=marks)
        )
    return out


def on_devices(rows: Iterable[Any], *, test: int, ci: int) -> list[Any]:
    """Parameters (device, row): every row on the cpu, and `thinned` on webgpu, where each kernel is compiled by Mesa.

    For `@pytest.mark.parametrize(("device", ...), on_devices(...), indirect=["device"])`. A row that is a function goes
    by its name.
    """
    by_name = {getattr(row, "__name__", None) or str(row): row for row in rows}
    cpu, webgpu = (
        [pytest.param(device, row, id=f"{name}-{device}") for name, row in by_name.items()]
        for device in ("cpu", "webgpu")
    )
    return [*cpu, *thinned(webgpu, test=test, ci=ci)]


def chosen(n: int, of: int) -> bool:
    """Whether row `n` is the one that stands for its block of `of` rows.

    Not always the first of the block: a table is a product of lists more often than not, and each n-th row of it may
    have the same device, dtype or axis throughout.
    """
    block, place = divmod(n, of)
    return place == (zlib.crc32(f"{block} {of}".encode()) % of if block else 0)


def _is_param(row: Any) -> bool:
    return hasattr(row, "values") and hasattr(row, "marks") and hasattr(row, "id")


def runs(item: pytest.Item, tier: str) -> bool:
    """Whether the tier runs this test."""
    if tier == QUICK:
        return quick.chosen(item)
    needed = max((TIERS.index(mark) for mark in ("ci", "deep") if item.get_closest_marker(mark)), default=0)
    return TIERS.index(tier) >= needed
