"""The tiers of the tests, and how a long table is thinned for each.

    make test    what everyone runs: every written test, a thin sample of the long tables
    .ci/run      `--tier ci`: a denser sample, and tests marked `ci`
    make deep    `--tier deep`: every row of every table, and tests marked `deep`

A table that takes more than a few seconds is wrapped in `thinned`: all rows are cases of one test, and those that a tier leaves out are
marked for the tier that runs them. Which rows those are depends on their place alone, so a failure is found again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

TIERS = ("test", "ci", "deep")


def thinned(rows: Iterable[Any], *, test: int, ci: int) -> list[Any]:
    """Every row as a pytest parameter: each `test`-th runs in every tier, each `ci`-th from CI on, all of them in the deep tier."""
    out = []
    for n, row in enumerate(rows):
        marks: Sequence[Any] = () if n % test == 0 else (pytest.mark.ci,) if n % ci == 0 else (pytest.mark.deep,)
        out.append(
            pytest.param(*row.values, id=row.id, marks=(*row.marks, *marks))
            if _is_param(row)
            else pytest.param(row, marks=marks)
        )
    return out


def _is_param(row: Any) -> bool:
    return hasattr(row, "values") and hasattr(row, "marks") and hasattr(row, "id")


def runs(item: pytest.Item, tier: str) -> bool:
    """Whether the tier runs this test."""
    needed = max((TIERS.index(mark) for mark in ("ci", "deep") if item.get_closest_marker(mark)), default=0)
    return TIERS.index(tier) >= needed
